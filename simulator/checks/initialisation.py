"""Reads of bytes that nobody wrote, by validity of bytes and not by NaN, so that integers count too.

Kept per allocation: a new owner of scratch starts with nothing valid, whatever the last owner wrote.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.probes import Observer


class Ranges:
    """A set of whole numbers as sorted, disjoint, never touching ranges."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, lo: int, hi: int) -> None:
        starts, ends = self._starts, self._ends
        first = bisect_left(ends, lo)  # the first range that reaches lo
        last = bisect_right(starts, hi)  # behind the last range that starts by hi
        if first < last:
            if starts[first] <= lo and ends[first] >= hi:
                return
            lo, hi = min(lo, starts[first]), max(hi, ends[last - 1])
        starts[first:last], ends[first:last] = [lo], [hi]

    def missing(self, lo: int, hi: int) -> tuple[int, int] | None:
        """The first range of [lo, hi) that is not in the set."""
        index = bisect_right(self._starts, lo) - 1
        if index >= 0 and self._ends[index] >= hi:
            return None
        covered = max(lo, self._ends[index]) if index >= 0 else lo
        following = self._starts[index + 1] if index + 1 < len(self._starts) else hi
        return covered, min(following, hi)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, number: int) -> bool:
        return self.missing(number, number + 1) is None


class InitialisationChecker(Observer):
    """Finds `uninitialised-read`; bytes behind a tensor's valid rows are the length checker's."""

    def __init__(self, replay: str, log: Any) -> None:
        self._replay = replay
        self._log = log
        self._found: dict[tuple[int, str], Hazard] = {}

    def host_write(self, allocation: Any, lo: int, hi: int) -> None:
        self._write(allocation, lo, hi)

    def issue(self, op: Any) -> None:
        for region in op.reads:
            if not region[0].filled:
                self._read(op, *region)
        for region in op.streamed:
            if not region[0].filled:
                self._read(op, *region)
        for region in op.writes:
            if not region[0].filled:
                self._write(*region)

    def _read(self, op: Any, allocation: Any, lo: int, hi: int) -> None:
        valid = allocation.valid
        gap = (lo, hi) if valid is None else valid.missing(lo, hi)
        if gap is not None and not allocation.past:
            self._report(op, allocation, *gap)

    def _write(self, allocation: Any, lo: int, hi: int) -> None:
        """A whole allocation written is remembered as one bit: all there is for most scratch."""
        if lo <= allocation.lo and hi >= allocation.hi:
            allocation.filled = True
            return
        if allocation.valid is None:
            allocation.valid = Ranges()
        allocation.valid.add(lo, hi)

    def _report(self, op: Any, allocation: Any, lo: int, hi: int) -> None:
        reader = about(op, (allocation, lo, hi), self._log)
        if allocation.name not in ("scratch", "slot"):
            fact = f"{reader}\n  reads bytes that nothing has written; give the tensor data=, or store to it first"
        else:
            fact = f"{reader}\n  reads bytes that nothing has written; write them first (tl.zeros, tl.load, out=)"
        key = (op.site, allocation.name)
        earlier = self._found.get(key)
        hazard = Hazard("uninitialised-read", fact, (reader,), replay=self._replay)
        self._found[key] = hazard if earlier is None else replace(earlier, count=earlier.count + 1)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())
