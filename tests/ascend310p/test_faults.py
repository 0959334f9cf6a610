"""The public fault reports of facts section 4, each with what has to be found, once, and the mended kernel, clean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import SimError

Kernel = Callable[..., None]
SCHEDULES = [("model", 0), ("jitter", 1), ("jitter", 2), *(("late", seed) for seed in range(24))]


def sync(asc: Any, event: str, id: int = 0) -> None:
    asc.SetFlag(asc.HardEvent[event], id)
    asc.WaitFlag(asc.HardEvent[event], id)


def room(asc: Any, n: int) -> Any:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * n)
    return buf.Get(asc.float32)


def gm(asc: Any, pointer: Any, kind: Any = None) -> Any:
    view = asc.GlobalTensor(kind or asc.float32)
    view.SetGlobalBuffer(pointer)
    return view


def cast_then_multiply(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """1: a barrier on V is missing, and MTE3 is held by the wrong tool."""
    t, n = room(asc, 512), 64
    x16 = t[384].ReinterpretCast(asc.half)
    asc.Duplicate(t, 2.0, 2 * n)
    sync(asc, "V_MTE2")
    asc.DataCopy(x16, gm(asc, x, asc.half), n)
    sync(asc, "MTE2_V")
    asc.Cast(t[128], x16, asc.RoundMode.CAST_NONE, n)
    asc.PipeBarrier(asc.PIPE_V)
    if mended:
        asc.MulAddDst(t, t[128], t[64], n)
        sync(asc, "V_MTE3")
    else:
        asc.MulAddDst(t, t[128], t[64], n)
        asc.PipeBarrier(asc.PIPE_V)
        asc.PipeBarrier(asc.PIPE_MTE3)
    asc.DataCopy(gm(asc, y), t, n)


def no_barrier(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """1, the part on V alone."""
    t = room(asc, 256)
    asc.Duplicate(t, 2.0, 64)
    if mended:
        asc.PipeBarrier(asc.PIPE_V)
    asc.Muls(t[64], t, 3.0, 64)
    sync(asc, "V_MTE3")
    asc.DataCopy(gm(asc, y), t[64], 64)


def same_range(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """2: every core writes the same bytes of GM."""
    t = room(asc, 64)
    asc.Duplicate(t, 1.0 + asc.GetBlockIdx(), 8)
    sync(asc, "V_MTE3")
    asc.DataCopy(gm(asc, y)[8 * asc.GetBlockIdx() if mended else 0], t, 8)


def odd_offset(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """2: the cursor of a hand-carved buffer moves by elements instead of bytes."""
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 256)
    asc.Duplicate(buf.GetWithOffset(asc.float32, 8, 32 if mended else 4), 0.0, 8)


def too_many_buffers(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """4: five buffers of 64 KiB."""
    pipe, n = asc.TPipe(), (1024 if mended else 2048) * 8
    for number in (2, 2):
        pipe.InitBuffer(asc.TQue(asc.TPosition.VECIN, 1), number, n * 4)
    pipe.InitBuffer(asc.TBuf(), n * 4)


def reuse(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """5: the next copy in does not wait for the last use."""
    t, source = room(asc, 256), gm(asc, x)
    asc.Duplicate(t[64], 0.0, 64)
    for at in range(4):
        asc.DataCopy(t, source[64 * at], 64)
        sync(asc, "MTE2_V", 1)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Add(t[64], t[64], t, 64)
        if mended:
            sync(asc, "V_MTE2", 2)
    sync(asc, "V_MTE3")
    asc.DataCopy(gm(asc, y), t[64], 64)


def id_nine(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """5: an id outside 0..7."""
    sync(asc, "V_MTE3", 3 if mended else 9)


def set_twice(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """7: a flag is set twice, and PIPE_ALL hangs."""
    t = room(asc, 128)
    asc.Duplicate(t, 1.0, 64)
    for id in (0, 1 if mended else 0):
        asc.SetFlag(asc.HardEvent.V_MTE3, id)
    asc.PipeBarrier(asc.PIPE_ALL)
    for id in (0, 1 if mended else 0):
        asc.WaitFlag(asc.HardEvent.V_MTE3, id)
    asc.DataCopy(gm(asc, y), t, 64)


def hoisted(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """10: the Set stands outside of the condition, its Wait inside."""
    t, source, n = room(asc, 128), gm(asc, x), 2
    asc.Duplicate(t[64], 0.0, 64)
    asc.PipeBarrier(asc.PIPE_V)
    asc.SetFlag(asc.HardEvent.V_MTE2, 0)
    for k in range(4):
        if k < n:
            asc.WaitFlag(asc.HardEvent.V_MTE2, 0)
            asc.DataCopy(t, source[64 * k], 64)
            sync(asc, "MTE2_V")
            asc.Add(t[64], t[64], t, 64)
            asc.PipeBarrier(asc.PIPE_V)
        if k < n or not mended:
            asc.SetFlag(asc.HardEvent.V_MTE2, 0)
    if mended:
        asc.WaitFlag(asc.HardEvent.V_MTE2, 0)


def wait_hoisted(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """10 mirrored: the Wait stands outside, its Set inside."""
    t = room(asc, 128)
    for k in range(4):
        if k < 2:
            asc.Duplicate(t, 1.0, 64)
            asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        if k < 2 or not mended:
            asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
        asc.PipeBarrier(asc.PIPE_V)


def narrow_rows(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """13: rows of 126 floats are 15.75 blocks."""
    t = room(asc, 1024)
    asc.Duplicate(t, 1.0, 504)
    sync(asc, "V_MTE3")
    for row in range(2):
        asc.DataCopy(gm(asc, y)[128 * row], t[128 * row], 128 if mended else 126)


def ninth_sync_point(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """13: ids wrap modulo 8 while the first is outstanding."""
    for k in range(8 if mended else 9):
        asc.SetFlag(asc.HardEvent.V_MTE2, asc_id(asc, k))
    for k in range(8 if mended else 9):
        asc.WaitFlag(asc.HardEvent.V_MTE2, asc_id(asc, k))


def asc_id(asc: Any, k: int) -> Any:
    from pytest_kernbench.simulator.ascend310p.vocabulary import EventID

    return EventID((k + 1) % 8)


def three_allocs(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """15: a third tensor of a queue of two buffers."""
    pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
    pipe.InitBuffer(queue, 2, 256)
    held = [queue.AllocTensor(asc.float32) for _ in range(2 if mended else 3)]
    for each in held:
        queue.FreeTensor(each)


def tile_of_another_host(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """16: tiles of 1024 in buffers of 512."""
    pipe, queue, tile = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1), 512 if mended else 1024
    pipe.InitBuffer(queue, 1, 512 * 2)
    local = queue.AllocTensor(asc.half)
    asc.DataCopy(local, gm(asc, x, asc.half), tile)
    queue.EnQue(local)
    queue.FreeTensor(queue.DeQue())


TILING = np.array([512, 2], np.int32)  # tile and how many


def copied_in_tiles(x: Any, y: Any, tile: int, tiles: int, asc: Any) -> None:
    """y = x, as the tiling says it, in a buffer for tiles of 512."""
    t = room(asc, 512)
    for at in range(tiles):
        asc.DataCopy(t, gm(asc, x)[tile * at], tile)
        sync(asc, "MTE2_MTE3")
        asc.DataCopy(gm(asc, y)[tile * at], t, tile)
        sync(asc, "MTE3_MTE2")


def tiling_of_zeros(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """16: tiling data that nobody filled in is all zero."""
    tile, tiles = TILING if mended else TILING * 0
    copied_in_tiles(x, y, int(tile), int(tiles), asc)


def tiling_in_another_order(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """16: host and device order the tiling data differently."""
    tile, tiles = TILING if mended else TILING[::-1]
    copied_in_tiles(x, y, int(tile), int(tiles), asc)


def tiling_in_another_order_that_fits(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """16: the same, where both orders fit: tiles of 128 and 8 of them, or 128 of 8."""
    tile, tiles = (128, 8) if mended else (8, 128)
    copied_in_tiles(x, y, tile, tiles, asc)


def queue_of(asc: Any, depth: int = 1) -> Any:
    pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, depth)
    pipe.InitBuffer(queue, 2, 256)
    return queue


def dequeue_first(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """19: DeQue before EnQue."""
    queue = queue_of(asc)
    local = queue.AllocTensor(asc.float32)
    if not mended:
        queue.DeQue()
    queue.EnQue(local)
    queue.FreeTensor(queue.DeQue())


def enqueue_twice(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """19: EnQue of what is in the queue."""
    queue = queue_of(asc, depth=2)
    local = queue.AllocTensor(asc.float32)
    for _ in range(1 if mended else 2):
        queue.EnQue(local)
    queue.FreeTensor(queue.DeQue())


def free_twice(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """19: FreeTensor of what is free."""
    queue = queue_of(asc)
    local = queue.AllocTensor(asc.float32)
    for _ in range(1 if mended else 2):
        queue.FreeTensor(local)


def foreign(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """19: another queue's tensor."""
    queue, other = queue_of(asc), asc.TQue(asc.TPosition.VECIN, 1)
    asc.GetTPipePtr().InitBuffer(other, 1, 256)
    local = queue.AllocTensor(asc.float32)
    (queue if mended else other).FreeTensor(local)


