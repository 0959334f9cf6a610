"""What a kernel of the AHBM chip can say, as types: annotate `tl: Tl` and an editor completes it, a checker checks it.

Declarations alone: `language` does it, and tests/typing holds the one against the other. A kernel imports nothing else
of the device, so that it may as well be called with a `tl` of a test's own. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar, overload

import numpy as np

__all__ = ["Block", "DTypeLike", "Handle", "Number", "Op", "Pointer", "Shape", "Step", "Tl"]

DType = np.dtype[Any]
DTypeLike = Literal["bfloat16", "float16", "float32", "uint8"] | DType | type[np.generic]
"""A dtype the device stores: its name, numpy's object, or numpy's scalar type; `uint8` is for masks."""
Number = float | np.floating[Any] | np.integer[Any]
"""A number that float32 does not make infinite."""
Shape = tuple[SupportsIndex, ...]
"""1 to 32 sizes, each > 0."""


class Pointer(Protocol):
    """A tensor among the kernel's arguments: an element of it in some PE's HBM. `ptr + n` is n elements further on."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""

    @property
    def size(self) -> int:
        """Elements of the tensor."""

    @property
    def row(self) -> int:
        """Elements in a row of the tensor."""

    @property
    def offset(self) -> int:
        """The element of the tensor that it points to."""

    @property
    def dtype(self) -> DType:
        """The tensor's dtype."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the tensor's axes, if it has any."""

    def __add__(self, elements: SupportsIndex, /) -> Pointer: ...

    def __radd__(self, elements: SupportsIndex, /) -> Pointer: ...


class Block(Protocol):
    """A block of elements in HBM that a composite streams; made by `tl.ref`."""

    @property
    def pointer(self) -> Pointer:
        """Its first element."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> DType:
        """Its tensor's dtype."""


