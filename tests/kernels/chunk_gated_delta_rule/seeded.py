"""The gated delta rule's kernel with one mistake each (facts 6 and 7), and the small inputs that show them.

A mistake is a class that overrides as little as it can; those of the public version alone are methods of `faithful`.
What sees each is in `test_catalogue.py` and `test_faults.py`, and in the fault matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.carving import Carving
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.faithful import FaithfulChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule, Item
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk, Float, Tile
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Tiling

Array = Any
FAITHFUL = FaithfulChunkGatedDeltaRule


# Inputs


def halves(numbers: Any, *shape: int) -> Array:
    """Numbers in float16."""
    return np.array(numbers, np.float16).reshape(shape)


def base(g: float | None, tokens: int = 4) -> Inputs:
    """B(g) of the facts: one head, Dk = 2, Dv = 1, the first tokens of 4."""
    return Inputs(
        halves([0, 1, 1, 0, 0.6, -0.8, 0.8, 0.6], 4, 1, 2)[:tokens],
        halves([1, 0, 0.6, 0.8, 0, 1, 0.8, 0.6], 4, 1, 2)[:tokens],
        halves([1, 2, 3, 4], 4, 1, 1)[:tokens],
        halves([0.5] * 4, 4, 1)[:tokens],
        halves([1, 2], 1, 1, 1, 2),
        (tokens,),
        None if g is None else np.full((tokens, 1), g, np.float32),
    )


def one_token(q: Any, k: Any, v: Any, state: Any) -> Inputs:
    """One token of one head with a beta of 1 and without a gate."""
    dk, dv = len(q), len(v)
    tokens = (halves(q, 1, 1, dk), halves(k, 1, 1, dk), halves(v, 1, 1, dv), halves([1], 1, 1))
    return Inputs(*tokens, halves(state, 1, 1, dv, dk), (1,))


def after_a_chunk_of_nothing(inputs: Inputs) -> Inputs:
    """Eight tokens in front whose beta and g are 0: they change nothing but what lies in UB."""
    front = {
        name: np.concatenate([np.repeat(array[:1], 8, axis=0), array])
        for name, array in inputs.arrays().items()
        if name != "initial_state"
    }
    front["beta"][:8] = front["g"][:8] = 0
    return replace(inputs, **front, lengths=(8 + inputs.lengths[0],))


def poisoned(inputs: Inputs) -> Inputs:
    """Five rows behind the last token that nobody may read: 1e4, and -7 as values."""
    rows = {"query": 1e4, "key": 1e4, "value": -7, "beta": 0.5, "g": -1}
    behind = {name: np.full_like(getattr(inputs, name)[:1].repeat(5, 0), fill) for name, fill in rows.items()}
    return replace(inputs, **{name: np.concatenate([getattr(inputs, name), row]) for name, row in behind.items()})


def infinite(inputs: Inputs) -> Inputs:
    """A gate of minus infinity, which a host refuses."""
    assert inputs.g is not None
    gates = inputs.g.copy()
    gates[1] = -np.inf
    return replace(inputs, g=gates)


# Plans of a host


def rows_as_they_are(plan: Tiling) -> Tiling:
    """A host that counts Dk rows of the state in the queue, not ceil8(Dk)."""
    queue = plan.shape.dk * plan.v_step * 2
    return replace(plan, out_queue_bytes=queue, ub_rest_bytes=plan.ub_rest_bytes + plan.out_queue_bytes - queue)


def counting_beta(plan: Tiling) -> Tiling:
    """A host that counts the slice of `OneSliceMore`."""
    return replace(plan, tmp_bytes=plan.tmp_bytes + 256)


# Kernels


class MaskAfterExp(ChunkGatedDeltaRule):
    """The whole square of the decays, times 1 below the diagonal and 0 above."""

    def DecayColumns(self, chunk: Chunk, i: int) -> int:
        self.rows = chunk.length
        return chunk.length

    def ComputeQkRow(self, i: int, query: Any) -> None:
        row = i * self.chunkSize_
        for j in range(self.rows):
            dot = self.DotFp32(query, self.chunkKFp32[j * self.alignK_])
            masked = self.decayMaskFp32.GetValue(row + j) * Float(j <= i)
            self.decayMaskFp32.SetValue(row + j, dot * masked)

    def AccumOutput(self, chunk: Chunk, tile: Tile) -> None:
        for i in range(chunk.length):
            for j in range(chunk.length):
                coefficient = self.decayMaskFp32.GetValue(i * self.chunkSize_ + j)
                self.CoefficientReady()
                row, value = self.chunkAttnOutFp32[i * tile.pitch], self.chunkVFp32[j * tile.pitch]
                self.asc.Axpy(row, value, coefficient, tile.pitch)
                self.asc.PipeBarrier(self.asc.PIPE_V)


class SafeExp(ChunkGatedDeltaRule):
    """Of differences that are not below 0 there is no decay at all."""

    def PrepareDecayAndExp(self, chunk: Chunk) -> None:
        super().PrepareDecayAndExp(chunk)
        for at in (i * self.chunkSize_ + j for i in range(chunk.length) for j in range(i + 1)):
            if self.decayMaskFp32.GetValue(at) >= 1:
                self.decayMaskFp32.SetValue(at, Float(0))


class LastRowOfTheChunk(ChunkGatedDeltaRule):
    """The last gate is that of row C - 1, valid or not."""

    def UpdateAndWriteState(self, chunk: Chunk, tile: Tile) -> None:
        valid, rows = chunk.length - 1, self.chunkSize_ - 1
        self.gCumsumFp32, self.expGCumFp32 = (Moved(each, valid, rows) for each in (self.gCumsumFp32, self.expGCumFp32))
        super().UpdateAndWriteState(chunk, tile)
        self.gCumsumFp32, self.expGCumFp32 = self.gCumsumFp32.tensor, self.expGCumFp32.tensor


class Moved:
    """A tensor whose first read of row `valid` is of row `rows`."""

    def __init__(self, tensor: Any, valid: int, rows: int) -> None:
        self.tensor, self.valid, self.rows = tensor, valid, rows

    def GetValue(self, at: int) -> Any:
        moved, self.rows = (self.rows, self.valid) if at == self.valid else (at, self.rows)
        return self.tensor.GetValue(moved)


class AllRowsOfKeys(ChunkGatedDeltaRule):
    """The state's update goes over all rows of the chunk: those behind the last token are not zero."""

    def UpdateAndWriteState(self, chunk: Chunk, tile: Tile) -> None:
        super().UpdateAndWriteState(chunk._replace(length=self.chunkSize_) if chunk.last else chunk, tile)


