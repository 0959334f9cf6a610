"""Times, blocking and order of one core: hand-computed cycles, queues that fill up, pipes that wait for a later Set."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import LaunchError


def gm(asc: Any, pointer: Any, kind: Any = None) -> Any:
    view = asc.GlobalTensor(kind or asc.float32)
    view.SetGlobalBuffer(pointer)
    return view


def moments(outcome: Any, name: str) -> list[tuple[int, int, int, int]]:
    return [(row.issue, row.start, row.free, row.end) for row in outcome.rows(name)]


# Times


@pytest.mark.adr("0310", "3.1", "6.2")
def test_the_next_op_of_a_pipe_starts_before_the_one_before_has_ended(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 640)  # 10 repeats: occupancy 10, latency 24
        asc.Duplicate(t[1024], 1.0, 64)

    outcome = ub(body)
    assert moments(outcome, "Duplicate") == [(0, 0, 10, 34), (1, 10, 11, 35)]
    assert outcome.cycles == 35


@pytest.mark.adr("0310", "3.2")
def test_a_barrier_holds_its_own_pipe_and_no_other(ub: Any, launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8192)
        t = buf.Get(asc.float32)
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.DataCopy(t[1024], gm(asc, x), 64)
        asc.Duplicate(t[64], 1.0, 64)

    outcome = launch(kernel, x=np.ones(64, np.float32))
    assert moments(outcome, "PipeBarrier") == [(1, 1, 1, 25)]
    assert moments(outcome, "Duplicate")[1][:2] == (3, 25)
    assert moments(outcome, "DataCopy")[0][:2] == (2, 2)


@pytest.mark.adr("0310", "3.2")
def test_a_barrier_on_the_scalar_pipe_is_refused(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.PipeBarrier(asc.PIPE_S)

    assert "not supported on 310P" in refusal(kernel, "unsupported")


@pytest.mark.adr("0310", "3.3")
def test_a_flag_blocks_its_target_alone(launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8192)
        t = buf.Get(asc.float32)
        asc.DataCopy(t, gm(asc, x), 64)  # 16 + 130 cycles
        asc.SetFlag(asc.HardEvent.MTE2_V, 0)
        asc.WaitFlag(asc.HardEvent.MTE2_V, 0)
        asc.DataCopy(t[512], gm(asc, x), 64)
        asc.Adds(t[64], t, 1.0, 64)

    outcome = launch(kernel, x=np.ones(64, np.float32))
    assert [each[1] for each in moments(outcome, "DataCopy")] == [0, 16]
    assert moments(outcome, "WaitFlag<MTE2_V>") == [(2, 2, 2, 146)]
    assert moments(outcome, "Adds")[0][:2] == (4, 146)


@pytest.mark.adr("0310", "3.3")
def test_s_waits_only_for_flags_that_go_to_s(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        sync = asc.TQueSync(asc.PIPE_V, asc.PIPE_S)
        sync.SetFlag(0)
        sync.WaitFlag(0)
        assert t.GetValue(0) == 1

    outcome = ub(body)
    assert moments(outcome, "WaitFlag<V_S>") == [(2, 2, 2, 25)]
    assert moments(outcome, "GetValue")[0][0] == 26


@pytest.mark.adr("0310", "2.3")
@pytest.mark.parametrize(("blocks", "length", "cycles"), [(1, 1, 130 + 2), (1, 64, 130 + 121), (4, 2, 130 + 16 + 12)])
def test_a_dma_costs_latency_bytes_and_blocks(launch: Any, blocks: int, length: int, cycles: int) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8192)
        asc.DataCopy(buf.Get(asc.float32), gm(asc, x), asc.DataCopyParams(blocks, length, 0, 0))

    assert launch(kernel, x=np.ones(2048, np.float32)).cycles == cycles


@pytest.mark.adr("0310", "3.10")
def test_a_full_queue_blocks_s(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        for at in range(4):
            asc.Duplicate(t[1024 * at], 1.0, 1024)  # occupancy 16

    issues = [each[0] for each in moments(ub(body, spec={"queue_depth": 2}), "Duplicate")]
    assert issues == [0, 1, 2, 16]  # the fourth finds two commands that have not started
    assert [each[0] for each in moments(ub(body), "Duplicate")] == [0, 1, 2, 3]


@pytest.mark.adr("0310", "3.10")
def test_a_full_queue_behind_a_wait_without_its_set_is_a_deadlock(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.WaitFlag(asc.HardEvent.MTE2_V, 0)
        for _ in range(40):
            asc.PipeBarrier(asc.PIPE_V)

    assert "the queue of V is full (32 commands)" in refusal(kernel, "deadlock")


@pytest.mark.adr("0310", "3.3", "3.5")
@pytest.mark.parametrize("schedule", ["model", "late"])
def test_a_wait_may_be_said_before_its_set(launch: Any, schedule: str) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8192)
        t = buf.Get(asc.float32)
        asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
        asc.WaitFlag(asc.HardEvent.MTE2_V, 0)
        asc.DataCopy(gm(asc, y), t[64], 64)
        asc.Adds(t[64], t, 1.0, 64)
        asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        asc.DataCopy(t, gm(asc, x), 64)
        asc.SetFlag(asc.HardEvent.MTE2_V, 0)

    outcome = launch(kernel, x=np.ones(64, np.float32), y=(64, "float32"), schedule=schedule)
    # Validity is judged in the order of issue, where Adds comes before the copy; order is judged by flags.
    assert not [kind for kind in outcome.kinds if kind.startswith("race")]
    assert (outcome["y"] == 2).all()
    assert moments(outcome, "Adds")[0][:2] == (3, 151)


@pytest.mark.adr("0310", "3.7")
def test_a_barrier_on_all_waits_for_pipes_and_stores(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        t.SetValue(0, 1.0)
        asc.Duplicate(t[64], 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.Adds(t, t, 1.0, 128)

    outcome = ub(body)
    assert outcome.kinds == ["uninitialised-read"]  # t[1:64], and no race
    assert moments(outcome, "PipeBarrier<ALL>") == [(2, 2, 2, 26)]
    assert moments(outcome, "Adds")[0][0] == 27


# The scalar unit


@pytest.mark.adr("0310", "3.5")
def test_the_kind_of_a_race_is_program_order_though_the_first_op_is_behind_a_wait(launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 256)
        t = buf.Get(asc.float32)
        asc.WaitFlag(asc.HardEvent.S_MTE2, 0)
        asc.DataCopy(t, gm(asc, x), 64)  # said first, taken by MTE2 when the flag is set
        asc.Adds(t, t, 1.0, 64)
        asc.SetFlag(asc.HardEvent.S_MTE2, 0)

    (race,) = [each for each in launch(kernel, x=np.ones(64, np.float32)).run.hazards if "race" in each.kind]
    assert (race.kind, [op.name for op in race.ops]) == ("race-raw", ["DataCopy", "Adds"])


@pytest.mark.adr("0310", "3.5")
@pytest.mark.parametrize("waits", [True, False])
def test_a_store_that_s_has_waited_for_through_a_pipe_is_over_for_all_that_s_says(ub: Any, waits: bool) -> None:
    def body(asc: Any, t: Any) -> None:
        t.SetValue(0, 1.0)
        asc.SetFlag(asc.HardEvent.S_MTE2, 0)
        asc.WaitFlag(asc.HardEvent.S_MTE2, 0)  # MTE2 goes on when the store has landed
        asc.SetFlag(asc.HardEvent.MTE2_S, 0)
        if waits:
            asc.WaitFlag(asc.HardEvent.MTE2_S, 0)
        asc.Duplicate(t, 2.0, 64)

    outcome = ub(body)
    assert outcome.kinds == ([] if waits else ["race-waw", "unpaired-flag"])
    assert not [note for note in outcome.run.notes if note.kind == "redundant-flag"] or not waits


@pytest.mark.adr("0310", "3.6")
def test_a_store_is_posted_and_s_sees_it_at_once(ub: Any) -> None:
    seen: list[Any] = []

    def body(asc: Any, t: Any) -> None:
        t.SetValue(0, 3.0)
        seen.append(t.GetValue(0))

    outcome = ub(body)
    assert moments(outcome, "SetValue") == [(0, 0, 1, 12)]
    assert moments(outcome, "GetValue") == [(1, 1, 13, 13)]
    assert seen == [3.0]
    assert not outcome.kinds


@pytest.mark.adr("0310", "3.6", "3.5")
def test_a_load_waits_for_no_pipe_and_sees_what_is_there(ub: Any) -> None:
    seen: list[Any] = []

    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.Duplicate(t, 2.0, 64)
        seen.append(t.GetValue(0))

    assert ub(body).kinds == ["race-raw"]
    assert seen == [1.0]


@pytest.mark.adr("0310", "3.5")
def test_a_store_reaches_v_only_through_a_flag(ub: Any) -> None:
    def body(asc: Any, t: Any, flag: bool) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        t.SetValue(0, 5.0)
        if flag:
            asc.SetFlag(asc.HardEvent.S_V, 0)
            asc.WaitFlag(asc.HardEvent.S_V, 0)
        asc.Adds(t[64], t, 1.0, 64)

    assert ub(lambda asc, t: body(asc, t, False)).kinds == ["race-raw"]
    assert ub(lambda asc, t: body(asc, t, True)).kinds == []


@pytest.mark.adr("0310", "1.5")
def test_values_are_of_the_elements_own_type(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        t.SetValue(0, 0.1)
        value = t.GetValue(0)
        assert type(value) is np.float32
        assert value == np.float32(0.1)
        h = t.ReinterpretCast(asc.half)
        h.SetValue(8, 0.1)
        assert h.GetValue(8) == np.float16(0.1)

    assert not ub(body).kinds


@pytest.mark.adr("0310", "1.5")
def test_a_scalar_operand_counts_as_it_is_at_issue(launch: Any) -> None:
    def kernel(y: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1024)
        t = buf.Get(asc.float32)
        t.SetValue(64, 3.0)
        asc.Duplicate(t, t.GetValue(64), 64)
        t.SetValue(64, 4.0)
        asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
        asc.DataCopy(gm(asc, y), t, 64)

    assert (launch(kernel, y=(64, "float32"), data=True)["y"] == 3).all()


@pytest.mark.adr("0310", "2.2")
def test_memory_is_slow_but_for_a_line_that_was_touched(launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        view = gm(asc, x)
        for at in (0, 1, 15, 16, 0):
            view.GetValue(at)

    outcome = launch(kernel, x=np.ones(64, np.float32))
    assert [row.end - row.start for row in outcome.rows("GetValue")] == [150, 12, 12, 150, 12]


# Flags that are one bit


@pytest.mark.adr("0310", "3.4")
def test_a_flag_of_one_bit_loses_a_set_that_runs_ahead(launch: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 65536)
        t = buf.Get(asc.float32)
        for at in range(3):
            asc.SetFlag(asc.HardEvent.S_V, 0)
            asc.WaitFlag(asc.HardEvent.S_V, 0)
            asc.Duplicate(t[4096 * at], 1.0, 4096)
            asc.PipeBarrier(asc.PIPE_V)

    assert not launch(kernel).kinds
    message = refusal(kernel, "deadlock", spec={"flag_model": "bit"})
    assert "1 Sets of it were lost by run-ahead" in message


# Spec


@pytest.mark.adr("0310", "6.2")
def test_costs_change_times_and_nothing_else(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.Exp(t[64], t, 64)

    usual, dear = ub(body), ub(body, spec={"costs": {"Duplicate": (1000, 3)}})
    assert dear.cycles > usual.cycles
    assert usual.kinds == dear.kinds == ["race-raw"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("ub_usable", 300_000), ("ub_usable", 0), ("queue_depth", 1.5), ("flag_model", "none"), ("costs", {"Add": 3}),
     ("costs", {"Nop": (1, 1)}), ("gm_bytes_per_cycle", float("nan")), ("block_bytes", 64)],
)  # fmt: skip
def test_a_spec_field_out_of_bounds_is_refused_with_its_name(field: str, value: Any) -> None:
    with pytest.raises(LaunchError, match=field):
        Ascend310pSpec(**{field: value})
