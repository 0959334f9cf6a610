"""Kernels that never end are stopped, by operations or by cycles, with the line that goes round."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.launch import MAX_CYCLES
from pytest_kernbench.simulator.errors import LivelockError

X = np.ones((4, 4), np.float32)


def endless(say: Callable[..., object]) -> Callable[..., None]:
    """A kernel that says the same for ever (and, if the simulator lets it, for long)."""

    def kernel(x: Any, *, tl: Any) -> None:
        h = tl.load(x, (4, 4))
        for _ in range(20_000):
            with tl.scratch_scope():
                say(tl, x, h)
        raise AssertionError("nothing stopped the kernel")

    return kernel


SAID = {
    "a MATH op": lambda tl, x, h: tl.exp(h),
    "a load": lambda tl, x, h: tl.wait(tl.load(x, (4, 4))),
    "a wait for what is over": lambda tl, x, h: tl.wait(h),
    "scratch": lambda tl, x, h: tl.empty((4, 4)),
    "a composite": lambda tl, x, h: tl.wait(tl.composite("gemm", h, tl.ref(x, (4, 4)), trans_b=True)),
}


@pytest.mark.parametrize("say", SAID.values(), ids=SAID)
def test_max_ops_stops_a_kernel_and_names_it_and_its_line(launch: Callable[..., Any], say: Any) -> None:
    with pytest.raises(LivelockError) as caught:
        launch(endless(say), x=X, max_ops=300)
    assert caught.value.hazard.kind == "livelock"
    assert str(caught.value).startswith("livelock: at cycle")
    assert "max_ops = 300" in str(caught.value)
    assert "PE0" in str(caught.value)
    assert "test_livelock.py:" in str(caught.value)


@pytest.mark.parametrize("say", [SAID["a MATH op"], SAID["a load"], SAID["a composite"]], ids=["MATH", "load", "gemm"])
def test_max_cycles_stops_a_kernel_however_far_it_runs_ahead(launch: Callable[..., Any], say: Any) -> None:
    with pytest.raises(LivelockError) as caught:
        launch(endless(say), x=X, max_cycles=2000, max_ops=10**6)
    assert "max_cycles = 2000" in str(caught.value)
    assert "PE0" in str(caught.value)
    assert "test_livelock.py:" in str(caught.value)


def test_two_kernels_that_play_ping_pong_for_ever_are_stopped(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        towards = "W" if tl.program_id(0) else "E"
        h = tl.load(x, (4, 4))
        while True:
            tl.wait(tl.send(towards, h))
            tl.release(tl.recv(towards, (4, 4)))

    with pytest.raises(LivelockError, match=r"max_cycles = 3000"):
        launch(kernel, x=X, grid=2, max_cycles=3000)


def test_a_run_within_its_limits_is_not_stopped(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (4, 4)))

    assert launch(kernel, x=X, max_cycles=10**4, max_ops=100).cycles < 100


def test_a_kernel_whose_time_does_not_fit_the_log_is_stopped_too(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        z = tl.zeros((4, 4))
        for _ in range(2200):
            tl.assign(z, z)

    with pytest.raises(LivelockError, match=f"passed max_cycles = {MAX_CYCLES}"):
        launch(kernel, x=X, spec={"issue_costs": 10**6}, max_cycles=2**31)
