"""What a request, a block, a child or a piece took of scratch is there for the next (ADR-0063); they go in order."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run

SMALL = {"group": 2, "d": 32, "d_v": 32, "structure": True}
BATCHES = pytest.mark.parametrize("kind", ["decode", "fixed split", "prefill", "ring"])


@pytest.fixture
def fixed_split(attend: Any) -> Any:
    """`fixed_split([case, ...], n)`: splits of 16 keys, whose results no number of PEs changes."""

    def run(cases: list[Any], n: int) -> Run:
        chip, problems = AhbmChip(), [each.problem for each in cases]
        return attend(chip, driver.decode_fixed_split_batch(chip, problems, n, tile=16, split=16)).run  # type: ignore[no-any-return]

    return run


@pytest.fixture
def batch(split: Any, fixed_split: Any, prefill: Any, ring_batch: Any, case: Any) -> Any:
    """`batch(kind, count)`: a run of so many equal requests, two positions each, by that kernel."""

    def run(kind: str, count: int) -> Any:
        cases = [case(kv_len=40, t_q=2, **SMALL)] * count
        if kind == "prefill":
            return prefill(cases, tile=16, q_block=1).run
        if kind == "ring":
            return ring_batch(cases, 2, tile=16, q_block=2).run
        if kind == "fixed split":
            return fixed_split(cases, 2)
        return split(cases, 2, tile=16).run

    return run


@pytest.mark.adr("0063", "2")
@BATCHES
def test_four_requests_take_what_two_take(batch: Any, kind: str) -> None:
    """Two, since the splits of a request begin on the PE where those of the one before ended."""
    assert batch(kind, 4).scratch_high_water == batch(kind, 2).scratch_high_water


@BATCHES
def test_requests_and_their_blocks_are_answered_in_order(batch: Any, kind: str) -> None:
    stores = batch(kind, 3).log.where(unit="DMA_W", tensor="O")

    for program in sorted({row.program for row in stores}):
        written = [[each.offset for each in row.operands if each.written] for row in stores if row.program == program]
        offsets = [first for first, *_ in written]  # of the first head
        assert len(offsets) >= 3
        assert offsets == sorted(offsets)


@pytest.mark.adr("0060", "11.5")
def test_every_trip_round_a_ring_takes_the_same_scratch(ring: Any, case: Any) -> None:
    one, three = (ring(case(kv_len=24, t_q=tokens, **SMALL), 2, tile=8, q_block=4).run for tokens in (8, 24))

    assert three.scratch_high_water == one.scratch_high_water


@pytest.mark.adr("0060", "4")
def test_a_root_merges_three_children_in_the_scratch_of_one(split: Any, case: Any) -> None:
    of_two, of_eight = (split([case(kv_len=16 * n, **SMALL)], n, tile=16).run for n in (2, 8))

    assert of_eight.scratch_high_water == of_two.scratch_high_water


@pytest.mark.adr("0060", "4")
def test_four_pieces_of_o_are_merged_in_less_scratch_than_one(split: Any, case: Any) -> None:
    each = case(kv_len=4, t_q=8, **SMALL)
    whole, pieces = (split([each], 2, tile=16, message_bytes=rows * 32 * 4).run for rows in (16, 4))

    assert pieces.scratch_high_water < whole.scratch_high_water


@pytest.mark.adr("0060", "11.5")
def test_splits_are_folded_and_merged_in_the_scratch_of_four(fixed_split: Any, case: Any) -> None:
    four, seven = (fixed_split([case(kv_len=16 * count, **SMALL)], 1) for count in (4, 7))

    assert seven.scratch_high_water == four.scratch_high_water
