"""Mutants of a few lines of a kernel."""

import ast
from collections.abc import Callable

import pytest

from pytest_kernbench.mutation.mutants import mutants_of, mutated

HEAD = "def kernel(x, y, n, *, tl, asc):\n"

Changed = Callable[[str, str], list[str]]


@pytest.fixture(scope="session")
def changed() -> Changed:
    """`changed("drop-wait", "tl.wait(h)")`: what the body of a kernel is with each mutant of that kind."""

    def bodies(kind: str, body: str) -> list[str]:
        source = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
        made = [mutated(source, each.number) for each in mutants_of(source, "m") if each.kind == kind]
        return ["\n".join(map(ast.unparse, tree.body[0].body)) for tree in made]  # type: ignore[attr-defined]

    return bodies
