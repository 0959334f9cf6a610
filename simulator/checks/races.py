"""Races by happens-before, from waits, messages and credits alone: never from timestamps.

One clock entry a pipe: ops of a pipe are in order. Accesses are registered at issue, in issue order, so a finding's kind is
program order and the same under every schedule. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_kernbench.simulator.checks.history import History
from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.probes import Observer

Known = dict[int, int]  # pipe -> how many of its ops are known to be over
NOTHING: Known = {}

REMEDY = {
    "race-raw": "wait for the first before the second is said",
    "race-war": "wait for the reader (or for an op after it on its unit) before the bytes are overwritten or given away",
    "race-waw": "wait for the first write before the second is said",
    "recycle-in-flight": "wait inside the scope for what reads or writes its scratch",
}


class Clock:
    """A pipe's own time: `epoch` ops so far, and what it `known`s of the others."""

    __slots__ = ("epoch", "known", "number", "seen")

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = 0
        self.known = NOTHING
        self.seen = NOTHING


class Access:
    """An op's touch of some bytes."""

    __slots__ = ("allocation", "clock", "epoch", "op")

    def __init__(self, op: Any, clock: Clock, allocation: Any) -> None:
        self.op = op
        self.clock = clock
        self.epoch = clock.epoch
        self.allocation = allocation


def join(one: Known, other: Known) -> Known:
    """What either knows; one of the two itself if it knows all."""
    if one is other or not other:
        return one
    if not one:
        return other
    both = dict(one)
    for pipe, epoch in other.items():
        if both.get(pipe, 0) < epoch:
            both[pipe] = epoch
    return both


class RaceChecker(Observer):
    """Finds pairs of accesses, one of them a write, that nothing puts in order; folded by kind and lines."""

    def __init__(self, replay: str, log: Any) -> None:
        self._replay = replay
        self._log = log
        self._clocks = 0
        self._spaces: dict[int, History] = {}
        self._found: dict[tuple[str, int, int], Hazard] = {}

    # Clocks

    def spawn(self, kernel: Any) -> None:
        kernel.known = NOTHING

    def wake(self, kernel: Any, op: Any) -> None:
        clock = op.unit.clock
        if kernel.known.get(clock.number, 0) >= op.epoch:
            return  # a pipe's knowledge only grows, so the kernel has this too
        known = dict(join(kernel.known, op.known))
        known[clock.number] = op.epoch
        if op.stream is not None and op.stream.clock is not None:
            known[op.stream.clock.number] = max(known.get(op.stream.clock.number, 0), op.after_stream)
        kernel.known = known

    def _tick(self, pipe: Any, op: Any) -> Clock:
        """The pipe's clock, one op further, knowing what the op's kernel knows."""
        clock: Clock | None = pipe.clock
        if clock is None:
            self._clocks += 1
            clock = pipe.clock = Clock(self._clocks)
        if op.kernel.known is not clock.seen:
            clock.seen = op.kernel.known
            clock.known = join(clock.known, clock.seen)
        for earlier in op.after:
            clock.known = join(clock.known, {**earlier.known, earlier.unit.clock.number: earlier.epoch})
        clock.epoch += 1
        return clock

    # Accesses

    def issue(self, op: Any) -> None:
        if op.streamed:
            stream = self._tick(op.stream, op)
            op.after_stream = stream.epoch
            for region in op.streamed:
                self._read(op, stream, region)
        clock = self._tick(op.unit, op)
        op.known, op.epoch = clock.known, clock.epoch
        for region in op.reads:
            self._read(op, clock, region)
        for region in op.writes:
            self._write(op, clock, region)

    def _history(self, region: Any) -> History:
        found = self._spaces.get(region.allocation.space.id)
        if found is None:
            found = self._spaces[region.allocation.space.id] = History()
        return found

    def _read(self, op: Any, clock: Clock, region: Any) -> None:
        access = Access(op, clock, region.allocation)
        for piece in self._history(region).touch(region.lo, region.hi):
            write = piece.write
            if write is not None and write.clock is not clock and clock.known.get(write.clock.number, 0) < write.epoch:
                self._report("race-raw", write, access, piece)
            piece.reads[clock.number] = access

    def _write(self, op: Any, clock: Clock, region: Any) -> None:
        access = Access(op, clock, region.allocation)
        history = self._history(region)
        pieces = history.touch(region.lo, region.hi)
        known = clock.known
        for piece in pieces:
            write = piece.write
            if write is not None and write.clock is not clock and known.get(write.clock.number, 0) < write.epoch:
                self._report("race-waw", write, access, piece)
            for read in piece.reads.values():
                if read.clock is not clock and known.get(read.clock.number, 0) < read.epoch:
                    self._report("race-war", read, access, piece)
        history.replace(region.lo, region.hi, pieces, access)

    # Lifetimes

    def recycle(self, kernel: Any, op: Any, site: Any) -> None:
        """A scope is left with the target of `op` in it: has its kernel waited for it?"""
        if kernel.known.get(op.unit.clock.number, 0) < op.epoch:
            first = _about(op, op.writes[0], self._log)
            message = (
                f"{first}\n  is still in flight when its tl.scratch_scope is left at {site}\n  "
                f"{REMEDY['recycle-in-flight']}"
            )
            self._note(Hazard("recycle-in-flight", message, (first,), replay=self._replay), op.site, -1)

    # Findings

    def _report(self, kind: str, first: Access, second: Access, piece: Any) -> None:
        if first.allocation is not second.allocation:
            kind = "recycle-in-flight"  # the bytes have another owner by now
        region = _Bytes(second.allocation, piece.lo, piece.hi)
        ops = (_about(first.op, region._replace(first.allocation), self._log), _about(second.op, region, self._log))
        does = {"race-raw": ("writes", "reads"), "race-war": ("reads", "overwrites"), "race-waw": ("writes", "overwrites")}
        verbs = does.get(kind, ("uses", "reuses"))
        message = (
            f"{ops[1]}\n  {verbs[1]} what\n  {ops[0]}\n  {verbs[0]}, and no wait puts one before the other; {REMEDY[kind]}"
        )
        self._note(Hazard(kind, message, ops, replay=self._replay), first.op.site, second.op.site)

    def _note(self, hazard: Hazard, first_site: int, second_site: int) -> None:
        key = (hazard.kind, first_site, second_site)
        earlier = self._found.get(key)
        self._found[key] = hazard if earlier is None else replace(earlier, count=earlier.count + 1)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())


class _Bytes:
    """Bytes of an allocation, as a finding shows them."""

    __slots__ = ("allocation", "hi", "lo")

    def __init__(self, allocation: Any, lo: int, hi: int) -> None:
        self.allocation = allocation
        self.lo = lo
        self.hi = hi

    def _replace(self, allocation: Any) -> _Bytes:
        return _Bytes(allocation, self.lo, self.hi)


def _about(op: Any, region: Any, log: Any) -> Involved:
    allocation = region.allocation
    where = f"{allocation.name}[{region.lo - allocation.base}:{region.hi - allocation.base}] of {allocation.space.name}"
    return Involved(op.row, op.name, op.unit.name, op.kernel.name, where, log.site(op.site))
