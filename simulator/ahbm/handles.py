"""What a kernel holds: typed pointers into HBM, references for composites, and handles of on-chip data.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_kernbench.simulator.arguments import whole
from pytest_kernbench.simulator.memory.dtypes import Array, DType
from pytest_kernbench.simulator.memory.space import Allocation, Region, covers, row_major
from pytest_kernbench.simulator.ops.log import pack_operand
from pytest_kernbench.simulator.ops.op import Op

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.ipcq import Arrival, Channel
    from pytest_kernbench.simulator.ahbm.language import Language

Axes = tuple[str, ...]


NAMELESS = "1"
"""The name of an axis of size 1 that a reshape made: it may be any axis that came or went, and contradicts none."""


def merged_axes(shape: tuple[int, ...], axes: Axes, merged: tuple[int, ...]) -> Axes:
    """Names of `merged`, whose axes are products of neighbours of `shape`; none if one of them is not.

    Axes of size 1 come and go: they have no part in the order of elements.
    """
    left = [(size, name) for size, name in zip(shape, axes, strict=False) if size != 1]
    names = []
    for size in merged:
        taken, product = [], 1
        while product < size and left:
            part, name = left.pop(0)
            product *= part
            taken.append(name)
        if product != size:
            return ()
        names.append("*".join(taken) or NAMELESS)
    return tuple(names) if axes else ()


class Pointer:
    """An element of a tensor in some PE's HBM; `ptr + n` is n elements further on (R4). `tl` took it as an argument."""

    __slots__ = ("allocation", "axes", "dtype", "offset", "pe", "program", "shape", "size", "tl")
    __array_ufunc__ = None  # numpy on the left leaves `+` to us

    def __init__(
        self,
        tl: Language,
        allocation: Allocation,
        program: int,
        pe: int,
        shape: tuple[int, ...],
        dtype: DType,
        axes: Axes,
    ) -> None:
        self.tl = tl
        self.allocation = allocation
        self.program = program  # whose slice it is in; `pe` is the PE that runs it
        self.pe = pe
        self.offset = 0
        self.shape = shape  # the tensor's
        self.size = math.prod(shape)
        self.dtype = dtype
        self.axes = axes

    @property
    def row(self) -> int:
        """Elements in a row of the tensor."""
        return self.shape[-1]

    def __add__(self, elements: int) -> Pointer:
        offset = whole(elements)
        if offset is None:
            self.tl._refuse_operator("pointer + n", f"n is {elements!r}", "n counts elements: give a whole number (//)")
        further = Pointer(self.tl, self.allocation, self.program, self.pe, self.shape, self.dtype, self.axes)
        further.offset = self.offset + offset
        return further

    __radd__ = __add__

    def __sub__(self, other: object) -> NoReturn:
        self.tl._refuse_operator(
            "pointer - n", f"is to be less by {other!r}", "add a negative whole number of elements"
        )

    def __rsub__(self, other: object) -> NoReturn:
        self.tl._refuse_operator("n - pointer", f"is taken from {other!r}", "add elements to a pointer")

    def __getitem__(self, index: object) -> NoReturn:
        self.tl._refuse_operator("pointer[...]", f"is asked for its {index!r}", "load it: tl.load(pointer + n, shape)")

    @property
    def byte(self) -> int:
        """Where it points, from the start of its space."""
        return self.allocation.lo + self.offset * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.allocation.name} + {self.offset} of {self.size} {self.dtype}>"


