"""What a kernel leaves behind when it returns: what somebody should have waited for is found, what drains is not."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.arange(1024, dtype=np.float32).reshape(32, 32)
OUT = ((32, 32), "float32")
SCHEDULES = ["model", "jitter", "late"]


def line(kernel: Callable[..., None], mark: str) -> str:
    source, first = inspect.getsourcelines(kernel)
    at = next(at for at, text in enumerate(source) if text.rstrip().endswith(mark))
    return f"test_leftovers.py:{first + at} in {kernel.__name__}"


def unawaited_load(x: Any, o: Any, *, tl: Any) -> None:
    tl.load(x, (32, 32))  # left


def unawaited_store(x: Any, o: Any, *, tl: Any) -> None:
    tl.store(o, tl.load(x, (32, 32)))  # left


def unawaited_composite(x: Any, o: Any, *, tl: Any) -> None:
    h = tl.load(x, (32, 32))
    tl.composite("gemm", h, tl.ref(x, (32, 32)), trans_b=True)  # left


def unawaited_writeback(x: Any, o: Any, *, tl: Any) -> None:
    h = tl.load(x, (32, 32))
    tl.composite("gemm", h, tl.ref(x, (32, 32)), trans_b=True, out=o)  # left


def unawaited_composite_behind_a_dot(x: Any, o: Any, *, tl: Any) -> None:
    """The dot is over, and the composite's product with it; its write to HBM is not."""
    h = tl.load(x, (32, 32))
    tl.composite("gemm", h, tl.ref(x, (32, 32)), trans_b=True, out=o)  # left
    tl.dot(h, h, trans_b=True)


def the_last_of_three_stores(x: Any, o: Any, *, tl: Any) -> None:
    h = tl.load(x, (8, 32))
    tl.store(o, h)
    tl.wait(tl.store(o + 256, h))
    tl.store(o + 512, h)  # left


LEFT = [
    unawaited_load, unawaited_store, unawaited_composite, unawaited_writeback, unawaited_composite_behind_a_dot,
    the_last_of_three_stores,
]  # fmt: skip


@pytest.mark.parametrize("kernel", LEFT)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_op_nobody_waited_for_is_found_at_its_line(launch: Any, kernel: Any, schedule: str) -> None:
    outcome = launch(kernel, x=X, o=OUT, schedule=schedule)
    assert outcome.kinds == ["op-in-flight-at-exit"]
    (hazard,) = outcome.run.hazards
    assert line(kernel, "# left") in hazard.message
    assert "PE0" in hazard.message
    assert "tl.wait" in hazard.message
    assert hazard.count == 1


def test_several_on_one_unit_are_counted(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        for row in range(3):
            tl.load(x + 32 * row, (1, 32))

    (hazard,) = launch(kernel, x=X, o=OUT).run.hazards
    assert hazard.count == 3
    assert "(and 2 more)" in hazard.message


def test_each_program_answers_for_itself(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (32, 32))
        if tl.program_id(0) != 1:
            tl.wait(h)

    (hazard,) = launch(kernel, x=X, o=OUT, grid=3).run.hazards
    assert hazard.ops[0].kernel == "PE1"


def waited_for_by_a_later_one(x: Any, o: Any, *, tl: Any) -> None:
    h, mine = tl.load(x, (8, 32)), o + 512 * tl.program_id(0)
    tl.store(mine, h)
    tl.wait(tl.store(mine + 256, h))


def used_and_so_waited_for(x: Any, o: Any, *, tl: Any) -> None:
    tl.exp(tl.load(x, (32, 32)))


def math_and_sends_that_drain(x: Any, o: Any, *, tl: Any) -> None:
    if tl.program_id(0) == 0:
        tl.send("E", tl.exp(tl.load(x, (32, 32))))
        tl.exp(tl.zeros((32, 32)))
    elif tl.program_id(0) == 1:
        tl.sum(tl.recv("W", (32, 32)))


@pytest.mark.parametrize("kernel", [waited_for_by_a_later_one, used_and_so_waited_for, math_and_sends_that_drain])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_known_to_be_over_or_drains_is_no_finding(launch: Any, kernel: Any, schedule: str) -> None:
    launch(kernel, x=X / 1024, o=OUT, grid=2, schedule=schedule, check=True)  # exp of all of it is finite


def test_what_drains_is_done_when_the_run_is_over(launch: Any) -> None:
    rows = list(launch(math_and_sends_that_drain, x=X, o=OUT, grid=2).log)
    assert all(row.end >= row.start >= row.issue for row in rows)


# Messages and credits


def never_received(x: Any, o: Any, *, tl: Any) -> None:
    if tl.program_id(0) == 0:
        tl.wait(tl.send("E", tl.load(x, (8, 32))))  # left


def received_once_too_little(x: Any, o: Any, *, tl: Any) -> None:
    if tl.program_id(0) == 0:
        h = tl.load(x, (8, 32))
        tl.send("E", h)
        tl.wait(tl.send("E", h))  # left
    elif tl.program_id(0) == 1:
        tl.recv("W", (8, 32))


@pytest.mark.parametrize("kernel", [never_received, received_once_too_little])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_message_that_nobody_received_is_found_at_its_send(launch: Any, kernel: Any, schedule: str) -> None:
    outcome = launch(kernel, x=X, o=OUT, grid=2, schedule=schedule)
    assert outcome.kinds == ["message-left"]
    (hazard,) = outcome.run.hazards
    assert line(kernel, "# left") in hazard.message
    assert "PE0 E> PE1" in hazard.message
    assert [op.name for op in hazard.ops] == ["send"]


def test_a_recv_async_that_nobody_waited_for_keeps_its_slot(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("E", tl.load(x, (8, 32))))
        else:
            tl.recv_async("W", (8, 32))  # left

    outcome = launch(kernel, x=X, o=OUT, grid=2)
    assert sorted(outcome.kinds) == ["credit-lost", "op-in-flight-at-exit"]
    by_kind = {hazard.kind: hazard for hazard in outcome.run.hazards}
    assert "PE1" in by_kind["op-in-flight-at-exit"].message
    assert line(kernel, "# left") in by_kind["op-in-flight-at-exit"].message
    assert "1 of 4 slots of PE0 E> PE1" in by_kind["credit-lost"].message


def test_slots_that_the_kernel_kept_go_home_at_its_end(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h = tl.load(x, (8, 32))
            for _ in range(3):
                tl.send("E", h)
        else:
            for _ in range(3):
                tl.recv("W", (8, 32))

    outcome = launch(kernel, x=X, o=OUT, grid=2, check=True)
    assert len(outcome.rows("credit")) == 3


def test_without_data_the_same_is_left_behind(launch: Any) -> None:
    for kernel in LEFT:
        assert launch(kernel, x=X, o=OUT, data=False).kinds == ["op-in-flight-at-exit"]
    assert launch(never_received, x=X, o=OUT, grid=2, data=False).kinds == ["message-left"]
