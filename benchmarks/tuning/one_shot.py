"""ADR-0060 9.5: one tile over all keys of a PE against several, and the most keys that fit one tile.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tuning import launches
from benchmarks.tuning.item import LIMITS, RAN, Item, Point, Rows, View
from pytest_kernbench.simulator.device import Run

ONE = "all keys"
TILES = (256, 512, 1024)
S_PE = tuple(64 << doubling for doubling in range(9))
BEHIND_THE_LIMIT = (20_480, 22_528)


def points(quick: bool) -> Sequence[Point]:
    """Every length in one tile, and in tiles wherever there are at least two."""
    lengths = (512, 8192, 22_528) if quick else (*S_PE, *BEHIND_THE_LIMIT)
    tiles = (512, 1024) if quick else TILES
    return [
        {"s_pe": length, "tile": tile}
        for length in lengths
        for tile in (ONE, *(tile for tile in tiles if tile < length))
    ]


def run_at(s_pe: int, tile: int | str) -> Run:
    return launches.decode(launches.N * s_pe, s_pe if isinstance(tile, str) else tile)


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """`beyond_hbm`: the cycles that the run takes longer than reading its keys and values."""
    least = launches.kv_cycles(point["s_pe"])
    scratch = run.scratch_high_water
    return {"cycles": run.cycles, "hbm_cycles": least, "beyond_hbm": run.cycles - least, "scratch_bytes": scratch}


def crossover(rows: Rows, tile: int) -> int | None:
    """The least length a PE from which on tiles of `tile` keys are always faster than one tile; None if there is none.

    Lengths that do not fit one tile count as faster.
    """
    one = {row["s_pe"]: row["cycles"] if row["outcome"] == RAN else float("inf") for row in rows if row["tile"] == ONE}
    lengths = sorted(((row["s_pe"], row["cycles"]) for row in rows if row["tile"] == tile), reverse=True)
    found = None
    for length, cycles in lengths:
        if cycles >= one[length]:
            break
        found = length
    return found


def limit(rows: Rows) -> int | None:
    """The least length of the sweep that does not fit one tile."""
    return min((row["s_pe"] for row in rows if row["outcome"] in LIMITS), default=None)


VIEWS = (
    View("decode", "One tile or several, decode N=8", "s_pe", "beyond_hbm", "TILE", "keys of a PE, S_pe",
         "time beyond reading K and V (cycles)", {}, lambda rows: [{**row, "TILE": row["tile"]} for row in rows]),
)  # fmt: skip

ITEM = Item("one-shot", "9.5", "one tile over all keys of a PE against several", points, run_at, figures, VIEWS)
