"""y = factor * x + y, a tile at a time; the cores take turns."""

from __future__ import annotations

from typing import Any


def saxpy(y: Any, x: Any, factor: float, tile: int, *, vc: Any) -> None:
    a, b = vc.vector(tile), vc.vector(tile)
    for first in range(vc.program_id * tile, y.size, vc.num_programs * tile):
        count = min(tile, y.size - first)
        vc.load(a[:count], x[first : first + count])
        vc.load(b[:count], y[first : first + count])
        vc.scale(a[:count], a[:count], factor)
        vc.add(b[:count], a[:count], b[:count])
        vc.store(y[first : first + count], b[:count])
    vc.fence()
