"""The text form of an op log: `structure` says what and in which order, `timing` how long; both are kept as goldens.

No line of `structure` holds a row number or a cycle, so a change moves only the lines that it is about. Loops are
folded, and `parse` unfolds them to the entries that were written. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_kernbench.simulator.ops import folding
from pytest_kernbench.simulator.ops.critical import BLOCKING, critical_path, total_cycles
from pytest_kernbench.simulator.ops.entries import (
    Affine,
    Entry,
    Reading,
    Said,
    line,
    names_of,
    quoted,
    read_line,
    spans,
)
from pytest_kernbench.simulator.ops.folding import Item, Loop, Numbers, Part, Rows, leaves, without_numbers
from pytest_kernbench.simulator.ops.log import OpLog, Selection

VERSION = 1
LETTERS = "ijklmnopqrstuvwxyz"  # no hexadecimal digit among them


class FormatError(ValueError):
    """A text that is no op log of this version; `line` is the first that cannot be read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def heading(kind: str, log: OpLog) -> list[str]:
    """The format's version and what defines the run."""
    given = "  ".join(f"{key} {value}" for key, value in sorted(log.header.items()))
    return [f"# oplog {VERSION} {kind}", *([f"# {given}"] if given else [])]


def structure(log: OpLog) -> str:
    """What the log's programs did, in program order, without times: it survives a change of the cost model."""
    reading = Reading(log)
    tree = _Tree(reading)
    same: dict[tuple[object, ...], list[str]] = {}
    bodies: list[tuple[Item | Loop, ...]] = []
    for name, rows in zip(log.programs, reading.programs, strict=True):
        body = folding.fold(tree.items(rows))
        names = same.setdefault(tuple(part.whole for part in body), [])
        if not names:
            bodies.append(body)
        names.append(name)
    lines = heading("structure", log)
    lines.append(_totals(reading))
    for names, section in zip(same.values(), folding.share(bodies), strict=True):
        lines += ["", spans(names) + ":", *_Printer(tree).section(section)]
    return "\n".join(lines) + "\n"


def _totals(reading: Reading) -> str:
    units = Counter(reading.templates[said.template].unit for rows in reading.programs for said in rows)
    counts = ", ".join(f"{quoted(unit)} {count}" for unit, count in sorted(units.items()))
    return f"# {units.total()} ops: {counts}" if counts else "# 0 ops"


def timing(log: OpLog, columns: Sequence[str] = ()) -> str:
    """How long the run took: cycles, what each unit did, the critical path, when each region began and ended.

    `columns`: others of the log's columns, or one, to add up for each unit. Raises ValueError for one that it does not
    have.
    """
    everything, columns = log.all, [columns] if isinstance(columns, str) else columns
    for column in columns:
        if not hasattr(everything, column):
            raise ValueError(f"the log has no column {column!r}; added are {', '.join(log.more_columns) or 'none'}")
    lines = [*heading("timing", log), "", f"cycles {total_cycles(log)}", ""]
    return "\n".join([*lines, *_unit_lines(log, columns), "", *_path_lines(log), "", *_checkpoints(log)]) + "\n"


def _unit_lines(log: OpLog, columns: Sequence[str]) -> Iterator[str]:
    """What each kind of unit did, all programs together; a composite counts by its panels and sub-tiles."""
    everything = log.all
    for unit in sorted(log.units.values):
        rows = everything.where(unit=unit)
        if len(rows):
            yield "  ".join([f"{quoted(unit):<6}", f"{len(rows)} ops", *_sums(unit, rows), *_more_sums(rows, columns)])


def _sums(unit: str, rows: Selection) -> Iterator[str]:
    if unit == "CPU":
        waits = rows.where(name=tuple(BLOCKING))
        yield f"blocked {(waits.end - waits.start).sum()}"
    elif unit != "SCHED":
        yield f"busy {(rows.free - rows.start).sum()}"
        sums = {"bytes": rows.bytes.sum(), "charged": rows.charged.sum(), "work": rows.work.sum()}
        yield from (f"{name} {value}" for name, value in sums.items() if value)


def _more_sums(rows: Selection, columns: Sequence[str]) -> Iterator[str]:
    """Sums of the columns that were asked for, in that order; of whole numbers exactly."""
    for column in columns:
        total = getattr(rows, column).sum()
        yield f"{column} {int(total) if total.dtype.kind in 'biu' else format(float(total), '.6g')}"


