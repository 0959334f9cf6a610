"""Clauses of ADR-0310 that the other files pin once: each broken and mended, owners among them."""

from typing import Any

import numpy as np
import pytest

ONES = np.ones(1024, np.float32)


def gm(asc: Any, pointer: Any) -> Any:
    view = asc.GlobalTensor(asc.float32)
    view.SetGlobalBuffer(pointer)
    return view


def sync(asc: Any, event: str) -> None:
    asc.SetFlag(asc.HardEvent[event], 0)
    asc.WaitFlag(asc.HardEvent[event], 0)


@pytest.mark.adr("0310", "1.1", "3.3")
@pytest.mark.parametrize(("event", "kinds"), [("MTE2_V", ["race-raw"]), ("V_MTE3", [])])
def test_a_copy_within_ub_is_the_vector_units_and_its_flags_are_too(event: str, kinds: list[str], launch: Any) -> None:
    def kernel(y: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1024)
        t = buf.Get(asc.float32)
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.DataCopy(t[64], t, 64)
        sync(asc, event)
        asc.DataCopy(gm(asc, y), t[64], 64)

    assert launch(kernel, y=(64, "float32")).kinds == kinds


@pytest.mark.adr("0310", "2.1")
@pytest.mark.parametrize("mended", [False, True])
def test_a_vector_operand_is_brought_into_ub(mended: bool, launch: Any, refusal: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1024)
        t = buf.Get(asc.float32)
        asc.DataCopy(t, gm(asc, x), 64)
        sync(asc, "MTE2_V")
        asc.Exp(t[64], t if mended else gm(asc, x), 64)

    if mended:
        assert launch(kernel, x=ONES).kinds == []
    else:
        assert "an operand is a GlobalTensor" in refusal(kernel, "bad-parameter", x=ONES)


