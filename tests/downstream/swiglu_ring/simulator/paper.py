"""Bytes, products and messages of the layer in closed form, and its answer in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

RINGS = {2: (0, 1), 4: (0, 1, 5, 4), 8: (0, 1, 2, 3, 7, 6, 5, 4)}  # one hop from each PE to the next, and back


@dataclass(frozen=True)
class Layer:
    """`ranks` PEs hold `hidden` units each."""

    ranks: int = 4
    tokens: int = 8
    width: int = 64
    hidden: int = 128
    tile: int = 32

    @property
    def weight_bytes(self) -> int:
        """Of one weight in one rank, bfloat16."""
        return self.hidden * self.width * 2

    @property
    def products(self) -> int:
        """Matrix products of one rank."""
        return 3 * self.hidden // self.tile

    @property
    def messages(self) -> int:
        """That one rank sends."""
        return 2 * (self.ranks - 1)

    @property
    def block_bytes(self) -> int:
        """A message: a rank's rows of the float32 result."""
        return self.tokens // self.ranks * self.width * 4

    @property
    def scratch_bytes(self) -> int:
        """x, the sum, two pairs of products, and what one tile keeps: six steps in float32, the last in bfloat16."""
        rows, tile = 6 * self.tokens * self.width, self.tokens * self.tile
        return rows + 4 * 4 * tile + (5 * 4 + 2) * tile


def answer(x: Array, gate: Array, up: Array, down: Array) -> tuple[Array, float]:
    """The layer of weights [ranks, hidden, width] in float64, and how far bfloat16 may be from it."""
    x, gate, up, down = (each.astype(np.float64) for each in (x, gate, up, down))
    before = np.einsum("td,rhd->rth", x, gate)
    hidden = before / (1 + np.exp(-before)) * np.einsum("td,rhd->rth", x, up)
    y = np.einsum("rth,rhd->td", hidden, down)
    size = np.einsum("rth,rhd->td", abs(hidden), abs(down)).max()
    return y, float(size * 2**-9 + abs(y).max() * 2**-8)
