"""ADR-0060 9.4: slots of the ring against how far the kernel runs ahead, and who waits for what.

Zigzag is measured with pieces that set out span after span and, as `interleave`, by twos.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from benchmarks.tuning import launches
from benchmarks.tuning.item import Item, Point, Rows, View
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.kernels.ahbm.gqa_ring import slots_needed
from pytest_kernbench.kernels.ahbm.positions import Placement
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweep_tables import Row
from pytest_kernbench.sweeps import grid

S, Q_BLOCK = 2048, 32
ORDERS: tuple[tuple[Placement, bool], ...] = (
    ("contiguous", False), ("striped", False), ("zigzag", False), ("zigzag", True),
)  # fmt: skip
PIECES = ((16_384, 32), (16_384, 64), (32_768, 64), (16_384, 128), (32_768, 128))  # bytes of a slot, keys of a piece
WAITS = ("message", "free slot", "own send", "product", "softmax", "memory")


def points(quick: bool) -> Sequence[Point]:
    """Slots against depth for one tile, then tiles against shardings at the slots of the spec and at larger ones."""
    fixed = {"sharding": ("zigzag",), "slot_bytes": (16_384,), "tile": (64,)}
    few = [
        *grid(s=(512,), **fixed, interleave=(False,), ahead=(0,), in_flight=(1, 2), slots=(3, 4, 6), recv_ahead=(1,)),
        *grid(s=(512,), **fixed, interleave=(True,), ahead=(0,), in_flight=(1,), slots=(4, 6), recv_ahead=(1,)),
        *grid(s=(512,), **fixed, interleave=(False,), ahead=(0,), in_flight=(1,), slots=(4,), recv_ahead=(0, 2)),
    ]
    if quick:
        return few
    depths = {"interleave": (False, True), "ahead": (0, 1), "in_flight": (1, 2)}
    found = [*few, *grid(s=(S,), **fixed, **depths, slots=(3, 4, 6, 8, 12), recv_ahead=(1,))]
    found += grid(s=(S,), **fixed, interleave=(False,), ahead=(0, 1), in_flight=(1,), slots=(8,), recv_ahead=(0, 1, 2))
    for (sharding, interleave), (slot_bytes, tile) in itertools.product(ORDERS, PIECES):
        point = {
            "s": S, "sharding": sharding, "interleave": interleave, "slot_bytes": slot_bytes, "tile": tile,
            "in_flight": 1, "recv_ahead": 1,
        }  # fmt: skip
        found += [{**point, "ahead": ahead, "slots": slots_at(ahead, interleave)} for ahead in (0, 1)]
    return [point for number, point in enumerate(found) if point not in found[:number]]


def slots_at(ahead: int, interleave: bool) -> int:
    """Slots at which shardings are compared: those that are needed with nothing ahead, and 8 with one piece ahead."""
    return 8 if ahead else slots_needed(Depth(ahead), interleave=interleave)


def run_at(
    s: int, sharding: Placement, interleave: bool, slot_bytes: int, ahead: int, in_flight: int, tile: int, slots: int,
    recv_ahead: int,
) -> Run:  # fmt: skip
    spec = AhbmSpec(ipcq_slots=slots, ipcq_slot_bytes=slot_bytes)
    return launches.ring(
        s, tile, Q_BLOCK, sharding, spec, Depth(ahead, in_flight), interleave=interleave, recv_ahead=recv_ahead
    )


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """The times, and for each of `WAITS` the cycles that a PE's kernel waits so, mean of all PEs."""
    return {**launches.times(run, point), **{f"wait for {cause}": cycles for cause, cycles in waits(run).items()}}


def waits(run: Run) -> dict[str, int]:
    """Mean cycles of a program in rows of waiting, by what made them end."""
    log, rows, ended = run.log, run.log.where(name=("wait", "recv")), run.log.all
    cycles, own = rows.end - rows.start, ended.program[rows.after] == rows.program
    names = np.array(log.names.values, object)[ended.name[rows.after]]
    units = np.array(log.units.values, object)[ended.unit[rows.after]]
    causes = {
        "message": (names == "send") & ~own,
        "free slot": names == "credit",
        "own send": (names == "send") & own,
        "product": names == "composite",
        "softmax": units == "MATH",
        "memory": (names == "load") | (names == "store"),
    }
    return {cause: int(cycles[chosen].sum()) // len(log.programs) for cause, chosen in causes.items()}


def shares(rows: Rows) -> Rows:
    """A row for each cause of waiting, with its share of the run's time."""
    return [
        {**row, "wait for": cause, "share": 100 * row[f"wait for {cause}"] / row["cycles"]}
        for row in rows
        for cause in WAITS
    ]


def _named(rows: Rows) -> Rows:
    """With what a picture tells apart, in words; one piece asked for ahead, as other numbers are no faster."""
    return [
        {**row, "ahead, in flight": f"{row['ahead']}, {row['in_flight']}{_by_twos(row)}", "ms": row["cycles"] / 1e6,
         "ipcq_slots": str(row["slots"])}
        for row in sorted(rows, key=lambda row: row["slots"])
        if row["recv_ahead"] == 1
    ]  # fmt: skip


def _with_enough(rows: Rows) -> Rows:
    """Where there are as many slots as are needed: with fewer, what does not hang takes several times as long."""
    return [row for row in _named(rows) if row["slots"] >= _needed(row)]


def _needed(row: Row) -> int:
    return slots_needed(Depth(row["ahead"], row["in_flight"]), interleave=row["interleave"])


def _by_twos(row: Row) -> str:
    return ", by twos" if row["interleave"] else ""


def _shardings(rows: Rows) -> Rows:
    """Each tile in the smallest slots that hold it (larger ones take the same time), one ahead in 8 slots."""
    least: dict[int, int] = {}
    for row in rows:
        least[row["tile"]] = min(least.get(row["tile"], row["slot_bytes"]), row["slot_bytes"])
    return [
        {**row, "sharding": f"{row['sharding']}{_by_twos(row)}"}
        for row in _named(rows)
        if row["slot_bytes"] == least[row["tile"]] and (row["ahead"], row["in_flight"], row["slots"]) == (1, 1, 8)
    ]


SMALL = {"sharding": "zigzag", "slot_bytes": 16_384, "s": S, "tile": 64}
PLAIN = {"ahead": 0, "in_flight": 1, "interleave": False, "s": S}
SLOTS_AXIS, TIME = "ipcq_slots (slots a direction)", "time (million cycles)"
VIEWS = (
    View("slots", "Slots of the ring, prefill S=2048 N=8, zigzag, TILE=64", "ipcq_slots", "ms", "ahead, in flight",
         SLOTS_AXIS, TIME, SMALL, _with_enough, log_x=False),
    View("waits", "Who waits for what, prefill S=2048 N=8, zigzag, TILE=64, nothing ahead", "ipcq_slots", "share",
         "wait for", SLOTS_AXIS, "share of a kernel's time (%)", {**SMALL, **PLAIN},
         lambda rows: shares(_named(rows)), log_x=False),
    View("sharding", "Pieces and shardings, prefill S=2048 N=8, one ahead in 8 slots", "tile", "ms",
         "sharding", "TILE (keys a message)", TIME, {"s": S}, _shardings),
)  # fmt: skip

ITEM = Item("ring", "9.4", "slots of the ring against issue-ahead, pieces and sharding", points, run_at, figures, VIEWS)
