"""LayerNorm of rows of any width: sums on V, mean and deviation on S (ADR-7002)."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.tiling import RowTiling


def layer_norm(x: Any, gamma: Any, beta: Any, y: Any, tiling: RowTiling, *, eps: float, asc: Any) -> None:
    """y[row] = (x[row] - mean) / sqrt(variance + eps) * gamma + beta; halves, rows `tiling.pitch` apart."""
    width, pitch = tiling.width, tiling.pitch
    x_gm, gamma_gm, beta_gm, y_gm = (asc.GlobalTensor(asc.half) for _ in range(4))
    x_gm.SetGlobalBuffer(x, tiling.rows * pitch)
    gamma_gm.SetGlobalBuffer(gamma, pitch)
    beta_gm.SetGlobalBuffer(beta, pitch)
    y_gm.SetGlobalBuffer(y, tiling.rows * pitch)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(incoming, tiling.buffers, pitch * 2)
    pipe.InitBuffer(outgoing, tiling.buffers, pitch * 2)
    buf = asc.TBuf(asc.TPosition.VECCALC)
    pipe.InitBuffer(buf, 5 * pitch * 4 + 32)
    row, square, work, scale, shift = (buf.GetWithOffset(asc.float32, pitch, at * pitch * 4) for at in range(5))
    total = buf.GetWithOffset(asc.float32, 8, 5 * pitch * 4)

    def bring(target: Any, source: Any) -> None:
        """`width` halves of GM as floats."""
        local = incoming.AllocTensor(asc.half)
        asc.DataCopy(local, source, pitch)
        incoming.EnQue(local)
        local = incoming.DeQue()
        asc.Cast(target, local, asc.RoundMode.CAST_NONE, width)
        incoming.FreeTensor(local)
        asc.PipeBarrier(asc.PIPE_V)

    def mean_of(values: Any) -> Any:
        asc.ReduceSum(total, values, work, width)
        asc.SetFlag(asc.HardEvent.V_S, 0)
        asc.WaitFlag(asc.HardEvent.V_S, 0)
        return total.GetValue(0) / np.float32(width)

    bring(scale, gamma_gm)
    bring(shift, beta_gm)
    for at in range(asc.GetBlockIdx(), tiling.rows, asc.GetBlockNum()):
        bring(row, x_gm[at * pitch])
        asc.Adds(row, row, -mean_of(row), width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mul(square, row, row, width)
        asc.PipeBarrier(asc.PIPE_V)
        deviation = np.sqrt(mean_of(square) + np.float32(eps))
        asc.Muls(row, row, np.float32(1) / deviation, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mul(row, row, scale, width)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Add(row, row, shift, width)
        result = outgoing.AllocTensor(asc.half)
        if pitch > width:
            asc.Duplicate(result, 0.0, pitch)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Cast(result, row, asc.RoundMode.CAST_NONE, width)
        asc.PipeBarrier(asc.PIPE_V)
        outgoing.EnQue(result)
        result = outgoing.DeQue()
        asc.DataCopy(y_gm[at * pitch], result, pitch)
        outgoing.FreeTensor(result)
