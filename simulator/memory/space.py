"""Memories and who owns which bytes of them. Only ops write them after the launch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import POISON, Array, DType


class Space:
    """A memory of `capacity` bytes; its bytes exist only once somebody asks for them, and start poisoned."""

    __slots__ = ("_bytes", "capacity", "id", "name")

    def __init__(self, id: int, name: str, capacity: int) -> None:
        self.id = id
        self.name = name
        self.capacity = capacity
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
    """Bytes [lo, hi) of a space with one owner; `serial` tells owners of the same bytes apart."""

    __slots__ = ("alive", "base", "hi", "label", "lo", "name", "past", "serial", "space")

    def __init__(self, space: Space, lo: int, hi: int, name: str, label: int, serial: int, base: int = 0) -> None:
        self.space = space
        self.base = base  # where offsets in the log count from: a tensor's start, or the start of scratch
        self.lo = lo
        self.hi = hi
        self.name = name
        self.label = label  # id of the name in the log
        self.serial = serial
        self.alive = True
        self.past = False  # bytes of it lie behind a logical length


class Region(NamedTuple):
    """Some bytes of an allocation; `lo` and `hi` count from the start of the space."""

    allocation: Allocation
    lo: int
    hi: int


def covers(lo: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> list[tuple[int, int]]:
    """The byte ranges, in order and merged, that elements at `lo` with byte `strides` cover exactly."""
    axes = sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1)
    if 0 in shape:
        return []
    run = itemsize
    while axes and axes[0][0] == run:
        run *= axes.pop(0)[1]
    starts = [lo]
    for stride, size in reversed(axes):
        starts = [start + index * stride for start in starts for index in range(size)]
    return [(start, start + run) for start in sorted(set(starts))]


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a dense row-major block."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
