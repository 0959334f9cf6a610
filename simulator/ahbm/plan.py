"""What a composite of a given shape does: its panels, its sub-tiles and their rows of the log (ADR-0014).

Worked out once a shape, counted from the composite's own row and start, and used for every tile like it.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.log import NONE, WIDTH, OpLog

# Cells that differ from one composite of a plan to the next; a plan's operands count from its first.
ADDED = [columns.PROGRAM, columns.PARENT, columns.REGION, columns.SITE, columns.ISSUE, columns.PEER]


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows [first, last) of the streamed operand: their bytes from `offset` on, in `runs` contiguous runs."""

    first: int
    last: int
    offset: int
    size: int
    charged: int
    runs: int
    span: int  # bytes from the first to the last, holes included
    tiles: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan depends on. `strides` are bytes; `misaligned` is the operand's place in its burst, None if in TCM."""

    m: int
    n: int
    k: int
    trans_b: bool
    itemsize: int
    strides: tuple[int, int]
    misaligned: int | None


class Plan:
    """The rows of the log and the work of a composite, worked out once a shape and used for every tile like it."""

    def __init__(self, shape: Shape, timing: Timing, log: OpLog) -> None:
        spec = timing.spec
        rows = shape.n if shape.trans_b else shape.k
        step = spec.panel_rows_transposed if shape.trans_b else spec.panel_rows
        self.tile_cycles = timing.tile_cycles(shape.itemsize)
        self.fill = spec.gemm_fill_cycles
        self.panels = [self._panel(shape, spec, first, min(first + step, rows)) for first in range(0, rows, step)]
        self._lay_out(shape, timing, log)

    def _panel(self, shape: Shape, spec: Any, first: int, last: int) -> Panel:
        cols = shape.k if shape.trans_b else shape.n
        m_tiles = -(-shape.m // spec.tile_m)
        if shape.trans_b:
            tiles = -(-(last - first) // spec.tile_n) * -(-shape.k // spec.tile_k) * m_tiles
        else:
            tiles = -(-(last - first) // spec.tile_k) * -(-shape.n // spec.tile_n) * m_tiles
        row, item = shape.strides
        count, length, stride = _runs(last - first, cols, row, item, shape.itemsize)
        offset = first * row
        lo = (shape.misaligned or 0) + offset
        charged = sum(_bursts(lo + index * stride, length, spec.burst_bytes) for index in range(count))
        span = (last - first - 1) * row + (cols - 1) * item + shape.itemsize
        return Panel(first, last, offset, (last - first) * cols * shape.itemsize, charged, count, span, tiles)

    def _lay_out(self, shape: Shape, timing: Timing, log: OpLog) -> None:
        """Rows relative to the composite's own: each panel (if it is streamed) followed by its sub-tiles."""
        streamed = shape.misaligned is not None
        cells: list[list[int]] = []
        operands: list[tuple[int, int]] = []
        self.panel_rows: list[int] = []
        self.run_rows: list[int] = []
        runs: list[int] = []
        tile_rows: list[int] = []
        for number, panel in enumerate(self.panels):
            if streamed:
                self.panel_rows.append(len(cells) + 1)
                cells.append(self._panel_cells(panel, number, len(operands), log))
                operands.append((panel.offset, panel.span))
            self.run_rows.append(len(cells) + 1)
            for tile in self._tiles(shape, timing.spec, panel):
                tile_rows.append(len(cells))
                runs.append(number)
                cells.append(self._tile_cells(tile, number, log))
        self.rows = len(cells)
        self.block = np.array(cells, np.int32)
        self.block[:, ADDED] = 0
        self.operands = np.array([(0, *operand) for operand in operands], np.uint32).reshape(-1, 3)
        self.tile_rows = np.array(tile_rows)
        self._place_tiles(runs)

    def _place_tiles(self, runs: list[int]) -> None:
        """When each sub-tile starts, counted from the start of its run."""
        self.tile_run = np.array(runs)
        first = np.searchsorted(self.tile_run, self.tile_run)
        starts = (np.arange(len(runs)) - first) * self.tile_cycles
        ends = starts + self.tile_cycles
        starts[1:][self.tile_run[1:] == 0] += self.fill
        ends[self.tile_run == 0] += self.fill
        self.tile_times = np.stack([starts, ends, ends], axis=1).astype(np.int32)  # start, free, end

    def _panel_cells(self, panel: Panel, number: int, operand: int, log: OpLog) -> list[int]:
        cells = [NONE] * WIDTH
        cells[columns.NAME], cells[columns.UNIT] = log.names.id("panel"), log.units.id("DMA_R")
        cells[columns.BYTES], cells[columns.CHARGED], cells[columns.WORK] = panel.size, panel.charged, 0
        cells[columns.OPERANDS], cells[columns.READS], cells[columns.WRITES] = operand, 1, 0
        cells[columns.RUNS], cells[columns.MESSAGE] = panel.runs, number
        return cells

    def _tile_cells(self, tile: tuple[int, int, int], number: int, log: OpLog) -> list[int]:
        cells = [NONE] * WIDTH
        cells[columns.NAME], cells[columns.UNIT] = log.names.id("gemm"), log.units.id("GEMM")
        cells[columns.BYTES], cells[columns.CHARGED] = 0, 0
        cells[columns.WORK], cells[columns.SHAPE] = tile[0] * tile[1] * tile[2], log.shapes.id(tile)
        cells[columns.OPERANDS], cells[columns.READS], cells[columns.WRITES] = 0, 0, 0
        cells[columns.RUNS], cells[columns.MESSAGE] = 0, number
        return cells

    def _tiles(self, shape: Shape, spec: Any, panel: Panel) -> list[tuple[int, int, int]]:
        """(m, n, k) of each sub-tile; m innermost, so that the streamed operand stays put."""
        rows = range(panel.first, panel.last, spec.tile_n if shape.trans_b else spec.tile_k)
        cols = range(0, shape.k if shape.trans_b else shape.n, spec.tile_k if shape.trans_b else spec.tile_n)
        found = []
        for row in rows:
            for col in cols:
                in_row = min(panel.last - row, rows.step)
                in_col = min(cols.stop - col, cols.step)
                n, k = (in_row, in_col) if shape.trans_b else (in_col, in_row)
                found += [(min(shape.m - m, spec.tile_m), n, k) for m in range(0, shape.m, spec.tile_m)]
        return found


def _runs(rows: int, cols: int, row: int, item: int, itemsize: int) -> tuple[int, int, int]:
    """Number, length in bytes and distance of the contiguous runs of a block."""
    if item != itemsize and cols > 1:
        return rows * cols, itemsize, item
    if row == cols * itemsize or rows == 1:
        return 1, rows * cols * itemsize, 0
    return rows, cols * itemsize, row


def _bursts(lo: int, size: int, burst: int) -> int:
    """Bytes moved for [lo, lo + size): whole bursts."""
    return (lo + size + burst - 1) // burst * burst - lo // burst * burst
