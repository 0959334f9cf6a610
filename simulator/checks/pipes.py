"""Races on a core of pipes that are in order with nothing but what barriers and flags say, not even with themselves.

Pipe 0 is the scalar unit: what it has waited for, and its finished loads, come before all it issues; its posted stores
reach another pipe only through a flag of its own or a barrier on all. Never from timestamps. Exact to the byte, under
one rule of forgetting: of an earlier access that a later one of the same kind and pipe covers, or a later conflicting
one that is ordered after it, the later one stands. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.probes import Observer

Known = list[int]  # of each pipe, how many of its ops are known to be over
Key = tuple[int, int, int]
Spans = tuple[tuple[int, int], ...]
FINE, COARSE = 9, 14  # bits of a bucket's bytes: on the chip, and in memory
FORGET = 512  # entries of a bucket before those that everybody knows of are dropped
RANK = {"race-raw": 2, "race-waw": 1, "race-war": 0}
SWAPPED = {"race-raw": "race-war", "race-war": "race-raw"}
VERBS = {"race-raw": ("writes", "reads"), "race-war": ("reads", "overwrites"), "race-waw": ("writes", "overwrites")}


class Touch(NamedTuple):
    """Epoch of a pipe's access, its row, and what the pipe knew."""

    epoch: int
    row: int
    known: tuple[int, ...]


Entries = dict[tuple[int, int, int], Touch]  # (lo, hi, pipe)


class Bucket:
    """Accesses to some bytes that may still race; the newest epoch of each pipe says whether a look is needed."""

    __slots__ = ("hi", "lo", "newest_reads", "newest_writes", "reads", "room", "writes")

    def __init__(self) -> None:
        self.writes: Entries = {}
        self.reads: Entries = {}
        self.newest_writes = [0, 0, 0, 0]
        self.newest_reads = [0, 0, 0, 0]
        self.lo = 1 << 62  # the bytes that entries cover
        self.hi = 0
        self.room = FORGET

    def cover(self, lo: int, hi: int) -> None:
        """Entries reach over [lo, hi)."""
        if lo < self.lo:
            self.lo = lo
        if hi > self.hi:
            self.hi = hi


def _learn(known: Known, other: Any) -> bool:
    """Add what `other` knows; whether anything was new."""
    new = False
    for pipe in range(4):
        if other[pipe] > known[pipe]:
            known[pipe] = other[pipe]
            new = True
    return new


