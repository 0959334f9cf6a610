"""The phases that a chunk goes through for each tile of V: values, state, output, and the state's update.

The state is float32 inside and lies in a workspace in GM between chunks; half is read by the first chunk and written by
the last one, transposed element by element. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.key_side import KeySide
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import (
    FP16_NUM_PER_BLOCK,
    Chunk,
    Float,
    Half,
    Tile,
)
from pytest_kernbench.simulator.ascend310p.asc import LocalTensor


class ValueSide(KeySide):
    """V side of a chunk of L tokens and a tile of columns."""

    def LoadVBeta(self, chunk: Chunk, tile: Tile) -> None:
        """chunkV = beta V, rows of the tile's pitch, zero behind its width."""
        asc = self.asc
        self.StagingIsFree()
        asc.Duplicate(self.chunkVFp32, 0.0, chunk.length * tile.pitch)
        self.VectorToScalar()
        if self.ValuesByDma(tile):
            self.LoadValuesByDma(chunk, tile)
        else:
            self.LoadValuesByScalar(chunk, tile)
        self.ScalarToVector()
        for i in range(chunk.length):
            beta = Float(self.betaGm_.GetValue(self.HeadOffset(chunk, i)))
            row = self.chunkVFp32[i * tile.pitch]
            self.CoefficientReady()
            asc.Muls(row, row, beta, tile.width)
        asc.PipeBarrier(asc.PIPE_V)

    def LoadValuesByDma(self, chunk: Chunk, tile: Tile) -> None:
        """One 2D DMA of the rows, staged where the output will be."""
        asc = self.asc
        blocks = tile.width // FP16_NUM_PER_BLOCK
        gap = self.NV_ * self.realV_ // FP16_NUM_PER_BLOCK - blocks
        source = self.valueGm_[self.ValueOffset(chunk, tile)]
        asc.DataCopy(self.valueStaging, source, asc.DataCopyParams(chunk.length, blocks, gap, 0))
        self.Fence(asc.HardEvent.MTE2_V)
        for i in range(chunk.length):
            row, staged = self.chunkVFp32[i * tile.pitch], self.valueStaging[i * tile.width]
            asc.Cast(row, staged, asc.RoundMode.CAST_NONE, tile.width)
        asc.PipeBarrier(asc.PIPE_V)

    def LoadValuesByScalar(self, chunk: Chunk, tile: Tile) -> None:
        """The slow path: element by element."""
        for i in range(chunk.length):
            offset = self.ValueOffset(chunk, tile, i)
            for v in range(tile.width):
                self.chunkVFp32.SetValue(i * tile.pitch + v, Float(self.valueGm_.GetValue(offset + v)))

    def ComputeValueNew(self, chunk: Chunk, tile: Tile) -> None:
        """chunkAttnOut = U = T (beta V): the last who reads the scores."""
        asc = self.asc
        asc.Duplicate(self.chunkAttnOutFp32, 0.0, chunk.length * tile.pitch)
        asc.PipeBarrier(asc.PIPE_V)
        self.AddLowerTriangle(
            chunk, self.chunkScoresFp32, self.chunkAttnOutFp32, self.chunkVFp32, tile.pitch, tile.pitch
        )

    def LoadStateTile(self, chunk: Chunk, tile: Tile) -> None:
        """stateIn = S [Dk, pitch]: of the host if this is the sequence's first chunk, else of the chunk before."""
        asc = self.asc
        asc.Duplicate(self.stateInFp32, 0.0, self.stateStrideK_ * tile.pitch)
        asc.PipeBarrier(asc.PIPE_ALL)
        if chunk.first:
            self.ReadInitialState(chunk, tile)
        else:
            self.Fence(asc.HardEvent.MTE3_MTE2)
            self.ReadStateRows(chunk, tile)
        asc.PipeBarrier(asc.PIPE_ALL)

    def ReadInitialState(self, chunk: Chunk, tile: Tile) -> None:
        """Half [Dv, Dk] to float32 [Dk, Dv], element by element."""
        for v in range(tile.width):
            offset = self.StateOffset(chunk.batch, chunk.head, tile.v + v)
            for k in range(self.realK_):
                self.stateInFp32.SetValue(k * tile.pitch + v, Float(self.initStateGm_.GetValue(offset + k)))

    def ReadStateRows(self, chunk: Chunk, tile: Tile) -> None:
        """From the workspace, a DMA a row."""
        for k in range(self.realK_):
            source = self.stateWorkspaceGm_[self.WorkspaceOffset(chunk, tile, k)]
            self.asc.DataCopy(self.stateInFp32[k * tile.pitch], source, tile.whole)

    def ComputeVNew(self, chunk: Chunk, tile: Tile) -> None:
        """chunkV = U - W S, row by row through deltaFp32."""
        asc, pitch = self.asc, tile.pitch
        delta = self.deltaFp32
        for i in range(chunk.length):
            asc.Duplicate(delta, 0.0, pitch)
            asc.PipeBarrier(asc.PIPE_V)
            terms = ((k, self.chunkKFp32.GetValue(i * self.alignK_ + k)) for k in range(self.realK_))
            for k, coefficient in self.Ready(terms):
                asc.Axpy(delta, self.stateInFp32[k * pitch], coefficient, pitch)
                asc.PipeBarrier(asc.PIPE_V)
            self.Subtract(self.chunkVFp32[i * pitch], self.chunkAttnOutFp32[i * pitch], delta, pitch)
            asc.PipeBarrier(asc.PIPE_V)

    def Subtract(
        self, target: LocalTensor[Float], one: LocalTensor[Float], other: LocalTensor[Float], count: int
    ) -> None:
        """target = one - other, which is negated."""
        self.asc.Muls(other, other, -1.0, count)
        self.asc.PipeBarrier(self.asc.PIPE_V)
        self.asc.Add(target, one, other, count)

    def ComputeAttnInter(self, chunk: Chunk, tile: Tile) -> None:
        """chunkAttnOut = (scale e^G Q) S; Q comes once more from GM, element by element."""
        asc, pitch = self.asc, tile.pitch
        for i in range(chunk.length):
            decay = self.expGCumFp32.GetValue(i)
            offset, row = self.QkOffset(chunk, i), self.chunkAttnOutFp32[i * pitch]
            asc.Duplicate(row, 0.0, pitch)
            asc.PipeBarrier(asc.PIPE_V)
            terms = ((k, Float(self.queryGm_.GetValue(offset + k)) * self.scale * decay) for k in range(self.realK_))
            for k, coefficient in self.Ready(terms):
                asc.Axpy(row, self.stateInFp32[k * pitch], coefficient, pitch)
                asc.PipeBarrier(asc.PIPE_V)

    def AccumOutput(self, chunk: Chunk, tile: Tile) -> None:
        """chunkAttnOut += lower(scale Q K^T * D) Vnew."""
        self.AddLowerTriangle(chunk, self.decayMaskFp32, self.chunkAttnOutFp32, self.chunkVFp32, tile.pitch, tile.pitch)

    def WriteAttnTileToGm(self, chunk: Chunk, tile: Tile) -> None:
        """The output in half: one 2D DMA, or element by element."""
        out = self.QueuedHalves(self.chunkAttnOutFp32, chunk.length * tile.pitch)
        if self.ValuesByDma(tile):
            blocks = tile.width // FP16_NUM_PER_BLOCK
            gap = self.NV_ * self.realV_ // FP16_NUM_PER_BLOCK - blocks
            rows = self.asc.DataCopyParams(chunk.length, blocks, tile.pitch // FP16_NUM_PER_BLOCK - blocks, gap)
            self.asc.DataCopy(self.attnOutGm_[self.ValueOffset(chunk, tile)], out, rows)
        else:
            self.VectorToScalar()
            for i in range(chunk.length):
                offset = self.ValueOffset(chunk, tile, i)
                for v in range(tile.width):
                    self.attnOutGm_.SetValue(offset + v, out.GetValue(i * tile.pitch + v))
        self.stateOutQueue_.FreeTensor(out)

    def QueuedHalves(self, source: LocalTensor[Float], count: int) -> LocalTensor[Half]:
        """`count` floats as halves in the queue's buffer, full and taken out again."""
        asc = self.asc
        asc.Muls(source, source, 1.0, count)
        asc.PipeBarrier(asc.PIPE_V)
        out = self.stateOutQueue_.AllocTensor(asc.half)
        asc.Cast(out, source, asc.RoundMode.CAST_NONE, count)
        self.stateOutQueue_.EnQue(out)
        return self.stateOutQueue_.DeQue(asc.half)

    def UpdateAndWriteState(self, chunk: Chunk, tile: Tile) -> None:
        """The update, and the state to where the next chunk, or the host, finds it."""
        self.UpdateState(chunk, tile)
        self.asc.PipeBarrier(self.asc.PIPE_ALL)
        if chunk.last:
            self.WriteFinalState(chunk, tile)
        else:
            self.WriteStateRows(chunk, tile)
            self.Fence(self.asc.HardEvent.MTE3_MTE2)
        self.asc.PipeBarrier(self.asc.PIPE_ALL)

    def UpdateState(self, chunk: Chunk, tile: Tile) -> None:
        """S' = e^G_L S + (e^(G_L - G) K)^T Vnew, L the last valid row; K comes once more from GM."""
        self.DecayState(chunk, tile)
        last = self.gCumsumFp32.GetValue(chunk.length - 1)
        for i in range(chunk.length):
            decay = self.ScalarExp(last - self.gCumsumFp32.GetValue(i))
            self.AddOuterProduct(chunk, tile, i, decay)

    def DecayState(self, chunk: Chunk, tile: Tile) -> None:
        """Every row of the state times e^G_L."""
        asc, decay = self.asc, self.expGCumFp32.GetValue(chunk.length - 1)
        for k in range(self.realK_):
            row = self.stateInFp32[k * tile.pitch]
            asc.Muls(row, row, decay, tile.pitch)
        asc.PipeBarrier(asc.PIPE_V)

    def AddOuterProduct(self, chunk: Chunk, tile: Tile, i: int, decay: Float) -> None:
        """S += (decay k_i) v_i^T: a row of the state an element of k_i, none of them twice."""
        asc, pitch = self.asc, tile.pitch
        offset, value = self.QkOffset(chunk, i), self.chunkVFp32[i * pitch]
        terms = ((k, Float(self.keyGm_.GetValue(offset + k)) * decay) for k in range(self.realK_))
        for k, coefficient in self.Ready(terms):
            asc.Axpy(self.stateInFp32[k * pitch], value, coefficient, pitch)
        asc.PipeBarrier(asc.PIPE_V)

    def WriteStateRows(self, chunk: Chunk, tile: Tile) -> None:
        """To the workspace, a DMA a row."""
        for k in range(self.realK_):
            target = self.stateWorkspaceGm_[self.WorkspaceOffset(chunk, tile, k)]
            self.asc.DataCopy(target, self.stateInFp32[k * tile.pitch], tile.whole)

    def WriteFinalState(self, chunk: Chunk, tile: Tile) -> None:
        """Float32 [Dk, Dv] to half [Dv, Dk], element by element."""
        out = self.QueuedHalves(self.stateInFp32, self.realK_ * tile.pitch)
        self.VectorToScalar()
        for v in range(tile.width):
            offset = self.StateOffset(chunk.batch, chunk.head, tile.v + v)
            for k in range(self.realK_):
                self.finalStateGm_.SetValue(offset + k, out.GetValue(k * tile.pitch + v))
        self.stateOutQueue_.FreeTensor(out)
