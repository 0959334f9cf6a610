"""What orders the ops of an AHBM program, from its text and ADR-0020's clause 6: no times, no clocks, no log.

The steps are gone through in the one sequence that they were cut from, in which every message has been sent before it
is received. Each op and each point of a kernel is a moment; a race is two ops that share a byte and no path joins.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations

from .order import Reach, Span, holds, pieces
from .tl_programs import BYTES, STATE, Program, Step

Finding = tuple[str, int, int]  # kind, lines
ROW = 16  # bytes of a row of `t`


@dataclass
class Owner:
    """Whose bytes a buffer's are; dead once its scope has been left."""

    alive: bool = True


@dataclass
class Op:
    """An access set with a place in a pipe; `group`: parts of one op do not race with each other."""

    number: int
    line: int
    pe: int
    pipe: str
    unit: str
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    owners: dict[Span, Owner]
    group: int


@dataclass
class Handle:
    """A name: its bytes, what makes it, and whether only a wait orders that."""

    span: Span
    owner: Owner
    op: Op | None = None
    completion: bool = False
    channel: tuple[int, int] | None = None
    message: Op | None = None  # of a recv_async that has not been waited for
    readers: list[Op] | None = None


@dataclass
class Scope:
    line: int
    top: int
    handles: list[Handle] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    slots: list[Handle] = field(default_factory=list)


@dataclass
class Pe:
    """A kernel: its point, its names, and the scratch that its scopes give back."""

    number: int
    point: int = 0
    names: dict[str, Handle] = field(default_factory=dict)
    pending: list[Handle | Op] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    top: int = 0


