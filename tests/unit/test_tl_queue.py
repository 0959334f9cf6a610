"""send, recv, recv_async, release: slots, credits, headers, order, time (ADR-0023, ADR-0025)."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.topology import ring_ports

X = np.random.default_rng(5).standard_normal((8, 64)).astype(np.float32)
OUT = ((8, 64), "float32", "local")
SCHEDULES = ["model", "jitter", "late"]


def between(send: Callable[..., Any], receive: Callable[..., Any]) -> Callable[..., None]:
    """PE0 does the one, PE1 the other."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        (receive if tl.program_id(0) else send)(x, o, tl)

    return kernel


def send_once(x: Any, o: Any, tl: Any) -> None:
    tl.wait(tl.send("E", tl.load(x, (8, 64))))


def pe1(outcome: Any, name: str = "o") -> Any:
    return outcome.run.array(outcome.tensors[name])[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.uint8], ids=["f32", "bf16", "f16", "u8"]
)
def test_a_message_arrives_as_it_was_sent(launch: Any, schedule: str, dtype: Any) -> None:
    x = (X * 9).clip(0).astype(dtype)

    def receive(x: Any, o: Any, tl: Any) -> None:
        h = tl.recv("W", (8, 64), dtype)
        assert (h.shape, h.dtype) == ((8, 64), np.dtype(dtype))
        tl.wait(tl.store(o, h))

    outcome = launch(
        between(send_once, receive), x=x, o=((8, 64), dtype, "local"), grid=2, schedule=schedule, check=True
    )
    assert (pe1(outcome) == x).all()


def test_what_is_sent_is_what_is_seen_and_what_was_there_at_the_start(launch: Any) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.load(x, (8, 64))
        tl.wait(tl.send("E", tl.trans(h)))
        tl.mul(h, 0.0, out=h)

    def receive(x: Any, o: Any, tl: Any) -> None:
        tl.wait(tl.store(o, tl.recv("W", (64, 8)) + 0.0))

    outcome = launch(between(send, receive), x=X, o=((64, 8), "float32", "local"), grid=2, check=True)
    assert (pe1(outcome) == X.T).all()


def test_the_source_may_be_a_mask_a_result_or_a_slot(launch: Any) -> None:
    """A result in flight on another unit is waited for; a slot is passed on without a copy."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        rank = tl.program_id(0)
        if rank == 0:
            tl.send("E", tl.exp(tl.load(x, (8, 64))))
        elif rank == 1:
            tl.wait(tl.send("E", tl.recv("W", (8, 64))))
        else:
            tl.wait(tl.store(o, tl.recv("W", (8, 64))))

    outcome = launch(kernel, x=X, o=((8, 64), "float32", 2), grid=3, check=True)
    assert (outcome["o"] == np.exp(X)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_messages_of_a_link_arrive_in_the_order_sent_whatever_their_size(launch: Any, schedule: str) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.wait(tl.load(x, (8, 64)))
        for rows in (8, 1, 4, 1, 2):
            tl.send("E", tl.mul(tl.load(x, (rows, 64)), rows))
        tl.wait(h)

    def receive(x: Any, o: Any, tl: Any) -> None:
        for row, rows in enumerate((8, 1, 4, 1, 2)):
            with tl.scratch_scope():
                h = tl.recv("W", (rows, 64))
                tl.wait(tl.store(o + 64 * row, tl.sum(h, 0)))

    outcome = launch(
        between(send, receive), x=X, o=((5, 64), "float32", "local"), grid=2, schedule=schedule, check=True
    )
    expected = np.stack([rows * X[:rows].sum(0) for rows in (8, 1, 4, 1, 2)])
    np.testing.assert_allclose(pe1(outcome), expected, rtol=1e-5, atol=1e-5)


def test_two_links_between_two_programs_stay_apart(launch: Any) -> None:
    """ADR-0025 7: on a ring of two, E and W lead to the same peer."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h = tl.load(x, (8, 64))
            tl.wait(tl.send("W", h * 2.0), tl.send("E", h))
        else:
            from_w, from_e = tl.recv("W", (8, 64)), tl.recv("E", (8, 64))
            tl.wait(tl.store(o, tl.sub(from_w, from_e)))

    outcome = launch(kernel, x=X, o=OUT, grid=2, ports=ring_ports((0, 1)), check=True)
    assert (pe1(outcome) == X - 2 * X).all()