class Block:
    """A block of elements in HBM: what `tl.ref` names and what load and store move. `strides` are bytes."""

    __slots__ = ("axes", "pointer", "shape", "strides")

    def __init__(self, pointer: Pointer, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
        item = pointer.dtype.itemsize
        self.pointer = pointer
        self.shape = shape
        self.strides = row_major(shape, item) if strides is None else tuple(stride * item for stride in strides)
        self.axes = pointer.axes[-len(shape) :] if len(pointer.axes) >= len(shape) else ()

    @property
    def dtype(self) -> DType:
        return self.pointer.dtype

    @property
    def last(self) -> int:
        """The highest element of the tensor that the block reaches."""
        reach = 0
        for stride, size in zip(self.strides, self.shape, strict=True):
            reach += stride * (size - 1)
        return self.pointer.offset + reach // self.pointer.dtype.itemsize

    def regions(self) -> tuple[Region, ...]:
        pointer = self.pointer
        byte, ranges = pointer.byte, covers(self.shape, self.strides, pointer.dtype.itemsize)
        return tuple([(pointer.allocation, byte + lo, byte + hi) for lo, hi in ranges])

    def array(self) -> Array:
        return self.pointer.allocation.space.view(self.pointer.byte, self.shape, self.strides, self.pointer.dtype)


class Handle:
    """Data in scratch or in a message slot, of `shape` and `dtype`; `h + 1`, `a * b`, `a < b` are MATH ops.

    `op` is the op that writes it, waited for at first use on another unit unless `completion` is set: then only
    `tl.wait` orders it. `message` is set while a recv_async has not been waited for. A handle has no value when the
    kernel runs: what Python would make of it on the spot is refused.
    """

    __array_ufunc__ = None  # numpy on the left leaves the operator to us
    axes: Axes = ()
    op: Op | None = None
    completion = False
    channel: Channel | None = None  # of a message slot, `number` in it; `readers` are the ops that read the slot
    number = -1
    readers: list[Op] | None = None
    message: Arrival | None = None
    regions: tuple[Region, ...] = ()
    cells = b""  # the regions as operands of the log
    transposed = False
    _array: Array | None = None
    allocation: Allocation

    def __init__(self, tl: Language, shape: tuple[int, ...], dtype: DType) -> None:
        self.tl = tl
        self.shape = shape
        self.dtype = dtype
        self.size = math.prod(shape)  # elements

    def place(self, allocation: Allocation) -> None:
        """Put the handle's data in `allocation`, which is as large."""
        lo, hi = allocation.lo, allocation.hi
        self.allocation = allocation
        self.regions = ((allocation, lo, hi),)
        self.cells = pack_operand(allocation.label, lo - allocation.base, hi - lo)

    def overlay(self, other: Handle, lo: int = 0) -> None:
        """Put the handle's data over that of `other`, from byte `lo` of it on."""
        allocation, start, _ = other.regions[0]
        lo, size = start + lo, self.size * self.dtype.itemsize
        self.allocation = allocation
        self.regions = ((allocation, lo, lo + size),)
        self.cells = pack_operand(allocation.label, lo - allocation.base, size)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each axis."""
        if self.transposed:
            return row_major(self.shape[::-1], self.dtype.itemsize)[::-1]
        return row_major(self.shape, self.dtype.itemsize)

    def array(self) -> Array:
        if self._array is None:
            self._array = self.allocation.space.view(self.regions[0][1], self.shape, self.strides, self.dtype)
        return self._array

    def __repr__(self) -> str:
        return f"<handle {self.shape} {self.dtype}>"

    def __add__(self, other: Any) -> Handle:
        return self.tl._elementwise("add", (self, other))

    def __radd__(self, other: Any) -> Handle:
        return self.tl._elementwise("add", (other, self))

    def __sub__(self, other: Any) -> Handle:
        return self.tl._elementwise("sub", (self, other))

    def __rsub__(self, other: Any) -> Handle:
        return self.tl._elementwise("sub", (other, self))

    def __mul__(self, other: Any) -> Handle:
        return self.tl._elementwise("mul", (self, other))

    def __rmul__(self, other: Any) -> Handle:
        return self.tl._elementwise("mul", (other, self))

    def __truediv__(self, other: Any) -> Handle:
        return self.tl._elementwise("div", (self, other))

    def __rtruediv__(self, other: Any) -> Handle:
        return self.tl._elementwise("div", (other, self))

    def __lt__(self, other: Any) -> Handle:
        return self.tl._elementwise("less", (self, other))

    def __le__(self, other: Any) -> Handle:
        return self.tl._elementwise("less_equal", (self, other))

    def __gt__(self, other: Any) -> Handle:
        return self.tl._elementwise("greater", (self, other))

    def __ge__(self, other: Any) -> Handle:
        return self.tl._elementwise("greater_equal", (self, other))

    # What Python would do with a value

    def __float__(self) -> NoReturn:
        self._refuse("float(handle)", "is to be a number", "it has no value while the kernel says things; use tl's ops")

    def __int__(self) -> NoReturn:
        self._refuse("int(handle)", "is to be a number", "it has no value while the kernel says things; use tl's ops")

    def __pow__(self, other: object) -> NoReturn:
        self._refuse("handle ** n", f"is to be raised to {other!r}", "multiply, or say tl.exp(n * tl.log(handle))")

    def __abs__(self) -> NoReturn:
        self._refuse("abs(handle)", "is asked for its absolute value", "say tl.maximum(handle, 0 - handle)")

    def __bool__(self) -> NoReturn:
        self._refuse("if, and, not", "has no value yet when the kernel asks", "choose with tl.where(condition, a, b)")

    def __eq__(self, other: object) -> NoReturn:
        remedy = "compare elements with < <= > >= for tl.where, handles with `is`"
        self._refuse("== or !=", f"is compared with {other!r}", remedy)

    __hash__ = object.__hash__

    def __getitem__(self, index: object) -> NoReturn:
        self._refuse("handle[...]", f"is asked for its {index!r}", "load that block alone: tl.load(pointer + n, shape)")

    def __matmul__(self, other: object) -> NoReturn:
        self._refuse("@", f"is to be multiplied with {other!r}", 'say tl.composite("gemm", a, b) or tl.dot(a, b)')

    def __neg__(self) -> NoReturn:
        self._refuse("-handle", "is to be negated, and MATH has no such op", "say 0 - handle")

    def __array__(self, *how: object, **options: object) -> NoReturn:
        self._refuse("np.asarray", "is taken for an array", "use tl's ops; the host reads run.array(tensor)")

    def _refuse(self, said: str, fact: str, remedy: str) -> NoReturn:
        self.tl._refuse_operator(said, f"{self!r} {fact}", remedy)
