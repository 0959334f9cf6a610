"""The op log: one row an op, in columns. Rows are opened at issue, in each kernel's program order.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from struct import Struct
from types import CodeType
from typing import Any

import numpy as np

from pytest_kernbench.simulator.errors import Site

Ints = np.ndarray[Any, np.dtype[np.int64]]

COLUMNS = (
    "name", "unit", "program", "issue", "start", "free", "end", "bytes", "charged", "work", "shape", "operands",
    "reads", "writes", "after", "peer", "message", "parent", "region", "site", "route", "runs",
)  # fmt: skip
WIDTH = len(COLUMNS)
(
    NAME, UNIT, PROGRAM, ISSUE, START, FREE, END, BYTES, CHARGED, WORK, SHAPE, OPERANDS,
    READS, WRITES, AFTER, PEER, MESSAGE, PARENT, REGION, SITE, ROUTE, RUNS,
) = range(WIDTH)  # fmt: skip
TAKEN = frozenset({*COLUMNS, "tensor", "log", "index", "where"})  # names that selections have
NONE = -1
MOST_ROWS = 40  # of a selection's text
MOST_OPERANDS = 3  # of each side of a row

# Packing is four times faster than `array.extend`, and a row is written for every op.
pack_row = Struct(f"{WIDTH}i").pack
pack_operand = Struct("3I").pack  # label, offset, size


@dataclass(frozen=True, slots=True)
class Operand:
    """Bytes [offset, offset + size) of a tensor, of `scratch` or of a slot; `written` if the op writes them."""

    tensor: str
    offset: int
    size: int
    written: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One row, decoded. Times are cycles, -1 for what has not happened; `work` is MACs of GEMM, elements of MATH."""

    index: int
    name: str
    unit: str
    program: int
    issue: int
    start: int
    free: int
    end: int
    bytes: int
    charged: int
    work: int
    shape: tuple[int, ...]
    operands: tuple[Operand, ...]
    after: int
    peer: int
    message: int
    parent: int
    region: str
    site: Site
    route: int
    runs: int


