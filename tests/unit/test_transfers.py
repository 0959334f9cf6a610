"""Bytes that are fetched again while their copy stands, or fetched and never read: notes, for the result is right.

Every kernel here computes what its mended one does, so a comparison of values passes both; only the notes differ.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run

SCHEDULES = pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def run(kernel: Callable[..., None], **how: Any) -> Run:
    chip = AhbmChip()
    x = chip.tensor("x", (8, 8), "float32", X, "replicate")
    return chip.run(kernel, x, chip.tensor("o", (8, 8), "float32"), **how)


def notes(kernel: Callable[..., None], **how: Any) -> list[str]:
    return [note.kind for note in run(kernel, **how).notes]


def fetched_twice(x: Any, o: Any, *, tl: Any) -> None:
    weights = tl.wait(tl.load(x, (8, 8)))
    for first in (0, 4):
        rows = tl.load(x + 8 * first, (4, 8))  # they are in `weights`
        tl.wait(tl.store(o + 8 * first, rows * tl.rows(weights, 0, 4)))


def kept(x: Any, o: Any, *, tl: Any) -> None:
    weights = tl.wait(tl.load(x, (8, 8)))
    for first in (0, 4):
        rows = tl.rows(weights, first, 4)
        tl.wait(tl.store(o + 8 * first, rows * tl.rows(weights, 0, 4)))


@SCHEDULES
def test_a_tile_that_is_there_already_is_noted_and_the_result_is_the_same(schedule: str) -> None:
    twice, once = run(fetched_twice, schedule=schedule), run(kept, schedule=schedule)

    (note,) = twice.notes
    assert (note.kind, note.count, twice.hazards) == ("redundant-transfer", 2, ())
    assert [op.bytes for op in note.ops] == ["x[0:128] of HBM of PE0", "x[0:256] of HBM of PE0"]
    assert once.notes == ()
    assert (twice.array("o") == once.array("o")).all()
    ka.assert_no_redundant_transfers(once)
    with pytest.raises(
        AssertionError, match=r"^1 of redundant-transfer, expected 0\n\nredundant-transfer: load on DMA_R"
    ):
        ka.assert_no_redundant_transfers(twice)


def one_tile_too_many(x: Any, o: Any, *, tl: Any) -> None:
    tile = tl.load(x, (4, 8))
    for first in (0, 4):
        ahead = tl.load(x + 8 * (first + 4) % 64, (4, 8))
        tl.wait(tl.store(o + 8 * first, tile))
        tile = ahead
    tl.wait(tile)  # the loop fetched a tile that it does not use


def as_many_as_are_used(x: Any, o: Any, *, tl: Any) -> None:
    tile = tl.load(x, (4, 8))
    for first in (0, 4):
        ahead = tl.load(x + 8 * 4, (4, 8)) if first == 0 else tile
        tl.wait(tl.store(o + 8 * first, tile))
        tile = ahead


@SCHEDULES
def test_a_tile_that_nobody_reads_is_noted(schedule: str) -> None:
    much, enough = run(one_tile_too_many, schedule=schedule), run(as_many_as_are_used, schedule=schedule)

    assert {note.kind: note.count for note in much.notes if note.kind == "dead-transfer"} == {"dead-transfer": 1}
    assert enough.notes == ()
    assert (much.array("o") == enough.array("o")).all()
    ka.assert_no_dead_transfers(enough)
    with pytest.raises(AssertionError, match=r"^1 of dead-transfer, expected 0"):
        ka.assert_no_dead_transfers(much)


# What ends a copy


def load(tl: Any, x: Any, **how: Any) -> Any:
    tile = tl.wait(tl.load(x, (8, 8), **how))
    tl.wait(tl.max(tile))
    return tile


def copy_is_overwritten(x: Any, o: Any, *, tl: Any) -> None:
    tl.assign(load(tl, x), tl.zeros((8, 8)))
    load(tl, x)


def copy_is_recycled(x: Any, o: Any, *, tl: Any) -> None:
    for _ in range(2):
        with tl.scratch_scope():
            load(tl, x)


def source_is_written(x: Any, o: Any, *, tl: Any) -> None:
    tl.wait(tl.store(x, load(tl, x) * 2.0))
    load(tl, x)


def another_pe(x: Any, o: Any, *, tl: Any) -> None:
    load(tl, x)


def the_other_half(x: Any, o: Any, *, tl: Any) -> None:
    tl.max(tl.load(x, (4, 8)))
    load(tl, x)  # half of it is there, and one transfer fetches all


@pytest.mark.parametrize(
    "kernel", [copy_is_overwritten, copy_is_recycled, source_is_written, another_pe, the_other_half]
)
def test_without_a_whole_standing_copy_there_is_nothing_to_note(kernel: Callable[..., None]) -> None:
    assert notes(kernel, grid=2) == []


def test_a_copy_in_the_scratch_of_another_pe_is_none() -> None:
    chip = AhbmChip()
    x = chip.tensor("x", (8, 8), "float32", X, 0)  # one part, that both read

    def kernel(x: Any, *, tl: Any) -> None:
        load(tl, x)

    assert chip.run(kernel, x, grid=2).notes == ()


def test_a_part_of_the_source_that_was_written_elsewhere_leaves_the_copy() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        rows = tl.wait(tl.load(x, (4, 8)))
        tl.wait(tl.store(x + 32, rows))
        tl.max(tl.load(x, (4, 8)))

    assert notes(kernel) == ["redundant-transfer"]


def test_a_stream_of_what_the_kernel_has_is_noted_and_a_stream_of_a_stream_is_not() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        a = tl.wait(tl.load(x, (8, 8))) if tl.program_id(0) == 0 else tl.zeros((8, 8))
        for _ in range(2):
            tl.wait(tl.composite("gemm", a, tl.ref(x, (8, 8)), trans_b=True))

    (note,) = run(kernel, grid=2).notes
    assert (note.kind, note.count, note.ops[0].kernel, note.ops[0].name) == (
        "redundant-transfer",
        2,
        "PE0",
        "composite",
    )


def test_overwritten_before_anybody_read_it() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        buffer = tl.wait(tl.zeros((8, 8)))
        tl.wait(tl.load(x, (8, 8), out=buffer))
        tl.assign(buffer, tl.zeros((8, 8)))
        tl.wait(tl.store(o, buffer))

    assert notes(kernel) == ["dead-transfer"]


READS: dict[str, Callable[..., Any]] = {
    "MATH": lambda tl, x, o, h: tl.exp(h),
    "store": lambda tl, x, o, h: tl.wait(tl.store(o, h)),
    "GEMM": lambda tl, x, o, h: tl.wait(tl.composite("gemm", h, tl.ref(o, (8, 8)), trans_b=True)),
    "a row of it": lambda tl, x, o, h: tl.exp(tl.rows(h, 3, 1)),
    "transposed": lambda tl, x, o, h: tl.exp(tl.trans(h)),
}


@pytest.mark.parametrize("read", READS)
def test_whoever_reads_a_byte_of_it_uses_it(read: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        READS[read](tl, x, o, tl.wait(tl.load(x, (8, 8))))

    assert notes(kernel, check="collect") == []


def test_the_structure_alone_is_enough_and_a_run_without_checks_is_no_witness() -> None:
    assert notes(fetched_twice, data=False) == ["redundant-transfer"]
    for helper in (ka.assert_no_redundant_transfers, ka.assert_no_dead_transfers):
        with pytest.raises(ValueError, match="nobody looked"):
            helper(run(fetched_twice, check=False))