def _path_lines(log: OpLog) -> Iterator[str]:
    """The critical path by unit and region, in the order in which it first meets them."""
    spent: Counter[tuple[str, str]] = Counter()
    for unit, row, start, end in critical_path(log):
        spent[unit, log[row].region] += end - start
    yield "critical path:"
    for (unit, region), cycles in spent.items():
        yield f"  {quoted(unit):<6}  {cycles}" + (f"  @{quoted(region)}" if region else "")


def _checkpoints(log: OpLog) -> Iterator[str]:
    """First issue and last end of every region; programs that agree share a line."""
    everything = log.all
    for region in log.regions.values:
        agreed: dict[tuple[int, int], list[str]] = {}
        for number, program in enumerate(log.programs):
            rows = everything.where(region=region, program=number)
            if len(rows):
                agreed.setdefault((int(rows.issue.min()), int(rows.end.max())), []).append(program)
        for (first, last), programs in agreed.items():
            yield f"@ {first}..{last}  {quoted(region) if region else '-'}  {spans(programs)}"


class _Key(NamedTuple):
    """What an op's item says: its template, and the folded body of its parts (None without)."""

    template: int
    body: int | None


class _Tree:
    """Ops with what they are made of as one item: a composite with its panels and sub-tiles."""

    def __init__(self, reading: Reading) -> None:
        self.templates = reading.templates
        self.bodies: list[tuple[Item | Loop, ...]] = []  # their numbers are to be taken from the item
        self._ids: dict[object, int] = {}
        self._memo: dict[object, tuple[tuple[Item | Loop, ...], int]] = {}

    def items(self, rows: Sequence[Said], depth: int = 0) -> list[Item]:
        """An item for each row of `depth`, with the deeper rows that follow it."""
        templates = self.templates
        found: list[Item] = []
        place = 0
        while place < len(rows):
            row = rows[place]
            end = place + 1
            while end < len(rows) and templates[rows[end].template].depth > depth:
                end += 1
            if end == place + 1:
                found.append(Item(_Key(row.template, None), row.offsets))
            else:
                found.append(self._with_body(row, self.items(rows[place + 1 : end], depth + 1)))
            place = end
        return found

    def _with_body(self, row: Said, items: list[Item]) -> Item:
        """Bodies that differ by where their operands begin are folded once."""
        first: dict[object, Numbers] = {}
        relative = [_moved(item, first.setdefault(item.key, item.numbers), -1) for item in items]
        memo = tuple(item.whole for item in relative)
        if memo not in self._memo:
            folded = folding.fold(relative)
            body = tuple(without_numbers(part) for part in folded)
            number = self._ids.setdefault(body, len(self._ids))
            if number == len(self.bodies):
                self.bodies.append(body)
            self._memo[memo] = folded, number
        folded, number = self._memo[memo]
        numbers = [n for leaf in leaves(folded) for n in _moved(leaf, first[leaf.key], 1).numbers]
        lines = 1 + sum(part.lines for part in folded)
        return Item(_Key(row.template, number), (*row.offsets, *numbers), lines)


def _moved(item: Item, by: Numbers, sign: int) -> Item:
    return Item(item.key, tuple(n + sign * m for n, m in zip(item.numbers, by, strict=True)), item.lines, item.steps)


class _Printer:
    def __init__(self, tree: _Tree) -> None:
        self._tree = tree

    def section(self, body: Sequence[folding.Line]) -> Iterator[str]:
        for each in body:
            if not isinstance(each, Part):
                yield from self._top([each], 2)
            elif each.first:
                yield f"  part {_part_name(each.number)}:"
                yield from self._top(each.body, 4)
            else:
                yield f"  part {_part_name(each.number)}"

    def _top(self, parts: Sequence[Item | Loop], indent: int) -> Iterator[str]:
        numbers = Rows(tuple(n for leaf in leaves(parts) for n in leaf.numbers))
        return self._lines(parts, indent, 0, 0, numbers)

    def _lines(self, parts: Sequence[Item | Loop], indent: int, depth: int, local: int, numbers: Rows) -> Iterator[str]:
        """`depth` loops are around `parts`, of which the last `local` are in the steps of the items themselves."""
        for part in parts:
            if isinstance(part, Item):
                yield from self._item(part, indent, depth, numbers)
                continue
            used = any(any(leaf.steps[local]) for leaf in leaves(part.body))
            head = " " * indent + f"loop {part.count}" + (f" {LETTERS[depth]}:" if used else ":")
            body = list(self._lines(part.body, indent + 2, depth + 1, local + 1, numbers))
            yield from [f"{head} {body[0].strip()}"] if len(body) == 1 else [head, *body]

    def _item(self, item: Item, indent: int, depth: int, numbers: Rows) -> Iterator[str]:
        assert isinstance(item.key, _Key)
        base, *outer = numbers.take(len(item.numbers))
        steps = (*outer, *item.steps)
        entry = self._tree.templates[item.key.template]
        own = len(entry.operands)
        terms = ["".join(_term(step[n], LETTERS[level]) for level, step in enumerate(steps)) for n in range(own)]
        yield " " * indent + line(entry.at(base[:own]), terms)
        if item.key.body is not None:
            rest = Rows(base[own:], *(step[own:] for step in steps))
            yield from self._lines(self._tree.bodies[item.key.body], indent + 2, depth, 0, rest)


