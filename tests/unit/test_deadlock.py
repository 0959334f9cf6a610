"""Kernels that wait for each other: who, at which line, on what, who could end it, and the cycle."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.errors import DeadlockError, LivelockError

X = np.ones((4, 4), np.float32)


def stuck(launch: Callable[..., Any], kernel: Callable[..., None], **given: Any) -> str:
    with pytest.raises(DeadlockError) as caught:
        launch(kernel, x=X, **given)
    assert caught.value.hazard.kind == "deadlock"
    assert not isinstance(caught.value, LivelockError)
    return re.sub(r":\d+ in", ":LINE in", str(caught.value))


def both_receive(x: Any, *, tl: Any) -> None:
    tl.recv("W" if tl.program_id(0) else "E", (4, 4))


def test_two_receivers_are_reported_with_line_reason_and_cycle(launch: Callable[..., Any]) -> None:
    with pytest.raises(DeadlockError) as caught:
        launch(both_receive, x=X, grid=2)
    line = both_receive.__code__.co_firstlineno + 1
    assert str(caught.value).splitlines()[:4] == [
        "deadlock: at cycle 0 nothing is left to happen",
        f"  PE0 waits at test_deadlock.py:{line} in both_receive for a message of PE1 W> PE0; "
        "PE1 would end it by sending W",
        f"  PE1 waits at test_deadlock.py:{line} in both_receive for a message of PE0 E> PE1; "
        "PE0 would end it by sending E",
        "  they wait for each other: PE0 -> PE1 -> PE0",
    ]


def test_a_sender_without_slots_is_told_who_holds_them(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0):
            held = [tl.recv("W", (4, 4)), tl.recv("W", (4, 4))]
            tl.release(held[0])
        else:
            h = tl.load(x, (4, 4))
            tl.send("E", h), tl.send("E", h)

    message = stuck(launch, kernel, grid=2, spec={"ipcq_slots": 1})
    assert "PE0 waits at test_deadlock.py:LINE in kernel for a free slot of PE0 E> PE1; PE1 would end it by" in message
    assert "releasing one of its 1 slot of PE0 E> PE1, or more ipcq_slots" in message
    assert "PE1 waits at test_deadlock.py:LINE in kernel for a message of PE0 E> PE1" in message
    assert "they wait for each other: PE0 -> PE1 -> PE0" in message


def test_a_wait_for_a_kernel_that_has_ended_has_no_cycle(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.recv("E", (4, 4))

    message = stuck(launch, kernel, grid=2)
    assert "PE0 waits at test_deadlock.py:LINE in kernel for a message of PE1 W> PE0" in message
    assert "they wait for each other" not in message
    assert "PE1 waits" not in message


def test_a_cycle_of_four_names_each_once(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.recv({0: "E", 1: "S", 5: "W", 4: "N"}[tl.program_id(0)], (4, 4))

    def on_the_corners(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) in (0, 1, 4, 5):
            kernel(x, tl=tl)

    message = stuck(launch, on_the_corners, grid=8)
    assert "they wait for each other: PE0 -> PE1 -> PE5 -> PE4 -> PE0" in message


def test_the_line_is_the_kernels_even_in_a_folder_named_simulator(launch: Callable[..., Any]) -> None:
    names: dict[str, Any] = {}
    source = "def kernel(x, *, tl):\n    if tl.program_id(0):\n        tl.recv('W', (4, 4))\n"
    exec(compile(source, "/home/me/simulator/kernels/attention.py", "exec"), names)
    assert "PE1 waits at attention.py:LINE in kernel" in stuck(launch, names["kernel"], grid=2)


def test_a_deadlock_under_the_late_schedule_is_the_same_one(launch: Callable[..., Any]) -> None:
    late, model = (stuck(launch, both_receive, grid=2, schedule=schedule) for schedule in ("late", "model"))
    assert late.replace("schedule='late'", "schedule='model'") == model
