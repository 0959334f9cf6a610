"""What the race checker calls clean is the same under every schedule; what it does not may differ under some."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.effects import PRIORITIES

WHERE, HOW = st.sampled_from([0, 8, 16, 64]), st.sampled_from(["none", "barrier", "all", "flag"])
LINES = st.lists(
    st.tuples(st.sampled_from(["Add", "Axpy", "in", "out", "get", "put"]), WHERE, WHERE, HOW), min_size=3, max_size=10
)
UNIT_OF = {"Add": "V", "Axpy": "V", "in": "MTE2", "out": "MTE3", "get": "S", "put": "S"}


def kernel(x: Any, y: Any, lines: Any, *, asc: Any) -> None:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 1024)
    t, source, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
    source.SetGlobalBuffer(x)
    target.SetGlobalBuffer(y)
    asc.DataCopy(t, source, 256)
    asc.PipeBarrier(asc.PIPE_ALL)
    for number, (what, d, a, how) in enumerate(lines):
        say(asc, what, t, d, a, source, target)
        following = lines[number + 1][0] if number + 1 < len(lines) else "out"
        units = UNIT_OF[what], UNIT_OF[following]
        if how == "all":
            asc.PipeBarrier(asc.PIPE_ALL)
        elif how == "flag" and units[0] != units[1]:
            asc.SetFlag(asc.HardEvent["_".join(units)], 0)
            asc.WaitFlag(asc.HardEvent["_".join(units)], 0)
        elif how != "none" and units[0] != "S":
            asc.PipeBarrier({"V": asc.PIPE_V, "MTE2": asc.PIPE_MTE2, "MTE3": asc.PIPE_MTE3}[units[0]])
    asc.PipeBarrier(asc.PIPE_ALL)
    asc.DataCopy(target[256], t, 256)


def say(asc: Any, what: str, t: Any, d: int, a: int, source: Any, target: Any) -> None:
    if what == "Add":
        asc.Add(t[d], t[a], t[128], 64)
    elif what == "Axpy":
        asc.Axpy(t[d], t[a], 0.5, 40)
    elif what == "in":
        asc.DataCopy(t[d], source[a], 16)
    elif what == "out":
        asc.DataCopy(target[d], t[a], 16)
    elif what == "get":
        t.SetValue(200, t.GetValue(a))
    else:
        t.SetValue(d, float(a))


def outcome(lines: Any, schedule: str, seed: int) -> tuple[tuple[str, ...], bytes]:
    core = Ascend310pCore()
    x, y = core.tensor("x", 512, "float32", [float(at % 7) for at in range(512)]), core.tensor("y", 512, "float32")
    run = core.run(kernel, x, y, lines, schedule=schedule, seed=seed, check="collect")
    return tuple(hazard.kind for hazard in run.hazards), run.array("y").tobytes()


@pytest.mark.adr("0310", "3.5", "3.11")
@settings(max_examples=40, deadline=None)
@given(LINES, st.integers(0, len(PRIORITIES) - 1))
def test_a_clean_program_has_one_result_and_findings_have_no_schedule(lines: Any, seed: int) -> None:
    usual = outcome(lines, "model", 0)
    for schedule in ("jitter", "late"):
        kinds, bits = outcome(lines, schedule, seed)
        assert kinds == usual[0]
        assert usual[0] or bits == usual[1], (schedule, seed)


def test_the_property_is_tried_on_clean_programs_and_on_others() -> None:
    """Half of the programs that it draws are clean, or it would say nothing."""
    found: list[bool] = []

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(LINES)
    def draw(lines: Any) -> None:
        found.append(not outcome(lines, "model", 0)[0])

    draw()
    assert 0.1 < sum(found) / len(found) < 0.9


@pytest.mark.adr("0310", "3.11")
def test_late_starves_every_pipe_in_some_order_and_ends_unordered_ops_in_reverse(ub: Any, launch: Any) -> None:
    def writes(y: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 256)
        t, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32)
        target.SetGlobalBuffer(y)
        asc.Duplicate(t, 1.0, 64)
        asc.Duplicate(t, 2.0, 64)
        asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
        asc.DataCopy(target, t, 64)

    model = launch(writes, y=(64, "float32"), data=True)
    late = launch(writes, y=(64, "float32"), data=True, schedule="late")
    assert model.kinds == late.kinds == ["race-waw"]
    assert (model["y"] == 2).all()
    assert (late["y"] == 1).all()
    assert model.run.log.cells.tobytes() == late.run.log.cells.tobytes()  # `late` moves bytes, not times
