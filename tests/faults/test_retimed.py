"""A second engine, `retime`, gives the times of every kernel of AHBM to the cycle, whatever schedule made the log."""

from __future__ import annotations

import pytest

from pytest_kernbench.simulator import Timing, retime

from .launches import LAUNCHES, ON_A_MESH, ON_A_RING


@pytest.mark.adr("0060", "11.6")
@pytest.mark.parametrize("name", [*ON_A_MESH, *ON_A_RING])
def test_a_kernel_has_the_times_of_the_second_engine(name: str) -> None:
    run = LAUNCHES[name]("model", 0)

    again = retime(run.log, Timing(run.spec))

    assert len(run.log) > 100
    assert again.changed.size == 0, again.log[int(again.changed[0])]
    assert again.cycles == run.cycles


@pytest.mark.adr("0060", "11.6")
@pytest.mark.parametrize("schedule", ["jitter", "late"])
@pytest.mark.parametrize("name", [*ON_A_MESH, *ON_A_RING])
def test_a_log_of_another_schedule_is_given_the_model_s_times(name: str, schedule: str) -> None:
    run, other = LAUNCHES[name]("model", 0), LAUNCHES[name](schedule, 1)

    assert retime(other.log, Timing(run.spec)).cycles == run.cycles
