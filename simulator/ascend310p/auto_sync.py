"""A core as the vendor's compiler leaves it with auto-sync on: barriers of V, and flags between S and the other pipes.

What a command depends on is what bytes say, so views of one TBuf are seen. As in the vendor's table (facts 2.8), V with
MTE2 and MTE3, and these with themselves, stay with the author. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ascend310p.core import Core, Spans
from pytest_kernbench.simulator.ascend310p.effects import Deed, Key
from pytest_kernbench.simulator.ascend310p.pipes import Flag, PipeState
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES, Pipe
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.compact import Descriptor


class Touched:
    """The newest access to each byte, as a number; bytes of GM by the ranges that were touched."""

    def __init__(self, size: int) -> None:
        self._ub = np.zeros(size, np.int64)
        self._gm: dict[tuple[int, int], int] = {}

    def mark(self, spans: Spans, number: int) -> None:
        for lo, hi in spans:
            if hi <= len(self._ub):
                self._ub[lo:hi] = number
            else:
                self._gm[lo, hi] = number

    def newest(self, spans: Spans) -> int:
        """Of the accesses that share a byte with `spans`; 0 if none does."""
        found = 0
        for lo, hi in spans:
            if hi <= len(self._ub):
                found = max(found, int(self._ub[lo:hi].max()))
            else:
                found = max(found, *[at for (low, high), at in self._gm.items() if low < hi and lo < high], 0)
        return found


class AutoSyncCore(Core):
    """Says what a command needs before it, where no flag or barrier by hand has. `inserted`: descriptors of that."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        size, pipes = self.spec.ub_usable, range(len(PIPES))
        self.inserted: set[int] = set()
        self._id = self.spec.event_ids  # of the flags: one that no hand has
        self._number = 0  # of the newest access
        self._reads = [Touched(size) for _ in pipes]
        self._writes = [Touched(size) for _ in pipes]
        self._over = [[0 for _ in pipes] for _ in pipes]  # of a pipe, for a pipe: accesses up to here are over
        self._set: dict[Key, deque[int]] = {}
        self._early: Counter[Key] = Counter()  # Waits that were said before their Set
        self._descriptors: dict[tuple[str, int, int], int] = {}

    # What depends on what

    def op(
        self, pipe: PipeState, descriptor: int, occupancy: int, latency: int, offsets: tuple[int, int, int, int],
        args: tuple[Any, ...] | None, deed: Deed, reads: Spans, writes: Spans,
    ) -> int:  # fmt: skip
        target = pipe.number
        self._after(Pipe.S, target, reads, writes, descriptor)
        if target == Pipe.V:
            self._after(Pipe.V, target, reads, writes, descriptor)
        row = super().op(pipe, descriptor, occupancy, latency, offsets, args, deed, reads, writes)
        self._number += 1
        self._reads[target].mark(reads, self._number)
        self._writes[target].mark(writes, self._number)
        return row

    def load(
        self, descriptor: int, cycles: int, offset: int, target: Array | None, index: int, lo: int, hi: int
    ) -> Any:
        for source in (Pipe.V, Pipe.MTE2, Pipe.MTE3):
            self._after(source, Pipe.S, ((lo, hi),), (), descriptor)
        return super().load(descriptor, cycles, offset, target, index, lo, hi)

    def store(
        self, descriptor: int, cycles: int, offset: int, target: Array | None, index: int, value: Any, lo: int, hi: int
    ) -> int:
        for source in (Pipe.V, Pipe.MTE2, Pipe.MTE3):
            self._after(source, Pipe.S, (), ((lo, hi),), descriptor)
        row = super().store(descriptor, cycles, offset, target, index, value, lo, hi)
        self._number += 1
        self._writes[Pipe.S].mark(((lo, hi),), self._number)
        return row

    def _after(self, source: int, target: int, reads: Spans, writes: Spans, descriptor: int) -> None:
        """Put what follows on `target` after what it depends on of `source`."""
        newest = max(self._writes[source].newest(reads + writes), self._reads[source].newest(writes))
        if newest <= self._over[source][target]:
            return
        if source == target:
            self.barrier(self.pipes[source], self._like(descriptor, "PipeBarrier", source))
            return
        flag, name = self.flag((source, target, self._id)), f"{PIPES[source]}_{PIPES[target]}"
        self.flag_set(flag, self._like(descriptor, f"SetFlag<{name}>", source))
        wait = self._like(descriptor, f"WaitFlag<{name}>", target)
        self.flag_wait(flag, wait, wait)

    def _like(self, descriptor: int, name: str, unit: int) -> int:
        """A row of that name, at the line of the command that needs it."""
        found = self._descriptors.get((name, unit, descriptor))
        if found is None:
            log, line = self.log, self.log.descriptors[descriptor]
            shape = -1 if name == "PipeBarrier" else log.shapes.id((self._id,))
            ids = log.names.id(name), log.units.id(PIPES[unit]), line.site, line.region, shape
            found = log.describe(Descriptor(*ids, occupancy=0, waits=name.startswith("Wait")))
            self._descriptors[name, unit, descriptor] = found
            self.inserted.add(found)
        return found

    # What is over, by hand or not

    def barrier(self, pipe: PipeState, descriptor: int) -> None:
        super().barrier(pipe, descriptor)
        self._over[pipe.number][pipe.number] = self._number

    def barrier_all(self, descriptor: int) -> None:
        super().barrier_all(descriptor)
        for source in self._over:
            source[:] = [self._number] * len(source)

    def flag_set(self, flag: Flag, descriptor: int) -> None:
        super().flag_set(flag, descriptor)
        if self._early[flag.key]:
            self._early[flag.key] -= 1
            self._passed(flag.key, self._number)
        else:
            self._set.setdefault(flag.key, deque()).append(self._number)

    def flag_wait(self, flag: Flag, descriptor: int, site: int = 0) -> None:
        super().flag_wait(flag, descriptor, site)
        raised = self._set.get(flag.key)
        if raised:
            self._passed(flag.key, raised.popleft())
        else:
            self._early[flag.key] += 1

    def _passed(self, key: Key, number: int) -> None:
        """What S has waited for is over for all that it issues."""
        source, target, _ = key
        over = self._over[source]
        for each in range(len(PIPES)) if target == Pipe.S else (target,):
            over[each] = max(over[each], number)
