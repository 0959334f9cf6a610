"""Memories and who owns which bytes of them. Only ops write them after the launch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import POISON, Array, DType


class Space:
    """A memory of `capacity` bytes; its bytes exist only once somebody asks for them, and start poisoned."""

    __slots__ = ("_bytes", "capacity", "id", "name", "touched")

    def __init__(self, id: int, name: str, capacity: int) -> None:
        self.id = id
        self.name = name
        self.capacity = capacity
        self.touched: Any = None  # belongs to the race checker
        self._bytes: Array = np.empty(0, np.uint8)

    def bytes(self, hi: int) -> Array:
        """The bytes [0, hi') for some hi' >= hi."""
        if hi > len(self._bytes):
            grown = np.full(min(self.capacity, max(hi, 2 * len(self._bytes))), POISON, np.uint8)
            grown[: len(self._bytes)] = self._bytes
            self._bytes = grown
        return self._bytes

    def reserve(self, hi: int) -> None:
        """Make the bytes [0, hi) exist now, so that views taken later all share them."""
        self.bytes(hi)

    def view(self, lo: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Array:
        """Elements at byte `lo` with `strides` in bytes."""
        return np.ndarray(shape, dtype, self._bytes, lo, strides)


class Allocation:
    """Bytes [lo, hi) of a space with one owner; owners of the same bytes are different allocations.

    `label` is the id of its name in the log, `base` where offsets in the log count from: a tensor's start, or the start
    of scratch. `past`: bytes of it lie behind a logical length.
    """

    alive = True
    past = False
    base = 0
    ended: int | None = None  # site at which its scope was left or its slot released
    filled = False  # these two belong to the initialisation checker
    valid: Any = None
    fetched: Any = None  # belongs to the checker of transfers
    taint: Any = None  # belongs to the checker of logical lengths

    def __init__(self, space: Space, lo: int, hi: int, name: str, label: int) -> None:
        self.space = space
        self.lo = lo
        self.hi = hi
        self.name = name
        self.label = label


Region = tuple[Allocation, int, int]
"""Bytes [lo, hi) of an allocation, counted from the start of its space."""


def describe(region: Region) -> str:
    """Bytes as the author knows them: a tensor's by offset in it, scratch by address."""
    allocation, lo, hi = region
    return f"{allocation.name}[{lo - allocation.base}:{hi - allocation.base}] of {allocation.space.name}"


@cache
def covers(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[tuple[int, int], ...]:
    """The byte ranges, in order and merged, that elements with byte `strides` cover exactly, from the first one on."""
    if 0 in shape:
        return ()
    axes = sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1)
    run = itemsize
    while axes and axes[0][0] == run:
        run *= axes.pop(0)[1]
    starts = [0]
    for stride, size in reversed(axes):
        starts = [start + index * stride for start in starts for index in range(size)]
    merged: list[tuple[int, int]] = []
    for start in sorted(set(starts)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], start + run)
        else:
            merged.append((start, start + run))
    return tuple(merged)


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a dense row-major block."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
