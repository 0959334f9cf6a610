"""What helpers read out of the log of a core of pipes: flags, scalar accesses to memory, alignment of copies.

They look at the log's columns alone. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_kernbench.readings import ON_CHIP, say
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import OpLog, Row

SCALAR = ("GetValue", "SetValue")


def unbalanced(log: OpLog) -> str | None:
    """The first flag of a program with another number of Sets than of Waits."""
    sets = [name for name in log.names.values if name.startswith("SetFlag<")]
    waits = [name for name in log.names.values if name.startswith("WaitFlag<")]
    rows = list(log.where(name=(*sets, *waits)))
    if not rows:
        raise ValueError("the log has no flags, so nothing would be compared: run the kernel with log=True")
    counts: dict[tuple[int, str], Counter[str]] = {}
    last: dict[tuple[int, str], Row] = {}
    for row in rows:
        call, event = row.name.rstrip(">").split("<")
        key = row.program, f"{event} id {row.shape[0]}"
        counts.setdefault(key, Counter())[call] += 1
        last[key] = row
    for key, count in counts.items():
        if count["SetFlag"] != count["WaitFlag"]:
            program, flag = key
            return (
                f"{flag} of {log.programs[program]} is set {count['SetFlag']} times and waited for "
                f"{count['WaitFlag']} times\n  last: {say(log, last[key])}"
            )
    return None


def scalar_accesses(log: OpLog, tensors: Sequence[str] | None) -> list[Row]:
    """GetValue and SetValue of memory; of `tensors` alone, if they are named."""
    known = [label for label in log.labels.values if label not in ON_CHIP]
    unknown = [name for name in tensors or () if name not in known]
    if unknown:
        raise ValueError(f"the run has no tensor {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    wanted = known if tensors is None else tensors
    return [row for row in log.where(name=SCALAR) if row.operands[0].tensor in wanted]


def wrong_scalar_count(log: OpLog, expected: int, tensors: Sequence[str] | None) -> str | None:
    """Why the scalar unit's accesses to memory are not `expected`."""
    rows = scalar_accesses(log, tensors)
    if len(rows) == expected:
        return None
    where = "of " + ", ".join(tensors) if tensors is not None else "of memory"
    example = f"\n  {'first past them' if len(rows) > expected else 'last'}: " + (
        say(log, rows[expected] if len(rows) > expected else rows[-1]) if rows else "there is none"
    )
    return f"{len(rows)} scalar accesses {where}, expected {expected}{example}"


def misaligned_copy(log: OpLog, multiple: int, tensors: Sequence[str] | None) -> str | None:
    """The first DMA that starts in memory at no multiple of `multiple` bytes."""
    copies = log.where(unit=("MTE2", "MTE3"), name="DataCopy")
    if not len(copies):
        raise ValueError("the run has no DMA, so nothing would be looked at")
    for row in copies:
        for each in row.operands:
            named = each.tensor not in ON_CHIP and (tensors is None or each.tensor in tensors)
            if named and each.offset % multiple:
                return (
                    f"a DMA starts {each.offset % multiple} bytes past a multiple of {multiple} in {each.tensor}"
                    f"\n  first: {say(log, row)}"
                )
    return None


def other_budget(run: Run, planned: int) -> str | None:
    """Why the kernel does not take the bytes of UB that the host planned."""
    taken = run.scratch_high_water
    if taken == planned:
        return None
    more = "more" if taken > planned else "less"
    return f"the kernel takes {taken} bytes of UB, the host planned {planned}: {abs(taken - int(planned))} {more}"
