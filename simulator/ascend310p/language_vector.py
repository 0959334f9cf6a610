"""`asc`'s vector instructions: count forms and mask/repeat/stride forms, Cast, Compare, Select, reductions (facts 2.6).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from typing import Any

from pytest_kernbench.simulator.ascend310p.tensors import LocalTensor
from pytest_kernbench.simulator.ascend310p.vector_issue import VectorIssue
from pytest_kernbench.simulator.ascend310p.vocabulary import SELMODE, ReduceOrder, UnaryRepeatParams, half


class VectorCalls(VectorIssue):
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
        self._vector(
            "Cast", dst, (src,), None, (mask, repeatTime, repeatParams, roundMode, self._deq_scale), sys._getframe(1)
        )

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
        self._deq_scale = float(self.number(half, scale, "scale", "SetDeqScale", sys._getframe(1)))
