"""Signatures that instructions of the 310P share.

Of the two of a vector instruction the first is the count form: `mask` is the number of elements, which lie side by
side. The second goes repeat by repeat: `mask` selects lanes of each, strides count blocks. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Protocol, SupportsIndex, TypeVar, overload

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc.objects import GlobalTensor, LocalTensor, Scalar
from pytest_kernbench.simulator.ascend310p.vocabulary import (
    CMPMODE,
    SELMODE,
    BinaryRepeatParams,
    DataCopyParams,
    ReduceOrder,
    RoundMode,
    UnaryRepeatParams,
)

E = TypeVar("E", bound=np.generic)
F = TypeVar("F", bound=np.generic)
Int = SupportsIndex
Mask = int | tuple[int, int]
"""Lanes of a repeat: the first so many, or two words of bits, the low one first."""


class Copying(Protocol):
    """`count` elements, or what `DataCopyParams` says, to or from UB or within it; one element type."""

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E] | GlobalTensor[E], count: Int | DataCopyParams
    ) -> None: ...

    @overload
    def __call__(self, dst: GlobalTensor[E], src: LocalTensor[E], count: Int | DataCopyParams) -> None: ...


class TwoSources(Protocol):
    """`dst` of two sources, all of one element type."""

    @overload
    def __call__(self, dst: LocalTensor[E], src0: LocalTensor[E], src1: LocalTensor[E], mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src0: LocalTensor[E], src1: LocalTensor[E], mask: Mask, repeatTime: Int,
        repeatParams: BinaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class TwoSourcesAdded(Protocol):
    """`dst` and two sources; the sources may be half while `dst` is float."""

    @overload
    def __call__(self, dst: LocalTensor[E], src0: LocalTensor[F], src1: LocalTensor[F], mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src0: LocalTensor[F], src1: LocalTensor[F], mask: Mask, repeatTime: Int,
        repeatParams: BinaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class SourceAndScalar(Protocol):
    """`dst` of a source and a scalar, whose value counts as it is now."""

    @overload
    def __call__(self, dst: LocalTensor[E], src: LocalTensor[E], scalarValue: Scalar, mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E], scalarValue: Scalar, mask: Mask, repeatTime: Int,
        repeatParams: UnaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class SourceAndScalarAdded(Protocol):
    """`dst`, a source and a scalar; the source may be half while `dst` is float."""

    @overload
    def __call__(self, dst: LocalTensor[E], src: LocalTensor[F], scalarValue: Scalar, mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[F], scalarValue: Scalar, mask: Mask, repeatTime: Int,
        repeatParams: UnaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class OneSource(Protocol):
    """`dst` of a source, both of one element type."""

    @overload
    def __call__(self, dst: LocalTensor[E], src: LocalTensor[E], mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E], mask: Mask, repeatTime: Int,
        repeatParams: UnaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class Casting(Protocol):
    """`dst` of a source of another element type."""

    @overload
    def __call__(self, dst: LocalTensor[E], src: LocalTensor[F], roundMode: RoundMode, mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[F], roundMode: RoundMode, mask: Mask, repeatTime: Int,
        repeatParams: UnaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class Filling(Protocol):
    """A scalar in every element of `dst`."""

    @overload
    def __call__(self, dst: LocalTensor[E], scalarValue: Scalar, mask: Int) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], scalarValue: Scalar, mask: Mask, repeatTime: Int, dstBlockStride: Int = 1,
        dstRepeatStride: Int = 8,
    ) -> None: ...  # fmt: skip


Bits = TypeVar("Bits", np.uint8, np.int8)


class Comparing(Protocol):
    """Bits of `dst`, uint8_t or int8_t, of two sources."""

    @overload
    def __call__(
        self, dst: LocalTensor[Bits], src0: LocalTensor[E], src1: LocalTensor[E], cmpMode: CMPMODE, mask: Int
    ) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[Bits], src0: LocalTensor[E], src1: LocalTensor[E], cmpMode: CMPMODE,
        mask: Mask, repeatTime: Int, repeatParams: BinaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class ComparingScalar(Protocol):
    """Bits of `dst`, uint8_t, of a source and a scalar."""

    @overload
    def __call__(
        self, dst: LocalTensor[np.uint8], src0: LocalTensor[E], src1Scalar: Scalar, cmpMode: CMPMODE,
        mask: Int,
    ) -> None: ...  # fmt: skip

    @overload
    def __call__(
        self, dst: LocalTensor[np.uint8], src0: LocalTensor[E], src1Scalar: Scalar, cmpMode: CMPMODE,
        mask: Mask, repeatTime: Int, repeatParams: UnaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class Selecting(Protocol):
    """`dst` of `src0` where `selMask` has a bit, of `src1`, a tensor or a scalar as the mode says, elsewhere."""

    @overload
    def __call__(
        self, dst: LocalTensor[E], selMask: LocalTensor[F], src0: LocalTensor[E], src1: LocalTensor[E] | Scalar,
        selMode: SELMODE, mask: Int,
    ) -> None: ...  # fmt: skip

    @overload
    def __call__(
        self, dst: LocalTensor[E], selMask: LocalTensor[F], src0: LocalTensor[E], src1: LocalTensor[E] | Scalar,
        selMode: SELMODE, mask: Mask, repeatTime: Int, repeatParams: BinaryRepeatParams = ...,
    ) -> None: ...  # fmt: skip


class Extreme(Protocol):
    """The extreme of each repeat with its lane; half or float."""

    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E], mask: Mask, repeatTime: Int, dstRepStride: Int,
        srcBlkStride: Int, srcRepStride: Int, order: ReduceOrder = ...,
    ) -> None: ...  # fmt: skip


class Summing(Protocol):
    """The sum of a count of elements, or of the lanes of repeats."""

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E], sharedTmpBuffer: LocalTensor[E], mask: Int
    ) -> None: ...

    @overload
    def __call__(
        self, dst: LocalTensor[E], src: LocalTensor[E], sharedTmpBuffer: LocalTensor[E], mask: Mask, repeatTime: Int,
        srcRepStride: Int = 8,
    ) -> None: ...  # fmt: skip
