"""What helpers read out of an op log: who moved which bytes, did how much work, in which words to say so.

They look at the log's columns alone, so that they serve any kernel. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import NONE, OpLog, Row, Selection

READ_UNITS = ("DMA_R", "MTE2")  # from a tensor in memory to the chip
WRITE_UNITS = ("DMA_W", "MTE3")
ON_CHIP = ("scratch", "slot", "UB")  # what a log calls bytes that are no tensor's
Ints = npt.NDArray[np.int64]
Read = tuple[int, tuple[tuple[int, int], ...]]  # program, and the ranges of the tensor


def say(log: OpLog, row: Row | int) -> str:
    """One row in a line: what, where, which bytes, which source line."""
    row = log[row] if isinstance(row, (int, np.integer)) else row
    touched = " ".join(f"{each.tensor}[{each.offset}:{each.offset + each.size}]" for each in row.operands[:3])
    where = f"{row.unit} of {log.programs[row.program]}"
    return f"row {row.index}, {row.name} on {where}, {touched or 'no bytes'}, at {row.site}"


def of_programs(log: OpLog, selection: Selection, column: str | None = None) -> Ints:
    """For each program, its rows, or the sum of a column over them."""
    weights = None if column is None else getattr(selection, column)
    return np.bincount(selection.program, weights, minlength=len(log.programs)).astype(np.int64)


def reads_of(log: OpLog, tensor: str) -> Selection:
    """The DMA reads of a tensor, panels among them. Raises ValueError for a tensor that the run does not have."""
    known = [label for label in log.labels.values if label not in ON_CHIP]
    if tensor not in known:
        raise ValueError(f"the run has no tensor {tensor!r}; it has {', '.join(known) or 'none'}")
    return log.where(unit=READ_UNITS, reads=tensor)


def ranges(row: Row, tensor: str) -> Read:
    """What a read takes of `tensor`, and for whom."""
    spans = ((each.offset, each.offset + each.size) for each in row.operands if each.tensor == tensor)
    return row.program, tuple(spans)


def first_extra(log: OpLog, tensor: str, usual: OpLog) -> Row | None:
    """The first read of `tensor` that `usual` does not have as well, or not as often."""
    left = Counter(ranges(row, tensor) for row in reads_of(usual, tensor))
    for row in reads_of(log, tensor):
        key = ranges(row, tensor)
        if not left[key]:
            return row
        left[key] -= 1
    return None


def grouped_reads(runs: Mapping[int, Run], tensor: str) -> str | None:
    """What is wrong with the claim that every run reads `tensor` alike; None if nothing is."""
    table = {group: _volume(run.log, tensor) for group, run in sorted(runs.items())}
    usual, *others = table
    if not any(counts.sum() for counts, _ in table.values()):
        return f"no run reads {tensor}, so nothing was compared"
    for group in others:
        if not _same(table[usual], table[group]):
            lines = [f"DMA reads of {tensor} depend on the group"]
            lines += [
                f"  G={each}: {sizes.sum()} bytes in {counts.sum()} reads" for each, (counts, sizes) in table.items()
            ]
            return "\n".join([*lines, *_where_they_part(runs[usual].log, runs[group].log, tensor, usual, group)])
    return None


def _volume(log: OpLog, tensor: str) -> tuple[Ints, Ints]:
    """For each program, how many reads and bytes."""
    reads = reads_of(log, tensor)
    return of_programs(log, reads), of_programs(log, reads, "bytes")


def _same(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def _where_they_part(log: OpLog, other: OpLog, tensor: str, group: int, other_group: int) -> Iterator[str]:
    """The first read that one of two runs has alone."""
    for mine, theirs, one, two in ((other, log, other_group, group), (log, other, group, other_group)):
        row = first_extra(mine, tensor, theirs)
        if row is not None:
            yield f"  first read that G={one} has and G={two} has not: {say(mine, row)}"
            return


def work_of(log: OpLog, unit: str) -> Selection:
    """The rows that count as work of a unit: MACs of GEMM (without epilogues), elements of others."""
    rows = log.where(unit=unit)
    return rows.where(name=("gemm", "dot")) if unit == "GEMM" else rows


def grouped_work(runs: Mapping[int, Run], unit: str) -> str | None:
    """What is wrong with the claim that a unit's work is proportional to the group; None if nothing is."""
    work = {group: int(work_of(run.log, unit).work.sum()) for group, run in sorted(runs.items())}
    usual, *others = work
    if not any(work.values()):
        return f"no run has work on {unit}, so nothing was compared"
    for group in others:
        if work[group] * usual != work[usual] * group:
            lines = [f"work on {unit} does not grow in proportion to the group"]
            lines += [f"  G={each}: {done}, {done / each:g} for each of the group" for each, done in work.items()]
            return "\n".join([*lines, _disproportion(runs[usual].log, runs[group].log, unit, usual, group)])
    return None


def _disproportion(log: OpLog, other: OpLog, unit: str, group: int, other_group: int) -> str:
    """The first source line whose work did not grow as it should have."""
    mine, theirs = _work_by_site(log, unit), _work_by_site(other, unit)
    for site in dict.fromkeys([*mine, *theirs]):
        (row, usual), (other_row, got) = mine.get(site, (None, 0)), theirs.get(site, (None, 0))
        if usual * other_group != got * group:
            example = say(log, row) if other_row is None and row is not None else say(other, other_row or 0)
            return f"  first at {site}: {usual} with G={group}, {got} with G={other_group}; {example}"
    return "  the source lines are others in each run"


def _work_by_site(log: OpLog, unit: str) -> dict[str, tuple[int, int]]:
    """For each source line, its first row and the sum of its work."""
    found: dict[str, tuple[int, int]] = {}
    names: dict[int, str] = {}
    rows = work_of(log, unit)
    for index, site, work in zip(rows.index, rows.site, rows.work, strict=True):
        name = names.get(site) or names.setdefault(site, str(log.site(site)))
        first, done = found.get(name, (int(index), 0))
        found[name] = first, done + int(work)
    return found


def expected_by_program(log: OpLog, expected: int | Sequence[int], got: Ints) -> tuple[Any, Any]:
    """Two things to compare: totals, or one number a program. Raises ValueError for a wrong number of numbers."""
    if isinstance(expected, int | np.integer):
        return int(got.sum()), int(expected)
    if len(expected) != len(log.programs):
        raise ValueError(f"{len(expected)} numbers are expected of {len(log.programs)} programs: give one a program")
    return got.tolist(), [int(each) for each in expected]


def twice_read(log: OpLog, tensor: str) -> str:
    """The first read of bytes that its program has read before; else the last read."""
    seen: dict[Read, Row] = {}
    row: Row | None = None
    for row in reads_of(log, tensor):
        earlier = seen.setdefault(ranges(row, tensor), row)
        if earlier is not row:
            return f"  read again: {say(log, row)}\n  before by: {say(log, earlier)}"
    return f"  last read: {say(log, row)}" if row else "  there is no read of it"


def causal_order(log: OpLog) -> Iterator[int]:
    """All rows, each after those before it in its program and after the row that it waited for."""
    table = log.all
    after = table.after.tolist()
    queues = [deque(np.flatnonzero(table.program == program).tolist()) for program in range(len(log.programs))]
    done = [False] * len(log)
    while any(queues):
        before = sum(map(len, queues))
        for queue in queues:
            while queue and (after[queue[0]] == NONE or done[after[queue[0]]]):
                done[queue[0]] = True
                yield queue.popleft()
        if sum(map(len, queues)) == before:
            raise ValueError(f"the log's waits go round in circles at {say(log, next(filter(None, queues))[0])}")
