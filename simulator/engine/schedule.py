"""When ops take their time: the model's, a jittered one, or as late as possible.

Results of a clean kernel do not change under any of them; a missing wait shows by value under at least one.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


class Schedule:
    """The model's own timing: nothing is added, units start as soon as they can."""

    name = "model"
    lazy = False
    extra: Callable[[int], int] | None = None  # cycles to add to an op of so many

    def register(self, unit: Any) -> None:
        """A unit exists."""

    def next_unit(self, sim: Any) -> Any:
        """The unit to step when nothing else is left to happen; None if the run is over or stuck."""
        return None


class Jitter(Schedule):
    """One op in three takes eight times as long, drawn from the seed: an order that only timing supplied breaks."""

    name = "jitter"

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.extra = self._seven_more

    def _seven_more(self, cycles: int) -> int:
        return 7 * cycles if self._random.random() < 1 / 3 else 0


class Late(Schedule):
    """An op starts only when nothing else can happen and a sleeping kernel transitively needs it; the oldest first.

    Ops nobody ever waits for run last, in the order they were said.
    """

    name = "late"
    lazy = True

    def __init__(self) -> None:
        self._units: list[Any] = []

    def register(self, unit: Any) -> None:
        self._units.append(unit)

    def next_unit(self, sim: Any) -> Any:
        needed = [token.needs() for token, _ in sim.sleeping.values()]
        ready = [unit for unit in needed if unit is not None and unit.has_work()]
        if not ready:  # nobody sleeps, or only on what follows from ops that nobody waits for
            ready = [unit for unit in self._units if unit.has_work()]
        return min(ready, key=lambda unit: unit.oldest(), default=None)


def schedule_named(name: str, seed: int) -> Schedule:
    """The schedule `name` ("model", "jitter" or "late"). Raises ValueError for another name."""
    if name == "jitter":
        return Jitter(seed)
    if name == "late":
        return Late()
    if name != "model":
        raise ValueError(f"schedule {name!r} is none of 'model', 'jitter', 'late'")
    return Schedule()
