"""`vc`, what a kernel on a core can say: five commands, `fence`, and vectors of float32 to say them of.

Commands return at once and are carried out in order; `fence` waits for all that were said.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_kernbench.simulator.arguments import whole
from pytest_kernbench.simulator.engine.loop import Kernel
from pytest_kernbench.simulator.errors import Hazard, KernelError
from pytest_kernbench.simulator.memory.space import Allocation, Region
from pytest_kernbench.simulator.ops.log import END, NONE, WIDTH, pack_operand
from pytest_kernbench.simulator.ops.op import Op

if TYPE_CHECKING:
    from vcop.device import Core, Launch

FOLDER = str(Path(__file__).parent)
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Vector:
    """`size` elements from byte `lo` of a memory: a core's own, or a tensor that the kernel was given."""

    vc: Vc
    allocation: Allocation
    lo: int
    size: int

    def __getitem__(self, part: slice) -> Vector:
        """Some elements that follow one another: `v[:8]`, `x[first : first + 64]`."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            self.vc.refuse("bad-parameter", "v[...]", f"got {part!r}", "take elements that follow one another, v[2:8]")
        start, stop = (whole(each) for each in (part.start or 0, self.size if part.stop is None else part.stop))
        if start is None or stop is None or not 0 <= start < stop <= self.size:
            fact = f"elements {part.start}..{part.stop} of {self.allocation.name}, which has {self.size}"
            self.vc.refuse("out-of-bounds", "v[...]", fact, "stay inside, and take one element at least")
        return Vector(self.vc, self.allocation, self.lo + 4 * start, stop - start)

    @property
    def region(self) -> Region:
        return self.allocation, self.lo, self.lo + 4 * self.size

    @property
    def elements(self) -> Any:
        return self.allocation.space.view(self.lo, (self.size,), (4,), FLOAT32)


class Vc:
    """The object that a kernel receives as `vc`."""

    def __init__(self, launch: Launch, core: Core, kernel: Kernel) -> None:
        self._launch = launch
        self._core = core
        self._kernel = kernel
        self._said = 0
        self._last: Op | None = None

    @property
    def program_id(self) -> int:
        return self._kernel.program

    @property
    def num_programs(self) -> int:
        return len(self._launch.cores)

    def vector(self, size: int) -> Vector:
        """`size` elements of the core's local memory, until the kernel ends."""
        count = whole(size)
        if count is None or count < 1:
            self.refuse("bad-parameter", "vc.vector", f"size {size!r}", "give a whole number >= 1")
        local = self._core.local
        allocation = local.allocate(4 * count)
        if allocation is None:
            fact = f"local memory has {local.space.capacity} bytes, {local.top} are taken, {4 * count} more are wanted"
            self.refuse("capacity", "vc.vector", fact, "take smaller vectors, or fewer")
        return Vector(self, allocation, allocation.lo, count)

    def load(self, out: Vector, source: Vector) -> None:
        """Elements of a tensor into local memory."""
        self._say("load", out, (source,), np.copy)

    def store(self, out: Vector, source: Vector) -> None:
        """Elements of local memory into a tensor."""
        self._say("store", out, (source,), np.copy)

    def add(self, out: Vector, a: Vector, b: Vector) -> None:
        self._say("add", out, (a, b), np.add)

    def mul(self, out: Vector, a: Vector, b: Vector) -> None:
        self._say("mul", out, (a, b), np.multiply)

    def scale(self, out: Vector, a: Vector, factor: float) -> None:
        self._say("scale", out, (a,), lambda values: values * np.float32(factor))

    def fence(self) -> None:
        """Go on when all commands so far have ended."""
        site = self._site()
        kernel, log, last = self._kernel, self._launch.log, self._last
        row = self._open("wait", log.units.id("CPU"), site, after=NONE if last is None else last.row, start=kernel.now)
        if last is not None:
            kernel.wait(last, "its commands")
            for observe in self._launch.sim.probes.wake:
                observe(kernel, last)
        log.cells[row * WIDTH + END] = kernel.now

    # How it is said

    def refuse(self, kind: str, said: str, fact: str, remedy: str) -> NoReturn:
        """End the run at the author's line."""
        where = self._launch.log.site(self._site())
        message = f"{said} of {self._kernel.name} at {where}: {fact}; {remedy}"
        raise KernelError(Hazard(kind, message, replay=self._launch.replay))

    def _site(self) -> int:
        """The author's line that is being carried out."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(FOLDER) and frame.f_back is not None:
            frame = frame.f_back
        return self._launch.log.site_id(frame.f_code, frame.f_lasti)

    def _say(self, name: str, out: Vector, sources: tuple[Vector, ...], meaning: Callable[..., Any]) -> None:
        self._check(name, out, sources)
        launch, kernel, unit, site = self._launch, self._kernel, self._core.queue, self._site()
        kernel.now += launch.spec.issue_cycles
        self._said += 1
        launch.count(kernel, site)
        reads, writes = tuple(each.region for each in sources), (out.region,)
        moved = 4 * out.size if name in ("load", "store") else 0
        work = 0 if moved else out.size
        shape = launch.log.shapes.id((out.size,))
        row = self._open(name, unit.kind, site, reads, writes, size=moved, work=work, shape=shape)
        op = Op(name, kernel, unit, kernel.key | self._said, row, site, kernel.now)
        op.reads, op.writes, op.occupancy = reads, writes, launch.spec.cycles(name, out.size)
        if launch.data:
            op.compute, op.sources, op.target = meaning, tuple(each.elements for each in sources), out.elements
        for observe in launch.sim.probes.issue:
            observe(op)
        launch.sim.at(kernel.now, op.key, unit.submit, op)
        self._last = op

    def _check(self, name: str, out: Vector, sources: tuple[Vector, ...]) -> None:
        """Operands are vectors of one size, in the memories that the command is for."""
        for each in (out, *sources):
            if not isinstance(each, Vector):
                self.refuse("bad-parameter", f"vc.{name}", f"got {each!r}", "give vectors: vc.vector(n), or a tensor")
            if each.size != out.size:
                fact = f"{each.allocation.name} has {each.size} elements, the target {out.size}"
                self.refuse("bad-parameter", f"vc.{name}", fact, "take parts of one size, v[:n]")
            local = each.allocation.space is self._core.local.space
            if local is not ((name != "load" or each is out) and (name != "store" or each is not out)):
                fact = f"{each.allocation.name} is {'local' if local else 'shared'}"
                self.refuse("bad-parameter", f"vc.{name}", fact, "load and store move between memories, math is local")

    def _open(
        self, name: str, unit: int, site: int, reads: tuple[Region, ...] = (), writes: tuple[Region, ...] = (), *,
        size: int = 0, work: int = 0, shape: int = NONE, after: int = NONE, start: int = NONE,
    ) -> int:  # fmt: skip
        """A row of the log, issued now."""
        log, kernel = self._launch.log, self._kernel
        first = len(log.operand_cells) // 3
        for allocation, lo, hi in reads + writes:
            log.operand_cells.frombytes(pack_operand(allocation.label, lo - allocation.base, hi - lo))
        return log.open((
            log.names.id(name), unit, kernel.program, kernel.now, start, start, start, size, size, work, shape, first,
            len(reads), len(writes), after, NONE, NONE, NONE, 0, site, NONE, 0,
        ))  # fmt: skip
