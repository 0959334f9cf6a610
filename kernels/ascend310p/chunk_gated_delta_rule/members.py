"""What the phases of the kernel share: sizes, views of GM, slices of UB, and the ways to hand bytes from pipe to pipe.

A phase takes the `Chunk` it works on, and the `Tile` of V; whatever else it needs is a member. Slices have owners, and
what stages something in another's bytes has borrowed them. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import FP32_NUM_PER_BLOCK, Tiling, ceil_to
from pytest_kernbench.simulator.ascend310p.asc import (
    Asc,
    Event,
    GlobalTensor,
    LocalTensor,
    TBuf,
    TQue,
    TQueSync,
)

T = TypeVar("T")
Float: TypeAlias = np.float32
Half: TypeAlias = np.float16
TAYLOR_TERMS = 12
LANES = 64  # floats of a repeat
FP16_NUM_PER_BLOCK = 16


class Chunk(NamedTuple):
    """`length` tokens from `token` on, of one value head of one sequence."""

    batch: int
    head: int
    qk_head: int
    token: int
    length: int
    first: bool
    last: bool


class Tile(NamedTuple):
    """Columns [v, v + width) of V; `pitch` floats from row to row in UB."""

    v: int
    width: int
    pitch: int

    @property
    def whole(self) -> int:
        """Floats of the blocks that hold a row of the width."""
        return ceil_to(self.width, FP32_NUM_PER_BLOCK)


class Members:
    """The kernel's members; the scalar unit's own exponential; fences."""

    asc: Asc
    tiling: Tiling
    scale: Float
    # Sizes
    chunkSize_: int
    B_: int
    NK_: int
    NV_: int
    realK_: int
    realV_: int
    alignK_: int
    stateStrideK_: int
    stateStrideV_: int
    vStep_: int
    vStepAligned_: int
    blockIdx_: int
    blockNum_: int
    # Views of GM
    queryGm_: GlobalTensor[Half]
    keyGm_: GlobalTensor[Half]
    valueGm_: GlobalTensor[Half]
    betaGm_: GlobalTensor[Half]
    initStateGm_: GlobalTensor[Half]
    seqLengthsGm_: GlobalTensor[np.int32]
    gGm_: GlobalTensor[Float] | None  # None if there is no gate
    attnOutGm_: GlobalTensor[Half]
    finalStateGm_: GlobalTensor[Half]
    stateWorkspaceGm_: GlobalTensor[Float]
    # UB
    stateOutQueue_: TQue
    tmpBuff: TBuf
    chunkKFp32: LocalTensor[Float]
    kCumdecayFp32: LocalTensor[Float]
    decayMaskFp32: LocalTensor[Float]
    chunkVFp32: LocalTensor[Float]
    chunkScoresFp32: LocalTensor[Float]
    stateInFp32: LocalTensor[Float]
    chunkAttnOutFp32: LocalTensor[Float]
    gCumsumFp32: LocalTensor[Float]
    deltaFp32: LocalTensor[Float]
    dotProductFp32: LocalTensor[Float]
    expGCumFp32: LocalTensor[Float]
    # UB that is borrowed
    keyStaging: LocalTensor[Half]
    queryStaging: LocalTensor[Half]
    valueStaging: LocalTensor[Half]
    queryCache: LocalTensor[Float]
    dotSums: LocalTensor[Float]
    # Flags between S and V
    sToV: TQueSync
    vToS: TQueSync

    # Order between pipes

    def CoefficientReady(self) -> None:
        """S has the scalar of the next vector instruction: one pair of flags a coefficient."""
        self.sToV.SetFlag(0)
        self.sToV.WaitFlag(0)

    def Ready(self, terms: Iterable[T]) -> Iterator[T]:
        """Terms of a sum, each with a coefficient that S takes from memory, one handed to V after the other."""
        for term in terms:
            self.CoefficientReady()
            yield term

    def ScalarToVector(self) -> None:
        """What S has stored in UB is there for V."""
        self.sToV.SetFlag(0)
        self.sToV.WaitFlag(0)

    def VectorToScalar(self) -> None:
        """What V has written is there for S."""
        self.vToS.SetFlag(0)
        self.vToS.WaitFlag(0)

    def Fence(self, event: Event) -> None:
        """The event's second pipe waits for its first."""
        number = self.asc.FetchEventID(event)
        self.asc.SetFlag(event, number)
        self.asc.WaitFlag(event, number)

    def StagingIsFree(self) -> None:
        """Neither S nor V is still at the bytes that MTE2 will write."""
        self.Fence(self.asc.HardEvent.S_MTE2)
        self.Fence(self.asc.HardEvent.V_MTE2)

    # Arithmetic of the scalar unit

    def ScalarExp(self, x: Float) -> Float:
        """e to the x: halve until |x| is at most 1, a Taylor series, square as often; infinities at once."""
        if np.isinf(x):
            return Float(0) if x < 0 else x
        value, halvings = np.abs(x), 0
        while value > 1:
            value, halvings = value * Float(0.5), halvings + 1
        result = self.TaylorExp(value)
        for _ in range(halvings):
            result = result * result
        return Float(1) / result if x < 0 else result

    @staticmethod
    def TaylorExp(x: Float) -> Float:
        """e to the x for x from 0 to 1."""
        result, term = Float(1), Float(1)
        for number in range(1, TAYLOR_TERMS + 1):
            term = term * x / Float(number)
            result = result + term
        return result

    # Where things are

    def QkOffset(self, chunk: Chunk, row: int = 0) -> int:
        """The first element of a token's key, or query."""
        return ((chunk.token + row) * self.NK_ + chunk.qk_head) * self.realK_

    def HeadOffset(self, chunk: Chunk, row: int = 0) -> int:
        """A token's element of beta, or g."""
        return (chunk.token + row) * self.NV_ + chunk.head

    def ValueOffset(self, chunk: Chunk, tile: Tile, row: int = 0) -> int:
        """The first element of a token's tile of V, or of the output."""
        return self.HeadOffset(chunk, row) * self.realV_ + tile.v

    def StateOffset(self, batch: int, head: int, v: int) -> int:
        """The first element of a column of the state in [B, Hv, Dv, Dk]."""
        return ((batch * self.NV_ + head) * self.realV_ + v) * self.realK_

    def WorkspaceOffset(self, chunk: Chunk, tile: Tile, k: int) -> int:
        """The first element of a tile's row of the state in the workspace [B, Hv, Dk, align8(Dv)]."""
        return ((chunk.batch * self.NV_ + chunk.head) * self.realK_ + k) * self.stateStrideV_ + tile.v

    # What a DMA can move: rows of whole blocks

    def KeysByDma(self) -> bool:
        """Whether rows of K and Q are whole blocks."""
        return self.realK_ == self.alignK_

    def ValuesByDma(self, tile: Tile) -> bool:
        """Whether rows of a tile are whole blocks, in GM and in UB."""
        return not (tile.width % FP16_NUM_PER_BLOCK or self.realV_ % FP16_NUM_PER_BLOCK)
