"""How long a run takes at least, at most, and how much of two units' work goes on at once: from its log and its spec.

The bounds of ADR-0060 11.6 for any kernel. Work is counted from bytes, MACs and elements, never from simulated times,
so that the lower bound can find a fault of the simulator. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_kernbench.readings import Ints, causal_order, of_programs, say
from pytest_kernbench.signatures import checked
from pytest_kernbench.simulator.ahbm.timing import EXPONENTIALS, Timing
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import NONE, OpLog, Row, Selection

Spans = list[tuple[int, int]]
UNPAID = ("drain",)  # rows that cost the kernel's CPU nothing, beside the children of composites


@dataclass(frozen=True)
class Terms:
    """Cycles that each unit of one program needs at the spec's numbers, whatever the kernel overlaps."""

    hbm_read: float
    hbm_write: float
    gemm: float
    math: float
    issue: float
    ipcq: float

    @property
    def largest(self) -> float:
        return float(max(vars(self).values()))

    @property
    def bound(self) -> str:
        """The name of the largest."""
        return max(vars(self), key=lambda name: float(getattr(self, name)))

    def __str__(self) -> str:
        return ", ".join(f"{name} {cycles:.0f}" for name, cycles in vars(self).items())


def terms(run: Run) -> list[Terms]:
    """The terms of each program."""
    log, spec = run.log, run.spec
    bandwidth = spec.hbm_bytes_per_cycle * spec.hbm_efficiency_percent / 100
    columns = (
        of_programs(log, log.where(unit="DMA_R"), "bytes") / bandwidth,
        of_programs(log, log.where(unit="DMA_W"), "bytes") / bandwidth,
        _tiles(log, spec) * (spec.tile_m * spec.tile_n * spec.tile_k / spec.gemm_macs_per_cycle),
        _math(log, spec),
        _by_program(log, issue_cycles(run)),
        _busiest_direction(log) / max(spec.link_bytes_per_cycle, spec.ucie_bytes_per_cycle),
    )
    return [Terms(*map(float, row)) for row in zip(*columns, strict=True)]


@checked
def roofline(run: Run) -> float:
    """Cycles of the busiest unit of the busiest program: no run can be shorter."""
    return max((each.largest for each in terms(run)), default=0.0)


@checked
def serial_sum(run: Run) -> int:
    """Cycles of the run if every program did one thing after another: each op from start to end, and issue costs.

    A program that receives goes on when both it and the sender have come so far, so that for several programs this is
    the longest chain of them. A kernel that is slower than this overlaps nothing and waits for nothing that is there.
    """
    log, rows = run.log, run.log.all
    cost = issue_cycles(run) + np.where(_works(rows, log), rows.end - rows.start, 0)
    program, after, costs = rows.program.tolist(), rows.after.tolist(), cost.tolist()
    at = [0] * len(log.programs)
    ended = [0] * len(log)
    for row in causal_order(log):
        awaited = after[row]
        here = program[row]
        if awaited != NONE:
            at[here] = max(at[here], ended[awaited])
        at[here] = ended[row] = at[here] + costs[row]
    return max(at, default=0)


def _works(rows: Selection, log: OpLog) -> Any:
    """Rows that are work of a unit: no waits, and no composites, whose children do the work."""
    idle = [id for id, name in enumerate(log.units.values) if name in ("CPU", "SCHED")]
    return ~np.isin(rows.unit, idle)


def issue_cycles(run: Run) -> Ints:
    """For each row, what the kernel's CPU spent to say it."""
    rows, timing = run.log.all, Timing(run.spec)
    by_name = [0 if name in UNPAID else timing.issue_cycles(name) for name in run.log.names.values]
    costs = np.array(by_name or [0], np.int64)[rows.name]
    return np.where(rows.parent == NONE, costs, 0)


def _by_program(log: OpLog, values: Ints) -> Any:
    return np.bincount(log.all.program, values, minlength=len(log.programs))


