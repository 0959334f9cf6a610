"""One running AI core: the scalar unit's clock, its pipes and flags. The only code that moves time here.

Every command's times are known when it is issued, except behind a Wait whose Set has not been issued: such a pipe is
parked, and its commands get their times when the Set comes. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error
from typing import Any, Protocol

from pytest_kernbench.simulator.ascend310p.effects import NEVER, Deed, Effects, Key
from pytest_kernbench.simulator.ascend310p.pipes import NO_ROW, Command, Flag, PipeState, park, unpark
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES, Pipe
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.compact import CELLS, ROW_END, ROW_FIRST, ROW_START, CompactLog, pack_compact

Spans = tuple[tuple[int, int], ...]
UNKNOWN = -1
TooLate = error  # what packing a row raises
LAST_CYCLE = 2**31 - 1  # a cell of the log has 32 bits; packing a later one raises TooLate


class OrderChecker(Protocol):
    """What judges the order of accesses: told of everything in the order of issue."""

    def op(self, pipe: int, row: int, reads: Spans, writes: Spans, known: Any = None) -> None: ...

    def load(self, row: int, lo: int, hi: int) -> None: ...

    def store(self, row: int, lo: int, hi: int) -> None: ...

    def flag_set(self, key: Key, known: Any = None) -> None: ...

    def flag_wait(self, key: Key, row: int, site: int, known: Any = None) -> None: ...

    def flags_lost(self, key: Key, count: int) -> None: ...

    def barrier(self, pipe: int) -> None: ...

    def barrier_all(self) -> None: ...

    def known(self) -> Any: ...


class Stuck(Exception):
    """The core can never go on; the language turns it into a report with the author's line."""


