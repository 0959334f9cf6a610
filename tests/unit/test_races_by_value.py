"""Random programs: what has no finding has one result under every schedule, and what has some has some everywhere.

This is what the race checker is for, and says nothing of how it works: an order that only timing supplied shows when
times change.
"""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCHEDULES = [("jitter", 0), ("jitter", 1), ("jitter", 2), ("late", 0)]
T = np.random.default_rng(6).standard_normal((8, 4)).astype(np.float32)
BLOCK = "(4, 4)"  # of the eight rows of `t` it may start at row 0, 2 or 4


@st.composite
def programs(draw: st.DrawFn, pes: int = 2) -> str:
    """Two straight lines cut from one sequence, in which every message is received before the next thing is said.

    So no program can hang, whatever its slots and waits; whether it is right is another matter.
    """
    lines: list[list[str]] = [[], []]
    for _ in range(draw(st.integers(1, 12))):
        pe = draw(st.integers(0, pes - 1))
        action = draw(
            st.sampled_from(["add", "exp", "load", "store", "gemm", "back", "dot", "wait", "message"][: 7 + pes])
        )
        if action == "message":
            lines[pe].append(f"pending.append(tl.send({'EW'[pe]!r}, {_source(draw)}))")
            lines[1 - pe] += _receiving(draw, "WE"[pe])
        else:
            lines[pe].append(_say(draw, action))
    return _kernel(lines)


def _kernel(lines: list[list[str]]) -> str:
    start = [
        "def kernel(t, o, *, tl):",
        f"    a, b, c = tl.zeros({BLOCK}), tl.full({BLOCK}, 2.0), tl.full({BLOCK}, -1.0)",
        "    pending = [tl.wait(c)]",
        "    aa, bb, cc = (tl.trans(tl.trans(each)) for each in (a, b, c))",
    ]
    programs = [f"    if tl.program_id(0) == {pe}:\n        pass\n" + "\n".join(f"        {line}" for line in lines[pe])
                for pe in (0, 1)]  # fmt: skip
    end = [
        "    tl.wait(*pending)",
        "    tl.wait(*[tl.store(o + 16 * at, each) for at, each in enumerate((a, b, c))])",
    ]
    return "\n".join([*start, *programs, *end]) + "\n"


def _receiving(draw: st.DrawFn, direction: str) -> list[str]:
    """A message used by MATH and given back: by the scope, whose exit waits for nothing, or at once."""
    target, waits = _target(draw), draw(st.booleans())
    how = draw(st.sampled_from(["scope", "release", "async"]))
    recv = f"tl.recv({direction!r}, {BLOCK})"
    wait = [f"tl.wait({target})"] if waits else []
    if how == "scope":
        inside = [f"tl.exp({recv}, out={target})", *wait]
        return ["with tl.scratch_scope():", *(f"    {line}" for line in inside)]
    asked = [f"m = {recv}"] if how == "release" else [f"m = tl.wait(tl.recv_async({direction!r}, {BLOCK}))"]
    return [*asked, f"tl.add(m, 1.0, out={target})", *wait, "tl.release(m)"]


def _source(draw: st.DrawFn) -> str:
    """A buffer, by the handle that is waited for or by one that is not."""
    return draw(st.sampled_from(["a", "b", "c", "aa", "bb", "cc"]))


def _target(draw: st.DrawFn) -> str:
    return draw(st.sampled_from(["a", "b", "c"]))


def _say(draw: st.DrawFn, action: str) -> str:
    source, target, at = _source(draw), _target(draw), f"t + {8 * draw(st.integers(0, 2))}"
    gemm = f"tl.composite('gemm', {source}, tl.ref({at}, {BLOCK}), trans_b=True"
    return {
        "add": f"tl.add({source}, {_source(draw)}, out={target})",
        "exp": f"tl.exp({source}, out={target})",
        "load": f"pending.append(tl.load({at}, {BLOCK})); tl.maximum(pending[-1], 0.5, out={target})",
        "store": f"pending.append(tl.store({at}, {source}))",
        "gemm": f"pending.append({gemm}, out={target}))",
        "back": f"pending.append({gemm}, out=t + {8 * draw(st.integers(0, 2))}))",
        "dot": f"tl.assign({target}, tl.dot({source}, {_source(draw)}, trans_b=True))",
        "wait": f"tl.wait(*pending[-{draw(st.integers(1, 3))}:])",
    }[action]


def play(launch: Any, source: str, schedule: str, seed: int) -> tuple[set[tuple[Any, ...]], bytes]:
    """The findings of order by kind and lines, and every byte of the result; values that race are the schedule's."""
    names: dict[str, Any] = {}
    exec(compile(source, "random_program.py", "exec"), names)
    given = {"t": (T, 0), "o": ((3, 4, 4), "float32", "local"), "grid": 2, "spec": {"ipcq_slots": 1}}
    outcome = launch(names["kernel"], **given, schedule=schedule, seed=seed, numerics=False)
    found = {(hazard.kind, *(op.site.line for op in hazard.ops)) for hazard in outcome.run.hazards}
    arrays = [outcome.run.array(tensor) for tensor in outcome.tensors.values()]
    return found, b"".join(np.nan_to_num(array, nan=-7.0).tobytes() for array in arrays)


FIXTURE_IS_A_FUNCTION = [HealthCheck.function_scoped_fixture]


@settings(max_examples=20, deadline=None, suppress_health_check=FIXTURE_IS_A_FUNCTION)
@given(programs())
def test_what_has_no_finding_has_one_result_and_what_has_some_has_some_everywhere(launch: Any, source: str) -> None:
    found, result = play(launch, source, "model", 0)
    others = [play(launch, source, *schedule) for schedule in SCHEDULES]
    if found:
        assert all(other for other, _ in others)
    else:
        assert others == [(set(), result)] * len(SCHEDULES)


@settings(max_examples=20, deadline=None, suppress_health_check=FIXTURE_IS_A_FUNCTION)
@given(programs(pes=1))
def test_findings_within_one_pe_are_the_same_under_every_schedule(launch: Any, source: str) -> None:
    found, _ = play(launch, source, "model", 0)
    assert all(play(launch, source, *schedule)[0] == found for schedule in SCHEDULES)
