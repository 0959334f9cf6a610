"""A log of 32 bytes a row, for devices whose times are known when a row is written.

What many rows have in common (name, unit, line, sizes) is a descriptor, written once; a row holds which descriptor,
three moments and where its operands begin. It reads back as every other log does. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np

from pytest_kernbench.simulator.errors import Site
from pytest_kernbench.simulator.ops.log import (
    AFTER,
    BYTES,
    CHARGED,
    END,
    FREE,
    ISSUE,
    MESSAGE,
    NAME,
    NONE,
    OPERANDS,
    PARENT,
    PEER,
    PROGRAM,
    READS,
    REGION,
    ROUTE,
    RUNS,
    SHAPE,
    SITE,
    START,
    UNIT,
    WIDTH,
    WORK,
    WRITES,
    Ints,
    OpLog,
)

CELLS = 8
MOST_OPERANDS = 4
ROW_ISSUE, ROW_START, ROW_END, ROW_FIRST = 1, 2, 3, 4
pack_compact = Struct(f"{CELLS}i").pack


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What rows have in common. `reads` and `writes` are (label, size) of the operands, in the order of the offsets.

    `waits`: the first offset is the row that was waited for. `occupancy` -1: until the end.
    """

    name: int
    unit: int
    site: int
    region: int = 0
    shape: int = NONE
    bytes: int = 0
    charged: int = 0
    work: int = 0
    occupancy: int = -1
    reads: tuple[tuple[int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()
    waits: bool = False
    runs: int = 0

    def cells(self) -> list[int]:
        """The columns of a full row that do not change, in a row of `WIDTH`."""
        row = [NONE] * WIDTH
        known = {
            NAME: self.name, UNIT: self.unit, SITE: self.site, REGION: self.region, SHAPE: self.shape,
            BYTES: self.bytes, CHARGED: self.charged, WORK: self.work, READS: len(self.reads),
            WRITES: len(self.writes), RUNS: self.runs, FREE: self.occupancy,
        }  # fmt: skip
        for column, value in known.items():
            row[column] = value
        return row


class CompactLog(OpLog):
    """An `OpLog` in which rows have 8 cells and operands are part of the row."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptors: list[Descriptor] = []
        self.first_rows: list[int] = []  # of each program
        self.has_syncs = True

    def __len__(self) -> int:
        return len(self.cells) // CELLS

    def describe(self, descriptor: Descriptor) -> int:
        """The number of a new descriptor."""
        self.descriptors.append(descriptor)
        return len(self.descriptors) - 1

    def open(self, cells: tuple[int, ...]) -> int:
        """Append a row: descriptor, issue, start, end, and the first bytes of its operands."""
        self.cells.frombytes(pack_compact(*cells))
        return len(self.cells) // CELLS - 1

    def descriptor_of(self, row: int) -> Descriptor:
        return self.descriptors[self.cells[row * CELLS]]

    def site_of(self, row: int) -> Site:
        return self.site(self.descriptor_of(row).site)

    def program_of(self, row: int) -> int:
        return int(np.searchsorted(self.first_rows, row, side="right")) - 1

    # Reading it back

    def _rows(self) -> Ints:
        return np.frombuffer(self.cells, np.int32).reshape(-1, CELLS).astype(np.int64)

    def _shared(self) -> Ints:
        return np.array([each.cells() for each in self.descriptors] or np.zeros((0, WIDTH)), np.int64)

    def table(self) -> Ints:
        """All cells as rows by columns (a copy)."""
        rows = self._rows()
        return self.expanded(rows, np.arange(len(rows)))

    def expanded(self, rows: Ints, numbers: Ints) -> Ints:
        """The columns that the rows of these numbers have in an `OpLog`; operands count from the first of `rows`."""
        table = self._shared()[rows[:, 0]].reshape(len(rows), WIDTH)
        table[:, PROGRAM] = np.searchsorted(self.first_rows, numbers, side="right") - 1
        table[:, ISSUE], table[:, START], table[:, END] = rows[:, ROW_ISSUE], rows[:, ROW_START], rows[:, ROW_END]
        table[:, FREE] = np.where(table[:, FREE] < 0, table[:, END], table[:, START] + table[:, FREE])
        counts = table[:, READS] + table[:, WRITES]
        table[:, OPERANDS] = np.cumsum(counts) - counts
        waits = np.array([each.waits for each in self.descriptors] or [False])[rows[:, 0]]
        table[:, AFTER] = np.where(waits, rows[:, ROW_FIRST], NONE)
        table[:, [PEER, MESSAGE, PARENT, ROUTE]] = NONE
        return table

    def operand_table(self) -> Ints:
        """Operands as (label, offset, size) rows (a copy)."""
        return self.operands_of(self._rows())

    def operands_of(self, rows: Ints) -> Ints:
        """The same of some rows."""
        shared = np.zeros((len(self.descriptors), MOST_OPERANDS, 2), np.int64)
        counts = np.zeros(len(self.descriptors), np.int64)
        for number, each in enumerate(self.descriptors):
            operands = each.reads + each.writes
            counts[number] = len(operands)
            shared[number, : len(operands)] = np.array(operands, np.int64).reshape(-1, 2)
        there = np.arange(MOST_OPERANDS) < counts[rows[:, 0]][:, None]
        labels = shared[rows[:, 0]][there]
        return np.stack([labels[:, 0], rows[:, ROW_FIRST:][there], labels[:, 1]], axis=1)

    def _full(self, index: int) -> array[int]:
        """One row as the columns of `OpLog` have it; OPERANDS is the row itself."""
        cells = self.cells[index * CELLS : (index + 1) * CELLS]
        descriptor = self.descriptors[cells[0]]
        full = array("i", descriptor.cells())
        full[PROGRAM] = self.program_of(index)
        full[ISSUE], full[START], full[END] = cells[ROW_ISSUE], cells[ROW_START], cells[ROW_END]
        full[FREE] = cells[ROW_END] if descriptor.occupancy < 0 else cells[ROW_START] + descriptor.occupancy
        full[AFTER] = cells[ROW_FIRST] if descriptor.waits else NONE
        full[OPERANDS] = index
        return full

    def _operand_cells(self, cells: Any) -> list[tuple[int, int, int]]:
        index = cells[OPERANDS]
        descriptor = self.descriptor_of(index)
        operands = descriptor.reads + descriptor.writes
        first = index * CELLS + ROW_FIRST
        return [(label, self.cells[first + number], size) for number, (label, size) in enumerate(operands)]