class Unsized(ChunkGatedDeltaRule):
    """Tensors may be longer than the tiling says."""

    def CheckTiling(self) -> None: ...

    @classmethod
    def of(cls, variant: type[ChunkGatedDeltaRule]) -> type[ChunkGatedDeltaRule]:
        return type(variant.__name__, (cls, variant), {})


class KeysFirst(ChunkGatedDeltaRule):
    """The initial state taken for [Dk, Dv]."""

    def ReadInitialState(self, chunk: Chunk, tile: Tile) -> None:
        first = self.StateOffset(chunk.batch, chunk.head, 0)
        for k in range(self.realK_):
            for v in range(tile.width):
                number = self.initStateGm_.GetValue(first + k * self.realV_ + tile.v + v)
                self.stateInFp32.SetValue(k * tile.pitch + v, Float(number))


class SumAcrossSequences(ChunkGatedDeltaRule):
    """The sum of gates goes on where a sequence begins."""

    def ComputeGCumsum(self, chunk: Chunk) -> None:
        total = getattr(self, "total", Float(0))
        for i in range(chunk.length):
            total = total + self.gGm_.GetValue(self.HeadOffset(chunk, i))
            self.gCumsumFp32.SetValue(i, total)
        self.total = total
        self.ScalarToVector()


class OneSequence(ChunkGatedDeltaRule):
    """Boundaries are not looked at: the first sequence goes on to the last token."""

    def LengthOf(self, batch: int) -> int:
        return self.tiling.shape.tokens if batch == 0 else 0

    def CopyState(self, item: Item) -> None: ...


