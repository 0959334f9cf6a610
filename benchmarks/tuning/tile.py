"""ADR-0060 9.3: the size of a tile, and in prefill of a block of queries, against the scratch they take.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.tuning import launches
from benchmarks.tuning.item import Item, Point, Rows, View
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

PREFILL_S = 2048


def points(quick: bool) -> Sequence[Point]:
    """Decode with the shipped depth and with one product less in flight; prefill with the shipped one."""
    one, many = {"in_flight": (2,), "q_block": (1,)}, {"in_flight": (2,), "q_block": (4, 8, 16, 32, 64)}
    if quick:
        return [
            *grid(kernel=("decode",), s=(32_768,), tile=(64, 1024, 4096), **one),
            *grid(kernel=("prefill",), s=(PREFILL_S,), tile=(1024,), in_flight=(2,), q_block=(64,)),
        ]
    tiles = [32 << doubling for doubling in range(8)]
    return [
        *grid(kernel=("decode",), s=(32_768, 131_072), tile=tiles, in_flight=(1, 2), q_block=(1,)),
        *grid(kernel=("prefill",), s=(PREFILL_S,), tile=tiles[1:6], **many),
    ]


def run_at(kernel: str, s: int, tile: int, in_flight: int, q_block: int) -> Run:
    depth = Depth(in_flight=in_flight)
    return launches.decode(s, tile, depth) if kernel == "decode" else launches.prefill(s, tile, q_block, depth)


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """`over_hbm`: how many times the run takes what the keys and values of a PE take to read once.

    `dma_cycles`: how long the busiest read channel is occupied, its descriptors included.
    """
    keys = point["s"] // (launches.N if point["kernel"] == "decode" else 1)
    least = launches.kv_cycles(keys)
    over = round(run.cycles / least, 4)
    return {**launches.times(run, point), "hbm_cycles": least, "dma_cycles": _dma_cycles(run), "over_hbm": over}


def _dma_cycles(run: Run) -> int:
    rows = run.log.where(unit="DMA_R")
    return int(np.bincount(rows.program, rows.free - rows.start).max())


def _named(rows: Rows) -> Rows:
    """With what a picture tells apart, in words; without tiles of 32, as bad again as those of 64."""
    return [
        {**row, "S, P·V in flight": f"{row['s'] // 1024}K, {row['in_flight']}", "ms": row["cycles"] / 1e6}
        for row in rows
        if row["tile"] > 32
    ]


TILE_AXIS = "TILE (keys)"
VIEWS = (
    View("decode", "Tile size, decode N=8, one tile ahead", "tile", "over_hbm", "S, P·V in flight", TILE_AXIS,
         "time over reading K and V once (x)", {"kernel": "decode"}, _named),
    View("prefill", "Tile and query block, prefill S=2048 in one PE; what is missing does not fit", "tile", "ms",
         "q_block", TILE_AXIS, "time (million cycles)", {"kernel": "prefill"}, _named),
)  # fmt: skip

ITEM = Item("tile", "9.3", "tile size, and query block, against scratch", points, run_at, figures, VIEWS)
