"""ADR-0060 9.5: one tile over all keys of a PE against several, and the most keys that fit one tile.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tuning import launches
from benchmarks.tuning.item import RAN, Item, Point, Rows, View
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

ONE = "all keys"
TILES = (256, 512, 1024)
S_PE = tuple(64 << doubling for doubling in range(9))
MOST = 21_444  # keys of a PE whose scores fit the scratch in one tile


def points(quick: bool) -> Sequence[Point]:
    """Every length in one tile, and wherever there are at least two, in tiles at both depths."""
    lengths = (512, 8192, MOST, MOST + 1) if quick else (*S_PE, MOST, MOST + 1)
    tiles = (1024,) if quick else TILES
    found: list[Point] = []
    for length in lengths:
        found.append({"s_pe": length, "tile": ONE, "in_flight": 1})
        for tile in tiles:
            if tile < length:
                found += grid(s_pe=(length,), tile=(tile,), in_flight=(1, 2))
    return found


def run_at(s_pe: int, tile: int | str, in_flight: int) -> Run:
    return launches.decode(launches.N * s_pe, s_pe if isinstance(tile, str) else tile, Depth(in_flight=in_flight))


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """`beyond_hbm`: the cycles that the run takes longer than reading its keys and values."""
    least = launches.kv_cycles(point["s_pe"])
    scratch = run.scratch_high_water
    return {"cycles": run.cycles, "hbm_cycles": least, "beyond_hbm": run.cycles - least, "scratch_bytes": scratch}


def crossover(rows: Rows, tile: int, in_flight: int) -> int | None:
    """The least length a PE from which on tiles of `tile` keys are always faster than one tile; None if there is none.

    Lengths that do not fit one tile count as faster.
    """
    one = {row["s_pe"]: row["cycles"] if row["outcome"] == RAN else float("inf") for row in rows if row["tile"] == ONE}
    tiled = {row["s_pe"]: row["cycles"] for row in rows if (row["tile"], row["in_flight"]) == (tile, in_flight)}
    found = None
    for length in sorted(tiled, reverse=True):
        if tiled[length] >= one[length]:
            break
        found = length
    return found


def _named(rows: Rows) -> Rows:
    """With what a picture tells apart, in words; without the lengths at the limit, too close to each other to draw."""
    return [
        {**row, "TILE, P·V in flight": ONE if row["tile"] == ONE else f"{row['tile']}, {row['in_flight']}"}
        for row in rows
        if row["s_pe"] in S_PE
    ]


VIEWS = (
    View("decode", "One tile or several, decode N=8", "s_pe", "beyond_hbm", "TILE, P·V in flight",
         "keys of a PE, S_pe", "time beyond reading K and V once (cycles)", {}, _named),
)  # fmt: skip

ITEM = Item("one-shot", "9.5", "one tile over all keys of a PE against several", points, run_at, figures, VIEWS)