class CompactChunks(ChunkGatedDeltaRule):
    """Sequences without tokens are left out of the list, and the others counted by their place in it."""

    def Process(self) -> None:
        listed = [batch for batch in range(self.B_) if self.LengthOf(batch)]
        for item in self.Items():
            if item.length:
                self.ProcessItem(item._replace(batch=listed.index(item.batch)))


class LastRowUnsigned(ChunkGatedDeltaRule):
    """Nobody asks whether there are tokens: the last of none is number 2**32 - 1, the last of 64."""

    def Process(self) -> None:
        for item in self.Items():
            self.ProcessItem(item._replace(length=(item.length - 1) % 2**32 % self.chunkSize_ + 1))


class HalvesBetweenChunks(ChunkGatedDeltaRule):
    """The state goes through float16 from chunk to chunk."""

    def ReadStateRows(self, chunk: Chunk, tile: Tile) -> None:
        asc = self.asc
        super().ReadStateRows(chunk, tile)
        asc.PipeBarrier(asc.PIPE_ALL)
        narrow = self.deltaFp32.ReinterpretCast(asc.half)
        for k in range(self.realK_):
            row = self.stateInFp32[k * tile.pitch]
            asc.Cast(narrow, row, asc.RoundMode.CAST_NONE, tile.pitch)
            asc.PipeBarrier(asc.PIPE_V)
            asc.Cast(row, narrow, asc.RoundMode.CAST_NONE, tile.pitch)
            asc.PipeBarrier(asc.PIPE_V)


class NoGateNoUpdate(ChunkGatedDeltaRule):
    """Without g the state is not updated."""

    def AddOuterProduct(self, chunk: Chunk, tile: Tile, i: int, decay: Any) -> None:
        if self.gGm_ is not None:
            super().AddOuterProduct(chunk, tile, i, decay)


class StateOverScores(ChunkGatedDeltaRule):
    """One address for both, although a block does several tiles in turn."""

    def Carve(self) -> Carving:
        carving = super().Carve()
        scores = carving.slice("chunkScoresFp32").offset
        slices = [each._replace(offset=scores) if each.name == "stateInFp32" else each for each in carving.slices]
        return carving._replace(slices=tuple(slices), overlap=True)


class LastRowNotWritten(ChunkGatedDeltaRule):
    """One row less of a chunk's outputs."""

    def WriteAttnTileToGm(self, chunk: Chunk, tile: Tile) -> None:
        super().WriteAttnTileToGm(chunk._replace(length=chunk.length - 1), tile)


class Wrapping(ChunkGatedDeltaRule):
    """A cast that drops what does not fit, as one of integers does."""

    def QueuedHalves(self, source: Any, count: int) -> Any:
        self.VectorToScalar()
        for at in range(count):
            number = source.GetValue(at)
            source.SetValue(at, Float((number + 65_536) % 131_072 - 65_536))
        self.ScalarToVector()
        return super().QueuedHalves(source, count)


class TwoBuffers(FAITHFUL):
    """The constant changed in the kernel alone."""

    BUFFER_NUM = 2


class OneSliceMore(ChunkGatedDeltaRule):
    """A later version, with beta in UB, which its host counts."""

    MORE_SLICES = (("betaFp32", 64),)


class FaithfulOneSliceMore(FAITHFUL, OneSliceMore):
    """The same, behind a cursor that was not moved on."""
