"""The fault matrix: checkers, schedules, what a run was seen to be, and a fault's line on the page.

What counts as seen is decided here alone, the same for every kernel of either device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_kernbench.hazards import ALLOCATION, KINDS, RACES
from pytest_kernbench.pipes import scalar_accesses
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import SimError

PAGE = Path(__file__).parents[2] / "docs" / "fault-matrix.md"
SCHEDULES = {"M": ("model", 0), "J": ("jitter", 1), "L": ("late", 1)}
LEFT = ("message-left", "credit-lost", "op-in-flight-at-exit", "leak", "unpaired-flag", "double-flag")
BY_FINDING = {
    "race": RACES,
    "lifetime": (*ALLOCATION, "uninitialised-read", "queue-misuse"),
    "deadlock": ("deadlock", "livelock"),
    "leftover": LEFT,
    "nan": ("first-nan", "overflow"),
}
CHECKERS = (*BY_FINDING, "refusal", "numeric", "structure", "time", "determinism")
assert all(kind in KINDS for kinds in BY_FINDING.values() for kind in kinds)
SLOWER = 1.25  # times the right kernel's cycles under the model's own times
Array = np.ndarray[Any, Any]
Caught = Mapping[str, set[str]]
"""By schedule's letter, the checkers that saw a fault there."""


@dataclass(frozen=True)
class Seen:
    """What a run was seen to be: kinds of findings, and its results, whether they are right, its work and cycles.

    A run that was refused or hung has kinds alone.
    """

    kinds: tuple[str, ...]
    results: tuple[Array, ...] = ()
    right: bool = True
    work: tuple[int, ...] = ()
    cycles: int = 0

    @property
    def ended(self) -> bool:
        return bool(self.results)

    @property
    def bits(self) -> bytes:
        return b"".join(each.tobytes() for each in self.results)

    def has_nan_beside(self, usual: Seen) -> bool:
        """Whether a result is NaN where the usual one is not; what nobody writes is NaN in both."""
        return any(
            bool((np.isnan(each.astype(float)) & ~np.isnan(other.astype(float))).any())
            for each, other in zip(self.results, usual.results, strict=True)
        )


def refused(error: Exception) -> Seen:
    """A run that raised: its findings' kinds, or a refusal of the host's arithmetic."""
    return Seen(tuple(hazard.kind for hazard in error.hazards) if isinstance(error, SimError) else ("bad-parameter",))


def finished(run: Run, results: Iterable[Array], right: bool, work: tuple[int, ...]) -> Seen:
    """A run that came to its end."""
    return Seen(tuple(hazard.kind for hazard in run.hazards), tuple(results), right, work, run.cycles)


def work_of_the_core(run: Run) -> tuple[int, ...]:
    """Of a 310P: vector instructions, bytes of DMA in and out, scalar accesses to memory."""
    log = run.log
    instructions = int((log.where(unit="V").work > 0).sum())  # not its flags and barriers
    bytes_moved = (int(log.where(unit=unit).bytes.sum()) for unit in ("MTE2", "MTE3"))
    return (instructions, *bytes_moved, len(scalar_accesses(log, None)))


def checkers_of(kinds: Iterable[str]) -> set[str]:
    """The checkers that findings of these kinds come from; what none of the named ones looks for is a refusal."""
    return {next((name for name, found in BY_FINDING.items() if kind in found), "refusal") for kind in kinds}


def caught_by(found: Mapping[str, Seen], usual: Seen) -> dict[str, set[str]]:
    """The checkers that see a fault in its runs by schedule's letter; `usual` is the right kernel's under the model."""
    differ = len({seen.bits for seen in found.values() if seen.ended}) > 1
    return {letter: _checkers(seen, usual, letter == "M", differ) for letter, seen in found.items()}


def _checkers(seen: Seen, usual: Seen, timed: bool, differ: bool) -> set[str]:
    caught = checkers_of(seen.kinds)
    if not seen.ended:
        return caught
    of_results = {
        "nan": seen.has_nan_beside(usual),
        "numeric": not seen.right,
        "structure": seen.work != usual.work,
        "time": timed and seen.cycles > SLOWER * usual.cycles,
        "determinism": differ,
    }
    return caught | {name for name, so in of_results.items() if so}


def row_of(id: str, text: str, sees: Iterable[str], caught: Caught, ended: bool) -> str:
    """A fault's line of the matrix: the letters of the schedules under which each checker saw it.

    A run that did not come to its end has no result and nothing left over: no checker is said to miss that.
    """
    cells = ["".join(letter for letter in SCHEDULES if name in caught[letter]) or "." for name in CHECKERS]
    seen = set().union(*caught.values())
    unseen = ", ".join(sorted(set(sees) - seen)) if ended else ""
    verdict = "**missed**" if not seen else f"caught, not by {unseen}" if unseen else "caught"
    return f"| {id} | {text} | {', '.join(sees)} | {' | '.join(cells)} | {verdict} |"


def heading() -> str:
    """The first line of a matrix."""
    return f"| fault | source and mistake | expected | {' | '.join(CHECKERS)} | verdict |"


def rows_on_the_page() -> dict[str, str]:
    """Each row of a matrix by its first cell, in order. Raises ValueError for a fault that has two."""
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    cells = len(CHECKERS) + 4
    rows = [line for line in lines if line.endswith(" |") and line.count(" | ") == cells - 1 and line != heading()]
    found = {row.removeprefix("| ").partition(" | ")[0]: row for row in rows}
    if len(found) != len(rows):
        raise ValueError(f"{PAGE.name} has {len(rows)} rows for {len(found)} faults")
    return found
