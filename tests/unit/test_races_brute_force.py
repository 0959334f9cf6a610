"""The race checker against an all-pairs search in the log of random programs.

The oracle knows rows, their bytes, and explicit edges: order on a pipe, waits, messages, credits. It shares nothing
with the checker: reachability over all pairs of rows instead of clocks, single bytes instead of ranges.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ops.log import OpLog, Row

BLOCK = "(2, 4)"  # 32 bytes; of a tensor of 64 bytes it may start at element 0, 4 or 8

Finding = tuple[str, int, int]  # kind, line of the first access, line of the second


# Random programs, one line an action, so that a finding's lines say which two actions race


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Two straight lines: PE0 sends what PE1 receives, both touch the tensor `t` and buffers of their own."""
    messages = draw(st.integers(0, 3))
    lines = ["def kernel(t, *, tl):", *_buffers(), "    if tl.program_id(0) == 0:"]
    lines += _line_up(draw, ["send"] * messages)
    lines += ["    else:"]
    lines += _line_up(draw, ["recv"] * messages)
    return "\n".join(lines) + "\n"


def _buffers() -> list[str]:
    """Two buffers and an alias of each that nothing is auto-waited through."""
    names = ["a", "b"]
    made = [f"    {name} = tl.empty({BLOCK})" for name in names]
    return made + [f"    {name}{name} = tl.trans(tl.trans({name}))" for name in names] + ["    slots, pending = [], []"]


def _line_up(draw: st.DrawFn, messages: list[str]) -> list[str]:
    actions = draw(st.lists(st.sampled_from(["math", "load", "store", "gemm", "back", "dot", "wait"]), max_size=8))
    for message in messages:
        actions.insert(draw(st.integers(0, len(actions))), message)
    return [f"        {_say(draw, action)}" for action in [*actions, "nothing"]]


def _say(draw: st.DrawFn, action: str) -> str:
    source, target = draw(st.sampled_from(["a", "b", "aa", "bb"])), draw(st.sampled_from(["a", "b"]))
    at = f"t + {draw(st.sampled_from([0, 4, 8]))}"
    if action == "math":
        slot = draw(st.booleans())
        return (
            f"tl.add((slots or [{source}])[-1], 1.0, out={target})" if slot else f"tl.add({source}, 1.0, out={target})"
        )
    return {
        "load": f"pending.append(tl.load({at}, {BLOCK}))",
        "store": f"pending.append(tl.store({at}, {source}))",
        "gemm": f"pending.append(tl.composite('gemm', {source}, tl.ref({at}, (4, 4), (1, 1)), out={target}, "
        "trans_b=False))",
        "back": f"pending.append(tl.composite('gemm', {source}, tl.ref(t, (4, 4), (1, 1)), out={at}, trans_b=False))",
        "dot": f"tl.dot({source}, {target}, trans_b=True)",
        "wait": f"tl.wait(*pending[-{draw(st.integers(1, 3))}:])",
        "send": f"pending.append(tl.send('E', {source}))",
        "recv": "(tl.release(slots.pop(0)) if len(slots) == 2 else None, slots.append(tl.recv('W', (2, 4))))",
        "nothing": "pass",
    }[action]


# The oracle


class Touch(NamedTuple):
    row: Row
    pipe: tuple[int, str]
    write: bool


def pipe_of(row: Row) -> tuple[int, str]:
    """Rows of a pipe are in order. A composite is in GEMM's; its panels and its writeback have pipes of their own."""
    if row.name == "credit":
        return row.index, "no pipe: it goes home when its readers have ended"
    return row.program, {"composite": "GEMM", "panel": "STREAM", "writeback": "BACK"}.get(row.name, row.unit)


def edges(rows: list[Row]) -> Iterator[tuple[int, int]]:
    """(before, after): directly ordered pairs of rows."""
    for before, after in combinations(rows, 2):
        same_pipe = pipe_of(before) == pipe_of(after) and "CPU" not in pipe_of(before)
        waited = before.name in ("wait", "recv") and before.program == after.program
        drained = before.name == "drain" and after.name == "credit" and before.program == after.program
        if same_pipe or waited or drained:
            yield before.index, after.index
    for row in rows:
        if row.after >= 0:
            yield row.after, row.index
        if row.name == "panel":
            yield row.index, row.parent  # who waits for a composite is ordered after its panels
        if row.name == "writeback":
            yield row.parent, row.index


