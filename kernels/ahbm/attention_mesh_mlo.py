"""The decode kernel that ADR-0060 replaces (A): split KV, blocking `dot`, and m, l, O of everyone to everyone.

Kept to measure the gain against: n - 1 steps along an open chain both ways where the tree needs ceil(log2 n) rounds,
and an answer in every PE where one is asked for. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state, merge, normalised
from pytest_kernbench.kernels.ahbm.placement import Mesh, direction, valid_len

SLOTS = 3  # a step sends m, l and O before it receives


def attention_mesh_mlo(
    q: Any, k: Any, v: Any, o: Any, kv_len: int, start_pe: int, n: int, *, group: int, tile: int, scale: float,
    mesh: Mesh = (2, 4), tl: Any,
) -> None:  # fmt: skip
    """As `gqa_decode`, but o [group, d] is written by every rank. Launch with `chain(n, mesh)`; needs `SLOTS` slots."""
    rank, d = tl.program_id(0), q.row
    state = empty_state(group, d, tl)
    q_group = q + tl.program_id(1) * group * d
    sweep(q_group, k, v, state, valid_len(kv_len, start_pe, rank, n), group, d, tile, scale, tl)
    mine = tuple(tl.empty(part.shape) for part in state)
    for copy, part in zip(mine, state, strict=True):
        tl.assign(copy, part)
    fan_out(mine, state, rank, chain(n, mesh), mesh, tl)
    with tl.scratch_scope():
        tl.wait(tl.store(o, normalised(state, tl)))


def chain(n: int, mesh: Mesh) -> tuple[int, ...]:
    """The PE of each rank along the rows, every other one backwards, so that neighbours in rank are neighbours."""
    rows, cols = mesh
    snake = [row * cols + (col if row % 2 == 0 else cols - 1 - col) for row in range(rows) for col in range(cols)]
    return tuple(snake[:n])


def sweep(
    q: Any, k: Any, v: Any, state: State, length: int, group: int, d: int, tile: int, scale: float, tl: Any
) -> None:
    """Fold the rank's rows into `state`: every load and product is waited for before the next is said."""
    for first in range(0, length, tile):
        width = min(tile, length - first)
        with tl.scratch_scope(), tl.region("sweep"):
            k_tile, v_tile = tl.load(k + first * d, (width, d)), tl.load(v + first * d, (width, d))
            s = tl.dot(tl.load(q, (group, d)), k_tile, trans_b=True) * scale
            m = tl.max(s)
            p = tl.exp(s - m)
            merge(state, (m, tl.sum(p), tl.dot(tl.cast(p, v.dtype), v_tile, trans_b=False)), tl)


def fan_out(mine: State, state: State, rank: int, pes: tuple[int, ...], mesh: Mesh, tl: Any) -> None:
    """Pass everyone's m, l, O along the chain both ways, folding what comes by into `state`."""
    right = direction(pes[rank], pes[rank + 1], mesh) if rank + 1 < len(pes) else None
    left = direction(pes[rank], pes[rank - 1], mesh) if rank else None
    going_right: State | None = mine
    going_left: State | None = mine
    for step in range(1, len(pes)):
        with tl.region("fan-out"):
            tl.wait(*pass_on(going_right, right, tl), *pass_on(going_left, left, tl))
            going_right = take_in(state, left, rank - step >= 0, tl)
            going_left = take_in(state, right, rank + step < len(pes), tl)


def pass_on(triple: State | None, side: str | None, tl: Any) -> list[Any]:
    """Send `triple` to the neighbour at `side`, if there is one and anything to pass on."""
    if side is None or triple is None:
        return []
    return [tl.send(side, part) for part in triple]


def take_in(state: State, side: str | None, comes: bool, tl: Any) -> State | None:
    """Receive a triple from the neighbour at `side`, if one comes, fold it, and keep a copy to pass on."""
    if side is None or not comes:
        return None
    m, l, o = (tl.empty(part.shape) for part in state)
    with tl.scratch_scope():
        received = tuple(tl.recv(side, part.shape, part.dtype) for part in state)
        for copy, part in zip((m, l, o), received, strict=True):
            tl.assign(copy, part)
        merge(state, received, tl)
    return m, l, o
