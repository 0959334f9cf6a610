"""Copy in, compute, copy out: with two buffers a queue the three overlap, with one they take turns.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.simulator.ascend310p.asc import Asc, Pointer


def copy_compute_copy(x: Pointer, y: Pointer, length: int, *, tile: int, buffer_num: int, asc: Asc) -> None:
    """y = exp(x) of `length` floats, a whole number of tiles."""
    x_gm, y_gm = asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
    x_gm.SetGlobalBuffer(x, length)
    y_gm.SetGlobalBuffer(y, length)

    pipe = asc.TPipe()
    incoming, outgoing = asc.TQue(asc.TPosition.VECIN, buffer_num), asc.TQue(asc.TPosition.VECOUT, buffer_num)
    pipe.InitBuffer(incoming, buffer_num, tile * 4)
    pipe.InitBuffer(outgoing, buffer_num, tile * 4)

    for at in range(0, length, tile):
        local = incoming.AllocTensor(asc.float32)
        asc.DataCopy(local, x_gm[at], tile)
        incoming.EnQue(local)

        source, target = incoming.DeQue(), outgoing.AllocTensor(asc.float32)
        asc.Exp(target, source, tile)
        outgoing.EnQue(target)
        incoming.FreeTensor(source)

        result = outgoing.DeQue()
        asc.DataCopy(y_gm[at], result, tile)
        outgoing.FreeTensor(result)
