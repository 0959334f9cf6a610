"""What every entry of the fault corpus is judged by: checkers, schedules, and the page that keeps what they found."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from pytest_kernbench.hazards import ALLOCATION, KINDS, RACES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "fault-matrix.md"
SCHEDULES = {"M": ("model", 0), "J": ("jitter", 1), "L": ("late", 1)}
LEFT = ("message-left", "credit-lost", "op-in-flight-at-exit", "leak", "unpaired-flag", "double-flag")
BY_FINDING = {
    "race": RACES,
    "lifetime": (*ALLOCATION, "uninitialised-read", "queue-misuse"),
    "deadlock": ("deadlock", "livelock"),
    "leftover": LEFT,
    "nan": ("first-nan", "overflow"),
}
CHECKERS = (*BY_FINDING, "refusal", "numeric", "structure", "determinism")
assert all(kind in KINDS for kinds in BY_FINDING.values() for kind in kinds)


def module_of(path: str) -> ModuleType:
    """The module of another folder's file below tests/, which no package holds."""
    name = "faults_use_" + path.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


kernels = module_of("kernels/conftest.py")
attend, broken, case = kernels.attend, kernels.broken, kernels.case
split, prefill, ring = kernels.split, kernels.prefill, kernels.ring
decode, problem = kernels.decode, kernels.problem
delta = module_of("kernels/chunk_gated_delta_rule/conftest.py").delta
of_the_core = module_of("ascend310p/test_faults.py")


def checkers_of(kinds: Iterable[str]) -> set[str]:
    """The checkers that findings of these kinds come from; what none of the named ones looks for is a refusal."""
    return {next((name for name, found in BY_FINDING.items() if kind in found), "refusal") for kind in kinds}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`core_fault`: each kernel of tests/ascend310p/test_faults.py, with the mistake or mended as it is told.

    `core_case`: each launch of tests/kernels/test_ascend310p.py, which makes a run and what is expected of it.
    """
    if "core_fault" in metafunc.fixturenames:
        metafunc.parametrize("core_fault", of_the_core.FAULTS, ids=lambda kernel: kernel.__name__)
    if "core_case" in metafunc.fixturenames:
        cases = module_of("kernels/test_ascend310p.py").CASES
        metafunc.parametrize("core_case", cases.values(), ids=cases)


Caught = Mapping[str, set[str]]
"""By schedule's letter, the checkers that saw a fault there."""


@pytest.fixture(scope="session")
def schedules() -> dict[str, tuple[str, int]]:
    """Schedule and seed by letter."""
    return SCHEDULES


@pytest.fixture(scope="session")
def seen_by() -> Callable[[Iterable[str]], set[str]]:
    """`seen_by(kinds)`: the checkers that findings of these kinds come from."""
    return checkers_of


@pytest.fixture(scope="session")
def outcome_on_the_core() -> Callable[..., tuple[list[str], object]]:
    """`outcome_on_the_core(kernel, mended, schedule, seed)`: the kinds that were found, and y unless it was refused."""
    return of_the_core.outcome


def row_of(id: str, text: str, sees: Iterable[str], caught: Caught, ended: bool) -> str:
    """A fault's line of the matrix: the letters of the schedules under which each checker saw it.

    A run that did not come to its end has no result and nothing left over: no checker is said to miss that.
    """
    cells = ["".join(letter for letter in SCHEDULES if name in caught[letter]) or "." for name in CHECKERS]
    seen = set().union(*caught.values())
    unseen = ", ".join(sorted(set(sees) - seen)) if ended else ""
    verdict = "**missed**" if not seen else f"caught, not by {unseen}" if unseen else "caught"
    return f"| {id} | {text} | {', '.join(sees)} | {' | '.join(cells)} | {verdict} |"


@pytest.fixture(scope="session")
def on_the_page() -> Callable[..., None]:
    """`on_the_page(id, text, sees, caught, ended)`: fail unless the page has just this line for it."""
    lines = PAGE.read_text(encoding="utf-8").split("\n") if PAGE.exists() else []

    def check(id: str, text: str, sees: Iterable[str], caught: Caught, ended: bool = True) -> None:
        row = row_of(id, text, sees, caught, ended)
        found = [line for line in lines if line.startswith(f"| {id} |")]
        assert found == [row], f"{PAGE.name} has {found}, and this is so:\n{row}"

    return check


@pytest.fixture(scope="session")
def ids_on_the_page() -> list[str]:
    """The first cell of each row of a matrix, in order."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").split("\n") if line.endswith(" |")]
    return [cells[0].removeprefix("| ") for cells in rows if len(cells) == 4 + len(CHECKERS)]
