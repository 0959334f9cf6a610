"""Arguments and registers of `asc`: what is said at another line, in another block, with values that are no numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator import Ascend310pCore
from pytest_kernbench.simulator.errors import KernelError


def run(body: Any, grid: int = 1) -> Any:
    core = Ascend310pCore()
    y = core.tensor("y", 64, "float16", np.zeros(64, np.float16))

    def kernel(y: Any, *, asc: Any) -> None:
        pipe, buf, gm = asc.TPipe(), asc.TBuf(), asc.GlobalTensor(asc.half)
        pipe.InitBuffer(buf, 4096)
        gm.SetGlobalBuffer(y)
        body(asc, buf, gm)

    return core.run(kernel, y, grid=grid)


def dequantise(asc: Any, buf: Any, scales: tuple[float, ...]) -> list[Any]:
    numbers, result = buf.GetWithOffset(asc.int32_t, 64, 0), buf.GetWithOffset(asc.half, 64, 1024)
    asc.Duplicate(numbers, 10, 64)
    found = []
    for scale in scales:
        asc.SetDeqScale(scale)
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.Cast(result, numbers, asc.RoundMode.CAST_NONE, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        found.append(result.GetValue(0))
    return found


def test_a_cast_scales_by_the_register_as_it_is_now() -> None:
    found: list[Any] = []

    run(lambda asc, buf, gm: found.extend(dequantise(asc, buf, (0.5, 2.0, 0.5))))

    assert found == [5.0, 20.0, 5.0]


def test_a_block_does_not_have_the_register_of_another() -> None:
    def body(asc: Any, buf: Any, gm: Any) -> None:
        if asc.GetBlockIdx() == 0:
            dequantise(asc, buf, (0.5,))
        else:
            asc.Cast(buf.GetWithOffset(asc.half, 64, 1024), buf.Get(asc.int32_t, 64), asc.RoundMode.CAST_NONE, 64)

    with pytest.raises(KernelError, match=r"Cast of block1 .*SetDeqScale first"):
        run(body, grid=2)


def scale_well(asc: Any, tensor: Any) -> None:
    asc.Duplicate(tensor, 1.0, 64)


def test_a_scalar_is_refused_at_its_own_line_and_block() -> None:
    def body(asc: Any, buf: Any, gm: Any) -> None:
        scale_well(asc, buf.Get(asc.half))
        if asc.GetBlockIdx() == 1:
            asc.Duplicate(buf.Get(asc.half), "much", 64)

    with pytest.raises(KernelError, match=r"Duplicate of block1 at .* in body: the scalar is 'much'"):
        run(body, grid=2)


@pytest.mark.parametrize("value", [None, "3.5", b"1", "abc", [1, 2], [1], np.arange(3.0), 10**400, 1j, object()])
@pytest.mark.parametrize(
    "say",
    [
        lambda asc, buf, gm, value: asc.Duplicate(buf.Get(asc.half), value, 64),
        lambda asc, buf, gm, value: buf.Get(asc.half).SetValue(0, value),
        lambda asc, buf, gm, value: gm.SetValue(0, value),
        lambda asc, buf, gm, value: asc.SetDeqScale(value),
        lambda asc, buf, gm, value: asc.Select(
            buf.Get(asc.half), buf.GetWithOffset(asc.uint8_t, 32, 1024), buf.GetWithOffset(asc.half, 64, 2048), value,
            asc.SELMODE.VSEL_TENSOR_SCALAR_MODE, 64,
        ),
    ],
    ids=["Duplicate", "SetValue", "SetValue of GM", "SetDeqScale", "Select"],
)  # fmt: skip
def test_what_is_no_number_is_refused(say: Any, value: object) -> None:
    with pytest.raises(KernelError, match="give a number that half holds"):
        run(lambda asc, buf, gm: say(asc, buf, gm, value))


@pytest.mark.parametrize("value", [None, True, 1.5, "8", [8], np.arange(2), int, slice(0, 8)])
@pytest.mark.parametrize(
    "say",
    [
        lambda asc, buf, gm, value: asc.DataCopy(buf.Get(asc.half), gm, value),
        lambda asc, buf, gm, value: buf.Get(asc.half)[value],
        lambda asc, buf, gm, value: gm.GetValue(value),
        lambda asc, buf, gm, value: asc.SetFlag(asc.HardEvent.S_V, value),
    ],
    ids=["DataCopy", "[]", "GetValue", "SetFlag"],
)
def test_what_is_no_whole_number_is_refused_and_named(say: Any, value: object) -> None:
    with pytest.raises(KernelError) as caught:
        run(lambda asc, buf, gm: say(asc, buf, gm, value))

    assert f"is {value!r}; give a whole number" in str(caught.value)


def test_an_offset_is_a_whole_number_the_second_time_too() -> None:
    def body(asc: Any, buf: Any, gm: Any) -> None:
        tensor = buf.Get(asc.half)
        assert tensor[np.int32(1)] is tensor[1]
        tensor[True]

    with pytest.raises(KernelError, match="offset is True"):
        run(body)
