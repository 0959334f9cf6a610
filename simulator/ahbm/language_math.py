"""`tl`'s MATH ops: element-wise, reductions, broadcasting, and scratch made or written by them (ADR-0046, ADR-0061).

Shapes broadcast only along a written 1; operands are computed in float32. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from ml_dtypes import finfo

from pytest_kernbench.simulator.ahbm.handles import Handle
from pytest_kernbench.simulator.ahbm.speech import OWN_FILES, Shape, Speech
from pytest_kernbench.simulator.arguments import whole
from pytest_kernbench.simulator.memory.dtypes import DType, float32, uint8
from pytest_kernbench.simulator.memory.space import Region
from pytest_kernbench.simulator.ops.log import NONE, WIDTH, pack_row
from pytest_kernbench.simulator.ops.op import Op
from pytest_kernbench.simulator.ops.semantics.elementwise import ELEMENTWISE, REDUCTIONS, iota
from pytest_kernbench.simulator.ops.unit import Unit

OWN_FILES.add(__file__)
MASKS = frozenset({"less", "less_equal", "greater", "greater_equal"})
Number = int | float
BEYOND = 2.0**128 - 2.0**103  # the least number that rounds to infinity in float32
HUGE = 2**1023
EXACT = 2**24  # float32 holds every whole number up to here


class MathOps(Speech):
    """Everything the MATH unit does."""

    @cached_property
    def _unit(self) -> Unit:
        return self._pe.math

    @cached_property
    def _math_cost(self) -> int:
        return self._timing.issue_cycles("math")

    @cached_property
    def _cycles(self) -> Callable[[str, int], int]:
        return cache(self._timing.math_cycles)

    # Making and writing scratch

    def empty(self, shape: Shape, dtype: object = float32) -> Handle:
        """Scratch of `shape` that nothing has written yet; no op, no cost."""
        site = self._site()
        return self._allocate(self._shape(site, "empty", shape), self._dtype(site, "empty", dtype), "empty", site)

    def zeros(self, shape: Shape, dtype: object = float32) -> Handle:
        """Scratch of `shape` full of zeros: one MATH op."""
        return self._fill("zeros", shape, 0.0, dtype)

    def full(self, shape: Shape, value: Number, dtype: object = float32) -> Handle:
        """Scratch of `shape` full of `value`: one MATH op."""
        return self._fill("full", shape, value, dtype)

    def iota(self, shape: Shape, axis: int, start: Number = 0, step: Number = 1) -> Handle:
        """float32 of `shape` that counts `start + step * index` along `axis`: one MATH op. Positions for masks (5.4).

        Refuses numbers that float32 would round: whole ones beyond 2**24.
        """
        site = self._site()
        shape, along = self._shape(site, "iota", shape), whole(axis)
        if along is None or not -len(shape) <= along < len(shape):
            self._refuse(site, "bad-parameter", "iota", f"axis {axis!r} of {shape}", "name an axis it has")
        first, by = (self._number(each, "iota", site, "pass a number") for each in (start, step))
        last = first + by * (shape[along] - 1)
        if not max(abs(first), abs(last)) <= EXACT:
            fact = f"it counts from {first:g} to {last:g}, float32 is exact up to {EXACT}"
            self._refuse(
                site, "bad-parameter", "iota", fact, "count from a nearer start and compare with the difference"
            )
        out = self._allocate(shape, float32, "iota", site)
        return self._math("iota", (), out, partial(iota, shape, along % len(shape), first, by), site)

    def _fill(self, call: str, shape: Any, value: Number, dtype: object) -> Handle:
        site = self._site()
        shape, kind = self._shape(site, call, shape), self._dtype(site, call, dtype)
        held = self._held(value, kind, call, site)
        out = self._allocate(shape, kind, call, site)
        return self._math(call, (), out, partial(np.full, shape, held), site)

    def _held(self, value: Number, dtype: DType, call: str, site: int) -> float:
        """`value`, if `dtype` can hold it: whole in a mask, and finite if it is."""
        exact = self._number(value, call, site, "pass a number")
        fits = 0 <= exact <= 255 and exact.is_integer() if dtype == uint8 else not _overflows(exact, dtype)
        if not fits:
            fact = f"{value!r} is no {dtype}, which holds {'whole numbers 0..255' if dtype == uint8 else _most(dtype)}"
            self._refuse(site, "bad-parameter", call, fact, "give a value it holds, or another dtype")
        return exact

    def assign(self, dst: Handle, src: Handle) -> Handle:
        """Copy `src` over `dst` (same shape; cast to `dst`'s dtype): state that outlives a scope (ADR-0063)."""
        site = self._site()
        if not isinstance(dst, Handle):
            fact = f"dst is a {type(dst).__name__}"
            self._refuse(site, "bad-parameter", "assign", fact, "pass the handle to overwrite")
        self._use(src, self._pe.math, "assign", site)
        dst = self._result(dst, src.shape, src.dtype, "assign", site)
        return self._math("assign", (src,), dst, ELEMENTWISE["assign"], site)

    # Element-wise

    def maximum(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """The larger of each pair; NaN if either is."""
        return self._elementwise("maximum", (a, b), out)

    def minimum(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """The smaller of each pair; NaN if either is."""
        return self._elementwise("minimum", (a, b), out)

    def add(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a + b."""
        return self._elementwise("add", (a, b), out)

    def sub(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a - b."""
        return self._elementwise("sub", (a, b), out)

    def mul(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a * b."""
        return self._elementwise("mul", (a, b), out)

    def div(self, a: Handle | Number, b: Handle | Number, *, out: Handle | None = None) -> Handle:
        """a / b."""
        return self._elementwise("div", (a, b), out)

    def exp(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """e to the power of each element."""
        return self._elementwise("exp", (x,), out)

    def tanh(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """The hyperbolic tangent of each element; costs what `exp` costs."""
        return self._elementwise("tanh", (x,), out)

    def log(self, x: Handle, *, out: Handle | None = None) -> Handle:
        """The natural logarithm of each element."""
        return self._elementwise("log", (x,), out)

    def where(
        self, condition: Handle, yes: Handle | Number, no: Handle | Number, *, out: Handle | None = None
    ) -> Handle:
        """`yes` where `condition` is not 0, else `no`."""
        return self._elementwise("where", (condition, yes, no), out)

    def cast(self, x: Handle, dtype: object, *, out: Handle | None = None) -> Handle:
        """`x` in `dtype`, rounded to nearest even."""
        site = self._site()
        self._use(x, self._pe.math, "cast", site)
        out = self._result(out, x.shape, self._dtype(site, "cast", dtype), "cast", site)
        out.axes = x.axes
        return self._math("cast", (x,), out, ELEMENTWISE["cast"], site)

    def broadcast(self, x: Handle, shape: Shape, *, out: Handle | None = None) -> Handle:
        """`x` repeated along its axes of size 1 to `shape`: a real MATH op (ADR-0061)."""
        site = self._site()
        shape = self._shape(site, "broadcast", shape)
        self._use(x, self._pe.math, "broadcast", site)
        if self._common_shape((x.shape, shape), "broadcast", site) != shape:
            self._refuse(
                site, "bad-parameter", "broadcast", f"{x.shape} does not fit {shape}", "only a 1 can be repeated"
            )
        out = self._result(out, shape, x.dtype, "broadcast", site)
        return self._math("broadcast", (x,), out, ELEMENTWISE["broadcast"], site)

    # Reductions

    def max(self, x: Handle, axis: int = -1, *, out: Handle | None = None) -> Handle:
        """The largest element along `axis`, which stays with size 1 (R10)."""
        return self._reduce("max", x, axis, out)

    def sum(self, x: Handle, axis: int = -1, *, out: Handle | None = None) -> Handle:
        """The float32 sum along `axis`, which stays with size 1 (R10)."""
        return self._reduce("sum", x, axis, out)

    def softmax(self, x: Handle, axis: int = -1) -> Handle:
        """Softmax along `axis` as its five MATH ops; kept for baselines."""
        site = self._site()
        self._use(x, self._pe.math, "softmax", site)
        self._axis(x, axis, "softmax", site)
        shifted = self.exp(x - self.max(x, axis))
        return shifted / self.sum(shifted, axis)

    # How an op is made

    def _elementwise(self, name: str, operands: tuple[Any, ...], out: Handle | None = None) -> Handle:
        site = self._site()
        unit = self._unit
        handles = []
        for operand in operands:
            if isinstance(operand, Handle):
                op = operand.op
                # What MATH made itself needs no wait: the usual case is settled here.
                if op is None or op.unit is not unit or operand.tl is not self or not operand.allocation.alive:
                    self._use(operand, unit, name, site)
                handles.append(operand)
            else:
                self._number(operand, name, site)
        if not handles:
            self._refuse(site, "bad-parameter", name, "no operand is a handle", "pass data on chip")
        first, last = handles[0], handles[-1]
        shape = first.shape
        if len(handles) > 2 or last.shape != shape:
            shape = self._common_shape(tuple(handle.shape for handle in handles), name, site)
        if out is None:
            result = self._allocate(shape, uint8 if name in MASKS else float32, name, site)
            result.axes = first.axes if first.axes and first.shape == shape else last.axes
        else:
            result = self._result(out, shape, float32, name, site)
        return self._math(name, tuple(handles), result, ELEMENTWISE[name], site, operands)

    def _reduce(self, name: str, x: Any, axis: int, out: Handle | None) -> Handle:
        site = self._site()
        self._use(x, self._pe.math, name, site)
        axis = self._axis(x, axis, name, site)
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        out = self._result(out, shape, float32, name, site)
        out.axes = x.axes
        return self._math(name, (x,), out, partial(REDUCTIONS[name], axis=axis), site)

    def _axis(self, x: Handle, given: object, call: str, site: int) -> int:
        """The axis of `x` that is meant, counted from 0."""
        axis, axes = whole(given), len(x.shape)
        if axis is None or not -axes <= axis < axes:
            fact = f"axis {given!r} of a handle with {axes} axes"
            self._refuse(site, "bad-parameter", call, fact, f"name an axis it has, {-axes}..{axes - 1}")
        return axis % axes

    def _math(
        self, name: str, sources: tuple[Handle, ...], out: Handle, compute: Callable[..., Any], site: int,
        operands: tuple[Any, ...] | None = None,
    ) -> Handle:  # fmt: skip
        """One op on MATH: reads `sources`, writes `out`; `operands` if numbers are among them.

        The busiest call of all, so it opens its row by hand.
        """
        kernel, log, unit = self._kernel, self._log, self._unit
        kernel.now += self._math_cost
        reads: tuple[Region, ...] = ()
        cells = b""
        elements = out.size
        for source in sources:
            reads += source.regions
            cells += source.cells
            if source.size > elements:
                elements = source.size
        operand = len(log.operand_cells) // 3
        log.operand_cells.frombytes(cells + out.cells)
        row = len(log.cells) // WIDTH
        log.cells.frombytes(pack_row(
            log.names.id(name), unit.kind, kernel.program, kernel.now, NONE, NONE, NONE, 0, 0, elements,
            log.shapes.id(out.shape), operand, len(reads), 1, NONE, NONE, NONE, NONE, self._region, site, NONE, 0,
        ))  # fmt: skip
        self._count += 1
        op = Op(name, kernel, unit, kernel.key | self._count, row, site, kernel.now)
        op.reads, op.writes = reads, out.regions
        op.occupancy = self._cycles(name, elements)
        if self._data:
            op.compute, op.target = compute, out.array()
            op.sources = tuple([
                each.array() if isinstance(each, Handle) else each for each in operands or sources
            ])  # fmt: skip
        for observe in self._observers:
            observe(op)
        unit.post(op)
        for source in sources:
            if source.readers is not None:  # a message slot is given back after its readers have ended
                source.readers.append(op)
        out.op = op
        out.completion = False
        return out

    def _common_shape(self, shapes: tuple[Shape, ...], call: str, site: int) -> Shape:
        """What `shapes` broadcast to, if they may (ADR-0061)."""
        first = shapes[0]
        if all(shape == first for shape in shapes):
            return first
        sizes = [sorted(set(axis)) for axis in zip(*shapes, strict=False)]
        if len({len(shape) for shape in shapes}) > 1 or any(len([n for n in axis if n != 1]) > 1 for axis in sizes):
            fact = f"shapes {' and '.join(map(str, shapes))} do not broadcast"
            remedy = (
                "give them the same number of axes and write a 1 where one is to be repeated (reductions keep theirs)"
            )
            self._refuse(site, "bad-parameter", call, fact, remedy)
        return tuple(max(axis) for axis in zip(*shapes, strict=True))

    def _number(self, value: Any, call: str, site: int, remedy: str = "pass a handle or a number") -> float:
        """`value`, a number that float32 does not make infinite."""
        if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
            self._refuse(site, "bad-parameter", call, f"got a {type(value).__name__}", remedy)
        exact = float(value) if not isinstance(value, int) or abs(value) < HUGE else float(HUGE)
        if BEYOND <= abs(exact) < math.inf:
            shown = f"{exact:.4g}" if abs(exact) < HUGE else "2**1023 or more"
            fact = f"{shown} is beyond float32, {_most(float32)}"
            self._refuse(site, "bad-parameter", call, fact, "pass a number it holds")
        return exact


def _overflows(value: float, dtype: DType) -> bool:
    """Whether the finite `value` becomes infinite in `dtype`."""
    with np.errstate(over="ignore"):
        return math.isfinite(value) and not np.isfinite(np.float64(value).astype(dtype))


def _most(dtype: DType) -> str:
    return f"+-{float(finfo(dtype).max):.4g}"  # type: ignore[no-untyped-call]
