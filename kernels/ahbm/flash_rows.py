"""Query rows to and from HBM in either layout, with what belongs to a row: its sink and its log-sum-exp (R11).

A tensor of two axes, [heads, width], has one token. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.kernels.ahbm.flash_state import State, add_sink, log_sum_exp, normalised
from pytest_kernbench.kernels.ahbm.flash_sweep import Block
from pytest_kernbench.simulator.ahbm.tl import Handle, Op, Pointer, Tl

View = tuple[Pointer, tuple[int, ...], tuple[int, ...]]


def load_rows(q: Pointer, head: int, token: int, block: Block, tl: Tl) -> Handle:
    """[rows, d]: the block's heads from `head` on, of its tokens from `token` on. Lazy, as every load."""
    ptr, shape, strides = _view(q, head, token, block)
    return tl.reshape(tl.load(ptr, shape, strides), (block.rows, shape[-1]))


def store_rows(o: Pointer, head: int, token: int, block: Block, values: Handle, tl: Tl) -> Op:
    """Start to write `values` [rows, width] where `load_rows` would read them; returns what to wait for."""
    ptr, shape, strides = _view(o, head, token, block)
    return tl.store(ptr, tl.reshape(values, shape), strides)


def _view(ptr: Pointer, head: int, token: int, block: Block) -> View:
    """Pointer, shape and strides of a block of [heads, tokens, width] or [tokens, heads, width]."""
    if len(ptr.shape) == 2:
        return ptr + head * ptr.row, (block.rows, ptr.row), (ptr.row, 1)
    heads, tokens, width = ptr.shape if block.layout == "head" else (ptr.shape[1], ptr.shape[0], ptr.row)
    of_head, of_token = (tokens * width, width) if block.layout == "head" else (width, heads * width)
    by_head, by_token = (of_head, of_token) if block.layout == "head" else (of_token, of_head)
    return ptr + (head * of_head + token * of_token), (*block.axes, width), (by_head, by_token, 1)


def load_sinks(sinks: Pointer, head: int, block: Block, tl: Tl) -> Handle:
    """[rows, 1]: the sink of each row's head, from `sinks` [heads]."""
    group, tokens = block.group, block.positions.count
    shape = (group, 1, 1) if block.layout == "head" else (1, group, 1)
    loaded = tl.load(sinks + head, shape)
    if tokens > 1:
        loaded = tl.broadcast(loaded, (*block.axes, 1))
    return tl.reshape(loaded, (block.rows, 1))


def store_result(
    state: State, o: Pointer, lse: Pointer | None, sinks: Pointer | None, head: int, first_head: int, token: int,
    block: Block, tl: Tl,
) -> None:  # fmt: skip
    """Normalise and write O, and the log-sum-exp [heads, tokens] if it is asked for; add the sinks before, once.

    `head` counts in O and `lse`, `first_head` in `sinks`, which every cube has whole.
    """
    with tl.region("store"), tl.scratch_scope():
        if sinks is not None:
            tl.wait(state[0])  # the sinks are loaded to where temporaries of the merge before may still be in use
            add_sink(state, load_sinks(sinks, first_head, block, tl), tl)
        written = [store_rows(o, head, token, block, normalised(state, tl), tl)]
        if lse is not None:
            written.append(_store_lse(lse, head, token, block, log_sum_exp(state, tl), tl))
        tl.wait(*written)


def _store_lse(lse: Pointer, head: int, token: int, block: Block, values: Handle, tl: Tl) -> Op:
    """`lse` is [heads, tokens] whatever the layout of the rows."""
    tokens = lse.shape[1]
    strides = (tokens, 1) if block.layout == "head" else (1, tokens)
    return tl.store(lse + (head * tokens + token), tl.reshape(values, block.axes), strides)
