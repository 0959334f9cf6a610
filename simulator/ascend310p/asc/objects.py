"""Types of what a kernel of the 310P holds: tensors, queues, buffers, flags. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, SupportsIndex, TypeVar, overload

import numpy as np

from pytest_kernbench.simulator.ascend310p.vocabulary import Event, TPosition

E = TypeVar("E", bound=np.generic)
F = TypeVar("F", bound=np.generic)
Int = SupportsIndex
Scalar = float | np.floating[Any] | np.integer[Any]
"""A number, rounded to the element type of the tensors it meets."""


class ElementType(Protocol[E]):
    """An element type of the core, such as `asc.half`."""

    name: str
    size: int
    numpy: np.dtype[E]


class Pointer(Protocol):
    """A tensor among the kernel's arguments: an address in GM. `pointer + n` is n elements of the tensor further on."""

    def __add__(self, elements: Int, /) -> Pointer: ...

    def __radd__(self, elements: Int, /) -> Pointer: ...


class GlobalTensor(Protocol[E]):
    """A view of GM. `tensor[n]` is the view from element n on."""

    def SetGlobalBuffer(self, buffer: Pointer, bufferSize: Int | None = None) -> None:
        """Elements from `buffer` on, `bufferSize` of them; to the end of the host's tensor if that is not said."""

    def __getitem__(self, offset: Int, /) -> GlobalTensor[E]: ...

    def GetValue(self, offset: Int) -> E:
        """One element, by the scalar unit through its cache: slow. S waits for it."""

    def SetValue(self, offset: Int, value: E | Scalar) -> None:
        """One element, by the scalar unit through its cache: slow, and posted."""

    def GetSize(self) -> int:
        """Elements."""


class LocalTensor(Protocol[E]):
    """A view of UB. `tensor[n]` is the view from element n on."""

    def __getitem__(self, offset: Int, /) -> LocalTensor[E]: ...

    def GetValue(self, index: Int) -> E:
        """One element, by the scalar unit, as it is now: waits for no other pipe."""

    def SetValue(self, index: Int, value: E | Scalar) -> None:
        """One element, by the scalar unit: posted, the body goes on."""

    def ReinterpretCast(self, type: ElementType[F]) -> LocalTensor[F]:
        """The same bytes as elements of another type."""

    def GetSize(self) -> int:
        """Elements."""

    def GetPosition(self) -> TPosition:
        """The position of the queue or buffer that it is of."""


class TQue(Protocol):
    """A queue of buffers between two pipes, or of nobody's (VECCALC)."""

    def AllocTensor(self, type: ElementType[E]) -> LocalTensor[E]:
        """The next free buffer; what is in it is anything."""

    def EnQue(self, tensor: LocalTensor[Any]) -> None:
        """The buffer is full: hand it over when the pipe that filled it is done."""

    @overload
    def DeQue(self) -> LocalTensor[Any]:
        """The oldest full buffer, of the type it was filled with; the pipe that uses it waits until it is full."""

    @overload
    def DeQue(self, type: ElementType[E]) -> LocalTensor[E]:
        """The oldest full buffer, as elements of `type`."""

    def FreeTensor(self, tensor: LocalTensor[Any]) -> None:
        """The buffer is used up: give it back when the pipe that used it is done."""

    def HasTensorInQue(self) -> bool:
        """Whether a DeQue would find a tensor."""

    def GetTensorCountInQue(self) -> int:
        """Tensors that wait for their DeQue."""

    def VacantInQue(self) -> bool:
        """Whether an EnQue would find room."""

    def HasIdleBuffer(self) -> bool:
        """Whether an AllocTensor would find a buffer."""


class TBuf(Protocol):
    """Bytes of UB to carve by hand: no hand-over, no flags."""

    def Get(self, type: ElementType[E], len: Int | None = None) -> LocalTensor[E]:
        """The buffer from its start, `len` elements or all of it: always the same address."""

    def GetWithOffset(self, type: ElementType[E], size: Int, bufOffset: Int) -> LocalTensor[E]:
        """`size` elements from byte `bufOffset` on."""


class TPipe(Protocol):
    """Hands out UB. One a kernel."""

    @overload
    def InitBuffer(self, what: TQue, num: Int, len: Int, /) -> None:
        """`num` buffers of `len` bytes each, rounded up to 32, for a queue."""

    @overload
    def InitBuffer(self, what: TBuf, len: Int, /) -> None:
        """`len` bytes, rounded up to 32."""


class TQueSync(Protocol):
    """A flag from one pipe to another; ids are those of SetFlag."""

    def SetFlag(self, id: Int) -> None:
        """Raise the flag when what the first pipe was given has ended."""

    def WaitFlag(self, id: Int) -> None:
        """Hold the second pipe until the flag is up."""


class HardEvents(Protocol):
    """`asc.HardEvent.MTE2_V`, or by name `asc.HardEvent["MTE2_V"]`: what waits stands behind; V_V is a barrier."""

    S_V: Event
    S_MTE2: Event
    S_MTE3: Event
    V_S: Event
    V_V: Event
    V_MTE2: Event
    V_MTE3: Event
    MTE2_S: Event
    MTE2_V: Event
    MTE2_MTE3: Event
    MTE3_S: Event
    MTE3_V: Event
    MTE3_MTE2: Event

    def __getitem__(self, name: str, /) -> Event: ...

    def __iter__(self) -> Iterator[Event]: ...
