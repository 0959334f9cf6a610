"""GQA prefill for one KV head a PE, with all its keys resident (ADR-0060 5.4). PYTEST_DONT_REWRITE

Queries go in blocks that fit the scratch. Tiles wholly in the future are left out, a mask is made on the boundary
alone, and positions decide both: a chunk that begins at any position is the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes
from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import empty_state
from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Block, Depth, Layout, Rules, Sweep, resident_tiles
from pytest_kernbench.kernels.ahbm.positions import Span
from pytest_kernbench.kernels.ahbm.requests import Request, check_heads, tokens_of
from pytest_kernbench.simulator.ahbm.tl import Pointer, Tl


def gqa_prefill(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, kv_len: int, *, group: int, tile: int, q_block: int, scale: float,
    q_start: int | None = None, window: int | None = None, softcap: float | None = None, skip: bool = True,
    sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head", depth: Depth = INTERLEAVED,
    announce: Callable[[object], None] = print, tl: Tl,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V, causal, for the `group` query heads of this cube's KV head.

    q [H_q, T, d] in every PE ([T, H_q, d] with layout="token"), o [group, T, d_v] in the same order; k [capacity, d]
    and v [capacity, d_v] with `kv_len` valid rows, row = position. Queries are the last T of them unless `q_start`
    gives the first one's position. `q_block` positions go through a sweep together, `tile` keys a step:
    `budget.largest_q_block` finds what fits. The budget is announced at launch. The rest as in `gqa_decode`.
    """
    request = Request(kv_len, tokens_of(q, layout), q_start=q_start)
    gqa_prefill_batch(
        q, k, v, o, [request], group=group, tile=tile, q_block=q_block, scale=scale, window=window, softcap=softcap,
        skip=skip, sinks=sinks, lse=lse, layout=layout, depth=depth,
        announce=announce, tl=tl,
    )  # fmt: skip


def gqa_prefill_batch(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, requests: Sequence[Request], *, group: int, tile: int,
    q_block: int, scale: float, window: int | None = None, softcap: float | None = None, skip: bool = True,
    sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head", depth: Depth = INTERLEAVED,
    announce: Callable[[object], None] = print, tl: Tl,
) -> None:  # fmt: skip
    """`gqa_prefill` of each request in turn; their queries lie one after another in Q and O, their keys in K and V."""
    rules = Rules(scale, window, softcap, skip)
    head = tl.program_id(1) * group
    check_heads(q, group * tl.num_programs(1), layout)
    if tl.program_id(0) == tl.program_id(1) == 0:
        sizes = Sizes(
            group, q.row, v.row, k.dtype.itemsize, tile, rules, depth, sinks=sinks is not None, lse=lse is not None
        )
        announce(Budget.of_prefill(requests, q_block, sizes))
    for request in requests:
        cache = k + request.kv_row * k.row, v + request.kv_row * v.row
        for first, positions in Span(request.first, request.t_q).tiles(q_block):
            block = Block(positions, group, layout)
            with tl.scratch_scope():
                state = empty_state(block.rows, v.row, tl)
                keys = Span(0, request.kv_len) if request.kv_len else None
                tiles = list(resident_tiles(*cache, keys, tile, block, rules, tl))
                if tiles:  # or else nobody would wait for Q
                    q_rows = load_rows(q, head, request.q_row + first, block, tl)
                    widths = [each.width for each in tiles]
                    state = Sweep(q_rows, block, state, widths, v.dtype, rules, depth, tl).fold(tiles)
                store_result(state, o, lse, sinks, 0, head, request.q_row + first, block, tl)
