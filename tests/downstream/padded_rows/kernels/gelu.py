"""GELU of a vector of any length: the next tile is copied in while this one is worked on (ADR-7002)."""

from __future__ import annotations

from typing import Any

from simulator.tiling import GeluTiling, whole_blocks

SLOPE = -1.702
MOST = 80.0  # e^80 is far below what float32 holds, and x / e^80 is 0 in half


def gelu(x: Any, y: Any, tiling: GeluTiling, *, asc: Any) -> None:
    """y = x / (1 + exp(-1.702 x)); halves. Tiles are dealt to the cores; x and y have room for whole blocks."""
    x_gm, y_gm = asc.GlobalTensor(asc.half), asc.GlobalTensor(asc.half)
    x_gm.SetGlobalBuffer(x, whole_blocks(tiling.length))
    y_gm.SetGlobalBuffer(y, whole_blocks(tiling.length))

    pipe = asc.TPipe()
    incoming, outgoing = (asc.TQue(each, tiling.buffers) for each in (asc.TPosition.VECIN, asc.TPosition.VECOUT))
    pipe.InitBuffer(incoming, tiling.buffers, tiling.tile * 2)
    pipe.InitBuffer(outgoing, tiling.buffers, tiling.tile * 2)
    buf = asc.TBuf(asc.TPosition.VECCALC)
    pipe.InitBuffer(buf, 2 * tiling.tile * 4)
    wide, divisor = (buf.GetWithOffset(asc.float32, tiling.tile, at * tiling.tile * 4) for at in range(2))

    def copy_in(first: int) -> None:
        local = incoming.AllocTensor(asc.half)
        asc.DataCopy(local, x_gm[first], whole_blocks(tiling.count(first)))
        incoming.EnQue(local)

    def compute(count: int) -> None:
        local, result = incoming.DeQue(), outgoing.AllocTensor(asc.half)
        asc.Cast(wide, local, asc.RoundMode.CAST_NONE, count)
        incoming.FreeTensor(local)
        if whole_blocks(count) > count:  # the last tile: what lies behind the length is written too
            asc.Duplicate(result, 0.0, whole_blocks(count))
        asc.PipeBarrier(asc.PIPE_V)
        asc.Muls(divisor, wide, SLOPE, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Mins(divisor, divisor, MOST, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Exp(divisor, divisor, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(divisor, divisor, 1.0, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Div(wide, wide, divisor, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Cast(result, wide, asc.RoundMode.CAST_NONE, count)
        asc.PipeBarrier(asc.PIPE_V)
        outgoing.EnQue(result)

    def copy_out(first: int) -> None:
        result = outgoing.DeQue()
        asc.DataCopy(y_gm[first], result, whole_blocks(tiling.count(first)))
        outgoing.FreeTensor(result)

    tiles = range(asc.GetBlockIdx() * tiling.tile, tiling.length, asc.GetBlockNum() * tiling.tile)
    ahead = tiling.buffers - 1
    for first in tiles[:ahead]:
        copy_in(first)
    for number, first in enumerate(tiles):
        for following in tiles[number + ahead : number + ahead + 1]:
            copy_in(following)
        compute(tiling.count(first))
        copy_out(first)