# Blocking and order


def test_a_receive_blocks_until_the_message_is_there(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        tl.recv("W", (8, 64))
        tl.zeros((1, 1))

    outcome = launch(between(send_once, receive), x=X, o=OUT, grid=2)
    recv, send = outcome.row("recv"), outcome.row("send")
    assert recv.end == send.end
    assert recv.after == send.index
    assert outcome.row("zeros").issue == recv.end + 8


def test_a_message_that_is_there_already_costs_only_the_issue(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        for _ in range(100):
            tl.zeros((1, 1))
        tl.recv("W", (8, 64))

    recv = launch(between(send_once, receive), x=X, o=OUT, grid=2).row("recv")
    assert recv.end == recv.issue == 100 * 8 + 16


def test_a_message_takes_its_hops_and_its_bytes(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        tl.recv("W", (8, 64))

    send = launch(between(send_once, receive), x=X, o=OUT, grid=2).row("send")
    assert (send.bytes, send.shape, send.peer, send.unit) == (2048, (8, 64), 1, "IPCQ.E")
    assert send.free - send.start == 2048 // 128
    assert send.end - send.start == 5 + 9 + 5 + 16


def test_a_send_waits_for_the_unit_that_makes_its_source(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        tl.recv("W", (8, 64))

    outcome = launch(between(send_once, receive), x=X, o=OUT, grid=2)
    wait = outcome.rows("wait")[0]
    assert wait.after == outcome.row("load").index
    assert outcome.row("send").issue == wait.end + 16


def test_a_sender_goes_on_at_once_while_there_are_slots(launch: Any) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.wait(tl.load(x, (8, 64)))
        for _ in range(3):
            tl.send("E", h)

    def receive(x: Any, o: Any, tl: Any) -> None:
        for _ in range(3):
            tl.recv("W", (8, 64))

    first, second, third = launch(between(send, receive), x=X, o=OUT, grid=2).rows("send")
    assert second.issue == first.issue + 16
    assert third.issue == second.issue + 16
    assert [second.start, third.start] == [first.free, second.free]


def test_without_a_slot_it_waits_for_the_credit_to_come_home(launch: Any) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.wait(tl.load(x, (8, 64)))
        tl.send("E", h), tl.send("E", h)

    def receive(x: Any, o: Any, tl: Any) -> None:
        for _ in range(2):
            tl.release(tl.recv("W", (8, 64)))

    outcome = launch(between(send, receive), x=X, o=OUT, grid=2, spec={"ipcq_slots": 1}, check=True)
    (first, second), credit = outcome.rows("send"), outcome.rows("credit")[0]
    (wait,) = [row for row in outcome.rows("wait") if row.after == credit.index]
    assert (credit.bytes, credit.unit, credit.peer) == (16, "IPCQ.W", 0)
    assert credit.end - credit.start == 5 + 9 + 5 + 1
    assert credit.issue == first.end  # released as soon as it was there
    assert wait.end == credit.end
    assert second.issue == wait.end + 16


def test_slots_are_used_again_and_again(launch: Any) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        for row in range(8):
            with tl.scratch_scope():
                tl.wait(tl.send("E", tl.load(x + 64 * row, (1, 64))))

    def receive(x: Any, o: Any, tl: Any) -> None:
        for row in range(8):
            h = tl.recv("W", (1, 64))
            tl.wait(tl.store(o + 64 * row, h))
            tl.release(h)

    outcome = launch(between(send, receive), x=X, o=OUT, grid=2, spec={"ipcq_slots": 2}, check=True)
    assert (pe1(outcome) == X).all()


# recv_async


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_recv_async_returns_at_once_and_is_waited_for(launch: Any, schedule: str) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        before = tl._kernel.now
        h = tl.recv_async("W", (8, 64))
        assert tl._kernel.now == before + 16
        assert tl.wait(h) is h
        tl.wait(tl.store(o, h))

    outcome = launch(between(send_once, receive), x=X, o=OUT, grid=2, schedule=schedule, check=True)
    assert (pe1(outcome) == X).all()


def test_two_recv_asyncs_take_their_messages_in_the_order_asked(launch: Any) -> None:
    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.load(x, (8, 64))
        tl.wait(tl.send("E", h), tl.send("E", h * 2.0))

    def receive(x: Any, o: Any, tl: Any) -> None:
        first, second = tl.recv_async("W", (8, 64)), tl.recv_async("W", (8, 64))
        tl.wait(second)
        tl.wait(first)
        tl.wait(tl.store(o, second - first * 3.0))

    assert (pe1(launch(between(send, receive), x=X, o=OUT, grid=2, check=True)) == 2 * X - 3 * X).all()


USES: dict[str, Callable[..., Any]] = {
    "add": lambda tl, o, h: h + 1.0,
    "store": lambda tl, o, h: tl.store(o, h),
    "trans": lambda tl, o, h: tl.trans(h),
    "release": lambda tl, o, h: tl.release(h),
    "dot": lambda tl, o, h: tl.dot(h, h, trans_b=True),
    "send": lambda tl, o, h: tl.send("W", h),
    "exp": lambda tl, o, h: tl.exp(tl.zeros((8, 64)), out=h),
    "assign": lambda tl, o, h: tl.assign(h, tl.zeros((8, 64))),
}


@pytest.mark.parametrize(("call", "use"), USES.items(), ids=USES)
def test_before_its_wait_it_may_not_be_used(refusal: Any, call: str, use: Callable[..., Any]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            send_once(x, o, tl)
        else:
            use(tl, o, tl.recv_async("W", (8, 64)))

    message = refusal(kernel, "race-raw", x=X, o=OUT, grid=2)
    assert f"tl.{call} of PE1" in message
    assert "recv_async" in message
    assert "tl.wait" in message


# Slots end


def test_a_scope_gives_back_its_slots_and_only_those(launch: Any) -> None:
    alive = []

    def send(x: Any, o: Any, tl: Any) -> None:
        h = tl.load(x, (8, 64))
        tl.send("E", h), tl.send("E", h), tl.send("E", h)

    def receive(x: Any, o: Any, tl: Any) -> None:
        outer, released = tl.recv("W", (8, 64)), tl.recv("W", (8, 64))
        with tl.scratch_scope():
            inner = tl.recv("W", (8, 64))
            tl.release(released)
        alive.extend(each.allocation.alive for each in (outer, released, inner))

    outcome = launch(between(send, receive), x=X, o=OUT, grid=2, check=True)
    assert alive == [True, False, False]
    assert len(outcome.rows("credit")) == 3


def test_an_exit_gives_a_slot_back_when_its_readers_have_ended_and_does_not_block(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        with tl.scratch_scope():
            tl.sum(tl.exp(tl.recv("W", (8, 64))))
        tl.zeros((1, 1))

    outcome = launch(between(send_once, receive), x=X, o=OUT, grid=2, check=True)
    reader, credit = outcome.row("exp"), outcome.row("credit")
    assert credit.start == reader.end > credit.issue
    assert outcome.row("zeros").issue == outcome.row("sum").issue + 8
    assert outcome.row("drain").after == reader.index


def test_a_slot_is_given_back_when_the_last_reader_of_every_unit_has_ended(launch: Any) -> None:
    """MATH reads it first and ends last."""

    def receive(x: Any, o: Any, tl: Any) -> None:
        for _ in range(9):
            tl.zeros((64, 64))
        with tl.scratch_scope():
            h = tl.recv("W", (8, 64))
            tl.exp(h)
            tl.wait(tl.store(o, h))

    outcome = launch(between(send_once, receive), x=X, o=OUT, grid=2)
    assert outcome.row("store").end < outcome.row("exp").end == outcome.row("credit").start


def test_a_release_at_once_while_a_unit_still_reads_is_a_race(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        h = tl.recv("W", (8, 64))
        tl.exp(h)
        tl.release(h)

    assert launch(between(send_once, receive), x=X, o=OUT, grid=2).kinds == ["race-war"]


@pytest.mark.parametrize("view", [lambda tl, h: h, lambda tl, h: tl.trans(h)], ids=["itself", "transposed"])
def test_after_its_release_a_slot_is_dead(refusal: Any, view: Callable[..., Any]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            send_once(x, o, tl)
            return
        h = tl.recv("W", (8, 64))
        seen = view(tl, h)
        tl.release(seen)
        h + 1.0

    message = refusal(kernel, "use-after-recycle", x=X, o=OUT, grid=2)
    assert "tl.add of PE1" in message
    assert "its message slot was released" in message
    assert f"test_tl_queue.py:{kernel.__code__.co_firstlineno + 6}" in message, "where"


def test_a_slot_can_be_released_once(refusal: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            send_once(x, o, tl)
            return
        h = tl.recv("W", (8, 64))
        tl.release(h)
        tl.release(h)

    assert "tl.release of PE1" in refusal(kernel, "use-after-recycle", x=X, o=OUT, grid=2)


# Headers and sizes


EXPECTED: dict[str, tuple[Any, str]] = {
    "another shape": ((4, 128), "float32"),
    "the same bytes in another order": ((64, 8), "float32"),
    "another dtype of the same size": ((8, 128), "bfloat16"),
    "fewer rows": ((4, 64), "float32"),
    "more rows": ((16, 64), "float32"),
    "another rank": ((1, 8, 64), "float32"),
}


@pytest.mark.parametrize("call", ["recv", "wait"])
@pytest.mark.parametrize(("shape", "dtype"), EXPECTED.values(), ids=EXPECTED)
def test_a_message_that_is_not_what_is_expected(refusal: Any, call: str, shape: Any, dtype: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            send_once(x, o, tl)
        elif call == "recv":
            tl.recv("W", shape, dtype)
        else:
            tl.wait(tl.recv_async("W", shape, dtype))

    message = refusal(kernel, "message-mismatch", x=X, o=OUT, grid=2)
    assert f"tl.{call} of PE1" in message
    assert f"expects {shape} {dtype}" in message
    assert "(8, 64) float32" in message
    assert f"test_tl_queue.py:{send_once.__code__.co_firstlineno + 1} in send_once" in message


def test_the_largest_message_fills_its_slot(launch: Any) -> None:
    def receive(x: Any, o: Any, tl: Any) -> None:
        tl.recv("W", (8, 64))

    assert (
        launch(between(send_once, receive), x=X, o=OUT, grid=2, spec={"ipcq_slot_bytes": 2048}, check=True).kinds == []
    )


@pytest.mark.parametrize("call", ["send", "recv", "recv_async"])
def test_a_message_larger_than_a_slot(refusal: Any, call: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            getattr(tl, call)("E", tl.load(x, (8, 64)) if call == "send" else (8, 64))

    message = refusal(kernel, "capacity", x=X, o=OUT, grid=2, spec={"ipcq_slot_bytes": 2047})
    assert f"tl.{call} of PE0" in message
    assert "2048 bytes" in message
    assert "a slot holds 2047" in message
    assert "ipcq_slot_bytes" in message


# Wrong uses


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "no neighbour there": (lambda tl, p, h: tl.send("N", h), "tl.send PE0 'N' E, S"),
    "none to receive from": (lambda tl, p, h: tl.recv("W", (4, 4)), "tl.recv PE0 'W' E, S"),
    "none to ask": (lambda tl, p, h: tl.recv_async("N", (4, 4)), "tl.recv_async PE0 'N' E, S"),
    "a neighbour without a program": (lambda tl, p, h: tl.send("S", h), "tl.send 'S' PE0 PE 4 no program"),
    "a direction there is not": (lambda tl, p, h: tl.send("up", h), "tl.send 'up' E, S"),
    "a direction in small letters": (lambda tl, p, h: tl.send("e", h), "tl.send 'e' E, S"),
    "a number for a direction": (lambda tl, p, h: tl.send(1, h), "tl.send direction 1"),
    "nothing for a direction": (lambda tl, p, h: tl.recv(None, (4, 4)), "tl.recv direction None"),
    "a list of directions": (lambda tl, p, h: tl.send(["E"], h), "tl.send ['E']"),
    "a list to receive from": (lambda tl, p, h: tl.recv([], (4, 4)), "tl.recv []"),
    "operands the other way round": (lambda tl, p, h: tl.send(h, "E"), "tl.send direction handle"),
    "a send of a number": (lambda tl, p, h: tl.send("E", 5), "tl.send got a int handle"),
    "a send of a pointer": (lambda tl, p, h: tl.send("E", p), "tl.send got a Pointer handle"),
    "a send of a ref": (lambda tl, p, h: tl.send("E", tl.ref(p, (4, 4))), "tl.send got a Block handle"),
    "a send of nothing": (lambda tl, p, h: tl.send("E", None), "tl.send got a NoneType handle"),
    "no shape": (lambda tl, p, h: tl.recv("E", None), "tl.recv None whole numbers"),
    "no elements": (lambda tl, p, h: tl.recv("E", (0, 4)), "tl.recv (0, 4) whole numbers > 0"),
    "half an element": (lambda tl, p, h: tl.recv_async("E", (0.5,)), "tl.recv_async (0.5,) whole numbers"),
    "a dtype there is not": (lambda tl, p, h: tl.recv("E", (4, 4), "int4"), "tl.recv 'int4' bfloat16"),
    "a release of a result": (lambda tl, p, h: tl.release(h), "tl.release recv"),
    "a release of a number": (lambda tl, p, h: tl.release(5), "tl.release recv"),
    "a release of nothing": (lambda tl, p, h: tl.release(None), "tl.release recv"),
    "a release of a pointer": (lambda tl, p, h: tl.release(p), "tl.release recv"),
}


@pytest.mark.parametrize(("call", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_use_is_refused_and_does_not_block(refusal: Any, call: Callable[..., Any], said: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            call(tl, x, tl.wait(tl.load(x, (4, 4))))

    message = refusal(kernel, "bad-parameter", x=X, o=OUT, grid=2)
    assert [word for word in said.split() if word not in message] == []


def test_a_huge_message_is_refused_by_size(refusal: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.recv("E" if tl.program_id(0) == 0 else "W", (1 << 40, 1 << 40))

    assert f"{4 << 80} bytes" in refusal(kernel, "capacity", x=X, o=OUT, grid=2)


# Links that are not the mesh


def test_an_open_ring_has_no_way_round(refusal: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.send("W", tl.load(x, (8, 64)))

    message = refusal(kernel, "bad-parameter", x=X, o=OUT, grid=2, ports=ring_ports((0, 1), closed=False))
    assert "'W'" in message
    assert "E" in message


def test_a_link_between_pes_that_are_not_neighbours_pays_each_hop(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("far", tl.load(x, (8, 64))))
        elif tl.program_id(0) == 7:
            tl.wait(tl.store(o, tl.recv("back", (8, 64))))

    ports = {(0, "far"): (7, "back"), (7, "back"): (0, "far")}
    outcome = launch(kernel, x=X, o=((8, 64), "float32", 7), grid=8, ports=ports, check=True)
    assert outcome.row("send").end - outcome.row("send").start == 5 + 4 * 9 + 5 + 16
    assert (outcome["o"] == X).all()


def test_a_placement_moves_the_programs_and_not_the_directions(launch: Any) -> None:
    """Rank 0 on PE 5, rank 1 on PE 4: west of it."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("W", tl.load(x, (8, 64))))
        else:
            tl.wait(tl.store(o, tl.recv("E", (8, 64))))

    outcome = launch(kernel, x=X, o=OUT, grid=2, placement=(5, 4), check=True)
    assert (pe1(outcome) == X).all()
    assert outcome.row("send").peer == 1


def test_every_row_of_a_message_has_its_times_when_the_run_is_over(launch: Any) -> None:
    def kernel(*, tl: Any) -> None:
        if tl.program_id() == 0:
            tl.wait(tl.send("E", tl.zeros((4, 4))))
        else:
            tl.wait(tl.recv_async("W", (4, 4)))

    log = launch(kernel, grid=2).log

    (asked,) = log.where(name="recv_async")
    assert asked.issue == asked.start == asked.end
    assert all(row.issue <= row.start <= row.free and row.start <= row.end for row in log)
