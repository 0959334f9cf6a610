"""One launch of a kernel: its PEs with their units, its channels, its log. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import functools
import gc
import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernbench.simulator.ahbm.handles import Handle, Pointer
from pytest_kernbench.simulator.ahbm.ipcq import Channel
from pytest_kernbench.simulator.ahbm.language import Language
from pytest_kernbench.simulator.ahbm.plan import Plan, Shape
from pytest_kernbench.simulator.ahbm.scheduler import Scheduler
from pytest_kernbench.simulator.ahbm.spec import DECIDES_ROWS
from pytest_kernbench.simulator.ahbm.tensor import Program, Tensor
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.arguments import Call
from pytest_kernbench.simulator.engine.loop import Kernel, Simulation
from pytest_kernbench.simulator.engine.schedule import Schedule
from pytest_kernbench.simulator.errors import DeadlockError, Hazard, LaunchError
from pytest_kernbench.simulator.memory.scratch import Scratch
from pytest_kernbench.simulator.memory.space import Allocation, Space
from pytest_kernbench.simulator.ops.log import OpLog
from pytest_kernbench.simulator.ops.unit import Unit

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip

MAX_CYCLES = 2**31 - 2**26  # an op said then still ends within the 32 bits of a log column

UNITS = ("CPU", "SCHED", "DMA_R", "DMA_W", "GEMM", "MATH", "IPCQ.N", "IPCQ.S", "IPCQ.W", "IPCQ.E")


class Pe:
    """A PE that runs a program: where it is, its units, its scratch, and what its kernel holds."""

    def __init__(self, launch: Launch, rank: int, cube: int) -> None:
        spec = launch.chip.spec
        self.rank = rank
        self.cube = cube
        self.number = cube * spec.pes_per_cube + launch.placement[rank]  # physical
        self.name = f"PE{rank}" if launch.grid[1] == 1 else f"cube{cube}.PE{rank}"
        self._launch = launch
        self.dma_read, self.dma_write = self.unit("DMA_R"), self.unit("DMA_W")
        self.gemm, self.math = self.unit("GEMM"), self.unit("MATH")
        self.scheduler = Scheduler(launch.sim, launch.log, launch.timing, self.dma_read, self.gemm, launch.plans)
        self.ipcq: dict[str, Unit] = {}
        self.scratch: Scratch = Scratch(
            launch.new_space(f"scratch of {self.name}", spec.scratch_bytes), launch.log.labels.id("scratch")
        )
        self.scoped: list[list[Handle]] = []  # a list a scope: what is in flight into it
        self.held: list[
            tuple[Handle, int]
        ] = []  # received messages whose slots are not given back, and the scopes around
        self.awaiting: list[tuple[Handle, int]] = []  # every recv_async and its site

    def unit(self, kind: str) -> Unit:
        return Unit(self._launch.sim, self._launch.log, kind, self._launch.log.units.id(kind))

    def ipcq_unit(self, direction: str) -> Unit:
        found = self.ipcq.get(direction)
        if found is None:
            found = self.ipcq[direction] = self.unit(f"IPCQ.{direction}")
        return found


class Launch:
    """Everything that is new in each run."""

    def __init__(
        self, chip: AhbmChip, grid: tuple[int, int], placement: tuple[int, ...], schedule: Schedule, data: bool, *,
        replay: str, max_cycles: int, max_ops: int, log: OpLog,
    ) -> None:  # fmt: skip
        self.chip = chip
        self.grid = grid
        self.placement = placement
        self.data = data
        self.replay = replay
        self.sim = Simulation(schedule, max_cycles=min(max_cycles, MAX_CYCLES), max_ops=max_ops)
        self.log = log
        for unit in UNITS:  # asking a log for one that was idle is not a mistake
            self.log.units.id(unit)
        self.log.labels.id("scratch")
        self.log.labels.id("slot")
        self.timing = Timing(chip.spec)
        self.plans: dict[Shape, Plan] = {}
        self.findings: list[Hazard] = []
        self._spaces = itertools.count(1 << 20).__next__  # HBM slices count from 0
        self._channels: dict[tuple[int, str], Channel] = {}
        self._parts: dict[tuple[int, Program], Allocation] = {}
        ranks, cubes = grid
        self.pes = [Pe(self, rank, cube) for cube in range(cubes) for rank in range(ranks)]
        self.log.programs = [pe.name for pe in self.pes]
        self.log.pes = [pe.number for pe in self.pes]
        self.log.layout = {name: getattr(chip.spec, name) for name in DECIDES_ROWS}
        self._by_number = {pe.number: pe for pe in self.pes}

    def new_space(self, name: str, capacity: int) -> Space:
        space = Space(self._spaces(), name, capacity)
        if self.data:
            space.reserve(capacity)
        return space

    # Tensors

    def place(self, tensors: list[Tensor]) -> None:
        """Put the tensors' data where the programs see it, and tell the observers which bytes are valid."""
        for tensor in tensors:
            homes = dict.fromkeys(tensor.home((pe.cube, pe.rank)) for pe in self.pes)
            for home in homes:
                if home[1] >= self.grid[0]:
                    raise LaunchError(
                        f"tensor {tensor.name!r} is at rank {home[1]}, the launch has {self.grid[0]} ranks"
                    )
                self._place_part(tensor, home)

    def _place_part(self, tensor: Tensor, home: Program) -> None:
        pe = self.pes[home[0] * self.grid[0] + home[1]]
        space = self.chip.space(home, f"HBM of {pe.name}")
        label = self.log.labels.id(tensor.name)
        lo = tensor.offset
        allocation = Allocation(space, lo, lo + tensor.nbytes, tensor.name, label)
        allocation.base = lo
        self._parts[id(tensor), home] = allocation
        if self.data:
            tensor.put(home, self.chip.view(tensor, space))
        rows = tensor.valid_rows(home)
        allocation.past = rows < tensor.shape[0] or math.prod(tensor.stored) > math.prod(tensor.shape)
        allocation.filled, allocation.valid = tensor.written.get(home, (False, None))
        if rows and (tensor.part(home) is not None or not self.data):
            for first, last in tensor.layout.valid(tensor.shape, rows, tensor.dtype.itemsize):
                for observe in self.sim.probes.host_write:
                    observe(allocation, lo + first, lo + last)

    def keep(self, tensors: list[Tensor], checked: bool) -> None:
        """Remember which bytes of the tensors are valid: they stay in HBM. Without checkers, all are taken to be."""
        for tensor in tensors:
            for (owner, home), allocation in self._parts.items():
                if owner == id(tensor) and self.data:
                    tensor.written[home] = (allocation.filled or not checked, allocation.valid)

    def pointer(self, tensor: Tensor, pe: Pe, tl: Language) -> Pointer:
        """What the program on `pe` receives for `tensor`."""
        home = tensor.home((pe.cube, pe.rank))
        program = home[0] * self.grid[0] + home[1]
        allocation = self._parts[id(tensor), home]
        return Pointer(tl, allocation, program, self.pes[program].number, tensor.stored, tensor.dtype, tensor.axes)

    # Kernels

    def spawn(self, call: Call) -> None:
        """A kernel a program."""
        for program, pe in enumerate(self.pes):
            self.sim.spawn(functools.partial(self._body, call, pe, program), pe.name, program, pe.number)

    def _body(self, call: Call, pe: Pe, program: int) -> None:
        kernel = self.sim.kernels[program]
        tl = Language(self, pe, kernel)

        def told(value: Any) -> Any:
            return self.pointer(value, pe, tl) if isinstance(value, Tensor) else value

        call.kernel(*map(told, call.args), tl=tl, **{name: told(value) for name, value in call.kwargs.items()})
        tl._end(self.log.site_id(call.code, 0))
        for observe in self.sim.probes.finish:
            observe(kernel)

    def go(self) -> None:
        """Run to the end. Overflow and NaN are the kernels' business, not warnings of ours.

        The collector rests meanwhile: ops make no reference cycles, and walking the log's keepers cost a seventh of a
        long run.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            with np.errstate(all="ignore"):
                self.sim.run()
        except DeadlockError as error:
            raise type(error)(replace(error.hazard, replay=self.replay)) from None
        finally:
            if collecting:
                gc.enable()
        for observe in self.sim.probes.end_of_run:
            observe(list(self._channels.values()))

    @property
    def cycles(self) -> int:
        return max([self.sim.now, *(kernel.now for kernel in self.sim.kernels)])

    @property
    def scratch_high_water(self) -> int:
        return max(pe.scratch.high_water for pe in self.pes)

    # Channels

    def pe_of(self, kernel: Kernel) -> int:
        """The physical PE that runs `kernel`."""
        return self.pes[kernel.program].number

    def channel(self, kernel: Kernel, direction: str, outgoing: bool) -> Channel | str:
        """The channel to (or from) the neighbour of `kernel` in `direction`, or why there is none."""
        pe = self.pes[kernel.program]
        ends = self.chip.ports.get((pe.number, direction))
        if ends is None:
            there = sorted(port for number, port in self.chip.ports if number == pe.number)
            has = ", ".join(there) or "none"
            return f"{pe.name} (PE {pe.number} of the mesh) has no neighbour {direction!r}; it has {has}"
        peer = self._by_number.get(ends[0])
        if peer is None:
            nobody = f"where no program was launched (grid={self.grid[0]})"
            return f"the neighbour {direction!r} of {pe.name} is PE {ends[0]}, {nobody}"
        if outgoing:
            return self._open_channel(pe, direction, peer, ends[1])
        return self._open_channel(peer, ends[1], pe, direction)

    def _open_channel(self, sender: Pe, direction: str, receiver: Pe, back: str) -> Channel:
        found = self._channels.get((sender.number, direction))
        if found is None:
            kernels = self.sim.kernels
            ends = [kernels[self.pes.index(pe)] for pe in (sender, receiver)]
            units = sender.ipcq_unit(direction), receiver.ipcq_unit(back)
            found = Channel(ends[0], direction, ends[1], back, *units, self._slots(receiver, back))
            self._channels[sender.number, direction] = found
        return found

    def _slots(self, receiver: Pe, back: str) -> list[Allocation]:
        """The slots in which the receiver takes messages from `back`; outside its scratch."""
        count, size = self.chip.spec.ipcq_slots, self.chip.spec.ipcq_slot_bytes
        space = self.new_space(f"slots {back} of {receiver.name}", count * size)
        label = self.log.labels.id("slot")
        return [Allocation(space, number * size, (number + 1) * size, "slot", label) for number in range(count)]
