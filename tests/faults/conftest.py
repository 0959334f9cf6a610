"""What every entry of the fault corpus uses: fixtures of the kernels' tests, and the page that keeps what was found.

With `-v` the matrix is printed at the end, as the rows were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from .elsewhere import module_of
from .matrix import PAGE, Caught, heading, row_of, rows_on_the_page

kernels = module_of("kernels/conftest.py")
attend, broken, case = kernels.attend, kernels.broken, kernels.case
split, prefill, ring = kernels.split, kernels.prefill, kernels.ring
decode, problem = kernels.decode, kernels.problem
delta = module_of("kernels/chunk_gated_delta_rule/conftest.py").delta
ROW = "fault-matrix"


@pytest.fixture
def on_the_page(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """`on_the_page(id, text, sees, caught, ended)`: print the row, and fail unless the page has just this line."""

    def check(id: str, text: str, sees: Iterable[str], caught: Caught, ended: bool = True) -> None:
        row = row_of(id, text, sees, caught, ended)
        record_property(ROW, row)
        found = rows_on_the_page().get(id)
        assert found == row, f"{PAGE.name} has {found}, and this is so:\n{row}"

    return check


@pytest.fixture(scope="session")
def ids_on_the_page() -> list[str]:
    """The first cell of each row of a matrix, in order."""
    return list(rows_on_the_page())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The matrix: fault and checker, in the page's order."""
    reports = (report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome))
    rows = {str(row) for report in reports for name, row in report.user_properties if name == ROW}
    if terminalreporter.verbosity < 1 or not rows:
        return
    order = {row: at for at, row in enumerate(rows_on_the_page().values())}
    terminalreporter.section("which checker sees which fault: M model, J jitter, L late")
    terminalreporter.write_line(heading())
    for row in sorted(rows, key=lambda row: (order.get(row, len(order)), row)):
        terminalreporter.write_line(row)
