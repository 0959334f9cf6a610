"""ADR-0060 9.3: the size of a tile, and in prefill of a block of queries, against the scratch they take.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tuning import launches
from benchmarks.tuning.item import Item, Point, Rows, View
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

PREFILL_S = 2048


def points(quick: bool) -> Sequence[Point]:
    if quick:
        return [
            *grid(kernel=("decode",), s=(32_768,), tile=(64, 1024, 4096), q_block=(1,)),
            *grid(kernel=("prefill",), s=(PREFILL_S,), tile=(1024,), q_block=(64,)),
        ]
    tiles = [32 << doubling for doubling in range(8)]
    return [
        *grid(kernel=("decode",), s=(32_768, 131_072), tile=tiles, q_block=(1,)),
        *grid(kernel=("prefill",), s=(PREFILL_S,), tile=tiles[1:6], q_block=(4, 8, 16, 32, 64)),
    ]


def run_at(kernel: str, s: int, tile: int, q_block: int) -> Run:
    return launches.decode(s, tile) if kernel == "decode" else launches.prefill(s, tile, q_block)


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """`over_hbm`: how many times the run takes what the keys and values of a PE take to read once."""
    keys = point["s"] // (launches.N if point["kernel"] == "decode" else 1)
    least = launches.kv_cycles(keys)
    return {**launches.times(run, point), "hbm_cycles": least, "over_hbm": round(run.cycles / least, 4)}


def _in_ms(rows: Rows) -> Rows:
    return [{**row, "S": row["s"], "ms": row["cycles"] / 1e6, "KiB": row["scratch_bytes"] / 1024} for row in rows]


DECODE, PREFILL = {"kernel": "decode"}, {"kernel": "prefill"}
TILE_AXIS = "TILE (keys)"
VIEWS = (
    View("decode", "Tile size, decode N=8", "tile", "over_hbm", "S", TILE_AXIS, "time over reading K and V once (x)",
         DECODE, _in_ms),
    View("decode-scratch", "Scratch of a PE, decode N=8", "tile", "KiB", "S", TILE_AXIS, "scratch, high water (KiB)",
         DECODE, _in_ms),
    View("prefill", "Tile and query block, prefill S=2048 in one PE; what is missing does not fit", "tile", "ms",
         "q_block", TILE_AXIS, "time (million cycles)", PREFILL, _in_ms),
)  # fmt: skip

ITEM = Item("tile", "9.3", "tile size, and query block, against scratch", points, run_at, figures, VIEWS)
