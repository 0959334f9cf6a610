"""A tensor that FreeTensor gave back is not used any more; before it, and after the next AllocTensor, it is."""

from typing import Any

import numpy as np
import pytest

USES = {
    "Muls src": lambda asc, t, r, y: asc.Muls(r, t, 2.0, 64),
    "Muls dst": lambda asc, t, r, y: asc.Muls(t, r, 2.0, 64),
    "a part": lambda asc, t, r, y: asc.Muls(r, t[8], 2.0, 8),
    "GetValue": lambda asc, t, r, y: t.GetValue(0),
    "SetValue": lambda asc, t, r, y: t.SetValue(0, 1.0),
    "DataCopy src": lambda asc, t, r, y: asc.DataCopy(y, t, 64),
    "DataCopy dst": lambda asc, t, r, y: asc.DataCopy(t, y, 64),
}


@pytest.mark.adr("0310", "4.1")
@pytest.mark.parametrize("schedule", ["model", "late"])
@pytest.mark.parametrize("name", USES)
def test_a_use_after_free_is_found_at_its_line_and_one_before_is_not(name: str, schedule: str, launch: Any) -> None:
    def kernel(y: Any, *, late: bool, asc: Any) -> None:
        pipe, queue, buf = asc.TPipe(), asc.TQue(asc.TPosition.VECCALC, 1), asc.TBuf()
        pipe.InitBuffer(queue, 1, 256)
        pipe.InitBuffer(buf, 256)
        view = asc.GlobalTensor(asc.float32)
        view.SetGlobalBuffer(y)
        t, r = queue.AllocTensor(asc.float32), buf.Get(asc.float32)
        asc.Duplicate(t, 1.0, 64)
        asc.Duplicate(r, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        if not late:
            USES[name](asc, t, r, view)
        queue.FreeTensor(t)
        if late:
            USES[name](asc, t, r, view)

    given = {"y": np.ones(64, np.float32), "schedule": schedule}
    wrong = launch(kernel, late=True, **given)
    assert wrong.kinds == ["use-after-recycle"]
    message = str(wrong.run.hazards[0])
    assert "used after FreeTensor at test_freed.py:" in message
    assert "say FreeTensor after the last use" in message
    assert not launch(kernel, late=False, **given).kinds


@pytest.mark.adr("0310", "4.1")
def test_the_same_call_counts_again_and_the_next_owner_is_none(ub: Any) -> None:
    def kernel(asc: Any, r: Any) -> None:
        queue = asc.TQue(asc.TPosition.VECCALC, 1)
        asc.GetTPipePtr().InitBuffer(queue, 1, 256)
        for _ in range(3):
            t = queue.AllocTensor(asc.float32)
            asc.Duplicate(t, 1.0, 64)
            asc.PipeBarrier(asc.PIPE_V)
            for free in (False, True):
                if free:
                    queue.FreeTensor(t)
                asc.Muls(r, t, 2.0, 64)
                asc.PipeBarrier(asc.PIPE_V)

    (hazard,) = ub(kernel).run.hazards
    assert (hazard.kind, hazard.count) == ("use-after-recycle", 3)


@pytest.mark.adr("0310", "4.1")
@pytest.mark.parametrize("call", ["EnQue", "FreeTensor"])
def test_a_queue_says_where_a_tensor_was_freed(call: str, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 2, 256)
        t = queue.AllocTensor(asc.half)
        queue.FreeTensor(t)
        getattr(queue, call)(t)

    assert "is FREE since FreeTensor at test_freed.py:" in refusal(kernel, "queue-misuse")
