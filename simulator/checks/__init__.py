"""Observers that judge a run. They change nothing and know no device. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.simulator.checks.initialisation import InitialisationChecker
from pytest_kernbench.simulator.checks.leftovers import LeftoverChecker
from pytest_kernbench.simulator.checks.numerics import NumericsChecker
from pytest_kernbench.simulator.checks.races import RaceChecker

__all__ = ["InitialisationChecker", "LeftoverChecker", "NumericsChecker", "RaceChecker", "default_checks"]


def default_checks(replay: str, log: Any, numerics: bool | str) -> list[Any]:
    """The checkers of a run, in the order in which their findings are listed."""
    found = [RaceChecker(replay, log), InitialisationChecker(replay, log), LeftoverChecker(replay, log)]
    return [*found, NumericsChecker(replay, log, numerics == "precision")] if numerics else found
