"""Results as a table and as JSON: medians of ratios, held against targets. No clock and no simulator here.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import linear_regression, median
from typing import Any

HEADINGS = ("row", "work", "measured (min..max)", "target", "met", "absolute")


@dataclass(frozen=True)
class Target:
    """`value` of `unit` at most, or at least; "T" is the unit of time, "x" a plain ratio."""

    value: float
    unit: str = "x"
    at_most: bool = True

    def met_by(self, measured: float) -> bool:
        return measured <= self.value if self.at_most else measured >= self.value

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {amount(self.value, self.unit)}"


@dataclass(frozen=True)
class Result:
    """A line of the table. `met` is None where nothing was promised or nothing was measured.

    Samples do not depend on the machine's speed: ratios, counts, or seconds where T is 0.75 us.
    """

    row: int
    work: str
    samples: tuple[float, ...]
    unit: str = "x"
    target: Target | str = ""
    met: bool | None = None
    absolute: str = ""

    @property
    def measured(self) -> float | None:
        return median(self.samples) if self.samples else None

    @property
    def at_most(self) -> bool:
        """Whether less is better, as it is unless a target says otherwise."""
        return self.target.at_most if isinstance(self.target, Target) else True


def against(row: int, work: str, samples: Iterable[float], target: Target, absolute: str = "") -> Result:
    """A result whose median meets `target` or not."""
    values = tuple(samples)
    return Result(row, work, values, target.unit, target, target.met_by(median(values)), absolute)


def not_run(row: int, work: str, target: Target, why: str) -> Result:
    return Result(row, work, (), target.unit, target, None, f"not run: {why}")


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log time over log size: 1 where twice the size takes twice the time."""
    return linear_regression([math.log(size) for size in sizes], [math.log(time) for time in times]).slope


def figure(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if value == 0 or abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def amount(value: float | str, unit: str) -> str:
    """A value, in the digits it has to be shown with, and its unit."""
    shown = value if isinstance(value, str) else f"{value:g}"
    return f"{shown}{unit}" if unit == "x" else f"{shown} {unit}".rstrip()


def spread(samples: Sequence[float], unit: str = "") -> str:
    """Median (min..max) with the unit after the median; the range is left out where there is none."""
    if not samples:
        return "-"
    middle = amount(figure(median(samples)), unit)
    low, high = figure(min(samples)), figure(max(samples))
    return middle if low == high else f"{middle} ({low}..{high})"


def cells(result: Result) -> tuple[str, ...]:
    met = {None: "-", True: "yes", False: "NO"}[result.met]
    measured = spread(result.samples, result.unit)
    return (str(result.row), result.work, measured, str(result.target) or "-", met, result.absolute)


def table(results: Iterable[Result]) -> str:
    return aligned([HEADINGS, *(cells(result) for result in results)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns aligned; the first line has the headings."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def as_json(results: Iterable[Result], about: dict[str, Any]) -> dict[str, Any]:
    """Every sample, and the median."""
    lines = [{**asdict(result), "target": str(result.target), "measured": result.measured} for result in results]
    return {**about, "results": lines}