class Story:
    """Goes through a program; `ops` in the order of the sequence, `recycled` are scopes left too early."""

    def __init__(self, program: Program) -> None:
        self.slots = program.slots
        self.ops: list[Op] = []
        self.reach = Reach()
        self.recycled: list[tuple[int, int, Op]] = []  # PE, its point, what was in flight
        self.awaited: set[int] = set()
        self._last: dict[tuple[int, str], Op] = {}
        self._free: dict[tuple[int, int], deque[tuple[int, Op | None]]] = {}
        self._sent: dict[tuple[int, int], deque[tuple[int, Op]]] = {}
        self.dead: set[tuple[int, int]] = set()  # (first op, second op) at whose second the first's owner was dead
        self.pes = [Pe(number) for number in range(program.pes)]
        head = len(program.head)
        for pe in self.pes:
            self._begin(pe, head - 2)
        for line, step in program.unrolled():
            getattr(self, "_" + step.what.replace(" ", "_"))(self.pes[step.pe], step, line)
        for pe in self.pes:
            self._finish(pe, len(program.lines()[0]))
        assert self.reach.close()

    # Points, ops, waits

    def _go(self, pe: Pe) -> None:
        """The kernel's next point."""
        self.reach.edge((pe.number, pe.point), (pe.number, pe.point + 1))
        pe.point += 1

    def _learn(self, pe: Pe, op: Op) -> None:
        self._go(pe)
        self.reach.edge(op.number, (pe.number, pe.point))

    def _wait_for(self, pe: Pe, op: Op) -> None:
        self.awaited.add(op.number)
        self._learn(pe, op)

    def _op(
        self, pe: Pe, line: int, pipe: str, reads: list[tuple[Span, Owner]], writes: list[tuple[Span, Owner]],
        after: tuple[Op, ...] = (), group: int | None = None, unit: str = "",
    ) -> Op:  # fmt: skip
        number = len(self.ops)
        owners = dict(reads + writes)
        op = Op(
            number, line, pe.number, pipe, unit or pipe, tuple(span for span, _ in reads),
            tuple(span for span, _ in writes), owners, number if group is None else group,
        )  # fmt: skip
        self.reach.edge((pe.number, pe.point), number)
        for each in after:
            self.reach.edge(each.number, number)
        before = self._last.get((pe.number, pipe))
        if before is not None and pipe:
            self.reach.edge(before.number, number)
        self._last[pe.number, pipe] = op
        for each in self.ops:  # whose bytes were they when this was said
            if any(not owner.alive for owner in each.owners.values()):
                self.dead.add((each.number, number))
        self.ops.append(op)
        return op

    def _use(self, pe: Pe, name: str, unit: str) -> tuple[Span, Owner]:
        """The bytes of a name that `unit` is about to read; waited for if another unit still makes them."""
        handle = pe.names[name]
        op = handle.op
        if op is not None and op.unit != unit and op.number not in self.awaited and not handle.completion:
            self._wait_for(pe, op)
        return handle.span, handle.owner

    def _read(self, pe: Pe, names: tuple[str, ...], op: Op) -> None:
        for name in names:
            readers = pe.names[name].readers
            if readers is not None:
                readers.append(op)

    def _new(self, pe: Pe) -> Handle:
        handle = Handle((f"scratch{pe.number}", pe.top, pe.top + BYTES), Owner())
        pe.top += BYTES
        if pe.scopes:
            pe.scopes[-1].owners.append(handle.owner)
        return handle

    def _at(self, row: int) -> tuple[Span, Owner]:
        return ("t", ROW * row, ROW * row + BYTES), Owner()

    # Begin and end

    def _begin(self, pe: Pe, line: int) -> None:
        for name in STATE:
            handle = pe.names[name] = self._new(pe)
            handle.op = self._op(pe, line, "MATH", [], [(handle.span, handle.owner)])
        for name in STATE:
            made = pe.names[name]
            pe.names[2 * name] = Handle(made.span, made.owner, made.op)
        self._wait_for(pe, pe.names[STATE[-1]].op)  # type: ignore[arg-type]
        pe.pending = [pe.names[STATE[-1]]]

    def _finish(self, pe: Pe, line: int) -> None:
        self._wait_pending(pe, pe.pending)
        for name in STATE:
            source = self._use(pe, name, "DMA_W")
            self._op(pe, line, "DMA_W", [source], [])

    # Steps

    def _math(self, pe: Pe, step: Step, line: int, unit: str = "MATH") -> None:
        sources = [self._use(pe, name, unit) for name in step.sources]
        target = pe.names[step.target]
        op = self._op(pe, line, "MATH", sources, [(target.span, target.owner)])
        self._read(pe, step.sources, op)
        target.op, target.completion = op, False

    def _load(self, pe: Pe, step: Step, line: int) -> None:
        block = self._new(pe)
        self._loads(pe, step.row, block, line)
        pe.names["block"] = block
        self._math(pe, Step(pe.number, "", "math", ("block",), step.target), line)

    def _into(self, pe: Pe, step: Step, line: int) -> None:
        self._loads(pe, step.row, pe.names[step.target], line)

    def _loads(self, pe: Pe, row: int, handle: Handle, line: int) -> None:
        handle.op = self._op(pe, line, "DMA_R", [self._at(row)], [(handle.span, handle.owner)])
        handle.completion = False
        self._in_scope(pe, handle)
        pe.pending.append(handle)

    def _store(self, pe: Pe, step: Step, line: int) -> None:
        source = self._use(pe, step.sources[0], "DMA_W")
        op = self._op(pe, line, "DMA_W", [source], [self._at(step.row)])
        self._read(pe, step.sources, op)
        pe.pending.append(op)

    def _gemm(self, pe: Pe, step: Step, line: int) -> None:
        target = pe.names[step.target]
        result = Handle(target.span, target.owner)
        result.op = self._composite(pe, step, line, result)
        self._pend(pe, result)

    def _back(self, pe: Pe, step: Step, line: int) -> None:
        sources = [self._use(pe, name, "GEMM") for name in step.sources]
        result = self._new(pe)
        product = self._composite(pe, step, line, result, sources)
        result.op = self._op(
            pe, line, "BACK", [(result.span, result.owner)], [self._at(step.count)], (product,), product.group, "DMA_W"
        )
        self._pend(pe, result)

    def _composite(
        self, pe: Pe, step: Step, line: int, result: Handle, sources: list[tuple[Span, Owner]] | None = None
    ) -> Op:
        used = [self._use(pe, name, "GEMM") for name in step.sources] if sources is None else sources
        panels = self._op(pe, line, "STREAM", [self._at(step.row)], [])
        op = self._op(pe, line, "GEMM", used, [(result.span, result.owner)], (panels,), panels.group)
        self._read(pe, step.sources, op)
        return op

    def _pend(self, pe: Pe, result: Handle) -> None:
        result.completion = True
        self._in_scope(pe, result)
        pe.pending.append(result)

    def _in_scope(self, pe: Pe, handle: Handle) -> None:
        if pe.scopes:
            pe.scopes[-1].handles.append(handle)

    def _dot(self, pe: Pe, step: Step, line: int) -> None:
        sources = [self._use(pe, name, "GEMM") for name in step.sources]
        result = self._new(pe)
        result.op = self._op(pe, line, "GEMM", sources, [(result.span, result.owner)])
        self._read(pe, step.sources, result.op)
        self._wait_for(pe, result.op)
        pe.names["product"] = result
        self._math(pe, Step(pe.number, "", "math", ("product",), step.target), line)

    def _wait(self, pe: Pe, step: Step, _: int) -> None:
        self._wait_pending(pe, pe.pending[-step.count :])

    def _await(self, pe: Pe, step: Step, _: int) -> None:
        self._wait_for_name(pe, pe.names[step.sources[0]])

    def _wait_for_name(self, pe: Pe, handle: Handle) -> None:
        if handle.op is not None:
            self._wait_for(pe, handle.op)

    def _wait_pending(self, pe: Pe, pending: list[Handle | Op]) -> None:
        for each in pending:
            if isinstance(each, Op):
                self._wait_for(pe, each)
            else:
                self._wait_for_name(pe, each)

    # Scopes

    def _enter(self, pe: Pe, _: Step, line: int) -> None:
        pe.scopes.append(Scope(line, pe.top))

    def _new_load(self, pe: Pe, step: Step, line: int) -> None:
        handle = pe.names[step.target] = self._new(pe)
        self._loads(pe, step.row, handle, line)

    def _new_fill(self, pe: Pe, step: Step, line: int) -> None:
        handle = pe.names[step.target] = self._new(pe)
        handle.op = self._op(pe, line, "MATH", [], [(handle.span, handle.owner)])
        pe.pending.append(handle)

    def _new_gemm(self, pe: Pe, step: Step, line: int) -> None:
        sources = [self._use(pe, name, "GEMM") for name in step.sources]
        handle = pe.names[step.target] = self._new(pe)
        handle.op = self._composite(pe, step, line, handle, sources)
        self._pend(pe, handle)

    def _leave(self, pe: Pe, _: Step, __: int) -> None:
        scope = pe.scopes[-1]
        for handle in scope.slots:
            self._credit(pe, handle, scope.line, tuple({op.unit: op for op in handle.readers or ()}.values()))
        for handle in scope.handles:
            if handle.op is not None and handle.span[1] >= scope.top and handle.span[0] == f"scratch{pe.number}":
                self.recycled.append((pe.number, pe.point, handle.op))
        for owner in scope.owners:
            owner.alive = False
        pe.top = scope.top
        pe.scopes.pop()

    def _forget(self, pe: Pe, _: Step, __: int) -> None:
        pe.pending = [each for each in pe.pending if isinstance(each, Op) or each.owner.alive]

    # Messages

    def _send(self, pe: Pe, step: Step, line: int) -> None:
        channel = (pe.number, step.peer)
        pipe = f"IPCQ.{'E' if step.peer > pe.number else 'W'}"
        source = self._use(pe, step.sources[0], pipe)
        free = self._free.setdefault(channel, deque((slot, None) for slot in range(self.slots)))
        slot, credit = free.popleft()
        if credit is not None:
            self._learn(pe, credit)
        op = self._op(pe, line, pipe, [source], [(self._slot(channel, slot), Owner())])
        self._read(pe, step.sources, op)
        self._sent.setdefault(channel, deque()).append((slot, op))
        pe.pending.append(op)

    def _slot(self, channel: tuple[int, int], slot: int) -> Span:
        return f"slot {slot} of {channel}", 0, BYTES

    def _recv(self, pe: Pe, step: Step, line: int) -> None:
        self._ask(pe, step, line)
        self._take(pe, step, line)

    def _ask(self, pe: Pe, step: Step, _: int) -> None:
        channel = (step.peer, pe.number)
        slot, op = self._sent[channel].popleft()
        pe.names[step.target] = Handle(self._slot(channel, slot), Owner(), channel=channel, message=op)

    def _take(self, pe: Pe, step: Step, _: int) -> None:
        handle = pe.names[step.target]
        assert handle.message is not None
        self._learn(pe, handle.message)
        handle.message, handle.readers = None, []
        if pe.scopes:
            pe.scopes[-1].slots.append(handle)

    def _release(self, pe: Pe, step: Step, line: int) -> None:
        self._credit(pe, pe.names[step.sources[0]], line, ())

    def _credit(self, pe: Pe, handle: Handle, line: int, after: tuple[Op, ...]) -> None:
        op = self._op(pe, line, "", [], [(handle.span, handle.owner)], after)
        assert handle.channel is not None
        slot = int(str(handle.span[0]).split()[1])
        self._free[handle.channel].append((slot, op))


