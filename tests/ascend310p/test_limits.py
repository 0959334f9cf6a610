"""Loops without a row end, freed bytes are nobody's, many blocks are compared fast, and what is missing says why."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import HazardError, KernelError, LivelockError

SCHEDULES = ["model", "jitter", "late"]


def run(
    body: Any, *, spec: Any = None, check: Any = True, grid: int = 1, schedule: str = "model", **limits: Any
) -> Any:
    """A run of `body(asc, gx, gy)` on 64 halves in GM."""
    core = Ascend310pCore(spec)
    x, y = core.tensor("x", (64,), "float16", np.ones(64, np.float16)), core.tensor("y", (64,), "float16")

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        gx, gy = asc.GlobalTensor(asc.half), asc.GlobalTensor(asc.half)
        gx.SetGlobalBuffer(x)
        gy.SetGlobalBuffer(y)
        body(asc, gx, gy)

    return core.run(kernel, x, y, check=check, grid=grid, schedule=schedule, **limits)


def queue(asc: Any, position: str = "VECIN", number: int = 1) -> Any:
    found = asc.TQue(asc.TPosition[position], 1)
    asc.TPipe().InitBuffer(found, number, 128)
    return found


def asks_for_ever(asc: Any, gx: Any, gy: Any) -> None:
    waiting = queue(asc)
    while not waiting.HasTensorInQue():
        pass


def counts_for_ever(asc: Any, gx: Any, gy: Any) -> None:
    waiting = queue(asc)
    while waiting.GetTensorCountInQue() < 1:
        pass


def allocates_for_ever(asc: Any, gx: Any, gy: Any) -> None:
    scratch = queue(asc, "VECCALC")
    while True:
        scratch.FreeTensor(scratch.AllocTensor(asc.half))


def takes_ids_for_ever(asc: Any, gx: Any, gy: Any) -> None:
    while True:
        asc.ReleaseEventID(asc.HardEvent.V_S, asc.AllocEventID(asc.HardEvent.V_S))


def copies_nothing_for_ever(asc: Any, gx: Any, gy: Any) -> None:
    tensor = queue(asc).AllocTensor(asc.half)
    while True:
        asc.DataCopy(tensor, gx, 3)


@pytest.mark.parametrize(
    "body",
    [asks_for_ever, counts_for_ever, allocates_for_ever, takes_ids_for_ever, copies_nothing_for_ever],
    ids=lambda body: body.__name__,
)
def test_a_loop_that_leaves_no_row_ends_at_the_limit(body: Any) -> None:
    with pytest.raises(LivelockError, match=rf"in {body.__name__}: max_ops 5000 calls"):
        run(body, max_ops=5000)


def test_times_end_before_a_row_of_the_log_overflows() -> None:
    def body(asc: Any, gx: Any, gy: Any) -> None:
        while True:
            gx.GetValue(0)

    slow = Ascend310pSpec(scalar_gm_miss_cycles=10**6, scalar_gm_hit_cycles=10**6)
    with pytest.raises(LivelockError, match="is at cycle 21"):
        run(body, spec=slow)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_tensor_used_after_it_was_freed_is_found_at_the_use(schedule: str) -> None:
    def body(asc: Any, gx: Any, gy: Any) -> None:
        pipe, source, result = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
        pipe.InitBuffer(source, 1, 128)
        pipe.InitBuffer(result, 1, 128)
        t = source.AllocTensor(asc.half)
        asc.DataCopy(t, gx, 64)
        source.EnQue(t)
        t = source.DeQue()
        r = result.AllocTensor(asc.half)
        source.FreeTensor(t)
        asc.Muls(r, t, 2.0, 64)
        result.EnQue(r)
        asc.DataCopy(gy, result.DeQue(), 64)
        result.FreeTensor(r)

    with pytest.raises(HazardError) as caught:
        run(body, schedule=schedule)

    text = str(caught.value)
    assert [hazard.kind for hazard in caught.value.hazards] == ["use-after-recycle"]
    assert "Muls" in text and "FreeTensor at test_limits.py:" in text and "free it after its last use" in text


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_freed_after_its_last_use_it_is_clean(schedule: str) -> None:
    def body(asc: Any, gx: Any, gy: Any) -> None:
        pipe, source, result = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
        pipe.InitBuffer(source, 1, 128)
        pipe.InitBuffer(result, 1, 128)
        for _ in range(3):
            t = source.AllocTensor(asc.half)
            asc.DataCopy(t, gx, 64)
            source.EnQue(t)
            t = source.DeQue()
            r = result.AllocTensor(asc.half)
            asc.Muls(r, t, 2.0, 64)
            source.FreeTensor(t)
            result.EnQue(r)
            r = result.DeQue()
            asc.DataCopy(gy, r, 64)
            result.FreeTensor(r)

    assert not run(body, schedule=schedule).hazards


def test_a_thousand_blocks_on_one_range_are_one_finding_in_no_time() -> None:
    def body(asc: Any, gx: Any, gy: Any) -> None:
        gy.SetValue(0, 1.0)
        asc.PipeBarrier(asc.PIPE_ALL)

    start = time.process_time()
    hazards = run(body, grid=1024, check="collect").hazards
    assert len([hazard for hazard in hazards if hazard.kind == "race-waw"]) == 1
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("name", "said"), [("bfloat16", "use half or float32"), ("int4b_t", "use int8_t"), ("TQueBind", "DataCopy from")]
)
def test_what_is_not_there_says_what_to_use(name: str, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        run(lambda asc, gx, gy: getattr(asc, name))


def test_an_event_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"310P has no event M_V; it has .*MTE2_V"):
        run(lambda asc, gx, gy: asc.HardEvent["M_V"])