class Core:
    """Times and effects of one block. `now` is the cycle at which S says its next command."""

    def __init__(
        self, spec: Ascend310pSpec, log: CompactLog, effects: Effects, order: OrderChecker | None, *, start: int = 0,
        syncs: bool = True, extra: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        self.spec = spec
        self.log = log
        self.now = start
        self.pipes = [PipeState(number, spec.queue_depth) for number in range(len(PIPES))]
        self.vector = self.pipes[Pipe.V]
        self.flags: dict[Key, Flag] = {}
        self.effects = effects
        self._say = spec.sync_cycles
        self._bit = spec.flag_model == "bit"
        self._tell = effects if effects.needs_syncs else None
        self.syncs = syncs
        self._order = order
        self._extra = extra
        self._cells = log.cells
        self.scalar_end = start  # the last end of what S itself did
        self.stores_end = start  # the cycle at which every SetValue so far has landed
        for pipe in self.pipes:
            pipe.free = pipe.ready = pipe.last = start

    # Rows

    def _row(self, descriptor: int, issue: int, start: int, end: int, first: int = 0) -> int:
        cells = self._cells
        cells.frombytes(pack_compact(descriptor, issue, start, end, first, 0, 0, 0))
        return len(cells) // CELLS - 1

    def _sync_row(self, descriptor: int, issue: int, start: int, end: int, after: int = NO_ROW) -> int:
        return self._row(descriptor, issue, start, end, after) if self.syncs else NO_ROW

    def _settle(self, row: int, start: int, end: int) -> None:
        """Fill in the times of a row that was written while its pipe was parked."""
        if row != NO_ROW:
            if end > LAST_CYCLE:
                raise TooLate(f"cycle {end}")
            self._cells[row * CELLS + ROW_START] = start
            self._cells[row * CELLS + ROW_END] = end

    # Issuing

    def _place(self, pipe: PipeState) -> int:
        """The cycle at which S gets its next command into the pipe's queue; a full queue blocks S."""
        first = pipe.leaves[0]
        if first > self.now:
            if first == NEVER:
                raise Stuck(f"the queue of {pipe.name} is full ({self.spec.queue_depth} commands)")
            self.now = first
        return self.now

    def op(
        self, pipe: PipeState, descriptor: int, occupancy: int, latency: int, offsets: tuple[int, int, int, int],
        args: tuple[Any, ...] | None, deed: Deed, reads: Spans, writes: Spans,
    ) -> int:  # fmt: skip
        """Issue an op, which does its deed with `args`, or nothing without. Returns its row."""
        issue = self.now
        leaves = pipe.leaves
        if leaves[0] > issue:
            issue = self._place(pipe)
        if self._extra is not None:
            latency += self._extra(occupancy + latency)
        self.now = issue + self._say
        order = self._order
        cells = self._cells
        if pipe.parked:
            cells.frombytes(pack_compact(descriptor, issue, UNKNOWN, UNKNOWN, *offsets))
            row = len(cells) // CELLS - 1
            known = None if order is None else order.known()
            park(pipe, Command("op", issue, row, (occupancy, latency, args, deed, reads, writes, known)))
            return row
        start = issue  # as PipeState.start says; written out, for every op passes here
        if pipe.free > start:
            start = pipe.free
        if pipe.ready > start:
            start = pipe.ready
        pipe.ready = start
        pipe.free = free = start + occupancy
        end = free + latency
        if end > pipe.last:
            pipe.last = end
        leaves.append(start)
        cells.frombytes(pack_compact(descriptor, issue, start, end, *offsets))
        row = len(cells) // CELLS - 1
        if args is not None:
            self.effects.op(pipe.number, (start, end, row, args, deed))
        if order is not None:
            order.op(pipe.number, row, reads, writes)
        return row

    def load(
        self, descriptor: int, cycles: int, offset: int, target: Array | None, index: int, lo: int, hi: int
    ) -> Any:
        """GetValue: reads now, blocks for `cycles`; None if the run has no data."""
        now = self.now
        cells = self._cells
        cells.frombytes(pack_compact(descriptor, now, now, now + cycles, offset, 0, 0, 0))
        value = None if target is None else self.effects.load(now, target, index, lo, hi)
        if self._order is not None:
            self._order.load(len(cells) // CELLS - 1, lo, hi)
        self.now = self.scalar_end = now + cycles
        return value

    def store(
        self, descriptor: int, cycles: int, offset: int, target: Array | None, index: int, value: Any, lo: int, hi: int
    ) -> int:
        """SetValue: the body goes on, the write lands `cycles` later."""
        now = self.now
        land = now + cycles
        if self._extra is not None:
            land += self._extra(cycles)
        if land < self.stores_end:
            land = self.stores_end  # stores land in order
        self.stores_end = land
        cells = self._cells
        cells.frombytes(pack_compact(descriptor, now, now, land, offset, 0, 0, 0))
        row = len(cells) // CELLS - 1
        if target is not None:
            self.effects.store((land, row, target, index, value, lo, hi), now)
        if self._order is not None:
            self._order.store(row, lo, hi)
        self.now = now + self._say
        return row

    # Synchronisation

    def flag(self, key: Key) -> Flag:
        """The flag of a key; the core keeps one of each that was named."""
        found = self.flags.get(key)
        if found is None:
            found = self.flags[key] = Flag(key, self.pipes)
        return found

    def flag_set(self, flag: Flag, descriptor: int) -> None:
        """Raise a flag when everything that its source pipe was given has ended."""
        issue = self.now
        pipe = flag.source
        if flag.key[0] == 0:
            self.now = issue + self._say
            leave = raised = issue
            if self.stores_end > raised:
                raised = self.stores_end
            if raised > self.scalar_end:
                self.scalar_end = raised
        else:
            if pipe.leaves[0] > issue:
                issue = self._place(pipe)
            self.now = issue + self._say
            if pipe.parked:
                row = self._sync_row(descriptor, issue, UNKNOWN, UNKNOWN)
                known = None if self._order is None else self._order.known()
                park(pipe, Command("set", issue, row, (flag, known)))
                return
            leave = issue if issue > pipe.ready else pipe.ready
            pipe.ready = leave
            pipe.leaves.append(leave)
            raised = leave if leave > pipe.last else pipe.last
        row = NO_ROW
        if self.syncs:
            cells = self._cells
            cells.frombytes(pack_compact(descriptor, issue, leave, raised, NO_ROW, 0, 0, 0))
            row = len(cells) // CELLS - 1
        if self._bit or self._tell is not None or flag.target.parked:
            self._raise(flag, raised, row)
            return
        if self._order is not None:
            self._order.flag_set(flag.key, None)
        flag.raised.append((raised, row))

    def _raise(self, flag: Flag, cycle: int, row: int, known: Any = None) -> None:
        if self._bit and cycle < flag.taken:
            flag.lost += 1  # nobody pairs with it
            return
        if self._order is not None:
            self._order.flag_set(flag.key, known)
        if self._tell is not None:
            self._tell.flag_set(flag.key)
        flag.raised.append((cycle, row))
        target = flag.target
        if target.parked and target.parked[0].what[0] is flag:
            self._go_on(target)

    def flag_wait(self, flag: Flag, descriptor: int, site: int = 0) -> None:
        """Block the flag's target pipe, and nothing else, until the flag is up."""
        pipe = flag.target
        if pipe.number == 0:
            self._wait_of_s(flag, descriptor, site)
            return
        issue = self.now
        if pipe.leaves[0] > issue:
            issue = self._place(pipe)
        self.now = issue + self._say
        arrival = issue if issue > pipe.ready else pipe.ready
        if flag.raised and not self._bit and not pipe.parked:
            raised: tuple[int, int] | None = flag.raised.popleft()  # as `Flag.take` has it
        else:
            raised = None if pipe.parked else flag.take(arrival, self._bit)
        if raised is None:
            row = self._sync_row(descriptor, issue, UNKNOWN, UNKNOWN)
            known = None if self._order is None else self._order.known()
            park(pipe, Command("wait", issue, row, (flag, known, site)))
            return
        cycle, setter = raised
        leave = arrival if arrival > cycle else cycle
        pipe.ready = leave
        pipe.leaves.append(leave)
        row = NO_ROW
        if self.syncs:
            cells = self._cells
            cells.frombytes(pack_compact(descriptor, issue, arrival, leave, setter, 0, 0, 0))
            row = len(cells) // CELLS - 1
        if self._order is not None:
            self._order.flag_wait(flag.key, row, site, None)
            self._forget_lost(flag)
        if self._tell is not None:
            self._tell.flag_wait(flag.key)

    def _waited(self, flag: Flag, row: int, site: int, known: Any = None) -> None:
        if self._order is not None:
            self._order.flag_wait(flag.key, row, site, known)
            self._forget_lost(flag)
        if self._tell is not None:
            self._tell.flag_wait(flag.key)

    def _forget_lost(self, flag: Flag) -> None:
        """Sets that the Wait at hand took along are no others' partners."""
        if flag.dropped and self._order is not None:
            self._order.flags_lost(flag.key, flag.dropped)
            flag.dropped = 0

    def _wait_of_s(self, flag: Flag, descriptor: int, site: int) -> None:
        issue = self.now
        raised = flag.take(issue, self._bit)
        if raised is None:
            raise Stuck(f"S waits for a flag that nothing raises: {flag.name}{lost_sets(flag)}")
        woken = max(issue, raised[0])
        row = self._sync_row(descriptor, issue, issue, woken, raised[1])
        self.scalar_end = woken
        self.now = woken + self._say
        self._waited(flag, row, site)

    def barrier(self, pipe: PipeState, descriptor: int) -> None:
        """What follows on the pipe starts when everything before has ended."""
        issue = self.now
        if pipe.leaves[0] > issue:
            issue = self._place(pipe)
        self.now = issue + self._say
        if pipe.parked:
            park(pipe, Command("barrier", issue, self._sync_row(descriptor, issue, UNKNOWN, UNKNOWN), ()))
            return
        arrival = issue if issue > pipe.ready else pipe.ready
        leave = arrival if arrival > pipe.last else pipe.last
        pipe.ready = leave
        pipe.leaves.append(leave)
        if self.syncs:
            self._cells.frombytes(pack_compact(descriptor, issue, arrival, leave, NO_ROW, 0, 0, 0))
        if self._order is not None:
            self._order.barrier(pipe.number)
        if self._tell is not None:
            self._tell.barrier(pipe.number)

    def barrier_all(self, descriptor: int) -> None:
        """Drain every pipe and S's stores; S waits."""
        stuck = [pipe.name for pipe in self.pipes if pipe.parked]
        if stuck:
            raise Stuck(f"a barrier on all pipes waits for {', '.join(stuck)}")
        issue = self.now
        for pipe in self.pipes[1:]:
            issue = self._place(pipe)
        over = max(issue, self.end)
        for pipe in self.pipes[1:]:
            pipe.pass_by(over)
            pipe.leaves.append(over)
        self._sync_row(descriptor, issue, issue, over)
        self.scalar_end = over
        self.now = over + self._say
        if self._order is not None:
            self._order.barrier_all()
        self.effects.drain()

    @property
    def end(self) -> int:
        """The last end of any pipe, S and its stores included."""
        return max(self.scalar_end, self.stores_end, *(max(pipe.last, pipe.ready) for pipe in self.pipes[1:]))

    # Parked pipes

    def _go_on(self, pipe: PipeState) -> None:
        """The Set that the first command of a parked pipe waits for has been issued."""
        commands = unpark(pipe)
        while commands:
            command = commands.pop(0)
            if command.kind == "wait" and not self._resume_wait(pipe, command):
                for each in (command, *commands):
                    park(pipe, each)
                return
            if command.kind != "wait":
                self._resume(pipe, command)

    def _resume_wait(self, pipe: PipeState, command: Command) -> bool:
        flag, known, site = command.what
        arrival = max(command.issue, pipe.ready)
        raised = flag.take(arrival, self._bit)
        if raised is None:
            return False
        leave = pipe.pass_by(max(arrival, raised[0]))
        pipe.leaves.append(leave)
        self._settle(command.row, arrival, leave)
        if command.row != NO_ROW:
            self._cells[command.row * CELLS + ROW_FIRST] = raised[1]
        self._waited(flag, command.row, site, known)
        return True

    def _resume(self, pipe: PipeState, command: Command) -> None:
        if command.kind == "op":
            occupancy, latency, args, deed, reads, writes, known = command.what
            start, end = pipe.start(command.issue, occupancy, latency)
            pipe.leaves.append(start)
            self._settle(command.row, start, end)
            if args is not None:
                self.effects.op(pipe.number, (start, end, command.row, args, deed))
            if self._order is not None:
                self._order.op(pipe.number, command.row, reads, writes, known)
        elif command.kind == "barrier":
            arrival = max(command.issue, pipe.ready)
            leave = pipe.pass_by(max(command.issue, pipe.last))
            pipe.leaves.append(leave)
            self._settle(command.row, arrival, leave)
            if self._order is not None:
                self._order.barrier(pipe.number)
            if self._tell is not None:
                self._tell.barrier(pipe.number)
        else:
            flag, known = command.what
            leave = pipe.pass_by(command.issue)
            pipe.leaves.append(leave)
            self._settle(command.row, leave, max(leave, pipe.last))
            self._raise(flag, max(leave, pipe.last), command.row, known)

    def fail_if_parked(self) -> None:
        """The body has returned: a pipe that still waits never ends."""
        stuck = [pipe.name for pipe in self.pipes if pipe.parked]
        if stuck:
            raise Stuck(
                f"the kernel's body has returned, but {', '.join(stuck)} never end{'s' if len(stuck) == 1 else ''}"
            )
        return


def lost_sets(flag: Flag) -> str:
    """What to add to a report about a Wait for this flag."""
    return f"; {flag.lost} Sets of it were lost by run-ahead, while it was still up" if flag.lost else ""
