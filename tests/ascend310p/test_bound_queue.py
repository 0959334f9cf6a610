"""TQueBind: buffers that MTE2 fills and MTE3 takes away, and what is wrong when a hand-over is left out."""

from typing import Any

import numpy as np
import pytest

GIVEN = np.arange(512, dtype=np.float32)
SCHEDULES = [("model", 0), ("jitter", 1), *[("late", seed) for seed in range(0, 24, 5)]]


def sides(asc: Any, *pointers: Any) -> list[Any]:
    made = [asc.GlobalTensor(asc.float32) for _ in pointers]
    for tensor, pointer in zip(made, pointers, strict=True):
        tensor.SetGlobalBuffer(pointer)
    return made


def bound(asc: Any, buffers: int = 2, depth: int = 1) -> Any:
    pipe, queue = asc.TPipe(), asc.TQueBind(asc.TPosition.VECIN, asc.TPosition.VECOUT, depth)
    pipe.InitBuffer(queue, buffers, 256)
    return queue


def copied(x: Any, y: Any, *, asc: Any) -> None:
    (source, target), queue = sides(asc, x, y), bound(asc)
    for at in range(0, 512, 64):
        t = queue.AllocTensor(asc.float32)
        asc.DataCopy(t, source[at], 64)
        queue.EnQue(t)
        t = queue.DeQue()
        asc.DataCopy(target[at], t, 64)
        queue.FreeTensor(t)


@pytest.mark.adr("0310", "4.2", "4.3")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_copy_through_a_bound_queue_is_clean_and_waits_of_v_for_nothing(schedule: Any, launch: Any) -> None:
    outcome = launch(copied, x=GIVEN, y=(512, "float32"), schedule=schedule[0], seed=schedule[1])
    assert outcome.kinds == []
    assert np.array_equal(outcome["y"], GIVEN)
    flags = {row.name for row in outcome.run.log if "Flag" in row.name}
    assert flags == {f"{call}<{event}>" for call in ("SetFlag", "WaitFlag") for event in ("MTE2_MTE3", "MTE3_MTE2")}
    assert {row.unit for row in outcome.run.log} == {"MTE2", "MTE3"}


def test_two_buffers_let_copies_in_and_out_overlap(launch: Any) -> None:
    def one(x: Any, y: Any, *, asc: Any) -> None:
        (source, target), queue = sides(asc, x, y), bound(asc, 1)
        for at in range(0, 512, 64):
            t = queue.AllocTensor(asc.float32)
            asc.DataCopy(t, source[at], 64)
            queue.EnQue(t)
            asc.DataCopy(target[at], queue.DeQue(), 64)
            queue.FreeTensor(t)

    given = {"x": GIVEN, "y": (512, "float32")}
    assert launch(copied, **given).cycles < launch(one, **given).cycles


@pytest.mark.adr("0310", "3.5", "4.2")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_copy_out_without_enque_and_deque_is_a_race(schedule: Any, launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        (source, target), queue = sides(asc, x, y), bound(asc)
        t = queue.AllocTensor(asc.float32)
        asc.DataCopy(t, source, 64)
        asc.DataCopy(target, t, 64)
        queue.FreeTensor(t)

    outcome = launch(kernel, x=GIVEN, y=(64, "float32"), schedule=schedule[0], seed=schedule[1])
    assert outcome.kinds == ["race-raw"]


def test_a_copy_in_over_what_is_still_copied_out_is_a_race(launch: Any) -> None:
    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        (source, target), queue = sides(asc, x, y), bound(asc)
        t = queue.AllocTensor(asc.float32)
        asc.DataCopy(t, source, 64)
        queue.EnQue(t)
        t = queue.DeQue()
        asc.DataCopy(target, t, 64)
        asc.DataCopy(t, source[64], 64)  # FreeTensor and AllocTensor are missing
        queue.FreeTensor(t)

    assert launch(kernel, x=GIVEN, y=(64, "float32")).kinds == ["race-war"]


@pytest.mark.adr("0310", "4.2")
def test_v_has_no_part_in_a_bound_queue(launch: Any) -> None:
    """The flag goes from MTE2 to MTE3, past what V does to the tensor in between."""

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        (source, target), queue = sides(asc, x, y), bound(asc)
        t = queue.AllocTensor(asc.float32)
        asc.DataCopy(t, source, 64)
        queue.EnQue(t)
        t = queue.DeQue()
        asc.Adds(t, t, 1.0, 64)
        asc.DataCopy(target, t, 64)
        queue.FreeTensor(t)

    assert sorted(launch(kernel, x=GIVEN, y=(64, "float32")).kinds) == ["race-raw", "race-raw"]


@pytest.mark.adr("0310", "4.1")
@pytest.mark.parametrize(
    ("words", "say"),
    [
        ("this VECIN to VECOUT queue is empty", lambda queue, asc: queue.DeQue()),
        ("none of the 2 buffers of this VECIN to VECOUT queue",
         lambda queue, asc: [queue.AllocTensor(asc.half) for _ in range(3)]),
        ("the depth is 1", lambda queue, asc: [queue.EnQue(queue.AllocTensor(asc.half)) for _ in range(2)]),
        ("is not of this VECIN to VECOUT queue", lambda queue, asc: queue.FreeTensor(asc.TBuf())),
    ],
)  # fmt: skip
def test_a_bound_queue_refuses_what_is_out_of_turn(words: str, say: Any, refusal: Any) -> None:
    assert words in refusal(lambda *, asc: say(bound(asc), asc), "queue-misuse")


@pytest.mark.adr("0310", "4.6")
def test_what_a_bound_queue_still_holds_at_the_end_is_a_leak(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        bound(asc).AllocTensor(asc.half)

    (leak,) = launch(kernel).run.hazards
    assert leak.kind == "leak"
    assert "a tensor of VECIN to VECOUT" in leak.message


@pytest.mark.adr("0310", "1.4")
@pytest.mark.parametrize(("src", "dst"), [("VECOUT", "VECIN"), ("VECIN", "VECIN"), ("VECIN", "VECCALC")])
def test_no_other_positions_are_bound(src: str, dst: str, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        asc.TQueBind(asc.TPosition[src], asc.TPosition[dst], 1)

    assert f"from '{src}' to '{dst}'; bind VECIN to VECOUT" in refusal(kernel, "unsupported")
