"""`python -m docs.reference` writes the pages beside it from the source: signatures, docstrings, fields with comments.

`PAGES` is the list of public modules, and tests/audit fails when a page is not what this would write.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OWN = "pytest_kernbench"
ASC = f"{OWN}.simulator.ascend310p.asc"
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "package": ("What `pytest_kernbench` has by name", (OWN, f"{OWN}.deprecation")),
    "tl": ("The language of the AHBM chip", (f"{OWN}.simulator.ahbm.tl",)),
    "asc": ("The language of the Ascend 310P", (ASC, f"{ASC}.forms")),
    "fixtures": ("Fixtures", (f"{OWN}.fixtures", f"{OWN}.running", f"{OWN}.snapshots", f"{OWN}.documents")),
    "settings": ("Marks, options and ini settings", ()),
    "assertions": ("Assertions", (f"{OWN}.assertions",)),
    "findings": ("Findings and errors", (f"{OWN}.hazards", f"{OWN}.simulator.errors")),
    "devices": ("Devices, runs and logs", (f"{OWN}.simulator", f"{OWN}.simulator.ahbm.topology")),
    "extending": ("Hooks, and checkers of your own", (f"{OWN}.hookspecs", f"{OWN}.checkers")),
    "strategies": ("Strategies", (f"{OWN}.strategies",)),
    "sweeps": ("Sweeps, and figures read from logs", (f"{OWN}.sweeps", f"{OWN}.messages", f"{OWN}.rooflines")),
}
SHORT = 100  # characters of a value that is shown


class Settings:
    """Stands in for pytest's parser, and keeps what the plugin adds to it."""

    def __init__(self) -> None:
        self.options: list[str] = []
        self.ini: list[str] = []

    def getgroup(self, *_: str) -> Settings:
        return self

    def addoption(self, name: str, *, help: str, default: object = None, metavar: str = "", **_: object) -> None:
        text = help.replace("%(default)s", str(default))
        self.options.append(f"- `{name}{'=' + metavar if metavar else ''}`: {text}")

    def addini(self, name: str, help: str, type: str = "string", default: object = None) -> None:
        self.ini.append(f"- `{name}` ({type}): {help}")


def pages() -> dict[str, str]:
    """Every page by its name."""
    written = {name: page(name) for name in PAGES}
    listed = [f"- [{title}]({name}.md): {modules(names)}" for name, (title, names) in PAGES.items()]
    note = "Written by `python -m docs.reference`; what each is promised is in [api.md](../api.md)."
    return {"README": "\n".join(["# Reference", "", note, "", *listed, ""]), **written}


def modules(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "`pytest --markers`, `pytest --help`"


def page(name: str) -> str:
    title, names = PAGES[name]
    lines = [f"# {title}", "", "Written from the source by `python -m docs.reference`.", ""]
    lines += settings() if not names else [line for each in names for line in of_module(each)]
    return "\n".join(lines).rstrip() + "\n"


def settings() -> list[str]:
    from pytest_kernbench import marks, plugin

    recorded: Any = Settings()
    plugin.pytest_addoption(recorded)
    known = ["- `@pytest.mark.{0}`:{2}".format(*line.partition(":")) for line in marks.registrations({})]
    return ["## Marks", "", *known, "", "## Options", "", *recorded.options, "", "## Ini settings", "", *recorded.ini]


def of_module(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    yield from (f"## `{name}`", "", text_of(module.__doc__), "")
    for each in public(module):
        yield from of_name(name, each, getattr(module, each))
    yield ""


def public(module: Any) -> list[str]:
    """Its `__all__`; of a module that only helps a page, the classes it defines."""
    return getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    ]


def of_name(module: str, name: str, value: Any) -> Iterator[str]:
    """A name of a module: said where it is defined; the package itself only says where that is."""
    made = inspect.isclass(value) or inspect.isroutine(value)
    home = value.__module__ if made else module
    if module == OWN:
        yield f"- `{name}`" + (f": of `{home}`" if made else "")
        return
    for node, doc in defined(home, name):
        yield from (f"### `{head(node)}`", "", *([text_of(doc), ""] if doc else []))
        if isinstance(node, ast.ClassDef) and (said := [*members(node, home)]):
            yield from (*said, "")


def defined(module: str, name: str) -> list[tuple[ast.stmt, str]]:
    """What defines the name in a module's source, or where that has it from, each with its text."""
    body = parsed(module)
    taken = [
        each.module for each in body if isinstance(each, ast.ImportFrom) if name in {one.name for one in each.names}
    ]
    own = [(node, doc) for node, doc in documented(body) if name in bound(node)]
    return own or [found for home in taken if home for found in defined(home, name)]


@cache
def parsed(module: str) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(importlib.import_module(module))).body


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and after.value.value
            yield node, inspect.cleandoc(said) if isinstance(said, str) else ""


def bound(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {getattr(node, "name", ""), *(each.id for each in targets if isinstance(each, ast.Name))}


def head(node: Any) -> str:
    """The line that says how it is used."""
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})" if node.bases else f"class {node.name}"
    if isinstance(node, ast.FunctionDef):
        if any("fixture" in ast.unparse(each) for each in node.decorator_list):
            return f"{node.name}: {ast.unparse(node.returns) if node.returns else ''}"
        for given in (node.args.args, node.args.posonlyargs):
            given[:] = [each for each in given if each.arg not in ("self", "cls")]
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        is_property = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
        return f"{node.name}{returns}" if is_property else f"{node.name}({ast.unparse(node.args)}){returns}"
    text = ast.unparse(node)
    return text if len(text) <= SHORT else text.partition(" = ")[0]


def members(node: ast.ClassDef, home: str) -> Iterator[str]:
    lines = inspect.getsource(importlib.import_module(home)).splitlines()
    for each, doc in documented(node.body):
        if all(name.startswith("_") and name not in ("__init__", "__call__") for name in bound(each) - {""}):
            continue
        said = doc or (lines[each.lineno - 1].partition("  # ")[2] if isinstance(each, ast.AnnAssign) else "")
        yield f"- `{head(each)}`"
        yield from (f"  {line}".rstrip() for line in text_of(said).splitlines())


def text_of(doc: str | None) -> str:
    """A docstring, without the word that is for pytest."""
    return re.sub(r"\s*PYTEST_DONT_REWRITE", "", inspect.cleandoc(doc or "")).strip()


if __name__ == "__main__":
    for path in HERE.glob("*.md"):
        path.unlink()
    for name, text in pages().items():
        (HERE / f"{name}.md").write_text(text, encoding="utf-8")
