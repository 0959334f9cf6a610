"""ADR-0060 9.1: how far ahead the kernel says composites, and how many panels the scheduler keeps in flight.

The first decides the rows of the log, so each is a run; the second only times, so it is retimed. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tuning import launches
from benchmarks.tuning.item import Cost, Item, Point, Rows, View
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

S = {"decode": 32_768, "prefill": 2048}
Q_BLOCK = 16


def points(quick: bool) -> Sequence[Point]:
    if quick:
        return grid(kernel=("decode",), tile=(1024,), ahead=(0, 1), in_flight=(1, 2))
    return [
        *grid(kernel=("decode",), tile=(64, 256, 1024), ahead=(0, 1, 2, 3), in_flight=(1, 2, 3)),
        *grid(kernel=("prefill",), tile=(128,), ahead=(0, 1, 2), in_flight=(1, 2, 3)),
    ]


def costs(quick: bool) -> Sequence[Cost]:
    panels = (1, 8) if quick else (1, 2, 4, 8, 16)
    return [Cost({"stream_depth": depth}, {"stream_depth": depth}) for depth in panels]


def run_at(kernel: str, tile: int, ahead: int, in_flight: int) -> Run:
    depth = Depth(ahead, in_flight)
    if kernel == "decode":
        return launches.decode(S[kernel], tile, depth)
    return launches.prefill(S[kernel], tile, Q_BLOCK, depth)


TIMES_BUSIEST = "time over that of the busiest unit (x)"


def _named(rows: Rows) -> Rows:
    """With what a picture tells apart, in words."""
    return [
        {**row, "kernel, TILE": f"{row['kernel']}, {row['tile']}", "depth": f"{row['ahead']}, {row['in_flight']}"}
        for row in rows
    ]


VIEWS = (
    View(
        "panels", "Panels in flight (one tile ahead, two P·V in flight)", "stream_depth", "over_busiest",
        "kernel, TILE", "stream_depth of the scheduler (panels)", TIMES_BUSIEST, {"depth": "1, 2"}, _named,
    ),
    View(
        "composites", "Composites said ahead (stream_depth 8)", "depth", "over_busiest", "kernel, TILE",
        "tiles whose Q·K is said ahead, P·V in flight (tiles)", TIMES_BUSIEST, {"stream_depth": 8}, _named, log_x=False,
    ),
)  # fmt: skip

ITEM = Item(
    "depth", "9.1", "composites said ahead by the kernel against panels in flight in the scheduler",
    points, run_at, launches.times, VIEWS, costs,
)  # fmt: skip
