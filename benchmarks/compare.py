"""Figures that are kept in a file, and a new run held against them; no clock and no simulator here.

Only ratios, counts and the like are compared, never one machine's seconds with another's. The better of a few medians
counts: a row that looks worse is measured again, which noise does not survive and a slowdown does. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.table import Result, Target, aligned, amount, figure

FIGURES = Path(__file__).with_name("figures.json")
ROWS = (1, 2, 3, 5, 6, 10, 11, 12, 14, 15)  # what a change of the simulator could slow down, within a minute or two
MARGIN = 1.25
NOISE = 1.05  # what T alone differs by from one run to the next, beside other work
ROUNDS = 3
WORSE, TARGET_LOST, NOT_RUN, NOT_KEPT, SAME = "WORSE", "TARGET LOST", "NOT RUN", "NOT KEPT", "same"
AGAIN = (WORSE, TARGET_LOST)  # what may be noise
HEADINGS = ("row", "work", "kept", "now", "allowed", "target", "verdict")

Key = tuple[int, str]
Measure = Callable[[Sequence[int]], Iterable[Result]]
"""Measures rows."""


@dataclass(frozen=True)
class Kept:
    """What the file has of a figure: the median, and whether it met its target. Both None if it was not run."""

    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Comparison:
    """A figure of this run beside the kept one; `kept` is None if the file has none of that name."""

    now: Result
    kept: Kept | None
    margin: float

    @property
    def allowed(self) -> float | None:
        """What the median may be at worst by the margin, whatever the target."""
        if self.kept is None or self.kept.measured is None:
            return None
        return self.kept.measured * self.margin if self.now.at_most else self.kept.measured / self.margin

    @property
    def verdict(self) -> str:
        """In capitals what is wrong, or "same"."""
        now, kept = self.now.measured, self.kept
        if now is None:
            return NOT_RUN
        if kept is None or self.allowed is None:
            return NOT_KEPT
        if not Target(self.allowed, at_most=self.now.at_most).met_by(now):
            return WORSE
        return TARGET_LOST if kept.met and self._misses_target else SAME

    @property
    def _misses_target(self) -> bool:
        """Whether not even the best sample comes to it within the noise; a median so close lies on either side."""
        target = self.now.target
        if not isinstance(target, Target):
            return False
        noise = NOISE if target.at_most else 1 / NOISE
        return not any(Target(noise * target.value, at_most=target.at_most).met_by(each) for each in self.now.samples)

    def __str__(self) -> str:
        row, work, kept, now, allowed, target, verdict = cells(self)
        return f"row {row}, {work}: {verdict}: kept {kept}, now {now}, allowed {allowed}, target {target}"


def compare(
    kept: Mapping[Key, Kept], measure: Measure, rows: Sequence[int], *, margin: float = MARGIN, rounds: int = ROUNDS
) -> list[Comparison]:
    """The best of each figure of `rows` beside the kept one; rows that look worse are measured up to `rounds` times.

    A figure is good once it was good in any round. A kept figure that `rows` do not have any more is not run.
    """
    best = {name: Result(*name, ()) for name in kept if name[0] in rows}
    for _ in range(rounds):
        for now in measure(rows):
            best[key(now)] = better(now, best.get(key(now), now))
        compared = [Comparison(now, kept.get(name), margin) for name, now in best.items()]
        rows = sorted({each.now.row for each in compared if each.verdict in AGAIN})
        if not rows:
            break
    return compared


def key(result: Result) -> Key:
    return result.row, result.work


def better(one: Result, other: Result) -> Result:
    """The one with the better median, a measured one before one that is not; `one` if neither is."""
    if one.measured is None or other.measured is None:
        return other if one.measured is None else one
    return one if Target(other.measured, at_most=one.at_most).met_by(one.measured) else other


def table(compared: Iterable[Comparison]) -> str:
    return aligned([HEADINGS, *(cells(each) for each in compared)])


def cells(each: Comparison) -> tuple[str, ...]:
    sign, kept = "<=" if each.now.at_most else ">=", each.kept.measured if each.kept else None
    values = [in_figures(value, each.now.unit) for value in (kept, each.now.measured, each.allowed)]
    allowed = f"{sign} {values.pop()}" if each.allowed is not None else values.pop()
    return str(each.now.row), each.now.work, *values, allowed, str(each.now.target) or "-", each.verdict


def in_figures(value: float | None, unit: str) -> str:
    return "-" if value is None else amount(figure(value), unit)


def save(file: Path, results: Iterable[Result], about: Mapping[str, Any]) -> None:
    """One figure a line, so that a change of one is a line of a diff."""
    figures = [json.dumps(line(result), ensure_ascii=False) for result in results]
    head = json.dumps(dict(about), indent=1).removesuffix("\n}")
    file.write_text(f'{head},\n "figures": [\n  ' + ",\n  ".join(figures) + "\n ]\n}\n", encoding="utf-8")


def line(result: Result) -> dict[str, Any]:
    """What of a result is kept: not its samples, but between what they were."""
    samples = result.samples
    spread = {"measured": result.measured, "least": min(samples), "most": max(samples)} if samples else {}
    rounded = {name: float(figure(value)) for name, value in spread.items() if value is not None}
    return {
        "row": result.row, "work": result.work, "measured": None, **rounded, "unit": result.unit,
        "target": str(result.target), "met": result.met, "absolute": result.absolute,
    }  # fmt: skip


def load(file: Path) -> tuple[dict[str, Any], dict[Key, Kept]]:
    """What the figures were taken on, and the figures."""
    about = json.loads(file.read_text(encoding="utf-8"))
    figures = about.pop("figures")
    return about, {(each["row"], each["work"]): Kept(each["measured"], each["met"]) for each in figures}
