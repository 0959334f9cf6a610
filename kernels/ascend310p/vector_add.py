"""z = x + y, tile by tile through queues; blocks take equal parts. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from pytest_kernbench.simulator.ascend310p.asc import Asc, Pointer


def vector_add(x: Pointer, y: Pointer, z: Pointer, length: int, *, tile: int, buffer_num: int = 2, asc: Asc) -> None:
    """`length` halves; every block adds length / blocks of them, a whole number of tiles."""
    part = length // asc.GetBlockNum()
    first = asc.GetBlockIdx() * part
    x_gm, y_gm, z_gm = (asc.GlobalTensor(asc.half) for _ in range(3))
    for view, pointer in ((x_gm, x), (y_gm, y), (z_gm, z)):
        view.SetGlobalBuffer(pointer + first, part)

    pipe = asc.TPipe()
    in_x, in_y = (asc.TQue(asc.TPosition.VECIN, 1) for _ in range(2))
    out_z = asc.TQue(asc.TPosition.VECOUT, 1)
    for queue in (in_x, in_y, out_z):
        pipe.InitBuffer(queue, buffer_num, tile * 2)

    for at in range(0, part, tile):
        for queue, view in ((in_x, x_gm), (in_y, y_gm)):
            local = queue.AllocTensor(asc.half)
            asc.DataCopy(local, view[at], tile)
            queue.EnQue(local)
        x_local, y_local, z_local = in_x.DeQue(), in_y.DeQue(), out_z.AllocTensor(asc.half)
        asc.Add(z_local, x_local, y_local, tile)
        out_z.EnQue(z_local)
        in_x.FreeTensor(x_local)
        in_y.FreeTensor(y_local)
        z_local = out_z.DeQue()
        asc.DataCopy(z_gm[at], z_local, tile)
        out_z.FreeTensor(z_local)
