"""`asc`'s vector instructions: count forms and mask/repeat/stride forms, Cast, Compare, Select, reductions (facts 2.6).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from typing import Any

from pytest_kernbench.simulator.ascend310p.tensors import LocalTensor
from pytest_kernbench.simulator.ascend310p.vector_issue import VectorIssue
from pytest_kernbench.simulator.ascend310p.vocabulary import CMPMODE, SELMODE, ReduceOrder, UnaryRepeatParams, half


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

    def And(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
            repeatParams: Any = None) -> None:  # fmt: skip
        """The bits that both have; of int16_t or uint16_t."""
        self._vector("And", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    def Or(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, mask: Any, repeatTime: Any = None,
           repeatParams: Any = None) -> None:  # fmt: skip
        """The bits that either has; of int16_t or uint16_t."""
        self._vector("Or", dst, (src0, src1), None, (mask, repeatTime, repeatParams), sys._getframe(1))

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

    def Not(
        self, dst: LocalTensor, src: LocalTensor, mask: Any, repeatTime: Any = None, repeatParams: Any = None
    ) -> None:
        """Every bit the other way; of int16_t or uint16_t."""
        self._vector("Not", dst, (src,), None, (mask, repeatTime, repeatParams), sys._getframe(1))

    # Cast, Compare, Select

    def Cast(self, dst: LocalTensor, src: LocalTensor, roundMode: Any, mask: Any, repeatTime: Any = None,
             repeatParams: Any = None) -> None:  # fmt: skip
        """Another element type, rounded as `RoundMode` says; 310P takes the pairs and modes of `casts.MODES`."""
        self._vector(
            "Cast", dst, (src,), None, (mask, repeatTime, repeatParams, roundMode, self._deq_scale), sys._getframe(1)
        )

    def Compare(self, dst: LocalTensor, src0: LocalTensor, src1: LocalTensor, cmpMode: Any, mask: Any,
                repeatTime: Any = None, repeatParams: Any = None) -> None:  # fmt: skip
        """One bit an element, in uint8_t or int8_t, without gaps.

        A count makes whole repeats of 256 bytes. 310P compares every lane, whatever lanes a mask selects, and takes no
        strides of dst: a mask that leaves lanes out is noted.
        """
        frame = sys._getframe(1)
        if isinstance(src1, CMPMODE):
            fact = "without a dst the bits go to a register, which is not modelled"
            self.refuse(frame, "unsupported", "Compare", fact, "give a dst of uint8_t, which Select takes")
        self._vector("Compare", dst, (src0, src1), None, (mask, repeatTime, repeatParams, cmpMode), frame)
        if repeatTime is not None:
            self._note_mask("Compare", mask, src0, frame)

    def CompareScalar(self, dst: LocalTensor, src0: LocalTensor, src1Scalar: Any, cmpMode: Any, mask: Any,
                      repeatTime: Any = None, repeatParams: Any = None) -> None:  # fmt: skip
        """`Compare` with a scalar, which is rounded to the type of src0 first; in uint8_t. Of newer name `Compares`."""
        frame = sys._getframe(1)
        self._vector("CompareScalar", dst, (src0,), src1Scalar, (mask, repeatTime, repeatParams, cmpMode), frame)
        if repeatTime is not None:
            self._note_mask("CompareScalar", mask, src0, frame)

    Compares = CompareScalar

    def Select(self, dst: LocalTensor, selMask: LocalTensor, src0: LocalTensor, src1: Any, selMode: Any, mask: Any,
               repeatTime: Any = None, repeatParams: Any = None) -> None:  # fmt: skip
        """src0 where selMask has a bit, src1 (a tensor or a scalar, as the mode says) elsewhere.

        selMask, of any unsigned type, has a bit for every lane of every repeat, also for those that `mask` leaves out;
        in mode VSEL_CMPMASK_SPR every repeat takes the bits of the first. BinaryRepeatParams in every mode.
        """
        frame = sys._getframe(1)
        if not isinstance(selMode, SELMODE):
            self.refuse(frame, "unsupported", "Select", f"mode {selMode!r}", "use one of asc.SELMODE")
        scalar = selMode is SELMODE.VSEL_TENSOR_SCALAR_MODE
        sources = (selMask, src0) if scalar else (selMask, src0, src1)
        how = (mask, repeatTime, repeatParams, selMode)
        self._vector("Select", dst, sources, src1 if scalar else None, how, frame)

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

    def ReduceSum(self, dst: LocalTensor, src: LocalTensor, sharedTmpBuffer: LocalTensor, mask: Any,
                  repeatTime: Any = None, srcRepStride: Any = 8) -> None:  # fmt: skip
        """The sum of a count of elements, or of the lanes of repeats, in dst[0].

        Repeats first, then their sums, by adjacent pairs. The work buffer takes an element a repeat; dst may be in it.
        """
        how = (mask, repeatTime, None if repeatTime is None else (srcRepStride,), None)
        self._vector("ReduceSum", dst, (src, sharedTmpBuffer), None, how, sys._getframe(1))

    def SetDeqScale(self, scale: Any) -> None:
        """The factor of Cast from int32_t to half."""
        self._deq_scale = float(self.number(half, scale, "scale", "SetDeqScale", sys._getframe(1)))
