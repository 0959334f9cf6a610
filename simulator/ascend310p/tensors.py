"""Tensors: the host's in GM, and the views of GM and UB that a kernel holds.

Addresses are flat: UB from 0, each tensor of GM at a base of its own, so that a range of bytes is two numbers. An
offset in `[]` counts elements, one in `GetWithOffset` bytes. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import difflib
import sys
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_kernbench.simulator.ascend310p.vocabulary import BY_NUMPY, ElementType, TPosition
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.memory.dtypes import POISON, Array, DType
from pytest_kernbench.simulator.memory.layout import ROW_MAJOR, RowMajor

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ascend310p.language import Asc

GM_BASE = 1 << 32
GM_ALIGNMENT = 512
MOST_BYTES = 2**31 - 1  # offsets in the log have 32 bits
MOST_VIEWS = 4096


class Tensor:
    """A tensor of the host's in GM; every block of a grid sees the same bytes."""

    place = "shared"
    layout: RowMajor = ROW_MAJOR

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType, base: int, number: int) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.type: ElementType = BY_NUMPY[dtype]
        self.base = base
        self.number = number
        self.size = int(np.prod(shape))
        self.nbytes = self.size * dtype.itemsize
        if self.nbytes > MOST_BYTES:
            raise LaunchError(f"tensor {name!r}: {self.nbytes} bytes, of {MOST_BYTES} at most")
        self.bytes: Array = np.full(self.nbytes, POISON, np.uint8)
        self.filled = False  # by the host, or by a run
        self.valid_bytes = self.nbytes  # of them, from the front, that mean something

    def give(self, data: Array) -> None:
        """Bytes from the host."""
        self.bytes[:] = np.ascontiguousarray(data, self.dtype).reshape(-1).view(np.uint8)
        self.bytes[self.valid_bytes :] = POISON
        self.filled = True

    def array(self) -> Array:
        """The elements as they are now (a copy)."""
        return self.bytes.view(self.dtype).reshape(self.shape).copy()

    def __repr__(self) -> str:
        return f"<tensor {self.name} {'x'.join(map(str, self.shape))} {self.dtype}>"


class Spoken:
    """An object of the language: a call that the vendor's has and this has not is refused at the kernel's line."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a checker sees what there is

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            if not name[0].isupper():
                raise AttributeError(f"{kind} has no {name!r}")
            asc = getattr(self, "asc", None) or self._asc
            near = difflib.get_close_matches(name, [each for each in dir(self) if each[0].isupper()], 3)
            remedy = MISSING.get(name) or f"nearest: {', '.join(near) or 'none'}"
            asc.refuse(sys._getframe(1), "unsupported", f"{kind}.{name}", "there is no such call", remedy)


MISSING = {
    "Destroy": "the kernel's end destroys its TPipe; use one a kernel",
    "Reset": "InitBuffer each queue and TBuf once, for the whole kernel",
    "GetPhyAddr": "addresses are not modelled: use [] and ReinterpretCast",
    "SetSize": "use [] for what lies behind, and say the count with each call",
}


class Pointer:
    """A kernel's argument: an address in GM. `pointer + n` counts elements of its tensor's type."""

    __slots__ = ("asc", "element", "tensor")

    def __init__(self, asc: Asc, tensor: Tensor, element: int = 0) -> None:
        self.asc = asc
        self.tensor = tensor
        self.element = element

    def __add__(self, elements: int) -> Pointer:
        if isinstance(elements, bool) or not isinstance(elements, int | np.integer):
            self.asc.refuse(sys._getframe(1), "bad-parameter", "pointer + n", f"n is {elements!r}", "give elements")
        return Pointer(self.asc, self.tensor, self.element + int(elements))

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"<{self.tensor.name} + {self.element} elements>"


class GlobalTensor(Spoken):
    """A view of GM: `asc.GlobalTensor(asc.half)`, then `SetGlobalBuffer(pointer, elements)`."""

    __slots__ = ("asc", "cells", "lo", "size", "tensor", "type")

    def __init__(self, asc: Asc, type: ElementType) -> None:
        self.asc = asc
        self.type = type
        self.tensor: Tensor | None = None
        self.lo = 0
        self.size = 0
        self.cells: Any = None  # its elements, if the run has data

    def SetGlobalBuffer(self, buffer: Pointer, bufferSize: int | None = None) -> None:
        """Elements from `buffer` on, `bufferSize` of them; to the end of the host's tensor if that is not said."""
        self.asc.set_global_buffer(self, buffer, bufferSize, sys._getframe(1))

    def __getitem__(self, offset: int) -> GlobalTensor:
        return self.asc.global_from(self, offset, sys._getframe(1))

    def GetValue(self, offset: int) -> Any:
        """One element, by the scalar unit: slow."""
        return self.asc.load_global(self, offset, sys._getframe(1))

    def SetValue(self, offset: int, value: Any) -> None:
        """One element, by the scalar unit: slow, and posted."""
        self.asc.store_global(self, offset, value, sys._getframe(1))

    def GetSize(self) -> int:
        """Elements."""
        return self.size

    def __repr__(self) -> str:
        name = self.tensor.name if self.tensor else "no buffer"
        return f"<GlobalTensor<{self.type}> of {name}, {self.size} elements>"


class LocalTensor(Spoken):
    """A view of UB. `views` and `parts` keep what was made of it before: the same slice comes up in every iteration."""

    __slots__ = ("asc", "buffer", "cells", "lo", "owner", "parts", "position", "size", "type", "views")

    def __init__(
        self, asc: Asc, type: ElementType, lo: int, size: int, position: TPosition, buffer: Any, owner: int = 0
    ) -> None:
        self.asc = asc
        self.type = type
        self.lo = lo
        self.size = size
        self.position = position
        self.buffer = buffer  # of a queue or a TBuf
        self.owner = owner
        self.cells: Any = None if asc.ub is None else asc.ub[lo : lo + size * type.size].view(type.numpy)
        self.views: dict[int, Array] = {}
        self.parts: dict[int, LocalTensor] = {}

    def __getitem__(self, offset: int) -> LocalTensor:
        part = self.parts.get(offset) if type(offset) is int else None
        if part is None:
            part = self.asc.local_from(self, offset, sys._getframe(1))
            offset = index(offset)
            if len(self.parts) >= MOST_VIEWS:
                self.parts.clear()
            self.parts[offset] = part
        return part

    def GetValue(self, index: int) -> Any:
        """One element, by the scalar unit, as it is now: waits for no other pipe."""
        return self.asc.load_local(self, index, sys._getframe(1))

    def SetValue(self, index: int, value: Any) -> None:
        """One element, by the scalar unit: posted, the body goes on."""
        self.asc.store_local(self, index, value, sys._getframe(1))

    def ReinterpretCast(self, type: ElementType) -> LocalTensor:
        """The same bytes as elements of another type."""
        return self.asc.reinterpret(self, type, sys._getframe(1))

    def GetSize(self) -> int:
        """Elements."""
        return self.size

    def GetPosition(self) -> TPosition:
        return self.position

    def __repr__(self) -> str:
        return f"<LocalTensor<{self.type}> UB[{self.lo}:{self.lo + self.size * self.type.size}], {self.size} elements>"
