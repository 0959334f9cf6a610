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
