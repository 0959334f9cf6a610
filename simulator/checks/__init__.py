"""Observers that judge a run. They change nothing and know no device. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.simulator.checks.initialisation import InitialisationChecker
from pytest_kernbench.simulator.checks.leftovers import LeftoverChecker
from pytest_kernbench.simulator.checks.lengths import LengthChecker
from pytest_kernbench.simulator.checks.numerics import NumericsChecker
from pytest_kernbench.simulator.checks.races import RaceChecker
from pytest_kernbench.simulator.checks.transfers import TransferChecker

__all__ = [
    "InitialisationChecker",
    "LeftoverChecker",
    "LengthChecker",
    "NumericsChecker",
    "RaceChecker",
    "TransferChecker",
    "default_checks",
]


def default_checks(replay: str, log: Any, *, numerics: bool | str, lengths: bool, data: bool) -> list[Any]:
    """The checkers of a run, in the order in which their findings are listed.

    `lengths`: there are tensors with bytes behind a logical length. `data`: the run computes.
    """
    found: list[Any] = [RaceChecker(replay, log), InitialisationChecker(replay, log)]
    if lengths:
        found.append(LengthChecker(replay, log, data))
    found += [LeftoverChecker(replay, log), TransferChecker(replay, log)]
    if numerics and data:
        found.append(NumericsChecker(replay, log, numerics == "precision"))
    return found
