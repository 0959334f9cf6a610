"""Work measured between two measurements of a unit, so that the mood of the machine is in both. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import simpy

Measure = Callable[[], float]
"""Does something and returns what it took."""

USUAL_UNIT = 0.75e-6  # T of the machine on which targets in seconds were set
PROCESSES = 64
EVENTS = 64_000


@dataclass(frozen=True)
class Sample:
    """What one repetition took, and what the unit took around it."""

    work: float
    unit: float

    @property
    def ratio(self) -> float:
        return self.work / self.unit

    @property
    def usual_seconds(self) -> float:
        """What the work would take where T is 0.75 us, if the unit is T."""
        return self.ratio * USUAL_UNIT


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call, which pays neither for the garbage of what came before nor for waiting for a core.

    What is measured here runs in one thread, so that on an idle machine it is the time on the clock.
    """
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def typical(work: Callable[[], object], calls: int) -> float:
    """The median of a few calls: for work so short that one hiccup of the machine would double it."""
    return median(seconds(work) for _ in range(calls))


def beside(work: Measure, unit: Measure, repetitions: int, *, warm_up: bool = True) -> list[Sample]:
    """`work` between two runs of `unit`, `repetitions` times, after one of each that does not count."""
    if warm_up:
        work()
        unit()
    samples, before = [], unit()
    for _ in range(repetitions):
        worked, after = work(), unit()
        samples.append(Sample(worked, (before + after) / 2))
        before = after
    return samples


def timeout_event() -> float:
    """T: the seconds of one SimPy timeout event, with as many processes as PEs and units are busy in a decode."""
    environment = simpy.Environment()

    def process() -> Generator[simpy.Event, None, None]:
        for _ in range(EVENTS // PROCESSES):
            yield environment.timeout(1)

    for _ in range(PROCESSES):
        environment.process(process())
    return seconds(environment.run) / EVENTS


@dataclass
class Session:
    """One run of the benchmarks: how often, with what, and every T that was measured on the way."""

    repetitions: int
    pairs: int
    pallas: Path | None = None
    units: list[float] = field(default_factory=list)

    def unit(self) -> float:
        """T, now."""
        self.units.append(timeout_event())
        return self.units[-1]

    def beside_unit(self, work: Measure) -> list[Sample]:
        return beside(work, self.unit, self.repetitions)

    @property
    def median_unit(self) -> float:
        return median(self.units)

    def tell(self, what: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
