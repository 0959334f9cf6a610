"""PE_SCHEDULER: turns a composite into panels of its streamed operand and sub-tiles of its GEMM (ADR-0014 D6).

Strictly in issue order; a panel is whole rows, one descriptor, and is read once however many M tiles use it.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ahbm.plan import Plan, Shape
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.engine.loop import Simulation
from pytest_kernbench.simulator.memory.dtypes import Array, to_float32
from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.log import NONE, WIDTH, OpLog
from pytest_kernbench.simulator.ops.op import Op
from pytest_kernbench.simulator.ops.semantics.matmul import matmul
from pytest_kernbench.simulator.ops.unit import Unit


class CompositeOp(Op):
    """The row, access set and token of a composite."""

    scheduler: Scheduler

    def needs(self) -> Any:
        return self.scheduler.ready_unit()


class Stream:
    """Panel reads, or writebacks, of a PE's scheduler: in order among themselves, not with what the kernel moves."""

    __slots__ = ("clock", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Any = None  # belongs to the race checker


class Composite:
    """A composite in flight; `op` is its row, its access set and its token."""

    def __init__(self, op: Op, plan: Plan, shape: Shape, here: int) -> None:
        self.op = op
        self.plan = plan
        self.shape = shape
        self.here = self.there = here  # PEs: who reads, and whose slice is read
        self.peer = NONE  # the program there, if it is another one
        self.next = 0
        self.run_starts: list[int] = []
        self.first_panel: Op | None = None
        self.epilogue_row = NONE
        self.epilogue_cycles = 0
        self.source: Array | None = None  # the streamed operand in HBM; these four are None in a structure-only run
        self.a: Array | None = None
        self.b: Array | None = None
        self.out: Any = None
        self.steps: tuple[tuple[str, tuple[Any, ...]], ...] = ()
        self.operands: tuple[Any, ...] = ()  # a, b as K by N, and what the steps add: as they are in memory
        self.writeback: Op | None = None

    def open_rows(self, log: OpLog, region: int, label: int, offset: int, issue: int) -> None:
        """Append the plan's rows behind the composite's own; `offset` is the operand's place in its tensor."""
        log.cells.frombytes((self.plan.block + self._common_cells(log, region, issue)).tobytes())
        if self.plan.panel_rows:
            operands = self.plan.operands.copy()
            operands[:, 0] = label
            operands[:, 1] += offset
            log.operand_cells.frombytes(operands.tobytes())

    def _common_cells(self, log: OpLog, region: int, issue: int) -> Array:
        """What every row behind the composite's own adds to its plan, whose cells stand at 0 there."""
        cells = np.zeros(WIDTH, np.int32)
        cells[columns.PROGRAM] = self.op.kernel.program
        cells[columns.PARENT] = self.op.row
        cells[columns.REGION] = region
        cells[columns.SITE] = self.op.site
        cells[columns.ISSUE] = issue
        cells[columns.PEER] = self.peer
        cells[columns.OPERANDS] = len(log.operand_cells) // 3
        return cells

    def fill_rows(self, log: OpLog) -> None:
        """Write the sub-tiles' times, which follow from the start of each run."""
        plan = self.plan
        starts = np.array(self.run_starts, np.int32)[plan.tile_run, None]
        log.fill_times(self.op.row + 1, plan.rows, plan.tile_rows, starts + plan.tile_times)


class Scheduler:
    """Serves composites in issue order; up to `stream_depth` panels are in flight or waiting for the GEMM."""

    def __init__(
        self, sim: Simulation, log: OpLog, timing: Timing, dma: Unit, gemm: Unit, plans: dict[Shape, Plan]
    ) -> None:
        self.name = "SCHED"
        self.kind = log.units.id("SCHED")
        self.gemm = gemm
        self.stream, self.writebacks = Stream("STREAM"), Stream("WRITEBACK")
        self.in_flight = 0
        self._sim = sim
        self._log = log
        self._timing = timing
        self._dma = dma
        self._plans = plans
        self._queue: deque[Composite | Op] = deque()
        self._panels = 0  # on their way to the GEMM

    def plan(self, shape: Shape) -> Plan:
        found = self._plans.get(shape)
        if found is None:
            found = self._plans[shape] = Plan(shape, self._timing, self._log)
        return found

    def submit(self, product: Composite | Op) -> None:
        """Take a composite, or a `dot`, behind those before it."""
        self._queue.append(product)
        self._pump()

    def ready_unit(self) -> Any:
        """For the late schedule: what has to step so that the oldest composite goes on."""
        return self.gemm if self.gemm.has_work() else self._dma

    def _pump(self) -> None:
        """Start what may start. What needs no panel waits until every panel before it has reached the GEMM."""
        while self._queue and self.in_flight < self._timing.stream_depth:
            product = self._queue[0]
            streamed = isinstance(product, Composite) and product.shape.misaligned is not None
            if self._panels and not streamed:
                return
            if not isinstance(product, Composite):
                self.gemm.submit(self._queue.popleft())  # type: ignore[arg-type]
                continue
            self.in_flight += 1
            number = product.next
            product.next += 1
            if product.next == len(product.plan.panels):
                self._queue.popleft()
            if streamed:
                self._submit_panel(product, number)
            else:
                self._submit_run(product, number)

    def _submit_panel(self, composite: Composite, number: int) -> None:
        parent, panel = composite.op, composite.plan.panels[number]
        row = parent.row + composite.plan.panel_rows[number]
        now = self._sim.now
        op = Op("panel", parent.kernel, self._dma, parent.key, row, parent.site, now)
        self._log.cells[row * WIDTH + columns.ISSUE] = now
        op.occupancy, op.route = self._timing.dma("read", composite.here, composite.there, panel.runs, panel.charged)
        if composite.source is not None:
            op.compute, op.sources = to_float32, (composite.source[panel.first : panel.last],)
            assert composite.b is not None
            op.target = composite.b[panel.first : panel.last]
            if op.sources[0].dtype == np.float32:
                op.compute = np.array
        op.then = lambda _: self._panel_arrived(composite, number)
        composite.first_panel = composite.first_panel or op
        self._panels += 1
        self._dma.submit(op)

    def _panel_arrived(self, composite: Composite, number: int) -> None:
        self._panels -= 1
        self._submit_run(composite, number)
        if not self._panels:
            self._pump()

    def _submit_run(self, composite: Composite, number: int) -> None:
        parent, plan = composite.op, composite.plan
        row = parent.row + plan.run_rows[number]
        op = Op("gemm", parent.kernel, self.gemm, parent.key, row, parent.site, self._sim.now)
        last = number == len(plan.panels) - 1
        op.occupancy = plan.panels[number].tiles * plan.tile_cycles + (0 if number else plan.fill)
        if last:
            op.occupancy += composite.epilogue_cycles
            op.target, op.sources, op.writes = composite.out, composite.operands, parent.writes
        if composite.out is not None and (last or not number):
            op.compute = lambda *_: self._compute(composite, number, last)
        op.then = lambda op: self._end_run(composite, op, last)
        self.gemm.submit(op)

    def _compute(self, composite: Composite, number: int, last: bool) -> Array | None:
        """The first run reads what is on chip, the last one has every panel."""
        assert composite.a is not None and composite.b is not None
        if number == 0:
            composite.a = np.array(composite.a)
            composite.b = composite.b if composite.plan.panel_rows else np.array(composite.b)
        if not last:
            return None
        return matmul(composite.a, composite.b, composite.shape.trans_b, composite.steps)

    def _end_run(self, composite: Composite, op: Op, last: bool) -> None:
        composite.run_starts.append(op.start)
        self.in_flight -= 1
        if last:
            self._end(composite)
        self._pump()

    def _end(self, composite: Composite) -> None:
        composite.fill_rows(self._log)
        row, cells, now = composite.op.row * WIDTH, self._log.cells, self._sim.now
        cells[row + columns.START] = self._first_start(composite)
        if composite.epilogue_row != NONE:
            epilogue = composite.epilogue_row * WIDTH
            cells[epilogue + columns.START] = now - composite.epilogue_cycles
            cells[epilogue + columns.FREE] = cells[epilogue + columns.END] = now
        cells[row + columns.FREE] = cells[row + columns.END] = now
        composite.op.set(now)
        if composite.writeback is not None:
            composite.writeback.unit.submit(composite.writeback)

    def _first_start(self, composite: Composite) -> int:
        return composite.run_starts[0] if composite.first_panel is None else composite.first_panel.start
