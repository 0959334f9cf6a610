"""The calls of `asc`. The modules of types have prefixes here, since calls have the names of types.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol, SupportsIndex, TypeVar

import numpy as np

from pytest_kernbench.simulator.ascend310p import vocabulary
from pytest_kernbench.simulator.ascend310p.asc import forms, objects
from pytest_kernbench.simulator.ascend310p.asc.forms import Mask
from pytest_kernbench.simulator.ascend310p.asc.objects import ElementType, LocalTensor, Scalar
from pytest_kernbench.simulator.errors import Site

__all__ = ["Asc"]

E = TypeVar("E", bound=np.generic)
Int = SupportsIndex


class Asc(Protocol):
    """The object a kernel receives as `asc`, in the vendor's words (ADR-0310).

    A call that the chip refuses raises KernelError at the kernel's line; which element types an instruction takes is
    checked there too.
    """

    half: ElementType[np.float16]
    float16: ElementType[np.float16]
    float32: ElementType[np.float32]
    double: ElementType[np.float64]
    int8_t: ElementType[np.int8]
    uint8_t: ElementType[np.uint8]
    int16_t: ElementType[np.int16]
    uint16_t: ElementType[np.uint16]
    int32_t: ElementType[np.int32]
    uint32_t: ElementType[np.uint32]
    int64_t: ElementType[np.int64]
    uint64_t: ElementType[np.uint64]
    PIPE_S: vocabulary.Pipe
    PIPE_V: vocabulary.Pipe
    PIPE_MTE2: vocabulary.Pipe
    PIPE_MTE3: vocabulary.Pipe
    PIPE_ALL: vocabulary.Pipe
    KERNEL_TYPE_AIV_ONLY: vocabulary.KernelType
    HardEvent: objects.HardEvents
    TPosition: type[vocabulary.TPosition]
    QuePosition: type[vocabulary.TPosition]
    RoundMode: type[vocabulary.RoundMode]
    CMPMODE: type[vocabulary.CMPMODE]
    SELMODE: type[vocabulary.SELMODE]
    ReduceOrder: type[vocabulary.ReduceOrder]
    DataCopyParams: type[vocabulary.DataCopyParams]
    UnaryRepeatParams: type[vocabulary.UnaryRepeatParams]
    BinaryRepeatParams: type[vocabulary.BinaryRepeatParams]

    # The block

    def KERNEL_TASK_TYPE_DEFAULT(self, type: vocabulary.KernelType) -> None:
        """The kernel's type: KERNEL_TYPE_AIV_ONLY, which every kernel here is."""

    def GetBlockIdx(self) -> int:
        """This block's number in the grid."""

    def GetBlockNum(self) -> int:
        """Blocks of the grid."""

    # Objects of the language

    def GlobalTensor(self, type: ElementType[E]) -> objects.GlobalTensor[E]:
        """A view of GM, before its SetGlobalBuffer."""

    def TPipe(self) -> objects.TPipe:
        """The kernel's one TPipe."""

    def GetTPipePtr(self) -> objects.TPipe:
        """The TPipe that was made."""

    def TQue(self, position: vocabulary.TPosition, depth: Int) -> objects.TQue:
        """A queue of VECIN, VECOUT or VECCALC; `depth` EnQues may wait for their DeQue."""

    def TQueBind(self, src: vocabulary.TPosition, dst: vocabulary.TPosition, depth: Int) -> objects.TQue:
        """A queue from VECIN to VECOUT: buffers that MTE2 fills and MTE3 takes away, with nothing in between."""

    def TBuf(self, position: vocabulary.TPosition = ...) -> objects.TBuf:
        """A buffer to carve by hand; VECCALC if not said."""

    def TQueSync(self, source: vocabulary.Pipe, target: vocabulary.Pipe) -> objects.TQueSync:
        """The flag from one pipe to another."""

    # Copies

    DataCopy: forms.Copying
    """Whole blocks of 32 bytes: GM to UB on MTE2, UB to GM on MTE3, UB to UB on V.

    A count that is not whole blocks is rounded down, and a finding.
    """

    def DataCacheCleanAndInvalid(self, tensor: objects.GlobalTensor[Any], *, whole: bool = True) -> None:
        """Write the scalar cache back and forget it: all of it, or the line that `tensor` starts in."""

    # Order

    def PipeBarrier(self, pipe: vocabulary.Pipe) -> None:
        """What follows on the pipe starts when all before on it has ended; PIPE_ALL: on every pipe, and S waits."""

    def SetFlag(self, event: vocabulary.Event, id: Int) -> None:
        """Raise the flag when what its source pipe was given has ended."""

    def WaitFlag(self, event: vocabulary.Event, id: Int) -> None:
        """Hold the flag's target pipe until it is up; the n-th Wait of a flag pairs with its n-th Set."""

    def AllocEventID(self, event: vocabulary.Event) -> vocabulary.EventID:
        """The lowest free id of the event, marked used until ReleaseEventID."""

    def FetchEventID(self, event: vocabulary.Event) -> vocabulary.EventID:
        """The lowest free id of the event, not marked: the next Fetch gives it again."""

    def ReleaseEventID(self, event: vocabulary.Event, id: Int) -> None:
        """The id is free again."""

    # Vector instructions, element by element

    Add: forms.TwoSources
    """dst = src0 + src1."""
    Sub: forms.TwoSources
    """dst = src0 - src1."""
    Mul: forms.TwoSources
    """dst = src0 * src1."""
    Div: forms.TwoSources
    """dst = src0 / src1; half or float."""
    Max: forms.TwoSources
    """The larger of each pair; NaN if either is (assumed)."""
    Min: forms.TwoSources
    """The smaller of each pair; NaN if either is (assumed)."""
    And: forms.TwoSources
    """The bits that both have; int16_t or uint16_t."""
    Or: forms.TwoSources
    """The bits that either has; int16_t or uint16_t."""
    MulAddDst: forms.TwoSourcesAdded
    """dst = src0 * src1 + dst, rounded once; half or float."""
    Adds: forms.SourceAndScalar
    """dst = src + scalar."""
    Muls: forms.SourceAndScalar
    """dst = src * scalar."""
    Maxs: forms.SourceAndScalar
    """The larger of each element and the scalar."""
    Mins: forms.SourceAndScalar
    """The smaller of each element and the scalar."""
    Axpy: forms.SourceAndScalarAdded
    """dst = scalar * src + dst, rounded once; half or float."""
    Duplicate: forms.Filling
    """The scalar in every element."""
    Exp: forms.OneSource
    """e to the power of each element, correctly rounded (assumed); half or float."""
    Ln: forms.OneSource
    """The natural logarithm of each element, correctly rounded (assumed); half or float."""
    Sqrt: forms.OneSource
    """The square root of each element; half or float."""
    Rsqrt: forms.OneSource
    """One over the square root of each element, correctly rounded (assumed); half or float."""
    Reciprocal: forms.OneSource
    """One over each element, correctly rounded (assumed); half or float."""
    Abs: forms.OneSource
    """The magnitude of each element; half or float."""
    Relu: forms.OneSource
    """Each element, or 0 if it is less; half or float."""
    Not: forms.OneSource
    """Every bit the other way; int16_t or uint16_t."""
    Cast: forms.Casting
    """Another element type, rounded as `RoundMode` says; 310P takes certain pairs and modes."""
    Compare: forms.Comparing
    """One bit an element, without gaps. A count makes whole repeats of 256 bytes; 310P compares every lane."""
    CompareScalar: forms.ComparingScalar
    """`Compare` with a scalar."""
    Compares: forms.ComparingScalar
    """The newer name of `CompareScalar`."""
    Select: forms.Selecting
    """src0 where selMask has a bit, src1 elsewhere; selMask has a bit for every lane of every repeat."""

    # Reductions: half or float

    def WholeReduceSum(
        self, dst: LocalTensor[E], src: LocalTensor[E], mask: Mask, repeatTime: Int, dstRepStride: Int,
        srcBlkStride: Int, srcRepStride: Int,
    ) -> None:  # fmt: skip
        """The sum of each repeat, by adjacent pairs; dstRepStride counts elements."""

    WholeReduceMax: forms.Extreme
    """The largest of each repeat and its lane (raw bits); dstRepStride counts pairs."""
    WholeReduceMin: forms.Extreme
    """The smallest of each repeat and its lane (raw bits); dstRepStride counts pairs."""

    def BlockReduceSum(
        self, dst: LocalTensor[E], src: LocalTensor[E], repeatTime: Int, mask: Mask, dstRepStride: Int,
        srcBlkStride: Int, srcRepStride: Int,
    ) -> None:  # fmt: skip
        """The sum of each block of 32 bytes, 8 a repeat; dstRepStride counts eights."""

    ReduceSum: forms.Summing
    """The sum in dst[0], repeats first, then their sums, by adjacent pairs; an element of work a repeat."""

    def SetDeqScale(self, scale: Scalar) -> None:
        """The factor of Cast from int32_t to half."""

    # The simulator's own words

    def own(self, tensor: LocalTensor[E], name: str) -> LocalTensor[E]:
        """The tensor as its owner sees it: `live-alias` if it reads what a borrower wrote last."""

    def borrow(self, tensor: LocalTensor[E], owner: str, as_: str) -> LocalTensor[E]:
        """The bytes of the owner's `tensor`, in the hands of a borrower."""

    def planned(self, buffer: objects.TBuf, size: Int) -> None:
        """The host planned `size` bytes for what is carved of `buffer`: another sum at the end is `tiling-mismatch`."""

    def region(self, name: str) -> AbstractContextManager[None]:
        """Label the ops of a block of lines, for logs."""

    def at(self, site: Site | None) -> None:
        """What follows is said at `site`; None: at the caller's own line again."""
