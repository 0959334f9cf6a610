"""Which elements and bytes an operand of a vector instruction touches: pure functions of mask, repeats and strides.

Masked-off lanes are neither read nor written; ranges are exact bytes (facts 2.6). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

BLOCK = 32
Indices = np.ndarray[Any, np.dtype[np.int64]]
Mask = int | tuple[int, int]


class Access(NamedTuple):
    """Of an operand, counted from its first: `elements` [repeat, lane], or None for the `total` first ones.

    `ranges` are the bytes, in order and merged; `need` is how many elements the tensor has to have.
    """

    elements: Indices | None
    ranges: tuple[tuple[int, int], ...]
    need: int
    total: int
    repeated: bool = False  # an element is touched by several repeats


@lru_cache(maxsize=4096)
def dense(count: int, itemsize: int) -> Access:
    """The first `count` elements."""
    return Access(None, ((0, count * itemsize),), count, count)


@lru_cache(maxsize=1024)
def lanes(mask: Mask, per_repeat: int) -> tuple[int, ...]:
    """The lanes that a mask selects; a continuous mask beyond the last lane acts as all."""
    if isinstance(mask, int):
        return tuple(range(min(mask, per_repeat)))
    bits = mask[0] | mask[1] << 64
    return tuple(lane for lane in range(per_repeat) if bits >> lane & 1)


@lru_cache(maxsize=4096)
def strided(selected: tuple[int, ...], repeats: int, block_stride: int, repeat_stride: int, itemsize: int) -> Access:
    """`repeats` times the lanes `selected`; strides in blocks of 32 bytes."""
    block = BLOCK // itemsize
    lane = np.array(selected, np.int64)
    offsets = lane // block * (block_stride * block) + lane % block
    index = (np.arange(repeats) * (repeat_stride * block))[:, None] + offsets
    return _access(index, itemsize)


@lru_cache(maxsize=4096)
def stepped(repeats: int, width: int, step: int, itemsize: int) -> Access:
    """`width` elements a repeat, `step` elements apart: what a reduction writes."""
    return _access((np.arange(repeats) * step)[:, None] + np.arange(width), itemsize)


def _access(index: Indices, itemsize: int) -> Access:
    flat = index.reshape(-1)
    touched = np.unique(flat)
    need = int(touched[-1]) + 1
    repeated = len(touched) < len(flat)
    if not repeated and need == len(flat) and bool((flat == np.arange(need)).all()):
        return Access(None, ((0, need * itemsize),), need, need)
    return Access(index, _merged(touched, itemsize), need, len(flat), repeated)


def packed(bits: Indices, itemsize: int) -> Access:
    """The bytes that hold `bits`, counted from the lowest of the first byte, in a tensor of `itemsize`."""
    touched = np.unique(bits >> 3)
    need = -(-(int(touched[-1]) + 1) // itemsize)
    return Access(None, _merged(touched, 1), need, len(bits))


def _merged(touched: Indices, itemsize: int) -> tuple[tuple[int, int], ...]:
    """Elements in order as ranges of bytes."""
    cuts = np.flatnonzero(np.diff(touched) > 1) + 1
    return tuple((int(run[0]) * itemsize, int(run[-1] + 1) * itemsize) for run in np.split(touched, cuts))


def same_elements(one: Access, other: Access) -> bool:
    """Whether two operands touch the same elements in the same order: bytes alone do not say which repeat does."""
    if one is other:
        return True
    if one.elements is None or other.elements is None:
        return one.elements is other.elements and one.total == other.total
    return np.array_equal(one.elements, other.elements)


def overlapping(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...], shift: int) -> bool:
    """Whether ranges share a byte; those of `other` lie `shift` bytes further."""
    return any(lo < high + shift and low + shift < hi for lo, hi in one for low, high in other)
