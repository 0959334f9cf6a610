"""`tl`'s products: the composite, one descriptor to the scheduler, and the blocking `dot` (ADR-0014).

An operand that only matches by shape is refused: axes that have names must agree (R1). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.ahbm.handles import NAMELESS, Axes, Block, Handle, Pointer
from pytest_kernbench.simulator.ahbm.language_dma import DmaOps
from pytest_kernbench.simulator.ahbm.plan import Shape
from pytest_kernbench.simulator.ahbm.scheduler import Composite, CompositeOp
from pytest_kernbench.simulator.ahbm.speech import OWN_FILES
from pytest_kernbench.simulator.memory.dtypes import float32, uint8
from pytest_kernbench.simulator.memory.space import Region
from pytest_kernbench.simulator.ops.log import PARENT, WIDTH
from pytest_kernbench.simulator.ops.semantics.matmul import matmul

OWN_FILES.add(__file__)


class Sizes(NamedTuple):
    """Sizes of a product."""

    m: int
    n: int
    k: int
    trans_b: bool


Step = tuple[Any, ...]
MOST_WORK = 2**31 - 1  # a log column holds 32 bits
STEPS = {"scale": 1, "bias": 1, "add": 1, "relu": 0}  # operands of each epilogue step


class GemmOps(DmaOps):
    """What the GEMM unit does."""

    def composite(
        self, kind: str, a: Handle, b: Block | Handle, *, trans_b: bool | None = None,
        out: Handle | Pointer | None = None, epilogue: Sequence[Step] = (),
    ) -> Handle:  # fmt: skip
        """Product of `a` (M, K) in scratch and `b` (K, N), or (N, K) with `trans_b`, accumulated in float32.

        `b` is `tl.ref(...)`, streamed from HBM once, or a handle. Returns a completion handle of the result (in `out`
        if given) at once: `tl.wait` it before use. `epilogue` steps: ("scale", number), ("bias", row), ("add", handle),
        ("relu",).
        """
        site = self._site()
        if not isinstance(kind, str) or kind != "gemm":
            self._refuse(site, "unsupported", "composite", f"kind {kind!r}", 'the scheduler takes "gemm"')
        gemm = self._pe.gemm
        self._use(a, gemm, "composite", site)
        if not isinstance(b, (Block, Handle)):
            self._refuse(
                site, "bad-parameter", "composite", f"b is a {type(b).__name__}", "pass tl.ref(...) or a handle"
            )
        if isinstance(b, Handle):
            self._use(b, gemm, "composite", site)
        elif b.pointer.tl._launch is not self._launch:
            self._refuse(site, "bad-parameter", "composite", f"b is {b.pointer!r} of an earlier run", "tl.ref it here")
        m, n, k, transposed, axes = self._contract(a, b, trans_b, "composite", site)
        steps = self._steps(epilogue, m, n, site)
        result, target = self._composite_target(out, m, n, site)
        result.axes = axes
        return self._submit(a, b, Sizes(m, n, k, transposed), steps, result, target, site)

    def dot(self, a: Handle, b: Handle, trans_b: bool | None = None) -> Handle:
        """The same product of two handles, and the kernel waits for it. Kept for baselines."""
        site = self._site()
        gemm = self._pe.gemm
        self._use(a, gemm, "dot", site)
        self._use(b, gemm, "dot", site)
        m, n, k, transposed, axes = self._contract(a, b, trans_b, "dot", site)
        out = self._allocate((m, n), float32, "dot", site)
        out.axes = axes
        shape = self._log.shapes.id((m, n, k))
        op = self._op("dot", gemm, site, a.regions + b.regions, out.regions, work=m * n * k, shape=shape)
        op.occupancy = self._timing.dot_cycles(m, n, k, a.dtype.itemsize)
        if self._data:
            right = b.array()
            op.sources, op.target = (a.array(), right.T if transposed else right), out.array()
            op.compute = lambda left, right: matmul(left, right, False)
        self._announce(op)
        self._sim.at(self._kernel.now, op.key, self._pe.scheduler.submit, op)
        for source in (a, b):
            if source.readers is not None:
                source.readers.append(op)
        out.op = op
        self._wait_op(op, site, f"dot of row {op.row}")
        return out

    # Operands

    def _contract(
        self, a: Handle, b: Block | Handle, trans_b: bool | None, call: str, site: int
    ) -> tuple[int, int, int, bool, Axes]:
        """(M, N, K, whether b is transposed, axes of the result) of a product that may be."""
        self._operand_dtypes(a, b, call, site)
        if len(a.shape) != 2 or len(b.shape) != 2:
            fact = f"a is {a.shape}, b is {b.shape}"
            self._refuse(site, "bad-parameter", call, fact, "a product takes two matrices: reshape by strides")
        if trans_b is not None and not isinstance(trans_b, (bool, np.bool_)):
            self._refuse(site, "bad-parameter", call, f"trans_b={trans_b!r}", "pass True or False, or leave it out")
        self._say_orientation(a, b, trans_b, call, site)
        transposed = bool(trans_b)
        inner, outer = (1, 0) if transposed else (0, 1)
        if a.shape[0] * a.shape[1] * b.shape[outer] > MOST_WORK:
            macs = a.shape[0] * a.shape[1] * b.shape[outer]
            fact = f"a {a.shape} times b {b.shape} is {macs} MACs, an op has {MOST_WORK} at most"
            self._refuse(site, "capacity", call, fact, "split the product")
        if a.shape[1] != b.shape[inner]:
            sizes = f"contracts {a.shape[1]} with {b.shape[inner]}"
            fact = f"a is {a.shape}, b is {b.shape} with trans_b={transposed}: {sizes}"
            named = bool(a.axes and b.axes)
            other = a.shape[1] == b.shape[outer] and not (named and a.axes[1] == b.axes[inner])
            remedy = f"pass trans_b={not transposed}" if other else "give operands that share K"
            self._refuse(site, "bad-parameter", call, fact, remedy)
        if a.axes and b.axes and a.axes[1] != b.axes[inner] and NAMELESS not in (a.axes[1], b.axes[inner]):
            names = f"contracts axis {a.axes[1]!r} of a {a.shape} with axis {b.axes[inner]!r} of b {b.shape}"
            fact = f"{names}: only the sizes match"
            self._refuse(site, "bad-parameter", call, fact, f"pass trans_b={not transposed}")
        axes = (a.axes[0], b.axes[outer]) if a.axes and b.axes else ()
        return a.shape[0], b.shape[outer], a.shape[1], transposed, axes

    def _say_orientation(self, a: Handle, b: Block | Handle, trans_b: bool | None, call: str, site: int) -> None:
        """A square operand fits either way round; somebody has to say which (R1)."""
        if trans_b is None and b.shape[0] == b.shape[1] and not (a.axes and b.axes):
            fact = f"b is square, {b.shape}: its shape does not say whether it is transposed"
            self._refuse(
                site, "bad-parameter", call, fact, "pass trans_b=True or trans_b=False, or name the tensors' axes"
            )

    def _operand_dtypes(self, a: Handle, b: Block | Handle, call: str, site: int) -> None:
        """Both operands have one dtype, and not that of masks."""
        left, right = a.dtype, b.pointer.dtype if isinstance(b, Block) else b.dtype
        if left == right and left != uint8:
            return
        fact = f"a is {left}, b is {right}"
        if uint8 in (left, right):
            self._refuse(site, "bad-parameter", call, fact, "GEMM takes no masks: tl.cast to bfloat16 or float32")
        if left != right:
            wide, narrow = ("b", left) if right == float32 and isinstance(b, Handle) else ("a", right)
            remedy = f"tl.cast {wide} to {narrow}: GEMM operands have the storage dtype"
            self._refuse(site, "bad-parameter", call, fact, remedy)

    def _steps(self, epilogue: object, m: int, n: int, site: int) -> tuple[Step, ...]:
        """The epilogue's steps, each with operands it can take."""
        if not isinstance(epilogue, (tuple, list)):
            remedy = 'give a tuple of steps: (("scale", 0.5), ("relu",))'
            self._refuse(site, "bad-parameter", "composite", f"epilogue={epilogue!r}", remedy)
        for step in epilogue:
            name, operands = (step[0], step[1:]) if isinstance(step, tuple) and step else (None, ())
            if not isinstance(name, str) or STEPS.get(name) != len(operands):
                known = ", ".join(f"{known} ({count} operands)" for known, count in STEPS.items())
                self._refuse(site, "bad-parameter", "composite", f"epilogue step {step!r}", f"the steps are {known}")
            if name == "scale":
                self._number(operands[0], "composite", site, "scale takes a number")  # type: ignore[attr-defined]
            elif operands:
                self._use(operands[0], self._pe.gemm, f"composite (epilogue {name})", site)
                wanted = (1, n) if name == "bias" else (m, n)
                if operands[0].shape != wanted:
                    fact = f"epilogue {name} is {operands[0].shape}, the result {(m, n)}"
                    self._refuse(site, "bad-parameter", "composite", fact, f"give it shape {wanted}")
        return tuple(epilogue)

    def _composite_target(self, out: Any, m: int, n: int, site: int) -> tuple[Handle, Block | None]:
        """Where the result goes: scratch, and from there to HBM if `out` is a pointer."""
        if isinstance(out, (Pointer, Handle)) and out.dtype == uint8:
            fact = f"out= is {out!r}, a mask's dtype"
            self._refuse(site, "bad-parameter", "composite", fact, "give an out= of bfloat16, float16 or float32")
        if isinstance(out, Pointer):
            block = self._block(site, "composite", out, (m, n), None)
            return self._allocate((m, n), float32, "composite", site), block
        placed = self._result(out, (m, n), float32, "composite", site)
        result = Handle(placed.tl, (m, n), placed.dtype)
        result.overlay(placed)
        result.transposed = placed.transposed
        return result, None

    # Submission

    def _submit(
        self, a: Handle, b: Block | Handle, sizes: Sizes, steps: tuple[Step, ...], result: Handle,
        target: Block | None, site: int,
    ) -> Handle:  # fmt: skip
        op = self._composite_op(a, b, sizes, steps, result, site)
        composite = self._composite(op, a, b, sizes)
        self._open_children(composite, b, steps, sizes, site)
        result.op = op
        self._announce(op)
        if target is not None:
            result.op = composite.writeback = self._writeback(op, result, target, site)
            self._announce(composite.writeback)
        if self._data:
            self._give_data(composite, a, b, steps, result, target)
        self._sim.at(self._kernel.now, op.key, self._pe.scheduler.submit, composite)
        for source in (a, b, *(operand for step in steps for operand in step[1:])):
            if isinstance(source, Handle) and source.readers is not None:
                source.readers.append(op)
        result.completion = True
        self._note_scoped(result)
        return result

    def _composite_op(
        self, a: Handle, b: Block | Handle, sizes: Sizes, steps: tuple[Step, ...], result: Handle, site: int
    ) -> CompositeOp:
        """The composite's row: one access set and one epoch for order."""
        reads = a.regions + tuple(r for step in steps for h in step[1:] if isinstance(h, Handle) for r in h.regions)
        writes = result.regions
        streamed: tuple[Region, ...] = ()
        if isinstance(b, Block):
            streamed = b.regions()
        else:
            reads += b.regions
        self._pay("composite")
        shape = self._log.shapes.id((sizes.m, sizes.n, sizes.k))
        scheduler = self._pe.scheduler
        work = sizes.m * sizes.n * sizes.k
        row = self._open("composite", scheduler.kind, site, reads, writes, work=work, shape=shape)
        op = CompositeOp("composite", self._kernel, self._pe.gemm, self._key(), row, site, self._kernel.now)
        op.scheduler = scheduler
        op.reads, op.writes, op.streamed, op.stream = reads, writes, streamed, scheduler.stream
        return op

    def _composite(self, op: CompositeOp, a: Handle, b: Block | Handle, sizes: Sizes) -> Composite:
        burst = self._timing.spec.burst_bytes
        misaligned = b.pointer.byte % burst if isinstance(b, Block) else None
        strides = (b.strides[0], b.strides[1])
        shape = Shape(sizes.m, sizes.n, sizes.k, sizes.trans_b, a.dtype.itemsize, strides, misaligned)
        composite = Composite(op, self._pe.scheduler.plan(shape), shape, self._pe.number)
        if isinstance(b, Block) and b.pointer.pe != self._pe.number:
            composite.there, composite.peer = b.pointer.pe, b.pointer.program
        return composite

    def _open_children(
        self, composite: Composite, b: Block | Handle, steps: tuple[Step, ...], sizes: Sizes, site: int
    ) -> None:
        label, offset = (
            (b.pointer.allocation.label, b.pointer.byte - b.pointer.allocation.lo) if isinstance(b, Block) else (0, 0)
        )
        composite.open_rows(self._log, self._region, label, offset, self._kernel.now)
        if steps:
            elements = sizes.m * sizes.n
            work = elements * len(steps)
            row = self._open(
                "epilogue", self._pe.gemm.kind, site, work=work, shape=self._log.shapes.id((sizes.m, sizes.n))
            )
            self._log.cells[row * WIDTH + PARENT] = composite.op.row
            composite.epilogue_row = row
            composite.epilogue_cycles = len(steps) * self._timing.epilogue_cycles(elements)

    def _give_data(
        self, composite: Composite, a: Handle, b: Block | Handle, steps: tuple[Step, ...], result: Handle,
        target: Block | None,
    ) -> None:  # fmt: skip
        composite.a = a.array()
        composite.out = result.array()
        composite.steps = tuple(
            (step[0], tuple(h.array() if isinstance(h, Handle) else h for h in step[1:])) for step in steps
        )
        given = b.array()
        if isinstance(b, Block):
            composite.source = given
            composite.b = np.empty(b.shape, np.float32)
        else:
            composite.b = given
        added = [operand for step in composite.steps for operand in step[1]]
        composite.operands = (composite.a, given.T if composite.shape.trans_b else given, *added)
        if composite.writeback is not None and target is not None:
            dtype = target.pointer.dtype
            composite.writeback.compute = lambda values: values.astype(dtype)
            composite.writeback.sources = (result.array(),)
            composite.writeback.target = target.array()

    def _writeback(self, parent: CompositeOp, result: Handle, target: Block, site: int) -> Any:
        """The write of a result to HBM, said by the scheduler when the product is done."""
        op = self._transfer("writeback", "write", self._pe.dma_write, target, result.regions, target.regions(), site)
        self._log.cells[op.row * WIDTH + PARENT] = parent.row
        op.key = parent.key
        op.after = (parent,)
        op.pipe = self._pe.scheduler.writebacks
        return op
