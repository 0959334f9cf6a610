"""Races by happens-before, from waits, messages and credits alone: never from timestamps.

One clock entry a pipe: ops of a pipe are in order. Accesses are registered at issue, in issue order, so a finding's
kind is program order and the same under every schedule. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.checks.history import History
from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.probes import Observer

Known = dict[int, int]  # pipe -> how many of its ops are known to be over
Access = tuple[int, int, Any, Any]  # pipe, epoch, op, allocation
NOTHING: Known = {}

VERBS = {"race-raw": ("writes", "reads"), "race-war": ("reads", "overwrites"), "race-waw": ("writes", "overwrites")}
REMEDY = {
    "race-raw": "wait for the first before the second is said",
    "race-war": "wait for the reader (or a later op of its unit) before the bytes are overwritten or given away",
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
        self._found: dict[tuple[str, int, int], Hazard] = {}

    # Clocks

    def spawn(self, kernel: Any) -> None:
        kernel.known = NOTHING

    def wake(self, kernel: Any, op: Any) -> None:
        if op.pipe is None:
            kernel.known = join(kernel.known, op.known)
            return
        number = op.pipe.clock.number
        if kernel.known.get(number, 0) >= op.epoch:
            return  # a pipe's knowledge only grows, so the kernel has this too
        known = dict(join(kernel.known, op.known))
        known[number] = op.epoch
        kernel.known = known

    def _tick(self, pipe: Any, op: Any) -> Clock:
        """The pipe's clock, one op further, knowing what the op's kernel knows."""
        clock: Clock | None = pipe.clock
        if clock is None:
            self._clocks += 1
            clock = pipe.clock = Clock(self._clocks)
        known = op.kernel.known
        if known is not clock.seen:
            clock.seen = known
            clock.known = join(clock.known, known)
        for earlier in op.after:
            clock.known = join(clock.known, {**earlier.known, earlier.pipe.clock.number: earlier.epoch})
        clock.epoch += 1
        return clock

    # Accesses

    def issue(self, op: Any) -> None:
        if op.pipe is None:
            self._hand_over(op)
            return
        clock = self._tick(op.pipe, op)
        if op.streamed:
            stream = self._tick(op.stream, op)
            for region in op.streamed:
                self._read(op, stream, region)
            clock.known = join(clock.known, {stream.number: stream.epoch})  # its panels are read before it ends
        op.known, op.epoch = clock.known, clock.epoch
        for region in op.reads:
            self._read(op, clock, region)
        for region in op.writes:
            self._write(op, clock, region)

    def _hand_over(self, op: Any) -> None:
        """Bytes are given away by an op that is in order with no other: who takes them knows what it knows.

        A credit may wait for readers of its slot while later ones go home, so it has a place in no pipe's clock.
        """
        clock = Clock(0)
        clock.known = op.kernel.known
        for earlier in op.after:
            clock.known = join(clock.known, {**earlier.known, earlier.pipe.clock.number: earlier.epoch})
        op.known = clock.known
        for allocation, lo, hi in op.writes:
            history = allocation.space.touched or self._history(allocation.space)
            pieces = history.touch(lo, hi)
            for piece in pieces:
                self._check_write("race-waw", piece, (0, 0, op, allocation), clock)
                self._check_reads(piece, (0, 0, op, allocation), clock)
            history.replace(lo, hi, pieces, None)  # in order with all that was, or reported just now

    def _history(self, space: Any) -> History:
        found: History = History()
        space.touched = found
        return found

    def _read(self, op: Any, clock: Clock, region: Any) -> None:
        allocation, lo, hi = region
        history = allocation.space.touched or self._history(allocation.space)
        access = (clock.number, clock.epoch, op, allocation)
        exact = history.exact(lo, hi)
        for piece in (exact,) if exact is not None else history.touch(lo, hi):
            self._check_write("race-raw", piece, access, clock)
            piece.reads[clock.number] = access

    def _write(self, op: Any, clock: Clock, region: Any) -> None:
        allocation, lo, hi = region
        history = allocation.space.touched or self._history(allocation.space)
        access = (clock.number, clock.epoch, op, allocation)
        piece = history.exact(lo, hi)
        if piece is not None:
            self._check_write("race-waw", piece, access, clock)
            if piece.reads:
                self._check_reads(piece, access, clock)
                piece.reads = {}
            piece.write = access
            return
        pieces = history.touch(lo, hi)
        for piece in pieces:
            self._check_write("race-waw", piece, access, clock)
            self._check_reads(piece, access, clock)
        history.replace(lo, hi, pieces, access)

    def _check_write(self, kind: str, piece: Any, access: Access, clock: Clock) -> None:
        write = piece.write
        if write is not None and write[0] != clock.number and clock.known.get(write[0], 0) < write[1]:
            self._report(kind, write, access, piece)

    def _check_reads(self, piece: Any, access: Access, clock: Clock) -> None:
        for pipe, read in piece.reads.items():
            if pipe != clock.number and clock.known.get(pipe, 0) < read[1]:
                self._report("race-war", read, access, piece)

    # Lifetimes

    def recycle(self, kernel: Any, op: Any, site: Any) -> None:
        """A scope is left with the target of `op` in it: has its kernel waited for it?"""
        if kernel.known.get(op.pipe.clock.number, 0) < op.epoch:
            first = about(op, op.writes[0], self._log)
            where, remedy = self._log.site(site), REMEDY["recycle-in-flight"]
            message = f"{first}\n  is still in flight when its tl.scratch_scope is left at {where}; {remedy}"
            self._note(Hazard("recycle-in-flight", message, (first,), replay=self._replay), op.site, -1)

    # Findings

    def _report(self, kind: str, first: Access, second: Access, piece: Any) -> None:
        _, _, earlier, owner = first
        _, _, later, allocation = second
        did, does = VERBS[kind]
        if owner is not allocation and owner.space is allocation.space and not owner.alive:
            kind = "recycle-in-flight"  # the bytes have another owner by now
        ops = (
            about(earlier, (owner, piece.lo, piece.hi), self._log),
            about(later, (allocation, piece.lo, piece.hi), self._log),
        )
        message = f"{ops[1]}\n  {does} what\n  {ops[0]}\n  {did}, and no wait puts one before the other; {REMEDY[kind]}"
        self._note(Hazard(kind, message, ops, replay=self._replay), earlier.site, later.site)

    def _note(self, hazard: Hazard, first_site: int, second_site: int) -> None:
        key = (hazard.kind, first_site, second_site)
        earlier = self._found.get(key)
        self._found[key] = hazard if earlier is None else replace(earlier, count=earlier.count + 1)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())
