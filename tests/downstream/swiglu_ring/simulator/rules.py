"""A rule of this repository, checked in every run beside the checkers that pytest-kernbench has."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_kernbench.checkers import Checker, about
from pytest_kernbench.simulator import Hazard, Run


def _small(run: Run) -> Iterator[Hazard]:
    """Each send of less than a burst: the link is paid for in bursts."""
    for row in run.log.where(name="send"):
        if row.bytes < run.spec.burst_bytes:
            side = about(run, row)
            fact = f"{side}\n  sends {row.bytes} bytes, less than a burst of {run.spec.burst_bytes}"
            yield Hazard("small-message", fact, (side,))


SMALL_MESSAGES = Checker({"small-message": "a message is smaller than a burst"}, _small)
