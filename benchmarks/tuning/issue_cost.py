"""ADR-0060 9.6: what issuing costs, by kind, for the decode kernel and for the one that it replaces.

Issue costs decide no row of the log, so each kernel runs once and is retimed. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cases import Decode
from benchmarks.tuning import launches
from benchmarks.tuning.item import Cost, Item, Point, Rows, View
from pytest_kernbench.simulator.ahbm.spec import ISSUE_COSTS
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

S = 32_768
ALL = "all"
KINDS = ("composite", "dot", "math", "load", "store", "send", "recv", "release", "wait", ALL)
CYCLES = (0, 200)
DEFAULT = "default"
ORDER = (0, DEFAULT, 200)


def points(quick: bool) -> Sequence[Point]:
    return grid(kernel=("hybrid", "baseline"), tile=(1024,) if quick else (64, 256, 1024))


def costs(quick: bool) -> Sequence[Cost]:
    """The defaults, then each kind at 0 and at 200 with the others at their defaults, and all of them at once."""
    kinds = ("composite", ALL) if quick else KINDS
    return [Cost({"kind": ALL, "issue": DEFAULT}, {}), *(_cost(kind, cycles) for kind in kinds for cycles in CYCLES)]


def _cost(kind: str, cycles: int) -> Cost:
    changed = dict.fromkeys(ISSUE_COSTS if kind == ALL else (kind,), cycles)
    return Cost({"kind": kind, "issue": cycles}, {"issue_costs": changed})


def run_at(kernel: str, tile: int) -> Run:
    case = Decode(S, tile, launches.N)
    return case.run(check=False) if kernel == "hybrid" else case.run_baseline(check=False)


def with_defaults(rows: Rows) -> Rows:
    """The rows, and for each kind its default beside 0 and 200."""
    base = {(row["kernel"], row["tile"]): row for row in rows if row["issue"] == DEFAULT}
    kinds = dict.fromkeys(row["kind"] for row in rows if row["kind"] != ALL)
    copies = [{**row, "kind": kind} for row in base.values() for kind in kinds]
    return [*rows, *copies]


def gains(rows: Rows) -> Rows:
    """For each tile and cost of everything: how many times longer the older kernel takes."""
    old = {(row["tile"], row["kind"], row["issue"]): row["cycles"] for row in rows if row["kernel"] == "baseline"}
    return [
        {**row, "TILE": row["tile"], "gain": old[row["tile"], ALL, row["issue"]] / row["cycles"]}
        for cost in ORDER
        for row in rows
        if (row["kernel"], row["kind"], row["issue"]) == ("hybrid", ALL, cost)
    ]


def _over_default(rows: Rows) -> Rows:
    """The times over those with default costs, from the cheapest to the dearest."""
    base = {(row["kernel"], row["tile"]): row["cycles"] for row in rows if row["issue"] == DEFAULT}
    found = [{**row, "over default": row["cycles"] / base[row["kernel"], row["tile"]]} for row in with_defaults(rows)]
    return sorted(found, key=lambda row: (ORDER.index(row["issue"]), KINDS.index(row["kind"])))


def _kinds(kernel: str, words: str) -> View:
    return View(
        kernel, f"Issue costs of {words}, S=32K N=8 TILE=1024", "issue", "over default", "kind",
        "issue cost of the kind (cycles)", "time over that with default costs (x)",
        {"kernel": kernel, "tile": 1024}, _over_default, log_x=False,
    )  # fmt: skip


VIEWS = (
    _kinds("hybrid", "gqa_decode"),
    _kinds("baseline", "attention_mesh_mlo"),
    View("gain", "Gain over the older kernel, decode S=32K N=8", "issue", "gain", "TILE",
         "issue cost of every kind (cycles)", "attention_mesh_mlo / gqa_decode (x)", {}, gains, log_x=False),
)  # fmt: skip

ITEM = Item(
    "issue-cost", "9.6", "what issuing costs, by kind", points, run_at, launches.times, VIEWS, costs
)  # fmt: skip