class Handle(Protocol):
    """Data in scratch or in a message slot. `a + b`, `a * 2`, `a < b` are MATH ops, of a handle and a handle or number.

    It has no value while the kernel runs: what Python would make of it on the spot (`if h:`, `h[0]`, `-h`) is refused.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def size(self) -> int:
        """Its elements."""

    @property
    def dtype(self) -> DType:
        """Its dtype; float32 for whatever MATH and GEMM make, uint8 for masks."""

    def __add__(self, other: Handle | Number, /) -> Handle: ...

    def __radd__(self, other: Number, /) -> Handle: ...

    def __sub__(self, other: Handle | Number, /) -> Handle: ...

    def __rsub__(self, other: Number, /) -> Handle: ...

    def __mul__(self, other: Handle | Number, /) -> Handle: ...

    def __rmul__(self, other: Number, /) -> Handle: ...

    def __truediv__(self, other: Handle | Number, /) -> Handle: ...

    def __rtruediv__(self, other: Number, /) -> Handle: ...

    def __lt__(self, other: Handle | Number, /) -> Handle: ...

    def __le__(self, other: Handle | Number, /) -> Handle: ...

    def __gt__(self, other: Handle | Number, /) -> Handle: ...

    def __ge__(self, other: Handle | Number, /) -> Handle: ...


class Op(Protocol):
    """What `tl.store` and `tl.send` return: a transfer to `tl.wait` for."""

    @property
    def name(self) -> str:
        """The call that made it."""

    @property
    def row(self) -> int:
        """Its row of the log."""

    @property
    def issue(self) -> int:
        """The cycle at which it was said."""


Step = tuple[Literal["scale"], Number] | tuple[Literal["bias", "add"], Handle] | tuple[Literal["relu"]]
"""A step of an epilogue, in float32: times a number, plus a row (1, N), plus a matrix (M, N), negative becomes 0."""
Waitable = TypeVar("Waitable", Handle, Op)
Other = TypeVar("Other", Handle, Op)


class Tl(Protocol):
    """The object a kernel receives as `tl` (ADR-0046).

    A call that the device refuses raises KernelError at the kernel's line. `out=` is a handle of the result's shape to
    overwrite, which nobody reads any more; without it the result is new scratch.
    """

    @property
    def bfloat16(self) -> DType:
        """The real one, rounded to nearest even."""

    @property
    def float16(self) -> DType:
        """IEEE half."""

    @property
    def float32(self) -> DType:
        """IEEE single."""

    # Programs

    def program_id(self, axis: int = 0) -> int:
        """This program's number: axis 0 the PE in its cube, axis 1 the cube."""

    def num_programs(self, axis: int = 0) -> int:
        """How many programs were launched along `axis`."""

    # HBM

    def load(self, ptr: Pointer, shape: Shape, strides: Shape | None = None, *, out: Handle | None = None) -> Handle:
        """Bring `shape` elements at `ptr` to scratch, in its tensor's dtype. Returns at once; the first use waits.

        `strides` count elements; without them the block is dense and row-major (ADR-0062).
        """

    def ref(self, ptr: Pointer, shape: Shape, strides: Shape | None = None) -> Block:
        """Name `shape` elements at `ptr` for a composite to stream; nothing moves now. `strides` count elements."""

    def store(self, ptr: Pointer, h: Handle, strides: Shape | None = None) -> Op:
        """Write `h` to HBM at `ptr`, cast to the tensor's dtype. Asynchronous: wait for what it returns."""

    # Products

    def composite(
        self, kind: Literal["gemm"], a: Handle, b: Block | Handle, *, trans_b: bool | None = None,
        out: Handle | Pointer | None = None, epilogue: Sequence[Step] = (),
    ) -> Handle:  # fmt: skip
        """Product of `a` (M, K) in scratch and `b` (K, N), or (N, K) with `trans_b`, accumulated in float32.

        `b` is `tl.ref(...)`, streamed from HBM once, or a handle, of the dtype of `a`. Returns a completion handle of
        the result (M, N) at once: `tl.wait` it before use, which covers a write to HBM if `out` is a pointer. A square
        `b` without names of axes needs `trans_b` said (ADR-0014).
        """

    def dot(self, a: Handle, b: Handle, trans_b: bool | None = None) -> Handle:
        """The same product of two handles, and the kernel waits for it. Kept for baselines."""

    # Scratch

    def empty(self, shape: Shape, dtype: DTypeLike = ...) -> Handle:
        """Scratch of `shape` that nothing has written yet, float32 if not said; no op, no cost."""

    def zeros(self, shape: Shape, dtype: DTypeLike = ...) -> Handle:
        """Scratch of `shape` full of zeros, float32 if not said: one MATH op."""

    def full(self, shape: Shape, value: Number, dtype: DTypeLike = ...) -> Handle:
        """Scratch of `shape` full of `value`, float32 if not said: one MATH op."""

    def iota(self, shape: Shape, axis: int, start: Number = 0, step: Number = 1) -> Handle:
        """float32 of `shape` that counts `start + step * index` along `axis`: one MATH op. Positions for masks.

        Refuses numbers that float32 would round: whole ones beyond 2**24.
        """

    def assign(self, dst: Handle, src: Handle) -> Handle:
        """Copy `src` over `dst` (same shape; cast to `dst`'s dtype): state that outlives a scope (ADR-0063)."""

    def scratch_scope(self) -> AbstractContextManager[None, None]:
        """`with tl.scratch_scope():` releases at its exit what was allocated inside, and never waits (ADR-0063)."""

    # Element by element: shapes broadcast along a written 1 only; float32 results

    def maximum(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """The larger of each pair; NaN if either is."""

    def minimum(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """The smaller of each pair; NaN if either is."""

    def add(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a + b."""

    def sub(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a - b."""

    def mul(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a * b."""

    def div(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a / b."""

    def exp(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """e to the power of each element."""

    def tanh(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """The hyperbolic tangent of each element; costs what `exp` costs."""

    def log(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """The natural logarithm of each element."""

    def where(
        self, condition: Handle, yes: Handle | Number, no: Handle | Number, *, out: Handle | None = None
    ) -> Handle:
        """`yes` where `condition` is not 0, else `no`."""

    def cast(self, x: Handle, dtype: DTypeLike, *, out: Handle | None = None) -> Handle:
        """`x` in `dtype`, rounded to nearest even."""

    def broadcast(self, x: Handle, shape: Shape, *, out: Handle | None = None) -> Handle:
        """`x` repeated along its axes of size 1 to `shape`: a real MATH op (ADR-0061)."""

    # Reductions

    def max(self, x: Handle, axis: int = -1, *, out: Handle | None = None) -> Handle:
        """The largest element along `axis`, which stays with size 1."""

    def sum(self, x: Handle, axis: int = -1, *, out: Handle | None = None) -> Handle:
        """The float32 sum along `axis`, which stays with size 1."""

    def softmax(self, x: Handle, axis: int = -1) -> Handle:
        """Softmax along `axis` as its five MATH ops; kept for baselines."""

    # Views: the same bytes, no op

    def trans(self, h: Handle) -> Handle:
        """`h`, of two axes, with its axes swapped: a real transpose of what is seen, by strides."""

    def reshape(self, h: Handle, shape: Shape) -> Handle:
        """`h` seen as `shape`: the same elements in the same order, never a transpose."""

    def rows(self, h: Handle, first: SupportsIndex, count: SupportsIndex) -> Handle:
        """Rows [first, first + count) of `h`, along its first axis."""

    # Messages

    def send(self, direction: str, h: Handle) -> Op:
        """Send `h` to the neighbour in `direction`. Blocks until it has a free slot there, then is asynchronous.

        Wait for what it returns before the source is overwritten (ADR-0023).
        """

    def recv(self, direction: str, shape: Shape, dtype: DTypeLike = "float32") -> Handle:
        """Wait for the next message from `direction`; return it in its slot, without a copy.

        Its header has to say `shape` and `dtype`. The slot is given back by `tl.release`, or at the exit of the
        enclosing scope or kernel.
        """

    def recv_async(self, direction: str, shape: Shape, dtype: DTypeLike = "float32") -> Handle:
        """Ask for the next message from `direction`; `tl.wait` the handle before it is used."""

    def release(self, h: Handle) -> None:
        """Give the slot of a received message back, now. Ops that read it have to have ended."""

    # Order, and names for the log

    @overload
    def wait(self, handle: Waitable, /) -> Waitable:
        """Go on when it is complete; returns it."""

    @overload
    def wait(self, first: Waitable, second: Other, /) -> tuple[Waitable, Other]:
        """Go on when both are complete; returns them."""

    @overload
    def wait(self, first: Handle | Op, second: Handle | Op, /, *more: Handle | Op) -> tuple[Handle | Op, ...]:
        """Go on when each is complete; returns them."""

    def region(self, name: str) -> AbstractContextManager[None, None]:
        """`with tl.region("softmax"):` labels the rows of what is said inside; labels nest with a slash."""