class PipeRaceChecker(Observer):
    """Finds pairs of ops, one of them writing, that nothing puts in order; a pair is one finding, lines are folded."""

    def __init__(self, about: Callable[[int, int, int], Involved], memory_from: int, replay: str) -> None:
        self._about = about  # row, lo, hi
        self._memory = memory_from  # the first address that is not on the chip
        self._replay = replay
        self._epochs = [0, 0, 0, 0]
        self._known: list[Known] = [[0, 0, 0, 0] for _ in range(4)]
        self._landed = 0  # of S's own stores, how many S has waited for, by a flag to a pipe and one back
        self._sets: dict[Key, deque[Known]] = {}
        self._fine: dict[int, Bucket] = {}
        self._coarse: dict[int, Bucket] = {}
        self._racing: dict[int, dict[str, tuple[int, int]]] = {}  # of the op at hand: other row -> bytes by kind
        self._found: dict[tuple[str, Any, Any], Hazard] = {}
        self.racy_rows: set[int] = set()  # whose reads race: they are not uninitialised as well
        self.idle_waits: dict[int, int] = {}  # site of a Wait that nobody learned from -> how often

    # Clocks

    def known(self) -> Known:
        """What S has waited for so far."""
        return [self._landed, *self._known[0][1:]]

    def _issued(self, pipe: int, known: Known | None) -> Known:
        """The pipe's knowledge, with what S knew when it issued the command."""
        mine = self._known[pipe]
        if known is None:
            of_s, landed = self._known[0], self._landed
        else:
            of_s, landed = known, known[0]
        if landed > mine[0]:
            mine[0] = landed
        if of_s[1] > mine[1]:
            mine[1] = of_s[1]
        if of_s[2] > mine[2]:
            mine[2] = of_s[2]
        if of_s[3] > mine[3]:
            mine[3] = of_s[3]
        return mine

    def flag_set(self, key: Key, known: Known | None = None) -> None:
        pipe = key[0]
        clock = self._issued(pipe, known).copy() if pipe else self._known[0].copy()
        clock[pipe] = self._epochs[pipe]
        queue = self._sets.get(key)
        if queue is None:
            queue = self._sets[key] = deque()
        queue.append(clock)

    def flag_wait(self, key: Key, row: int, site: int, known: Known | None = None) -> None:
        clock = self._sets[key].popleft()
        mine = self._issued(key[1], known) if key[1] else self._known[0]
        new = _learn(mine, clock)
        if not key[1] and clock[0] > self._landed:
            self._landed, new = clock[0], True
        if not new:
            self.idle_waits[site] = self.idle_waits.get(site, 0) + 1

    def flags_lost(self, key: Key, count: int) -> None:
        """The oldest Sets that no Wait has paired with are gone."""
        for _ in range(count):
            self._sets[key].popleft()

    def barrier(self, pipe: int) -> None:
        self._known[pipe][pipe] = self._epochs[pipe]

    def barrier_all(self) -> None:
        for known in self._known:
            known[:] = self._epochs
        self._landed = self._epochs[0]

    # Accesses

    def op(self, pipe: int, row: int, reads: Spans, writes: Spans, known: Known | None = None) -> None:
        """An op of a pipe but S, as it is issued."""
        epoch = self._epochs[pipe] + 1
        self._epochs[pipe] = epoch
        clock = self._issued(pipe, known)
        if len(writes) == 1 and self._again(pipe, epoch, row, clock, reads, *writes[0]):
            return
        touch = Touch(epoch, row, tuple(clock))
        for lo, hi in reads:
            self._look_before_read(pipe, epoch, clock, lo, hi)
        for lo, hi in writes:  # before its own reads stand for those of ops that this one overwrites
            self._write(pipe, touch, clock, lo, hi)
        for lo, hi in reads:
            self._note_read(pipe, touch, lo, hi)
        if self._racing:
            self._report(row)

    def _again(self, pipe: int, epoch: int, row: int, clock: Known, reads: Spans, lo: int, hi: int) -> bool:
        """The common case in one step: every range lies in one bucket on the chip, and nothing in them can race."""
        buckets = self._fine
        c0, c1, c2, c3 = clock
        if lo >> FINE != (hi - 1) >> FINE or hi > self._memory:
            return False
        target = buckets.get(lo >> FINE)
        if target is None:
            return False
        w0, w1, w2, w3 = target.newest_writes
        _, r1, r2, r3 = target.newest_reads
        if w0 > c0 or w1 > c1 or w2 > c2 or w3 > c3 or r1 > c1 or r2 > c2 or r3 > c3:
            return False
        sources = []
        for low, high in reads:
            bucket = buckets.get(low >> FINE)
            if bucket is None or low >> FINE != (high - 1) >> FINE or high > self._memory:
                return False
            w0, w1, w2, w3 = bucket.newest_writes
            if w0 > c0 or w1 > c1 or w2 > c2 or w3 > c3 or len(bucket.reads) >= bucket.room:
                return False
            sources.append((bucket, low, high))
        touch = Touch(epoch, row, (c0, c1, c2, c3))
        if lo <= target.lo and hi >= target.hi:
            target.writes = {(lo, hi, pipe): touch}
            target.reads = {}
            target.newest_reads = [0, 0, 0, 0]
            target.newest_writes = [0, 0, 0, 0]
            target.lo, target.hi = lo, hi
        elif len(target.writes) >= target.room:
            return False
        else:
            target.writes[lo, hi, pipe] = touch
            target.cover(lo, hi)
        target.newest_writes[pipe] = epoch
        for bucket, low, high in sources:
            bucket.reads[low, high, pipe] = touch
            bucket.newest_reads[pipe] = epoch
            bucket.cover(low, high)
        return True

    def load(self, row: int, lo: int, hi: int) -> None:
        """A GetValue. It is over before S goes on, so nothing that follows races with it."""
        clock = self._known[0]
        clock[0] = self._epochs[0]
        shift, buckets = (FINE, self._fine) if lo < self._memory else (COARSE, self._coarse)
        first, last = lo >> shift, (hi - 1) >> shift
        for place in (first,) if first == last else (first, last):
            bucket = buckets.get(place)
            if bucket is not None:
                _, w1, w2, w3 = bucket.newest_writes
                if w1 > clock[1] or w2 > clock[2] or w3 > clock[3]:
                    self._look(bucket, bucket.writes, "race-raw", 0, 0, clock, *_clip(place, shift, lo, hi))
        if self._racing:
            self._report(row)

    def store(self, row: int, lo: int, hi: int) -> None:
        """A SetValue."""
        clock = self._known[0]
        clock[0] = self._epochs[0]
        self._epochs[0] += 1
        self._write(0, Touch(self._epochs[0], row, tuple(clock)), clock, lo, hi)
        clock[0] = self._epochs[0]
        if self._racing:
            self._report(row)

    def _look_before_read(self, pipe: int, epoch: int, clock: Known, lo: int, hi: int) -> None:
        shift, buckets = (FINE, self._fine) if lo < self._memory else (COARSE, self._coarse)
        c0, c1, c2, c3 = clock
        for place in range(lo >> shift, ((hi - 1) >> shift) + 1):
            bucket = buckets.get(place)
            if bucket is not None:
                w0, w1, w2, w3 = bucket.newest_writes
                if w0 > c0 or w1 > c1 or w2 > c2 or w3 > c3:
                    self._look(bucket, bucket.writes, "race-raw", pipe, epoch, clock, *_clip(place, shift, lo, hi))

    def _note_read(self, pipe: int, touch: Touch, lo: int, hi: int) -> None:
        shift, buckets = (FINE, self._fine) if lo < self._memory else (COARSE, self._coarse)
        for place in range(lo >> shift, ((hi - 1) >> shift) + 1):
            bucket = buckets.get(place)
            if bucket is None:
                bucket = buckets[place] = Bucket()
            bucket.reads[lo, hi, pipe] = touch
            bucket.newest_reads[pipe] = touch.epoch
            if lo < bucket.lo:
                bucket.lo = lo
            if hi > bucket.hi:
                bucket.hi = hi
            if len(bucket.reads) > bucket.room:
                self._forget(bucket)

    def _write(self, pipe: int, touch: Touch, clock: Known, lo: int, hi: int) -> None:
        shift, buckets = (FINE, self._fine) if lo < self._memory else (COARSE, self._coarse)
        epoch = touch.epoch
        for place in range(lo >> shift, ((hi - 1) >> shift) + 1):
            bucket = buckets.get(place)
            if bucket is None:
                bucket = buckets[place] = Bucket()
            w0, w1, w2, w3 = newest_writes = bucket.newest_writes
            _, r1, r2, r3 = newest_reads = bucket.newest_reads
            in_order = True
            if w0 > clock[0] or w1 > clock[1] or w2 > clock[2] or w3 > clock[3]:
                self._look(bucket, bucket.writes, "race-waw", pipe, epoch, clock, *_clip(place, shift, lo, hi))
                in_order = False
            if r1 > clock[1] or r2 > clock[2] or r3 > clock[3]:
                self._look(bucket, bucket.reads, "race-war", pipe, epoch, clock, *_clip(place, shift, lo, hi))
                in_order = False
            if in_order and lo <= bucket.lo and hi >= bucket.hi:
                bucket.writes = {(lo, hi, pipe): touch}
                if bucket.reads:
                    bucket.reads = {}
                    newest_reads[:] = (0, 0, 0, 0)
                newest_writes[:] = (0, 0, 0, 0)
                bucket.lo, bucket.hi = lo, hi
            else:
                bucket.writes[lo, hi, pipe] = touch
                if lo < bucket.lo:
                    bucket.lo = lo
                if hi > bucket.hi:
                    bucket.hi = hi
                if len(bucket.writes) > bucket.room:
                    self._forget(bucket)
            newest_writes[pipe] = epoch

    def _forget(self, bucket: Bucket) -> None:
        """Drop what every pipe knows to be over: nothing can race with it any more."""
        least = [min(known[pipe] for known in self._known) for pipe in range(4)]
        bucket.writes = {key: touch for key, touch in bucket.writes.items() if touch.epoch > least[key[2]]}
        bucket.reads = {key: touch for key, touch in bucket.reads.items() if touch.epoch > least[key[2]]}
        bucket.room = max(FORGET, 2 * max(len(bucket.writes), len(bucket.reads)))

    # Findings

    def _look(
        self, bucket: Bucket, entries: Entries, kind: str, pipe: int, epoch: int, clock: Known, lo: int, hi: int
    ) -> None:
        """Note the ops that race with an access to [lo, hi): at a byte that nothing later stands for."""
        for (first, last, other), touch in entries.items():
            if touch.epoch <= clock[other] or first >= hi or last <= lo or (other == pipe and touch.epoch == epoch):
                continue
            bare = _without([(max(first, lo), min(last, hi))], _later(bucket, kind, other, touch, pipe, epoch))
            if bare:
                self._racing.setdefault(touch.row, {}).setdefault(kind, bare[0])

    def _report(self, row: int) -> None:
        racing, self._racing = self._racing, {}
        for other, kinds in racing.items():
            if "race-raw" in kinds:
                self.racy_rows.add(row)
            if other > row:  # the other was issued later, on a pipe that did not wait for its flag
                kinds = {SWAPPED.get(kind, kind): span for kind, span in kinds.items()}
            kind = max(kinds, key=RANK.__getitem__)
            lo, hi = kinds[kind]
            first, second = (self._about(each, lo, hi) for each in sorted((other, row)))
            key = (kind, first.site, second.site)
            known = self._found.get(key)
            if known is not None:
                self._found[key] = replace(known, count=known.count + 1)
                continue
            did, does = VERBS[kind]
            fact = f"{second}\n  {does} what\n  {first}\n  {did}, and nothing puts one before the other"
            message = f"{fact}; {_remedy(first, second)}"
            self._found[key] = Hazard(kind, message, (first, second), replay=self._replay)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())


