"""GQA decode for one KV head a cube, split over the cube's PEs (ADR-0060 5.2, 5.3): the hybrid of the ADR.

Both products are composites, the online softmax and the tree are the kernel's. A few query positions at once
(speculative decode, a short chunk) are more rows of the same products, masked by position; this is also the prefill
whose keys stay split, and the only one that a tree has to end (R35). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state, merge_weights
from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Block, Depth, Layout, Rules, Sweep, resident_tiles
from pytest_kernbench.kernels.ahbm.placement import Mesh, Tree, check_whole, direction, token_of, tree, valid_len
from pytest_kernbench.kernels.ahbm.positions import Span
from pytest_kernbench.kernels.ahbm.requests import Request, check_heads, tokens_of
from pytest_kernbench.simulator.ahbm.tl import Handle, Pointer, Tl

SLOTS = 3  # messages of an edge, m, l and O: with fewer slots a receiver waits for what its sender cannot send (R37)
MESSAGE_BYTES = 16384  # a slot


def gqa_decode(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, kv_len: int, start_pe: int, n: int, *, group: int, tile: int,
    scale: float, q_start: int | None = None, window: int | None = None, softcap: float | None = None,
    skip: bool = True, sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head",
    depth: Depth = INTERLEAVED, message_bytes: int = MESSAGE_BYTES, mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V for the `group` query heads of this cube's KV head, which is the cube's number (R12).

    q [H_q, T_q, d] in every PE (or [H_q, d] for one token; [T_q, H_q, d] with layout="token"); o [group, T_q, d_v] in
    the same order, at rank n - 1; k [capacity, d] and v [capacity, d_v] a PE, of which the rank holds as many rows as
    `valid_len(kv_len, start_pe, rank, n)`; `kv_len` counts the newest token (R14). Queries are the last T_q tokens
    unless `q_start` gives the first one's position, and see no later token, nor one `window` or more before them.
    `tile` rows of K and V a step: all of them make the one-shot form of 5.2. Storage dtype is k's; m, l, O are float32
    (R22).

    `softcap`: see `Rules`. `sinks` [H_q] float32 in every PE: one more logit a head without a value, added at the root.
    `lse` [group, T_q] float32 at rank n - 1 gets the natural logarithm of the softmax's denominator.

    O travels in messages of at most `message_bytes`, a slot's: one, unless there are many rows.
    Launch with `placement(n, mesh)` so that every edge of the tree is one hop. Needs `SLOTS` slots a direction.
    """
    request = Request(kv_len, tokens_of(q, layout), start_pe, q_start=q_start)
    gqa_decode_batch(
        q, k, v, o, [request], n, group=group, tile=tile, scale=scale, window=window, softcap=softcap, skip=skip,
        sinks=sinks, lse=lse, layout=layout, depth=depth,
        message_bytes=message_bytes, mesh=mesh, tl=tl,
    )  # fmt: skip


def gqa_decode_batch(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, requests: Sequence[Request], n: int, *, group: int, tile: int,
    scale: float, window: int | None = None, softcap: float | None = None, skip: bool = True,
    sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head", depth: Depth = INTERLEAVED,
    message_bytes: int = MESSAGE_BYTES, mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """`gqa_decode` of each request in turn; their tokens lie one after another in Q and O, their keys in the caches."""
    rank, cube = tl.program_id(0), tl.program_id(1)
    rules = Rules(scale, window, softcap, skip)
    shape, rows = tree(n, mesh), message_rows(message_bytes, v.row)
    check_whole("tile", tile)
    check_heads(q, group * tl.num_programs(1), layout)
    for request in requests:
        block = Block(Span(request.first, request.t_q), group, layout)
        with tl.scratch_scope():
            state = empty_state(block.rows, v.row, tl)
            length = valid_len(request.kv_len, request.start_pe, rank, n)
            keys = Span(token_of(0, rank, request.start_pe, n), length, n) if length else None
            cache = k + request.kv_row * k.row, v + request.kv_row * v.row
            tiles = list(resident_tiles(*cache, keys, tile, block, rules, tl))
            if tiles:  # or else nobody would wait for Q
                q_rows = load_rows(q, cube * group, request.q_row, block, tl)  # head h belongs to KV head h // group
                widths = [each.width for each in tiles]
                state = Sweep(q_rows, block, state, widths, v.dtype, rules, depth, tl).fold(tiles)
            reduce_to_root(state, rank, shape, rows, tl)
            if rank == shape.root:
                store_result(state, o, lse, sinks, 0, cube * group, request.q_row, block, tl)


def reduce_to_root(state: State, rank: int, shape: Tree, message_rows: int, tl: Tl) -> None:
    """Log-sum-exp tree (ADR-0060 4): children first, then the parent; the root has all of it in `state` then."""
    pe, parent = shape.placement[rank], shape.parent[rank]
    with tl.region("tree"):
        for child in shape.children[rank]:
            with tl.scratch_scope():
                merge_received(state, direction(pe, shape.placement[child], shape.mesh), message_rows, tl)
        if parent is not None:
            side = direction(pe, shape.placement[parent], shape.mesh)
            m, l, o = state
            tl.wait(*[tl.send(side, part) for part in (m, l, *pieces(o, message_rows, tl))])


def merge_received(state: State, side: str, message_rows: int, tl: Tl) -> None:
    """Take the m, l, O that come from `side` into `state`: O a message of rows at a time, each merged in its slot."""
    m, l, o = state
    m_other, l_other = tl.recv(side, m.shape), tl.recv(side, l.shape)
    m_new, mine, theirs = merge_weights(m, m_other, tl)
    tl.add(l * mine, l_other * theirs, out=l)
    parts = (pieces(each, message_rows, tl) for each in (o, mine, theirs))
    for rows, weight, other in zip(*parts, strict=True):
        with tl.scratch_scope():
            tl.add(rows * weight, tl.recv(side, rows.shape) * other, out=rows)
    tl.assign(m, m_new)


def message_rows(message_bytes: int, d_v: int) -> int:
    """Rows of O that fit a message. Raises ValueError with both numbers if not even one does."""
    if message_bytes < 4 * d_v:
        raise ValueError(f"message_bytes is {message_bytes}, a row of O, {d_v} float32, takes {4 * d_v}")
    return message_bytes // (4 * d_v)


def pieces(h: Handle, rows: int, tl: Tl) -> list[Handle]:
    """`h` in pieces of at most so many rows: what a message can hold."""
    return [tl.rows(h, first, min(rows, h.shape[0] - first)) for first in range(0, h.shape[0], rows)]
