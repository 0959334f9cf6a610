"""The coprocessor as a host sees it: tensors in its shared memory, and launches of one program a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pytest_kernbench.simulator import HazardError, KernelError, LaunchError, OpLog, Run, arguments
from pytest_kernbench.simulator.checks import TransferChecker, default_checks
from pytest_kernbench.simulator.engine.loop import Kernel, Simulation
from pytest_kernbench.simulator.engine.schedule import schedule_named
from pytest_kernbench.simulator.memory.scratch import Scratch
from pytest_kernbench.simulator.memory.space import Allocation, Space
from pytest_kernbench.simulator.ops.unit import Unit
from vcop.language import FLOAT32, Vc, Vector
from vcop.spec import VcopSpec

SHARED_BYTES = 1 << 24
ALIGNMENT = 64


@dataclass(eq=False)
class Tensor:
    """`size` elements of float32 from byte `lo` of the shared memory; `filled` once they mean something."""

    name: str
    lo: int
    size: int
    filled: bool = False


class Vcop:
    """One coprocessor. Tensors stay in its shared memory; everything else is new in each run."""

    def __init__(self, spec: VcopSpec | None = None) -> None:
        self.spec = spec or VcopSpec()
        self._shared = Space(0, "shared memory", SHARED_BYTES)
        self._top = 0

    def tensor(self, name: str, size: int, data: Any = None) -> Tensor:
        """A tensor of `size` elements; without data it is an output, or the run is structure only."""
        arguments.tensor_name(name)
        tensor = Tensor(name, self._top, arguments.number(f"tensor {name!r}: size", size, 1, SHARED_BYTES // 4))
        self._top += -(-4 * tensor.size // ALIGNMENT) * ALIGNMENT
        if self._top > SHARED_BYTES:
            raise LaunchError(f"tensor {name!r}: ends at byte {self._top} of {SHARED_BYTES}")
        if data is not None:
            values = arguments.array(f"tensor {name!r}: data", data)
            if values.shape != (size,):
                raise LaunchError(f"tensor {name!r}: data is {values.shape}, the tensor ({size},)")
            self.elements(tensor)[...] = values
            tensor.filled = True
        return tensor

    def elements(self, tensor: Tensor) -> Any:
        """The tensor as it is in memory."""
        self._shared.reserve(SHARED_BYTES)
        return self._shared.view(tensor.lo, (tensor.size,), (4,), FLOAT32)

    def run(
        self, kernel: Callable[..., None], *args: Any, grid: int | None = None, schedule: str = "model", seed: int = 0,
        data: bool | None = None, check: bool | str = True, numerics: bool | str = True, max_ops: int = 1_000_000,
        **kwargs: Any,
    ) -> Run:  # fmt: skip
        """Run `kernel(*args, vc=..., **kwargs)` once a core of `grid`; see `pytest_kernbench.running.RunKernel`."""
        if check not in (True, False, "collect"):
            raise LaunchError(f"check {check!r} is none of True, 'collect', False")
        if data not in (True, False, None):
            raise LaunchError(f"data {data!r} is none of True, False, None")
        call = arguments.call(kernel, args, kwargs, language="vc")
        tensors = {each.name: each for each in (*call.args, *call.kwargs.values()) if isinstance(each, Tensor)}
        computes = any(each.filled for each in tensors.values()) if data is None else data
        launch = Launch(self, grid, schedule, seed, computes, f"run_kernel({call.name}, ..., {schedule=}, {seed=})")
        launch.sim.calls_left = launch.sim.max_ops = arguments.number("max_ops", max_ops, 1)
        launch.log.header = _header(call, launch)
        checks: list[Any] = []
        if check:
            checks = default_checks(launch.replay, launch.log, numerics=numerics, lengths=False, data=computes)
        for each in checks:
            launch.sim.probes.attach(each)
        self._shared.touched = None
        launch.place(tensors.values())
        launch.spawn(call)
        try:
            launch.go()
        except KernelError as error:
            error.hazards = (*_found(checks), error.hazard)
            raise
        hazards = _found(checks)
        if check is True and hazards:
            raise HazardError(hazards)
        for tensor in tensors.values():
            tensor.filled = tensor.filled or computes
        return Run(
            launch.log, launch.cycles, self.spec.clock_mhz, hazards, launch.high_water, schedule, launch.seed,
            self.spec, dict(tensors), bool(check),
            lambda wanted: np.array(self.elements(wanted if isinstance(wanted, Tensor) else tensors[wanted])),
            notes=tuple(note for each in checks if isinstance(each, TransferChecker) for note in each.notes()),
        )  # fmt: skip


@dataclass(eq=False)
class Core:
    """A core of one launch."""

    name: str
    queue: Unit
    local: Scratch


class Launch:
    """Everything that is new in each run."""

    def __init__(self, vcop: Vcop, grid: int | None, schedule: str, seed: int, data: bool, replay: str) -> None:
        self.spec = vcop.spec
        self.data = data
        self.replay = replay
        self.seed = arguments.number("seed", seed, 0)
        try:
            self.sim = Simulation(schedule_named(schedule, self.seed))
        except ValueError as error:
            raise LaunchError(str(error)) from None
        self.log = OpLog()
        for unit in ("CPU", "VEC"):
            self.log.units.id(unit)
        self._vcop = vcop
        self._tensors: dict[int, Allocation] = {}
        programs = arguments.number("grid", 1 if grid is None else grid, 1, self.spec.cores)
        self.cores = [self._core(number) for number in range(programs)]
        self.log.programs = [core.name for core in self.cores]
        self.log.pes = list(range(programs))

    def _core(self, number: int) -> Core:
        space = Space(number + 1, f"local memory of core{number}", self.spec.local_bytes)
        if self.data:
            space.reserve(self.spec.local_bytes)
        queue = Unit(self.sim, self.log, "VEC", self.log.units.id("VEC"))
        return Core(f"core{number}", queue, Scratch(space, self.log.labels.id("scratch")))

    def place(self, tensors: Any) -> None:
        """Tell the observers which bytes of the tensors are valid."""
        for tensor in tensors:
            hi = tensor.lo + 4 * tensor.size
            space, label = self._vcop._shared, self.log.labels.id(tensor.name)
            allocation = self._tensors[id(tensor)] = Allocation(space, tensor.lo, hi, tensor.name, label)
            allocation.base = tensor.lo
            if self.data:
                space.reserve(SHARED_BYTES)
            if tensor.filled or not self.data:
                for observe in self.sim.probes.host_write:
                    observe(allocation, tensor.lo, hi)

    def spawn(self, call: arguments.Call) -> None:
        for number, core in enumerate(self.cores):
            self.sim.spawn(partial(self._body, call, core, number), core.name, number)

    def _body(self, call: arguments.Call, core: Core, number: int) -> None:
        kernel = self.sim.kernels[number]
        vc = Vc(self, core, kernel)

        def given(value: Any) -> Any:
            return Vector(vc, self._tensors[id(value)], value.lo, value.size) if isinstance(value, Tensor) else value

        call.kernel(*map(given, call.args), vc=vc, **{name: given(value) for name, value in call.kwargs.items()})
        for observe in self.sim.probes.finish:
            observe(kernel)

    def count(self, kernel: Kernel, site: int) -> None:
        """One command more; too many end the run."""
        self.sim.calls_left -= 1
        if self.sim.calls_left < 0:
            self.sim.stop_endless(kernel, self.log.site(site))

    def go(self) -> None:
        with np.errstate(all="ignore"):
            self.sim.run()
        for observe in self.sim.probes.end_of_run:
            observe([])

    @property
    def cycles(self) -> int:
        return max([self.sim.now, *(kernel.now for kernel in self.sim.kernels)])

    @property
    def high_water(self) -> int:
        return max(core.local.high_water for core in self.cores)


def _found(checks: list[Any]) -> Any:
    return tuple(hazard for each in checks for hazard in each.findings())


def _header(call: arguments.Call, launch: Launch) -> dict[str, str]:
    """What defines the run, for the first lines of its goldens."""
    header = {"device": "vcop", "kernel": call.name, "grid": str(len(launch.cores))}
    for name, value in call.named.items():
        if isinstance(value, Tensor):
            header[value.name] = str(value.size)
        elif isinstance(value, bool | int | float):
            header[name] = repr(value)
    return header
