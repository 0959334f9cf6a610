"""How the host cuts work into tiles, and the bytes of UB that a kernel takes for it."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 16  # halves of the 32 bytes that a copy moves at least


def whole_blocks(count: int) -> int:
    """`count` halves rounded up to whole blocks."""
    return -(-count // BLOCK) * BLOCK


@dataclass(frozen=True)
class GeluTiling:
    length: int
    tile: int = 256
    buffers: int = 2

    def count(self, first: int) -> int:
        """Elements of the tile that begins at `first`."""
        return min(self.tile, self.length - first)

    @property
    def ub_bytes(self) -> int:
        """Tiles of halves in two queues, and two of floats."""
        return 2 * self.buffers * self.tile * 2 + 2 * self.tile * 4


@dataclass(frozen=True)
class RowTiling:
    rows: int
    width: int
    buffers: int = 2

    @property
    def pitch(self) -> int:
        """Halves from a row to the next."""
        return whole_blocks(self.width)

    @property
    def ub_bytes(self) -> int:
        """Rows of halves in two queues, five of floats, and a block for the sum."""
        return 2 * self.buffers * self.pitch * 2 + 5 * self.pitch * 4 + 32
