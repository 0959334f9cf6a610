"""Conflicts between blocks are found in the time that the extents take, not their pairs."""

from time import process_time

import pytest

from pytest_kernbench.simulator.checks.blocks import Footprint, conflicts
from pytest_kernbench.simulator.errors import Involved, Site


def about(row: int, lo: int, hi: int) -> Involved:
    return Involved(row, "DataCopy", "MTE3", f"block{row}", f"[{lo}:{hi}]", Site("k.py", row % 2, "k"))


def prints(touches: list[tuple[bool, int, int, int]]) -> list[Footprint]:
    """One block each: (write, descriptor, lo, hi)."""
    blocks = []
    for row, (write, line, lo, hi) in enumerate(touches):
        block = Footprint()
        block.add(write, line, row, lo, hi)
        blocks.append(block)
    return blocks


@pytest.mark.adr("0310", "6.1")
def test_a_thousand_blocks_that_write_one_range_are_one_finding_and_quick() -> None:
    blocks = prints([(True, 0, 0, 64)] * 1024)
    start = process_time()
    hazards = conflicts(blocks, about, "")
    assert process_time() - start < 0.2
    assert {hazard.kind for hazard in hazards} == {"race-waw"}


@pytest.mark.parametrize(
    ("touches", "kinds"),
    [
        ([(True, 0, 0, 64), (True, 0, 64, 128)], []),
        ([(True, 0, 0, 64), (True, 0, 63, 128)], ["race-waw"]),
        ([(False, 0, 0, 64), (False, 0, 0, 64)], []),
        ([(False, 0, 0, 64), (True, 1, 0, 64)], ["race-raw"]),
        ([(True, 1, 0, 64), (False, 0, 0, 64)], ["race-raw"]),
    ],
)
def test_blocks_conflict_where_bytes_meet(touches: list[tuple[bool, int, int, int]], kinds: list[str]) -> None:
    assert [hazard.kind for hazard in conflicts(prints(touches), about, "")] == kinds


def test_a_block_does_not_conflict_with_itself() -> None:
    block = Footprint()
    block.add(True, 0, 0, 0, 64)
    block.add(False, 1, 1, 0, 64)
    assert not conflicts([block], about, "")
