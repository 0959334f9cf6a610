"""Causal 1-D convolution over tokens, a channel a lane: the last rows stay in a ring in UB. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc import Asc, GlobalTensor, LocalTensor, Pointer, TQue


def causal_conv1d(
    x: Pointer, weight: Pointer, y: Pointer, tokens: int, channels: int, *, taps: int = 4, asc: Asc
) -> None:
    """y[t] = sum over k of weight[k] * x[t - taps + 1 + k], rows before the first are 0; halves, sums in float32.

    x and y are [tokens, channels], weight [taps, channels]; `channels` is whole blocks of halves.
    """
    x_gm, w_gm, y_gm = (asc.GlobalTensor(asc.half) for _ in range(3))
    x_gm.SetGlobalBuffer(x, tokens * channels)
    w_gm.SetGlobalBuffer(weight, taps * channels)
    y_gm.SetGlobalBuffer(y, tokens * channels)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, 1), asc.TQue(asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(incoming, 2, channels * 2)
    pipe.InitBuffer(outgoing, 2, channels * 2)
    row_bytes = channels * 4
    buf = asc.TBuf()
    pipe.InitBuffer(buf, (2 * taps + 1) * row_bytes)
    ring = [buf.GetWithOffset(asc.float32, channels, slot * row_bytes) for slot in range(taps)]
    weights = [buf.GetWithOffset(asc.float32, channels, (taps + tap) * row_bytes) for tap in range(taps)]
    total = buf.GetWithOffset(asc.float32, channels, 2 * taps * row_bytes)

    for tap in range(taps):
        load_row(asc, incoming, weights[tap], w_gm[tap * channels], channels)
        asc.Duplicate(ring[tap], 0.0, channels)

    for token in range(tokens):
        asc.PipeBarrier(asc.PIPE_V)
        load_row(asc, incoming, ring[token % taps], x_gm[token * channels], channels)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mul(total, ring[(token + 1) % taps], weights[0], channels)
        for tap in range(1, taps):
            asc.PipeBarrier(asc.PIPE_V)
            asc.MulAddDst(total, ring[(token + 1 + tap) % taps], weights[tap], channels)
        asc.PipeBarrier(asc.PIPE_V)
        result = outgoing.AllocTensor(asc.half)
        asc.Cast(result, total, asc.RoundMode.CAST_NONE, channels)
        outgoing.EnQue(result)
        result = outgoing.DeQue()
        asc.DataCopy(y_gm[token * channels], result, channels)
        outgoing.FreeTensor(result)


def load_row(
    asc: Asc, incoming: TQue, target: LocalTensor[np.float32], source: GlobalTensor[np.float16], channels: int
) -> None:
    """A row of halves from GM as floats."""
    staged = incoming.AllocTensor(asc.half)
    asc.DataCopy(staged, source, channels)
    incoming.EnQue(staged)
    staged = incoming.DeQue()
    asc.Cast(target, staged, asc.RoundMode.CAST_NONE, channels)
    incoming.FreeTensor(staged)
