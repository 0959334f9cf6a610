"""`tl`: all that a kernel on a PE can say (ADR-0046). Checks operands, makes ops, decides no time.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import difflib
import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_kernbench.simulator.ahbm.handles import Block, Handle, Pointer, merged_axes
from pytest_kernbench.simulator.ahbm.language_gemm import GemmOps
from pytest_kernbench.simulator.ahbm.language_math import MathOps
from pytest_kernbench.simulator.ahbm.language_queue import QueueOps
from pytest_kernbench.simulator.ahbm.speech import OWN_FILES
from pytest_kernbench.simulator.arguments import is_name, whole
from pytest_kernbench.simulator.memory.dtypes import bfloat16, float16, float32
from pytest_kernbench.simulator.ops.log import NONE
from pytest_kernbench.simulator.ops.op import Op

__all__ = ["Block", "Handle", "Language", "Pointer"]

OWN_FILES.add(__file__)


class Language(GemmOps, QueueOps, MathOps):
    """The object a kernel receives as `tl`."""

    bfloat16 = bfloat16
    float16 = float16
    float32 = float32

    if not TYPE_CHECKING:  # a type checker reports unknown calls by itself

        def __getattr__(self, name: str) -> Any:
            near = difflib.get_close_matches(name, [each for each in dir(type(self)) if not each.startswith("_")])
            raise AttributeError(f"tl has no {name!r}; nearest: {', '.join(near) or 'see docs/language.md'}")

    def program_id(self, axis: int = 0) -> int:
        """This program's number: axis 0 the PE in its cube, axis 1 the cube."""
        return self._pe.cube if self._grid_axis(axis, "program_id") else self._pe.rank

    def num_programs(self, axis: int = 0) -> int:
        """How many programs were launched along `axis`."""
        return self._launch.grid[self._grid_axis(axis, "num_programs")]

    def _grid_axis(self, given: object, call: str) -> int:
        axis = whole(given)
        if axis not in (0, 1):
            remedy = "axis 0 is the PE in its cube, axis 1 the cube"
            self._refuse(self._site(), "bad-parameter", call, f"axis {given!r}", remedy)
        return axis

    def trans(self, h: Handle) -> Handle:
        """`h` with its two axes swapped: a real transpose of what is seen, by strides; no op."""
        site = self._site()
        if not isinstance(h, Handle) or len(h.shape) != 2:
            self._refuse(site, "bad-parameter", "trans", f"got {h!r}", "pass a handle with two axes")
        self._here(h, "trans", site)
        seen = self._alias(h, h.shape[::-1], h.axes[::-1])
        seen.transposed = not h.transposed
        return seen

    def reshape(self, h: Handle, shape: tuple[int, ...]) -> Handle:
        """`h` seen as `shape`: the same elements in the same order; no op, and never a transpose (R11, B-57)."""
        site = self._site()
        if not isinstance(h, Handle):
            self._refuse(site, "bad-parameter", "reshape", f"got {h!r}", "pass a handle")
        self._here(h, "reshape", site)
        shape = self._shape(site, "reshape", shape)
        if math.prod(shape) != h.size:
            fact = f"{h.shape} has {h.size} elements, {shape} has {math.prod(shape)}"
            self._refuse(site, "bad-parameter", "reshape", fact, "give a shape with as many elements")
        if h.transposed:
            fact = f"{h.shape} is seen transposed, so its elements are not in order in memory"
            self._refuse(site, "bad-parameter", "reshape", fact, "reshape first, then tl.trans")
        return self._alias(h, shape, merged_axes(h.shape, h.axes, shape))

    def rows(self, h: Handle, first: int, count: int) -> Handle:
        """Rows [first, first + count) of `h`, along its first axis: a part of the same bytes; no op."""
        site = self._site()
        if not isinstance(h, Handle):
            self._refuse(site, "bad-parameter", "rows", f"got {h!r}", "pass a handle")
        self._here(h, "rows", site)
        start, size = whole(first), whole(count)
        if start is None or size is None or start < 0 or size < 1 or start + size > h.shape[0]:
            fact = f"rows {first!r} and {count!r} more of {h.shape}"
            self._refuse(site, "bad-parameter", "rows", fact, f"name rows it has, 0..{h.shape[0] - 1}, at least one")
        if h.transposed:
            fact = f"{h.shape} is seen transposed, so its rows are not in one piece"
            self._refuse(site, "bad-parameter", "rows", fact, "take rows first, then tl.trans")
        seen = self._alias(h, (size, *h.shape[1:]), h.axes)
        seen.overlay(h, start * (h.size // h.shape[0]) * h.dtype.itemsize)
        return seen

    def _alias(self, h: Handle, shape: tuple[int, ...], axes: tuple[str, ...]) -> Handle:
        """The data of `h` under another shape."""
        seen = Handle(self, shape, h.dtype)
        seen.allocation, seen.regions, seen.cells, seen.axes = h.allocation, h.regions, h.cells, axes
        seen.op, seen.completion = h.op, h.completion
        seen.channel, seen.number, seen.readers = h.channel, h.number, h.readers
        return seen

    def wait(self, *handles: Handle | Op) -> Any:
        """Go on when each of `handles` is complete; returns them (one alone, or a tuple)."""
        site = self._site()
        for handle in handles:
            if isinstance(handle, Op):
                if handle.kernel is not self._kernel:
                    self._refuse_stranger(f"{handle.name} of {handle.kernel.name}", site)
                self._wait_op(handle, site, f"{handle.name} of row {handle.row}")
            elif isinstance(handle, Handle):
                self._wait_handle(handle, site)
            else:
                fact = f"got a {type(handle).__name__}"
                self._refuse(
                    site,
                    "bad-parameter",
                    "wait",
                    fact,
                    "wait for what load, store, composite, send or recv_async returned",
                )
        return handles[0] if len(handles) == 1 else handles

    def _refuse_stranger(self, what: object, site: int) -> NoReturn:
        fact = f"{what} is another kernel's or another run's"
        self._refuse(site, "bad-parameter", "wait", fact, "wait for what this kernel said; PEs meet in send and recv")

    def _wait_handle(self, handle: Handle, site: int) -> None:
        if handle.tl is not self:
            self._refuse_stranger(handle, site)
        if handle.message is not None:
            self._pay("wait")
            row = self._open("wait", self._cpu, site, start=self._kernel.now)
            self._receive(handle, row, "wait", site)
        elif not handle.allocation.alive:
            self._refuse_dead(handle, "wait", site)
        elif handle.op is not None:
            self._wait_op(handle.op, site, f"{handle.op.name} of row {handle.op.row}")

    def scratch_scope(self) -> Scope:
        """`with tl.scratch_scope():` releases at its exit what was allocated inside, and never waits (ADR-0063)."""
        return Scope(self)

    def region(self, name: str) -> RegionLabel:
        """`with tl.region("softmax"):` labels the rows of what is said inside."""
        if not is_name(name):
            fact = f"the label is {name!r}"
            self._refuse(self._site(), "bad-parameter", "region", fact, "give a printable string")
        return RegionLabel(self, name)

    # Entering and leaving

    def _enter_scope(self) -> None:
        self._scratch.enter()
        self._pe.scoped.append([])

    def _leave_scope(self, site: int) -> None:
        kernel = self._kernel
        self._return_slots(len(self._pe.scoped), site)
        for handle in self._pe.scoped.pop():
            if handle.message is not None:
                said = next(said for asked, said in self._pe.awaiting if asked is handle)
                self._found(
                    "recycle-in-flight",
                    f"tl.scratch_scope of {kernel.name} is left at {self._log.site(site)} while the recv_async at "
                    f"{self._log.site(said)} was not waited for; wait for it inside the scope",
                )
            elif handle.op is not None and self._scratch.in_innermost(handle.allocation):
                for observe in self._probes.recycle:
                    observe(kernel, handle.op, site)
        self._scratch.leave(site)

    def _abandon_scope(self) -> None:
        """The kernel is being ended inside the scope: nothing is checked any more."""
        self._pe.scoped.pop()
        self._scratch.leave(NONE)

    def _return_slots(self, depth: int, site: int) -> None:
        """Give back the slots received inside so many scopes or more, once their readers have ended."""
        for handle, inside in list(self._pe.held):
            if inside >= depth:
                self._give_back(handle, site, self._last_readers(handle))

    def _end(self, site: int) -> None:
        """The kernel returned: slots go home, and what nobody waited for is left behind."""
        self._return_slots(0, site)
        for handle, said in self._pe.awaiting:
            if handle.message is not None:
                self._found(
                    "op-in-flight-at-exit",
                    f"{self._kernel.name} never waited for its recv_async at {self._log.site(said)}; tl.wait it",
                )


class Scope:
    """A scratch scope; its exit releases, and an exception in it passes through untouched."""

    def __init__(self, tl: Language) -> None:
        self._tl = tl

    def __enter__(self) -> None:
        self._tl._enter_scope()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self._tl._leave_scope(self._tl._site())
        else:
            self._tl._abandon_scope()


class RegionLabel:
    """A label for rows of the log; labels nest with a slash."""

    def __init__(self, tl: Language, name: str) -> None:
        self._tl = tl
        self._name = name
        self._outer = 0

    def __enter__(self) -> None:
        tl = self._tl
        self._outer = tl._region
        outer = tl._log.regions.values[self._outer]
        tl._region = tl._log.regions.id(f"{outer}/{self._name}" if outer else self._name)

    def __exit__(self, *exception: object) -> None:
        self._tl._region = self._outer
