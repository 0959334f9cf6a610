"""Results that depend on rows behind a tensor's valid length: what is read there is followed to what is stored.

Reading them is no fault, for a kernel may mask them with `where`. In a run with data the poison says whether it did: a
NaN that comes out. Without data what went through a `where` is taken to be masked. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.probes import Observer

STORES = frozenset({"store", "writeback"})


class Origin(NamedTuple):
    """Who read which bytes behind the valid length; `masked`: it has gone through a `where` since."""

    op: Any
    region: Any
    masked: bool


Piece = tuple[int, int, Origin]  # bytes [lo, hi) that depend on them


class LengthChecker(Observer):
    """Finds `past-logical-length`."""

    def __init__(self, replay: str, log: Any, data: bool) -> None:
        self._replay = replay
        self._log = log
        self._data = data
        self._found: dict[Any, Hazard] = {}
        self._suspects: dict[Any, Origin] = {}  # stores whose values will say

    def issue(self, op: Any) -> None:
        if op.name == "load":
            self._load(op)
            return
        origin = None
        for region in (*op.reads, *op.streamed):
            origin = self._worse(origin, self._among(op, region))
        if origin is not None and op.name == "where":
            origin = origin._replace(masked=True)
        for allocation, lo, hi in op.writes:
            _put(allocation, lo, hi, [] if origin is None else [(lo, hi, origin)])
        if origin is not None and op.name in STORES:
            self._store(op, origin)

    def _load(self, op: Any) -> None:
        """Rows of a block go to scratch one after another, and each keeps what is known of it."""
        ((target, to, hi),) = op.writes
        pieces: list[Piece] = []
        dense = sum(high - low for _, low, high in op.reads) == hi - to
        at = to
        for region in op.reads:
            size = region[2] - region[1]
            origin = self._among(op, region)
            if origin is not None:
                pieces += self._behind(op, region, at - region[1]) if dense else [(to, hi, origin)]
            at += size
        _put(target, to, hi, pieces)

    def _behind(self, op: Any, region: Any, shift: int) -> list[Piece]:
        """The bytes of a region that lie behind the length, or come from there, moved by `shift`."""
        allocation, lo, hi = region
        pieces = [(low, high, origin) for low, high, origin in allocation.taint or () if low < hi and lo < high]
        while allocation.past and lo < hi:
            gap = (lo, hi) if allocation.valid is None else allocation.valid.missing(lo, hi)
            if gap is None or allocation.filled:
                break
            pieces.append((*gap, Origin(op, (allocation, *gap), False)))
            lo = gap[1]
        return [(low + shift, high + shift, origin) for low, high, origin in pieces]

    def _among(self, op: Any, region: Any) -> Origin | None:
        """Whether bytes of a region depend on rows behind a length."""
        found = None
        allocation, lo, hi = region
        if allocation.past or allocation.taint:
            for _, _, origin in self._behind(op, (allocation, lo, hi), 0):
                found = self._worse(found, origin)
        return found

    @staticmethod
    def _worse(one: Origin | None, other: Origin | None) -> Origin | None:
        if one is None or (other is not None and one.masked and not other.masked):
            return other
        return one

    def _store(self, op: Any, origin: Origin) -> None:
        if self._data:
            self._suspects[op] = origin
        elif not origin.masked:
            self._report(op, origin)

    def computed(self, op: Any) -> None:
        origin = self._suspects.pop(op, None) if self._suspects else None
        if origin is not None:
            kept = not origin.masked if op.result.dtype.kind in "iu" else bool(np.isnan(op.result).any())
            if kept:
                self._report(op, origin)

    def _report(self, op: Any, origin: Origin) -> None:
        stored, read = about(op, op.writes[0], self._log), about(origin.op, origin.region, self._log)
        name = origin.region[0].name
        message = (
            f"{stored}\n  keeps what depends on rows behind the valid length of {name}, which\n  {read}\n  reads; "
            f"give the last tile its exact width, or mask it with tl.where before it is used"
        )
        key = (op.site, origin.op.site, name)
        known = self._found.get(key)
        hazard = Hazard("past-logical-length", message, (stored, read), replay=self._replay)
        self._found[key] = hazard if known is None else replace(known, count=known.count + 1)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())


def _put(allocation: Any, lo: int, hi: int, pieces: list[Piece]) -> None:
    """Bytes [lo, hi) are written: `pieces` of them depend, the others do not."""
    if not pieces and not allocation.taint:
        return
    kept: list[Piece] = []
    for low, high, origin in allocation.taint or ():
        kept += [each for each in ((low, min(high, lo), origin), (max(low, hi), high, origin)) if each[0] < each[1]]
    allocation.taint = kept + pieces
