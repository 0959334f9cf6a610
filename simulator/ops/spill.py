"""Logs that leave memory while their run goes on: rows are written to a file, group by group, as they are complete.

What stays in memory is a group of rows, the rows of ops in flight, and what a log has beside its rows.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from pytest_kernbench.simulator.errors import LogFileError
from pytest_kernbench.simulator.ops.compact import CELLS, ROW_END, CompactLog, Descriptor
from pytest_kernbench.simulator.ops.log import END, FREE, OPERANDS, PARENT, READS, START, WIDTH, WRITES, Ints, OpLog
from pytest_kernbench.simulator.ops.parquet import LogFile, Piece, ranges
from pytest_kernbench.simulator.ops.stored import read_log
from pytest_kernbench.simulator.ops.window import Window

GROUP = 1 << 14  # rows that are written at once
KEPT = 1 << 11  # newest rows that stay when a group leaves: most of them are in flight


class Leaving(Protocol):
    """What a log has to know of its rows when they leave memory."""

    def number(self, first: int, rows: Ints, done: Ints) -> None:
        """`rows`, from number `first`, are about to leave, but for those that are not `done`."""

    def piece(self, numbers: Ints, rows: Ints) -> Piece:
        """Rows that are complete, as the file has them."""

    def forget(self, rows: Ints, done: Ints) -> None:
        """`rows` have been written, but for those that are not `done`."""


class Spill:
    """The way of a log's rows from its window to its file."""

    def __init__(
        self, log: Leaving, path: Path, width: int, moments: tuple[int, ...], parent: int | None = None
    ) -> None:
        self.window = Window(width, moments, parent, GROUP + KEPT, self.write_group)
        self.file = LogFile(path)
        self._log = log

    def write_group(self) -> None:
        """The oldest rows leave, and those that were left behind before and are complete by now."""
        with self.file.writing():
            late = self.window.take_left(complete=True)
            rows = self.window.oldest(GROUP)
            self._write(rows, self.window.complete(rows), *late)

    def close(self, about: Mapping[str, object]) -> None:
        """Every row leaves, complete or not, and the file is finished."""
        assert isinstance(self._log, OpLog)
        with self.file.writing():
            late = self.window.take_left(complete=False)
            while len(late[0]) or self.window.cells:
                rows = self.window.oldest(GROUP)
                self._write(rows, np.ones(len(rows), bool), *late)
                late = self.window.take_left(complete=False)
            self.file.close(self._log, about)

    def _write(self, rows: Ints, done: Ints, late_numbers: Ints, late: Ints) -> None:
        """A row group: `rows`, the oldest, but for those that are not `done`, behind what comes late."""
        assert isinstance(self._log, OpLog)
        first = self.window.first
        self._log.number(first, rows, done)
        numbers = np.concatenate([late_numbers, first + np.flatnonzero(done)])
        self.file.write(self._log, self._log.piece(numbers, np.concatenate([late, rows[done]])))
        self._log.forget(rows, done)
        self.window.drop(done)


class OperandWindow:
    """Stands in for a log's `operand_cells`: those of rows in memory, numbered as if none had left."""

    def __init__(self) -> None:
        self._cells = array("I")
        self._gone = 0  # operands before the first
        self._left_behind: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return 3 * self._gone + len(self._cells)

    def frombytes(self, operands: bytes) -> None:
        self._cells.frombytes(operands)

    def take(self, numbers: Ints) -> Ints:
        """The operands of these numbers, old ones first; one that was left behind is gone then."""
        old, new = numbers[numbers < self._gone], numbers[numbers >= self._gone]
        left = np.array([self._left_behind.pop(number) for number in old.tolist()], np.int64)
        here = np.array(self._cells, np.int64).reshape(-1, 3)[new - self._gone]
        return np.concatenate([left.reshape(-1, 3), here])

    def drop(self, end: int, kept: Ints) -> None:
        """Operands before number `end` leave; those of the numbers `kept` are left behind."""
        for number in kept.tolist():
            at = 3 * (number - self._gone)
            self._left_behind[number] = self._cells[at : at + 3].tolist()
        if end > self._gone:
            del self._cells[: 3 * (end - self._gone)]
            self._gone = end


