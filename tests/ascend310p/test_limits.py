"""A body that never ends is stopped, whatever it says; times stay within what a row of the log holds."""

from typing import Any

import numpy as np
import pytest

LOOPS = {
    "HasTensorInQue": lambda asc, q, t, x: q.HasTensorInQue(),
    "GetTensorCountInQue": lambda asc, q, t, x: q.GetTensorCountInQue(),
    "VacantInQue": lambda asc, q, t, x: q.VacantInQue(),
    "HasIdleBuffer": lambda asc, q, t, x: q.HasIdleBuffer(),
    "Alloc and Free": lambda asc, q, t, x: q.FreeTensor(q.AllocTensor(asc.half)),
    "event ids": lambda asc, q, t, x: asc.ReleaseEventID(asc.HardEvent.MTE2_V, asc.AllocEventID(asc.HardEvent.MTE2_V)),
    "FetchEventID": lambda asc, q, t, x: asc.FetchEventID(asc.HardEvent.MTE2_V),
    "WaitFlag of V_V": lambda asc, q, t, x: asc.WaitFlag(asc.HardEvent.V_V, 0),
    "a copy of nothing": lambda asc, q, t, x: asc.DataCopy(t, x, 3),
    "GetBlockIdx": lambda asc, q, t, x: asc.GetBlockIdx(),
    "GlobalTensor[]": lambda asc, q, t, x: x[1],
    "ReinterpretCast": lambda asc, q, t, x: t.ReinterpretCast(asc.half),
    "DataCacheCleanAndInvalid": lambda asc, q, t, x: asc.DataCacheCleanAndInvalid(x),
}


@pytest.mark.adr("0310", "3.9")
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_calls_without_a_row_is_stopped(name: str, refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, queue, buf = asc.TPipe(), asc.TQue(asc.TPosition.VECCALC, 1), asc.TBuf()
        pipe.InitBuffer(queue, 1, 256)
        pipe.InitBuffer(buf, 256)
        t, view = buf.Get(asc.float32), asc.GlobalTensor(asc.float32)
        view.SetGlobalBuffer(x)
        for _ in range(5000):  # stands for ever: five times the limit
            LOOPS[name](asc, queue, t, view)

    assert "max_ops 1000 calls" in refusal(kernel, "livelock", x=np.ones(64, np.float32), max_ops=1000)


SLOW = {"sync_cycles": 10**6, "scalar_ub_cycles": 10**6, "scalar_gm_hit_cycles": 10**6, "queue_depth": 100_000}
BUSY = {
    "Duplicate": lambda asc, t, x: asc.Duplicate(t, 1.0, 64),
    "DataCopy": lambda asc, t, x: asc.DataCopy(t, x, 8),
    "PipeBarrier": lambda asc, t, x: asc.PipeBarrier(asc.PIPE_V),
    "SetFlag": lambda asc, t, x: asc.SetFlag(asc.HardEvent.MTE2_V, 0),
    "GetValue": lambda asc, t, x: t.GetValue(0),
    "SetValue": lambda asc, t, x: t.SetValue(0, 1.0),
    "GetValue of GM": lambda asc, t, x: (x.GetValue(0), asc.PipeBarrier(asc.PIPE_V)),
}


@pytest.mark.adr("0310", "3.9")
@pytest.mark.parametrize("name", BUSY)
def test_a_time_that_a_row_cannot_hold_is_a_livelock(name: str, refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf, view = asc.TPipe(), asc.TBuf(), asc.GlobalTensor(asc.float32)
        pipe.InitBuffer(buf, 256)
        view.SetGlobalBuffer(x)
        t = buf.Get(asc.float32)
        for _ in range(3000):
            BUSY[name](asc, t, view)

    assert "max_cycles 2147483646" in refusal(kernel, "livelock", x=np.ones(64, np.float32), spec=SLOW)


def test_a_core_whose_time_is_over_says_so_before_the_next_look(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 262_144)
        t = buf.Get(asc.float32)
        for _ in range(3):
            asc.Duplicate(t, 1.0, 65_536)  # 1024 repeats

    message = refusal(kernel, "livelock", spec={"costs": {"Duplicate": (0, 10**6)}})
    assert "ends after 2147483647" in message
