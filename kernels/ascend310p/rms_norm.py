"""RMSNorm of rows in float32: the sum of squares on V, one over its root on S. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc import Asc, Pointer


def rms_norm(x: Pointer, weight: Pointer, y: Pointer, rows: int, width: int, *, eps: float = 1e-6, asc: Asc) -> None:
    """y[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight; halves, rows of whole blocks, dealt to the cores."""
    x_gm, w_gm, y_gm = (asc.GlobalTensor(asc.half) for _ in range(3))
    x_gm.SetGlobalBuffer(x, rows * width)
    w_gm.SetGlobalBuffer(weight, width)
    y_gm.SetGlobalBuffer(y, rows * width)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(incoming, 2, width * 2)
    pipe.InitBuffer(outgoing, 2, width * 2)
    slice_bytes = -(-width * 4 // 32) * 32
    buf = asc.TBuf()
    pipe.InitBuffer(buf, 3 * slice_bytes + 1024 + 32)
    row_fp32, square, weight_fp32 = (buf.GetWithOffset(asc.float32, width, at * slice_bytes) for at in range(3))
    work = buf.GetWithOffset(asc.float32, 256, 3 * slice_bytes)
    total = buf.GetWithOffset(asc.float32, 8, 3 * slice_bytes + 1024)

    staged = incoming.AllocTensor(asc.half)
    asc.DataCopy(staged, w_gm, width)
    incoming.EnQue(staged)
    staged = incoming.DeQue()
    asc.Cast(weight_fp32, staged, asc.RoundMode.CAST_NONE, width)
    incoming.FreeTensor(staged)

    for row in range(asc.GetBlockIdx(), rows, asc.GetBlockNum()):
        local = incoming.AllocTensor(asc.half)
        asc.DataCopy(local, x_gm[row * width], width)
        incoming.EnQue(local)
        local = incoming.DeQue()
        asc.PipeBarrier(asc.PIPE_V)
        asc.Cast(row_fp32, local, asc.RoundMode.CAST_NONE, width)
        incoming.FreeTensor(local)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mul(square, row_fp32, row_fp32, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.ReduceSum(total, square, work, width)
        asc.SetFlag(asc.HardEvent.V_S, 0)
        asc.WaitFlag(asc.HardEvent.V_S, 0)
        mean = total.GetValue(0) / np.float32(width)
        scale = np.float32(1) / np.sqrt(mean + np.float32(eps))

        asc.Muls(row_fp32, row_fp32, scale, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mul(row_fp32, row_fp32, weight_fp32, width)
        asc.PipeBarrier(asc.PIPE_V)
        result = outgoing.AllocTensor(asc.half)
        asc.Cast(result, row_fp32, asc.RoundMode.CAST_NONE, width)
        outgoing.EnQue(result)
        result = outgoing.DeQue()
        asc.DataCopy(y_gm[row * width], result, width)
        outgoing.FreeTensor(result)
