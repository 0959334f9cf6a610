"""Rows behind a valid length may be read; what is stored may not depend on them, and a mask takes the dependence away.

With data the poison that comes out is the proof, without data what went through a `where` is taken to be masked.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run

SCHEDULES = ["model", "jitter", "late"]
DATA = pytest.mark.parametrize("data", [True, False], ids=["data", "structure only"])
X = np.ones((8, 8), np.float32)


def run(kernel: Callable[..., None], *, data: bool = True, valid: Any = 5, **how: Any) -> Run:
    """x has 5 of its 8 rows valid, w all; o is where results go."""
    chip = AhbmChip()
    x = chip.tensor("x", (8, 8), "float32", X if data else None, "replicate", valid=valid)
    w = chip.tensor("w", (8, 8), "float32", X if data else None, "replicate")
    return chip.run(kernel, x, w, chip.tensor("o", (8, 8), "float32"), **{"check": "collect", **how})


def kinds(run: Run) -> list[str]:
    return [hazard.kind for hazard in run.hazards]


def rows_below(tl: Any, count: int) -> Any:
    return tl.iota((8, 8), 0) < count


def composite(tl: Any, a: Any, b: Any, **how: Any) -> Any:
    return tl.wait(tl.composite("gemm", a, b, **how))


# What depends on the rows: with the tile as loaded, and with what is left of it when they are masked with 0.

DEPENDS: dict[str, Callable[..., Any]] = {
    "copied": lambda tl, t, x, w: t,
    "an element each": lambda tl, t, x, w: tl.exp(t) + 1.0,
    "a sum over rows": lambda tl, t, x, w: tl.broadcast(tl.sum(t, 0), (8, 8)),
    "times 0": lambda tl, t, x, w: t * tl.zeros((8, 8)),
    "a product": lambda tl, t, x, w: tl.dot(tl.zeros((8, 8)), t, trans_b=True),
    "a composite of it": lambda tl, t, x, w: composite(tl, t, tl.ref(w, (8, 8)), trans_b=True),
    "state that was assigned": lambda tl, t, x, w: tl.assign(tl.zeros((8, 8)), t),
}


@pytest.mark.adr("0003", "4")
@DATA
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", DEPENDS)
def test_a_stored_result_that_depends_on_them_is_found_and_a_masked_one_is_not(
    how: str, schedule: str, data: bool
) -> None:
    def kernel(x: Any, w: Any, o: Any, mask: bool, *, tl: Any) -> None:
        tile = tl.load(x, (8, 8))
        tile = tl.where(rows_below(tl, 5), tile, 0.0) if mask else tile
        tl.wait(tl.store(o, DEPENDS[how](tl, tile, x, w)))

    (hazard,) = run(lambda x, w, o, *, tl: kernel(x, w, o, False, tl=tl), schedule=schedule, data=data).hazards
    assert hazard.kind == "past-logical-length"
    assert [(op.name, op.bytes) for op in hazard.ops] == [
        ("store", "o[0:256] of HBM of PE0"), ("load", "x[160:256] of HBM of PE0")
    ]  # fmt: skip
    assert kinds(run(lambda x, w, o, *, tl: kernel(x, w, o, True, tl=tl), schedule=schedule, data=data)) == []


@DATA
def test_a_stream_of_them_and_its_writeback(data: bool) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        composite(tl, tl.load(w, (8, 8)), tl.ref(x, (8, 8)), trans_b=True, out=o)

    (hazard,) = run(kernel, data=data).hazards
    assert (hazard.kind, hazard.ops[0].name, hazard.ops[1].name) == ("past-logical-length", "writeback", "composite")


def test_a_mask_that_lets_a_row_through_is_found_by_its_value() -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.where(rows_below(tl, 6), tl.load(x, (8, 8)), 0.0)))

    assert kinds(run(kernel)) == ["past-logical-length"]
    assert kinds(run(kernel, data=False)) == []  # nobody knows what the mask is


@DATA
def test_the_rows_that_count_may_be_stored_out_of_a_whole_tile(data: bool) -> None:
    def kernel(x: Any, w: Any, o: Any, rows: int, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.rows(tl.wait(tl.load(x, (8, 8))), 0, rows)))

    assert kinds(run(lambda x, w, o, *, tl: kernel(x, w, o, 5, tl=tl), data=data)) == []
    assert kinds(run(lambda x, w, o, *, tl: kernel(x, w, o, 6, tl=tl), data=data)) == ["past-logical-length"]


@DATA
def test_reading_them_alone_and_overwriting_them_are_no_fault(data: bool) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        tile = tl.wait(tl.load(x, (8, 8)))
        tl.max(tile)
        tl.assign(tile, tl.wait(tl.load(w, (8, 8))))
        tl.wait(tl.store(o, tile))

    assert kinds(run(kernel, data=data)) == []


@DATA
def test_what_is_sent_is_followed_to_whom_it_is_sent(data: bool) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("E", tl.wait(tl.load(x, (8, 8)))))
        else:
            tl.wait(tl.store(o, tl.recv("W", (8, 8))))

    (hazard,) = run(kernel, grid=2, data=data).hazards
    assert [op.kernel for op in hazard.ops] == ["PE1", "PE0"]


def test_one_pair_of_lines_is_one_finding() -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        for _ in range(3):
            tl.wait(tl.store(o, tl.load(x, (8, 8))))

    (hazard,) = run(kernel).hazards
    assert hazard.count == 3