class Races:
    """The pairs of ops that share a byte in no order: all of them, and those with the last accesses to the byte."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.every: set[Finding] = set()
        self.latest: set[Finding] = set()
        self.by_byte: list[set[tuple[int, int]]] = []  # of each byte with a race, lines of all that touch it
        spans = [span for op in story.ops for span in op.reads + op.writes]
        for byte in pieces(spans):
            self._byte(byte, [op for op in story.ops if holds(op.reads + op.writes, byte)])
        for pe, point, op in story.recycled:
            if not story.reach.before(op.number, (pe, point)):
                self.every.add(("recycle-in-flight", op.line, 0))
                self.latest.add(("recycle-in-flight", op.line, 0))

    def _byte(self, byte: tuple[object, int], there: list[Op]) -> None:
        touches = [(op, write) for op in there for write in (False, True) if holds((op.reads, op.writes)[write], byte)]
        touches = [each for each in touches if each[0].pipe or each[1]]
        racing = set()
        for one, other in combinations(touches, 2):
            if self._race(one, other):
                self.every.add(self._finding(one, other, byte))
                racing.add((one[0].line, other[0].line))
        if racing:
            self.by_byte.append({(first.line, second.line) for first, second in combinations(there, 2)})
        self._latest(byte, touches)

    def _latest(self, byte: tuple[object, int], touches: list[tuple[Op, bool]]) -> None:
        """Against the last write of the byte, and the last read of each pipe since."""
        write: tuple[Op, bool] | None = None
        reads: dict[tuple[int, str], tuple[Op, bool]] = {}
        for touch in touches:
            earlier = ([write] if write else []) + (list(reads.values()) if touch[1] else [])
            for each in earlier:
                if self._race(each, touch):
                    self.latest.add(self._finding(each, touch, byte))
            if touch[1]:
                write, reads = (touch if touch[0].pipe else None), {}
            else:
                reads[touch[0].pe, touch[0].pipe] = touch

    def _race(self, one: tuple[Op, bool], other: tuple[Op, bool]) -> bool:
        (first, writes), (second, overwrites) = one, other
        if first.group == second.group or not (writes or overwrites):
            return False
        before = self.story.reach.before
        return not before(first.number, second.number) and not before(second.number, first.number)

    def _finding(self, one: tuple[Op, bool], other: tuple[Op, bool], byte: tuple[object, int]) -> Finding:
        (first, writes), (second, overwrites) = one, other
        kind = ("race-waw" if overwrites else "race-raw") if writes else "race-war"
        if (first.number, second.number) in self.story.dead and str(byte[0]).startswith("scratch"):
            owners = [owner for span, owner in first.owners.items() if holds([span], byte)]
            kind = "recycle-in-flight" if any(not owner.alive for owner in owners) else kind
        return kind, first.line, second.line
