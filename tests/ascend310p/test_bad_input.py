"""What is said with the wrong type, the wrong name or too often: one refusal at the line, also after the right one."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import KernelError, LaunchError

ONES = np.ones(1024, np.float32)


def room(asc: Any, n: int = 1024) -> Any:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * n)
    return buf.Get(asc.float32)


def flags(asc: Any, t: Any, id: Any) -> None:
    asc.SetFlag(asc.HardEvent.S_V, id)
    asc.WaitFlag(asc.HardEvent.S_V, id)


def sync(asc: Any, t: Any, id: Any) -> None:
    flag = asc.TQueSync(asc.PIPE_S, asc.PIPE_V)
    flag.SetFlag(id)
    flag.WaitFlag(id)


def strided(asc: Any, t: Any, stride: Any) -> None:
    asc.Muls(t, t, 2.0, 64, 1, asc.UnaryRepeatParams(1, 1, stride, stride))


def reduced(asc: Any, t: Any, stride: Any) -> None:
    asc.WholeReduceSum(t[512], t, 64, 1, stride, 1, 8)


def words(asc: Any, t: Any, low: Any) -> None:
    asc.Duplicate(t, 1.0, [low, 0], 1)


CALLS = [
    (flags, 1, "eventID is"), (sync, 1, "eventID is"), (strided, 8, "dstRepStride is"),
    (reduced, 1, "dstRepStride is"), (words, 255, "word"),
    (lambda asc, t, n: asc.Duplicate(t, 1.0, n), 256, "count is"),
    (lambda asc, t, n: asc.Duplicate(t, 1.0, n, 1), 64, "mask"),
    (lambda asc, t, n: asc.Duplicate(t, 1.0, 64, n), 1, "repeatTime is"),
]  # fmt: skip


@pytest.mark.parametrize("wrong", [float, bool])
@pytest.mark.parametrize(("say", "good", "what"), CALLS)
def test_a_number_of_another_type_is_refused_also_after_the_right_one(
    say: Any, good: int, what: str, wrong: Any, refusal: Any
) -> None:
    def kernel(*, asc: Any) -> None:
        t = room(asc)
        asc.Duplicate(t, 1.0, 1024)
        asc.PipeBarrier(asc.PIPE_V)
        for number in (good, 1) if good == 1 or wrong is float else (good,):
            say(asc, t, number)
            asc.PipeBarrier(asc.PIPE_V)
        say(asc, t, wrong(good))

    assert what in refusal(kernel, "bad-parameter")


@pytest.mark.parametrize(("say", "good", "what"), CALLS)
def test_numbers_of_numpy_are_numbers(say: Any, good: int, what: str, ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 1024)
        asc.PipeBarrier(asc.PIPE_V)
        for number in (np.int64(good), good, np.uint8(good % 256) if good < 256 else good):
            say(asc, t, number)
            asc.PipeBarrier(asc.PIPE_V)

    assert not ub(body).kinds


@pytest.mark.parametrize(
    ("kind", "fact", "say"),
    [
        ("bad-parameter", "word None of the mask is no whole number", lambda asc, t: words(asc, t, None)),
        ("bad-parameter", "word 'a' of the mask", lambda asc, t: words(asc, t, "a")),
        ("bad-parameter", "SetGlobalBuffer first", lambda asc, t: asc.GlobalTensor(asc.half)[1]),
        ("bad-parameter", "whole number 0..7", lambda asc, t: flags(asc, t, "a")),
        ("event-id", "must be in [0, 8)", lambda asc, t: flags(asc, t, -1)),
        ("event-id", "must be in [0, 8)", lambda asc, t: flags(asc, t, 10**12)),
        ("bad-parameter", "own of", lambda asc, t: asc.own(None, "a")),
        ("bad-parameter", "own of", lambda asc, t: asc.own(t, [])),
        ("bad-parameter", "nobody owns", lambda asc, t: asc.borrow(t, [], as_="b")),
        ("bad-parameter", "borrow of", lambda asc, t: asc.borrow(asc.own(t, "a"), "a", as_=3)),
        ("capacity", "is owner 256", lambda asc, t: [asc.own(t, f"o{n}") for n in range(256)]),
        ("bad-parameter", "give a TBuf", lambda asc, t: asc.planned(t, 32)),
        ("bad-parameter", "give a Site", lambda asc, t: asc.at("op.cpp")),
        ("bad-parameter", "DataCacheCleanAndInvalid", lambda asc, t: asc.DataCacheCleanAndInvalid(t)),
        ("bad-parameter", "DataCacheCleanAndInvalid",
         lambda asc, t: asc.DataCacheCleanAndInvalid(asc.GlobalTensor(asc.half))),
        ("unsupported", "nearest: SetFlag", lambda asc, t: asc.set_flag1()),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_a_remedy(kind: str, fact: str, say: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        say(asc, room(asc))

    message = refusal(kernel, kind)
    assert fact in message
    assert "set_flag," not in message


def test_as_many_owners_as_a_byte_can_name_are_fine(ub: Any) -> None:
    assert not ub(lambda asc, t: [asc.own(t, f"o{n}") for n in range(255)]).kinds


@pytest.mark.adr("0310", "4.6")
def test_tensors_left_by_one_line_are_one_finding(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, queue = asc.TPipe(), asc.TQue(asc.TPosition.VECIN, 1)
        pipe.InitBuffer(queue, 2, 256)
        for _ in range(2):
            queue.AllocTensor(asc.half)

    (hazard,) = launch(kernel).run.hazards
    assert (hazard.kind, hazard.count) == ("leak", 2)


@pytest.mark.parametrize("again", [False, True])
def test_a_refusal_that_the_kernel_catches_is_a_hazard_all_the_same(again: bool, launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        t = room(asc)
        try:
            asc.Duplicate(t, 1.0, 0)
        except KernelError:
            if again:
                raise

    if not again:
        assert launch(kernel).kinds == ["bad-parameter"]
        return
    with pytest.raises(KernelError) as caught:
        launch(kernel)
    assert [each.kind for each in caught.value.hazards] == ["bad-parameter"]


def test_ub_is_a_name_of_the_310p_alone() -> None:
    assert AhbmChip().tensor("UB", (4, 4)).name == "UB"
    assert Ascend310pCore().tensor("slot", 4).name == "slot"
    with pytest.raises(LaunchError, match="'UB' names other bytes"):
        Ascend310pCore().tensor("UB", 4)


@pytest.mark.adr("0310", "3.6")
def test_a_wait_does_not_pair_with_a_set_that_was_lost() -> None:
    """Two Sets by an idle pipe, and V arrives late: the second is lost, so the Wait of the third learns the third."""

    def body(asc: Any, t: Any) -> None:
        event = asc.HardEvent.MTE3_V
        asc.Duplicate(t, 1.0, 1024)
        asc.PipeBarrier(asc.PIPE_V)
        asc.SetFlag(event, 0)
        asc.SetFlag(event, 0)
        asc.WaitFlag(event, 0)  # V arrives after both: the second is gone
        asc.Duplicate(t[1024], 1.0, 64)
        asc.SetFlag(asc.HardEvent.V_MTE3, 0)
        asc.WaitFlag(asc.HardEvent.V_MTE3, 0)
        asc.DataCopy(asc.out, t[1024], 64)
        asc.SetFlag(event, 0)
        asc.WaitFlag(event, 0)
        asc.Duplicate(t[1024], 2.0, 64)

    def kernel(y: Any, *, asc: Any) -> None:
        asc.out = asc.GlobalTensor(asc.float32)
        asc.out.SetGlobalBuffer(y)
        body(asc, room(asc, 4096))

    core = Ascend310pCore(Ascend310pSpec(flag_model="bit"))
    run = core.run(kernel, core.tensor("y", 64, "float32"), check="collect")
    assert {hazard.kind for hazard in run.hazards} == {"double-flag", "unpaired-flag"}  # and no race
