"""The public version's suspected faults (facts 7), each a method of the mended kernel as it was before.

A launch as the public host makes it checks nothing: `host.launch`, not `host.chunk_gated_delta_rule`. What a checker or
a result says of each fault is a test. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import numpy as np

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.carving import Carving
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule, Item
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import LANES, Chunk, Float, Tile
from pytest_kernbench.simulator.ascend310p.asc import LocalTensor


class FaithfulChunkGatedDeltaRule(ChunkGatedDeltaRule):
    """Facts 7: 1, 3, 5, 7, 9, 12, 13, and the upper triangle of facts 6.1.

    Fault 11 (no slack for a reserve of the runtime's) is the tiling's `ub`.
    """

    BUFFER_NUM = 1  # 12: known to the kernel alone

    def DotFp32(self, one: LocalTensor[Float], other: LocalTensor[Float]) -> Float:
        """1: no barrier between products and sums, and the sums fall on the products."""
        asc, repeats, products = self.asc, self.realK_ // LANES, self.dotProductFp32
        asc.Mul(products, one, other, self.realK_)
        if repeats:
            asc.WholeReduceSum(products, products, LANES, repeats, 1, 1, 8)
        self.VectorToScalar()
        total = Float(0)
        for repeat in range(repeats):
            total = total + products.GetValue(repeat)
        for k in range(repeats * LANES, self.realK_):
            total = total + products.GetValue(k)
        return total

    def DecayColumns(self, chunk: Chunk, i: int) -> int:
        """6.1: above the diagonal too, where steep gates make infinities; nobody uses them."""
        return chunk.length

    def CopyState(self, item: Item) -> None:
        """3: nobody writes the final state of a sequence without tokens."""

    def ScalarExp(self, x: Float) -> Float:
        """5: half of an infinity is one, so the halving does not end."""
        value, halvings = np.abs(x), 0
        while value > 1:
            self.asc.GetBlockIdx()  # said so that max_ops counts the turns
            value, halvings = value * Float(0.5), halvings + 1
        result = self.TaylorExp(value)
        for _ in range(halvings):
            result = result * result
        return Float(1) / result if x < 0 else result

    def QkHead(self, head: int) -> int:
        """7: heads that do not divide, or more key heads than value heads, go somewhere."""
        return head // max(self.NV_ // self.NK_, 1)

    def CheckTiling(self) -> None:
        """9: neither lengths nor sizes are held against the tensors."""

    def BufferNum(self) -> int:
        """12: another number than the host's, if either is changed alone."""
        return self.BUFFER_NUM

    def Carve(self) -> Carving:
        """13: the cursor stays where the last slice begins, so one more slice would lie on it."""
        carving = super().Carve()
        last = carving.slice("expGCumFp32")
        back = last.end - last.offset
        slices = [
            each._replace(offset=each.offset - back) if each.offset > last.offset else each for each in carving.slices
        ]
        return carving._replace(slices=tuple(slices))

    # No faults, but counted: what the mended kernel does not do

    def TileOf(self, number: int) -> Tile:
        """Rows of a narrower last tile are as long as the others'."""
        return super().TileOf(number)._replace(pitch=self.vStepAligned_)

    def ReadInitialState(self, chunk: Chunk, tile: Tile) -> None:
        """A flag behind the state's numbers, beside the barrier on all pipes."""
        super().ReadInitialState(chunk, tile)
        self.ScalarToVector()
