"""Random programs of the AHBM: lines and loops on up to three PEs, cut from one sequence so that none hangs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

BLOCK = "(4, 4)"  # float32: 64 bytes
BYTES = 64
ROWS = 8  # of the tensor `t` in the HBM of PE0, of 16 bytes each
STATE = ("a", "b", "c")  # buffers of every PE; `aa` is `a` by a handle that nothing is waited for through
MATH = ("add", "exp", "mul")


@dataclass(frozen=True)
class Step:
    """A line of one PE: what it says, the names it reads and the one it writes, a row of `t`, the other PE."""

    pe: int
    text: str
    what: str
    sources: tuple[str, ...] = ()
    target: str = ""
    row: int = 0
    peer: int = -1
    count: int = 0
    depth: int = 0  # scopes around it


@dataclass(frozen=True)
class Loop:
    count: int
    body: tuple[Step | Loop, ...]


@dataclass(frozen=True)
class Program:
    pes: int
    slots: int
    body: tuple[Step | Loop, ...]

    @property
    def head(self) -> list[str]:
        return [
            "def kernel(t, o, *, tl):",
            f"    a, b, c = tl.full({BLOCK}, 0.5), tl.full({BLOCK}, 2.0), tl.full({BLOCK}, -1.0)",
            "    aa, bb, cc = (tl.trans(tl.trans(each)) for each in (a, b, c))",
            "    pending = [tl.wait(c)]",
        ]

    def lines(self) -> tuple[list[str], dict[int, int]]:
        """The source, and the line of each step by its identity."""
        lines = list(self.head)
        where: dict[int, int] = {}
        for pe in range(self.pes):
            lines.append(f"    if tl.program_id(0) == {pe}:")
            self._write(self.body, pe, 2, lines, where)
            lines.append("        pass")
        lines += ["    tl.wait(*pending)"]
        lines += [f"    tl.wait(*[tl.store(o + 16 * at, each) for at, each in enumerate(({', '.join(STATE)}))])"]
        return lines, where

    def _write(
        self, body: tuple[Step | Loop, ...], pe: int, depth: int, lines: list[str], where: dict[int, int]
    ) -> None:
        for each in body:
            if isinstance(each, Loop):
                lines.append(f"{'    ' * depth}for _ in range({each.count}):")
                self._write(each.body, pe, depth + 1, lines, where)
                lines.append(f"{'    ' * (depth + 1)}pass")
            elif each.pe == pe:
                where[id(each)] = len(lines) + 1
                if each.text:  # a scope is left without a line of its own
                    lines.append("    " * (depth + each.depth) + each.text)

    def source(self) -> str:
        return "\n".join(self.lines()[0]) + "\n"

    def unrolled(self) -> Iterator[tuple[int, Step]]:
        """Every step with its line, in the one sequence, as often as it is carried out."""
        where = self.lines()[1]

        def walk(body: tuple[Step | Loop, ...]) -> Iterator[tuple[int, Step]]:
            for each in body:
                if isinstance(each, Loop):
                    for _ in range(each.count):
                        yield from walk(each.body)
                else:
                    yield where[id(each)], each

        yield from walk(self.body)

    def __str__(self) -> str:
        return f"{self.pes} PEs, {self.slots} slots\n{self.source()}"


@dataclass
class Author:
    """Draws steps; a message is a send of one PE and, at once in the sequence, a receive of its neighbour."""

    draw: st.DrawFn
    pes: int
    slots: int
    careful: bool
    names: int = 0
    held: dict[tuple[int, int], list[str]] = field(default_factory=dict)  # by sender and receiver: slots not released
    local: list[str] = field(default_factory=list)  # handles of the scope that is being drawn

    def pick(self, *choices: str) -> str:
        return self.draw(st.sampled_from(choices))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def block(self, most: int, depth: int) -> tuple[Step | Loop, ...]:
        found: list[Step | Loop] = []
        for _ in range(self.number(1, most)):
            kinds = ["step"] * 5 + ["scope"] + ["message"] * (2 * (self.pes > 1)) + ["loop"] * (depth > 0)
            kind, pe = self.pick(*kinds), self.number(0, self.pes - 1)
            if kind == "loop" and not any(self.held.values()):
                found.append(Loop(self.number(2, 3), self.block(5, depth - 1)))
            elif kind == "scope":
                found += self.scope(pe)
            elif kind == "message":
                found += self.message(pe)
            else:
                found += self.step(pe)
        return (*found, *self.closing())

    def closing(self) -> list[Step]:
        """Every slot that is still held is given back, so that a loop ends as it began."""
        return [step for (_, pe), names in sorted(self.held.items()) for step in self.releases(pe, names)]

    def releases(self, pe: int, names: list[str], most: int = 9) -> list[Step]:
        found: list[Step] = []
        while names and most:
            name, most = names.pop(0), most - 1
            found.append(Step(pe, f"tl.release({name})", "release", (name,)))
        return found

    # What a PE says

    def readable(self, pe: int) -> str:
        slots = [name for (_, receiver), names in self.held.items() if receiver == pe for name in names]
        return self.pick(*STATE, *(2 * each for each in STATE), *slots, *self.local)

    def writable(self) -> str:
        return self.pick(*STATE, *self.local)

    def step(self, pe: int, depth: int = 0) -> list[Step]:
        what = self.pick("math", "math", "load", "into", "store", "gemm", "add", "back", "dot", "wait")
        said = self.said(pe, what, depth)
        if self.careful and what != "wait" and self.number(0, 11):
            return [said, self.settles(pe, said, depth)]
        return [said]

    def settles(self, pe: int, said: Step, depth: int) -> Step:
        """The wait of a careful author for what was said last."""
        if said.what in ("math", "dot"):
            return Step(pe, f"tl.wait({said.target})", "await", (said.target,), depth=depth)
        return self.waits(pe, 1, depth)

    def waits(self, pe: int, count: int, depth: int) -> Step:
        return Step(pe, f"tl.wait(*pending[-{count}:])", "wait", count=count, depth=depth)

    def said(self, pe: int, what: str, depth: int) -> Step:
        x, y, target, row = self.readable(pe), self.readable(pe), self.writable(), 2 * self.number(0, 2)
        at = f"t + {4 * row}"
        gemm = f"pending.append(tl.composite('gemm', {x}, tl.ref({at}, {BLOCK}), trans_b=True"
        if what == "math":
            op = self.pick(*MATH)
            operands = (x,) if op == "exp" else (x, y)
            return Step(pe, f"tl.{op}({', '.join(operands)}, out={target})", "math", operands, target, depth=depth)
        if what == "load":
            text = f"pending.append(tl.load({at}, {BLOCK})); tl.maximum(pending[-1], 0.5, out={target})"
            return Step(pe, text, "load", (), target, row, depth=depth)
        if what == "into":
            text = f"pending.append(tl.load({at}, {BLOCK}, out={target}))"
            return Step(pe, text, "into", (), target, row, depth=depth)
        if what == "store":
            return Step(pe, f"pending.append(tl.store({at}, {x}))", "store", (x,), "", row, depth=depth)
        if what == "gemm":
            return Step(pe, f"{gemm}, out={target}))", "gemm", (x,), target, row, depth=depth)
        if what == "add":
            text = f"{gemm}, epilogue=(('add', {y}),), out={target}))"
            return Step(pe, text, "gemm", (x, y), target, row, depth=depth)
        if what == "back":
            to = 2 * self.number(0, 2)
            return Step(pe, f"{gemm}, out=t + {4 * to}))", "back", (x,), "", row, count=to, depth=depth)
        if what == "dot":
            return Step(pe, f"tl.assign({target}, tl.dot({x}, {y}, trans_b=True))", "dot", (x, y), target, depth=depth)
        return self.waits(pe, self.number(1, 3), depth)

    def scope(self, pe: int) -> list[Step]:
        """A tile's worth of steps in a scratch scope, on handles of its own."""
        name, row = self.name(), 2 * self.number(0, 2)
        made = self.pick("load", "fill", "gemm")
        at = f"tl.ref(t + {4 * row}, {BLOCK})"
        text = {
            "load": f"{name} = tl.load(t + {4 * row}, {BLOCK}); pending.append({name})",
            "fill": f"{name} = tl.full({BLOCK}, 0.25); pending.append({name})",
            "gemm": f"{name} = tl.composite('gemm', a, {at}, trans_b=True); pending.append({name})",
        }[made]
        found = [Step(pe, "with tl.scratch_scope():", "enter")]
        found.append(Step(pe, text, f"new {made}", ("a",) if made == "gemm" else (), name, row, depth=1))
        if made == "gemm" and self.number(0, 5):
            found.append(self.waits(pe, 1, 1))
        self.local.append(name)
        for _ in range(self.number(1, 3)):
            found += self.step(pe, 1)
        self.local.clear()
        forget = "pending = [each for each in pending if not hasattr(each, 'tl') or each.allocation.alive]"
        return [*found, Step(pe, "", "leave", depth=1), Step(pe, forget, "forget")]

    # Messages

    def message(self, pe: int) -> list[Step]:
        right = pe + 1 < self.pes and (pe == 0 or bool(self.number(0, 1)))
        peer, direction, back = (pe + 1, "E", "W") if right else (pe - 1, "W", "E")
        held = self.held.setdefault((pe, peer), [])
        found = self.releases(peer, held, len(held) - self.slots + 1) if len(held) >= self.slots else []
        x, name = self.readable(pe), self.name()
        found.append(Step(pe, f"pending.append(tl.send({direction!r}, {x}))", "send", (x,), "", peer=peer))
        if self.careful and self.number(0, 11):
            found.append(self.waits(pe, 1, 0))
        found += self.receive(pe, peer, back, name)
        return found

    def receive(self, sender: int, pe: int, direction: str, name: str) -> list[Step]:
        how = self.pick("recv", "recv_async", "scope") if self.slots == 1 else self.pick("recv", "recv_async")
        text = f"{name} = tl.{'recv' if how == 'scope' else how}({direction!r}, {BLOCK})"
        target = self.writable()
        if how == "scope":  # its exit gives the slot back, after its readers
            found = [Step(pe, "with tl.scratch_scope():", "enter")]
            found.append(Step(pe, text, "recv", (), name, peer=sender, depth=1))
            found.append(Step(pe, f"tl.exp({name}, out={target})", "math", (name,), target, depth=1))
            return [*found, Step(pe, "", "leave", depth=1)]
        found = [Step(pe, text, "recv" if how == "recv" else "ask", (), name, peer=sender)]
        if how == "recv_async":
            found += self.step(pe) if self.number(0, 1) else []
            found.append(Step(pe, f"tl.wait({name})", "take", (), name, peer=sender))
        self.held[sender, pe].append(name)
        return found


@st.composite
def programs(draw: st.DrawFn, most: int = 12) -> Program:
    """Programs of a few dozen ops, half of them by an author who waits for nearly everything."""
    pes, slots = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    author = Author(draw, pes, slots, draw(st.booleans()))
    return Program(pes, slots, author.block(most, 2))
