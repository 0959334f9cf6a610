"""The gated delta rule in chunks of 64 tokens on the vector cores of an Ascend 310P, without the Cube.

The phases and their names are the public kernel's (facts 1), with its faults mended; `faithful` has them. Nothing is
ordered but by flags, barriers and queues that are said here. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.carving import Carving, carve
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk, Float, Tile
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import (
    FP16_BYTES,
    FP16_NUM_PER_BLOCK,
    FP32_BYTES,
    FP32_NUM_PER_BLOCK,
    Tiling,
    ceil_to,
)
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.value_side import ValueSide
from pytest_kernbench.simulator.ascend310p.asc import Asc, ElementType, GlobalTensor, Pointer

E = TypeVar("E", bound=np.generic)


class Tensors(NamedTuple):
    """The kernel's pointers into GM: halves but for `lengths` int32, `g` and `workspace` float32.

    query and key [T, Hk, Dk], value [T, Hv, Dv], beta [T, Hv], initial_state [B, Hv, Dv, Dk], lengths [B], g [T, Hv] or
    None, out [T, Hv, Dv], final_state [B, Hv, Dv, Dk], workspace [B, Hv, Dk, align8(Dv)].
    """

    query: Pointer
    key: Pointer
    value: Pointer
    beta: Pointer
    initial_state: Pointer
    lengths: Pointer
    g: Pointer | None
    out: Pointer
    final_state: Pointer
    workspace: Pointer


class Item(NamedTuple):
    """What a block does alone: a sequence of a value head, and which tiles of V."""

    batch: int
    head: int
    token: int
    length: int
    tiles: range


class ChunkGatedDeltaRule(ValueSide):
    """The kernel's class: `Init` once, then `Process`."""

    MORE_SLICES: tuple[tuple[str, int], ...] = ()  # of another version: name and elements
    APART = False  # whether the state has bytes of its own

    def __init__(self, tiling: Tiling, scale: float, *, asc: Asc) -> None:
        shape = tiling.shape
        self.asc, self.tiling, self.scale = asc, tiling, Float(scale)
        self.chunkSize_, self.vStep_ = tiling.chunk, tiling.v_step
        self.B_, self.NK_, self.NV_ = shape.batch, shape.hk, shape.hv
        self.realK_, self.realV_ = shape.dk, shape.dv
        self.alignK_ = ceil_to(shape.dk, FP16_NUM_PER_BLOCK)
        self.stateStrideK_ = ceil_to(shape.dk, FP32_NUM_PER_BLOCK)
        self.stateStrideV_ = ceil_to(shape.dv, FP32_NUM_PER_BLOCK)
        self.vStepAligned_ = ceil_to(tiling.v_step, FP32_NUM_PER_BLOCK)
        self.blockIdx_, self.blockNum_ = asc.GetBlockIdx(), asc.GetBlockNum()
        self.sToV = asc.TQueSync(asc.PIPE_S, asc.PIPE_V)
        self.vToS = asc.TQueSync(asc.PIPE_V, asc.PIPE_S)

    # Buffers

    def Init(self, tensors: Tensors) -> None:
        """Views of GM, held against the tiling's shape, and UB."""
        half, float32 = self.asc.half, self.asc.float32
        self.queryGm_ = self.View(half, tensors.query)
        self.keyGm_ = self.View(half, tensors.key)
        self.valueGm_ = self.View(half, tensors.value)
        self.betaGm_ = self.View(half, tensors.beta)
        self.initStateGm_ = self.View(half, tensors.initial_state)
        self.seqLengthsGm_ = self.View(self.asc.int32_t, tensors.lengths)
        self.gGm_ = None if tensors.g is None else self.View(float32, tensors.g)
        self.attnOutGm_ = self.View(half, tensors.out)
        self.finalStateGm_ = self.View(half, tensors.final_state)
        self.stateWorkspaceGm_ = self.View(float32, tensors.workspace)
        self.CheckTiling()
        self.InitLocalBuffers()

    def View(self, kind: ElementType[E], pointer: Pointer) -> GlobalTensor[E]:
        """A GlobalTensor of all that the pointer points to."""
        view = self.asc.GlobalTensor(kind)
        view.SetGlobalBuffer(pointer)
        return view

    def CheckTiling(self) -> None:
        """The tiling is that of these tensors and of this launch: ValueError with both numbers if it is not."""
        shape, blocks = self.tiling.shape, self.tiling.block_dim
        if shape.hv % shape.hk:
            raise ValueError(f"{shape.hv} value heads for {shape.hk} key heads: {shape.hv} / {shape.hk} is not whole")
        for name, view, elements in self.Expected():
            if view is not None and view.GetSize() != elements:
                raise ValueError(
                    f"the tiling is for {elements} elements of {name} ({shape}), the tensor has {view.GetSize()}: "
                    f"make the tiling of the shape that is launched"
                )
        if self.blockNum_ != blocks:
            raise ValueError(
                f"the tiling is for {blocks} blocks, the grid has {self.blockNum_}: launch on grid=tiling.block_dim"
            )

    def Expected(self) -> tuple[tuple[str, GlobalTensor[Any] | None, int], ...]:
        """Name, view and elements of each tensor of the tiling's shape; GM holds one token even if there is none."""
        shape = self.tiling.shape
        tokens, state = max(shape.tokens, 1), shape.batch * shape.hv * shape.dk * shape.dv
        qk, v, gates = tokens * shape.hk * shape.dk, tokens * shape.hv * shape.dv, tokens * shape.hv
        return (
            ("query", self.queryGm_, qk), ("key", self.keyGm_, qk), ("value", self.valueGm_, v),
            ("beta", self.betaGm_, gates), ("initial_state", self.initStateGm_, state),
            ("lengths", self.seqLengthsGm_, shape.batch), ("g", self.gGm_, gates), ("out", self.attnOutGm_, v),
            ("final_state", self.finalStateGm_, state),
            ("workspace", self.stateWorkspaceGm_, self.tiling.state_bytes // FP32_BYTES),
        )  # fmt: skip

    def InitLocalBuffers(self) -> None:
        """The queue out, and the slices of what is left of UB."""
        asc, pipe = self.asc, self.asc.TPipe()
        carving = self.Carve()
        self.stateOutQueue_ = asc.TQue(asc.TPosition.VECOUT, 1)
        pipe.InitBuffer(self.stateOutQueue_, self.BufferNum(), carving.out_queue_bytes)
        self.tmpBuff = asc.TBuf(asc.TPosition.VECCALC)
        pipe.InitBuffer(self.tmpBuff, self.tiling.ub_rest_bytes)
        asc.planned(self.tmpBuff, self.tiling.tmp_bytes)
        for each in carving.slices:
            cut = self.tmpBuff.GetWithOffset(asc.float32, each.elements, each.offset)
            shared = each.name == "stateInFp32" and carving.overlap
            view = asc.borrow(cut, "chunkScoresFp32", each.name) if shared else asc.own(cut, each.name)
            setattr(self, each.name, view)
        self.BorrowBuffers()

    def Carve(self) -> Carving:
        """What this block cuts out of UB."""
        return carve(
            chunk=self.chunkSize_, dk=self.realK_, dv=self.realV_, v_step=self.vStep_, hv=self.NV_,
            blocks=self.blockNum_, more=self.MORE_SLICES, apart=self.APART,
        )  # fmt: skip

    def BufferNum(self) -> int:
        """Buffers of the queue out, as the host counted them."""
        return self.tiling.buffer_num

    def BorrowBuffers(self) -> None:
        """Who works in whose bytes, while the owner has nothing in them (facts 1)."""
        asc = self.asc
        values, output, keys = self.chunkVFp32, self.chunkAttnOutFp32, self.kCumdecayFp32
        narrow = self.chunkSize_ * self.alignK_ * FP16_BYTES > self.chunkSize_ * self.vStepAligned_ * FP32_BYTES
        lender, owner = (keys, "kCumdecayFp32") if narrow else (values, "chunkVFp32")  # K is not yet scaled; no V yet
        self.keyStaging = asc.borrow(lender, owner, "keyStaging").ReinterpretCast(asc.half)
        self.queryStaging = asc.borrow(values, "chunkVFp32", "queryStaging").ReinterpretCast(asc.half)
        self.valueStaging = asc.borrow(output, "chunkAttnOutFp32", "valueStaging").ReinterpretCast(asc.half)
        self.queryCache = asc.borrow(output, "chunkAttnOutFp32", "queryCache")
        self.dotSums = asc.borrow(values, "chunkVFp32", "dotSums")

    # Work

    def Process(self) -> None:
        """This block's share of all sequences and heads."""
        for item in self.Items():
            if item.length == 0:
                self.CopyState(item)
            else:
                self.ProcessItem(item)

    def Items(self) -> Iterator[Item]:
        """All items in one order, of which a block takes those that begin in its share of the tokens."""
        parts = self.TilesOfItems()
        lengths = [self.LengthOf(batch) for batch in range(self.B_)]
        share = max(-(-sum(lengths) * self.NV_ * len(parts) // self.blockNum_), 1)
        done = token = 0
        for batch, length in enumerate(lengths):
            for head in range(self.NV_):
                for tiles in parts:
                    if min(done // share, self.blockNum_ - 1) == self.blockIdx_:
                        yield Item(batch, head, token, length, tiles)
                    done += length
            token += length

    def TilesOfItems(self) -> list[range]:
        """The tiles of V of each item of a head: dealt one by one if there are more blocks than heads, else all."""
        tiles = self.tiling.tiles
        if self.blockNum_ > self.NV_:
            return [range(tile, tile + 1) for tile in range(tiles)]
        return [range(tiles)]

    def LengthOf(self, batch: int) -> int:
        """Tokens of a sequence."""
        return int(self.seqLengthsGm_.GetValue(batch))

    def QkHead(self, head: int) -> int:
        """The query and key head of a value head: Hv / Hk heads in a row have the same."""
        return head // (self.NV_ // self.NK_)

    def ProcessItem(self, item: Item) -> None:
        """The chunks of a sequence, one after another."""
        chunks = -(-item.length // self.chunkSize_)
        for c in range(chunks):
            start = c * self.chunkSize_
            length = min(self.chunkSize_, item.length - start)
            chunk = Chunk(
                item.batch, item.head, self.QkHead(item.head), item.token + start, length, c == 0, c == chunks - 1
            )
            self.ProcessChunk(chunk, item.tiles)

    def ProcessChunk(self, chunk: Chunk, tiles: range) -> None:
        """The phases of a chunk, in order."""
        region = self.asc.region
        with region("keys"):
            self.LoadChunkKey(chunk)
            self.ComputeGCumsum(chunk)
            self.ComputeKBeta(chunk)
            self.PrepareDecayAndExp(chunk)
            cached = self.PrepareAttnQueryCache(chunk)
        with region("matrices"):
            self.ComputeAttnMatrix(chunk, cached)
        with region("cumdecay"):
            self.ComputeKCumdecay(chunk)
        for number in tiles:
            self.ProcessTile(chunk, self.TileOf(number))

    def TileOf(self, number: int) -> Tile:
        """Columns of a tile of V; the last may be narrower."""
        v = number * self.vStep_
        width = min(self.vStep_, self.realV_ - v)
        return Tile(v, width, ceil_to(width, FP32_NUM_PER_BLOCK))

    def ProcessTile(self, chunk: Chunk, tile: Tile) -> None:
        """The phases of a chunk and a tile of V, in order."""
        region = self.asc.region
        with region("values"):
            self.LoadVBeta(chunk, tile)
            self.ComputeValueNew(chunk, tile)
        with region("state"):
            self.LoadStateTile(chunk, tile)
            self.ComputeVNew(chunk, tile)
        with region("output"):
            self.ComputeAttnInter(chunk, tile)
            self.AccumOutput(chunk, tile)
            self.WriteAttnTileToGm(chunk, tile)
        with region("update"):
            self.UpdateAndWriteState(chunk, tile)

    def CopyState(self, item: Item) -> None:
        """A sequence without tokens keeps its state."""
        for number in item.tiles:
            tile = self.TileOf(number)
            first = self.StateOffset(item.batch, item.head, tile.v)
            for at in range(first, first + tile.width * self.realK_):
                self.finalStateGm_.SetValue(at, self.initStateGm_.GetValue(at))


class LengthsOfTiling(ChunkGatedDeltaRule):
    """For runs without data, in which GM holds no lengths: they are those that the tiling was made for."""

    def LengthOf(self, batch: int) -> int:
        super().LengthOf(batch)
        return self.tiling.shape.lengths[batch]


def chunk_gated_delta_rule(
    query: Pointer, key: Pointer, value: Pointer, beta: Pointer, initial_state: Pointer, lengths: Pointer,
    g: Pointer | None, out: Pointer, final_state: Pointer, workspace: Pointer, tiling: Tiling, *, scale: float = 1.0,
    variant: type[ChunkGatedDeltaRule] = ChunkGatedDeltaRule, asc: Asc,
) -> None:  # fmt: skip
    """`Tensors` in order, on a grid of `tiling.block_dim`; `variant` is the class that does it.

    Raises ValueError before the first operation for a tiling of another shape or another grid, with both numbers.
    """
    kernel = variant(tiling, scale, asc=asc)
    kernel.Init(Tensors(query, key, value, beta, initial_state, lengths, g, out, final_state, workspace))
    kernel.Process()
