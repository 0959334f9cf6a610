"""The columns: what the runs of one kernel in one panel took, out of their logs. Launches are added up.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.milestone_gqa_llama70b.panels import FOLDED, ORIGINAL, PANELS, Entry, Sizes, entry
from pytest_kernbench.kernels.ahbm.driver import Problem
from pytest_kernbench.kernels.reference.causal import visible_pairs
from pytest_kernbench.messages import link_bytes, messages
from pytest_kernbench.readings import of_programs, work_of
from pytest_kernbench.rooflines import Terms, busy_cycles, roofline, terms
from pytest_kernbench.simulator.device import Run

Row = dict[str, Any]
UNITS = ("GEMM", "MATH", "DMA")
TERMS = ("hbm_read", "hbm_write", "gemm", "math", "issue", "ipcq")


def points(panels: Iterable[str] = PANELS) -> list[dict[str, str]]:
    return [{"panel": panel, "kernel": each.kernel} for panel in panels for each in PANELS[panel]]


def measure(sizes: Sizes, panel: str, kernel: str) -> Row:
    """The figures of one kernel in one panel: model schedule, checkers on, so that a finding is an error."""
    each, problems = entry(panel, kernel), sizes.requests(panel)
    runs = [launch.run(chip) for chip, launch in each.launches(problems)]
    return {"role": each.role, **figures(runs, problems), **_reductions(each, runs)}


def figures(runs: Sequence[Run], problems: Sequence[Problem]) -> Row:
    """All but reductions and gains; see docs/milestone.md for what each is."""
    cycles = sum(run.cycles for run in runs)
    return {
        "cycles": cycles, "launches": len(runs), "programs": max(len(run.log.programs) for run in runs),
        "hbm_bytes_read": _sum(runs, "bytes", unit="DMA_R"), "hbm_bytes_written": _sum(runs, "bytes", unit="DMA_W"),
        "link_bytes": sum(map(link_bytes, runs)), "messages": sum(len(messages(run.log)) for run in runs),
        "composites": _count(runs, "composite"), "dots": _count(runs, "dot"),
        "macs_done": sum(int(work_of(run.log, "GEMM").work.sum()) for run in runs),
        "macs_needed": sum(map(macs_needed, problems)),
        **{f"{unit.lower()}_busy": _busy(runs, unit) / cycles for unit in UNITS},
        "scratch_high_water": max(run.scratch_high_water for run in runs), **_roofline(runs, cycles),
    }  # fmt: skip


def macs_needed(problem: Problem) -> int:
    """MACs of both products for the pairs that see each other: what no kernel can do without."""
    pairs = visible_pairs(problem.t_q, problem.kv_len, problem.first)
    return problem.heads * problem.group * pairs * (problem.d + problem.d_v)


def _sum(runs: Sequence[Run], column: str, **conditions: str) -> int:
    return sum(int(getattr(run.log.where(**conditions), column).sum()) for run in runs)


def _count(runs: Sequence[Run], name: str) -> int:
    return sum(len(run.log.where(name=name)) for run in runs)


def _busy(runs: Sequence[Run], unit: str) -> int:
    """Cycles in which a unit is busy, in the PE in which it is so longest."""
    return max(map(sum, zip(*(busy_cycles(run.log, unit) for run in runs), strict=True)))


def _roofline(runs: Sequence[Run], cycles: int) -> Row:
    """The roofline, which unit it is of, and what every unit of its busiest PE needs."""
    longest: list[Terms] = [max(terms(run), key=lambda each: each.largest) for run in runs]
    limit = sum(map(roofline, runs))
    bound = max(longest, key=lambda each: each.largest).bound
    needs = {name: sum(max(getattr(each, name) for each in terms(run)) for run in runs) for name in TERMS}
    return {
        "roofline": limit, "bound": bound, "position": cycles / limit,
        **{f"{name}_cycles": value for name, value in needs.items()},
    }  # fmt: skip


def _reductions(each: Entry, runs: Sequence[Run]) -> Row:
    """How many reductions the runs do one after another, each a store of O, and the rounds of one of them."""
    if each.rounds is None:
        return {"reductions": 0, "rounds": 0}
    stores = sum(int(of_programs(run.log, run.log.where(name="store", writes="O")).max()) for run in runs)
    return {"reductions": stores, "rounds": max(each.rounds(run.log) for run in runs)}


def with_gains(rows: Iterable[Row]) -> list[Row]:
    """The rows with how many times faster each is than both baselines of its panel."""
    rows = list(rows)
    found = []
    for row in rows:
        panel = {each["kernel"].rpartition(", ")[2]: each for each in rows if each["panel"] == row["panel"]}
        gains = {
            f"gain_over_{name.replace(' ', '_')}": panel[name]["cycles"] / row["cycles"] for name in (ORIGINAL, FOLDED)
        }
        found.append({**row, **gains})
    return found
