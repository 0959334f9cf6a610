"""How a tensor's rows lie in memory: pure functions of shapes and arrays. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import POISON, Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class RowMajor:
    """Row after row, as numpy has it."""

    def stored(self, shape: Shape) -> Shape:
        """The shape in memory of a tensor of `shape`."""
        return shape

    def axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the axes in memory."""
        return axes

    def arrange(self, values: Array) -> Array:
        """`values` as they lie in memory."""
        return values

    def restore(self, stored: Array, shape: Shape) -> Array:
        """The tensor of `shape` that lies in memory as `stored`."""
        return stored

    def element(self, index: Shape, shape: Shape) -> int:
        """How many elements lie before the one at `index`."""
        return int(np.ravel_multi_index(index, shape))

    def valid(self, shape: Shape, rows: int, itemsize: int) -> tuple[tuple[int, int], ...]:
        """The byte ranges of the first `rows` rows, counted from the tensor's start."""
        size = itemsize * int(np.prod(shape[1:], dtype=np.int64))
        return ((0, rows * size),) if rows else ()


@dataclass(frozen=True)
class TileBlocked(RowMajor):
    """[rows, cols] as [ceil(rows / tile), cols, tile]: a tile of rows is contiguous and lies transposed (ADR-0060 B.2).

    With K so stored, `tl.ref(k + j * d * tile, (d, tile))` needs no `trans_b` and is one run. Raises ValueError for a
    tensor that has not two axes.
    """

    tile: int

    def __post_init__(self) -> None:
        if isinstance(self.tile, bool) or not isinstance(self.tile, int) or self.tile < 1:
            raise ValueError(f"tile {self.tile!r} wants a whole number of rows > 0")

    def element(self, index: Shape, shape: Shape) -> int:
        row, col = index
        return int(np.ravel_multi_index((row // self.tile, col, row % self.tile), self.stored(shape)))

    def stored(self, shape: Shape) -> Shape:
        if len(shape) != 2:
            raise ValueError(f"tile-blocked wants two axes (rows, columns), the shape is {shape}")
        return -(-shape[0] // self.tile), shape[1], self.tile

    def axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return ("tile", axes[1], axes[0]) if axes else ()

    def arrange(self, values: Array) -> Array:
        tiles, cols, tile = self.stored(values.shape)
        padded = np.empty((tiles * tile, cols), values.dtype)
        padded.view(np.uint8)[...] = POISON
        padded[: len(values)] = values
        return padded.reshape(tiles, tile, cols).transpose(0, 2, 1)

    def restore(self, stored: Array, shape: Shape) -> Array:
        return stored.transpose(0, 2, 1).reshape(-1, shape[1])[: shape[0]]

    def valid(self, shape: Shape, rows: int, itemsize: int) -> tuple[tuple[int, int], ...]:
        full, rest = divmod(rows, self.tile)
        run = self.tile * itemsize
        start = full * shape[1] * run
        whole = ((0, start),) if full else ()
        part = tuple((start + col * run, start + col * run + rest * itemsize) for col in range(shape[1]) if rest)
        return whole + part


ROW_MAJOR = RowMajor()
