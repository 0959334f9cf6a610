"""A log that lies in a file: it answers what every log does, and reads as little as a question needs.

`where` reads a group of rows at a time and keeps what it selects. Whoever wants all at once (`all`, `table`, the text
forms, the critical path, `retime`) has all in memory meanwhile. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import copy
import os
from array import array
from bisect import bisect_left
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from pytest_kernbench.simulator.errors import LogFileError, Site
from pytest_kernbench.simulator.ops.log import NONE, OPERANDS, WIDTH, Ints, OpLog, Selection
from pytest_kernbench.simulator.ops.parquet import LogReader, Piece, ranges

MOST_PIECES = 3  # that stay in memory for questions about single rows
SHARED = (
    "names", "units", "labels", "shapes", "regions", "routes", "places", "header", "programs", "pes", "layout",
    "has_syncs",
)  # fmt: skip


def read_log(path: str | os.PathLike[str]) -> StoredLog:
    """The log that a run with `spill=path` wrote. Raises LogFileError if it is none."""
    return StoredLog(LogReader(Path(path).absolute()))


class StoredLog(OpLog):
    """An `OpLog` in a file; `about` is what the file says of its run (spec, cycles, totals, findings, error)."""

    def __init__(self, reader: LogReader) -> None:
        super().__init__()
        del self.cells, self.operand_cells  # read when they are asked for
        self._reader = reader
        self._pieces: dict[int, Piece] = {}  # by number of the group; the last one used is the last
        self._lasts = [*accumulate((last for _, last in reader.spans), max)]
        self.about = about = reader.about
        self.header, self.layout = about["header"], about["layout"]
        self.programs, self.pes = about["programs"], about["pes"]
        self.has_syncs = about["has_syncs"]
        for name in ("names", "units", "labels", "regions"):
            for value in about[name]:
                getattr(self, name).id(value)
        for shape in about["shapes"]:
            self.shapes.id(tuple(shape))
        self.places.values[:] = [Site(*each) for each in about["sites"]]

    def __len__(self) -> int:
        rows: int = self.about["rows"]
        return rows

    # What a part of the rows answers

    def where(self, **conditions: object) -> Selection:
        """Conditions on added columns, which are functions of the whole log, are met by what the others leave."""
        added = {name: conditions.pop(name) for name in [*conditions] if name in self.more_columns}
        found = self._stored(conditions)
        return found.where(**added) if added else found

    def _stored(self, conditions: dict[str, object]) -> Selection:
        found = [self._where(piece, conditions) for piece in self._reader]
        if not found:
            return super().where(**conditions)
        index, table = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(index)
        return Selection(self, table[order], index[order])

    def _where(self, piece: Piece, conditions: dict[str, object]) -> tuple[Ints, Ints]:
        """The numbers and cells of the rows of a piece that meet the conditions."""
        table = piece.table.copy()
        table[:, OPERANDS] = piece.begins
        chosen = self._in_memory(table, piece.operands).where(**conditions).index
        return piece.numbers[chosen], piece.table[chosen]

    def _in_memory(self, table: Ints, operands: Ints) -> OpLog:
        """A log of these rows, with the names of this one."""
        made = OpLog()
        for name in SHARED:
            setattr(made, name, getattr(self, name))
        made.cells = array("i", table.astype(np.int32).tobytes())
        made.operand_cells = array("I", operands.astype(np.uint32).tobytes())
        return made

    def _full(self, index: int) -> array[int]:
        """One row; OPERANDS is the row itself."""
        piece, at = self._find(index)
        full = array("i", piece.table[at].astype(np.int32).tobytes())
        full[OPERANDS] = index
        return full

    def _operand_cells(self, cells: Any) -> list[tuple[int, int, int]]:
        piece, at = self._find(cells[OPERANDS])
        first = int(piece.begins[at])
        found = piece.operands[first : first + int(piece.counts[at])].tolist()
        return [(label, offset, size) for label, offset, size in found]

    def _find(self, row: int) -> tuple[Piece, int]:
        """The piece that has a row, and where in it."""
        first = bisect_left(self._lasts, row)
        for number, (begin, end) in enumerate(self._reader.spans[first:], first):
            if begin <= row <= end:
                piece = self._piece(number)
                at = int(piece.numbers.searchsorted(row))
                if piece.numbers[at] == row:
                    return piece, at
        raise LogFileError(f"{self._reader.path} has no row {row}, though it says that it has {len(self)}")

    def _piece(self, number: int) -> Piece:
        """A group of rows; those used last are kept."""
        piece = self._pieces.pop(number, None) or self._reader.piece(number)
        self._pieces[number] = piece
        if len(self._pieces) > MOST_PIECES:
            del self._pieces[next(iter(self._pieces))]
        return piece

    # All at once

    def table(self) -> Ints:
        found = np.full((len(self), WIDTH), NONE, np.int64)
        for piece in self._reader:
            found[piece.numbers] = piece.table
        return found

    def operand_table(self) -> Ints:
        pieces = [(ranges(each.table[:, OPERANDS], each.counts), each.operands) for each in self._reader]
        found = np.zeros((sum(len(numbers) for numbers, _ in pieces), 3), np.int64)
        for numbers, operands in pieces:
            found[numbers] = operands
        return found

    def __copy__(self) -> OpLog:
        """The same in memory."""
        return self._in_memory(self.table(), self.operand_table())

    @cached_property
    def cells(self) -> array[int]:  # type: ignore[override]
        return copy.copy(self).cells

    @cached_property
    def operand_cells(self) -> array[int]:  # type: ignore[override]
        return copy.copy(self).operand_cells
