"""How the 310P's reductions sum: adjacent pairs, level by level; one function for the simulator and for oracles.

Lanes that are masked off, and those behind the last, count as 0. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array


def tree_sum(values: Array) -> Array:
    """Sums along the last axis, in the dtype of `values`: a binary tree over adjacent pairs."""
    width = values.shape[-1]
    if width & (width - 1):
        padded = np.zeros((*values.shape[:-1], 1 << width.bit_length()), values.dtype)
        padded[..., :width] = values
        values = padded
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]


def by_lane(values: Array, lanes: tuple[int, ...], width: int) -> Array:
    """`values` [repeat, selected lane] at their lanes of `width`, zeros elsewhere."""
    if lanes == tuple(range(width)):
        return values
    placed = np.zeros((len(values), width), values.dtype)
    placed[:, lanes] = values
    return placed


def whole_sum(lanes: tuple[int, ...], width: int, values: Array, out: Array) -> None:
    """One sum a repeat; `values` [repeat, selected lane]."""
    out.reshape(-1)[...] = tree_sum(by_lane(values.reshape(-1, len(lanes)), lanes, width))


def block_sum(lanes: tuple[int, ...], width: int, block: int, values: Array, out: Array) -> None:
    """One sum a block of `block` lanes."""
    placed = by_lane(values.reshape(-1, len(lanes)), lanes, width)
    out.reshape(-1)[...] = tree_sum(placed.reshape(-1, block))


def whole_extreme(largest: bool, lanes: tuple[int, ...], index_first: bool, values: Array, out: Array) -> None:
    """(value, index) a repeat, the index as raw bits; of equal values the first lane's; NaN wins (assumed)."""
    rows = values.reshape(-1, len(lanes))
    found = (np.argmax if largest else np.argmin)(rows, axis=1)
    pairs = out.reshape(-1, 2)
    raw = np.uint16 if out.dtype.itemsize == 2 else np.uint32
    picked = np.asarray(lanes)[found].astype(raw).view(out.dtype)
    pairs[:, 1 if index_first else 0] = rows[np.arange(len(rows)), found]
    pairs[:, 0 if index_first else 1] = picked


def reduce_sum(width: int, values: Array) -> Array:
    """All of `values` [count] to one: repeats of `width` first, then repeats of their sums."""
    level = values.reshape(-1)
    while True:
        padded = np.zeros(-(-len(level) // width) * width, level.dtype)
        padded[: len(level)] = level
        level = tree_sum(padded.reshape(-1, width))
        if len(level) == 1:
            return level


def total(width: int, values: Array, work: Array, out: Array) -> None:
    """All of `values` to out[0]; what is left in the work buffer means nothing."""
    out[...] = reduce_sum(width, values)


def masked_total(lanes: tuple[int, ...], width: int, values: Array, work: Array, out: Array) -> None:
    """The selected lanes of every repeat to out[0]; `values` [repeat, selected lane]."""
    out[...] = reduce_sum(width, by_lane(values.reshape(-1, len(lanes)), lanes, width))
