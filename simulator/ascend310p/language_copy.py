"""`asc`'s DataCopy: GM to UB on MTE2, UB to GM on MTE3, UB to UB on V; whole blocks of 32 bytes (facts 2.5).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.ascend310p.cache import ScalarCache
from pytest_kernbench.simulator.ascend310p.core import Stuck, TooLate
from pytest_kernbench.simulator.ascend310p.effects import Deed
from pytest_kernbench.simulator.ascend310p.language_vector import VectorCalls
from pytest_kernbench.simulator.ascend310p.speech import Judges, Rows
from pytest_kernbench.simulator.ascend310p.tensors import GlobalTensor, LocalTensor, Tensor
from pytest_kernbench.simulator.ascend310p.vocabulary import DataCopyParams, Pipe
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.semantics.vector import copy

BLOCK = 32
MOST_BLOCKS, MOST_LENGTH, MOST_GAP = 4095, 65_535, 65_535
Spans = tuple[tuple[int, int], ...]


class End(NamedTuple):
    """One side of a copy: where it starts, its bytes, and how it is named in the log."""

    lo: int
    base: int
    label: str
    bytes: Array | None
    host: Tensor | None


class CopyCalls(VectorCalls):
    """What moves bytes in whole blocks."""

    cache: ScalarCache

    def DataCopy(self, dst: Any, src: Any, count: Any) -> None:
        """`count` elements, or what `DataCopyParams` says. A count that is not whole blocks is rounded down."""
        frame = sys._getframe(1)
        pipe = self._direction(dst, src, frame)
        size = src.type.size
        if isinstance(count, DataCopyParams):
            params = self._checked(count, frame)
        else:
            elements = self.whole(count, 1, 2**31, "count", "DataCopy", frame)
            params = DataCopyParams(1, elements * size // BLOCK)
            if elements * size % BLOCK:
                lost = elements * size % BLOCK // size
                fact = f"{elements} elements of {src.type} are {elements * size} bytes, {lost} elements are not copied"
                self.found(
                    frame,
                    "truncated-copy",
                    "DataCopy",
                    fact,
                    "round the count up to 32 bytes, or copy the tail by itself",
                )
            if params.blockLen == 0:
                self.counted(frame)
                return
        self._copy(pipe, dst, src, params, frame)

    def _direction(self, dst: Any, src: Any, frame: FrameType) -> Pipe:
        sides = (isinstance(src, LocalTensor), isinstance(dst, LocalTensor))
        known = all(isinstance(each, LocalTensor | GlobalTensor) for each in (dst, src))
        if not known or sides == (False, False):
            said = f"from {type(src).__name__} to {type(dst).__name__}"
            self.refuse(
                frame, "bad-parameter", "DataCopy", said, "copy between a GlobalTensor and a LocalTensor, or in UB"
            )
        if dst.type is not src.type:
            self.refuse(
                frame, "bad-parameter", "DataCopy", f"from {src.type} to {dst.type}", "both sides have one type"
            )
        for each in (dst, src):
            if isinstance(each, GlobalTensor) and each.tensor is None:
                self.refuse(frame, "bad-parameter", "DataCopy", f"{each!r}", "SetGlobalBuffer first")
        return Pipe.V if all(sides) else Pipe.MTE3 if sides[0] else Pipe.MTE2

    def _checked(self, params: DataCopyParams, frame: FrameType) -> DataCopyParams:
        limits = ((1, MOST_BLOCKS), (1, MOST_LENGTH), (0, MOST_GAP), (0, MOST_GAP))
        numbers = [
            self.whole(each, *limit, name, "DataCopy", frame)
            for each, limit, name in zip(params, limits, params._fields, strict=True)
        ]
        return DataCopyParams(*numbers)

    def _copy(self, pipe: Pipe, dst: Any, src: Any, params: DataCopyParams, frame: FrameType) -> None:
        blocks, length = params.blockCount, params.blockLen * BLOCK
        steps = length + params.srcGap * BLOCK, length + params.dstGap * BLOCK
        for who, tensor, step in (("src", src, steps[0]), ("dst", dst, steps[1])):
            self._check_side(who, tensor, (blocks - 1) * step + length, frame)
            if isinstance(tensor, LocalTensor):
                self.stale(tensor.buffer, who, "DataCopy", frame)
        source, target = self._end(src), self._end(dst)
        reads, writes = _spans(source.lo, blocks, length, steps[0]), _spans(target.lo, blocks, length, steps[1])
        if pipe is Pipe.V and self._judges is not None:
            self._check_self_overlap(reads, writes, frame)
        rows = self._copy_rows(pipe, source, target, params)
        views = None
        if source.bytes is not None and target.bytes is not None:
            views = tuple(
                np.ndarray((blocks, length), np.uint8, each.bytes, each.lo - each.base, (step, 1))
                for each, step in zip((source, target), steps, strict=True)
            )
        offsets = (source.lo - source.base, target.lo - target.base, 0, 0)
        descriptor, core = self._descriptor(rows, frame), self.core
        occupancy, latency = self._copy_cost(pipe, blocks, length)
        try:
            deed = Deed(writes[0][0], writes[-1][1], copy)
            row = core.op(core.pipes[pipe], descriptor, occupancy, latency, offsets, views, deed, reads, writes)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        self._judge_copy(row, descriptor, source, target, reads, writes, dst, src, frame)

    def _copy_cost(self, pipe: Pipe, blocks: int, length: int) -> tuple[int, int]:
        return self.timing.ub_copy(blocks * length) if pipe is Pipe.V else self.timing.copy(blocks * length, blocks)

    def _copy_rows(self, pipe: Pipe, source: End, target: End, params: DataCopyParams) -> Rows:
        key = ("DataCopy", pipe, source.label, target.label, params)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = self._new_copy_rows(pipe, source, target, params)
        return found

    def _new_copy_rows(self, pipe: Pipe, source: End, target: End, params: DataCopyParams) -> Rows:
        blocks, length = params.blockCount, params.blockLen * BLOCK
        labels = self.log.labels.id
        spans = [
            (labels(end.label), (blocks - 1) * (length + gap * BLOCK) + length)
            for end, gap in ((source, params.srcGap), (target, params.dstGap))
        ]
        occupancy, _ = self._copy_cost(pipe, blocks, length)
        return Rows(
            pipe, "DataCopy", (blocks, length), bytes=blocks * length, charged=blocks * length, occupancy=occupancy,
            reads=(spans[0],), writes=(spans[1],), runs=blocks if blocks > 1 else 0,
        )  # fmt: skip

    def _end(self, tensor: LocalTensor | GlobalTensor) -> End:
        if isinstance(tensor, LocalTensor):
            return End(tensor.lo, 0, "UB", self.ub, None)
        host = tensor.tensor
        assert host is not None
        return End(tensor.lo, host.base, host.name, None if self.ub is None else host.bytes, host)

    def _check_side(self, who: str, tensor: LocalTensor | GlobalTensor, span: int, frame: FrameType) -> None:
        held = tensor.size * tensor.type.size
        if span > held:
            fact = f"{who} has {held} bytes, the copy takes {span} (of {tensor!r})"
            self.refuse(
                frame, "out-of-bounds", "DataCopy", fact, "lower the count; lengths and gaps are in blocks of 32 bytes"
            )
        if isinstance(tensor, LocalTensor):
            if tensor.lo % BLOCK:
                self.refuse_unaligned(tensor, who, frame)
        elif tensor.lo % tensor.type.size:
            fact = f"{who} is not at a whole element of {tensor.type}"
            self.refuse(frame, "misaligned", "DataCopy", fact, "start at a whole element")

    def refuse_unaligned(self, tensor: LocalTensor, who: str, frame: FrameType) -> None:
        """A DMA wants blocks, whatever vector instructions may be let do."""
        fact = f"{who} starts at byte {tensor.lo} of UB, which is {tensor.lo % BLOCK} past a multiple of {BLOCK}"
        self.refuse(frame, "misaligned", "DataCopy", fact, "offsets of [] count elements: pad rows to 32 bytes")

    def _check_self_overlap(self, reads: Spans, writes: Spans, frame: FrameType) -> None:
        if any(lo < high and low < hi for lo, hi in reads for low, high in writes):
            self.found(
                frame,
                "illegal-overlap",
                "DataCopy",
                "source and target share bytes of UB",
                "copy to bytes of their own",
            )

    def _judge_copy(
        self,
        row: int,
        descriptor: int,
        source: End,
        target: End,
        reads: Spans,
        writes: Spans,
        dst: Any,
        src: Any,
        frame: FrameType,
    ) -> None:
        if self.cache.private and source.host is not None:
            self.cache.dma_reads(self, source.host, reads, frame)
        if self.cache.private and target.host is not None:
            self.cache.dma_writes(writes)
        judges = self._judges
        if judges is None:
            return
        from_, to = (judges.ub if each.host is None else judges.memories[each.host.number] for each in (source, target))
        owner = dst.owner if isinstance(dst, LocalTensor) else 0
        if judges.shadow.suspicious and isinstance(src, LocalTensor):
            for lo, hi in reads:
                judges.shadow.aliased(judges.ub, row, lo, hi, src.owner)
        self._judge_transfer(judges, row, source, target, reads, writes)
        for (lo, hi), (to_lo, _) in zip(reads, writes, strict=True):
            judges.shadow.copy(from_, lo, to, to_lo, hi - lo, row, owner)
        for end, spans, write in ((source, reads, False), (target, writes, True)):
            if end.host is not None:
                for lo, hi in spans:
                    judges.footprint.add(write, descriptor, row, lo, hi)

    @staticmethod
    def _judge_transfer(judges: Judges, row: int, source: End, target: End, reads: Spans, writes: Spans) -> None:
        """Which copies of GM stand in UB, and which of them were read."""
        transfers = judges.transfers
        if source.host is None:
            for lo, hi in reads:
                transfers.read(lo, hi)
        if target.host is not None:
            for lo, hi in writes:
                transfers.gm_written(target.host.base, lo, hi)
        elif source.host is not None:
            transfers.fetched(row, reads, writes)
        else:
            for lo, hi in writes:
                transfers.overwritten(lo, hi)


def _spans(lo: int, blocks: int, length: int, step: int) -> Spans:
    """The bytes of each block, in order."""
    if blocks == 1:
        return ((lo, lo + length),)
    return tuple([(lo + number * step, lo + number * step + length) for number in range(blocks)])
