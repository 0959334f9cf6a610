"""A kernel of the 310P that says every kind of `asc` call: both forms of instructions, queues, flags, element types."""

from typing import assert_type

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc import (
    Asc,
    Event,
    EventID,
    GlobalTensor,
    LocalTensor,
    Pointer,
    TPipe,
    TQue,
)


def kernel(x: Pointer, y: Pointer, length: int, *, tile: int, asc: Asc) -> None:
    asc.KERNEL_TASK_TYPE_DEFAULT(asc.KERNEL_TYPE_AIV_ONLY)
    part = length // asc.GetBlockNum()
    x_gm, y_gm = asc.GlobalTensor(asc.half), asc.GlobalTensor(asc.half)
    assert_type(x_gm, GlobalTensor[np.float16])
    x_gm.SetGlobalBuffer(x + asc.GetBlockIdx() * part, part)
    y_gm.SetGlobalBuffer(y)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
    buf = asc.TBuf()
    pipe.InitBuffer(incoming, 2, tile * 2)
    pipe.InitBuffer(outgoing, 2, tile * 2)
    pipe.InitBuffer(buf, tile * 4)
    total = buf.GetWithOffset(asc.float32, tile, 0)
    assert_type(total, LocalTensor[np.float32])

    local = incoming.AllocTensor(asc.half)
    asc.DataCopy(local, x_gm[0], tile)
    asc.DataCopy(local, x_gm, asc.DataCopyParams(1, tile // 16))
    incoming.EnQue(local)
    taken = incoming.DeQue(asc.half)
    assert_type(taken, LocalTensor[np.float16])
    asc.Cast(total, taken, asc.RoundMode.CAST_NONE, tile)
    asc.PipeBarrier(asc.PIPE_V)
    asc.Add(total, total, total[8], tile)
    asc.Add(total, total, total, 64, 4, asc.BinaryRepeatParams(1, 1, 1, 8, 8, 8))
    asc.Add(total, total, total, mask=(2**64 - 1, 0), repeatTime=4)
    asc.Muls(total, total, 0.5, tile)
    asc.Muls(total, total, total.GetValue(0), 64, 1, asc.UnaryRepeatParams())
    asc.Axpy(total, taken, 2, tile)
    asc.Duplicate(total, np.float32(1), tile)
    asc.Exp(total, total, tile)
    asc.WholeReduceMax(total, total, 64, 1, 1, 1, 8, asc.ReduceOrder.ORDER_VALUE_INDEX)
    asc.WholeReduceSum(total, total, 64, 1, 1, 1, 8)
    asc.ReduceSum(total, total, total, tile)
    fence(asc.HardEvent.V_S, asc)
    number = total.GetValue(0)
    assert_type(number, np.float32)
    total.SetValue(1, number / np.float32(tile))
    pour(outgoing, total, y_gm, tile, asc)


def fence(event: Event, asc: Asc) -> None:
    number = asc.FetchEventID(event)
    assert_type(number, EventID)
    asc.SetFlag(event, number)
    asc.WaitFlag(event, number)
    both = asc.TQueSync(asc.PIPE_V, asc.PIPE_S)
    both.SetFlag(0)
    both.WaitFlag(0)


def pour(queue: TQue, source: LocalTensor[np.float32], target: GlobalTensor[np.float16], tile: int, asc: Asc) -> None:
    result = queue.AllocTensor(asc.half)
    asc.Cast(result, source, asc.RoundMode["CAST_NONE"], tile)
    queue.EnQue(result)
    result = queue.DeQue()
    with asc.region("out"):
        asc.DataCopy(target[0], result, tile)
    queue.FreeTensor(result)


def pass_on(x_gm: GlobalTensor[np.int32], y_gm: GlobalTensor[np.int32], tile: int, pipe: TPipe, asc: Asc) -> None:
    bound = asc.TQueBind(asc.TPosition.VECIN, asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(bound, 2, tile * 4)
    local = bound.AllocTensor(asc.int32_t)
    asc.DataCopy(local, x_gm, tile)
    bound.EnQue(local)
    taken = bound.DeQue()
    asc.DataCopy(y_gm, taken, tile)
    bound.FreeTensor(taken)


def bits(a: LocalTensor[np.float16], mask: LocalTensor[np.uint8], asc: Asc) -> LocalTensor[np.int16]:
    asc.Compare(mask, a, a[16], asc.CMPMODE.LT, 128)
    asc.Compares(mask, a, 0.0, asc.CMPMODE["GE"], 128)
    asc.Select(a, mask, a, 0.0, asc.SELMODE.VSEL_TENSOR_SCALAR_MODE, 128)
    words = asc.own(a, "words").ReinterpretCast(asc.int16_t)
    asc.Not(words, words, 64)
    return asc.borrow(words, "words", "guest")
