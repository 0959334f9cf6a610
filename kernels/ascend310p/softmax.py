"""Softmax of scaled rows in float32: maxima and sums come from whole repeats, and S puts them together.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc import Asc, Pointer

LANES = 64  # floats of a repeat


def scaled_row_softmax(x: Pointer, y: Pointer, rows: int, width: int, *, scale: float, asc: Asc) -> None:
    """y[row] = softmax(scale * x[row]) of `rows` x `width` halves; width is whole repeats, rows are dealt to blocks."""
    repeats = width // LANES
    x_gm, y_gm = asc.GlobalTensor(asc.half), asc.GlobalTensor(asc.half)
    x_gm.SetGlobalBuffer(x, rows * width)
    y_gm.SetGlobalBuffer(y, rows * width)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(incoming, 2, width * 2)
    pipe.InitBuffer(outgoing, 2, width * 2)
    buf = asc.TBuf(asc.TPosition.VECCALC)
    pairs_at = width * 4
    pipe.InitBuffer(buf, pairs_at + max(repeats * 8, 32))
    row_fp32 = buf.GetWithOffset(asc.float32, width, 0)
    partial = buf.GetWithOffset(asc.float32, repeats * 2, pairs_at)
    v_to_s = asc.TQueSync(asc.PIPE_V, asc.PIPE_S)

    for row in range(asc.GetBlockIdx(), rows, asc.GetBlockNum()):
        local = incoming.AllocTensor(asc.half)
        asc.DataCopy(local, x_gm[row * width], width)
        incoming.EnQue(local)
        local = incoming.DeQue()
        asc.Cast(row_fp32, local, asc.RoundMode.CAST_NONE, width)
        incoming.FreeTensor(local)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Muls(row_fp32, row_fp32, scale, width)
        asc.PipeBarrier(asc.PIPE_V)

        asc.WholeReduceMax(partial, row_fp32, LANES, repeats, 1, 1, 8)
        v_to_s.SetFlag(0)
        v_to_s.WaitFlag(0)
        largest = max(partial.GetValue(2 * at) for at in range(repeats))

        asc.Adds(row_fp32, row_fp32, -largest, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Exp(row_fp32, row_fp32, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.WholeReduceSum(partial, row_fp32, LANES, repeats, 1, 1, 8)
        v_to_s.SetFlag(0)
        v_to_s.WaitFlag(0)
        total = partial.GetValue(0)
        for at in range(1, repeats):
            total = total + partial.GetValue(at)

        asc.Muls(row_fp32, row_fp32, np.float32(1) / total, width)
        asc.PipeBarrier(asc.PIPE_V)
        result = outgoing.AllocTensor(asc.half)
        asc.Cast(result, row_fp32, asc.RoundMode.CAST_NONE, width)
        outgoing.EnQue(result)
        result = outgoing.DeQue()
        asc.DataCopy(y_gm[row * width], result, width)
        outgoing.FreeTensor(result)
        asc.PipeBarrier(asc.PIPE_V)
