"""Transfers that a kernel could do without: bytes fetched again while a copy of them stands, bytes that nobody reads.

Notes, which fail nothing: a kernel may do either on purpose. A copy stands until a byte of it, or of its source, is
written, or its owner gives it back; only whole transfers are judged, so what is used in part is used.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.probes import Observer

Spans = Sequence[tuple[int, int]]
MOST_COPIES = 64  # that are remembered of one source; of more, the oldest is forgotten
AGAIN = "while the copy of it that\n  {}\n  fetched stands unchanged; use that one, or keep it"
DEAD = "and nobody ever reads it; leave the transfer out, or fetch what is needed"


class Fetch:
    """A transfer into on-chip memory: what it read and where its copy is."""

    __slots__ = ("op", "source", "spans", "stands", "target", "to", "unread")

    def __init__(self, op: Any, source: Any, spans: Spans, target: Any, to: Spans) -> None:
        self.op = op
        self.source = source
        self.spans = spans
        self.target = target  # the allocation, if there are such
        self.to = to
        self.stands = True
        self.unread = True


def meet(spans: Spans, lo: int, hi: int) -> bool:
    """Whether [lo, hi) shares a byte with one of `spans`, which are sorted."""
    return spans[0][0] < hi and lo < spans[-1][1] and any(low < hi and lo < high for low, high in spans)


def within(spans: Spans, others: Spans) -> bool:
    """Whether each of `spans` lies in one of `others`; both are sorted."""
    if spans[0][0] < others[0][0] or spans[-1][1] > others[-1][1]:
        return False
    return spans == others or all(any(low <= lo and hi <= high for low, high in others) for lo, hi in spans)


class Notes:
    """Notes folded by kind and lines."""

    def __init__(self, replay: str) -> None:
        self._replay = replay
        self._found: dict[Any, Hazard] = {}

    def again(self, op: Involved, first: Involved) -> None:
        self._add("redundant-transfer", f"{op}\n  fetches again {AGAIN.format(first)}", (op, first))

    def reread(self, op: Involved) -> None:
        fact = f"{op}\n  reads an element again that nothing has written since it was read; keep it in a variable"
        self._add("redundant-transfer", fact, (op,))

    def dead(self, op: Involved) -> None:
        self._add("dead-transfer", f"{op}\n  is fetched, {DEAD}", (op,))

    def _add(self, kind: str, message: str, ops: tuple[Involved, ...]) -> None:
        key = (kind, *[op.site for op in ops])
        known = self._found.get(key)
        self._found[key] = (
            Hazard(kind, message, ops, replay=self._replay) if known is None else replace(known, count=known.count + 1)
        )

    def __iter__(self) -> Any:
        return iter(self._found.values())


class TransferChecker(Observer):
    """Notes `redundant-transfer` and `dead-transfer` of loads into scratch, by allocation."""

    def __init__(self, replay: str, log: Any) -> None:
        self._log = log
        self._notes = Notes(replay)
        self._unread: dict[int, Fetch] = {}  # by row

    def issue(self, op: Any) -> None:
        if op.name == "load":
            self._load(op)
            return
        for region in op.reads:
            if region[0].fetched is not None:
                self._read(*region)
        if op.streamed and op.streamed[0][0].fetched is not None:
            self._again(op, op.streamed)
        for region in op.writes:
            if region[0].fetched is not None:
                self._written(*region)

    def _load(self, op: Any) -> None:
        ((target, lo, hi),) = op.writes
        source = op.reads[0][0]
        if target.fetched is not None:
            self._written(target, lo, hi)
        if source.fetched is not None:
            self._again(op, op.reads)
        spans = [(low, high) for _, low, high in op.reads]
        fetch = Fetch(op, source, spans, target, ((lo, hi),))
        self._unread[op.row] = fetch
        target.fetched = [*(target.fetched or ()), fetch]
        source.fetched = [fetch, *self._standing(source)][:MOST_COPIES]

    def _standing(self, source: Any) -> list[Fetch]:
        return [each for each in source.fetched or () if each.stands and each.target.alive]

    def _again(self, op: Any, regions: Any) -> None:
        """Does a copy of what `op` fetches stand in its kernel's scratch?"""
        spans = [(lo, hi) for _, lo, hi in regions]
        source = regions[0][0]
        for each in self._standing(source):
            if each.source is source and each.op.kernel is op.kernel and within(spans, each.spans):
                self._notes.again(self._about(op, (source, spans[0][0], spans[-1][1])), self._who(each))
                return

    def _read(self, allocation: Any, lo: int, hi: int) -> None:
        for fetch in allocation.fetched:
            if fetch.unread and fetch.target is allocation and meet(fetch.to, lo, hi):
                fetch.unread = False
                del self._unread[fetch.op.row]

    def _written(self, allocation: Any, lo: int, hi: int) -> None:
        """A copy, or what it was made of, is no longer as it was."""
        left = []
        for fetch in allocation.fetched:
            spans = fetch.to if fetch.target is allocation else fetch.spans
            if not meet(spans, lo, hi):
                left.append(fetch)
                continue
            fetch.stands = False
            if fetch.target is allocation and fetch.unread:
                if not within(fetch.to, ((lo, hi),)):
                    left.append(fetch)  # the rest of it may be read yet
                    continue
                fetch.unread = False
                self._dead(self._unread.pop(fetch.op.row))
        allocation.fetched = left

    def end_of_run(self, channels: Any) -> None:
        for fetch in self._unread.values():
            self._dead(fetch)

    def _dead(self, fetch: Fetch) -> None:
        self._notes.dead(self._who(fetch))

    def _who(self, fetch: Fetch) -> Involved:
        return self._about(fetch.op, (fetch.source, fetch.spans[0][0], fetch.spans[-1][1]))

    def _about(self, op: Any, region: Any) -> Involved:
        return about(op, region, self._log)

    def findings(self) -> list[Hazard]:
        """None: they are notes."""
        return []

    def notes(self) -> list[Hazard]:
        return list(self._notes)