def _tiles(log: OpLog, spec: Any) -> Ints:
    """For each program, its GEMM sub-tiles; a short one takes as long as a whole one."""
    tiles = of_programs(log, log.where(name="gemm"))
    for row in log.where(name="dot"):
        m, n, k = row.shape
        tiles[row.program] += -(-m // spec.tile_m) * -(-n // spec.tile_n) * -(-k // spec.tile_k)
    return tiles


def _math(log: OpLog, spec: Any) -> Any:
    """For each program, start-up of its MATH ops and elements over lanes."""
    ops = log.where(unit="MATH")
    exponentials = ops.where(name=EXPONENTIALS)
    elements = of_programs(log, ops, "work") + of_programs(log, exponentials, "work") * (
        spec.exp_cycles_per_element - 1
    )
    return of_programs(log, ops) * spec.math_start_cycles + elements / spec.math_lanes


def _busiest_direction(log: OpLog) -> Any:
    """For each program, the bytes of its messages in the direction that has most."""
    names = [name for name in log.units.values if name.startswith("IPCQ")]
    sums = [of_programs(log, log.where(unit=name, name="send"), "bytes") for name in names]
    return np.max(sums, axis=0) if sums else np.zeros(len(log.programs), np.int64)


def out_of_bounds(run: Run, lower: float, upper: float, ratio: float | None) -> str | None:
    """Which of the three promises about the run's cycles does not hold; None if they all do."""
    _model_time(run)
    cycles = run.cycles
    if lower > upper or lower < 0 or (ratio is not None and (ratio < 1 or lower == 0)):
        raise ValueError(
            f"bounds {lower}..{upper} with ratio {ratio}: wants 0 <= lower <= upper, ratio >= 1, lower > 0 with it"
        )
    if cycles < lower:
        fact = f"{cycles} cycles are below the lower bound of {lower:g}: no kernel can do this, so the model is wrong"
    elif cycles > upper:
        fact = f"{cycles} cycles are above the upper bound of {upper:g} (lower bound {lower:g})"
    elif ratio is not None and cycles > ratio * lower:
        times = f"{cycles / lower:.3f} times the lower bound of {lower:g}, expected at most {ratio:g} times"
        fact = f"{cycles} cycles are {times}"
    else:
        return None
    return "\n".join([fact, *_what_took_so_long(run)])


def _what_took_so_long(run: Run) -> Iterator[str]:
    log = run.log
    if not len(log):
        return
    last = log[int(np.argmax(log.all.end))]
    yield f"  last to end, at cycle {last.end}: {say(log, last)}"
    waits = log.where(name=("wait", "recv"))
    if len(waits):
        longest = int(waits.index[np.argmax(waits.end - waits.start)])
        yield f"  longest wait, {log[longest].end - log[longest].start} cycles: {say(log, longest)}"
    yield f"  units of {log.programs[last.program]}: {terms(run)[last.program]}"


def _model_time(run: Run) -> None:
    if run.schedule != "model":
        raise ValueError(f"times under schedule {run.schedule!r} mean nothing: judge a run with schedule='model'")


def not_overlapped(run: Run, unit: str, other: str, at_least: float) -> str | None:
    """The program in which two units overlap least, if that is less than `at_least`; None if it is not."""
    _model_time(run)
    log = run.log
    if not 0 < at_least <= 1:
        raise ValueError(f"at_least={at_least}: wants a fraction over 0, up to 1")
    shares = [
        (both / min(mine, theirs), both, mine, theirs, program)
        for program in range(len(log.programs))
        for both, mine, theirs in [_shared_cycles(log, unit, other, program)]
        if mine and theirs
    ]
    if not shares:
        return f"no program has work on both {unit} and {other}, so nothing can overlap"
    share, both, mine, theirs, program = min(shares)
    if share >= at_least:
        return None
    shorter, longer = (unit, other) if mine <= theirs else (other, unit)
    alone = _first_alone(log, shorter, longer, program)
    example = (
        f"\n  first {shorter} without {longer}: {say(log, alone)}, cycles {alone.start}..{alone.free}" if alone else ""
    )
    return (
        f"{unit} and {other} overlap for {both} cycles of {log.programs[program]}, {share:.3f} of the shorter one, "
        f"expected at least {at_least:g}: {unit} is busy for {mine}, {other} for {theirs}{example}"
    )


def busy_cycles(log: OpLog, unit: str) -> list[int]:
    """For each program, the cycles in which a unit is occupied, from start to free; "DMA" is either of its two."""
    return [_length(_busy(log, unit, program)) for program in range(len(log.programs))]


def _shared_cycles(log: OpLog, unit: str, other: str, program: int) -> tuple[int, int, int]:
    mine, theirs = _busy(log, unit, program), _busy(log, other, program)
    return _length(_both(mine, theirs)), _length(mine), _length(theirs)


def _busy(log: OpLog, unit: str, program: int) -> Spans:
    """When a unit is busy, as disjoint spans in order."""
    rows = log.where(unit=unit, program=program)
    spans: Spans = []
    for start, free in sorted(zip(rows.start.tolist(), rows.free.tolist(), strict=True)):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], free)
        elif free > start:
            spans.append((start, free))
    return spans


def _both(mine: Spans, theirs: Spans) -> Spans:
    """What two lists of spans have in common."""
    common, one, two = [], 0, 0
    while one < len(mine) and two < len(theirs):
        lo, hi = max(mine[one][0], theirs[two][0]), min(mine[one][1], theirs[two][1])
        if lo < hi:
            common.append((lo, hi))
        one, two = (one + 1, two) if mine[one][1] <= theirs[two][1] else (one, two + 1)
    return common


def _length(spans: Spans) -> int:
    return sum(hi - lo for lo, hi in spans)


def _first_alone(log: OpLog, unit: str, other: str, program: int) -> Row | None:
    """The first op of a unit during which the other is idle all the time."""
    theirs = _busy(log, other, program)
    for row in sorted(log.where(unit=unit, program=program), key=lambda row: row.start):
        if row.free > row.start and not _both([(row.start, row.free)], theirs):
            return row
    return None
