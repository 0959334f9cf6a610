"""Buffers, queues, owners, caches, blocks, logs: what a kernel may say, and what it is told when it may not."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.language import LACKS
from pytest_kernbench.simulator.errors import LaunchError, Site
from pytest_kernbench.simulator.ops import text
from pytest_kernbench.simulator.ops.compact import CELLS


def gm(asc: Any, pointer: Any, kind: Any = None) -> Any:
    view = asc.GlobalTensor(kind or asc.float32)
    view.SetGlobalBuffer(pointer)
    return view


def sync(asc: Any, event: str) -> None:
    asc.SetFlag(asc.HardEvent[event], 0)
    asc.WaitFlag(asc.HardEvent[event], 0)


def room(asc: Any, n: int = 1024) -> Any:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * n)
    return buf.Get(asc.float32)


ONES = np.ones(1024, np.float32)


# Units and what is lacking


@pytest.mark.adr("0310", "1.1")
def test_every_op_runs_on_the_unit_of_its_kind(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.DataCopy(t, gm(asc, x), 64)
        sync(asc, "MTE2_V")
        asc.DataCopy(t[64], t, 64)
        asc.Adds(t[128], t, 1.0, 64)
        sync(asc, "V_MTE3")
        asc.DataCopy(gm(asc, y), t[128], 64)
        gm(asc, x).GetValue(0)

    run = launch(kernel, x=ONES, y=(1024, "float32")).run
    units = {(row.name, row.unit) for row in run.log if "Flag" not in row.name}
    copies = {("DataCopy", unit) for unit in ("MTE2", "V", "MTE3")}
    assert units == copies | {("Adds", "V"), ("GetValue", "S")}


@pytest.mark.adr("0310", "1.3", "1.4")
@pytest.mark.parametrize("name", LACKS)
def test_what_310p_lacks_is_refused_by_name_with_what_to_use(name: str, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        getattr(asc, name)

    message = refusal(kernel, "unsupported")
    assert name in message
    assert LACKS[name] in message


@pytest.mark.adr("0310", "1.4")
def test_an_unknown_call_is_refused_with_the_nearest(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.WholeReduceSumm()

    assert "WholeReduceSum" in refusal(kernel, "unsupported")


def queue_of(asc: Any) -> Any:
    return asc.TQue(asc.TPosition.VECIN, 1)


@pytest.mark.adr("0310", "1.4")
@pytest.mark.parametrize(
    ("say", "named", "instead"),
    [
        (lambda asc, x: asc.TPipe().Destroy(), "TPipe.Destroy", "the kernel's end"),
        (lambda asc, x: asc.TPipe().Reset(), "TPipe.Reset", "once"),
        (lambda asc, x: queue_of(asc).AllocTensors(asc.half), "TQue.AllocTensors", "nearest: AllocTensor"),
        (lambda asc, x: asc.TBuf().GetWithOfset(asc.half, 1, 0), "TBuf.GetWithOfset", "nearest: GetWithOffset"),
        (lambda asc, x: room(asc).SetSize(3), "LocalTensor.SetSize", "use []"),
        (lambda asc, x: gm(asc, x).GetPhyAddr(), "GlobalTensor.GetPhyAddr", "not modelled"),
    ],
)
def test_calls_that_an_object_lacks_are_refused_by_name(say: Any, named: str, instead: str, refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        say(asc, x)

    message = refusal(kernel, "unsupported", x=ONES)
    assert named in message
    assert instead in message


@pytest.mark.adr("0310", "2.4")
def test_there_is_no_tpipe_before_it_is_made(refusal: Any) -> None:
    assert "make asc.TPipe() first" in refusal(lambda *, asc: asc.GetTPipePtr(), "queue-misuse")


@pytest.mark.adr("0310", "1.4")
@pytest.mark.parametrize(
    ("say", "named", "instead"),
    [
        (lambda asc: asc.HardEvent.FIX_V, "HardEvent.FIX_V", "Cube is not modelled"),
        (lambda asc: asc.HardEvent.M_V, "HardEvent.M_V", "Cube is not modelled"),
        (lambda asc: asc.HardEvent["M_V"], "HardEvent['M_V']", "Cube is not modelled"),
        (lambda asc: asc.HardEvent.MTE1_M, "HardEvent.MTE1_M", "Cube is not modelled"),
        (lambda asc: asc.HardEvent.MTE2_MTE2, "HardEvent.MTE2_MTE2", "MTE2_MTE3"),
        (lambda asc: asc.HardEvent[3], "HardEvent[3]", "use S_V"),
        (lambda asc: asc.TPosition.A1, "TPosition.A1", "VECIN, VECOUT, VECCALC"),
        (lambda asc: asc.TPosition.CO1, "TPosition.CO1", "Cube is not modelled"),
        (lambda asc: asc.TPosition.GM, "TPosition.GM", "a VECIN and a VECOUT queue do it"),
        (lambda asc: asc.QuePosition.TSCM, "TPosition.TSCM", "VECIN, VECOUT, VECCALC"),
        (lambda asc: asc.RoundMode.CAST_HYBRID, "RoundMode.CAST_HYBRID", "CAST_"),
        (lambda asc: asc.CMPMODE.LESS, "CMPMODE.LESS", "LE"),
    ],
)
def test_words_that_310p_lacks_are_refused_by_name(say: Any, named: str, instead: str, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        say(asc)

    message = refusal(kernel, "unsupported")
    assert named in message
    assert instead in message


@pytest.mark.adr("0310", "1.4")
def test_words_that_310p_has_are_there_by_attribute_and_by_name(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        assert asc.HardEvent.MTE2_V is asc.HardEvent["MTE2_V"]
        assert len(list(asc.HardEvent)) == 13
        assert list(asc.TPosition) == [asc.TPosition.VECIN, asc.TPosition.VECOUT, asc.TPosition.VECCALC]

    assert not launch(kernel).kinds


@pytest.mark.adr("0310", "1.3")
def test_a_kernel_is_of_type_aiv_only(launch: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.KERNEL_TASK_TYPE_DEFAULT(asc.KERNEL_TYPE_AIV_ONLY)

    def another(*, asc: Any) -> None:
        asc.KERNEL_TASK_TYPE_DEFAULT(3)

    assert not launch(kernel).kinds
    assert "say asc.KERNEL_TYPE_AIV_ONLY" in refusal(another, "unsupported")


@pytest.mark.adr("0310", "2.1")
def test_vector_instructions_take_no_memory(refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        asc.Adds(room(asc), gm(asc, x), 1.0, 64)

    assert "in UB" in refusal(kernel, "bad-parameter", x=ONES)


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "int4"])
def test_the_host_cannot_make_a_tensor_of_a_type_that_310p_lacks(dtype: str) -> None:
    with pytest.raises(LaunchError, match="it has no bfloat16"):
        Ascend310pCore().tensor("x", 4, dtype)


# Memories


@pytest.mark.adr("0310", "2.4")
def test_ub_is_full_with_numbers(refusal: Any, launch: Any) -> None:
    def kernel(size: int, *, asc: Any) -> None:
        asc.TPipe().InitBuffer(asc.TBuf(), size)

    message = refusal(kernel, "capacity", size=262_145)
    assert "262144 bytes, 0 are taken, 262176 more" in message
    outcome = launch(kernel, size=262_144)
    assert not outcome.kinds
    assert [note.kind for note in outcome.run.notes] == ["capacity"]
    assert outcome.run.scratch_high_water == 262_144


@pytest.mark.adr("0310", "2.5")
def test_a_copy_carries_nothing_along_until_it_stays_in_an_output(launch: Any) -> None:
    def kernel(y: Any, *, mended: bool, asc: Any) -> None:
        t = room(asc)
        asc.Duplicate(t, 1.0, 8)
        sync(asc, "V_MTE3")
        asc.DataCopy(gm(asc, y), t, 64)  # 8 of 64 mean something
        if mended:
            asc.PipeBarrier(asc.PIPE_MTE3)
            for at in range(8, 64, 8):
                asc.DataCopy(gm(asc, y)[at], t, 8)

    outcome = launch(kernel, y=(64, "float32"), mended=False)
    assert outcome.kinds == ["uninitialised-read"]
    assert "y[32:256] of GM" in str(outcome.run.hazards[0])
    assert not launch(kernel, y=(64, "float32"), mended=True).kinds


@pytest.mark.adr("0310", "2.5")
def test_what_a_queue_gives_holds_nothing(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 1, 256)
        for write in (True, False):
            t = queue.AllocTensor(asc.float32)
            if write:
                asc.Duplicate(t, 1.0, 64)
            else:
                asc.Adds(t, t, 1.0, 64)
            asc.PipeBarrier(asc.PIPE_V)
            queue.FreeTensor(t)

    assert launch(kernel).kinds == ["uninitialised-read"]


@pytest.mark.adr("0310", "2.7")
@pytest.mark.parametrize(
    ("words", "say"),
    [
        ("element 1024 of", lambda asc, t, x: t.GetValue(1024)),
        ("element -1 of", lambda asc, t, x: t.SetValue(-1, 0.0)),
        ("element 1025 of", lambda asc, t, x: t[1025]),
        ("dst has 32 bytes, the copy takes 64", lambda asc, t, x: asc.DataCopy(t[1016], gm(asc, x), 16)),
        ("src has 4096 bytes, the copy takes 4128", lambda asc, t, x: asc.DataCopy(t, gm(asc, x), 1032)),
        ("which has 4096 bytes", lambda asc, t, x: asc.GlobalTensor(asc.float32).SetGlobalBuffer(x + 1, 1024)),
    ],
)
def test_an_access_beyond_its_tensor_is_refused(words: str, say: Any, refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        say(asc, room(asc), x)

    assert words in refusal(kernel, "out-of-bounds", x=ONES)


def private(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    t, out = room(asc), gm(asc, y)
    out.SetValue(0, 7.0)
    if mended:
        asc.DataCacheCleanAndInvalid(out)
    sync(asc, "S_MTE2")
    asc.DataCopy(t, out, 8)
    sync(asc, "MTE2_S")
    t.GetValue(0)


def cached_before(x: Any, y: Any, *, mended: bool, asc: Any) -> None:
    t, out = room(asc), gm(asc, y)
    out.SetValue(0, 1.0)
    out.GetValue(0)
    asc.Duplicate(t, 2.0, 16)
    sync(asc, "S_MTE3")
    sync(asc, "V_MTE3")
    if mended:
        asc.DataCacheCleanAndInvalid(out)
    asc.DataCopy(out, t, 16)
    sync(asc, "MTE3_S")
    t.SetValue(512, out.GetValue(0))


@pytest.mark.adr("0310", "2.6")
@pytest.mark.parametrize("kernel", [private, cached_before])
def test_a_private_cache_and_memory_disagree_until_it_is_cleaned(kernel: Any, launch: Any) -> None:
    spec = {"scalar_cache": "private"}
    given = {"x": ONES, "y": (1024, "float32")}
    assert launch(kernel, **given, mended=False, spec=spec).kinds == ["stale-cache"]
    assert launch(kernel, **given, mended=True, spec=spec).kinds == []
    assert launch(kernel, **given, mended=False).kinds == []


@pytest.mark.adr("0310", "2.6")
def test_the_end_of_a_kernel_cleans_the_cache(launch: Any) -> None:
    def kernel(y: Any, *, asc: Any) -> None:
        gm(asc, y).SetValue(3, 7.0)

    outcome = launch(kernel, y=(8, "float32"), data=True, spec={"scalar_cache": "private"})
    assert outcome["y"][3] == 7


@pytest.mark.adr("0310", "2.6", "6.1")
def test_blocks_that_store_to_one_line_undo_each_other(launch: Any) -> None:
    def kernel(y: Any, *, apart: int, asc: Any) -> None:
        gm(asc, y).SetValue(apart * asc.GetBlockIdx(), 1.0)

    spec = {"scalar_cache": "private"}
    outcome = launch(kernel, y=(64, "float32"), apart=1, grid=3, data=True, spec=spec)
    assert outcome.kinds == ["stale-cache"]
    assert "same line of 64 bytes" in str(outcome.run.hazards[0])
    assert not launch(kernel, y=(64, "float32"), apart=16, grid=3, data=True, spec=spec).kinds
    assert not launch(kernel, y=(64, "float32"), apart=1, grid=3, data=True).kinds


# Flags


@pytest.mark.adr("0310", "3.8")
def test_ids_are_given_marked_and_given_back(launch: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        event = asc.HardEvent.MTE2_V
        assert [asc.FetchEventID(event), asc.FetchEventID(event)] == [0, 0]
        assert [asc.AllocEventID(event) for _ in range(8)] == list(range(8))
        asc.ReleaseEventID(event, 5)
        assert asc.FetchEventID(event) == 5
        assert asc.AllocEventID(asc.HardEvent.V_S) == 0

    def ninth(*, asc: Any) -> None:
        for _ in range(9):
            asc.AllocEventID(asc.HardEvent.MTE2_V)

    def twice(*, asc: Any) -> None:
        asc.ReleaseEventID(asc.HardEvent.MTE2_V, 0)

    assert not launch(kernel).kinds
    assert "all 8 ids of MTE2_V are taken" in refusal(ninth, "event-id")
    assert "was not allocated" in refusal(twice, "event-id")


@pytest.mark.adr("0310", "3.8")
def test_an_id_whose_pair_is_not_complete_is_fetched_again(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        event = asc.HardEvent.MTE2_V
        first = asc.FetchEventID(event)
        asc.SetFlag(event, first)
        second = asc.FetchEventID(event)
        asc.WaitFlag(event, first)
        asc.SetFlag(event, second)
        asc.WaitFlag(event, second)

    assert launch(kernel).kinds == ["event-id"]


@pytest.mark.adr("0310", "3.3")
def test_v_v_is_a_barrier_and_a_sync_of_one_pipe_is_refused(ub: Any, refusal: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.SetFlag(asc.HardEvent.V_V, 0)
        asc.WaitFlag(asc.HardEvent.V_V, 0)
        asc.Adds(t, t, 1.0, 64)

    def kernel(*, asc: Any) -> None:
        asc.TQueSync(asc.PIPE_V, asc.PIPE_V)

    assert not ub(body).kinds
    assert "both ends are PIPE_V" in refusal(kernel, "unsupported")


@pytest.mark.adr("0310", "3.9")
def test_a_stuck_pipe_is_reported_with_flag_and_line_also_after_the_body(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.WaitFlag(asc.HardEvent.MTE2_V, 3)
        asc.PipeBarrier(asc.PIPE_V)

    message = refusal(kernel, "deadlock")
    assert "body has returned" in message
    assert "V waits for MTE2_V id 3 since test_language.py" in message
    assert "1 commands behind it" in message


@pytest.mark.adr("0310", "3.9")
def test_a_body_that_does_not_end_is_stopped(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        while True:
            asc.PipeBarrier(asc.PIPE_V)

    assert "max_ops 5000 calls" in refusal(kernel, "livelock", max_ops=5000)
    assert "max_cycles 3000" in refusal(kernel, "livelock", max_cycles=3000)


# Buffers


@pytest.mark.adr("0310", "4.1")
@pytest.mark.parametrize(
    ("words", "say"),
    [
        (
            "the depth is 1",
            lambda q, asc: [q.EnQue(each) for each in (q.AllocTensor(asc.half), q.AllocTensor(asc.half))],
        ),
        ("is FREE since FreeTensor at", lambda q, asc: [q.FreeTensor(t) for t in [q.AllocTensor(asc.half)] * 2]),
        (
            "is ENQUE, FreeTensor takes",
            lambda q, asc: [say(t) for t in [q.AllocTensor(asc.half)] for say in (q.EnQue, q.FreeTensor)],
        ),
        ("is not of this VECIN queue", lambda q, asc: q.EnQue(None)),
        ("is empty", lambda q, asc: q.DeQue()),
    ],
)
def test_a_queue_refuses_what_is_out_of_turn(words: str, say: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 2, 256)
        say(queue, asc)

    assert words in refusal(kernel, "queue-misuse")


@pytest.mark.adr("0310", "4.1")
def test_a_queue_answers_without_changing(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 1, 256)

        def answers() -> tuple[bool, bool, bool, int]:
            counts = queue.GetTensorCountInQue()
            return queue.HasIdleBuffer(), queue.VacantInQue(), queue.HasTensorInQue(), counts

        assert answers() == (True, True, False, 0)
        t = queue.AllocTensor(asc.float32)
        assert t.GetPosition() is asc.TPosition.VECIN
        assert answers() == (False, True, False, 0)
        queue.EnQue(t)
        assert answers() == answers() == (False, False, True, 1)
        queue.FreeTensor(queue.DeQue())
        assert answers() == (True, True, False, 0)

    assert not launch(kernel).kinds


@pytest.mark.adr("0310", "4.2")
def test_a_queue_hands_over_on_the_pipe_that_takes_and_orders_no_pipe_with_itself(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        pipe, queue, out = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
        pipe.InitBuffer(queue, 1, 256)
        pipe.InitBuffer(out, 1, 256)
        for at in range(2):
            t = queue.AllocTensor(asc.float32)
            asc.DataCopy(t, gm(asc, x)[64 * at], 64)
            queue.EnQue(t)
            t, o = queue.DeQue(), out.AllocTensor(asc.float32)
            asc.Adds(o, t, 1.0, 64)
            asc.Adds(o, o, 1.0, 64)  # no barrier
            out.EnQue(o)
            queue.FreeTensor(t)
            o = out.DeQue()
            asc.DataCopy(gm(asc, y)[64 * at], o, 64)
            out.FreeTensor(o)

    outcome = launch(kernel, x=ONES, y=(128, "float32"))
    assert outcome.kinds == ["race-raw"]
    assert outcome.run.hazards[0].count == 2
    waits = [(row.name, row.unit) for row in outcome.run.log if row.name.startswith("Wait")]
    first = [("WaitFlag<MTE2_V>", "V"), ("WaitFlag<V_MTE3>", "MTE3")]
    again = [("WaitFlag<V_MTE2>", "MTE2"), first[0], ("WaitFlag<MTE3_V>", "V"), first[1]]
    assert waits == first + again


@pytest.mark.adr("0310", "4.4", "5.1")
@pytest.mark.parametrize(
    ("kind", "words", "size", "offset"),
    [("misaligned", "bufOffset 36 is 4 past", 8, 36), ("out-of-bounds", "end at 1056, the buffer has 1024", 8, 1024),
     ("bad-parameter", "size is 0", 0, 0)],
)  # fmt: skip
def test_a_slice_counts_bytes_and_stays_inside(kind: str, words: str, size: int, offset: int, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1000)  # rounded up to 1024
        buf.GetWithOffset(asc.float32, size, offset)

    assert words in refusal(kernel, kind)


@pytest.mark.adr("0310", "4.5")
def test_an_owner_that_writes_again_reads_its_own(ub: Any) -> None:
    def body(asc: Any, t: Any, again: bool) -> None:
        owner = asc.own(t, "chunkV")
        staging = asc.borrow(owner, "chunkV", as_="kStaging").ReinterpretCast(asc.half)
        asc.Duplicate(owner, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Duplicate(staging, 0.0, 32)
        asc.PipeBarrier(asc.PIPE_V)
        if again:
            asc.Duplicate(owner, 1.0, 16)
            asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(owner[8], owner[8], 1.0, 8)

    found = ub(lambda asc, t: body(asc, t, False))
    assert found.kinds == ["live-alias"]
    assert "reads as chunkV what kStaging" in str(found.run.hazards[0])
    assert not ub(lambda asc, t: body(asc, t, True)).kinds


@pytest.mark.adr("0310", "4.6")
def test_what_is_left_at_the_end_is_found_and_flags_of_queues_are_not(launch: Any) -> None:
    def kernel(*, mended: bool, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 1, 256)
        t = queue.AllocTensor(asc.float32)
        queue.EnQue(t)
        asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        if mended:
            asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
            queue.FreeTensor(queue.DeQue())

    assert launch(kernel, mended=False).kinds == ["unpaired-flag", "leak"]
    assert launch(kernel, mended=True).kinds == []


@pytest.mark.adr("0310", "4.7")
def test_host_and_kernel_count_the_same_bytes(launch: Any) -> None:
    def kernel(plan: int, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 4096)
        asc.planned(buf, plan)
        buf.GetWithOffset(asc.float32, 100, 0)
        buf.GetWithOffset(asc.float32, 8, 416)

    assert launch(kernel, plan=448).kinds == []
    wrong = launch(kernel, plan=480)
    assert wrong.kinds == ["tiling-mismatch"]
    assert "planned 480 bytes, the kernel carved 448" in str(wrong.run.hazards[0])


# Alignment and blocks


@pytest.mark.adr("0310", "5.1")
def test_relaxed_alignment_lets_an_element_pass_with_a_finding(ub: Any, refusal: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        for _ in range(2):
            asc.Duplicate(t[1], 1.0, 8)
            asc.PipeBarrier(asc.PIPE_V)
        assert t.GetSize() == 4096

    outcome = ub(body, spec={"alignment": "relaxed"})
    assert outcome.kinds == ["misaligned"]
    assert outcome.run.hazards[0].count == 2


@pytest.mark.adr("0310", "5.2")
def test_a_tail_is_not_copied_and_reported_with_numbers(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.DataCopy(t, gm(asc, x), 13)
        sync(asc, "MTE2_MTE3")
        asc.DataCopy(gm(asc, y), t, 8)

    outcome = launch(kernel, x=ONES, y=(8, "float32"))
    assert outcome.kinds == ["truncated-copy"]
    assert "13 elements of float are 52 bytes, 5 elements are not copied" in str(outcome.run.hazards[0])
    assert outcome.rows("DataCopy")[0].bytes == 32


@pytest.mark.adr("0310", "5.3")
def test_gaps_run_from_the_end_of_a_block_to_the_start_of_the_next(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        asc.DataCopy(t, gm(asc, x), asc.DataCopyParams(3, 2, 1, 0))
        sync(asc, "MTE2_MTE3")
        asc.DataCopy(gm(asc, y), t, asc.DataCopyParams(3, 2, 0, 1))

    x = np.arange(72, dtype=np.float32)
    outcome = launch(kernel, x=x, y=(72, "float32"))
    assert not outcome.kinds
    got = outcome["y"].reshape(3, 24)
    assert np.array_equal(got[:, :16], x.reshape(3, 24)[:, :16])
    assert np.isnan(got[:, 16:]).all()


@pytest.mark.adr("0310", "5.3")
@pytest.mark.parametrize("params", [(0, 1, 0, 0), (4096, 1, 0, 0), (1, 0, 0, 0), (1, 65536, 0, 0), (1, 1, -1, 0)])
def test_numbers_out_of_range_are_refused(params: tuple[int, ...], refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        asc.DataCopy(room(asc), gm(asc, x), asc.DataCopyParams(*params))

    refusal(kernel, "bad-parameter", x=ONES)


@pytest.mark.adr("0310", "5.4")
def test_masked_off_lanes_are_neither_read_nor_written(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 16, 1)
        asc.Duplicate(t, 2.0, [0xFFFF0000, 0], 1)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(t, t, 1.0, 32, 1)

    assert not ub(body).kinds


# Launches and logs


@pytest.mark.adr("0310", "6.1")
def test_blocks_know_their_number_and_take_turns_on_a_core(launch: Any) -> None:
    def kernel(y: Any, *, asc: Any) -> None:
        assert asc.GetBlockNum() == 10
        t = room(asc)
        asc.Duplicate(t, asc.GetBlockIdx(), 8)
        sync(asc, "V_MTE3")
        asc.DataCopy(gm(asc, y)[8 * asc.GetBlockIdx()], t, 8)

    outcome = launch(kernel, y=(80, "float32"), grid=10, data=True)
    assert not outcome.kinds
    assert np.array_equal(outcome["y"], np.repeat(np.arange(10), 8))
    ends = [max(row.end for row in outcome.run.log if row.program == block) for block in range(10)]
    assert ends[8] == ends[9] == 2 * ends[0] == outcome.cycles


@pytest.mark.adr("0310", "6.1")
def test_a_read_of_what_another_block_writes_is_found(launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        t = room(asc)
        if asc.GetBlockIdx() == 0:
            asc.DataCopy(t, gm(asc, x), 64)
        else:
            asc.Duplicate(t, 1.0, 64)
            sync(asc, "V_MTE3")
            asc.DataCopy(gm(asc, x)[56], t, 64)

    outcome = launch(kernel, x=ONES, grid=2)
    assert outcome.kinds == ["race-raw"]
    assert "x[224:256] of GM" in str(outcome.run.hazards[0])


def test_grid_and_block_dim_are_one_number() -> None:
    core = Ascend310pCore()
    with pytest.raises(LaunchError, match="two names of one number"):
        core.run(lambda *, asc: None, grid=1, block_dim=2)


@pytest.mark.adr("0310", "6.3")
def test_a_row_has_32_bytes_and_data_alone_leaves_syncs_out(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        t = room(asc)
        with asc.region("load"):
            asc.DataCopy(t, gm(asc, x), 64)
        sync(asc, "MTE2_MTE3")
        asc.DataCopy(gm(asc, y), t, 64)

    whole, data = (launch(kernel, x=ONES, y=(64, "float32"), log=log).run for log in (True, "data"))
    assert CELLS * whole.log.cells.itemsize == 32
    assert [row.name for row in data.log] == ["DataCopy", "DataCopy"]
    assert len(whole.log) == 4
    assert data.cycles == whole.cycles
    assert [row.region for row in data.log] == ["load", ""]
    assert whole.log[2].after == 1
    assert [row.end for row in data.log] == [row.end for row in whole.log if row.name == "DataCopy"]
    assert whole.log.where(unit="MTE2", tensor="x").bytes.sum() == 256
    assert text.parse(text.structure(whole.log))["block0"]
    assert "cycles" in text.timing(whole.log)


@pytest.mark.adr("0310", "6.3")
def test_a_wait_for_a_flag_that_is_set_later_says_so(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        for _ in range(2):
            asc.WaitFlag(asc.HardEvent.S_V, 0)
        for _ in range(2):
            asc.SetFlag(asc.HardEvent.S_V, 0)

    log = launch(kernel).run.log
    entries = text.parse(text.structure(log))["block0"]
    assert [each.awaits for each in entries] == ["SetFlag<S_V>+1", "SetFlag<S_V>+2", "", ""]
    assert "cycles" in text.timing(log)


@pytest.mark.adr("0310", "6.3")
def test_another_front_end_says_where_it_is(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        t = room(asc)
        asc.at(Site("op_kernel/op.cpp", 12, "Process"))
        asc.Duplicate(t, 1.0, 8)
        asc.Adds(t, t, 1.0, 8)
        asc.at(None)

    (hazard,) = launch(kernel).run.hazards
    assert [str(op.site) for op in hazard.ops] == ["op.cpp:12 in Process"] * 2
