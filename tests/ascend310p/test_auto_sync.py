"""`auto_sync`: what depends on V or S is put after it, by its bytes; what is left to the author is found."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import LaunchError

ON = {"auto_sync": True}
GIVEN = np.arange(256, dtype=np.float32)


def gm(asc: Any, pointer: Any) -> Any:
    view = asc.GlobalTensor(asc.float32)
    view.SetGlobalBuffer(pointer)
    return view


def room(asc: Any) -> Any:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    return buf.Get(asc.float32)


def v_then_v(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    asc.Duplicate(t, 1.0, 64)
    asc.Adds(t, t, 1.0, 64)


def through_another_view(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    asc.Duplicate(t, 1.0, 64)
    asc.Adds(t.ReinterpretCast(asc.int32_t)[64], t[8].ReinterpretCast(asc.int32_t), 1, 8)
    asc.Duplicate(t[8], 2.0, 8)  # while it may be read still


def s_then_v(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    for at in range(8):
        t.SetValue(at, float(at))
    asc.Adds(t[64], t, 1.0, 8)


def v_then_s(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    asc.Duplicate(t, 3.0, 64)
    t.SetValue(0, t.GetValue(1) + 1)


def mte2_then_s(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    asc.DataCopy(t, gm(asc, x), 64)
    t.SetValue(0, t.GetValue(5))


def s_then_mte3(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    for at in range(8):
        t.SetValue(at, 7.0)
    asc.DataCopy(gm(asc, y), t, 8)
    t.SetValue(3, 1.0)  # while it may be copied still


def gm_between_s_and_copies(x: Any, y: Any, *, asc: Any) -> None:
    t = room(asc)
    for at in range(8):
        gm(asc, y).SetValue(at, 7.0)
    asc.DataCopy(t, gm(asc, y), 8)
    gm(asc, y).SetValue(3, t.GetValue(2))


KERNELS = [v_then_v, through_another_view, s_then_v, v_then_s, mte2_then_s, s_then_mte3, gm_between_s_and_copies]
SCHEDULES = [("model", 0), ("jitter", 1), *[("late", seed) for seed in range(0, 24, 7)]]


@pytest.mark.adr("0310", "3.12")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_what_the_compiler_puts_in_order_is_clean_with_it_and_a_race_without(
    kernel: Any, schedule: Any, launch: Any
) -> None:
    given = {"x": GIVEN, "y": (64, "float32"), "schedule": schedule[0], "seed": schedule[1]}
    assert launch(kernel, spec=ON, **given).kinds == []
    assert any(kind.startswith("race-") for kind in launch(kernel, **given).kinds)


def test_views_of_one_buffer_are_told_apart_by_bytes(launch: Any) -> None:
    """Adds reads what nobody writes and writes behind what Duplicate does: only the last call waits."""

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.Duplicate(t[512], 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Duplicate(t, 1.0, 64)
        asc.Adds(t[64], t[512], 1.0, 64)
        asc.Adds(t.ReinterpretCast(asc.half)[256], t[126].ReinterpretCast(asc.half)[0], 1.0, 4)

    outcome = launch(kernel, spec={**ON, "alignment": "relaxed"}, x=GIVEN, y=(64, "float32"), data=False)
    assert len(outcome.rows("PipeBarrier")) == 2


@pytest.mark.adr("0310", "3.12")
@pytest.mark.parametrize(
    ("say", "kind"),
    [
        (lambda asc, t, x, y: [asc.DataCopy(t, x, 64), asc.Adds(t, t, 1.0, 64)], "race-raw"),
        (lambda asc, t, x, y: [asc.Duplicate(t, 1.0, 64), asc.DataCopy(y, t, 64)], "race-raw"),
        (lambda asc, t, x, y: [asc.DataCopy(t, x, 64), asc.DataCopy(t[8], x, 64)], "race-waw"),
        (lambda asc, t, x, y: [asc.DataCopy(t, x, 64), asc.DataCopy(y, t, 64)], "race-raw"),
    ],
    ids=["MTE2 V", "V MTE3", "MTE2 MTE2", "MTE2 MTE3"],
)
def test_the_rest_stays_with_the_author(say: Any, kind: str, launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        say(asc, room(asc), gm(asc, x), gm(asc, y))

    assert launch(kernel, spec=ON, x=GIVEN, y=(64, "float32")).kinds == [kind]


def test_what_is_in_order_already_gets_nothing_more(launch: Any) -> None:
    """By a barrier, a flag of S's either way, a flag waited for before it is set, or a barrier on all."""

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.WaitFlag(asc.HardEvent.S_V, 1)
        t.SetValue(0, 1.0)
        asc.SetFlag(asc.HardEvent.S_V, 1)
        asc.Adds(t[64], t, 1.0, 1)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(t[64], t[64], 1.0, 1)
        asc.SetFlag(asc.HardEvent.V_S, 0)
        asc.WaitFlag(asc.HardEvent.V_S, 0)
        asc.Adds(t[64], t[64], 1.0, 1)  # S has waited for what this depends on
        asc.SetFlag(asc.HardEvent.V_S, 0)
        asc.WaitFlag(asc.HardEvent.V_S, 0)
        t.SetValue(0, t.GetValue(64))
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.Adds(t[64], t, 1.0, 1)

    given = {"x": GIVEN, "y": (64, "float32")}
    on, off = launch(kernel, spec=ON, **given), launch(kernel, **given)
    assert on.kinds == off.kinds == []
    assert [row.name for row in on.run.log] == [row.name for row in off.run.log]
    assert on.cycles == off.cycles


