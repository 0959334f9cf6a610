"""Which bytes hold something, and whose: reads of bytes that nobody wrote, and owners that read a borrower's bytes.

A byte of shadow for a byte of memory, in the order of issue. Copies carry the shadow along without a word; whatever
computes with a byte has to have it. What lies behind a valid length is followed: an output that depends on it is a
finding, in a run with data if the poison, NaN, came out. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.probes import Observer

NOTHING, VALID, PAST, MASKED = 0, 1, 2, 3  # MASKED: from behind a valid length, through a Select
Spans = tuple[tuple[int, int], ...]
REPORTS = {
    NOTHING: ("uninitialised-read", "reads bytes that nothing has written; write them first (DataCopy, Duplicate)"),
    PAST: ("past-logical-length", "computes with bytes from behind a tensor's valid length; mask the tail off"),
}


@lru_cache(4096)
def run_of(value: int, size: int) -> bytes:
    """`size` bytes of shadow that are alike."""
    return bytes([value]) * size


class Memory:
    """The shadow of one memory: `base` is its first address, `valid` one byte for each of its own."""

    __slots__ = ("base", "name", "valid", "writers")

    def __init__(self, name: str, base: int, valid: bytearray) -> None:
        self.name = name
        self.base = base
        self.valid = valid
        self.writers: bytearray | None = None  # the owner who wrote each byte last, once there are owners


class Shadow(Observer):
    """Finds `uninitialised-read`, `past-logical-length` and `live-alias`."""

    def __init__(self, about: Callable[[int, int, int], Involved], replay: str) -> None:
        self._about = about
        self._replay = replay
        self._found: dict[Any, Hazard] = {}
        self._carried: list[tuple[Memory, int, int, int]] = []  # copies of bytes that hold nothing: memory, lo, hi, row
        self._borrowers: dict[int, bytes] = {}  # owner -> those who borrowed from it
        self._names: dict[int, str] = {0: "nobody"}
        self.suspicious = False  # there are owners, or bytes behind a valid length: every read needs a look

    # Owners

    def own(self, memory: Memory, name: str, lender: int = 0) -> int:
        """A new owner's number; `lender` is whom it borrows from."""
        owner = len(self._names)
        self._names[owner] = name
        self.suspicious = True
        if memory.writers is None:
            memory.writers = bytearray(len(memory.valid))
        if lender:
            self._borrowers[lender] = self._borrowers.get(lender, b"") + bytes([owner])
        return owner

    # Accesses

    def read(self, memory: Memory, row: int, lo: int, hi: int, owner: int = 0, racy: bool = False) -> None:
        """An op computes with the bytes [lo, hi); a race is its own finding."""
        lo -= memory.base
        hi -= memory.base
        at = memory.valid.find(NOTHING, lo, hi)
        if at >= 0 and not racy:
            self._report(NOTHING, memory, row, at, hi)
        elif self.suspicious and not racy:
            at = memory.valid.find(PAST, lo, hi)
            if at >= 0:
                self._report(PAST, memory, row, at, hi)
        if owner:
            self.aliased(memory, row, lo + memory.base, hi + memory.base, owner)

    def use(self, memory: Memory, row: int, lo: int, hi: int, owner: int = 0, racy: bool = False) -> None:
        """As `read`, of an op whose result is followed: what lies behind a valid length is no fault yet."""
        at = memory.valid.find(NOTHING, lo - memory.base, hi - memory.base)
        if at >= 0 and not racy:
            self._report(NOTHING, memory, row, at, hi - memory.base)
        if owner:
            self.aliased(memory, row, lo, hi, owner)

    @staticmethod
    def marks(memory: Memory, reads: list[tuple[Spans, int]], writes: Spans, size: int, select: bool) -> bytes | None:
        """What of an op's result depends on bytes behind a valid length; None if nothing does.

        Element by element where both lie in one piece, else all on all. `reads`: of each operand its bytes and the size
        of an element. `select`: what is chosen may be masked.
        """
        valid, base = memory.valid, memory.base
        tails = (PAST, MASKED)
        if not any(
            valid.find(tail, lo - base, hi - base) >= 0 for spans, _ in reads for lo, hi in spans for tail in tails
        ):
            return None
        level = np.ones(sum(hi - lo for lo, hi in writes) // size, np.uint8)
        for spans, of in reads:
            seen = np.concatenate([np.frombuffer(bytes(valid[lo - base : hi - base]), np.uint8) for lo, hi in spans])[
                ::of
            ]
            if len(seen) != len(level) or len(spans) + len(writes) > 2:
                seen = np.full(len(level), PAST if PAST in seen else MASKED if MASKED in seen else VALID, np.uint8)
            level = np.where((seen == PAST) | ((seen == MASKED) & (level != PAST)), seen, level)
        if select:
            level[level == PAST] = MASKED
        return level.repeat(size).tobytes()

    @staticmethod
    def mark(memory: Memory, writes: Spans, marks: bytes) -> None:
        """Put `marks` of an op's result on the bytes that it wrote."""
        at = 0
        for lo, hi in writes:
            memory.valid[lo - memory.base : hi - memory.base] = marks[at : at + hi - lo]
            at += hi - lo

    def write(self, memory: Memory, lo: int, hi: int, owner: int = 0) -> None:
        lo -= memory.base
        hi -= memory.base
        memory.valid[lo:hi] = run_of(VALID, hi - lo)
        if memory.writers is not None:
            memory.writers[lo:hi] = run_of(owner, hi - lo)

    def copy(self, source: Memory, lo: int, target: Memory, to: int, size: int, row: int, owner: int = 0) -> None:
        """Bytes move with what is known of them."""
        lo -= source.base
        to -= target.base
        carried = source.valid[lo : lo + size]
        target.valid[to : to + size] = carried
        if NOTHING in carried or (self.suspicious and (PAST in carried or MASKED in carried)):
            self._carried.append((target, to, to + size, row))
        if target.writers is not None:
            target.writers[to : to + size] = bytes([owner]) * size

    def forget(self, memory: Memory, lo: int, hi: int) -> None:
        """Bytes have a new owner, who does not know what is in them."""
        memory.valid[lo - memory.base : hi - memory.base] = bytes(hi - lo)

    # Findings

    def end_of_block(self, outputs: dict[Memory, Any]) -> None:
        """Bytes of `outputs` that hold nothing, or depend on nothing that counts, at the copy that put them there.

        With each comes its array of elements; None if the run has no data.
        """
        for memory, lo, hi, row in self._carried:
            if memory in outputs:
                at = memory.valid.find(NOTHING, lo, hi)
                if at >= 0:
                    fact = f"puts bytes that nothing has written into {memory.name}, and they stay; write them first"
                    self._note("uninitialised-read", memory, row, at, hi, fact)
                at = self._depends(memory, lo, hi, outputs[memory])
                if at >= 0:
                    what = "what depends on bytes behind a tensor's valid length"
                    fact = f"keeps in {memory.name} {what}; mask the tail off"
                    self._note("past-logical-length", memory, row, at, hi, fact)
        self._carried.clear()

    @staticmethod
    def _depends(memory: Memory, lo: int, hi: int, values: Any) -> int:
        """The first byte of [lo, hi) that depends on one behind a valid length, as far as can be told; -1 if none."""
        if values is None or values.dtype.kind != "f":
            return memory.valid.find(PAST, lo, hi)
        marks = np.frombuffer(memory.valid[lo:hi], np.uint8)
        nan = np.isnan(values.reshape(-1)[np.arange(lo, hi) // values.itemsize])
        found = np.flatnonzero((marks >= PAST) & nan)
        return lo + int(found[0]) if len(found) else -1

    def _report(self, what: int, memory: Memory, row: int, lo: int, hi: int) -> None:
        kind, fact = REPORTS[what]
        self._note(kind, memory, row, lo, hi, fact)

    def aliased(self, memory: Memory, row: int, lo: int, hi: int, owner: int) -> None:
        """An owner reads: are they bytes that a borrower wrote last?"""
        lo -= memory.base
        hi -= memory.base
        writers = memory.writers or b""
        for borrower in self._borrowers.get(owner, b""):
            at = writers.find(borrower, lo, hi)
            if at >= 0:
                fact = (
                    f"reads as {self._names[owner]} what {self._names[borrower]}, who borrowed these bytes, wrote "
                    f"last; let the owner write them again first"
                )
                self._note("live-alias", memory, row, at, hi, fact)

    def _note(self, kind: str, memory: Memory, row: int, lo: int, hi: int, fact: str) -> None:
        hi = self._run(memory, lo, hi)
        op = self._about(row, lo + memory.base, hi + memory.base)
        key = (kind, op.site, memory.name)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, count=known.count + 1)
        else:
            self._found[key] = Hazard(kind, f"{op}\n  {fact}", (op,), replay=self._replay)

    @staticmethod
    def _run(memory: Memory, lo: int, hi: int) -> int:
        """The end of the bytes that are like the one at `lo`."""
        value = memory.valid[lo]
        return next((at for at in range(lo, hi) if memory.valid[at] != value), hi)

    def findings(self) -> list[Hazard]:
        return list(self._found.values())
