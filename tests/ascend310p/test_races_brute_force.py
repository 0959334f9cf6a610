"""The race checker against reachability over all pairs of commands, byte by byte, on random programs.

The oracle has three moments a command (issue, start, end) and edges between them; it knows no clocks and no buckets.
It forgets by the rule that the checker states: of an access that a later one of its pipe and kind covers, or a later
conflicting one that is ordered after it, the later one stands.
"""

from itertools import combinations
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import DeadlockError

PIPES = ("S", "V", "MTE2", "MTE3")
HEAD = """def kernel(x, *, asc):
    pipe, buf = asc.TPipe(), asc.TBuf(); pipe.InitBuffer(buf, 1536); t = buf.Get(asc.float32); g = asc.GlobalTensor(asc.float32); g.SetGlobalBuffer(x)
"""  # noqa: E501
FIRST_LINE = 3


class Command(NamedTuple):
    """A line of a program: its pipe, the bytes it reads and writes (UB from 0, GM from 10 000), and what it is."""

    text: str
    pipe: int
    reads: tuple[tuple[int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    kind: str = "op"
    key: Any = None


PLACES = st.sampled_from([0, 8, 16, 24, 64, 120, 128])
COUNTS = st.sampled_from([8, 16, 64, 136])


def span(at: int, count: int, base: int = 0) -> tuple[int, int]:
    return base + 4 * at, base + 4 * (at + count)


@st.composite
def commands(draw: st.DrawFn) -> list[Command]:
    """Straight lines; a Wait only of a flag that is set."""
    made: list[Command] = []
    up: list[tuple[int, int]] = []
    for what in draw(st.lists(st.sampled_from(KINDS), min_size=4, max_size=22)):
        if what == "Set":
            source, target = draw(st.permutations(range(4)).map(lambda order: tuple(order[:2])))
            up.append((source, target))
            made.append(flag("SetFlag", source, target))
        elif what == "Wait" and up:
            made.append(flag("WaitFlag", *up.pop(draw(st.integers(0, len(up) - 1)))))
        elif what not in ("Set", "Wait"):
            made.append(said(draw, what))
    return made


KINDS = ("Add", "Axpy", "in", "out", "copy", "get", "put", "barrier", "all", "Set", "Wait", "Set", "Wait")


def flag(call: str, source: int, target: int) -> Command:
    key = (source, target)
    event = f"{PIPES[source]}_{PIPES[target]}"
    side = source if call == "SetFlag" else target
    return Command(f"asc.{call}(asc.HardEvent.{event}, 0)", side, kind=call, key=key)


def said(draw: st.DrawFn, what: str) -> Command:
    d, a, b, n = draw(PLACES), draw(PLACES), draw(PLACES), draw(COUNTS)
    if what == "Add":
        return Command(f"asc.Add(t[{d}], t[{a}], t[{b}], {n})", 1, (span(a, n), span(b, n)), (span(d, n),))
    if what == "Axpy":
        return Command(f"asc.Axpy(t[{d}], t[{a}], 2.0, {n})", 1, (span(a, n), span(d, n)), (span(d, n),))
    if what == "in":
        return Command(f"asc.DataCopy(t[{d}], g[{a}], {n})", 2, (span(a, n, 10_000),), (span(d, n),))
    if what == "out":
        return Command(f"asc.DataCopy(g[{d}], t[{a}], {n})", 3, (span(a, n),), (span(d, n, 10_000),))
    if what == "copy":
        return Command(f"asc.DataCopy(t[{d}], t[{a}], {n})", 1, (span(a, n),), (span(d, n),))
    if what == "get":
        return Command(f"t.GetValue({d})", 0, (span(d, 1),), kind="get")
    if what == "put":
        return Command(f"t.SetValue({d}, 1.0)", 0, (), (span(d, 1),), kind="put")
    if what == "barrier":
        pipe = draw(st.integers(1, 3))
        return Command(f"asc.PipeBarrier(asc.PIPE_{PIPES[pipe]})", pipe, kind="barrier")
    return Command("asc.PipeBarrier(asc.PIPE_ALL)", 0, kind="all")


# The oracle


class Order:
    """Reachability between moments: (command, "issue" | "start" | "end")."""

    def __init__(self, program: list[Command]) -> None:
        self.program = program
        self.after: dict[Any, set[Any]] = {}
        raised: dict[Any, list[int]] = {}
        for number, command in enumerate(program):
            for earlier in range(number):
                self.edge((earlier, "issue"), (number, "issue"))
                if program[earlier].pipe == command.pipe:
                    self.edge((earlier, "start"), (number, "start"))
            self.edge((number, "issue"), (number, "start"))
            self.edge((number, "start"), (number, "end"))
            self.own_edges(number, command, raised)

    def edge(self, before: Any, after: Any) -> None:
        self.after.setdefault(before, set()).add(after)

    def own_edges(self, number: int, command: Command, raised: dict[Any, list[int]]) -> None:
        mine = [at for at in range(number) if self.program[at].pipe == command.pipe]
        rest = range(number + 1, len(self.program))
        if command.kind in ("get", "all") or (command.kind == "WaitFlag" and command.pipe == 0):
            for later in rest:
                self.edge((number, "end"), (later, "issue"))
        if command.kind in ("SetFlag", "barrier"):
            for earlier in mine:
                self.edge((earlier, "end"), (number, "end" if command.kind == "SetFlag" else "start"))
        if command.kind == "all":
            for earlier in range(number):
                self.edge((earlier, "end"), (number, "start"))
        if command.kind == "SetFlag":
            raised.setdefault(command.key, []).append(number)
        if command.kind == "WaitFlag":
            self.edge((raised[command.key].pop(0), "end"), (number, "start"))
        if command.kind in ("barrier", "WaitFlag") and command.pipe:
            for later in rest:
                if self.program[later].pipe == command.pipe:
                    self.edge((number, "end"), (later, "start"))

    def reach(self) -> set[tuple[int, int]]:
        """(a, b): the end of a comes before the start of b."""
        found = set()
        for number in range(len(self.program)):
            seen, todo = set(), [(number, "end")]
            while todo:
                at = todo.pop()
                if at not in seen:
                    seen.add(at)
                    todo += self.after.get(at, ())
            found |= {(number, other) for other, moment in seen if moment == "start"}
        return found


def holds(spans: tuple[tuple[int, int], ...], byte: int) -> bool:
    return any(lo <= byte < hi for lo, hi in spans)


def expected(program: list[Command]) -> set[tuple[str, int, int]]:
    """(kind, line of the first, line of the second)."""
    before = Order(program).reach()
    by_s = [at for at, each in enumerate(program) if each.pipe == 0]
    in_order = before | set(combinations(by_s, 2))  # S is in order with itself, though its stores end later
    bytes_ = {byte for each in program for lo, hi in each.reads + each.writes for byte in range(lo, hi, 4)}
    found: dict[tuple[int, int], str] = {}
    for byte in sorted(bytes_):
        touching = [at for at, each in enumerate(program) if holds(each.reads + each.writes, byte)]
        for first, second in combinations(touching, 2):
            if (first, second) in in_order:
                continue
            for kind, write, writes in (("race-war", False, True), ("race-waw", True, True), ("race-raw", True, False)):
                one = program[first].writes if write else program[first].reads
                two = program[second].writes if writes else program[second].reads
                if (
                    holds(one, byte)
                    and holds(two, byte)
                    and not stands_for(program, before, first, second, (write, writes), byte)
                ):
                    found[first, second] = max(found.get((first, second), kind), kind, key=RANKS.index)
    return {(kind, first + FIRST_LINE, second + FIRST_LINE) for (first, second), kind in found.items()}


RANKS = ["race-war", "race-waw", "race-raw"]


def stands_for(
    program: list[Command], before: Any, first: int, second: int, write: tuple[bool, bool], byte: int
) -> bool:
    """Whether an access between the two stands for the first."""
    for other in range(first + 1, second):
        each = program[other]
        same = each.pipe == program[first].pipe and holds(each.writes if write[0] else each.reads, byte)
        if same and (each.pipe or write[0]):
            return True
        conflicts = each.writes + each.reads if all(write) else each.writes
        if holds(conflicts, byte) and (first, other) in before:
            return True
    return False


def racing(program: list[Command]) -> set[tuple[int, int]]:
    """By definition, with nothing forgotten: lines of commands that share a byte, one writing, in no order."""
    before = Order(program).reach()
    return {
        (first + FIRST_LINE, second + FIRST_LINE)
        for (first, one), (second, two) in combinations(enumerate(program), 2)
        if (one.pipe or two.pipe) and (first, second) not in before
        and (meet(one.writes, two.writes) or meet(one.writes, two.reads) or meet(one.reads, two.writes))
    }  # fmt: skip


def meet(one: tuple[tuple[int, int], ...], two: tuple[tuple[int, int], ...]) -> bool:
    return any(lo < high and low < hi for lo, hi in one for low, high in two)


def races_of(program: list[Command]) -> set[tuple[str, int, int]] | None:
    """What the checker finds; None if the program deadlocks: a flag that is set twice, and then PIPE_ALL."""
    source = HEAD + "\n".join(f"    {each.text}" for each in program)
    names: dict[str, Any] = {}
    exec(compile(source, "program.py", "exec"), names)
    core = Ascend310pCore()
    try:
        run = core.run(names["kernel"], core.tensor("x", 512, "float32"), check="collect", data=False)
    except DeadlockError:
        return None
    return {(h.kind, h.ops[0].site.line, h.ops[1].site.line) for h in run.hazards if h.kind.startswith("race")}


@pytest.mark.adr("0310", "3.5")
@settings(max_examples=60, deadline=None)
@given(program=commands())
def test_every_pair_that_nothing_orders_is_found_and_no_other(program: list[Command]) -> None:
    found = races_of(program)
    assert found is None or found == expected(program)


@pytest.mark.adr("0310", "3.5")
@settings(max_examples=100, deadline=None)
@given(program=commands())
def test_what_is_found_races_by_definition_and_a_program_with_a_race_has_a_finding(program: list[Command]) -> None:
    found, by_definition = races_of(program), racing(program)
    if found is not None:
        assert {(first, second) for _, first, second in found} <= by_definition
        assert bool(found) == bool(by_definition)
