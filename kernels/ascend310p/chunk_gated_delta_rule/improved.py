"""What the public kernel leaves undone, as options that combine; none changes a bit of the results.

Each option is a class over the mended kernel that says one or two phases in another way, and what it asks of the
tiling. `benchmarks.delta_rule` says what each is worth on the model. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule, LengthsOfTiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk, Float, T, Tile
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import (
    AIV_CORES,
    FP32_NUM_PER_BLOCK,
    UB_BYTES,
    Shape,
    Tiling,
    tiling,
)
from pytest_kernbench.simulator.ascend310p.asc import DataCopyParams, LocalTensor


class FlagPerRow(ChunkGatedDeltaRule):
    """S takes all coefficients of a row, and hands them over together."""

    def Ready(self, terms: Iterable[T]) -> Iterator[T]:
        """All terms at once."""
        taken = list(terms)
        self.CoefficientReady()
        yield from taken


class StateByOneDma(ChunkGatedDeltaRule):
    """A tile of the state goes in and out as one 2D DMA."""

    def ReadStateRows(self, chunk: Chunk, tile: Tile) -> None:
        """Rows lie a head's width apart in GM, and a tile's in UB."""
        source = self.stateWorkspaceGm_[self.WorkspaceOffset(chunk, tile, 0)]
        self.asc.DataCopy(self.stateInFp32, source, self.StateRows(tile, gm_first=True))

    def WriteStateRows(self, chunk: Chunk, tile: Tile) -> None:
        """The other way."""
        target = self.stateWorkspaceGm_[self.WorkspaceOffset(chunk, tile, 0)]
        self.asc.DataCopy(target, self.stateInFp32, self.StateRows(tile, gm_first=False))

    def StateRows(self, tile: Tile, *, gm_first: bool) -> DataCopyParams:
        """Dk rows of a tile, and what lies between them on either side."""
        blocks = tile.whole // FP32_NUM_PER_BLOCK
        in_gm, in_ub = ((pitch - tile.whole) // FP32_NUM_PER_BLOCK for pitch in (self.stateStrideV_, tile.pitch))
        gaps = (in_gm, in_ub) if gm_first else (in_ub, in_gm)
        return self.asc.DataCopyParams(self.realK_, blocks, *gaps)


class ResidentState(ChunkGatedDeltaRule):
    """The state stays in UB from the first chunk of a sequence to the last: no workspace, and bytes of its own.

    A tile is an item of its own, since UB holds the state of one: with several tiles the K side is done for each.
    """

    APART = True

    def TilesOfItems(self) -> list[range]:
        """One by one."""
        return [range(tile, tile + 1) for tile in range(self.tiling.tiles)]

    def LoadStateTile(self, chunk: Chunk, tile: Tile) -> None:
        """Of the host; the chunk before has left it where it is."""
        if chunk.first:
            super().LoadStateTile(chunk, tile)

    def UpdateAndWriteState(self, chunk: Chunk, tile: Tile) -> None:
        """The update, and the host's copy of the last."""
        if chunk.last:
            super().UpdateAndWriteState(chunk, tile)
        else:
            self.UpdateState(chunk, tile)


class CheapRewrites(ChunkGatedDeltaRule):
    """Fewer instructions for the same numbers: Sub, and one Muls for the whole state."""

    def Subtract(
        self, target: LocalTensor[Float], one: LocalTensor[Float], other: LocalTensor[Float], count: int
    ) -> None:
        """target = one - other."""
        self.asc.Sub(target, one, other, count)

    def DecayState(self, chunk: Chunk, tile: Tile) -> None:
        """All rows at once: they lie side by side."""
        asc, decay = self.asc, self.expGCumFp32.GetValue(chunk.length - 1)
        asc.Muls(self.stateInFp32, self.stateInFp32, decay, self.realK_ * tile.pitch)
        asc.PipeBarrier(asc.PIPE_V)


class DoubleBuffered(ChunkGatedDeltaRule):
    """Two buffers in the queue out, which the tiling pays for by narrower tiles."""


OPTIONS: dict[str, type[ChunkGatedDeltaRule]] = {
    "flag-per-row": FlagPerRow,
    "state-by-one-dma": StateByOneDma,
    "resident-state": ResidentState,
    "cheap-rewrites": CheapRewrites,
    "double-buffer": DoubleBuffered,
}


class Plan(NamedTuple):
    """A class of the kernel with the tiling that it wants: both go to `host.chunk_gated_delta_rule` by these names."""

    variant: type[ChunkGatedDeltaRule]
    tiling: Tiling


def improved(
    shape: Shape, *options: str, ub: int = UB_BYTES, cores: int = AIV_CORES, chunk: int = 64, data: bool = True
) -> Plan:
    """The kernel with `options` (names of `OPTIONS`) for one shape; `data`: False for a run without.

    Raises ValueError for an option that is none, or a tiling that does not fit.
    """
    for option in options:
        if option not in OPTIONS:
            raise ValueError(f"option {option!r} is none of {', '.join(OPTIONS)}")
    bases = tuple(OPTIONS[name] for name in OPTIONS if name in options) + (() if data else (LengthsOfTiling,))
    variant = type("Improved", bases or (ChunkGatedDeltaRule,), {})
    buffers = 2 if "double-buffer" in options else 1
    apart = "resident-state" in options
    return Plan(variant, tiling(shape, ub=ub, cores=cores, buffer_num=buffers, chunk=chunk, apart=apart))