def reserved(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    """21: id 7 by hand beside a queue."""
    queue = queue_of(asc)
    sync(asc, "MTE2_V", 0 if mended else 7)
    queue.FreeTensor(queue.AllocTensor(asc.float32))


FAULTS: dict[Kernel, list[str]] = {
    cast_then_multiply: ["race-raw"],
    no_barrier: ["race-raw"],
    same_range: ["race-waw"],
    odd_offset: ["misaligned"],
    too_many_buffers: ["capacity"],
    reuse: ["race-war"],
    id_nine: ["event-id"],
    set_twice: ["double-flag", "deadlock"],
    hoisted: ["double-flag", "unpaired-flag"],
    wait_hoisted: ["deadlock"],
    narrow_rows: ["truncated-copy"],
    ninth_sync_point: ["double-flag"],
    three_allocs: ["queue-misuse"],
    tile_of_another_host: ["out-of-bounds"],
    tiling_of_zeros: [],  # y is never written: no finding, as a kernel need not write all of a tensor
    tiling_in_another_order: ["truncated-copy", "truncated-copy"],
    tiling_in_another_order_that_fits: [],  # the same result, later
    dequeue_first: ["queue-misuse"],
    enqueue_twice: ["queue-misuse"],
    free_twice: ["queue-misuse"],
    foreign: ["queue-misuse"],
    reserved: ["reserved-flag"],
}
WRONG_BY_VALUE = (cast_then_multiply, no_barrier, reuse)


def launch(kernel: Kernel, mended: bool, schedule: str, seed: int) -> Run:
    """The run on a new core; its output is `y`."""
    core = Ascend310pCore()
    x = core.tensor("x", 1024, "float32", np.random.default_rng(0).standard_normal(1024))
    y = core.tensor("y", 1024, "float32")
    how = {"schedule": schedule, "seed": seed, "check": "collect", "grid": 2 if kernel is same_range else 1}
    return core.run(kernel, x, y, mended=mended, **how)


def outcome(kernel: Kernel, mended: bool, schedule: str, seed: int) -> tuple[list[str], Any]:
    """Kinds that were found, and `y` unless the run was refused."""
    try:
        run = launch(kernel, mended, schedule, seed)
    except SimError as error:
        return [hazard.kind for hazard in error.hazards], None  # type: ignore[attr-defined]
    assert all("test_faults.py" in str(hazard) for hazard in run.hazards)
    return [hazard.kind for hazard in run.hazards], run.array("y")


@pytest.mark.adr("0310", "3.4", "3.5", "3.11")
@pytest.mark.parametrize("kernel", FAULTS, ids=lambda kernel: kernel.__name__)
def test_a_fault_is_found_once_under_every_schedule(kernel: Kernel) -> None:
    for schedule, seed in SCHEDULES:
        kinds, _ = outcome(kernel, False, schedule, seed)
        assert kinds == FAULTS[kernel], (schedule, seed)


@pytest.mark.adr("0310", "3.11")
@pytest.mark.parametrize("kernel", FAULTS, ids=lambda kernel: kernel.__name__)
def test_the_mended_kernel_is_clean_and_the_same_under_every_schedule(kernel: Kernel) -> None:
    usual = None
    for schedule, seed in SCHEDULES:
        kinds, y = outcome(kernel, True, schedule, seed)
        assert kinds == [], (schedule, seed)
        usual = y if usual is None else usual
        assert y.tobytes() == usual.tobytes(), (schedule, seed)


@pytest.mark.parametrize("kernel", WRONG_BY_VALUE, ids=lambda kernel: kernel.__name__)
def test_a_race_is_wrong_by_value_under_at_least_one_schedule(kernel: Kernel) -> None:
    _, right = outcome(kernel, True, "model", 0)
    found = [outcome(kernel, False, schedule, seed)[1] for schedule, seed in SCHEDULES]
    assert any(y.tobytes() != right.tobytes() for y in found)