def _term(step: int, letter: str) -> str:
    return f"({step:+#x}{letter})" if step else ""


def _part_name(number: int) -> str:
    """A, B, ... Z, A1, B1, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


# Reading it back


class Placed(NamedTuple):
    """An op of a text: what it is, on which line, and in which iteration of the loops around it."""

    entry: Entry
    line: int
    path: tuple[tuple[str, int], ...]


@dataclass
class _Node:
    """A line of the text with what is indented below it."""

    number: int
    indent: int
    text: str
    body: list[_Node] = field(default_factory=list)


_LOOP = re.compile(r"loop (\d+)(?: [i-z])?:(?: (.*))?$")
_PART = re.compile(r"part ([A-Z]\d*)(:?)$")


def parse(text: str) -> dict[str, list[Entry]]:
    """The entries of each program, unfolded. Raises FormatError."""
    return {program: [each.entry for each in ops] for program, ops in parse_placed(text).items()}


def parse_placed(text: str) -> dict[str, list[Placed]]:
    """The same with where each op is in the text."""
    lines = text.split("\n")
    wanted = f"# oplog {VERSION} structure"
    if lines[0] != wanted:
        raise FormatError(1, f"wants {wanted!r}, is {lines[0]!r}")
    found: dict[str, list[Placed]] = {}
    parts: dict[str, list[_Node]] = {}
    for section in _nodes(lines):
        ops = list(_Unfolding(parts).ops(section.body, 0, ()))
        for name in names_of(section.text.removesuffix(":")):
            found[name] = ops
    return found


def _nodes(lines: list[str]) -> list[_Node]:
    """Lines by indentation; comments and blank lines are left out."""
    root = _Node(0, -1, "")
    above = [root]
    for number, text in enumerate(lines, 1):
        stripped = text.strip()
        if not stripped or stripped.startswith("#"):
            continue
        node = _Node(number, len(text) - len(text.lstrip()), stripped)
        while above[-1].indent >= node.indent:
            above.pop()
        above[-1].body.append(node)
        above.append(node)
    return root.body


class _Unfolding:
    """The ops of a section; `parts` are those seen so far."""

    def __init__(self, parts: dict[str, list[_Node]]) -> None:
        self._parts = parts
        self._read: dict[tuple[int, int], tuple[Entry, tuple[Affine, ...]]] = {}

    def ops(
        self, nodes: list[_Node], depth: int, path: tuple[tuple[str, int], ...], _indent: int = 0
    ) -> Iterator[Placed]:
        for node in nodes:
            if loop := _LOOP.match(node.text):
                body = [_Node(node.number, node.indent, loop[2], node.body)] if loop[2] else node.body
                for index in range(int(loop[1])):
                    yield from self.ops(body, depth, (*path, (LETTERS[len(path)], index)))
            elif part := _PART.match(node.text):
                yield from self.ops(self._part(node, part[1], bool(part[2])), depth, path)
            else:
                yield self._op(node, depth, path)
                yield from self.ops(node.body, depth + 1, path)

    def _part(self, node: _Node, name: str, here: bool) -> list[_Node]:
        if here:
            self._parts[name] = node.body
        if name not in self._parts:
            raise FormatError(node.number, f"part {name} has not been written out before")
        return self._parts[name]

    def _op(self, node: _Node, depth: int, path: tuple[tuple[str, int], ...]) -> Placed:
        key = (node.number, depth)
        if key not in self._read:
            try:
                self._read[key] = read_line(node.text, depth)
            except ValueError as error:
                raise FormatError(node.number, f"{error} in {node.text!r}") from None
        entry, offsets = self._read[key]
        if not offsets:
            return Placed(entry, node.number, path)
        at = dict(path)
        values = [base + sum(step * at[letter] for letter, step in steps) for base, steps in offsets]
        return Placed(entry.at(values), node.number, path)
