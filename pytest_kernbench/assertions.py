"""What a kernel's design document promises, as assertions on runs: `from pytest_kernbench import assertions as ka`.

They take runs, names of tensors and numbers, and serve any kernel. A failure is an AssertionError that has the numbers
of both sides, the first op that is to blame and its source line; a call that could not fail is a ValueError.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pytest_kernbench import comparisons, composites, messages, pipes, readings, rooflines
from pytest_kernbench.hazards import ALLOCATION, RACES
from pytest_kernbench.readings import say
from pytest_kernbench.rooflines import roofline, serial_sum
from pytest_kernbench.signatures import checked
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import SimError

__all__ = [
    "assert_bytes_read",
    "assert_composite_offload",
    "assert_deterministic",
    "assert_dma_aligned",
    "assert_dma_reads_independent_of_group",
    "assert_flags_balanced",
    "assert_gemm_count",
    "assert_issue_ahead",
    "assert_latency_between",
    "assert_matches_reference",
    "assert_neighbour_only_hops",
    "assert_no_dead_transfers",
    "assert_no_races",
    "assert_no_redundant_transfers",
    "assert_no_truncated_copy",
    "assert_no_use_after_recycle",
    "assert_overlap",
    "assert_queues_drained",
    "assert_reduction_rounds",
    "assert_scalar_gm_accesses",
    "assert_schedule_independent",
    "assert_scratch_within",
    "assert_ub_budget",
    "assert_work_scales_with_group",
    "roofline",
    "serial_sum",
]

MOST_RUNS = 1000  # that a test is taken to ask for on purpose


def _hold(complaint: str | None) -> None:
    """Fail with `complaint` if there is one."""
    __tracebackhide__ = True
    if complaint is not None:
        raise AssertionError(complaint)


# --- bytes and work ---------------------------------------------------------------------------------------------------


@checked
def assert_dma_reads_independent_of_group(runs: Mapping[int, Run], tensors: Sequence[str] = ("K", "V")) -> None:
    """Every PE reads the same number of bytes of each tensor, in as many DMA reads, whatever the group size.

    `runs`: a run for each group size, at least two. `tensors`: names; loads and the panels of composites both count.
    Raises AssertionError with the table of bytes and reads and the first read that only one run has, or if no run reads
    a tensor at all; ValueError for a tensor that no run has. ADR-0060 11.2.
    """
    __tracebackhide__ = True
    _several(runs)
    for tensor in tensors:
        _hold(readings.grouped_reads(runs, tensor))


@checked
def assert_work_scales_with_group(runs: Mapping[int, Run], unit: str = "GEMM") -> None:
    """The work of a unit is proportional to the group size, exactly.

    `runs`: a run for each group size, at least two. `unit`: "GEMM" counts MACs of sub-tiles and dots, another unit the
    elements or MACs of its rows. Raises AssertionError with the work of each run and the first source line whose work
    did not grow as it should. ADR-0060 11.2.
    """
    __tracebackhide__ = True
    _several(runs)
    _hold(readings.grouped_work(runs, unit))


def _several(runs: Mapping[int, Run]) -> None:
    if len(runs) < 2:
        raise ValueError(f"runs has {len(runs)} group size: nothing to compare, give at least two")
    if 0 in runs:
        raise ValueError("runs has the group size 0: wants whole numbers from 1")


@checked
def assert_bytes_read(run: Run, tensor: str, expected: int | Sequence[int]) -> None:
    """DMA reads of `tensor`, a name, move exactly `expected` bytes: a total, or one number for each program.

    Bytes are those asked for; bursts are charged in time only. Raises AssertionError with both numbers and the first
    read of bytes that had been read before; ValueError for a tensor that the run does not have. ADR-0060 11.2, B.4.
    """
    __tracebackhide__ = True
    log = run.log
    reads = readings.reads_of(log, tensor)
    got, wanted = readings.expected_by_program(log, expected, readings.of_programs(log, reads, "bytes"))
    if got != wanted:
        blame = readings.twice_read(log, tensor)
        raise AssertionError(f"{got} bytes of {tensor} are read, expected {wanted}\n{blame}")


@checked
def assert_gemm_count(
    run: Run, expected: int | Sequence[int], *, of: str = "product", region: str | None = None
) -> None:
    """The run issues exactly `expected` matrix products: a total, or one number for each program.

    `of`: "product" counts composites and dots, "tile" the sub-tiles that the scheduler makes of composites. `region`:
    count those with this label only. Raises AssertionError with both numbers, how many each source line issues and the
    last one (the first too many, if there are too many). ADR-0060 11.4.
    """
    __tracebackhide__ = True
    log = run.log
    rows = composites.counted(log, of, region)
    got, wanted = readings.expected_by_program(log, expected, readings.of_programs(log, rows))
    if got != wanted:
        blame = _counted(run, rows.index.tolist(), expected)
        raise AssertionError(f"{got} {of}s of GEMM, expected {wanted}\n{blame}")


def _counted(run: Run, rows: list[int], expected: int | Sequence[int]) -> str:
    """How many of `rows` each source line has, and the row at which they differ from `expected`."""
    if not rows:
        return "  there is none"
    sites = [str(run.log[index].site) for index in rows]
    lines = [f"  {sites.count(site)} at {site}" for site in dict.fromkeys(sites)]
    over = isinstance(expected, int) and len(rows) > expected
    at = rows[expected] if over and isinstance(expected, int) else rows[-1]
    return "\n".join([*lines, f"  {'first too many' if over else 'last'}: {say(run.log, at)}"])


@checked
def assert_scratch_within(run: Run, nbytes: int) -> None:
    """No PE ever had more than `nbytes` bytes of scratch allocated.

    Raises AssertionError with the high-water mark and the first op that touches scratch beyond. ADR-0060 11.5.
    """
    __tracebackhide__ = True
    high = run.scratch_high_water
    if high > nbytes:
        blame = _first_beyond(run, nbytes)
        raise AssertionError(f"scratch goes up to {high} bytes, expected at most {nbytes}\n  {blame}")


def _first_beyond(run: Run, nbytes: int) -> str:
    log = run.log
    for row in log.where(tensor="scratch"):
        reach = max(each.offset + each.size for each in row.operands if each.tensor == "scratch")
        if reach > nbytes:
            return f"first op beyond, up to byte {reach}: {say(log, row)}"
    return "no op touches what lies beyond: it was taken and not used"


# --- messages ---------------------------------------------------------------------------------------------------------


@checked
def assert_reduction_rounds(run: Run, n: int, rounds: int | None = None, *, max_messages: int | None = None) -> None:
    """Messages of the run reduce the parts of `n` programs to one root: over n-1 edges, in exactly `rounds` rounds.

    `rounds`: ceil(log2 n) if not given. A round is a merge: the longest chain of merges that must follow each other, if
    a program takes in one part a round; it is found from who waited for whose message, never from times. All messages
    of an edge are one merge; `max_messages` limits how many an edge may take. Of a run on several cubes each must hold
    such a reduction. Raises AssertionError with both numbers and the first receive past the rounds, or the edge that is
    no part of a tree, or the part that came after the sum was sent on. ADR-0060 11.3.
    """
    __tracebackhide__ = True
    if n < 1:
        raise ValueError(f"a reduction of {n} programs: wants at least 1")
    expected = math.ceil(math.log2(n)) if rounds is None else rounds
    _hold(messages.reduction(run.log, n, expected, max_messages))


@checked
def assert_neighbour_only_hops(run: Run) -> None:
    """Every message goes to a PE that is one physical hop away.

    Raises AssertionError with the number of hops and the first message that goes further, or if a launch of several
    programs sends none. ADR-0060 11.3.
    """
    __tracebackhide__ = True
    _hold(messages.far_hops(run))


@checked
def assert_queues_drained(run: Run) -> None:
    """Every message is received exactly once, and every slot has come home to its sender.

    Read from the log, whether or not the run was checked. Raises AssertionError with the numbers of sends, receives and
    slots of the first queue that is not drained, and the first message left in it. ADR-0023; ADR-0060 11.3.
    """
    __tracebackhide__ = True
    _hold(messages.undrained(run.log))


# --- composites -------------------------------------------------------------------------------------------------------


@checked
def assert_composite_offload(run: Run, streamed: Collection[str] = ()) -> None:
    """Every product is a composite, and its sub-tiles do all of its MACs; no blocking `dot` occurs.

    `streamed`: names of tensors that may come on chip as panels of composites only. Raises AssertionError with the
    first dot, with MACs of both sides for the first composite without its sub-tiles, or with the first other read of a
    streamed tensor. ADR-0060 11.7.
    """
    __tracebackhide__ = True
    _hold(composites.not_offloaded(run.log, streamed))


@checked
def assert_issue_ahead(run: Run, depth: int = 1, *, region: str | None = None) -> None:
    """In every program, composite j + `depth` is issued before the kernel waits for composite j of the same label.

    Judged by the order in which the kernel says things, never by time. `region`: the label (`tl.region`); without it
    one label of the run has to keep the promise. Raises AssertionError with the two composites and the wait between
    them, or if no program has more than `depth` composites of a label. ADR-0060 11.7.
    """
    __tracebackhide__ = True
    if depth < 1:
        raise ValueError(f"depth {depth}: wants at least 1")
    _hold(composites.not_ahead(run.log, depth, region))


# --- findings ---------------------------------------------------------------------------------------------------------


@checked
def assert_no_races(run: Run) -> None:
    """The checkers found no race: no read or write that nothing puts in order with another write of the same bytes.

    For runs with `check="collect"`, which do not fail by themselves. Raises AssertionError with every race; ValueError
    for a run with `check=False`, which was not looked at. ADR-0060 11.8.
    """
    __tracebackhide__ = True
    _no_findings(run, RACES)


@checked
def assert_no_use_after_recycle(run: Run) -> None:
    """The checkers found nobody who uses bytes that have another owner by now, and no op in flight on such bytes.

    For runs with `check="collect"`, which do not fail by themselves. Raises AssertionError with every such finding;
    ValueError for a run with `check=False`, which was not looked at. ADR-0060 B.3, ADR-0063.
    """
    __tracebackhide__ = True
    _no_findings(run, ALLOCATION)


@checked
def assert_no_redundant_transfers(run: Run) -> None:
    """No transfer fetches what a copy on chip has: bytes of an unchanged tensor whose copy is alive and unchanged too.

    Raises AssertionError with every such note, both transfers in it; ValueError for a run with `check=False`, which was
    not looked at. Panels of a composite leave no copy; one copy has to hold all of a transfer.
    ADR-0060 B.4, ADR-0062.
    """
    __tracebackhide__ = True
    _no_findings(run, ("redundant-transfer",))


@checked
def assert_no_dead_transfers(run: Run) -> None:
    """Every load, and every copy into UB, is read: at least a byte of it before it is overwritten or the run ends.

    Raises AssertionError with every such note; ValueError for a run with `check=False`, which was not looked at.
    ADR-0062.
    """
    __tracebackhide__ = True
    _no_findings(run, ("dead-transfer",))


def _no_findings(run: Run, kinds: Sequence[str]) -> None:
    """None of `kinds` among what the checkers found or noted."""
    __tracebackhide__ = True
    if not run.checked:
        raise ValueError('the run had check=False, so nobody looked: run it with check="collect"')
    found = [str(hazard) for hazard in (*run.hazards, *run.notes) if hazard.kind in kinds]
    if found:
        raise AssertionError("\n\n".join([f"{len(found)} of {', '.join(kinds)}, expected 0", *found]))


# --- time -------------------------------------------------------------------------------------------------------------


@checked
def assert_overlap(run: Run, unit: str, other: str, *, at_least: float) -> None:
    """In every program with work on both units, they work at the same time for `at_least` of the shorter one's time.

    `unit`, `other`: such as "DMA" and "GEMM" ("DMA" is reads and writes). `at_least`: a fraction, over 0 and up to 1.
    Busy is from the start of an op until its unit is free. Raises AssertionError for the program that overlaps least,
    with cycles of both and the first op that runs alone, or if no program has work on both; ValueError for a run under
    another schedule than the model's. ADR-0060 11.6.
    """
    __tracebackhide__ = True
    _hold(rooflines.not_overlapped(run, unit, other, at_least))


@checked
def assert_latency_between(run: Run, lower: float, upper: float, ratio: float | None = None) -> None:
    """The run takes `lower` to `upper` cycles, and at most `ratio` times `lower`.

    Natural bounds of any kernel are `roofline(run)` and `serial_sum(run)`, both in cycles. Raises AssertionError with
    the numbers, the last op to end, the longest wait and what each unit needs; ValueError for bounds that no run could
    keep or break, and for a run under another schedule than the model's. ADR-0060 11.6.
    """
    __tracebackhide__ = True
    _hold(rooflines.out_of_bounds(run, lower, upper, ratio))


# --- results ----------------------------------------------------------------------------------------------------------


@checked
def assert_matches_reference(run: Run, tensor: Any, expected: Any, bound: Any, *, how: str = "") -> None:
    """Every element of `tensor` is within `bound` of `expected`, and NaN and infinite exactly where that is.

    `tensor`: one of the run's, or its name. `expected`: an array of the shape of `run.array(tensor)`, best float64.
    `bound`: a number, or an object with `.bound` whose text explains it, such as an error model; `how` says where the
    numbers come from. Raises AssertionError with the worst element, both values, error and bound, how many are off, the
    op that wrote these bytes last, and a hint if the row belongs elsewhere; ValueError for another shape or a bound
    that is not finite. ADR-0060 11.1.
    """
    __tracebackhide__ = True
    _hold(comparisons.mismatch(run, tensor, expected, bound, how))


@checked
def assert_deterministic(make_run: Callable[[], Run], times: int = 2) -> None:
    """`times` runs have the same log, byte for byte, and the same cycles, findings and scratch.

    `make_run()`: makes everything anew, chip and tensors too, and returns a Run. Raises AssertionError with the first
    row that differs, what differs in it and its source line. ADR-0060 11.8.
    """
    __tracebackhide__ = True
    if not 2 <= times <= MOST_RUNS:
        raise ValueError(f"times {times}: wants 2, since one run has nothing to differ from, to {MOST_RUNS}")
    first = _made(make_run)
    for number in range(2, times + 1):
        again = _made(make_run)
        difference = comparisons.first_difference(first.log, again.log) or _other_summary(first, again)
        _hold(difference and f"run {number} is not run 1: {difference}")


def _made(make_run: Callable[..., Run], **how: Any) -> Run:
    """The run that `make_run` makes, if it is one."""
    _takes(make_run, how)
    run: object = make_run(**how)
    if not isinstance(run, Run):
        raise ValueError(f"make_run returned {run!r}: wants what run_kernel, or the run of a device, returned")
    return run


def _takes(make_run: Callable[..., Run], how: Mapping[str, Any]) -> None:
    try:
        inspect.signature(make_run).bind(**how)
    except (TypeError, ValueError) as error:  # a function of C may say nothing of itself
        raise ValueError(f"make_run cannot be called with ({', '.join(how)}): {error}") from None


def _other_summary(first: Run, again: Run) -> str | None:
    mine, theirs = ((run.cycles, run.scratch_high_water, run.hazards) for run in (first, again))
    return None if mine == theirs else f"cycles, scratch and findings are {mine} against {theirs}"


@checked
def assert_schedule_independent(
    make_run: Callable[..., Run], tensors: Collection[Any], seeds: Iterable[int] = range(5)
) -> None:
    """Results have the same bits under the model's schedule, under jitter from each of `seeds`, under every late order.

    `make_run(schedule=..., seed=...)` makes everything anew, chip and tensors too, and returns a Run; `tensors` are
    those to compare, or their names. Raises AssertionError with schedule and seed, both values
    and the op that wrote them last; also if a run has findings. Whatever a run raises says under which schedule.
    ADR-0060 11.8.
    """
    __tracebackhide__ = True
    usual = _under(make_run, "model", 0)
    arrays = {name: usual.array(name) for name in map(comparisons.name_of, tensors)}
    if not arrays:
        raise ValueError("tensors is empty, so nothing would be compared: name the kernel's results")
    late = [("late", seed) for seed in range(usual.late_orders)]
    for schedule, seed in [*(("jitter", seed) for seed in seeds), *late]:
        run = _under(make_run, schedule, seed)
        for name, array in arrays.items():
            changed = comparisons.changed_bits(run, name, array)
            _hold(changed and f"under schedule {schedule!r}, seed {seed}: {changed}")


def _under(make_run: Callable[..., Run], schedule: str, seed: int) -> Run:
    """The run under a schedule; a finding fails it."""
    __tracebackhide__ = True
    try:
        run = _made(make_run, schedule=schedule, seed=seed)
    except SimError as error:
        error.add_note(f"under schedule {schedule!r}, seed {seed}")
        raise
    if run.hazards:
        count = f"{len(run.hazards)} findings under schedule {schedule!r}, seed {seed}, expected 0"
        raise AssertionError("\n\n".join([count, *map(str, run.hazards)]))
    return run


# --- cores of pipes (Ascend 310P) -------------------------------------------------------------------------------------


@checked
def assert_flags_balanced(run: Run) -> None:
    """Every flag of every block is waited for as often as it is set, the flags of queues among them.

    What a queue's last FreeTensor sets is waited for by nobody, so this is for kernels that set their flags by hand.
    Raises AssertionError with the flag, both counts and its last row; ValueError for a log without flags. ADR-0310 3.3.
    """
    __tracebackhide__ = True
    _hold(pipes.unbalanced(run.log))


@checked
def assert_ub_budget(run: Run, planned: int) -> None:
    """The kernel takes exactly the bytes of UB that the host's tiling counts.

    `planned`: bytes, such as the sum of the buffers that the host computed. Raises AssertionError with both numbers.
    ADR-0310 2.4.
    """
    __tracebackhide__ = True
    _hold(pipes.other_budget(run, planned))


@checked
def assert_scalar_gm_accesses(run: Run, expected: int, tensors: Sequence[str] | None = None) -> None:
    """The scalar unit reads and writes `expected` elements of memory, all blocks together.

    `tensors`: names, if not all are meant. Raises AssertionError with both counts and the first access past them;
    ValueError for a tensor that the run does not have. ADR-0310 2.2.
    """
    __tracebackhide__ = True
    _hold(pipes.wrong_scalar_count(run.log, expected, tensors))


@checked
def assert_dma_aligned(run: Run, multiple: int = 32, tensors: Sequence[str] | None = None) -> None:
    """Every DMA starts at a multiple of `multiple` bytes of its tensor in memory.

    The device wants whole elements there; whole blocks are faster. `tensors`: names, if not all are meant.
    Raises AssertionError with the first copy that does not; ValueError for a run without a DMA. ADR-0310 5.1.
    """
    __tracebackhide__ = True
    _hold(pipes.misaligned_copy(run.log, multiple, tensors))


@checked
def assert_no_truncated_copy(run: Run) -> None:
    """The checkers found no copy that moves less than its count says.

    For runs with `check="collect"`, which do not fail by themselves. Raises AssertionError with every such copy;
    ValueError for a run with `check=False`, which was not looked at. ADR-0310 5.2.
    """
    __tracebackhide__ = True
    _no_findings(run, ("truncated-copy",))
