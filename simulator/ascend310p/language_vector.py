"""`asc`'s vector instructions: count forms and mask/repeat/stride forms, Cast, Compare, Select, reductions (facts 2.6).

What a call with the same types, counts and strides needs is planned once. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.ascend310p.core import Stuck
from pytest_kernbench.simulator.ascend310p.geometry import Access, Mask, dense, lanes, overlapping, stepped, strided
from pytest_kernbench.simulator.ascend310p.speech import Rows, Spans, Speech
from pytest_kernbench.simulator.ascend310p.tensors import LocalTensor
from pytest_kernbench.simulator.ascend310p.vocabulary import (
    CMPMODE,
    SELMODE,
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
    uint8,
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
}
WIDENING = ("Axpy", "MulAddDst")  # float target, half sources
IN_PLACE = frozenset(WIDENING)
ACCUMULATING = ("Add", "Sub", "Mul", "Max", "Min")
MOST_REPEATS, MOST_STRIDE, MOST_REDUCED_STRIDE = 255, 255, 65_535
LONG = 4096
VALID = b"\x01" * LONG
MOST_PREPARED = 32_768
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
        cost: tuple[int, int], labels: int, *, scalar: Callable[[Any], Any] | None = None, alignment: int = 32,
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
        self.scalar = scalar
        self.scalar_type = types[-1].numpy.type  # of a scalar that needs no conversion
        self.alignment = alignment  # of the target
        self.in_place = name in IN_PLACE
        self.workspace = workspace  # the last source is room to work in: written, and nobody knows what with
        self.folded = dst.repeated
        all_dense = dst.elements is None and all(each.elements is None for each in sources)
        self.dense = all_dense
        extra = () if scalar is None else (None,)
        flat = [None if each.elements is None else each.elements.reshape(-1) for each in sources]
        self.index = None if all_dense else (*flat, *extra, _target(dst))
        spans = [(labels, access.need * kind.size) for access, kind in zip((dst, *sources), types, strict=True)]
        reads = tuple(spans[1:] + (spans[:1] if self.in_place else []))
        work = max(dst.total, *(each.total for each in sources)) if sources else dst.total
        self.rows = Rows(Pipe.V, name, shape, work=work, occupancy=cost[0], reads=reads, writes=(spans[0],))


class Prepared(NamedTuple):
    """A call on certain views. `dubious`: its operands have a finding, which is made each time."""

    plan: VectorPlan
    offsets: tuple[int, int, int, int]
    args: tuple[Any, ...] | None
    reads: Spans
    writes: Spans
    dubious: bool


class VectorCalls(Speech):
    """What the vector unit does."""

    # Element by element: two sources

    def Add(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src0 + src1; `mask` is the count if no repeats are said."""
        self._vector("Add", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Sub(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src0 - src1."""
        self._vector("Sub", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Mul(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src0 * src1."""
        self._vector("Mul", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Div(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src0 / src1."""
        self._vector("Div", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Max(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """The larger of each pair; NaN if either is (assumed)."""
        self._vector("Max", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Min(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """The smaller of each pair; NaN if either is (assumed)."""
        self._vector("Min", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def MulAddDst(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
                  repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src0 * src1 + dst, rounded once."""
        self._vector("MulAddDst", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    # Element by element: a source and a scalar, whose value counts as it is now

    def Adds(self, dst: LocalTensor, src: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src + scalar, which is rounded to the type of the tensors first."""
        self._vector("Adds", dst, (src,), scalarValue, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Muls(self, dst: LocalTensor, src: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """dst = src * scalar, which is rounded to the type of the tensors first."""
        self._vector("Muls", dst, (src,), scalarValue, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Maxs(self, dst: LocalTensor, src: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """The larger of each element and the scalar."""
        self._vector("Maxs", dst, (src,), scalarValue, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Mins(self, dst: LocalTensor, src: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """The smaller of each element and the scalar."""
        self._vector("Mins", dst, (src,), scalarValue, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Axpy(self, dst: LocalTensor, src: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """dst = scalar * src + dst, rounded once; src may be half while dst is float."""
        self._vector("Axpy", dst, (src,), scalarValue, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Duplicate(self, dst: LocalTensor, scalarValue: Any, mask: Any, repeatTime: Any = None, dstBlockStride: Any = 1,
                  dstRepeatStride: Any = 8) -> None:  # fmt: skip
        """The scalar in every element."""
        strides = None if repeatTime is None else UnaryRepeatParams(dstBlockStride, 1, dstRepeatStride, 8)
        self._vector("Duplicate", dst, (), scalarValue, (mask, repeatTime, strides), sys._getframe(1))

    # Element by element: a source

    def Exp(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """e to the power of each element, correctly rounded (assumed)."""
        self._vector("Exp", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Ln(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """The natural logarithm of each element, correctly rounded (assumed)."""
        self._vector("Ln", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Sqrt(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """The square root of each element."""
        self._vector("Sqrt", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Rsqrt(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """One over the square root of each element, correctly rounded (assumed)."""
        self._vector("Rsqrt", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Reciprocal(self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None,
                   repeatParams: Any = None) -> None:  # fmt: skip
        """One over each element, correctly rounded (assumed)."""
        self._vector("Reciprocal", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Abs(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """The magnitude of each element."""
        self._vector("Abs", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Relu(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """Each element, or 0 if it is less."""
        self._vector("Relu", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    # Cast, Compare, Select

    def Cast(self, dst: LocalTensor, src: LocalTensor, roundMode: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """Another element type, rounded as `RoundMode` says; 310P takes the pairs and modes of `casts.MODES`."""
        self._vector("Cast", dst, (src,), None, (mask, repeatTime, repeatParams, roundMode), sys._getframe(1))

    def Compare(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, cmpMode: Any, count: Any) -> None:
        """One bit an element, in uint8_t; `count` elements make whole repeats of 256 bytes."""
        self._vector("Compare", dst, (src0, src1), None, (count, None, None, cmpMode), sys._getframe(1))

    def Select(
        self, dst: LocalTensor, selMask: LocalTensor, src0: LocalTensor, src1: Any, selMode: Any, count: Any
    ) -> None:
        """src0 where the mask has a bit, src1 (a tensor or a scalar, as the mode says) elsewhere."""
        frame = sys._getframe(1)
        tensors = selMode is SELMODE.VSEL_TENSOR_TENSOR_MODE
        if not tensors and selMode is not SELMODE.VSEL_TENSOR_SCALAR_MODE:
            self.refuse(frame, "unsupported", "Select", f"mode {selMode!r}", "use one of asc.SELMODE")
        sources = (selMask, src0, src1) if tensors else (selMask, src0)
        self._vector("Select", dst, sources, None if tensors else src1, (count, None, None, selMode), frame)

    # Reductions

    def WholeReduceSum(self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any, dstRepStride: Any,
                       srcBlkStride: Any, srcRepStride: Any) -> None:  # fmt: skip
        """The sum of each repeat, by adjacent pairs; dstRepStride counts elements."""
        how = (mask, repeatTime, (dstRepStride, srcBlkStride, srcRepStride), None)
        self._vector("WholeReduceSum", dst, (src,), None, how, sys._getframe(1))

    def WholeReduceMax(self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any, dstRepStride: Any,
                       srcBlkStride: Any, srcRepStride: Any,
                       order: Any = ReduceOrder.ORDER_VALUE_INDEX) -> None:  # fmt: skip
        """The largest of each repeat and its lane (raw bits); dstRepStride counts pairs."""
        how = (mask, repeatTime, (dstRepStride, srcBlkStride, srcRepStride), order)
        self._vector("WholeReduceMax", dst, (src,), None, how, sys._getframe(1))

    def WholeReduceMin(self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any, dstRepStride: Any,
                       srcBlkStride: Any, srcRepStride: Any,
                       order: Any = ReduceOrder.ORDER_VALUE_INDEX) -> None:  # fmt: skip
        """The smallest of each repeat and its lane (raw bits); dstRepStride counts pairs."""
        how = (mask, repeatTime, (dstRepStride, srcBlkStride, srcRepStride), order)
        self._vector("WholeReduceMin", dst, (src,), None, how, sys._getframe(1))

    def BlockReduceSum(self, dst: LocalTensor, src: LocalTensor, repeatTime: Any, mask: Any, dstRepStride: Any,
                       srcBlkStride: Any, srcRepStride: Any) -> None:  # fmt: skip
        """The sum of each block of 32 bytes, 8 a repeat; dstRepStride counts eights."""
        how = (mask, repeatTime, (dstRepStride, srcBlkStride, srcRepStride), None)
        self._vector("BlockReduceSum", dst, (src,), None, how, sys._getframe(1))

    def ReduceSum(self, dst: LocalTensor, src: LocalTensor, sharedTmpBuffer: LocalTensor, count: Any) -> None:
        """The sum of `count` elements in dst[0]; the work buffer takes one element a repeat."""
        self._vector("ReduceSum", dst, (src, sharedTmpBuffer), None, (count, None, None, None), sys._getframe(1))

    def SetDeqScale(self, scale: Any) -> None:
        """The factor of Cast from int32_t to half."""
        self._deq_scale = float(np.float16(scale))

    _deq_scale: float | None = None

    # One call

    _prepared: dict[Any, Prepared]

    def _vector(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> None:
        try:
            said = self._prepared.get((name, how, dst, sources))
        except TypeError:  # a mask as a list
            said = None
        if said is None:
            said = self._prepare(name, dst, sources, scalar, how, frame)
        plan = said.plan
        args = said.args
        if plan.scalar is not None:
            value = scalar if type(scalar) is plan.scalar_type else plan.scalar(scalar)
            if args is not None:
                args = (*args[:-1], value, args[-1])
        if said.dubious:
            self._check_operands(plan, dst, sources, frame)
            self._check_overlap(plan, dst, sources, frame)
        core = self.core
        descriptor = self._descriptor(plan.rows, frame)
        move = None if args is None else (plan.compute, args, plan.index, plan.folded)
        reads, writes = said.reads, said.writes
        try:
            row = core.op(core.pipes[1], descriptor, plan.occupancy, plan.latency, said.offsets, move, reads, writes)
        except Stuck as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is None:
            return
        if judges.shadow.suspicious or plan.workspace:
            self._judge(row, plan, dst, sources, writes)
            return
        valid = judges.ub.valid
        for lo, hi in reads:
            if valid.find(0, lo, hi) >= 0:
                judges.shadow.read(judges.ub, row, lo, hi, 0, row in judges.races.racy_rows)
        for lo, hi in writes:
            valid[lo:hi] = VALID[: hi - lo] if hi - lo <= LONG else b"\x01" * (hi - lo)

    def _prepare(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> Prepared:
        """What does not change when the same call comes again with the same views."""
        plan = self._known_plan(name, dst, sources, scalar, how, frame)
        dubious = self._looks_dubious(plan, dst, sources) and (
            self._check_operands(plan, dst, sources, None) or self._check_overlap(plan, dst, sources, None)
        )
        said = self._prepared_call(plan, dst, sources, dubious)
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        if type(how[0]) is not list:
            self._prepared[name, how, dst, sources] = said
        return said

    def _known_plan(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> VectorPlan:
        try:
            types = (dst.type, *[each.type for each in sources])
            found = self._rows.get((name, how, types))
        except (AttributeError, TypeError):
            found = None
        return found or self._new_plan(name, dst, sources, scalar, how, frame)

    def _new_plan(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> VectorPlan:
        for each in (dst, *sources):
            if not isinstance(each, LocalTensor):
                fact = f"an operand is a {type(each).__name__}"
                self.refuse(frame, "bad-parameter", name, fact, "vector instructions take LocalTensors, in UB")
        if isinstance(how[0], list):
            how = (tuple(how[0]), *how[1:])
        types = (dst.type, *[each.type for each in sources])
        try:
            return self.shared((name, how, types), lambda: self._plan(name, how, types, scalar, frame))
        except TypeError:
            remedy = "give numbers and the vendor's parameter structs"
            return self.refuse(frame, "bad-parameter", name, f"arguments {how!r}", remedy)

    @staticmethod
    def _looks_dubious(plan: VectorPlan, dst: LocalTensor, sources: tuple[LocalTensor, ...]) -> bool:
        """Whether operands are worth a close look: most calls are in order, and new views come often."""
        at = dst.lo
        if dst.size < plan.need[0] or at % plan.alignment:
            return True
        end = at + plan.spans[0]
        for number, each in enumerate(sources, 1):
            lo = each.lo
            if each.size < plan.need[number] or lo & 31 or (lo < end and at < lo + plan.spans[number]):
                return True
        return False

    def _prepared_call(
        self, plan: VectorPlan, dst: LocalTensor, sources: tuple[LocalTensor, ...], dubious: bool
    ) -> Prepared:
        at, spans = dst.lo, plan.spans
        if plan.dense:
            reads = tuple([(each.lo, each.lo + size) for each, size in zip(sources, spans[1:], strict=True)])
            writes: Spans = ((at, at + spans[0]),)
        else:
            pairs = zip(sources, plan.sources, strict=True)
            reads = tuple([(each.lo + lo, each.lo + hi) for each, access in pairs for lo, hi in access.ranges])
            writes = tuple([(at + lo, at + hi) for lo, hi in plan.dst.ranges])
        offsets = [each.lo for each in sources]
        if plan.in_place:
            reads += writes
            offsets.append(at)
        if plan.workspace:
            reads, writes = reads[:-1], tuple(sorted((reads[-1], *writes)))
        args = None
        if self.ub is not None:
            needs = zip((*sources, dst), (*plan.need[1:], plan.need[0]), strict=True)
            args = tuple([tensor.cells[:need] for tensor, need in needs])
        a, b, c, d = (*offsets, at, 0, 0, 0)[:4]
        return Prepared(plan, (a, b, c, d), args, reads, writes, dubious)

    def _judge(self, row: int, plan: VectorPlan, dst: LocalTensor, sources: Any, writes: Any) -> None:
        """Validity of what is read and by whom, and who writes."""
        judges = self._judges
        assert judges is not None
        ub, shadow = judges.ub, judges.shadow
        racy = row in judges.races.racy_rows
        read = sources[:-1] if plan.workspace else (*sources, dst) if plan.in_place else sources
        for tensor, access in zip(read, (*plan.sources, plan.dst), strict=False):
            for lo, hi in access.ranges:
                shadow.read(ub, row, tensor.lo + lo, tensor.lo + hi, tensor.owner, racy)
        for lo, hi in writes:
            shadow.write(ub, lo, hi, dst.owner)
        if plan.workspace:
            room = sources[-1]
            shadow.forget(ub, room.lo, room.lo + plan.need[-1] * room.type.size)

    # Checks of operands

    def _check_operands(
        self, plan: VectorPlan, dst: LocalTensor, sources: Sequence[LocalTensor], frame: FrameType | None
    ) -> bool:
        """Whether an operand is too short or not aligned; with a frame, say so there."""
        dubious = False
        for number, tensor in enumerate((dst, *sources)):
            wanted = plan.alignment if number == 0 else 32
            if tensor.size < plan.need[number] or tensor.lo % wanted:
                dubious = True
                if frame is not None:
                    who = "dst" if number == 0 else f"src{number - 1}" if len(sources) > 1 else "src"
                    self._complain(plan, tensor, plan.need[number], wanted, who, frame)
        return dubious

    def _complain(
        self, plan: VectorPlan, tensor: LocalTensor, need: int, wanted: int, who: str, frame: FrameType
    ) -> None:
        if tensor.size < need:
            fact = f"{who} has {tensor.size} elements, the call takes {need}"
            remedy = "lower the count or the repeats, or take more of the buffer"
            self.refuse(frame, "out-of-bounds", plan.name, fact, remedy)
        if tensor.lo % wanted == 0:
            return
        fact = f"{who} starts at byte {tensor.lo} of UB, which is {tensor.lo % wanted} past a multiple of {wanted}"
        remedy = "offsets of [] count elements, those of GetWithOffset bytes: pad rows to 32 bytes"
        if self.spec.alignment == "strict" or tensor.lo % tensor.type.size:
            self.refuse(frame, "misaligned", plan.name, fact, remedy)
        self.found(frame, "misaligned", plan.name, fact, remedy)

    def _check_overlap(
        self, plan: VectorPlan, dst: LocalTensor, sources: Sequence[LocalTensor], frame: FrameType | None
    ) -> bool:
        """Whether operands overlap neither exactly nor not at all; with a frame, say so there."""
        at, dubious = dst.lo, False
        for number, tensor in enumerate(sources):
            access = plan.sources[number]
            same = tensor.lo == at and tensor.type.size == dst.type.size
            if same and (access.ranges == plan.dst.ranges or plan.folded):
                continue
            if overlapping(plan.dst.ranges, access.ranges, tensor.lo - at):
                dubious = True
                if frame is not None:
                    fact = f"dst from UB[{at}] and src{number} from UB[{tensor.lo}] on overlap in part"
                    remedy = "give the result bytes of its own, or exactly the source's"
                    self.found(frame, "illegal-overlap", plan.name, fact, remedy)
        return dubious

    # Plans

    def _plan(self, name: str, how: How, types: Types, scalar: Any, frame: FrameType) -> VectorPlan:
        mask, repeats, params, *rest = how
        if name in ("WholeReduceSum", "WholeReduceMax", "WholeReduceMin", "BlockReduceSum"):
            return self._plan_reduction(name, mask, repeats, params, rest[0], types, frame)
        if name in ("Compare", "Select", "ReduceSum"):
            return self._plan_counted(name, mask, rest[0], types, scalar, frame)
        compute = self._meaning(name, types, rest, frame)
        sizes = [each.size for each in types]
        if repeats is None:
            count = self.whole(mask, 1, 2**31, "count", name, frame)
            accesses = [dense(count, size) for size in sizes]
            passes, shape = -(-count * max(sizes) // 256), one_axis(count)
        else:
            selected = self._lanes(mask, 256 // max(sizes), name, frame)
            passes = self.whole(repeats, 1, MOST_REPEATS, "repeatTime", name, frame)
            accesses = self._strided(name, params, selected, passes, types, frame)
            shape = (passes, len(selected))
        convert = None if name not in vector.SCALAR and name != "Duplicate" else self._scalar_of(name, types, frame)
        cost = self.timing.vector(name, max(sizes), passes)
        label = self.log.labels.id("UB")
        return VectorPlan(
            name, compute, types, tuple(accesses[1:]), accesses[0], cost, label, scalar=convert, shape=shape
        )

    def _meaning(self, name: str, types: Types, rest: Sequence[Any], frame: FrameType) -> Compute:
        """What the op computes, if the chip has it for these types."""
        if name == "Cast":
            return self._cast(types, rest[0], frame)
        allowed = TYPES_OF.get(name, FLOATS)
        mixed = name in WIDENING and types[0] is float32 and all(each is half for each in types[1:])
        if not mixed and (len(set(types)) > 1 or types[0] not in allowed):
            said, have = ", ".join(map(repr, types)), ", ".join(map(repr, allowed))
            fact = f"310P has no {name} of {said}"
            self.refuse(frame, "unsupported", name, fact, f"all operands are of one of {have}; Cast before and after")
        if name == "Duplicate":
            return vector.duplicate
        return vector.BINARY.get(name) or vector.SCALAR.get(name) or vector.UNARY[name]

    def _cast(self, types: Types, mode: Any, frame: FrameType) -> Compute:
        target, source = types
        modes = casts.MODES.get((source.name, target.name), ())
        if not isinstance(mode, RoundMode) or mode.value not in modes:
            fact = f"Cast from {source} to {target} with {getattr(mode, 'name', mode)} is not supported on 310P"
            have = ", ".join(f"CAST_{each}" for each in modes) or "no mode of this pair; go through half or float"
            self.refuse(frame, "unsupported", "Cast", fact, f"it has {have}")
        if source is int32 and target is half:
            if self._deq_scale is None:
                self.refuse(
                    frame,
                    "bad-parameter",
                    "Cast",
                    "int32_t to half scales by a register that is not set",
                    "SetDeqScale first",
                )
            return partial(casts.dequantised, self._deq_scale)
        if mode is RoundMode.CAST_ODD:
            return casts.to_odd
        if target.numpy.kind == "f":
            return casts.plain
        return casts.narrower if source.numpy.kind in "iu" else partial(casts.to_integer, mode.value)

    def _scalar_of(self, name: str, types: Types, frame: FrameType) -> Callable[[Any], Any]:
        """How the scalar of a call is rounded: to the type of the source; Axpy's product is exact."""
        kind = types[-1].numpy.type

        def convert(value: Any) -> Any:
            try:
                return kind(value)
            except (TypeError, ValueError, OverflowError):
                self.refuse(
                    frame, "bad-parameter", name, f"the scalar is {value!r}", f"give a number that {types[-1]} holds"
                )

        return convert

    def _lanes(self, mask: Any, width: int, name: str, frame: FrameType) -> tuple[int, ...]:
        """The lanes that a mask selects, a number of them or two words of bits."""
        bits: Mask | None = None
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
        wanted = BinaryRepeatParams if len(types) == 3 else UnaryRepeatParams
        params = wanted() if params is None else params
        if not isinstance(params, wanted):
            self.refuse(frame, "bad-parameter", name, f"repeatParams is {params!r}", f"give asc.{wanted.__name__}(...)")
        strides = [
            self.whole(each, 0, MOST_STRIDE, field, name, frame)
            for field, each in zip(params._fields, params, strict=True)
        ]
        half_way = len(strides) // 2
        blocks, steps = strides[:half_way], strides[half_way:]
        if blocks[0] == 0 and len(selected) * types[0].size > 32:
            self.refuse(
                frame, "bad-parameter", name, "dstBlkStride is 0: all blocks go to one address", "give 1 or more"
            )
        accesses = [
            strided(selected, repeats, block, step, each.size)
            for block, step, each in zip(blocks, steps, types, strict=False)
        ]
        if accesses[0].repeated and not (steps[0] == 0 and steps[-1] == 0 and name in ACCUMULATING and len(types) == 3):
            fact = f"dstRepStride {steps[0]} lets repeats write the same bytes"
            self.refuse(frame, "bad-parameter", name, fact, "only Add, Sub, Mul, Max, Min may, with 0 for dst and src1")
        return accesses

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

    def _plan_counted(
        self, name: str, given: Any, mode: Any, types: Types, scalar: Any, frame: FrameType
    ) -> VectorPlan:
        """Compare, Select, ReduceSum: count forms whose operands differ in length."""
        count = self.whole(given, 1, 2**31, "count", name, frame)
        data = types[0] if name != "Compare" else types[1]
        of_data = [
            each
            for at, each in enumerate(types)
            if not ((name == "Compare" and at == 0) or (name == "Select" and at == 1))
        ]
        bits = types[0] if name == "Compare" else types[1] if name == "Select" else uint8
        if data not in FLOATS or len(set(of_data)) > 1 or bits is not uint8:
            said = ", ".join(map(repr, types))
            self.refuse(
                frame, "unsupported", name, f"310P has no {name} of {said}", "data is half or float, masks are uint8_t"
            )
        repeats = -(-count * data.size // 256)
        values, mask = dense(count, data.size), dense(-(-count // 8), 1)
        label = self.log.labels.id("UB")
        if name == "ReduceSum":
            work = dense(repeats, data.size)
            cost = self.timing.reduction(data.size, repeats)

            def compute(source: Any, tmp: Any, out: Any) -> None:
                out[...] = reductions.reduce_sum(256 // data.size, source)

            return VectorPlan(name, compute, types, (values, work), dense(1, data.size), cost, label, shape=(count,),
                              workspace=True)  # fmt: skip
        cost = self.timing.vector(name, data.size, repeats)
        if name == "Compare":
            if count * data.size % 256:
                fact = f"count {count} of {data} is {count * data.size} bytes"
                self.refuse(frame, "bad-parameter", name, fact, "Compare takes whole repeats of 256 bytes")
            if not isinstance(mode, CMPMODE):
                self.refuse(frame, "bad-parameter", name, f"cmpMode is {mode!r}", "use one of asc.CMPMODE")
            return VectorPlan(
                name, partial(vector.compare, mode.value), types, (values, values), mask, cost, label, shape=(count,)
            )
        sources = (mask, values, values)[: len(types) - 1]
        convert = None if len(types) == 4 else data.numpy.type
        return VectorPlan(name, vector.select, types, sources, values, cost, label, scalar=convert, shape=(count,))


def one_axis(count: int) -> tuple[int, ...]:
    """The shape of a count form."""
    return (count,)


def _target(dst: Access) -> Any:
    """Elements of the target, all repeats in a row; repeat by repeat if they pile up."""
    return dst.elements if dst.elements is None or dst.repeated else dst.elements.reshape(-1)
