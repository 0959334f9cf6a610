"""No kernel of the project has a finding, under the model's times or any of a few seeds of jitter and late.

A run with a finding raises it. Every launch is run seven times: what the fault matrix catches is not caught here.
`python -m tests.faults --seeds 50` runs them all under so many seeds of both.
"""

from __future__ import annotations

import re

import pytest

from .launches import LAUNCHES, OF_THE_DELTA_RULE, ON_A_MESH, ON_A_RING
from .matrix import PAGE

SEEDS = {"model": (0,), "jitter": (2, 3, 4), "late": (0, 2, 3)}
OF_AHBM = (*ON_A_MESH, *ON_A_RING)


def assert_clean(name: str, schedule: str) -> None:
    for seed in SEEDS[schedule]:
        run = LAUNCHES[name](schedule, seed)
        assert run.checked and not run.hazards and (run.schedule, run.seed) == (schedule, seed)


@pytest.mark.parametrize("schedule", SEEDS)
@pytest.mark.adr("0060", "11.8", "A")
@pytest.mark.parametrize("name", OF_AHBM)
def test_kernels_of_ahbm(name: str, schedule: str) -> None:
    assert_clean(name, schedule)


@pytest.mark.parametrize("schedule", SEEDS)
@pytest.mark.adr("0310", "3.11")
@pytest.mark.parametrize("name", [name for name in LAUNCHES if name not in OF_AHBM])
def test_kernels_of_the_310p(name: str, schedule: str) -> None:
    assert_clean(name, schedule)


def test_the_page_says_how_many_runs_there_are() -> None:
    runs = len(LAUNCHES) * sum(map(len, SEEDS.values()))
    said = re.search(r"(\d+) launches of .*?\sare (\d+) runs", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    assert set(OF_THE_DELTA_RULE) < set(LAUNCHES)
    assert said and said.groups() == (str(len(LAUNCHES)), str(runs))