@pytest.mark.adr("0310", "3.7")
@pytest.mark.parametrize(
    ("pipe", "kinds"), [("PIPE_V", ["race-raw"] * 2), ("PIPE_MTE2", ["race-raw"]), ("PIPE_ALL", [])]
)
def test_one_barrier_on_all_orders_what_barriers_on_one_do_not(pipe: str, kinds: list[str], launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        tpipe, buf = asc.TPipe(), asc.TBuf()
        tpipe.InitBuffer(buf, 1024)
        t = buf.Get(asc.float32)
        asc.DataCopy(t, gm(asc, x), 64)
        asc.PipeBarrier(getattr(asc, pipe))
        asc.Adds(t[64], t, 1.0, 64)
        asc.PipeBarrier(getattr(asc, pipe))
        asc.DataCopy(gm(asc, y), t[64], 64)

    found = launch(kernel, x=ONES, y=(64, "float32")).kinds
    assert found == (["race-raw"] * 2 if kinds else [])


@pytest.mark.adr("0310", "3.7", "3.6")
@pytest.mark.parametrize("mended", [False, True])
def test_posted_stores_have_landed_after_a_barrier_on_all(mended: bool, ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        t.SetValue(3, 5.0)
        asc.PipeBarrier(asc.PIPE_ALL if mended else asc.PIPE_V)
        asc.Adds(t[64], t, 1.0, 64)

    assert ub(body).kinds == ([] if mended else ["race-raw"])


@pytest.mark.adr("0310", "4.2")
@pytest.mark.parametrize(("position", "kinds"), [("VECIN", []), ("VECCALC", ["race-raw"]), ("VECOUT", ["race-raw"])])
def test_a_queue_orders_the_pipes_of_its_position_alone(position: str, kinds: list[str], launch: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        pipe, buf, queue = asc.TPipe(), asc.TBuf(), asc.TQue(asc.TPosition[position], 1)
        pipe.InitBuffer(queue, 1, 256)
        pipe.InitBuffer(buf, 256)
        t = queue.AllocTensor(asc.float32)
        asc.DataCopy(t, gm(asc, x), 64)
        queue.EnQue(t)
        t = queue.DeQue()
        asc.Adds(buf.Get(asc.float32), t, 1.0, 64)
        queue.FreeTensor(t)

    assert launch(kernel, x=ONES).kinds == kinds


@pytest.mark.adr("0310", "4.3")
def test_a_second_buffer_lets_the_next_copy_start_before_the_first_is_freed(launch: Any) -> None:
    def kernel(x: Any, *, buffers: int, asc: Any) -> None:
        pipe, buf, queue = asc.TPipe(), asc.TBuf(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, buffers, 256)
        pipe.InitBuffer(buf, 256)
        for at in range(2):
            t = queue.AllocTensor(asc.float32)
            asc.DataCopy(t, gm(asc, x)[64 * at], 64)
            queue.EnQue(t)
            t = queue.DeQue()
            asc.Adds(buf.Get(asc.float32), t, 1.0, 64)
            asc.PipeBarrier(asc.PIPE_V)
            queue.FreeTensor(t)

    one, two = (launch(kernel, x=ONES, buffers=each) for each in (1, 2))
    assert one.kinds == two.kinds == []
    assert one.rows("DataCopy")[1].start >= one.rows("Adds")[0].end
    assert two.rows("DataCopy")[1].start < two.rows("Adds")[0].start


# Owners


def lent(asc: Any, t: Any) -> tuple[Any, Any]:
    owner = asc.own(t, "chunkV")
    asc.Duplicate(owner, 1.0, 64)
    asc.PipeBarrier(asc.PIPE_V)
    return owner, asc.borrow(owner, "chunkV", as_="kStaging")


@pytest.mark.adr("0310", "4.5")
@pytest.mark.parametrize(
    ("say", "kinds"),
    [
        (lambda asc, owner, loan: asc.Adds(owner, owner, 1.0, 8), ["live-alias"]),
        (lambda asc, owner, loan: asc.Adds(owner[8], owner[8], 1.0, 8), []),
        (lambda asc, owner, loan: asc.Adds(loan, loan, 1.0, 8), []),
        (lambda asc, owner, loan: owner.GetValue(8), []),
        (lambda asc, owner, loan: asc.Duplicate(owner, 0.0, 8), []),
    ],
    ids=["the loan's bytes", "bytes beside them", "the borrower", "an element beside them", "only written"],
)
def test_an_owner_may_not_read_what_its_borrower_wrote(say: Any, kinds: list[str], ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        owner, loan = lent(asc, t)
        asc.Duplicate(loan, 2.0, 8)
        sync(asc, "V_S")
        asc.PipeBarrier(asc.PIPE_V)
        say(asc, owner, loan)

    assert ub(body).kinds == kinds


@pytest.mark.adr("0310", "4.5")
def test_views_of_an_owner_are_its_own_and_a_loan_that_only_reads_is_no_fault(ub: Any) -> None:
    def body(asc: Any, t: Any, written: bool) -> None:
        owner, loan = lent(asc, t)
        asc.Duplicate(loan if written else t[512], 2.0, 8)
        asc.Adds(t[1024], loan[16], 1.0, 8)
        asc.PipeBarrier(asc.PIPE_V)
        view = owner.ReinterpretCast(asc.int32_t)
        asc.Adds(view, view, 1, 8)

    assert ub(lambda asc, t: body(asc, t, True)).kinds == ["live-alias"]
    assert ub(lambda asc, t: body(asc, t, False)).kinds == []


@pytest.mark.adr("0310", "4.5")
def test_a_loan_of_nobodys_bytes_is_refused(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 256)
        asc.borrow(buf.Get(asc.float32), "chunkW", as_="kStaging")

    assert "nobody owns as 'chunkW'" in refusal(kernel, "bad-parameter")


@pytest.mark.adr("0310", "4.5")
@pytest.mark.parametrize("owners", [2, 255])
def test_there_may_be_255_owners(owners: int, ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        for at in range(owners):
            view = asc.own(t[8 * at], f"owner{at}")
            asc.Duplicate(view, 1.0, 8)

    assert ub(body).kinds == []


# The end, and one account


@pytest.mark.adr("0310", "4.6")
def test_the_end_waits_for_everything_and_takes_the_flags_of_queues(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, by_hand: bool, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECOUT, 1)
        pipe.InitBuffer(queue, 1, 256)
        t = queue.AllocTensor(asc.float32)
        asc.Duplicate(t, 3.0, 64)
        queue.EnQue(t)
        t = queue.DeQue()
        asc.DataCopy(gm(asc, y), t, 64)
        queue.FreeTensor(t)
        if by_hand:
            asc.SetFlag(asc.HardEvent.V_MTE2, 0)

    clean = launch(kernel, x=ONES, y=(64, "float32"), by_hand=False)
    assert clean.kinds == []
    assert (clean["y"] == 3).all()
    assert clean.cycles == max(row.end for row in clean.run.log)
    assert launch(kernel, x=ONES, y=(64, "float32"), by_hand=True).kinds == ["unpaired-flag"]


@pytest.mark.adr("0310", "4.7")
@pytest.mark.parametrize(("plan", "kinds"), [(416, []), (384, ["tiling-mismatch"]), (448, ["tiling-mismatch"])])
def test_a_plan_is_the_highest_byte_that_is_carved(plan: int, kinds: list[str], launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1024)
        asc.planned(buf, plan)
        buf.GetWithOffset(asc.float32, 8, 384)
        buf.GetWithOffset(asc.half, 64, 0)

    assert launch(kernel).kinds == kinds
