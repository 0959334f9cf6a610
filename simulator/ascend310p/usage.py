"""What each unit of a core did with its time, and why it stood still: from the log alone.

A pipe stands still for a flag, a barrier, or because S has not issued anything yet; S for a flag, for all pipes, or
because a pipe's queue is full. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import Row

SYNCS = ("SetFlag<", "WaitFlag<", "PipeBarrier")


@dataclass
class UnitUse:
    """`busy`: cycles of occupancy (of S: in GetValue); `stalls`: cycles by cause, such as "flag MTE2_V" or "issue"."""

    block: str
    unit: str
    ops: int = 0
    busy: int = 0
    stalls: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        causes = ", ".join(f"{cause} {cycles}" for cause, cycles in self.stalls.most_common())
        return f"{self.block} {self.unit:<4}  {self.ops} ops  busy {self.busy}  stalled {causes or 'never'}"


def usage(run: Run) -> list[UnitUse]:
    """One line a block and unit that did something. Raises ValueError for a log without synchronisation."""
    log = run.log
    if not log.has_syncs:
        raise ValueError("the log has no synchronisation, so stalls have no cause: run the kernel with log=True")
    made: dict[tuple[int, str], _Pipe | _Scalar] = {}
    begin: dict[int, int] = {}
    for row in log:
        first = begin.setdefault(row.program, row.issue)
        block = log.programs[row.program]
        scalar = made.get((row.program, "S"))
        if not isinstance(scalar, _Scalar):
            scalar = made[row.program, "S"] = _Scalar(UnitUse(block, "S"), first, run.spec.sync_cycles)
        scalar.see(row)
        if row.unit != PIPES[0]:
            pipe = made.get((row.program, row.unit))
            if not isinstance(pipe, _Pipe):
                pipe = made[row.program, row.unit] = _Pipe(UnitUse(block, row.unit), first)
            pipe.see(row)
    return [each.use for each in made.values()]


class _Pipe:
    """Rows of a pipe, in order; `idle_from` is when it had nothing to do any more."""

    def __init__(self, use: UnitUse, begin: int) -> None:
        self.use = use
        self._idle_from = begin
        self._held: list[tuple[str, int, int]] = []  # by what, from, to: since the last op

    def see(self, row: Row) -> None:
        if row.name.startswith(SYNCS):
            if not row.name.startswith("SetFlag"):
                self._held.append((_cause(row.name), row.start, row.end))
            return
        self.use.ops += 1
        self.use.busy += row.free - row.start
        at = self._idle_from
        for cause, lo, hi in self._held:
            self._stand("issue", at, lo)
            self._stand(cause, max(at, lo), hi)
            at = max(at, hi)
        self._stand("issue", at, row.start)
        self._held.clear()
        self._idle_from = row.free

    def _stand(self, cause: str, lo: int, hi: int) -> None:
        if hi > lo:
            self.use.stalls[cause] += hi - lo


class _Scalar:
    """What S issued, in order; `next` is when it could have issued the next command."""

    def __init__(self, use: UnitUse, begin: int, say: int) -> None:
        self.use = use
        self._next = begin
        self._say = say

    def see(self, row: Row) -> None:
        if row.issue > self._next:
            self.use.stalls[f"queue of {row.unit} full"] += row.issue - self._next
        own = row.unit == PIPES[0]
        blocks = own and not row.name.startswith(("SetFlag", "SetValue"))
        self._next = row.end if blocks else row.issue + self._say
        if own and not row.name.startswith(SYNCS):
            self.use.ops += 1
            self.use.busy += row.free - row.start
        elif blocks:
            self._next += self._say
            if row.end > row.start:
                self.use.stalls[_cause(row.name)] += row.end - row.start


def _cause(name: str) -> str:
    """`flag MTE2_V`, `barrier`, `all pipes`."""
    if name.startswith("WaitFlag"):
        return "flag " + name.split("<")[1].rstrip(">")
    return "barrier" if name == "PipeBarrier" else "all pipes"
