"""What a vector call needs, planned once for its types, counts and strides: geometry, cost, meaning; or its refusal.

A plan knows nothing of where its operands lie (facts 2.6). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

from pytest_kernbench.simulator.ascend310p.geometry import Access, Mask, dense, lanes, stepped, strided
from pytest_kernbench.simulator.ascend310p.spec import UB_BYTES
from pytest_kernbench.simulator.ascend310p.speech import Rows, Speech
from pytest_kernbench.simulator.ascend310p.vocabulary import (
    BinaryRepeatParams,
    ElementType,
    Pipe,
    ReduceOrder,
    RoundMode,
    UnaryRepeatParams,
    float32,
    half,
    int16,
    int32,
    uint16,
    uint32,
)
from pytest_kernbench.simulator.ops.semantics import casts, reductions, vector
from pytest_kernbench.simulator.ops.semantics.vector import Compute

ARITHMETIC = (half, float32, int32, int16)
FLOATS = (half, float32)
TYPES_OF: dict[str, tuple[ElementType, ...]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Adds", "Muls", "Maxs", "Mins"), ARITHMETIC),
    "Duplicate": (half, int16, uint16, int32, uint32, float32),
    **dict.fromkeys(("And", "Or", "Not"), (int16, uint16)),
}
WIDENING = ("Axpy", "MulAddDst")  # float target, half sources
IN_PLACE = frozenset(WIDENING)
ACCUMULATING = ("Add", "Sub", "Mul", "Max", "Min")  # of half, int32_t, float
MOST_REPEATS, MOST_STRIDE, MOST_REDUCED_STRIDE = 255, 255, 65_535
MOST_SUMMED = 131_072  # repeats of ReduceSum: their sums fill UB
Types = tuple[ElementType, ...]
How = tuple[Any, ...]


class VectorPlan:
    """A call's geometry, cost and meaning, apart from where its operands lie."""

    __slots__ = (
        "alignment", "compute", "dense", "dst", "folded", "in_place", "index", "latency", "name", "need", "occupancy",
        "rows", "scalar", "scalar_type", "sources", "spans", "types", "workspace",
    )  # fmt: skip

    def __init__(
        self, name: str, compute: Compute, types: Types, sources: tuple[Access, ...], dst: Access,
        cost: tuple[int, int], labels: int, *, scalar: ElementType | None = None, alignment: int = 32,
        shape: tuple[int, ...], workspace: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.compute = compute
        self.types = types  # of the target, then of the sources
        self.sources = sources
        self.dst = dst
        self.need = (dst.need, *(each.need for each in sources))
        self.spans = tuple([need * kind.size for need, kind in zip(self.need, types, strict=True)])  # in bytes
        self.occupancy, self.latency = cost
        self.scalar = scalar  # the type that a scalar operand is rounded to
        self.scalar_type = types[-1].numpy.type  # of a scalar that needs no conversion
        self.alignment = alignment  # of the target
        self.in_place = name in IN_PLACE
        self.workspace = workspace  # the last source is room to work in: written, and nobody knows what with
        self.folded = dst.repeated
        all_dense = dst.elements is None and all(each.elements is None for each in sources)
        exact = all(each.ranges == ((0, size),) for each, size in zip((dst, *sources), self.spans, strict=True))
        self.dense = all_dense and exact  # of wide masks some bytes of the last element are not touched
        extra = () if scalar is None else (None,)
        flat = [None if each.elements is None else each.elements.reshape(-1) for each in sources]
        self.index = None if all_dense else (*flat, *extra, _target(dst))
        spans = [(labels, access.need * kind.size) for access, kind in zip((dst, *sources), types, strict=True)]
        reads = tuple(spans[1:] + (spans[:1] if self.in_place else []))
        work = max(dst.total, *(each.total for each in sources)) if sources else dst.total
        self.rows = Rows(Pipe.V, name, shape, work=work, occupancy=cost[0], reads=reads, writes=(spans[0],))


class VectorPlans(Speech):
    """Makes the plans of vector calls."""

    _deq_scale: float | None = None

    def _plan(self, name: str, how: How, types: Types, scalar: Any, frame: FrameType) -> VectorPlan:
        mask, repeats, params, *rest = how
        if name in ("WholeReduceSum", "WholeReduceMax", "WholeReduceMin", "BlockReduceSum"):
            return self._plan_reduction(name, mask, repeats, params, rest[0], types, frame)
        if name == "ReduceSum":
            return self._plan_sum(mask, repeats, params, types, frame)
        compute = self._meaning(name, types, rest, frame)
        sizes = [each.size for each in types]
        if repeats is None:
            count = self.whole(mask, 1, UB_BYTES, "count", name, frame)
            accesses = [dense(count, size) for size in sizes]
            passes, shape = -(-count * max(sizes) // 256), one_axis(count)
        else:
            selected = self._lanes(mask, 256 // max(sizes), name, frame)
            passes = self.whole(repeats, 1, MOST_REPEATS, "repeatTime", name, frame)
            accesses = self._strided(name, params, selected, passes, types, frame)
            shape = (passes, len(selected))
        scalar_type = types[-1] if name in vector.SCALAR or name == "Duplicate" else None
        cost = self.timing.vector(name, max(sizes), passes)
        label = self.log.labels.id("UB")
        return VectorPlan(
            name, compute, types, tuple(accesses[1:]), accesses[0], cost, label, scalar=scalar_type, shape=shape
        )

    def _meaning(self, name: str, types: Types, rest: Sequence[Any], frame: FrameType) -> Compute:
        """What the op computes, if the chip has it for these types."""
        if name == "Cast":
            mode, scale = rest
            return self._cast(types, mode, scale, frame)
        allowed = TYPES_OF.get(name, FLOATS)
        mixed = name in WIDENING and types[0] is float32 and all(each is half for each in types[1:])
        if not mixed and (len(set(types)) > 1 or types[0] not in allowed):
            said, have = ", ".join(map(repr, types)), ", ".join(map(repr, allowed))
            fact = f"310P has no {name} of {said}"
            self.refuse(frame, "unsupported", name, fact, f"all operands are of one of {have}; Cast before and after")
        if name == "Duplicate":
            return vector.duplicate
        return vector.BINARY.get(name) or vector.SCALAR.get(name) or vector.UNARY[name]

    def _cast(self, types: Types, mode: Any, scale: float | None, frame: FrameType) -> Compute:
        target, source = types
        modes = casts.MODES.get((source.name, target.name), ())
        if not isinstance(mode, RoundMode) or mode.value not in modes:
            fact = f"Cast from {source} to {target} with {getattr(mode, 'name', mode)} is not supported on 310P"
            have = ", ".join(f"CAST_{each}" for each in modes) or "no mode of this pair; go through half or float"
            self.refuse(frame, "unsupported", "Cast", fact, f"it has {have}")
        if source is int32 and target is half:
            if scale is None:
                self.refuse(
                    frame,
                    "bad-parameter",
                    "Cast",
                    "int32_t to half scales by a register that is not set",
                    "SetDeqScale first",
                )
            return partial(casts.dequantised, scale)
        if mode is RoundMode.CAST_ODD:
            return casts.to_odd
        if target.numpy.kind == "f":
            return casts.plain
        return casts.narrower if source.numpy.kind in "iu" else partial(casts.to_integer, mode.value)

    def _lanes(self, mask: Any, width: int, name: str, frame: FrameType) -> tuple[int, ...]:
        """The lanes that a mask selects, a number of them or two words of bits."""
        bits: Mask | None = None
        for word in mask if isinstance(mask, tuple) else ():
            if type(word) is not int:
                fact = f"word {word!r} of the mask is no whole number"
                self.refuse(frame, "bad-parameter", name, fact, "give two words of 64 bits, the low one first")
        if isinstance(mask, tuple) and len(mask) == 2 and all(type(word) is int and 0 <= word < 2**64 for word in mask):
            bits = (mask[0], mask[1])
            if width <= 64 and mask[1]:
                self.refuse(
                    frame,
                    "bad-parameter",
                    name,
                    f"the high word of the mask is {mask[1]:#x}",
                    "it is 0 for 32-bit types",
                )
        elif type(mask) is int and mask >= 0:
            bits = mask
        selected = () if bits is None else lanes(bits, width)
        if not selected:
            self.refuse(
                frame, "bad-parameter", name, f"mask {mask!r} selects no lane", f"give 1..{width}, or two words of bits"
            )
        return selected

    def _strided(
        self, name: str, params: Any, selected: tuple[int, ...], repeats: int, types: Types, frame: FrameType
    ) -> list[Access]:
        """One access an operand, the target first."""
        blocks, steps = self._strides(name, params, len(types) == 3 or name == "Select", frame)
        if blocks[0] == 0 and len(selected) * types[0].size > 32:
            self.refuse(
                frame, "bad-parameter", name, "dstBlkStride is 0: all blocks go to one address", "give 1 or more"
            )
        accesses = [
            strided(selected, repeats, block, step, each.size)
            for block, step, each in zip(blocks, steps, types, strict=False)
        ]
        piles_up = name in ACCUMULATING and types[0] is not int16
        if accesses[0].repeated and not (piles_up and steps[0] == 0 and steps[-1] == 0):
            fact = f"dstRepStride {steps[0]} lets repeats write the same bytes"
            self.refuse(frame, "bad-parameter", name, fact, "only Add, Sub, Mul, Max, Min may, with 0 for dst and src1")
        return accesses

    def _strides(self, name: str, params: Any, binary: bool, frame: FrameType) -> tuple[list[int], list[int]]:
        """Of each operand: between the blocks of a repeat, and between repeats; in blocks."""
        wanted = BinaryRepeatParams if binary else UnaryRepeatParams
        params = wanted() if params is None else params
        if not isinstance(params, wanted):
            self.refuse(frame, "bad-parameter", name, f"repeatParams is {params!r}", f"give asc.{wanted.__name__}(...)")
        strides = [
            self.whole(each, 0, MOST_STRIDE, field, name, frame)
            for field, each in zip(params._fields, params, strict=True)
        ]
        half_way = len(strides) // 2
        return strides[:half_way], strides[half_way:]

    def _plan_reduction(
        self, name: str, mask: Any, repeats: Any, strides: Any, order: Any, types: Types, frame: FrameType
    ) -> VectorPlan:
        kind = types[0]
        if kind is not types[1] or kind not in FLOATS:
            fact = f"310P has no {name} of {types[0]}, {types[1]}"
            self.refuse(frame, "unsupported", name, fact, "source and target are both half or both float")
        width = 256 // kind.size
        selected = self._lanes(mask, width, name, frame)
        passes = self.whole(repeats, 1, MOST_REPEATS, "repeatTime", name, frame)
        step = self.whole(strides[0], 0 if passes == 1 else 1, MOST_REDUCED_STRIDE, "dstRepStride", name, frame)
        block = self.whole(strides[1], 0, MOST_STRIDE, "srcBlkStride", name, frame)
        repeat = self.whole(strides[2], 0, MOST_STRIDE, "srcRepStride", name, frame)
        source = strided(selected, passes, block, repeat, kind.size)
        results, compute, alignment = self._reduced(name, selected, width, kind, order, frame)
        target = stepped(passes, results, step * results, kind.size)
        cost = self.timing.vector(name, kind.size, passes)
        return VectorPlan(
            name, compute, types, (source,), target, cost, self.log.labels.id("UB"), alignment=alignment,
            shape=(passes, len(selected)),
        )  # fmt: skip

    def _reduced(
        self, name: str, selected: tuple[int, ...], width: int, kind: ElementType, order: Any, frame: FrameType
    ) -> tuple[int, Compute, int]:
        """Results a repeat, what computes them, alignment of the target."""
        if name == "BlockReduceSum":
            return 8, partial(reductions.block_sum, selected, width, 32 // kind.size), 32
        if name == "WholeReduceSum":
            return 1, partial(reductions.whole_sum, selected, width), kind.size
        if not isinstance(order, ReduceOrder):
            self.refuse(frame, "unsupported", name, f"310P has no order {order!r}", "use one of asc.ReduceOrder")
        index_first = order is ReduceOrder.ORDER_INDEX_VALUE
        return 2, partial(reductions.whole_extreme, name == "WholeReduceMax", selected, index_first), 2 * kind.size

    def _plan_sum(self, mask: Any, repeats: Any, strides: Any, types: Types, frame: FrameType) -> VectorPlan:
        """ReduceSum: of a count, or of the lanes of repeats; its repeats and strides have wider bounds than others'."""
        kind = types[0]
        if kind not in FLOATS or len(set(types)) > 1:
            fact = f"310P has no ReduceSum of {', '.join(map(repr, types))}"
            self.refuse(frame, "unsupported", "ReduceSum", fact, "all operands are half or all are float")
        width = 256 // kind.size
        if repeats is None:
            count = self.whole(mask, 1, UB_BYTES, "count", "ReduceSum", frame)
            source, passes, shape = dense(count, kind.size), -(-count // width), one_axis(count)
            compute = partial(reductions.total, width)
        else:
            selected = self._lanes(mask, width, "ReduceSum", frame)
            passes = self.whole(repeats, 1, MOST_SUMMED, "repeatTime", "ReduceSum", frame)
            step = self.whole(strides[0], 0, MOST_REDUCED_STRIDE, "srcRepStride", "ReduceSum", frame)
            source, shape = strided(selected, passes, 1, step, kind.size), (passes, len(selected))
            compute = partial(reductions.masked_total, selected, width)
        cost = self.timing.reduction(kind.size, passes)
        return VectorPlan(
            "ReduceSum", compute, types, (source, dense(passes, kind.size)), dense(1, kind.size), cost,
            self.log.labels.id("UB"), alignment=kind.size, shape=shape, workspace=True,
        )  # fmt: skip


def one_axis(count: int) -> tuple[int, ...]:
    """The shape of a count form."""
    return (count,)


def _target(dst: Access) -> Any:
    """Elements of the target, all repeats in a row; repeat by repeat if they pile up."""
    return dst.elements if dst.elements is None or dst.repeated else dst.elements.reshape(-1)