class SpillingLog(OpLog):
    """An `OpLog` on its way to the file `path`; what is written of it cannot be asked before the run is over."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.spill = Spill(self, path, WIDTH, (START, FREE, END), PARENT)
        self.cells = self.spill.window  # type: ignore[assignment]  # all that a run does with them
        self.operand_cells = OperandWindow()  # type: ignore[assignment]

    def fill_times(self, first: int, count: int, rows: Ints, times: Ints) -> None:
        window = self.spill.window
        at = first - window.first
        if at >= 0:
            np.frombuffer(window.cells, np.int32).reshape(-1, WIDTH)[at : at + count][rows, START : END + 1] = times
            return
        for row, moments in zip(rows.tolist(), times.tolist(), strict=True):
            for column, moment in enumerate(moments, START):
                window[(first + row) * WIDTH + column] = moment

    def number(self, first: int, rows: Ints, done: Ints) -> None:
        """They know their operands' numbers."""

    def piece(self, numbers: Ints, rows: Ints) -> Piece:
        operands: OperandWindow = self.operand_cells  # type: ignore[assignment]
        return Piece(numbers, rows, operands.take(ranges(rows[:, OPERANDS], rows[:, READS] + rows[:, WRITES])))

    def forget(self, rows: Ints, done: Ints) -> None:
        operands: OperandWindow = self.operand_cells  # type: ignore[assignment]
        counts = rows[:, READS] + rows[:, WRITES]
        ends = np.where(counts > 0, rows[:, OPERANDS] + counts, 0)
        operands.drop(int(ends.max(initial=0)), ranges(rows[~done, OPERANDS], counts[~done]))

    def release(self) -> None:
        """The run is over."""


class SpillingCompactLog(CompactLog):
    """A `CompactLog` on its way to the file `path`.

    The checkers may ask for the descriptor of any row: those of rows that have left are in a file without a name.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.spill = Spill(self, path, CELLS, (ROW_END,))
        self.cells = self.spill.window  # type: ignore[assignment]
        self._kinds: IO[bytes] | None = None
        self._before = 0  # operands of rows that have left
        self._firsts: dict[int, int] = {}  # the number of a row's first operand, for rows that are being written

    def descriptor_of(self, row: int) -> Descriptor:
        if row >= self.spill.window.first:
            return super().descriptor_of(row)
        assert self._kinds is not None
        self._kinds.seek(4 * row)
        return self.descriptors[int.from_bytes(self._kinds.read(4), "little")]

    def number(self, first: int, rows: Ints, done: Ints) -> None:
        if self._kinds is None:
            self._kinds = tempfile.TemporaryFile(dir=self.spill.file.path.parent)  # noqa: SIM115
        self._kinds.seek(4 * first)
        self._kinds.write(rows[:, 0].astype("<i4").tobytes())
        self._kinds.flush()
        sizes = np.array([len(each.reads) + len(each.writes) for each in self.descriptors], np.int64)
        counts = sizes[rows[:, 0]]
        firsts = self._before + np.cumsum(counts) - counts
        self._firsts.update(zip(range(first, first + len(rows)), firsts.tolist(), strict=True))
        self._before += int(counts.sum())

    def piece(self, numbers: Ints, rows: Ints) -> Piece:
        table = self.expanded(rows, numbers)
        table[:, OPERANDS] = [self._firsts.pop(number) for number in numbers.tolist()]
        return Piece(numbers, table, self.operands_of(rows))

    def forget(self, rows: Ints, done: Ints) -> None:
        """Their operands are part of them."""

    def release(self) -> None:
        """The run is over."""
        if self._kinds is not None:
            self._kinds.close()


@contextmanager
def spilling(log: OpLog, about: Callable[[], Mapping[str, object]]) -> Iterator[None]:
    """Around a run: finishes the file of `log`, if it has one, however the run ends.

    `about` tells what else the file is to say of the run; a run that fails leaves what its kernels had said, and the
    error. Raises LogFileError if the file cannot be written, unless the run failed by itself.
    """
    if not isinstance(log, SpillingLog | SpillingCompactLog):
        yield
        return
    try:
        yield
        log.spill.close({**about(), "error": None})
    except BaseException as error:
        if not log.spill.file.ended:
            try:
                log.spill.close({**about(), "error": f"{type(error).__name__}: {error}"})
            except LogFileError as other:
                error.add_note(str(other))
        raise
    finally:
        log.release()


def readable(log: OpLog) -> OpLog:
    """What a run that is over has for its log: `log`, or what reads its file."""
    return read_log(log.spill.file.path) if isinstance(log, SpillingLog | SpillingCompactLog) else log
