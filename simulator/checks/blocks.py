"""Conflicts between blocks of a grid, which nothing orders: who read and who wrote which bytes of memory.

Blocks run one after another; each leaves sets of bytes, by source line. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from pytest_kernbench.simulator.checks.initialisation import Ranges
from pytest_kernbench.simulator.errors import Hazard, Involved


class Run:
    """The bytes that accesses touched one after another without a gap; what they touched before; a row of theirs."""

    __slots__ = ("before", "hi", "lo", "row")

    def __init__(self, lo: int, hi: int, row: int) -> None:
        self.lo = lo
        self.hi = hi
        self.row = row
        self.before = Ranges()


class Footprint:
    """What one block touched in memory, by kind of access and descriptor; a row of each stands for all."""

    def __init__(self) -> None:
        self._runs: dict[tuple[bool, int], Run] = {}

    def add(self, write: bool, descriptor: int, row: int, lo: int, hi: int) -> None:
        run = self._runs.get((write, descriptor))
        if run is None:
            self._runs[write, descriptor] = Run(lo, hi, row)
        elif lo == run.hi:
            run.hi = hi
        elif lo < run.lo or hi > run.hi:
            run.before.add(run.lo, run.hi)
            run.lo, run.hi = lo, hi

    def touched(self) -> Iterator[tuple[tuple[bool, int], Ranges, int]]:
        """Kind of access and descriptor, the bytes, and a row."""
        for key, run in self._runs.items():
            run.before.add(run.lo, run.hi)
            yield key, run.before, run.row


Extent = tuple[int, int]
Reach = list[int]  # the first block that touched an extent and its row, the last one and its row


def conflicts(blocks: list[Footprint], about: Callable[[int, int, int], Involved], replay: str) -> list[Hazard]:
    """One finding a pair of source lines in different blocks, one of them writing, that share a byte."""
    found: dict[tuple[str, Any, Any], Hazard] = {}
    seen: set[tuple[str, int, int]] = set()
    reaches = _reaches(blocks)
    writes = _flat(reaches)
    for (write, line), extents in reaches.items():
        kind = "race-waw" if write else "race-raw"
        for (lo, hi), reach in extents.items():
            for theirs, by, low, high in _meeting(writes, lo, hi):
                pair = (kind, by, line)
                rows = () if pair in seen else _in_different_blocks(theirs, reach, write)
                if rows:
                    seen.add(pair)
                    _note(found, kind, rows, max(lo, low), min(hi, high), about, replay)
    return list(found.values())


def _reaches(blocks: list[Footprint]) -> dict[tuple[bool, int], dict[Extent, Reach]]:
    """By kind of access and descriptor, the extents that blocks touched: many blocks touch the same ones."""
    found: dict[tuple[bool, int], dict[Extent, Reach]] = {}
    for number, block in enumerate(blocks):
        for key, ranges, row in block.touched():
            extents = found.setdefault(key, {})
            for lo, hi in ranges:
                reach = extents.setdefault((lo, hi), [number, row, number, row])
                reach[2:] = number, row
    return found


def _in_different_blocks(writer: Reach, other: Reach, ordered: bool) -> tuple[int, int] | tuple[()]:
    """A row of the writer's and one of the other's in another block, in a later one if `ordered`; none if no two are.

    The first and the last block of each are enough to tell.
    """
    if writer[0] < other[2]:
        return writer[1], other[3]
    if not ordered and writer[2] > other[0]:
        return writer[3], other[1]
    return ()


def _flat(reaches: dict[tuple[bool, int], dict[Extent, Reach]]) -> Any:
    """(starts, (lo, hi, descriptor, reach) by lo, longest) of all writes."""
    flat = sorted(
        ((lo, hi, line, reach) for (write, line), extents in reaches.items() if write
         for (lo, hi), reach in extents.items()),
        key=lambda each: each[:3],
    )  # fmt: skip
    return [each[0] for each in flat], flat, max((hi - lo for lo, hi, _, _ in flat), default=0)


def _meeting(index: Any, lo: int, hi: int) -> Iterator[tuple[Reach, int, int, int]]:
    """(reach, descriptor, lo, hi) of the writes that share a byte with [lo, hi)."""
    starts, flat, longest = index
    for at in range(bisect_right(starts, lo - longest), len(flat)):
        low, high, line, reach = flat[at]
        if low >= hi:
            return
        if high > lo:
            yield reach, line, low, high


def _note(
    found: dict[Any, Hazard], kind: str, rows: tuple[int, int], lo: int, hi: int,
    about: Callable[[int, int, int], Involved], replay: str,
) -> None:  # fmt: skip
    first, second = (about(row, lo, hi) for row in rows)
    key = (kind, first.site, second.site)
    if key in found:
        return
    does = "overwrites" if kind == "race-waw" else "reads"
    message = (
        f"{second}\n  {does} what\n  {first}\n  writes, and blocks are not in order with each other; "
        f"give each block its own bytes"
    )
    found[key] = Hazard(kind, message, (first, second), replay=replay)


def shared_lines(
    blocks: list[dict[int, int]], line: int, about: Callable[[int, int, int], Involved], replay: str
) -> list[Hazard]:
    """Lines of private caches that two blocks have stored to: what is written back last takes the other's bytes along.

    `blocks`: for each block, a row for each line that it stored to. One finding a pair of source lines.
    """
    found: dict[tuple[Any, Any], Hazard] = {}
    first_of: dict[int, tuple[int, int]] = {}
    for number, stored in enumerate(blocks):
        for place, row in stored.items():
            other, earlier = first_of.setdefault(place, (number, row))
            if other == number:
                continue
            first, second = (about(each, place * line, (place + 1) * line) for each in (earlier, row))
            message = (
                f"{second}\n  stores to the same line of {line} bytes as\n  {first}\n  and the line that is written "
                f"back last undoes the other; give each block whole lines, or write by DMA"
            )
            found.setdefault((first.site, second.site), Hazard("stale-cache", message, (first, second), replay=replay))
    return list(found.values())
