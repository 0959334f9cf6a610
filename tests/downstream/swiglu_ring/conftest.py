"""Our chip, the layer on it, a rule of our own, and cycles in every report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_kernbench.checkers import Checker
    from pytest_kernbench.documents import Clause, Document
    from pytest_kernbench.running import RunKernel
    from pytest_kernbench.simulator import AhbmSpec, Run

    from simulator.paper import Layer


@pytest.fixture
def ahbm_spec() -> AhbmSpec:
    """One cube with wider vector units and fewer slots than the chip that pytest-kernbench has by itself."""
    from pytest_kernbench.simulator import AhbmSpec

    return AhbmSpec(cube_rows=1, cube_cols=1, math_lanes=256, ipcq_slots=2)


@pytest.fixture
def run_layer(run_kernel: RunKernel, ahbm_spec: AhbmSpec, request: pytest.FixtureRequest) -> Callable[..., Run]:
    """`run_layer(layer, ...) -> Run` of the layer on our chip; the report has its cycles."""
    from kernels.host import launch, random_problem

    def run(layer: Layer, **how: Any) -> Run:
        done = launch(random_problem(layer), ahbm_spec, run_kernel, **how)
        request.node.user_properties.append(("cycles", done.cycles))
        return done

    return run


# --- hooks of pytest-kernbench; optional, so that `-p no:kernbench` can do without them -------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_checkers() -> list[Checker]:
    """Every run of `run_kernel` is held against our rule too."""
    from simulator.rules import SMALL_MESSAGES

    return [SMALL_MESSAGES]


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_matrix_columns() -> dict[str, Callable[[Document, Clause], str]]:
    """Who answers for a clause, in the table of clauses."""
    return {"owner": lambda document, clause: "numerics" if clause.number.startswith("1") else "kernels"}


# --- cycles in the reports: a property of the test, so that they come through -n too ----------------------------------


def cycles_of(report: pytest.TestReport) -> Iterator[int]:
    yield from (value for name, value in report.user_properties if name == "cycles" and isinstance(value, int))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each run of the layer: its cycles, and the clauses of the test."""
    for report in terminalreporter.getreports("passed"):
        for cycles in cycles_of(report):
            clauses = dict(report.user_properties).get("verifies", "no clause")
            terminalreporter.line(f"cycles {cycles:6}  {clauses}  {report.nodeid}")


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_table_header(cells: list[str]) -> None:
    cells.insert(2, "<th>Cycles</th>")


@pytest.hookimpl(optionalhook=True)
def pytest_html_results_table_row(report: pytest.TestReport, cells: list[str]) -> None:
    cells.insert(2, f"<td>{', '.join(map(str, cycles_of(report)))}</td>")
