"""What only this device can get wrong: both operands of a command in one bank of local memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_kernbench.checkers import Checker, about
from pytest_kernbench.simulator import Hazard, OpLog, Run
from pytest_kernbench.simulator.ops.log import Row

BANKS, BANK_BYTES = 4, 64
SCRATCH = "scratch"


def banks(row: Row) -> list[int]:
    """The banks in which the operands begin that the command reads."""
    reads = (each for each in row.operands if not each.written and each.tensor == SCRATCH)
    return [each.offset // BANK_BYTES % BANKS for each in reads]


def is_conflict(row: Row) -> bool:
    both = banks(row)
    return len(set(both)) < len(both)


def conflicts(run: Run) -> Iterator[Hazard]:
    """A finding a line, with how often it was found there."""
    found = [row for row in run.log if is_conflict(row)]
    count = Counter(row.site for row in found)
    for site, row in {row.site: row for row in reversed(found)}.items():
        side = about(run, row)
        fact = f"reads both operands from bank {banks(row)[0]} of {BANKS}; let them begin in different banks"
        yield Hazard("bank-conflict", f"{side}\n  {fact}", (side,), count[site])


def conflict_column(log: OpLog) -> list[bool]:
    """Whether a command has a conflict."""
    return [is_conflict(row) for row in log]


BANK_CONFLICTS = Checker({"bank-conflict": "both operands of a command begin in one bank of local memory"}, conflicts)
