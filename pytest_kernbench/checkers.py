"""Checkers of your own: they judge a finished run of any device, and what they find joins `run.hazards`.

A checker has its own kinds of finding, which `allow_hazard` then takes as it takes those of the devices.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pytest_kernbench.extensions import ExtensionError, raised
from pytest_kernbench.hazards import KINDS
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.ops.log import Row, touched

__all__ = ["Checker", "about", "judged"]

_KIND = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _nothing(run: Run) -> tuple[Hazard, ...]:
    return ()


@dataclass(frozen=True)
class Checker:
    """`kinds`: what it looks for, each kind with its meaning in a line. `judge(run)` gives the findings.

    Without `judge` it only names kinds, those that a device of yours reports itself. Raises ValueError for a kind that
    is no name such as "bank-conflict", or that the package has already.
    """

    kinds: Mapping[str, str]
    judge: Callable[[Run], Iterable[Hazard]] = _nothing
    origin: str = field(default="", compare=False)  # who brought it; the plugin fills it in

    def __post_init__(self) -> None:
        if not isinstance(self.kinds, Mapping) or not self.kinds:
            raise ValueError(f"Checker({self.kinds!r}): give its kinds, as {{'bank-conflict': 'what it is'}}")
        for kind in self.kinds:
            if not isinstance(kind, str) or not _KIND.fullmatch(kind):
                raise ValueError(f"Checker: {kind!r} is no name of a kind; write it as 'bank-conflict'")
            if kind in KINDS:
                raise ValueError(f"Checker: the kind {kind!r} is the package's own; give yours another name")
        if not callable(self.judge):
            raise ValueError(f"Checker({self!s}): judge is {self.judge!r}; give a function of a run")

    def __str__(self) -> str:
        return ", ".join(self.kinds)


def about(run: Run, row: Row) -> Involved:
    """A row of the run's log as one side of a finding: the op, the bytes it reads and writes, its line."""
    where = touched(row) or "no bytes"
    return Involved(row.index, row.name, row.unit, run.log.programs[row.program], where, row.site)


def judged(run: Run, checkers: Iterable[Checker], replay: str = "") -> Run:
    """The run with the findings of `checkers` behind its own. Raises ExtensionError for a checker that is broken.

    `replay`: how to run it again, for findings that do not say it.
    """
    __tracebackhide__ = True
    found: list[Hazard] = []
    for checker in checkers:
        found += _findings(checker, run)
    if not found:
        return run
    return replace(run, hazards=(*run.hazards, *(replace(each, replay=each.replay or replay) for each in found)))


def _findings(checker: Checker, run: Run) -> tuple[Hazard, ...]:
    __tracebackhide__ = True
    try:
        found = tuple(checker.judge(run))
    except Exception as error:
        raise ExtensionError(f"{_who(checker)} {raised(error)}") from error
    for each in found:
        if not isinstance(each, Hazard):
            raise ExtensionError(f"{_who(checker)} gave {each!r}; give Hazard(kind, message, ops)")
        if each.kind not in checker.kinds:
            raise ExtensionError(f"{_who(checker)} gave a finding of kind {each.kind!r}, which is none of its kinds")
    return found


def _who(checker: Checker) -> str:
    return f"{checker.origin or 'a checker'}: the checker of {checker}"
