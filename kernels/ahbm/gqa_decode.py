"""GQA decode for one KV head a cube, split over the cube's PEs (ADR-0060 5.2, 5.3): the hybrid of the ADR.

Both products are composites, the online softmax and the tree are the kernel's. The next tile's Q.K is issued before the
current one is awaited, into the other of two score buffers; state lives outside the per-tile scope. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state, merge, normalised
from pytest_kernbench.kernels.ahbm.placement import Mesh, Tree, direction, tree, valid_len

SLOTS = 3  # messages of an edge, m, l and O: with fewer slots a receiver waits for what its sender cannot send (R37)


def gqa_decode(
    q: Any, k: Any, v: Any, o: Any, kv_len: int, start_pe: int, n: int, *, group: int, d: int, tile: int, scale: float,
    mesh: Mesh = (2, 4), tl: Any,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V for the `group` query rows of this cube's KV head, which is the cube's number (R12).

    q [H_q, d] in every PE; o [group, d] at rank n - 1; k, v [capacity, d] a PE, of which the rank holds
    `valid_len(kv_len, start_pe, rank, n)` rows; `kv_len` counts the newest token (R14). `tile` rows of K and V a step:
    all of them make the one-shot form of 5.2. Storage dtype is k's; m, l, O are float32 (R22). Launch with
    `placement(n, mesh)` so that every edge of the tree is one hop. Needs `SLOTS` slots a direction.
    """
    rank = tl.program_id(0)
    length = valid_len(kv_len, start_pe, rank, n)
    state = empty_state(group, d, tl)
    if length:
        q_group = tl.load(q + tl.program_id(1) * group * d, (group, d))  # query head h belongs to KV head h // group
        state = sweep(q_group, k, v, state, length, d, tile, scale, tl)
    reduce_to_root(state, rank, tree(n, mesh), o, tl)


def sweep(q: Any, k: Any, v: Any, state: State, length: int, d: int, tile: int, scale: float, tl: Any) -> State:
    """`state` with rows [0, length) of K and V folded in; the last tile has its exact width (R16)."""
    tiles = [(first, min(tile, length - first)) for first in range(0, length, tile)]
    scores = score_buffers([width for _, width in tiles], q.shape[0], tl)
    ahead = score(q, k, *tiles[0], d, scale, scores[0], tl)
    spare = tl.empty(state[0].shape)
    for j, (first, width) in enumerate(tiles):
        current = ahead
        if j + 1 < len(tiles):
            ahead = score(q, k, *tiles[j + 1], d, scale, scores[j + 1], tl)
        with tl.scratch_scope():
            state, spare = fold(tl.wait(current), v + first * d, width, d, state, spare, tl), state[0]
    return state


def score_buffers(widths: list[int], rows: int, tl: Any) -> list[Any]:
    """A buffer a tile: two by turns (R7), and one of its own for a narrower last tile.

    Made before the loop: bytes taken between two scopes could still be in use by the one before.
    """
    full = [width for width in widths if width == widths[0]]
    pair = [tl.empty((rows, widths[0])) for _ in full[:2]]
    tail = [tl.empty((rows, width)) for width in widths[len(full) :]]
    return [pair[j % 2] for j in range(len(full))] + tail


def score(q: Any, k: Any, first: int, width: int, d: int, scale: float, out: Any, tl: Any) -> Any:
    """Start scale Q K^T for one tile; K streams from HBM as it is stored, [S, d] (R2)."""
    with tl.region("QK"):
        tile = tl.ref(k + first * d, (width, d))
        return tl.composite("gemm", q, tile, trans_b=True, out=out, epilogue=(("scale", scale),))


def fold(s: Any, v: Any, width: int, d: int, state: State, spare: Any, tl: Any) -> State:
    """One step of the online softmax: `state` with the scores `s` and their rows of V; its m is in `spare` then.

    l and O are written in place; m takes turns between two buffers, since the old one is still needed beside the new.
    """
    m, l, o = state
    with tl.region("softmax"):
        m_new = tl.maximum(m, tl.max(s), out=spare)
        p = tl.exp(s - m_new)
        p_stored = tl.cast(p, v.dtype)
    with tl.region("PV"):
        part = tl.composite("gemm", p_stored, tl.ref(v, (width, d)), trans_b=False)
    with tl.region("softmax"):
        corr = tl.exp(m - m_new)
        tl.add(l * corr, tl.sum(p), out=l)
        rescaled = o * corr
        tl.add(rescaled, tl.wait(part), out=o)
    return m_new, l, o


def reduce_to_root(state: State, rank: int, shape: Tree, o: Any, tl: Any) -> None:
    """Log-sum-exp tree (ADR-0060 4): children first, then the parent; the root normalises and stores."""
    pe, parent = shape.placement[rank], shape.parent[rank]
    with tl.region("tree"):
        for child in shape.children[rank]:
            with tl.scratch_scope():
                side = direction(pe, shape.placement[child], shape.mesh)
                merge(state, tuple(tl.recv(side, part.shape, part.dtype) for part in state), tl)
        if parent is not None:
            side = direction(pe, shape.placement[parent], shape.mesh)
            tl.wait(*[tl.send(side, part) for part in state])
            return
    with tl.region("store"), tl.scratch_scope():
        tl.wait(tl.store(o, normalised(state, tl)))
