"""Whatever loops made a log, its text unfolds to the same ops, and times change nothing in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ops import folding
from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.difference import difference
from pytest_kernbench.simulator.ops.entries import Entry, Reading
from pytest_kernbench.simulator.ops.folding import Item
from pytest_kernbench.simulator.ops.log import NONE, OpLog, Row
from pytest_kernbench.simulator.ops.text import parse, structure

FEW = settings(max_examples=25, deadline=None)
UNITS = ("MATH", "DMA_R", "IPCQ.E", "odd unit")
NAMES = ("add", "load", "send", "loop", "9 lives", 'quote"d')
TENSORS = ("K", "scratch", "slot", "a  tensor -> x, y")
REGIONS = ("", "QK", "tree/inner", "two words")


@dataclass(frozen=True)
class Said:
    """An op of a made-up kernel; each operand is (tensor, first offset, size, written, step of each loop around it)."""

    unit: str
    name: str
    shape: tuple[int, ...]
    bytes: int
    work: int
    runs: int
    peer: int
    waits: int  # for the op so many rows before in the program, 0 for none
    operands: tuple[tuple[str, int, int, bool, tuple[int, ...]], ...]
    parts: tuple[Said | Repeat, ...] = ()  # what it is made of


@dataclass(frozen=True)
class Repeat:
    count: int
    body: tuple[Said | Repeat, ...]


@dataclass
class Author:
    """Writes rows; `tick` makes the times."""

    tick: int = 1
    log: OpLog = field(default_factory=OpLog)
    rows: dict[int, list[int]] = field(default_factory=dict)

    def program(self, name: str, body: tuple[Said | Repeat, ...]) -> None:
        self.log.programs.append(name)
        self.log.site_id(self.say.__code__, 0)
        self.rows[len(self.log.programs) - 1] = []
        self.say(body, ())

    def say(self, body: tuple[Said | Repeat, ...], indices: tuple[int, ...], parent: int = NONE) -> None:
        for each in body:
            if isinstance(each, Repeat):
                for index in range(each.count):
                    self.say(each.body, (*indices, index), parent)
            else:
                row = self.row(each, indices, parent)
                self.say(each.parts, indices, row)

    def row(self, op: Said, indices: tuple[int, ...], parent: int) -> int:
        log, program = self.log, len(self.log.programs) - 1
        first = len(log.operand_cells) // 3
        operands = sorted(op.operands, key=lambda operand: operand[3])
        for tensor, offset, size, _, steps in operands:
            moved = offset + sum(step * index for step, index in zip(steps, indices, strict=False))
            log.operand_cells.extend((log.labels.id(tensor), moved, size))
        cells = [NONE] * columns.WIDTH
        said = self.rows[program]
        after = said[-op.waits] if 0 < op.waits <= len(said) and parent == NONE else NONE
        time = len(log) * self.tick
        given = {
            columns.NAME: log.names.id(op.name), columns.UNIT: log.units.id(op.unit), columns.PROGRAM: program,
            columns.ISSUE: time, columns.START: time, columns.FREE: time, columns.END: time + self.tick,
            columns.BYTES: op.bytes, columns.CHARGED: op.bytes, columns.WORK: op.work,
            columns.SHAPE: log.shapes.id(op.shape) if op.shape else NONE, columns.OPERANDS: first,
            columns.READS: sum(not operand[3] for operand in operands),
            columns.WRITES: sum(operand[3] for operand in operands), columns.AFTER: after, columns.PEER: op.peer,
            columns.PARENT: parent, columns.REGION: log.regions.id(REGIONS[op.work % 4]), columns.SITE: 0,
            columns.RUNS: op.runs,
        }  # fmt: skip
        for column, value in given.items():
            cells[column] = value
        row = log.open(tuple(cells))
        if parent == NONE:
            said.append(row)
        return row


@st.composite
def operands(draw: st.DrawFn) -> tuple[str, int, int, bool, tuple[int, ...]]:
    steps = draw(st.lists(st.sampled_from((0, 64, 0x1000, 7)), max_size=3))
    offset, size = draw(st.integers(0, 9)) * 64, draw(st.sampled_from((32, 64)))
    return draw(st.sampled_from(TENSORS)), offset, size, draw(st.booleans()), tuple(steps)


@st.composite
def ops(draw: st.DrawFn, *, made_of_others: bool = True) -> Said:
    shape, size = draw(st.sampled_from(((), (8,), (8, 128)))), draw(st.sampled_from((0, 64)))
    work, runs, waits = draw(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)))
    touched = tuple(draw(st.lists(operands(), max_size=5)))
    parts = draw(kernels(made_of_others=False, depth=1)) if made_of_others and draw(st.integers(0, 3)) == 0 else ()
    unit, name, peer = draw(st.sampled_from(UNITS)), draw(st.sampled_from(NAMES)), draw(st.sampled_from((NONE, 0, 2)))
    return Said(unit, name, shape, size, work, runs, peer, waits, touched, parts)


@st.composite
def kernels(draw: st.DrawFn, *, made_of_others: bool = True, depth: int = 3) -> tuple[Said | Repeat, ...]:
    """A few things to say, among which loops of such."""
    found: list[Said | Repeat] = []
    for _ in range(draw(st.integers(0, 3))):
        if depth and draw(st.booleans()):
            body = draw(kernels(made_of_others=made_of_others, depth=depth - 1))
            found.append(Repeat(draw(st.integers(2, 4)), body))
        else:
            found.append(draw(ops(made_of_others=made_of_others)))
    return tuple(found)


def moving(name: str, offset: int, *steps: int) -> Said:
    return Said("MATH", name, (8,), 0, 8, 1, NONE, 0, (("K", offset, 64, False, steps),))


def of_entry(entry: Entry) -> tuple[object, ...]:
    """What an entry says, with ranges at equal distances apart again."""
    ranges = [
        (each.tensor, each.offset + number * each.step, each.size, each.written)
        for each in entry.operands
        for number in range(each.count)
    ]
    return entry.unit, entry.name, entry.shape, entry.bytes, entry.work, entry.runs, ranges


def of_row(row: Row) -> tuple[object, ...]:
    ranges = [(each.tensor, each.offset, each.size, each.written) for each in row.operands]
    return row.unit, row.name, row.shape, row.bytes, row.work, max(row.runs, 1), ranges


def ops_in(kernel: tuple[Said | Repeat, ...]) -> int:
    return sum(ops_in(each.body) if isinstance(each, Repeat) else 1 for each in kernel)


def written(programs: list[tuple[Said | Repeat, ...]], tick: int = 1) -> OpLog:
    author = Author(tick=tick)
    for number, body in enumerate(programs):
        author.program(f"PE{number}", body)
    return author.log


def assert_unfolds(log: OpLog) -> None:
    """The text has every entry of the log, and every entry says what its row does."""
    entries = parse(structure(log))

    assert entries == Reading(log).entries()
    for number, name in enumerate(log.programs):
        assert list(map(of_entry, entries[name])) == list(map(of_row, log.where(program=number)))


@FEW
@given(st.lists(kernels(), max_size=3))
def test_the_text_unfolds_to_the_ops_that_were_written(programs: list[tuple[Said | Repeat, ...]]) -> None:
    log = written(programs)

    assert_unfolds(log)


def test_ops_that_differ_in_one_thing_are_told_apart() -> None:
    row = tuple(("K", offset, 64, False, ()) for offset in (0, 64, 128, 192))
    op = Said("MATH", "add", (8,), 64, 8, 1, NONE, 0, row)
    last = [("K", 300, 64, False, ()), ("K", 192, 64, True, ()), ("V", 192, 64, False, ()), ("K", 192, 32, False, ())]
    others = [
        *({"operands": (*row[:3], each)} for each in last), {"operands": row[:3]}, {"operands": (*row, last[0])},
        {"unit": "GEMM"}, {"name": "sub"}, {"shape": (4,)}, {"bytes": 32}, {"work": 9}, {"runs": 2}, {"peer": 1},
        {"waits": 1}, {"parts": (op,)},
    ]  # fmt: skip

    assert_unfolds(written([tuple(each for other in others for each in (op, replace(op, **other)))]))


@FEW
@given(st.lists(kernels(), max_size=2))
def test_the_text_is_the_same_whatever_the_times(programs: list[tuple[Said | Repeat, ...]]) -> None:
    assert structure(written(programs, tick=1)) == structure(written(programs, tick=1000))


@pytest.mark.parametrize("counts", [(2, 2, 3), (5, 2, 7), (3, 6, 4)], ids=lambda counts: "x".join(map(str, counts)))
def test_a_nest_of_loops_is_as_long_as_the_kernel_that_says_it(counts: tuple[int, int, int]) -> None:
    """Every op of the nest moves with the loops around it in its own way; nothing is unrolled."""
    outer, middle, inner = counts
    add, mul = moving("add", 0, 1 << 20, 1 << 14, 64), moving("mul", 0, 1 << 20, 1 << 14, 128)
    sub, log, exp = moving("sub", 0, 1 << 20, 64), moving("log", 1 << 16, 1 << 20, -64), moving("exp", 0, 1 << 14)
    nest = Repeat(outer, (exp, Repeat(middle, (sub, Repeat(inner, (add, mul)), log))))

    lines = structure(written([(exp, nest)])).split("\n\n")[1].splitlines()

    assert [line.strip() for line in lines] == [
        "PE0:",
        "MATH    exp        8          K+0x0:64",
        f"loop {outer} i:",
        "MATH    exp        8          K+0x0(+0x4000i):64",
        f"loop {middle} j:",
        "MATH    sub        8          K+0x0(+0x100000i)(+0x40j):64",
        f"loop {inner} k:",
        "MATH    add        8          K+0x0(+0x100000i)(+0x4000j)(+0x40k):64",
        "MATH    mul        8          K+0x0(+0x100000i)(+0x4000j)(+0x80k):64",
        "MATH    log        8          K+0x10000(+0x100000i)(-0x40j):64",
    ]


def test_numbers_that_only_seem_to_grow_evenly_make_no_loop() -> None:
    """Loops are looked for by a mix of the numbers; here the mixes grow evenly and the numbers do not."""
    one, other = folding._MIX[:2]
    items = [Item("op", numbers, lines=3) for numbers in ((0, 0), (1, 0), (2 + other, -one))]

    assert folding.fold(items) == tuple(items)


@FEW
@given(kernels().filter(ops_in), st.data())
def test_the_first_op_that_differs_is_the_one_that_was_changed(
    kernel: tuple[Said | Repeat, ...], data: st.DataObject
) -> None:
    golden, log = written([kernel]), written([kernel])
    row = data.draw(st.integers(0, len(log) - 1))
    log.cells[row * columns.WIDTH + columns.SHAPE] = log.shapes.id((3, 5, 7))

    found = difference(structure(golden), structure(log))

    assert (found.program, found.op) == ("PE0", row)
    assert "-> 3x5x7" in found.text.splitlines()[0]
