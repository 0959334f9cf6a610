"""Conflicts between blocks of a grid, which nothing orders: who read and who wrote which bytes of memory.

Blocks run one after another; each leaves sets of bytes, by source line. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from pytest_kernbench.simulator.checks.initialisation import Ranges
from pytest_kernbench.simulator.errors import Hazard, Involved


class Footprint:
    """What one block touched in memory, by kind of access and descriptor; a row of each stands for all."""

    def __init__(self) -> None:
        self.touched: dict[tuple[bool, int], tuple[Ranges, int]] = {}

    def add(self, write: bool, descriptor: int, row: int, lo: int, hi: int) -> None:
        found = self.touched.get((write, descriptor))
        if found is None:
            found = self.touched[write, descriptor] = Ranges(), row
        found[0].add(lo, hi)


def conflicts(blocks: list[Footprint], about: Callable[[int, int, int], Involved], replay: str) -> list[Hazard]:
    """One finding a pair of source lines in different blocks, one of them writing, that share a byte."""
    found: dict[tuple[str, Any, Any], Hazard] = {}
    writes = _flat(blocks)
    lines = len({line for *_, line in writes[1]})
    seen: dict[tuple[bool, int], set[int]] = {}  # kind and line of an access -> lines of writes that it conflicts with
    for number, block in enumerate(blocks):
        for (write, descriptor), (ranges, row) in block.touched.items():
            known = seen.setdefault((write, descriptor), set())
            for lo, hi in ranges if len(known) < lines else ():
                for low, high, theirs, other, line in _meeting(writes, lo, hi):
                    if line not in known and (theirs < number or (theirs > number and not write)):
                        known.add(line)
                        kind = "race-waw" if write else "race-raw"
                        _note(found, kind, (other, row), max(lo, low), min(hi, high), about, replay)
    return list(found.values())


Access = tuple[int, int, int, int, int]
"""lo, hi, block, row and descriptor of an access."""


def _flat(blocks: list[Footprint]) -> tuple[list[int], list[Access], int]:
    """(starts, accesses by lo, the longest) of all writes."""
    flat = sorted(
        (lo, hi, number, row, descriptor)
        for number, block in enumerate(blocks)
        for (write, descriptor), (ranges, row) in block.touched.items()
        if write
        for lo, hi in ranges
    )
    return [each[0] for each in flat], flat, max((hi - lo for lo, hi, *_ in flat), default=0)


def _meeting(index: tuple[list[int], list[Access], int], lo: int, hi: int) -> Iterator[Access]:
    """The writes that share a byte with [lo, hi)."""
    starts, flat, longest = index
    for at in range(bisect_right(starts, lo - longest), len(flat)):
        access = flat[at]
        if access[0] >= hi:
            return
        if access[1] > lo:
            yield access


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
