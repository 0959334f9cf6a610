"""Random programs of the 310P: straight lines and loops on four pipes, with whatever synchronisation comes along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

PIPES = ("S", "V", "MTE2", "MTE3")
S, V, MTE2, MTE3 = range(4)
ELEMENTS = 384  # of the carved buffer `t` and of the tensor `g` in GM, float32
TILE = 64  # of a queue's buffer
# Position: the pipe that fills and the one that takes over; none, none: no flags.
QUEUES = {"VECIN": (MTE2, V), "VECOUT": (V, MTE3), "VECCALC": None, "BIND": (MTE2, MTE3)}

T = TypeVar("T")
Place = tuple[str, int, int]  # a name in the source, and bytes [lo, hi) of what it is


@dataclass(frozen=True)
class Step:
    """A line: what it is, its pipe, the bytes it touches, and a flag's key or a queue's number and a name."""

    text: str
    what: str
    pipe: int = S
    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    key: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Loop:
    count: int
    body: tuple[Step | Loop, ...]


@dataclass(frozen=True)
class Queue:
    kind: str
    buffers: int


@dataclass(frozen=True)
class Program:
    queues: tuple[Queue, ...]
    body: tuple[Step | Loop, ...]
    depth: int  # of the pipes' own queues of commands
    blocks: int = 1
    shift: int = 0  # elements of `g` between a block's and the next one's

    @property
    def head(self) -> list[str]:
        lines = ["def kernel(x, y, *, asc):", "    pipe, buf, s = asc.TPipe(), asc.TBuf(), 1.0"]
        lines += [f"    pipe.InitBuffer(buf, {4 * ELEMENTS}); t = buf.Get(asc.float32)"]
        lines += ["    g, h = asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)"]
        lines += [f"    g.SetGlobalBuffer(x + {self.shift} * asc.GetBlockIdx(), {ELEMENTS})"]
        lines += [f"    h.SetGlobalBuffer(y + {ELEMENTS} * asc.GetBlockIdx(), {ELEMENTS})"]
        for number, queue in enumerate(self.queues):
            bound = "asc.TQueBind(asc.TPosition.VECIN, asc.TPosition.VECOUT, 4)"
            made = bound if queue.kind == "BIND" else f"asc.TQue(asc.TPosition.{queue.kind}, 4)"
            lines.append(f"    q{number} = {made}; pipe.InitBuffer(q{number}, {queue.buffers}, {4 * TILE})")
        return [*lines, f"    asc.DataCopy(t, g, {ELEMENTS}); asc.PipeBarrier(asc.PIPE_ALL)"]

    def source(self, *, show: bool = False) -> str:
        """`show`: all of `t` is stored at the end, after a barrier on all pipes."""
        lines = [*self.head, *_lines(self.body, 1)]
        if show:
            lines += ["    asc.PipeBarrier(asc.PIPE_ALL)", f"    asc.DataCopy(h, t, {ELEMENTS})"]
        return "\n".join(lines) + "\n"

    def unrolled(self) -> Iterator[tuple[int, Step]]:
        """Every step with its line, as often as it is carried out."""
        yield from _unrolled(_numbered(self.body, len(self.head) + 1)[0])

    def __str__(self) -> str:
        return f"depth {self.depth}, {self.blocks} blocks\n{self.source()}"


def _lines(body: tuple[Step | Loop, ...], depth: int) -> Iterator[str]:
    for each in body:
        if isinstance(each, Loop):
            yield f"{'    ' * depth}for _ in range({each.count}):"
            yield from _lines(each.body, depth + 1)
        else:
            yield f"{'    ' * depth}{each.text}"


Numbered = list["tuple[int, Step] | tuple[int, Numbered]"]


def _numbered(body: tuple[Step | Loop, ...], line: int) -> tuple[Numbered, int]:
    """The same with lines in place of texts: (line, step), or (count, body) of a loop; and the line behind."""
    found: Numbered = []
    for each in body:
        if isinstance(each, Loop):
            inner, after = _numbered(each.body, line + 1)
            found.append((each.count, inner))
            line = after
        else:
            found.append((line, each))
            line += 1
    return found, line


def _unrolled(body: Numbered) -> Iterator[tuple[int, Step]]:
    for number, what in body:
        if isinstance(what, Step):
            yield number, what
        else:
            for _ in range(number):
                yield from _unrolled(what)


# Drawing

WHERE, COUNT = (0, 8, 16, 24, 64, 120, 128, 200), (8, 16, 64, 136, 264)
VECTOR = ("Add", "Axpy", "Adds", "fill", "copy", "masked", "sum")
OPS = (*VECTOR, "in", "out", "rows in", "rows out", "get", "put", "get GM", "put GM")
OF_PIPE = {V: VECTOR, MTE2: ("in", "rows in"), MTE3: ("out", "rows out")}
SYNCS = ("barrier", "all", "Set", "Set", "Wait", "S waits", "early Wait", "early Wait", "early Wait")


class Author:
    """Draws steps that the language takes; what they do to each other is another matter."""

    def __init__(self, draw: st.DrawFn, queues: tuple[Queue, ...], careful: bool) -> None:
        self.draw = draw
        self.queues = queues
        self.careful = careful  # every step is put after the one before, but for a slip now and then
        self.names = 0
        self.held: list[tuple[int, str, str]] = []  # queue, name, state: of the block that is being drawn
        self.full: list[list[int]] = [[] for _ in queues]  # of each queue, ENQUEd tensors
        self.up: list[tuple[int, int, int]] = []
        self.owed: list[tuple[int, int, int]] = []  # Waits that have been said before their Sets
        self.last: int | None = None

    def pick(self, *choices: T) -> T:
        return self.draw(st.sampled_from(choices))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def block(self, most: int, depth: int) -> tuple[Step | Loop, ...]:
        """Steps after which every queue is as it was before."""
        found: list[Step | Loop] = []
        for _ in range(self.number(1, most)):
            kind = self.pick("op", "op", "op", "sync", "sync", "queue", "loop")
            if kind == "loop" and depth and not self.held:
                found.append(Loop(self.number(2, 3), self.inner(depth)))
            elif kind == "sync" and not self.careful:
                found += self.sync()
            elif kind == "queue" and self.queues:
                found += self.queue_step()
            else:
                found += self.ordered(self.op())
        return (*found, *self.closing())

    def inner(self, depth: int) -> tuple[Step | Loop, ...]:
        """A loop's body; in a careful one the first step comes after the last of the round before."""
        if not self.careful:
            return self.block(6, depth - 1)
        everything = Step("asc.PipeBarrier(asc.PIPE_ALL)", "all")
        self.last = None
        body = self.block(5, depth - 1)
        self.last = None
        return (everything, *body, everything)

    def closing(self) -> list[Step]:
        found: list[Step] = []
        while self.held:
            found += self.queue_step(closing=True)
        while self.owed:
            found.append(self.flag("SetFlag", self.owed.pop()))
        while self.up and self.number(0, 9):
            found.append(self.flag("WaitFlag", self.up.pop()))
        self.up.clear()
        return found

    # Synchronisation

    def ordered(self, step: Step) -> list[Step]:
        """A careful author's step: after the last one, unless it slips."""
        before, self.last = self.last, step.pipe
        if not self.careful or before is None or not self.number(0, 11):
            return [step]
        if not self.number(0, 5):
            return [Step("asc.PipeBarrier(asc.PIPE_ALL)", "all"), step]
        if before == step.pipe:
            return [step] if before == S else [self.barrier(before), step]
        key = (before, step.pipe, self.number(0, 1))
        return [self.flag("SetFlag", key), self.flag("WaitFlag", key), step]

    def sync(self) -> list[Step]:
        what = self.pick(*SYNCS)
        if what == "all":
            return [Step("asc.PipeBarrier(asc.PIPE_ALL)", "all")]
        if what == "Wait" and self.up:
            return [self.flag("WaitFlag", self.up.pop(self.number(0, len(self.up) - 1)))]
        if what == "Set" and self.owed and self.number(0, 1):
            return [self.flag("SetFlag", self.owed.pop())]
        if what == "barrier":
            return [self.barrier(self.number(V, MTE3))]
        free = [pipe for pipe in (V, MTE2, MTE3) if pipe not in [key[1] for key in self.owed]]
        if what == "S waits" and free:  # a pipe that waits itself would keep S for ever
            key = (self.draw(st.sampled_from(free)), S, 2)
            return [self.flag("SetFlag", key), self.flag("WaitFlag", key)]
        source, target = self.draw(st.permutations(range(4)))[:2]
        key = (source, target, self.number(0, 1))
        if what == "early Wait" and target != S:
            self.owed.append(key)
            return [self.flag("WaitFlag", key), self.op(OF_PIPE[target]), self.op()]
        if key not in self.up or not self.number(0, 9):
            self.up.append(key)
            return [self.flag("SetFlag", key)]
        return []

    def barrier(self, pipe: int) -> Step:
        return Step(f"asc.PipeBarrier(asc.PIPE_{PIPES[pipe]})", "barrier", pipe)

    def flag(self, call: str, key: tuple[int, int, int]) -> Step:
        source, target, number = key
        side = source if call == "SetFlag" else target
        if self.number(0, 3):
            text = f"asc.{call}(asc.HardEvent.{PIPES[source]}_{PIPES[target]}, {number})"
        else:
            text = f"asc.TQueSync(asc.PIPE_{PIPES[source]}, asc.PIPE_{PIPES[target]}).{call}({number})"
        return Step(text, call[:3], side, key=key)

    # Queues

    def queue_step(self, closing: bool = False) -> list[Step]:
        """One step of some buffer's round: Alloc, EnQue, DeQue, Free."""
        number = self.number(0, len(self.queues) - 1)
        room = sum(each[0] == number for each in self.held) < self.queues[number].buffers
        if not closing and room and (not self.held or self.number(0, 1)):
            return [self.said(number, "AllocTensor", f"v{self.names}", "OCCUPIED")]
        if not self.held:
            return []
        at = self.number(0, len(self.held) - 1)
        number, name, state = self.held[at]
        if state == "OCCUPIED":
            return [self.said(number, "EnQue", name, "ENQUE", at)]
        if state == "DEQUE":
            return [self.said(number, "FreeTensor", name, "", at)]
        at = next(place for place, each in enumerate(self.held) if each[0] == number and each[2] == "ENQUE")
        return [self.said(number, "DeQue", f"v{self.names}", "DEQUE", at)]

    def said(self, number: int, call: str, name: str, state: str, at: int | None = None) -> Step:
        if at is not None:
            self.held.pop(at)
        if state:
            self.held.append((number, name, state))
        takes = call in ("EnQue", "FreeTensor")
        self.names += not takes
        argument = name if takes else "asc.float32"
        return Step(f"{'' if takes else f'{name} = '}q{number}.{call}({argument})", call, key=(number, name))

    # Ops

    def tensor(self, *, filled: bool = False) -> tuple[str, int, int]:
        """A name, where in it, and how many elements are left from there on."""
        mine = [name for _, name, state in self.held if state in ("OCCUPIED", "DEQUE")]
        if mine and self.number(0, 1):
            return self.pick(*mine), self.pick(0, 8), TILE
        return "t", self.pick(*WHERE), ELEMENTS

    def op(self, ops: tuple[str, ...] = OPS) -> Step:
        what, n = self.pick(*ops), self.pick(*COUNT)
        (d, at, room), (a, a_at, a_room), (b, b_at, b_room) = self.tensor(), self.tensor(), self.tensor()
        n = min(n, room - at, a_room - a_at, b_room - b_at)
        to, one, two = (d, 4 * at), (a, 4 * a_at), (b, 4 * b_at)
        reads = {"Add": (run(*one, n), run(*two, n)), "Axpy": (run(*one, n), run(*to, n)), "fill": ()}
        text = {
            "Add": f"asc.Add({d}[{at}], {a}[{a_at}], {b}[{b_at}], {n})",
            "Axpy": f"asc.Axpy({d}[{at}], {a}[{a_at}], 0.5, {n})",
            "Adds": f"asc.Adds({d}[{at}], {a}[{a_at}], s, {n})",
            "copy": f"asc.DataCopy({d}[{at}], {a}[{a_at}], {n})",
            "fill": f"asc.Duplicate({d}[{at}], 2.0, {room - at})",
        }
        if what in text:
            written = run(*to, room - at if what == "fill" else n)
            return Step(text[what], "op", V, reads.get(what, (run(*one, n),)), (written,))
        if what in ("masked", "sum"):
            return self.repeats(what)
        if what in ("get", "put", "get GM", "put GM"):
            return self.scalar(what, d, at)
        return self.transfer(what, d, at, min(n, room - at))

    def repeats(self, what: str) -> Step:
        """Of two repeats: 40 of 64 lanes each, or a sum of each."""
        at, a_at = self.pick(*WHERE[:6]), self.pick(*WHERE)
        if what == "sum":
            text, reads = f"asc.WholeReduceSum(t[{at}], t[{a_at}], 64, 2, 1, 1, 8)", (run("t", 4 * a_at, 128),)
            return Step(text, "op", V, reads, (run("t", 4 * at, 2),))
        lanes = [tuple(run("t", 4 * (first + 64 * repeat), 40) for repeat in range(2)) for first in (a_at, at)]
        text = f"asc.Adds(t[{at}], t[{a_at}], 1.0, 40, 2, asc.UnaryRepeatParams(1, 1, 8, 8))"
        return Step(text, "op", V, lanes[0], lanes[1])

    def scalar(self, what: str, d: str, at: int) -> Step:
        at += self.number(0, 3)
        name = "g" if what.endswith("GM") else d
        touched = (run(name, 4 * at, 1),)
        if what.startswith("get"):
            return Step(f"s = {name}.GetValue({at})", "get", S, touched)
        return Step(f"{name}.SetValue({at}, s)", "put", S, (), touched)

    def transfer(self, what: str, d: str, at: int, n: int) -> Step:
        """DataCopy between GM and UB, of a run or of two rows of 32 bytes with gaps."""
        there = self.pick(*WHERE)
        inward = what.endswith("in")
        if what.startswith("rows"):
            gap, other = self.number(0, 2), self.number(0, 2)
            near = tuple(run(d, 4 * at + 32 * (1 + gap) * row, 8) for row in range(2))
            far = tuple(run("g", 4 * there + 32 * (1 + other) * row, 8) for row in range(2))
            params = f"asc.DataCopyParams(2, 1, {other if inward else gap}, {gap if inward else other})"
        else:
            n = min(n, ELEMENTS - there)
            near, far, params = (run(d, 4 * at, n),), (run("g", 4 * there, n),), str(n)
        if inward:
            return Step(f"asc.DataCopy({d}[{at}], g[{there}], {params})", "op", MTE2, far, near)
        return Step(f"asc.DataCopy(g[{there}], {d}[{at}], {params})", "op", MTE3, near, far)


def run(name: str, lo: int, elements: int) -> Place:
    return name, lo, lo + 4 * elements


@st.composite
def programs(draw: st.DrawFn, most: int = 14) -> Program:
    """Programs of a few dozen commands, half of them by an author who puts nearly everything in order."""
    kinds = st.builds(Queue, st.sampled_from(sorted(QUEUES)), st.integers(1, 2))
    queues = tuple(draw(st.lists(kinds, max_size=2)))
    author = Author(draw, queues, draw(st.booleans()))
    body = author.block(most, 2)
    depth, blocks = draw(st.sampled_from([32, 5])), draw(st.sampled_from([1, 1, 2, 3]))
    return Program(queues, body, depth, blocks, draw(st.sampled_from([0, 64, ELEMENTS])))
