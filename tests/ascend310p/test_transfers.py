"""On a core: copies into UB of what is there, or that nobody reads, scalar reads of GM that were made before; tails.

Every kernel has the result of its mended one; only notes differ, except where a tail comes out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

SCHEDULES = pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
DATA = pytest.mark.parametrize("data", [True, False], ids=["data", "structure only"])


def run(kernel: Callable[..., None], *, valid: int | None = None, dtype: str = "float32", **how: Any) -> Run:
    core = Ascend310pCore()
    x = core.tensor("x", (8, 64), dtype, np.ones((8, 64)), valid=valid)
    return core.run(kernel, x, core.tensor("o", (8, 64), dtype), **{"check": "collect", **how})


def noted(run: Run) -> list[str]:
    assert run.hazards == ()
    return [note.kind for note in run.notes if note.kind.endswith("transfer")]


class Ub:
    """A view of each tensor, UB in rows of 64, and a drain of every pipe behind each call."""

    def __init__(self, asc: Any, x: Any, o: Any, kind: Any = None) -> None:
        self.asc = asc
        kind = kind or asc.float32
        self.x, self.o = asc.GlobalTensor(kind), asc.GlobalTensor(kind)
        self.x.SetGlobalBuffer(x)
        self.o.SetGlobalBuffer(o)
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 16 * 64 * 4)
        self.rows = [buf.GetWithOffset(kind, 64, 256 * at) for at in range(16)]

    def __call__(self, name: str, *args: Any) -> None:
        getattr(self.asc, name)(*args)
        self.asc.PipeBarrier(self.asc.PIPE_ALL)


def again(x: Any, o: Any, *, asc: Any) -> None:
    ub = Ub(asc, x, o)
    a, b, c = ub.rows[:3]
    ub("DataCopy", a, ub.x, 64)
    ub("DataCopy", b, ub.x, 64)
    ub("Add", c, a, b, 64)
    ub("DataCopy", ub.o, c, 64)


def once(x: Any, o: Any, *, asc: Any) -> None:
    ub = Ub(asc, x, o)
    a, _, c = ub.rows[:3]
    ub("DataCopy", a, ub.x, 64)
    ub("Add", c, a, a, 64)
    ub("DataCopy", ub.o, c, 64)


@SCHEDULES
def test_a_copy_of_what_is_in_ub_is_noted_and_the_result_is_the_same(schedule: str) -> None:
    twice, mended = run(again, schedule=schedule), run(once, schedule=schedule)

    assert (noted(twice), noted(mended)) == (["redundant-transfer"], [])
    assert (twice.array("o")[0] == mended.array("o")[0]).all()
    ka.assert_no_redundant_transfers(mended)
    with pytest.raises(
        AssertionError, match=r"^1 of redundant-transfer(.|\n)*DataCopy on MTE2 of block0, x\[0:256\] of GM"
    ):
        ka.assert_no_redundant_transfers(twice)


def unread(x: Any, o: Any, rows: int, *, asc: Any) -> None:
    ub = Ub(asc, x, o)
    for row in range(rows):
        ub("DataCopy", ub.rows[row], ub.x[64 * row], 64)
    ub("Adds", ub.rows[8], ub.rows[0], 1.0, 64)
    ub("DataCopy", ub.o, ub.rows[8], 64)


@SCHEDULES
def test_a_copy_that_nobody_reads_is_noted(schedule: str) -> None:
    more, enough = (run(unread, rows=rows, schedule=schedule) for rows in (2, 1))

    assert (noted(more), noted(enough)) == (["dead-transfer"], [])
    ka.assert_no_dead_transfers(enough)
    with pytest.raises(AssertionError, match=r"^1 of dead-transfer"):
        ka.assert_no_dead_transfers(more)


# What ends a copy, and what uses one

ENDS: dict[str, Callable[[Ub], None]] = {
    "V writes it": lambda ub: ub("Duplicate", ub.rows[0], 1.0, 64),
    "V writes a lane": lambda ub: ub("Duplicate", ub.rows[0], 1.0, 1),
    "S writes an element": lambda ub: ub.rows[0].SetValue(5, np.float32(1)),
    "another copy": lambda ub: ub("DataCopy", ub.rows[0], ub.x[64], 64),
    "a copy in UB": lambda ub: ub("DataCopy", ub.rows[0], ub.rows[8], 64),
    "its source is written by a copy": lambda ub: ub("DataCopy", ub.x, ub.rows[8], 8),
    "its source is written by S": lambda ub: ub.x.SetValue(63, np.float32(1)),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_copy_that_does_not_stand_is_fetched_again_for_a_reason(end: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Ub(asc, x, o)
        ub("Duplicate", ub.rows[8], 1.0, 64)
        ub("DataCopy", ub.rows[0], ub.x, 64)
        ub("Adds", ub.rows[9], ub.rows[0], 1.0, 64)
        ENDS[end](ub)
        asc.PipeBarrier(asc.PIPE_ALL)
        ub("DataCopy", ub.rows[1], ub.x, 64)
        ub("Adds", ub.rows[9], ub.rows[0], 1.0, 64)
        ub("Adds", ub.rows[9], ub.rows[1], 1.0, 64)

    assert noted(run(kernel)) == []


USES: dict[str, Callable[[Ub], Any]] = {
    "V": lambda ub: ub("Adds", ub.rows[9], ub.rows[0], 1.0, 64),
    "V, a lane": lambda ub: ub("Adds", ub.rows[9], ub.rows[0], 1.0, 1),
    "S": lambda ub: ub.rows[0].GetValue(3),
    "a copy out": lambda ub: ub("DataCopy", ub.o, ub.rows[0], 64),
    "a copy in UB": lambda ub: ub("DataCopy", ub.rows[9], ub.rows[0], 64),
}


@pytest.mark.parametrize("use", USES)
def test_whoever_reads_a_byte_of_it_uses_it(use: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Ub(asc, x, o)
        ub("DataCopy", ub.rows[0], ub.x, 64)
        USES[use](ub)
        ub("Duplicate", ub.rows[0], 1.0, 64)

    assert noted(run(kernel)) == []


def test_overwritten_before_anybody_read_it() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Ub(asc, x, o)
        ub("DataCopy", ub.rows[0], ub.x, 64)
        ub("Duplicate", ub.rows[0], 1.0, 64)
        ub("Adds", ub.rows[9], ub.rows[0], 1.0, 64)

    assert noted(run(kernel)) == ["dead-transfer"]


@pytest.mark.parametrize(("used", "found"), [(True, []), (False, ["dead-transfer"])])
def test_a_tensor_of_a_queue_lives_until_it_is_freed(used: bool, found: list[str]) -> None:
    """Two buffers in turn fetch the same rows: the first copy was given back, so the second is no waste."""

    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        tensor = asc.GlobalTensor(asc.float32)
        tensor.SetGlobalBuffer(x)
        pipe, queue, buf = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 2), asc.TBuf()
        pipe.InitBuffer(queue, 2, 256)
        pipe.InitBuffer(buf, 256)
        for _ in range(2):
            t = queue.AllocTensor(asc.float32)
            asc.DataCopy(t, tensor, 64)
            queue.EnQue(t)
            t = queue.DeQue()
            if used:
                asc.Adds(buf.Get(asc.float32), t, 1.0, 64)
                asc.PipeBarrier(asc.PIPE_V)
            queue.FreeTensor(t)

    assert noted(run(kernel)) == found


@SCHEDULES
def test_an_element_of_gm_that_s_reads_again(schedule: str) -> None:
    def kernel(x: Any, o: Any, keep: bool, *, asc: Any) -> None:
        ub = Ub(asc, x, o)
        first = ub.x.GetValue(0)
        for at in range(1, 4):
            ub.rows[0].SetValue(at, ub.x.GetValue(at) - (first if keep else ub.x.GetValue(0)))
        ub.x.SetValue(0, first)
        ub.x.GetValue(0)  # it was written since

    again = run(kernel, keep=False, schedule=schedule)
    assert noted(again) == ["redundant-transfer"]
    assert [note.count for note in again.notes if note.kind == "redundant-transfer"] == [3]
    assert noted(run(kernel, keep=True, schedule=schedule)) == []


# Tails: 5 of the 8 rows of x are valid


def tail(ub: Ub, change: Callable[[Ub, Any], Any]) -> None:
    """Rows 4 and 5 in, `change`, and out: row 5 is past the length."""
    t = ub.asc.TBuf()
    ub.asc.GetTPipePtr().InitBuffer(t, 2 * 64 * ub.rows[0].type.size)
    pair = t.Get(ub.rows[0].type)
    ub("DataCopy", pair, ub.x[4 * 64], 128)
    result = change(ub, pair) or pair
    ub("DataCopy", ub.o, result, 128)


def selected(rows: int) -> Callable[[Ub, Any], Any]:
    """Zeros behind the first so many of the two rows, by a mask."""

    def change(ub: Ub, pair: Any) -> None:
        mask = ub.rows[15].ReinterpretCast(ub.asc.uint8_t)
        lanes = ub.rows[12].ReinterpretCast(ub.asc.uint16_t)
        ub("Duplicate", lanes, 0, 64)
        ub("Duplicate", lanes, 65535, rows * 4)
        ub("DataCopy", ub.rows[15], ub.rows[12], 64)
        ub("Select", pair, mask, pair, 0.0, ub.asc.SELMODE.VSEL_TENSOR_SCALAR_MODE, 128)

    return change


TAILS: dict[str, tuple[Callable[[Ub, Any], Any], bool, bool]] = {
    # what happens to the two rows, whether it is found with data, and without
    "copied": (lambda ub, t: None, True, True),
    "Adds": (lambda ub, t: ub("Adds", t, t, 1.0, 128), True, True),
    "times 0": (lambda ub, t: ub("Muls", t, t, 0.0, 128), True, True),
    "overwritten": (lambda ub, t: ub("Duplicate", t[64], 0.0, 64), False, False),
    "masked": (selected(1), False, False),
    "masked too little": (selected(2), True, False),
    "a sum of both rows": (
        lambda ub, t: (ub("WholeReduceSum", ub.rows[13], t, 64, 2, 1, 1, 8), ub("Duplicate", t, 1.0, 128),
                       ub("Add", t, t, ub.rows[13], 2))[0], True, True,
    ),
    "a sum of the valid row": (
        lambda ub, t: (ub("WholeReduceSum", ub.rows[13], t, 64, 1, 1, 1, 8), ub("Duplicate", t, 1.0, 128),
                       ub("Add", t, t, ub.rows[13], 1))[0], False, False,
    ),
}  # fmt: skip


@DATA
@SCHEDULES
@pytest.mark.parametrize("name", TAILS)
def test_what_comes_out_of_a_tail(name: str, schedule: str, data: bool) -> None:
    change, *found = TAILS[name]

    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        tail(Ub(asc, x, o), change)

    kinds = [hazard.kind for hazard in run(kernel, valid=5, schedule=schedule, data=data).hazards]
    assert kinds == ["past-logical-length"] * found[0 if data else 1]


def test_integers_are_followed_too() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        tail(Ub(asc, x, o, asc.int32_t), lambda ub, t: ub("Adds", t, t, 1, 128))

    (hazard,) = run(kernel, valid=5, dtype="int32").hazards
    assert hazard.kind == "past-logical-length"
    assert "DataCopy on MTE3 of block0, o[256:512] of GM" in hazard.message


def test_what_s_reads_there_is_found_at_once() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        Ub(asc, x, o).x.GetValue(5 * 64)

    (hazard,) = run(kernel, valid=5).hazards
    assert hazard.kind == "past-logical-length"
    assert "GetValue on S" in hazard.message
