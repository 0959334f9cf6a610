"""The phases that a chunk goes through once: K, gates, the two triangular matrices, and K through the first of them.

Every matrix product is a scalar coefficient and a vector instruction over a row. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import (
    FP16_NUM_PER_BLOCK,
    LANES,
    Chunk,
    Float,
    Half,
    Members,
)
from pytest_kernbench.simulator.ascend310p.asc import GlobalTensor, LocalTensor


class KeySide(Members):
    """K side of a chunk of L tokens: leaves W in chunkKFp32, T in chunkScoresFp32, QK^T * D in decayMaskFp32."""

    def LoadChunkKey(self, chunk: Chunk) -> None:
        """K [L, Dk] in float32, rows of alignK."""
        self.StagingIsFree()
        if self.KeysByDma():
            self.CopyQkRows(self.keyStaging, self.keyGm_, chunk)
            self.Fence(self.asc.HardEvent.MTE2_V)
            count = chunk.length * self.alignK_
            self.asc.Cast(self.chunkKFp32, self.keyStaging, self.asc.RoundMode.CAST_NONE, count)
        else:
            self.LoadKeyByScalar(chunk)
        self.ScalarToVector()
        self.asc.PipeBarrier(self.asc.PIPE_V)

    def LoadKeyByScalar(self, chunk: Chunk) -> None:
        """The slow path: element by element."""
        for i in range(chunk.length):
            offset = self.QkOffset(chunk, i)
            for k in range(self.realK_):
                self.chunkKFp32.SetValue(i * self.alignK_ + k, Float(self.keyGm_.GetValue(offset + k)))

    def CopyQkRows(self, staging: LocalTensor[Half], source: GlobalTensor[Half], chunk: Chunk) -> None:
        """Rows of one head, which lie Hk * Dk apart: one 2D DMA."""
        blocks = self.realK_ // FP16_NUM_PER_BLOCK
        rows = self.asc.DataCopyParams(chunk.length, blocks, (self.NK_ - 1) * blocks, 0)
        self.asc.DataCopy(staging, source[self.QkOffset(chunk)], rows)

    def ComputeGCumsum(self, chunk: Chunk) -> None:
        """G_i = g_0 + .. + g_i within the chunk; zeros without a gate."""
        total = Float(0)
        for i in range(chunk.length):
            if self.gGm_ is not None:
                total = total + self.gGm_.GetValue(self.HeadOffset(chunk, i))
            self.gCumsumFp32.SetValue(i, total)
        self.ScalarToVector()

    def ComputeKBeta(self, chunk: Chunk) -> None:
        """kCumdecay = beta K."""
        for i in range(chunk.length):
            beta = Float(self.betaGm_.GetValue(self.HeadOffset(chunk, i)))
            self.CoefficientReady()
            row = i * self.alignK_
            self.asc.Muls(self.kCumdecayFp32[row], self.chunkKFp32[row], beta, self.realK_)
        self.asc.PipeBarrier(self.asc.PIPE_V)

    def PrepareDecayAndExp(self, chunk: Chunk) -> None:
        """expGCum = e^G and decayMask_ij = e^(G_i - G_j), up to the diagonal, behind which it may be infinite."""
        asc, length = self.asc, chunk.length
        asc.Duplicate(self.expGCumFp32, 0.0, self.chunkSize_)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Exp(self.expGCumFp32, self.gCumsumFp32, length)
        for i in range(length):
            gi = self.gCumsumFp32.GetValue(i)
            row = self.decayMaskFp32[i * self.chunkSize_]
            columns = self.DecayColumns(chunk, i)
            self.CoefficientReady()
            asc.Duplicate(row, gi, columns)
            asc.PipeBarrier(asc.PIPE_V)
            asc.Sub(row, row, self.gCumsumFp32, columns)
            asc.PipeBarrier(asc.PIPE_V)
            asc.Exp(row, row, columns)
        asc.PipeBarrier(asc.PIPE_V)
        self.VectorToScalar()

    def DecayColumns(self, chunk: Chunk, i: int) -> int:
        """How many decays of row i there are: one repeat in any case."""
        return i + 1

    def PrepareAttnQueryCache(self, chunk: Chunk) -> bool:
        """scale * Q where the output will be, if it fits there and a DMA can bring it; whether it is there."""
        asc, count = self.asc, chunk.length * self.alignK_
        if not self.KeysByDma() or count > self.chunkSize_ * self.vStepAligned_:
            return False
        self.StagingIsFree()
        self.CopyQkRows(self.queryStaging, self.queryGm_, chunk)
        self.Fence(asc.HardEvent.MTE2_V)
        asc.Cast(self.queryCache, self.queryStaging, asc.RoundMode.CAST_NONE, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Muls(self.queryCache, self.queryCache, self.scale, count)
        asc.PipeBarrier(asc.PIPE_V)
        return True

    def ComputeAttnMatrix(self, chunk: Chunk, cached: bool) -> None:
        """scores = T = (I + strictLower(beta K K^T * D))^-1, then decayMask = lower(scale Q K^T * D)."""
        for i in range(chunk.length):
            self.ComputeKkRow(i)
            self.ScalarToVector()
            self.SubstituteRow(i)
        self.VectorToScalar()
        for i in range(chunk.length):
            self.ComputeQkRow(i, self.QueryRow(chunk, i, cached))

    def ComputeKkRow(self, i: int) -> None:
        """Row i of -beta K K^T * D left of the diagonal, and 1 on it."""
        row = i * self.chunkSize_
        for j in range(i):
            dot = self.DotFp32(self.kCumdecayFp32[i * self.alignK_], self.chunkKFp32[j * self.alignK_])
            self.chunkScoresFp32.SetValue(row + j, -(dot * self.decayMaskFp32.GetValue(row + j)))
        self.chunkScoresFp32.SetValue(row + i, Float(1))

    def SubstituteRow(self, i: int) -> None:
        """Forward substitution: row i += A_im * row m left of m, in the order in which no A_im is changed before."""
        asc, size = self.asc, self.chunkSize_
        row = self.chunkScoresFp32[i * size]
        for m in range(1, i):
            asc.Axpy(row, self.chunkScoresFp32[m * size], row.GetValue(m), m)
            asc.PipeBarrier(asc.PIPE_V)

    def ComputeQkRow(self, i: int, query: LocalTensor[Float]) -> None:
        """Row i of scale Q K^T * D, up to the diagonal, over the mask."""
        row = i * self.chunkSize_
        for j in range(i + 1):
            dot = self.DotFp32(query, self.chunkKFp32[j * self.alignK_])
            self.decayMaskFp32.SetValue(row + j, dot * self.decayMaskFp32.GetValue(row + j))

    def QueryRow(self, chunk: Chunk, i: int, cached: bool) -> LocalTensor[Float]:
        """Row i of scale * Q: in the cache, or brought to deltaFp32 element by element."""
        if cached:
            return self.queryCache[i * self.alignK_]
        offset = self.QkOffset(chunk, i)
        for k in range(self.realK_):
            self.deltaFp32.SetValue(k, Float(self.queryGm_.GetValue(offset + k)) * self.scale)
        self.ScalarToVector()
        return self.deltaFp32

    def DotFp32(self, one: LocalTensor[Float], other: LocalTensor[Float]) -> Float:
        """The dot product of two rows of Dk: products, a sum for each whole repeat, the rest by the scalar unit."""
        asc, repeats = self.asc, self.realK_ // LANES
        asc.Mul(self.dotProductFp32, one, other, self.realK_)
        if repeats:
            asc.PipeBarrier(asc.PIPE_V)
            asc.WholeReduceSum(self.dotSums, self.dotProductFp32, LANES, repeats, 1, 1, 8)
        self.VectorToScalar()
        total = Float(0)
        for repeat in range(repeats):
            total = total + self.dotSums.GetValue(repeat)
        for k in range(repeats * LANES, self.realK_):
            total = total + self.dotProductFp32.GetValue(k)
        return total

    def ComputeKCumdecay(self, chunk: Chunk) -> None:
        """W = T (beta e^G K), over K."""
        asc, width = self.asc, self.alignK_
        for i in range(chunk.length):
            row = self.kCumdecayFp32[i * width]
            asc.Muls(row, row, self.expGCumFp32.GetValue(i), self.realK_)
            asc.Duplicate(self.chunkKFp32[i * width], 0.0, self.realK_)
        asc.PipeBarrier(asc.PIPE_V)
        self.AddLowerTriangle(chunk, self.chunkScoresFp32, self.chunkKFp32, self.kCumdecayFp32, width, self.realK_)
        self.VectorToScalar()

    def AddLowerTriangle(
        self,
        chunk: Chunk,
        matrix: LocalTensor[Float],
        target: LocalTensor[Float],
        source: LocalTensor[Float],
        pitch: int,
        count: int,
    ) -> None:
        """target += lower(matrix) source, the diagonal included: an Axpy a coefficient."""
        asc = self.asc
        for i in range(chunk.length):
            row = target[i * pitch]
            terms = ((source[j * pitch], matrix.GetValue(i * self.chunkSize_ + j)) for j in range(i + 1))
            for values, coefficient in self.Ready(terms):
                asc.Axpy(row, values, coefficient, count)
                asc.PipeBarrier(asc.PIPE_V)
