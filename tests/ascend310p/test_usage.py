"""Why units stand still: hand-made stalls of each cause, and that a pipe's time adds up."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.simulator.ascend310p.usage import usage


def use_of(outcome: Any, unit: str) -> Any:
    (found,) = (each for each in usage(outcome.run) if each.unit == unit)
    return found


@pytest.mark.adr("0310", "3.1", "3.10")
def test_each_cause_is_told_apart(launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 32768)
        t, source = buf.Get(asc.float32), asc.GlobalTensor(asc.float32)
        source.SetGlobalBuffer(x)
        asc.DataCopy(t, source, 64)  # 0..146
        asc.SetFlag(asc.HardEvent.MTE2_V, 0)
        asc.WaitFlag(asc.HardEvent.MTE2_V, 0)
        asc.Adds(t[64], t, 1.0, 64)  # 146..147..171
        asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(t[128], t[64], 1.0, 64)  # 171..172..196
        asc.SetFlag(asc.HardEvent.V_S, 0)
        asc.WaitFlag(asc.HardEvent.V_S, 0)  # to 196
        t.GetValue(128)

    outcome = launch(kernel, x=np.ones(64, np.float32))
    assert not outcome.kinds
    v = use_of(outcome, "V")
    assert (v.ops, v.busy) == (2, 2)
    assert v.stalls == {"issue": 2, "flag MTE2_V": 144, "barrier": 24}
    s = use_of(outcome, "S")
    assert (s.ops, s.busy) == (1, 12)
    assert s.stalls == {"flag V_S": 196 - 7}
    assert "flag MTE2_V 144, barrier 24" in str(v)


@pytest.mark.adr("0310", "3.10")
def test_a_full_queue_is_a_stall_of_s(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        for at in range(4):
            asc.Duplicate(t[1024 * at], 1.0, 1024)
        asc.PipeBarrier(asc.PIPE_V)

    outcome = ub(body, spec={"queue_depth": 2})
    assert use_of(outcome, "S").stalls["queue of V full"] > 0
    assert not use_of(ub(body), "S").stalls


@pytest.mark.parametrize("buffer_num", [1, 2])
def test_a_pipes_time_is_work_and_stalls(launch: Any, buffer_num: int) -> None:
    x = np.ones(4096, np.float32)
    outcome = launch(copy_compute_copy, x=x, y=(4096, "float32"), length=4096, tile=512, buffer_num=buffer_num)
    for unit in ("MTE2", "V", "MTE3"):
        use = use_of(outcome, unit)
        last = max(row.free for row in outcome.run.log if row.unit == unit)
        assert use.busy + use.stalls.total() == last


def test_a_log_without_synchronisation_has_no_causes(launch: Any) -> None:
    x = np.ones(4096, np.float32)
    how = {"length": 4096, "tile": 512, "buffer_num": 1, "log": "data"}
    with pytest.raises(ValueError, match="log=True"):
        usage(launch(copy_compute_copy, x=x, y=(4096, "float32"), **how).run)