class _Ids(dict[Any, int]):
    """Gives a new value the next id."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__()
        self._values = values

    def __missing__(self, value: Any) -> int:
        self[value] = found = len(self._values)
        self._values.append(value)
        return found


class Interned:
    """Values by small id, and `id(value)`, which is a bare dict look-up: it is asked several times an op."""

    __slots__ = ("id", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.id: Callable[[Any], int] = _Ids(self.values).__getitem__


Column = Callable[["OpLog"], Any]
"""A number for every row of a log, computed when it is asked for."""


def refuse_column_name(name: str) -> None:
    """Raises ValueError for what cannot be the name of one more column."""
    if not name.isidentifier() or name.startswith("_") or name in TAKEN:
        raise ValueError(f"{name!r} cannot name a column of a log: give a name such as 'energy' that it does not have")


class OpLog:
    """Columns of 32 bits; `cells` holds the rows one after the other.

    `header` says what defines the run (kernel, device, shapes), never what changes by itself.
    """

    def __init__(self) -> None:
        self.cells = array("i")
        self.operand_cells = array("I")
        self.names = Interned()
        self.units = Interned()
        self.labels = Interned()
        self.shapes = Interned()
        self.regions = Interned()
        self.routes = Interned()
        self.header: dict[str, str] = {}
        self.programs: list[str] = []
        self.pes: list[int] = []  # the PE that runs each program
        self.has_syncs = False  # whether flags and barriers have rows
        self.layout: dict[str, int] = {}  # the spec's numbers that decide which rows there are and what they move
        self.places = Interned()  # (code, instruction) of the author's calls, or the lines themselves
        self.more_columns: dict[str, Column] = {}  # a user's, by name
        self.regions.id("")

    def __len__(self) -> int:
        return len(self.cells) // WIDTH

    def __str__(self) -> str:
        """What the programs did, without times, as its golden has it."""
        from pytest_kernbench.simulator.ops.text import structure

        return structure(self)

    def open(self, cells: tuple[int, ...]) -> int:
        """Append a row of `WIDTH` cells; return its number."""
        row = len(self.cells) // WIDTH
        self.cells.frombytes(pack_row(*cells))
        return row

    def fill_times(self, first: int, count: int, rows: Ints, times: Ints) -> None:
        """Write start, free and end of `rows`, which count from row `first` and are among the `count` rows from there.

        No name holds the view: a profiler that keeps this frame would keep it, and then the log cannot grow.
        """
        np.frombuffer(self.cells, np.int32).reshape(-1, WIDTH)[first : first + count][rows, START : END + 1] = times

    def site_id(self, code: CodeType, instruction: int) -> int:
        """The id of a source line, for `site`."""
        return self.places.id((code, instruction))

    def site(self, id: int) -> Site:
        """The source line of a site."""
        place = self.places.values[id]
        if isinstance(place, Site):
            return place
        code, instruction = place
        line = next((line for start, end, line in code.co_lines() if start <= instruction < end), None)
        return Site(code.co_filename, line or code.co_firstlineno, code.co_name)

    # Reading it back

    def add_column(self, name: str, compute: Column) -> None:
        """One more column for selections, of what `compute` gives for every row. Raises ValueError for the name."""
        refuse_column_name(name)
        self.more_columns[name] = compute

    def table(self) -> Ints:
        """All cells as rows by columns (a copy)."""
        return np.frombuffer(self.cells, np.int32).reshape(-1, WIDTH).astype(np.int64)

    def operand_table(self) -> Ints:
        """Operands as (label, offset, size) rows (a copy)."""
        return np.frombuffer(self.operand_cells, np.uint32).reshape(-1, 3).astype(np.int64)

    def __getitem__(self, index: int) -> Row:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a log of {len(self)} rows")
        index %= len(self)
        cells = self._full(index)
        return Row(
            index, self.names.values[cells[NAME]], self.units.values[cells[UNIT]], cells[PROGRAM], cells[ISSUE],
            cells[START], cells[FREE], cells[END], cells[BYTES], cells[CHARGED], cells[WORK],
            self.shapes.values[cells[SHAPE]] if cells[SHAPE] >= 0 else (), self._operands(cells), cells[AFTER],
            cells[PEER], cells[MESSAGE], cells[PARENT], self.regions.values[cells[REGION]], self.site(cells[SITE]),
            cells[ROUTE], cells[RUNS],
        )  # fmt: skip

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    def _full(self, index: int) -> array[int]:
        """The cells of a row, by column."""
        return self.cells[index * WIDTH : (index + 1) * WIDTH]

    def _operands(self, cells: array[int]) -> tuple[Operand, ...]:
        return tuple(
            Operand(self.labels.values[label], offset, size, number >= cells[READS])
            for number, (label, offset, size) in enumerate(self._operand_cells(cells))
        )

    def _operand_cells(self, cells: array[int]) -> list[tuple[int, int, int]]:
        """(label, offset, size) of the operands of a row."""
        first = cells[OPERANDS] * 3
        return [
            (*self.operand_cells[at : at + 3],)  # type: ignore[misc]
            for at in range(first, first + 3 * (cells[READS] + cells[WRITES]), 3)
        ]

    @property
    def all(self) -> Selection:
        """Every row."""
        return Selection(self, self.table(), np.arange(len(self)))

    def where(self, **conditions: object) -> Selection:
        """The rows that meet every condition; see `Selection.where`."""
        return self.all.where(**conditions)


class Selection:
    """Some rows of a log, by column: `log.where(unit="DMA", tensor="K").bytes.sum()`."""

    def __init__(self, log: OpLog, table: Ints, index: Ints) -> None:
        self.log = log
        self.index = index
        self._table = table

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Row]:
        return (self.log[int(index)] for index in self.index)

    def __str__(self) -> str:
        """A table for people: the first rows, one a line, and how many there are behind them."""
        more = [(name, getattr(self, name)) for name in self.log.more_columns]
        rows = [
            (*_cells_of(self.log, self.log[int(index)]), *(f"{name}={values[at]:g}" for name, values in more))
            for at, index in enumerate(self.index[:MOST_ROWS])
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        rest = [f"... and {len(self) - MOST_ROWS} more"] if len(self) > MOST_ROWS else []
        return "\n".join([*lines, *rest]) or "no rows"

    def __repr__(self) -> str:
        return f"<{len(self)} of {len(self.log)} rows>"

    def __getattr__(self, column: str) -> Ints:
        """A column of numbers: issue, start, free, end, bytes, charged, work, after, peer, parent, program, runs.

        And those that a plugin adds.
        """
        if column in COLUMNS:
            return self._table[:, COLUMNS.index(column)]
        more = vars(self)["log"].more_columns if "log" in vars(self) else {}
        if column not in more:
            raise AttributeError(f"a log has no column {column!r}; it has {', '.join([*COLUMNS, *more])}")
        found: Ints = np.asarray(more[column](self.log))[self.index]
        return found

    def where(self, **conditions: object) -> Selection:
        """Rows that meet every condition.

        `name`, `unit`, `region` take a string or several; a unit is named whole or by its first part ("DMA" is DMA_R
        and DMA_W, "IPCQ" every direction). `tensor`, `reads`, `writes` name a tensor that is an operand. `shape` is one
        such as (8, 64) or "8x64", or a list of those. Any other column takes a number or several. Raises ValueError if
        the run has none of the units or tensors, and for what is no number where one is wanted; a name or a region that
        no row has leaves no rows.
        """
        keep = np.ones(len(self.index), bool)
        for condition, wanted in conditions.items():
            several = (list, set, frozenset) if condition == "shape" else (tuple, list, set, frozenset)
            keep &= self._meets(condition, wanted if isinstance(wanted, several) else (wanted,))
        return Selection(self.log, self._table[keep], self.index[keep])

    def _meets(self, condition: str, wanted: Any) -> Any:
        if condition in ("tensor", "reads", "writes"):
            return self._touches(condition, wanted)
        if condition in ("name", "unit", "region"):
            return np.isin(getattr(self, condition), self._ids(condition, wanted))
        if condition == "shape":
            shapes = enumerate(self.log.shapes.values)
            ids = [id for id, shape in shapes if shape in wanted or "x".join(map(str, shape)) in wanted]
            return np.isin(self.shape, ids)
        column = getattr(self, condition)
        if strange := [each for each in wanted if not isinstance(each, Real)]:
            raise ValueError(f"{condition} is a number in every row, and {strange[0]!r} is none")
        return np.isin(column, list(wanted))

    def _ids(self, condition: str, wanted: Any) -> list[int]:
        """Ids of the values that one of `wanted` names. Raises ValueError if the device has none of the units."""
        values = getattr(self.log, condition + "s").values
        if condition != "unit":
            return [id for id, value in enumerate(values) if value in wanted]
        found = [id for id, value in enumerate(values) if any(_unit_named(value, want) for want in wanted)]
        if values and not found:
            raise ValueError(f"no unit is named {' or '.join(map(str, wanted))}; the units are {', '.join(values)}")
        return found

    def _touches(self, condition: str, tensors: Any) -> Any:
        operands = self.log.operand_table()
        known = self.log.labels.values
        labels = [id for id, label in enumerate(known) if label in tensors]
        if known and not labels:
            raise ValueError(f"the run has no tensor {' or '.join(map(str, tensors))}; it has {', '.join(known)}")
        hit = np.concatenate([[0], np.cumsum(np.isin(operands[:, 0], labels))])
        first = self._table[:, OPERANDS] + (self._table[:, READS] if condition == "writes" else 0)
        count = {"reads": self._table[:, READS], "writes": self._table[:, WRITES]}.get(
            condition, self._table[:, READS] + self._table[:, WRITES]
        )
        return hit[np.where(count > 0, first + count, 0)] > hit[np.where(count > 0, first, 0)]


def _cells_of(log: OpLog, row: Row) -> tuple[str, ...]:
    """Program, unit, name, times, bytes, operands and source line."""
    end = row.end if row.end != NONE else ""
    size = f"{row.bytes}B" if row.bytes else ""
    return log.programs[row.program], row.unit, row.name, f"{row.issue}..{end}", size, touched(row), str(row.site)


def touched(row: Row) -> str:
    """Reads, then an arrow and writes."""
    reads, writes = (_ranges([each for each in row.operands if each.written is side]) for side in (False, True))
    return f"{reads} -> {writes}".strip() if writes else reads


def _ranges(operands: list[Operand]) -> str:
    texts = [f"{each.tensor}[{each.offset}:{each.offset + each.size}]" for each in operands[:MOST_OPERANDS]]
    more = [f"{len(operands) - MOST_OPERANDS} more"] if len(operands) > MOST_OPERANDS else []
    return ", ".join([*texts, *more])


def _unit_named(value: str, wanted: object) -> bool:
    return value == wanted or value.replace(".", "_").split("_")[0] == wanted
