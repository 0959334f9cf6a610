"""The newest rows of a log whose older ones have left memory: numbered as if none had.

A row that is not complete stays behind when those around it leave. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from pytest_kernbench.simulator.ops.log import NONE, Ints


class Window:
    """Stands in for a log's `cells`, of `width` a row, while a run goes on.

    Before it grows beyond `most` rows it asks `leave` to take rows away. A row is complete when none of its columns
    `moments` holds `NONE`, and its parent (the row that column `parent` names) is complete too: what a composite is
    made of has its times when the composite ends.
    """

    def __init__(
        self, width: int, moments: Sequence[int], parent: int | None, most: int, leave: Callable[[], None]
    ) -> None:
        self.width = width
        self.cells = array("i")
        self._left_behind: dict[int, array[int]] = {}  # rows that were not complete when their neighbours left
        self._gone = 0  # cells before the first
        self._moments = list(moments)
        self._parent = parent
        self._most = most * width
        self._leave = leave

    def __len__(self) -> int:
        return self._gone + len(self.cells)

    @property
    def first(self) -> int:
        """The number of the first row that has not left."""
        return self._gone // self.width

    def frombytes(self, rows: bytes) -> None:
        if len(self.cells) >= self._most:
            self._leave()
        self.cells.frombytes(rows)

    def __getitem__(self, index: int) -> int:
        at = index - self._gone
        return self.cells[at] if at >= 0 else self._left_behind[index // self.width][index % self.width]

    def __setitem__(self, index: int, value: int) -> None:
        at = index - self._gone
        if at >= 0:
            self.cells[at] = value
        else:
            self._left_behind[index // self.width][index % self.width] = value

    # Leaving

    def oldest(self, count: int) -> Ints:
        """The first `count` rows that have not left (a copy)."""
        return np.array(self.cells[: count * self.width], np.int64).reshape(-1, self.width)

    def complete(self, rows: Ints) -> Ints:
        """Which of the oldest `rows` are; to be asked when what was left behind has been taken."""
        left = np.array([*self._left_behind], np.int64)
        return self._complete(rows, self.first + np.arange(len(rows)), left)

    def _complete(self, rows: Ints, numbers: Ints, unfinished: Ints) -> Ints:
        done: Ints = (rows[:, self._moments] != NONE).all(axis=1)
        if self._parent is not None:
            done = done & ~np.isin(rows[:, self._parent], np.concatenate([numbers[~done], unfinished]))
        return done

    def drop(self, done: Ints) -> None:
        """The oldest rows leave; those that are not `done` are left behind."""
        width, first = self.width, self.first
        for at in np.flatnonzero(~done).tolist():
            self._left_behind[first + at] = self.cells[at * width : (at + 1) * width]
        del self.cells[: len(done) * width]
        self._gone += len(done) * width

    def take_left(self, *, complete: bool) -> tuple[Ints, Ints]:
        """Rows that were left behind leave too, with their numbers and in order: all, or those that are complete."""
        numbers = np.array(sorted(self._left_behind), np.int64)
        rows = np.array([self._left_behind[row] for row in numbers.tolist()], np.int64).reshape(-1, self.width)
        if complete:
            done = self._complete(rows, numbers, numbers[:0])
            numbers, rows = numbers[done], rows[done]
        for row in numbers.tolist():
            del self._left_behind[row]
        return numbers, rows