def _clip(place: int, shift: int, lo: int, hi: int) -> tuple[int, int]:
    """The part of [lo, hi) that lies in a bucket: its entries say nothing of other bytes."""
    return max(lo, place << shift), min(hi, (place + 1) << shift)


def _later(bucket: Bucket, kind: str, pipe: int, touch: Touch, reader: int, epoch: int) -> list[tuple[int, int]]:
    """Bytes of accesses that stand for `touch`: newer ones of its kind and pipe, and what is ordered after it.

    Of what is ordered after it, a read stands for a write only before another write, which races with the read as well.
    """
    own = bucket.reads if kind == "race-war" else bucket.writes
    after = (bucket.writes, bucket.reads) if kind == "race-waw" else (bucket.writes,)
    found = [(lo, hi) for (lo, hi, p), each in own.items()
             if p == pipe and each.epoch > touch.epoch and not (p == reader and each.epoch == epoch)]  # fmt: skip
    for entries in after:
        found += [(lo, hi) for (lo, hi, p), each in entries.items()
                  if each.known[pipe] >= touch.epoch and not (p == reader and each.epoch == epoch)]  # fmt: skip
    return found


def _without(spans: list[tuple[int, int]], covers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of `spans` without the bytes of `covers`."""
    for low, high in covers:
        left = []
        for lo, hi in spans:
            if low >= hi or high <= lo:
                left.append((lo, hi))
                continue
            if lo < low:
                left.append((lo, low))
            if high < hi:
                left.append((high, hi))
        spans = left
    return spans


def _remedy(first: Involved, second: Involved) -> str:
    if first.unit == second.unit:
        return f"say PipeBarrier<PIPE_{first.unit}>() between them"
    event = f"{first.unit}_{second.unit}"
    return f"say SetFlag<{event}> after the first and WaitFlag<{event}> before the second"
