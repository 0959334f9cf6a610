"""Documents, index and tests agree: every clause a test names exists, and every correction is made once."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_kernbench import parsing

CORRECTIONS = [f"R{number}" for number in range(1, 50)]


def marks(path: Path) -> Iterator[list[str]]:
    """The arguments of every `pytest.mark.adr(...)` of a file, found without running it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.adr":
            yield [ast.literal_eval(argument) for argument in node.args]


@pytest.fixture(scope="module")
def named(root: Path) -> list[tuple[str, str]]:
    """(document, clause) of every mark of the test suite; the repositories in `downstream` have their own documents."""
    tests = root / "tests"
    paths = [path for path in sorted(tests.rglob("test_*.py")) if tests / "downstream" not in path.parents]
    found = [mark for path in paths for mark in marks(path)]
    return [(document, clause) for document, *clauses in found for clause in clauses]


def test_every_clause_that_a_test_names_exists(named: list[tuple[str, str]]) -> None:
    existing = {(each.id, clause.number) for each in parsing.package_documents() for clause in each.clauses}

    assert named, "no test names a clause"
    assert sorted(set(named) - existing) == []


def test_the_index_is_what_the_documents_say(root: Path) -> None:
    fresh = parsing.index_text(parsing.read_folder(root / "specs"))

    assert '"0060"' in fresh
    assert (root / "specs/index.json").read_text(encoding="utf-8") == fresh, "run python -m pytest_kernbench.specs"


def test_every_correction_of_the_proposal_is_made_exactly_once(root: Path) -> None:
    (path,) = (root / "specs").glob("adr-0060-*.md")

    found = Counter(re.findall(r"\*\*Correction (R\d+)\.\*\*", path.read_text(encoding="utf-8")))

    assert found == Counter(CORRECTIONS)
