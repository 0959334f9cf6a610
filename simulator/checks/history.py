"""Who touched which bytes last: per space, disjoint ranges with their last write and the reads since.

Exact: a range is split where an access begins or ends, and a write replaces what it covers. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any


class Range:
    """Bytes [lo, hi) with one story: `write` is the last write, `reads` the last read of each pipe since."""

    __slots__ = ("hi", "lo", "reads", "write")

    def __init__(self, lo: int, hi: int, write: Any, reads: dict[int, Any]) -> None:
        self.lo = lo
        self.hi = hi
        self.write = write
        self.reads = reads


class History:
    """The ranges of one space, sorted."""

    __slots__ = ("_ranges", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: list[Range] = []

    def __bool__(self) -> bool:
        return True  # an empty history is still one: `space.touched or ...` asks whether there is one

    def __len__(self) -> int:
        return len(self._ranges)

    def exact(self, lo: int, hi: int) -> Range | None:
        """The range [lo, hi) if it is one: the common case, a tile touched again."""
        index = bisect_right(self._starts, lo) - 1
        if index >= 0:
            found = self._ranges[index]
            if found.lo == lo and found.hi == hi:
                return found
        return None

    def touch(self, lo: int, hi: int) -> list[Range]:
        """The ranges that make up [lo, hi) exactly, new ones where nobody has been."""
        starts, ranges = self._starts, self._ranges
        index = bisect_right(starts, lo) - 1
        if index >= 0:
            found = ranges[index]
            if found.lo == lo and found.hi == hi:  # the common case: a tile touched again
                return [found]
            if found.hi <= lo:
                index += 1
        else:
            index = 0
        pieces, end = self._cut(index, lo, hi)
        ranges[index:end] = pieces
        starts[index:end] = [piece.lo for piece in pieces]
        return [piece for piece in pieces if piece.lo >= lo and piece.hi <= hi]

    def _cut(self, index: int, lo: int, hi: int) -> tuple[list[Range], int]:
        """What replaces the ranges from `index` to the returned end, cut at `lo` and `hi`, gaps filled."""
        pieces: list[Range] = []
        at = lo
        while index < len(self._ranges) and self._ranges[index].lo < hi:
            found = self._ranges[index]
            if found.lo > at:
                pieces.append(Range(at, found.lo, None, {}))
            if found.lo < lo:
                pieces.append(Range(found.lo, lo, found.write, dict(found.reads)))
            pieces.append(Range(max(found.lo, lo), min(found.hi, hi), found.write, dict(found.reads)))
            if found.hi > hi:
                pieces.append(Range(hi, found.hi, found.write, dict(found.reads)))
            at = found.hi
            index += 1
        if at < hi:
            pieces.append(Range(at, hi, None, {}))
        return pieces, index

    def replace(self, lo: int, hi: int, pieces: list[Range], write: Any) -> None:
        """One range in place of `pieces`, which make up [lo, hi): written, not yet read."""
        if len(pieces) == 1:
            pieces[0].write, pieces[0].reads = write, {}
            return
        index = bisect_right(self._starts, lo) - 1
        self._ranges[index : index + len(pieces)] = [Range(lo, hi, write, {})]
        self._starts[index : index + len(pieces)] = [lo]
