"""Deadlocks of any size are reported whole; a run that fails, by whatever exception, leaves nothing behind."""

import gc
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from greenlet import greenlet

from pytest_kernbench.simulator import AhbmChip, AhbmSpec
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import DeadlockError, KernelError, LivelockError

ROUNDS, MOST_GROWTH = 20, 64 * 1024


# A deadlock of n kernels


def waits_for_its_neighbour(*, tl: Any) -> None:
    tl.recv("W", (4, 4))


@pytest.mark.parametrize("kernels", [2, 3, 8, 64])
def test_a_ring_of_receivers_is_reported_whole(kernels: int) -> None:
    spec = AhbmSpec(mesh_rows=8, mesh_cols=8)
    chip = AhbmChip(spec, ports=ring_ports(tuple(range(kernels))))
    with pytest.raises(DeadlockError) as caught:
        chip.run(waits_for_its_neighbour, grid=kernels)

    message = str(caught.value)
    assert len(re.findall(r"^  PE\d+ waits at ", message, re.MULTILINE)) == kernels
    (cycle,) = re.findall(r"they wait for each other: (.*)", message)
    assert len(cycle.split(" -> ")) == kernels + 1


# Runs that fail


def ends_in(kind: str) -> Callable[..., None]:
    def kernel(x: Any, *, tl: Any) -> None:
        with tl.scratch_scope():
            tile = tl.exp(tl.load(x, (32, 32)))
            tl.composite("gemm", tl.cast(tile, "float32"), tl.ref(x, (32, 32))) if kind == "refusal" else None
            if kind == "error":
                raise ZeroDivisionError("the author's")
            while kind == "endless":
                tl.exp(tile)
            tl.recv("E", (4, 4))

    return kernel


def fails_on_ahbm(kind: str) -> None:
    chip = AhbmChip(AhbmSpec(mesh_rows=1, mesh_cols=2))
    x = chip.tensor("x", (32, 32), "float32", np.zeros((2, 32, 32), np.float32))
    errors = (DeadlockError, KernelError, LivelockError, ZeroDivisionError)
    with pytest.raises(errors):
        chip.run(ends_in(kind), x, grid=1, max_ops=200)


def stops(kind: str) -> Callable[..., None]:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 4096)
        t = buf.Get(asc.float32)
        asc.Duplicate(t, 1.0, 64)
        if kind == "error":
            raise ZeroDivisionError("the author's")
        if kind == "refusal":
            asc.Add(t, t, t, 5000)
        while kind == "endless":
            asc.Exp(t, t, 64)
        asc.WaitFlag(asc.HardEvent.V_S, 0)

    return kernel


def fails_on_310p(kind: str) -> None:
    core = Ascend310pCore()
    x = core.tensor("x", 64, "float32", np.zeros(64))
    with pytest.raises((DeadlockError, KernelError, LivelockError, ZeroDivisionError)):
        core.run(stops(kind), x, max_ops=200)


@pytest.mark.parametrize("kind", ["deadlock", "refusal", "error", "endless"])
@pytest.mark.parametrize("fails", [fails_on_ahbm, fails_on_310p])
def test_runs_that_fail_leave_nothing_behind(fails: Callable[[str], None], kind: str) -> None:
    before_errors = np.geterr()
    for _ in range(3):
        fails(kind)
    gc.collect()
    tracemalloc.start()
    start, _ = tracemalloc.get_traced_memory()
    for _ in range(ROUNDS):
        fails(kind)
    gc.collect()
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert now - start < MOST_GROWTH
    assert np.geterr() == before_errors


@pytest.mark.parametrize("kind", ["deadlock", "refusal", "error", "endless"])
def test_the_310p_runs_on_as_if_nothing_had_been(kind: str) -> None:
    def sound(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 512)
        asc.Duplicate(buf.Get(asc.float32), 2.0, 64)

    def log_of_a_run() -> bytes:
        core = Ascend310pCore()
        return bytes(core.run(sound, core.tensor("x", 64, "float32", np.zeros(64))).log.cells)

    first = log_of_a_run()
    fails_on_310p(kind)
    assert log_of_a_run() == first


@pytest.mark.parametrize("kind", ["deadlock", "refusal", "error", "endless"])
def test_the_ahbm_runs_on_as_if_nothing_had_been(kind: str) -> None:
    def sound(x: Any, *, tl: Any) -> None:
        tl.wait(tl.store(x, tl.exp(tl.load(x, (32, 32)))))

    def log_of_a_run() -> str:
        chip = AhbmChip()
        return str(chip.run(sound, chip.tensor("x", (32, 32), "float32", np.zeros((2, 32, 32))), grid=2).log)

    first = log_of_a_run()
    fails_on_ahbm(kind)
    assert log_of_a_run() == first


# What an author's code raises


class Own(BaseException):
    """An exception of an author's that is no Exception."""


RAISED = [
    ValueError("v"),
    SystemExit(3),
    RecursionError("deep"),
    KeyboardInterrupt(),
    MemoryError(),
    Own(),
    LookupError(),
]


def alive() -> int:
    """Greenlets that have begun and have not ended, the main one left out."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, greenlet)]
    return sum(1 for each in found if each and not each.dead and each.parent is not None)


def raised_on_ahbm(error: BaseException) -> None:
    """PE0 raises while the other three wait for it."""

    def kernel(*, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.zeros((4,))
            raise error
        tl.recv("W" if tl.program_id(0) != 2 else "N", (4, 4))

    AhbmChip().run(kernel, grid=4)


def raised_on_310p(error: BaseException) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 512)
        asc.Duplicate(buf.Get(asc.float32), 2.0, 64)
        raise error

    Ascend310pCore().run(kernel, data=True)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("run", [raised_on_ahbm, raised_on_310p])
def test_what_a_kernel_raises_comes_out_as_it_is(run: Callable[[BaseException], None], error: BaseException) -> None:
    before, state, collects = alive(), np.geterr(), gc.isenabled()
    with pytest.raises(type(error)) as caught:
        run(error)

    assert caught.value is error
    assert (alive(), np.geterr(), gc.isenabled()) == (before, state, collects)


@pytest.mark.parametrize("kernels", [2, 3, 8, 64])
def test_a_deadlock_leaves_no_greenlet(kernels: int) -> None:
    before = alive()
    chip = AhbmChip(AhbmSpec(mesh_rows=8, mesh_cols=8), ports=ring_ports(tuple(range(kernels))))
    with pytest.raises(DeadlockError):
        chip.run(waits_for_its_neighbour, grid=kernels)

    assert alive() == before