def test_inserted_flags_have_the_line_of_what_needs_them_and_an_id_of_their_own(launch: Any) -> None:
    outcome = launch(v_then_s, spec=ON, x=GIVEN, y=(64, "float32"))
    (raised,), (waited,) = outcome.rows("SetFlag<V_S>"), outcome.rows("WaitFlag<V_S>")
    assert raised.shape == waited.shape == (8,)
    assert raised.site == outcome.rows("GetValue")[0].site
    assert (raised.unit, waited.unit) == ("V", "S")
    assert outcome.run.notes == ()


def test_a_flag_that_is_inserted_in_vain_is_no_note_of_the_authors(launch: Any) -> None:
    """S knows of V by way of MTE3, which the compiler does not see."""

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.Duplicate(t, 1.0, 64)
        for event in ("V_MTE3", "MTE3_S"):
            asc.SetFlag(asc.HardEvent[event], 0)
            asc.WaitFlag(asc.HardEvent[event], 0)
        t.GetValue(0)

    outcome = launch(kernel, spec=ON, x=GIVEN, y=(64, "float32"))
    assert len(outcome.rows("WaitFlag<V_S>")) == 1
    assert outcome.run.notes == ()


def test_s_waiting_for_a_pipe_that_waits_for_s_is_a_deadlock(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        t = room(asc)
        asc.WaitFlag(asc.HardEvent.S_V, 0)
        asc.Duplicate(t, 1.0, 64)
        t.GetValue(0)
        asc.SetFlag(asc.HardEvent.S_V, 0)

    assert "S waits for a flag that nothing raises: V_S id 8" in refusal(kernel, "deadlock", spec=ON)


@pytest.mark.parametrize("value", [1, "on", None])
def test_it_is_on_or_off(value: Any) -> None:
    with pytest.raises(LaunchError, match=r"auto_sync = .* wants True or False"):
        Ascend310pSpec(auto_sync=value)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("set"), st.integers(0, 3), st.integers(0, 7)),
        st.tuples(st.just("get"), st.integers(0, 3), st.integers(0, 7)),
    ),
    min_size=2,
    max_size=14,
)


@pytest.mark.adr("0310", "3.12")
@settings(max_examples=20, deadline=None)
@given(steps=STEPS, late=st.none() | st.integers(0, 23))
def test_programs_of_v_and_s_alone_are_what_their_order_says(steps: Any, late: int | None) -> None:
    expected, seen = np.arange(32, dtype=np.float32).reshape(4, 8), []
    for number, (step, one, other) in enumerate(steps):
        if step == "add":
            expected[one] = expected[other] + number
        elif step == "copy" and one != other:
            expected[one] = expected[other]
        elif step == "set":
            expected[one, other] = number
        elif step == "get":
            seen.append(expected[one, other])
    found: list[Any] = []

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.DataCopy(t, gm(asc, x), 32)
        asc.PipeBarrier(asc.PIPE_ALL)
        for number, (step, one, other) in enumerate(steps):
            if step == "add":
                asc.Adds(t[8 * one], t[8 * other], float(number), 8)
            elif step == "copy" and one != other:
                asc.DataCopy(t[8 * one], t[8 * other], 8)
            elif step == "set":
                t.SetValue(8 * one + other, float(number))
            elif step == "get":
                found.append(t.GetValue(8 * one + other))
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.DataCopy(gm(asc, y), t, 32)

    core = Ascend310pCore(Ascend310pSpec(auto_sync=True))
    x, y = core.tensor("x", 32, "float32", np.arange(32)), core.tensor("y", 32, "float32")
    how = {"schedule": "model"} if late is None else {"schedule": "late", "seed": late}
    run = core.run(kernel, x, y, **how)
    assert found == seen
    assert np.array_equal(run.array("y"), expected.reshape(-1))
    assert not run.notes