def ordered(rows: list[Row]) -> Callable[[int, int], bool]:
    """Whether there is a path from one row to another: one bit a row, to a fixpoint."""
    before = {row.index: 1 << row.index for row in rows}
    direct = list(edges(rows))
    changed = True
    while changed:
        changed = False
        for first, second in direct:
            known = before[second] | before[first]
            changed |= known != before[second]
            before[second] = known
    return lambda first, second: bool(before[second] >> first & 1)


def touched(log: OpLog) -> dict[tuple[Any, ...], list[Touch]]:
    """Who touched each byte, in the order of issue."""
    bytes_of: dict[tuple[Any, ...], list[Touch]] = {}
    for row in log:
        for operand in row.operands:
            receiver = 1 if row.name == "send" and operand.written else row.program
            space = (operand.tensor,) if operand.tensor == "t" else (operand.tensor, receiver)
            for byte in range(operand.offset, operand.offset + operand.size):
                bytes_of.setdefault((*space, byte), []).append(Touch(row, pipe_of(row), operand.written))
    return bytes_of


def issue_order(touch: Touch) -> tuple[int, int]:
    """A composite's stream and operands are one access set: its reads come before its writes."""
    row = touch.row
    return (row.parent if row.name == "panel" else row.index), touch.write


def kind_of(first: Touch, second: Touch) -> str:
    if first.write:
        return "race-waw" if second.write else "race-raw"
    return "race-war"


def same_op(first: Touch, second: Touch) -> bool:
    return (
        first.row.index == second.row.index
        or first.row.index == second.row.parent
        or (first.row.parent == second.row.index)
    )


def all_races(log: OpLog) -> set[Finding]:
    """Every pair of conflicting accesses that no path puts in order."""
    before = ordered(list(log))
    found = set()
    for touches in touched(log).values():
        for first, second in combinations(sorted(touches, key=issue_order), 2):
            conflict = (first.write or second.write) and not same_op(first, second)
            if conflict and not before(first.row.index, second.row.index):
                found.add((kind_of(first, second), first.row.site.line, second.row.site.line))
    return found


def latest_races(log: OpLog) -> set[Finding]:
    """Those of `all_races` whose first access is the last write of the byte, or the last read of a pipe since."""
    before = ordered(list(log))
    found = set()
    for touches in touched(log).values():
        write: Touch | None = None
        reads: dict[tuple[int, str], Touch] = {}
        for touch in sorted(touches, key=issue_order):
            earlier = ([write] if write else []) + (list(reads.values()) if touch.write else [])
            for each in earlier:
                if not same_op(each, touch) and not before(each.row.index, touch.row.index):
                    found.add((kind_of(each, touch), each.row.site.line, touch.row.site.line))
            write, reads = (touch, {}) if touch.write else (write, {**reads, touch.pipe: touch})
    return found


# The comparison


def play(launch: Callable[..., Any], source: str, schedule: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(source, "random_program.py", "exec"), names)
    given = {"t": ((4, 4), "float32"), "grid": 2, "spec": {"ipcq_slots": 2}, "data": False, "schedule": schedule}
    return launch(names["kernel"], **given)


def found_by_the_checker(outcome: Any) -> set[Finding]:
    races = [hazard for hazard in outcome.run.hazards if hazard.kind.startswith("race") or "recycle" in hazard.kind]
    return {(hazard.kind, *(op.site.line for op in hazard.ops)) for hazard in races}


FIXTURE_IS_A_FUNCTION = [HealthCheck.function_scoped_fixture]


@settings(max_examples=20, deadline=None, suppress_health_check=FIXTURE_IS_A_FUNCTION)
@given(programs(), st.sampled_from(["model", "late"]))
def test_findings_are_the_unordered_pairs_of_latest_accesses(launch: Any, source: str, schedule: str) -> None:
    outcome = play(launch, source, schedule)
    assert found_by_the_checker(outcome) == latest_races(outcome.log)


@settings(max_examples=20, deadline=None, suppress_health_check=FIXTURE_IS_A_FUNCTION)
@given(programs())
def test_a_program_has_findings_if_and_only_if_some_pair_is_unordered(launch: Any, source: str) -> None:
    outcome = play(launch, source, "model")
    found, every = found_by_the_checker(outcome), all_races(outcome.log)
    assert found <= every
    assert bool(found) == bool(every)