class BlockTransfers:
    """The same for copies from GM to UB, by address, and for scalar reads of GM; told in the order of issue."""

    def __init__(self, about: Callable[[int, int, int], Involved], replay: str, capacity: int) -> None:
        self.standing: list[Fetch] = []
        self.unread: list[Fetch] = []
        self.held = bytearray(capacity)  # 1: the byte came from GM and has not been written since
        self.any_held = False  # whether one ever did
        self._about = about
        self._notes = Notes(replay)
        self._seen: dict[int, bytearray] = {}  # by base of a tensor: where S has read an element

    def fetched(self, row: int, spans: Spans, to: Spans) -> None:
        """A copy of `spans` of GM to `to` in UB."""
        for lo, hi in to:
            self.overwritten(lo, hi)
        for each in self.standing:
            if within(spans, each.spans):
                self._notes.again(self._about(row, spans[0][0], spans[-1][1]), self._who(each))
                break
        fetch = Fetch(row, None, spans, None, to)
        self.standing = [fetch, *self.standing[: MOST_COPIES - 1]]
        self.unread.append(fetch)
        self.any_held = True
        for lo, hi in to:
            self.held[lo:hi] = b"\x01" * (hi - lo)

    def read(self, lo: int, hi: int) -> None:
        if self.unread and self.held.find(1, lo, hi) >= 0:
            self.unread = [each for each in self.unread if not meet(each.to, lo, hi)]

    def overwritten(self, lo: int, hi: int) -> None:
        """Bytes of UB are written, or given back by their owner."""
        if self.held.find(1, lo, hi) < 0:
            return
        self.held[lo:hi] = bytes(hi - lo)
        self.standing = [each for each in self.standing if not meet(each.to, lo, hi)]
        left = []
        for each in self.unread:
            if within(each.to, ((lo, hi),)):
                self._notes.dead(self._who(each))
            else:
                left.append(each)
        self.unread = left

    def gm_written(self, base: int, lo: int, hi: int) -> None:
        """Bytes of the tensor at `base` are written."""
        seen = self._seen.get(base)
        if seen is not None:
            seen[lo - base : hi - base] = bytes(hi - lo)
        if self.standing:
            self.standing = [each for each in self.standing if not meet(each.spans, lo, hi)]

    def scalar(self, row: int, base: int, size: int, lo: int, hi: int) -> None:
        """S reads an element of the tensor of `size` bytes at `base`."""
        seen = self._seen.get(base)
        if seen is None:
            seen = self._seen[base] = bytearray(size)
        if seen[lo - base]:
            self._notes.reread(self._about(row, lo, hi))
        seen[lo - base] = 1

    def _who(self, fetch: Fetch) -> Involved:
        return self._about(fetch.op, fetch.spans[0][0], fetch.spans[-1][1])

    def end(self) -> list[Hazard]:
        """The notes of a block that is over."""
        for each in self.unread:
            self._notes.dead(self._who(each))
        self.unread = []
        return list(self._notes)
