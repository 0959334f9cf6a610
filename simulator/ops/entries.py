"""What one line of an op log's text says: an op with its operands, without times and without row numbers.

What an op waited for is named relative to the op (`composite@QK~1`: the newest but one composite of region QK), so that
an op added elsewhere changes no other line. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.log import NONE, OpLog

SMALLEST_GROUP = 4  # operands that follow one another at equal distances are written as one


@dataclass(frozen=True, slots=True)
class Ranges:
    """`count` ranges of `size` bytes of a tensor, each `step` bytes after the last, from `offset` on."""

    tensor: str
    offset: int
    size: int
    written: bool
    count: int = 1
    step: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One op. `depth` is 1 for what a composite is made of, and such an op's region is that of the composite."""

    depth: int
    unit: str
    name: str
    shape: tuple[int, ...] = ()
    operands: tuple[Ranges, ...] = ()
    bytes: int = 0
    work: int = 0
    runs: int = 1
    peer: str = ""  # relative: `peer-1` is the program one below
    awaits: str = ""
    region: str = ""

    @property
    def usual_work(self) -> int:
        """What a reader assumes: every element of the shape, or nothing if bytes move.

        One number without operands is no shape, but which flag it is.
        """
        which_flag = len(self.shape) == 1 and not self.operands
        return 0 if self.bytes or not self.shape or which_flag else math.prod(self.shape)

    def at(self, offsets: Sequence[int]) -> Entry:
        """The same op with its operands at `offsets`."""
        operands = zip(self.operands, offsets, strict=True)
        return replace(self, operands=tuple(replace(operand, offset=offset) for operand, offset in operands))


class Said(NamedTuple):
    """A row: which template of an entry (all offsets 0), and the offsets."""

    template: int
    offsets: tuple[int, ...]


class Reading:
    """The rows of a log as entries, by program; equal entries apart from offsets share a template."""

    def __init__(self, log: OpLog) -> None:
        self.log = log
        self.templates: list[Entry] = []
        self.programs: list[list[Said]] = [[] for _ in log.programs]
        self._ids: dict[object, int] = {}
        self._rows = log.table().tolist()
        self._operands = log.operand_table().tolist()
        self._depth: list[int] = []
        self._order = self._orders()  # of a row among the rows of its program with its name and region
        self._said: Counter[tuple[int, int, int]] = Counter()
        self._received: dict[tuple[int, int], int] = {}  # newest message a program has asked another for
        for cells in self._rows:
            self._read(cells)

    def _orders(self) -> list[int]:
        said: Counter[tuple[int, int, int]] = Counter()
        found = []
        for cells in self._rows:
            group = (cells[columns.PROGRAM], cells[columns.NAME], cells[columns.REGION])
            found.append(said[group])
            said[group] += 1
        return found

    def entries(self) -> dict[str, list[Entry]]:
        """Every entry with its offsets."""
        found = [[self.templates[said.template].at(said.offsets) for said in rows] for rows in self.programs]
        return dict(zip(self.log.programs, found, strict=True))

    def _read(self, cells: list[int]) -> None:
        parent, program = cells[columns.PARENT], cells[columns.PROGRAM]
        self._depth.append(0 if parent == NONE else self._depth[parent] + 1)
        group = (program, cells[columns.NAME], cells[columns.REGION])
        self._said[group] += 1
        if cells[columns.MESSAGE] != NONE and self.log.names.values[cells[columns.NAME]].startswith("recv"):
            self._received[program, cells[columns.PEER]] = cells[columns.MESSAGE]
        operands, offsets = self._touched(cells)
        key = (self._depth[-1], *(cells[column] for column in _PLAIN), self._peer(cells), self._awaits(cells), operands)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self.templates)
            self.templates.append(self._template(cells, key))
        self.programs[program].append(Said(found, offsets))

    def _touched(self, cells: list[int]) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
        """Operands as (label, size, written, count, step), and their offsets."""
        first, reads = cells[columns.OPERANDS], cells[columns.READS]
        found = [
            (label, size, number >= reads, 1, 0, offset)
            for number, (label, offset, size) in enumerate(
                self._operands[first : first + reads + cells[columns.WRITES]]
            )
        ]
        if len(found) >= SMALLEST_GROUP:
            found = list(_grouped(found))
        return tuple(each[:5] for each in found), tuple(each[5] for each in found)

    def _peer(self, cells: list[int]) -> str:
        peer, program, after = cells[columns.PEER], cells[columns.PROGRAM], cells[columns.AFTER]
        if peer == NONE and after != NONE and self._rows[after][columns.PROGRAM] != program:
            peer = self._rows[after][columns.PROGRAM]
        if peer == NONE:
            return ""
        return f"peer{peer - program:+d}"

    def _awaits(self, cells: list[int]) -> str:
        """What the row waited for; a recv's is implied: the next message of its peer."""
        after, program = cells[columns.AFTER], cells[columns.PROGRAM]
        log = self.log
        if after == NONE or log.names.values[cells[columns.NAME]] == "recv":
            return ""
        awaited = self._rows[after]
        name = log.names.values[awaited[columns.NAME]]
        if awaited[columns.PROGRAM] == program:
            group = (program, awaited[columns.NAME], awaited[columns.REGION])
            newer = self._said[group] - self._order[after] - 1
            return reference(name, log.regions.values[awaited[columns.REGION]], newer)
        if name == "send":
            newest = self._received.get((program, awaited[columns.PROGRAM]), awaited[columns.MESSAGE])
            return reference("message", "", newest - awaited[columns.MESSAGE])
        return reference(name, "", 0)

    def _template(self, cells: list[int], key: tuple[object, ...]) -> Entry:
        log = self.log
        depth, peer, awaits, operands = key[0], key[-3], key[-2], key[-1]
        assert (
            isinstance(depth, int) and isinstance(peer, str) and isinstance(awaits, str) and isinstance(operands, tuple)
        )
        ranges = [Ranges(log.labels.values[label], 0, *rest) for label, *rest in operands]
        return Entry(
            depth, log.units.values[cells[columns.UNIT]], log.names.values[cells[columns.NAME]],
            tuple(log.shapes.values[cells[columns.SHAPE]]) if cells[columns.SHAPE] != NONE else (), tuple(ranges),
            cells[columns.BYTES], cells[columns.WORK], max(cells[columns.RUNS], 1), peer, awaits,
            "" if depth else log.regions.values[cells[columns.REGION]],
        )  # fmt: skip


