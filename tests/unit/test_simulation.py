"""The loop: callbacks in order of cycle and key, kernels that run ahead of it and sleep in it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.engine.loop import Simulation, Token
from pytest_kernbench.simulator.engine.schedule import Schedule
from pytest_kernbench.simulator.errors import LivelockError


@pytest.fixture
def sim() -> Simulation:
    return Simulation(Schedule())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20))
def test_callbacks_run_by_cycle_then_key_then_order_of_scheduling(calls: list[tuple[int, int]]) -> None:
    sim, seen = Simulation(Schedule()), []
    for number, (cycle, key) in enumerate(calls):
        sim.at(cycle, key, seen.append, (cycle, key, number))
    sim.run()
    assert seen == sorted((cycle, key, number) for number, (cycle, key) in enumerate(calls))


def test_a_callback_sees_its_own_cycle_as_now(sim: Simulation) -> None:
    seen: list[int] = []
    for cycle in (7, 3, 5):
        sim.at(cycle, 0, lambda _: seen.append(sim.now), None)
    sim.run()
    assert seen == [3, 5, 7]


def test_a_smaller_key_scheduled_within_the_cycle_still_goes_first(sim: Simulation) -> None:
    seen: list[str] = []
    sim.at(4, 2, seen.append, "second")
    sim.at(4, 0, lambda _: sim.at(4, 1, seen.append, "first"), None)
    sim.run()
    assert seen == ["first", "second"]


def test_kernels_start_at_cycle_0_in_order_of_their_programs(sim: Simulation) -> None:
    seen: list[int] = []
    for program in (2, 0, 1):
        sim.spawn(lambda program=program: seen.append(program), f"PE{program}", program)
    sim.run()
    assert seen == [0, 1, 2]


def test_a_kernel_runs_ahead_until_it_waits(sim: Simulation) -> None:
    seen: list[str] = []
    token = Token()

    def body() -> None:
        kernel.now += 100
        seen.append(f"kernel at {kernel.now}, loop at {sim.now}")
        kernel.wait(token, "a token")
        seen.append(f"kernel at {kernel.now}, loop at {sim.now}")

    kernel = sim.spawn(body, "PE0", 0)
    sim.at(150, 0, token.set, 150)
    sim.run()
    assert seen == ["kernel at 100, loop at 0", "kernel at 150, loop at 150"]


def test_a_token_that_was_set_before_costs_no_time(sim: Simulation) -> None:
    token = Token()

    def body() -> None:
        kernel.now += 100
        kernel.wait(token, "a token")

    kernel = sim.spawn(body, "PE0", 0)
    sim.at(30, 0, token.set, 30)
    sim.run()
    assert kernel.now == 100
    assert kernel.finished


def test_every_waiter_of_a_token_wakes_in_order_of_its_program(sim: Simulation) -> None:
    token, woken = Token(), []

    def body(program: int) -> None:
        sim.kernels[program].wait(token, "a token")
        woken.append(program)

    for program in range(3):
        sim.spawn(lambda program=program: body(program), f"PE{program}", program)
    sim.at(9, 0, token.set, 9)
    sim.run()
    assert woken == [0, 1, 2]
    assert [kernel.now for kernel in sim.kernels] == [9, 9, 9]


def test_callbacks_of_a_token_are_called_once_and_late_ones_at_once() -> None:
    token, seen = Token(), []
    token.when_set(lambda: seen.append("before"))
    token.set(3)
    token.when_set(lambda: seen.append("after"))
    assert seen == ["before", "after"]
    assert token.is_set
    assert token.end == 3


def test_a_loop_of_callbacks_stops_at_max_cycles() -> None:
    sim = Simulation(Schedule(), max_cycles=50)

    def again(_: Any) -> None:
        sim.at(sim.now + 10, 0, again, None)

    sim.at(0, 0, again, None)
    with pytest.raises(LivelockError, match=r"^livelock: at cycle 60 passed max_cycles = 50"):
        sim.run()


def test_max_cycles_itself_may_be_reached() -> None:
    sim, seen = Simulation(Schedule(), max_cycles=50), []
    sim.at(50, 0, seen.append, "at the limit")
    sim.run()
    assert seen == ["at the limit"]
