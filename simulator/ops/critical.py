"""The critical path of a log: from its end back, each cycle belongs to what the next thing waited for.

Read from the log alone, so a wait inside the hardware that it does not name (a link, a credit) counts for the op that
waited. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.log import NONE, OpLog

BLOCKING = frozenset({"wait", "recv"})  # rows at whose end the kernel goes on


class Segment(NamedTuple):
    """Cycles [start, end) of the path, spent by `unit` on row `row`; the CPU's are issue costs."""

    unit: str
    row: int
    start: int
    end: int


class Moment(NamedTuple):
    """A point of the path: a row's issue, start, free or end."""

    what: str
    row: int


def critical_path(log: OpLog) -> list[Segment]:
    """Segments that follow one another from cycle 0 to the last end."""
    return _Path(log).segments() if len(log) else []


def total_cycles(log: OpLog) -> int:
    """The last issue or end of any op."""
    table = log.table()
    return int(table[:, [columns.ISSUE, columns.FREE, columns.END]].max()) if len(table) else 0


class _Path:
    def __init__(self, log: OpLog) -> None:
        self._rows: list[list[int]] = log.table().tolist()
        self._units: list[str] = log.units.values
        self._names: list[str] = log.names.values
        self._said = self._before((columns.PROGRAM,), columns.ISSUE, top=True)
        self._served = self._before((columns.PROGRAM, columns.UNIT), columns.START, top=False)
        self._ended: dict[tuple[int, int], int] = {}  # by program and cycle, the last GEMM row that set the unit free
        self._parts: dict[int, list[int]] = {}
        for row, cells in enumerate(self._rows):
            if self._unit(row) == "GEMM":
                self._ended[cells[columns.PROGRAM], cells[columns.FREE]] = row
            if cells[columns.PARENT] != NONE:
                self._parts.setdefault(cells[columns.PARENT], []).append(row)

    def _before(self, group: tuple[int, ...], order: int, top: bool) -> list[int]:
        """For each row the one before it in its group: as said (`order` is program order), or as started."""
        table = np.array(self._rows)
        rows = np.flatnonzero(table[:, columns.PARENT] == NONE) if top else np.arange(len(table))
        keys = [rows] if top else [rows, table[rows, order]]
        keys += [table[rows, column] for column in group]
        rows = rows[np.lexsort(keys)]
        same = (table[rows[1:]][:, group] == table[rows[:-1]][:, group]).all(axis=1)
        found = np.full(len(table), NONE)
        found[rows[1:][same]] = rows[:-1][same]
        return [int(row) for row in found]

    def segments(self) -> list[Segment]:
        ends = [max(cells[columns.END], cells[columns.FREE], cells[columns.ISSUE]) for cells in self._rows]
        row = int(np.argmax(ends))
        at: Moment | None = Moment("end" if self._rows[row][columns.END] == ends[row] else "issue", row)
        now, found = ends[row], list[Segment]()
        for _ in range(4 * len(self._rows)):
            if at is None:
                break
            unit, row, before, at = self._step(at, now)
            if before < now:
                found.append(Segment(unit, row, before, now))
                now = before
        if now > 0:
            found.append(Segment("CPU", row, 0, now))
        return found[::-1]

    def _step(self, at: Moment, now: int) -> tuple[str, int, int, Moment | None]:
        """Who spent the cycles before `now`, since when, and what came before."""
        row = at.row
        cells = self._rows[row]
        if at.what == "end":
            return self._from_end(row, cells)
        if at.what == "free":
            return self._unit(row), row, cells[columns.START], Moment("start", row)
        if at.what == "start":
            before = self._let_start(row, cells)
            return self._unit(row), row, self._time(before), before
        return self._from_issue(row, cells, now)

    def _from_end(self, row: int, cells: list[int]) -> tuple[str, int, int, Moment]:
        unit = self._unit(row)
        if unit == "CPU":
            blocked = cells[columns.END] > cells[columns.START] and cells[columns.AFTER] != NONE
            before = Moment("end", cells[columns.AFTER]) if blocked else Moment("issue", row)
            return "CPU", row, min(cells[columns.END], self._time(before)), before
        if row in self._parts:
            last = max(self._parts[row], key=lambda part: (self._rows[part][columns.END], part))
            if self._rows[last][columns.END] == cells[columns.END]:
                return unit, row, cells[columns.END], Moment("end", last)
        return unit, row, cells[columns.START], Moment("start", row)

    def _let_start(self, row: int, cells: list[int]) -> Moment:
        """What a start waited for: its issue, its panel, its unit, the op it was to follow, or a run that made room."""
        start, served = cells[columns.START], self._served[row]
        issued = Moment("issue", row if cells[columns.PARENT] == NONE else cells[columns.PARENT])
        if start == self._time(issued):
            return issued
        candidates = [Moment("end", part) for part in self._panels(row)]
        if served != NONE:
            candidates.append(Moment("free", served))
        if cells[columns.AFTER] != NONE:
            candidates.append(Moment("end", cells[columns.AFTER]))
        if (made_room := self._ended.get((cells[columns.PROGRAM], start))) is not None and made_room != row:
            candidates.append(Moment("free", made_room))
        before = next((each for each in candidates if self._time(each) == start), None)
        if before is None:
            before = max(
                (each for each in (*candidates, issued) if self._time(each) <= start), key=self._time, default=issued
            )
        return Moment("start", before.row) if before.what == "free" else before

    def _panels(self, row: int) -> list[int]:
        """The panel that a sub-tile works on: the last of its composite before it."""
        cells = self._rows[row]
        if cells[columns.PARENT] == NONE or self._unit(row) != "GEMM":
            return []
        before = [
            part for part in self._parts[cells[columns.PARENT]] if part < row and self._unit(part).startswith("DMA")
        ]
        return before[-1:]

    def _from_issue(self, row: int, cells: list[int], now: int) -> tuple[str, int, int, Moment | None]:
        before = self._said[row]
        if before == NONE:
            return "CPU", row, 0, None
        name = self._names[self._rows[before][columns.NAME]]
        at = Moment("end" if name in BLOCKING else "issue", before)
        return "CPU", row, min(now, self._time(at)), at

    def _time(self, at: Moment) -> int:
        column = {"issue": columns.ISSUE, "start": columns.START, "free": columns.FREE, "end": columns.END}[at.what]
        return self._rows[at.row][column]

    def _unit(self, row: int) -> str:
        return self._units[self._rows[row][columns.UNIT]]