_PLAIN = (columns.NAME, columns.UNIT, columns.SHAPE, columns.BYTES, columns.WORK, columns.RUNS, columns.REGION)
_Touched = tuple[int, int, bool, int, int, int]


def _grouped(found: list[_Touched]) -> Iterator[_Touched]:
    """Ranges at equal distances, from `SMALLEST_GROUP` on, as one."""
    place = 0
    while place < len(found):
        label, size, written, _, _, offset = found[place]
        count, step = 1, 0
        while place + count < len(found) and found[place + count][:3] == (label, size, written):
            distance = found[place + count][5] - found[place + count - 1][5]
            if count > 1 and distance != step:
                break
            count, step = count + 1, distance
        if count < SMALLEST_GROUP:
            count, step = 1, 0
        yield label, size, written, count, step, offset
        place += count


def reference(name: str, region: str, newer: int) -> str:
    """An op of the same program by what was said since; below 0, one that is still to be said: a Wait's later Set."""
    which = f"~{newer}" if newer > 0 else f"+{-newer}" if newer else ""
    return quoted(name) + (f"@{quoted(region)}" if region else "") + which


# Lines

PLAIN_NAME = r"[A-Za-z_][\w./\[\]<>-]*"
NAME = rf'(?:{PLAIN_NAME}|"(?:[^"\\]|\\.)*")'
TERM = r"\([+-]0x[0-9a-f]+[i-z]\)"
_RANGES = re.compile(rf"({NAME})\+0x([0-9a-f]+)((?:{TERM})*)(?::(\d+))?(?:\(x(\d+) ([+-]0x[0-9a-f]+)\))?$")


def quoted(name: str) -> str:
    """`name` as it is, or in quotes without spaces if a reader could take it for something else."""
    if re.fullmatch(PLAIN_NAME, name) and ".." not in name and name not in ("loop", "part", "for", "peer", "work"):
        return name
    return json.dumps(name).replace(" ", "\\u0020")


def spans(names: Sequence[str]) -> str:
    """Names in order; three or more that count up are written as `PE0..PE7`."""
    found: list[list[str]] = []
    for name in names:
        if found and _follows(found[-1][-1], name):
            found[-1].append(name)
        else:
            found.append([name])
    texts = [[f"{span[0]}..{span[-1]}"] if len(span) > 2 else list(map(quoted, span)) for span in found]
    return ", ".join(text for span in texts for text in span)


def _follows(before: str, name: str) -> bool:
    """Whether `name` is the next after `before`, by the number at its end."""
    stem, number = _counted(before)
    return number is not None and quoted(name) == name == f"{stem}{number + 1}" and f"{stem}{number}" == before


def _counted(name: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(.*?)(\d+)", name)
    return (match[1], int(match[2])) if match else (name, None)


def names_of(text: str) -> Iterator[str]:
    """What `spans` wrote."""
    for each in text.split(", "):
        first, dots, last = each.partition("..")
        if not dots or each.startswith('"'):
            yield unquoted(each)
            continue
        (stem, low), (_, high) = _counted(first), _counted(last)
        if low is None or high is None:
            raise ValueError(f"no span of names: {each!r}")
        yield from (f"{stem}{number}" for number in range(low, high + 1))


def unquoted(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


def line(entry: Entry, terms: Sequence[str]) -> str:
    """One line. Columns have a fixed order and are two or more spaces apart; `terms` follow each operand's offset."""
    cells = [f"{quoted(entry.unit):<6}", f"{quoted(entry.name):<9}"]
    if entry.shape:
        cells.append(f"{'x'.join(map(str, entry.shape)):<9}")
    if entry.awaits:
        cells.append(f"for {entry.awaits}")
    if entry.operands:
        cells.append(_operands(entry, terms))
    if entry.bytes:
        cells.append(f"{entry.bytes}B")
    if entry.work != entry.usual_work:
        cells.append(f"work {entry.work}")
    if entry.runs > 1:
        cells.append(f"{entry.runs} runs")
    if entry.peer:
        cells.append(entry.peer)
    if entry.region:
        cells.append(f"@{quoted(entry.region)}")
    return "  ".join(cells).rstrip()


def _operands(entry: Entry, terms: Sequence[str]) -> str:
    """Reads, then an arrow and writes; a range without a size has as many bytes as the op moves."""
    texts: dict[bool, list[str]] = {False: [], True: []}
    for operand, term in zip(entry.operands, terms, strict=True):
        size = "" if operand.size == entry.bytes else f":{operand.size}"
        group = f"(x{operand.count} {operand.step:+#x})" if operand.count > 1 else ""
        texts[operand.written].append(f"{quoted(operand.tensor)}+{operand.offset:#x}{term}{size}{group}")
    reads, writes = ", ".join(texts[False]), ", ".join(texts[True])
    return f"{reads} -> {writes}".strip() if writes else reads


class Affine(NamedTuple):
    """An offset and its growth with each loop index."""

    base: int
    steps: tuple[tuple[str, int], ...]


def read_line(text: str, depth: int) -> tuple[Entry, tuple[Affine, ...]]:
    """What `line` wrote: the entry with all offsets 0, and its offsets. Raises ValueError."""
    unit, name, *cells = re.split(r" {2,}", text)
    found = Entry(depth, unquoted(unit), unquoted(name.strip()))
    operands = ""
    for cell in cells:
        if re.fullmatch(r"\d+(x\d+)*", cell):
            found = replace(found, shape=tuple(map(int, cell.split("x"))))
        elif cell.startswith("for "):
            found = replace(found, awaits=cell[4:])
        elif re.fullmatch(r"\d+B", cell):
            found = replace(found, bytes=int(cell[:-1]))
        elif cell.startswith("work "):
            found = replace(found, work=int(cell[5:]))
        elif cell.endswith(" runs"):
            found = replace(found, runs=int(cell[:-5]))
        elif re.fullmatch(r"peer[+-]\d+", cell):
            found = replace(found, peer=cell)
        elif cell.startswith("@"):
            found = replace(found, region=unquoted(cell[1:]))
        elif not operands:
            operands = cell
        else:
            raise ValueError(f"no column: {operands!r}")
    ranges, offsets = _read_operands(operands, found.bytes)
    found = replace(found, operands=ranges)
    if not any(cell.startswith("work ") for cell in cells):
        found = replace(found, work=found.usual_work)
    return found, offsets


def _read_operands(text: str, size: int) -> tuple[tuple[Ranges, ...], tuple[Affine, ...]]:
    reads, _, writes = f" {text}".partition(" -> ")
    ranges, offsets = [], []
    for side, written in ((reads, False), (writes, True)):
        for each in side.strip().split(", ") if side.strip() else []:
            match = _RANGES.match(each)
            if match is None:
                raise ValueError(f"no operand: {each!r}")
            tensor, base, terms, own, count, step = match.groups()
            steps = re.findall(r"([+-])0x([0-9a-f]+)([i-z])", terms)
            offsets.append(Affine(int(base, 16), tuple((letter, int(sign + step, 16)) for sign, step, letter in steps)))
            bytes_ = int(own) if own else size
            ranges.append(Ranges(unquoted(tensor), 0, bytes_, written, int(count or 1), int(step or "0", 16)))
    return tuple(ranges), tuple(offsets)
