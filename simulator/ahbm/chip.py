"""The AHBM chip: tensors in HBM, and launches of one program a PE. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.simulator import arguments
from pytest_kernbench.simulator.ahbm.handles import Axes
from pytest_kernbench.simulator.ahbm.launch import Launch
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.tensor import Program, Tensor
from pytest_kernbench.simulator.ahbm.topology import Ports, checked_ports, mesh_ports
from pytest_kernbench.simulator.checks import TransferChecker, default_checks
from pytest_kernbench.simulator.device import Run, about_run
from pytest_kernbench.simulator.engine.schedule import schedule_named
from pytest_kernbench.simulator.errors import DeadlockError, Hazard, HazardError, KernelError, LaunchError
from pytest_kernbench.simulator.memory.dtypes import Array, DTypeName, dtype_named
from pytest_kernbench.simulator.memory.layout import ROW_MAJOR, RowMajor
from pytest_kernbench.simulator.memory.space import Space
from pytest_kernbench.simulator.ops.log import OpLog
from pytest_kernbench.simulator.ops.parquet import checked_path
from pytest_kernbench.simulator.ops.spill import SpillingLog, readable, spilling

BLOCK_ALIGNMENT = 256
MOST_BYTES = 2**32  # offsets in the log have 32 bits


class AhbmChip:
    """One chip. Tensors stay in HBM from one run to the next; everything else is new in each."""

    def __init__(self, spec: AhbmSpec | None = None, *, ports: Ports | None = None) -> None:
        if spec is not None and not isinstance(spec, AhbmSpec):
            raise LaunchError(f"AhbmChip({spec!r}): wants an AhbmSpec")
        self.spec = spec or AhbmSpec()
        pes = self.spec.cubes * self.spec.pes_per_cube
        self.ports = mesh_ports(self.spec) if ports is None else checked_ports(ports, pes)
        self._hbm: dict[Program, Space] = {}
        self._top = 0

    def tensor(
        self, name: str, shape: int | Sequence[int], dtype: DTypeName = "bfloat16", data: npt.ArrayLike | None = None,
        place: str | int = "local", *, axes: Sequence[str] = (), valid: npt.ArrayLike | None = None,
        layout: RowMajor = ROW_MAJOR,
    ) -> Tensor:  # fmt: skip
        """A tensor in HBM; `shape` is one part's.

        `data` for "local" has a leading axis of ranks, or two of (cubes, ranks); else it has the part's shape. Without
        data it is an output, or the run is structure only. `axes` names the axes, so that a product that matches by
        size alone is refused. `valid`: rows of a part that mean something, a number or one a rank (or cube and rank).
        `layout`: how a part lies in memory, such as `TileBlocked(64)`; data and `run.array` have `shape` all the same.
        Raises LaunchError for what does not fit.
        """
        arguments.tensor_name(name)
        size = arguments.shape(shape)
        if size is None:
            raise LaunchError(f"tensor {name!r}: shape {shape!r} wants 1 to {arguments.MOST_AXES} whole numbers > 0")
        where, names = self._place(name, place), _axes(name, axes, size)
        if not isinstance(layout, RowMajor):
            raise LaunchError(f"tensor {name!r}: layout {layout!r} is none; give RowMajor() or TileBlocked(tile)")
        try:
            tensor = Tensor(self, name, size, dtype_named(dtype), where, names, self._top, layout)
        except ValueError as error:
            raise LaunchError(f"tensor {name!r}: {error}") from None
        if valid is not None:
            tensor.limit(valid)
        if data is not None:
            tensor.give(data)
        self._take(tensor)
        return tensor

    def _place(self, name: str, place: str | int) -> str | int:
        ranks = self.spec.pes_per_cube
        if isinstance(place, str) and place in ("local", "replicate"):
            return place
        rank = arguments.whole(place)
        if rank is None or not 0 <= rank < ranks:
            raise LaunchError(
                f"tensor {name!r}: place {place!r} is none of 'local', 'replicate', a rank 0..{ranks - 1}"
            )
        return rank

    def _take(self, tensor: Tensor) -> None:
        top = self._top + -(-tensor.nbytes // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
        if top > self.spec.hbm_slice_bytes:
            raise LaunchError(
                f"tensor {tensor.name!r}: a slice holds {self.spec.hbm_slice_bytes} bytes, {self._top} are taken, "
                f"{tensor.nbytes} more were asked for"
            )
        if tensor.nbytes > MOST_BYTES:
            raise LaunchError(f"tensor {tensor.name!r}: a part has {tensor.nbytes} bytes, of {MOST_BYTES} at most")
        self._top = top

    def run(
        self, kernel: Callable[..., None], *args: Any, grid: int | tuple[int, int] | None = None,
        placement: Sequence[int] | None = None, schedule: str = "model", seed: int = 0, data: bool | None = None,
        check: bool | str = True, numerics: bool | str = True, spill: str | os.PathLike[str] | None = None,
        max_cycles: int = 2**31 - 1, max_ops: int = 50_000_000, **kwargs: Any,
    ) -> Run:  # fmt: skip
        """Run `kernel(*args, tl=..., **kwargs)` once a program; tensors among the arguments become typed pointers.

        `grid`: programs a cube, or (programs a cube, cubes); 1 if not given. `placement`: the PE of each rank, in
        order, if not 0, 1, 2, ... `schedule`: "model", "jitter" or "late", drawn from `seed`. `data`: whether to
        compute; if not given, a run computes if a tensor has data and is structure only if none has. `check`: True
        raises HazardError at the end of a run with findings, "collect" only lists them, False looks for none.
        `numerics`: whether values are judged too; "precision" looks for lost digits as well. `spill="run.parquet"`: the
        log is written to that file while the run goes on, and memory does not grow with it; see `docs/logs.md`. Raises
        KernelError at what the device refuses, DeadlockError, LivelockError, LaunchError, LogFileError.
        """
        if not isinstance(check, bool) and not (isinstance(check, str) and check == "collect"):
            raise LaunchError(f"check {check!r} is none of True, 'collect', False")
        if data is not None and not isinstance(data, bool):
            raise LaunchError(f"data {data!r} is none of True, False, None")
        arguments.numerics(numerics)
        call = arguments.call(kernel, args, kwargs)
        tensors = self._tensors((*call.args, *call.kwargs.values()))
        with_data = any(tensor.data is not None or tensor.written for tensor in tensors) if data is None else data
        launch = Launch(
            self, _grid(self.spec, grid), self._placement(grid, placement), _schedule(schedule, seed), with_data,
            replay=f"run_kernel({call.name}, ..., schedule={schedule!r}, seed={seed})",
            max_cycles=arguments.number("max_cycles", max_cycles, 1), max_ops=arguments.number("max_ops", max_ops, 1),
            log=OpLog() if spill is None else SpillingLog(checked_path(spill)),
        )  # fmt: skip
        checks = default_checks(
            launch.replay, launch.log, numerics=numerics, lengths=any(tensor.has_tail for tensor in tensors),
            data=with_data,
        ) if check else []  # fmt: skip
        for each in checks:
            launch.sim.probes.attach(each)
        for space in self._hbm.values():  # outlives the run: the next one's races start anew
            space.touched = None
        launch.place(tensors)
        launch.log.header = _header(call, launch)
        launch.spawn(call)
        hazards: tuple[Hazard, ...] = ()
        with spilling(launch.log, lambda: about_run(self.spec, launch.cycles, schedule, seed, hazards)):
            try:
                launch.go()
            except (KernelError, DeadlockError) as error:
                error.hazards = hazards = (*_found(launch, checks), error.hazard)
                raise
            hazards = _found(launch, checks)
        launch.keep(tensors, bool(check))
        if check is True and hazards:
            raise HazardError(hazards)
        return Run(
            readable(launch.log), launch.cycles, self.spec.clock_mhz, hazards, launch.scratch_high_water, schedule,
            seed, self.spec, {tensor.name: tensor for tensor in tensors}, bool(check),
            lambda tensor: self.array(_named(tensor, tensors), launch.grid, launch.data),
            notes=tuple(note for each in checks if isinstance(each, TransferChecker) for note in each.notes()),
        )  # fmt: skip

    def _placement(self, grid: Any, placement: Sequence[int] | None) -> tuple[int, ...]:
        ranks, _ = _grid(self.spec, grid)
        pes = tuple(range(ranks)) if placement is None else arguments.wholes(placement)
        if pes is None or not len(pes) == len(set(pes)) == ranks or min(pes) < 0 or max(pes) >= self.spec.pes_per_cube:
            raise LaunchError(f"placement {placement!r} wants {ranks} different PEs of 0..{self.spec.pes_per_cube - 1}")
        return pes

    def _tensors(self, values: tuple[Any, ...]) -> list[Tensor]:
        """The tensors among a kernel's arguments, once each: this chip's, and told apart by name."""
        named: dict[str, Tensor] = {}
        for tensor in values:
            if isinstance(tensor, Tensor):
                if tensor.chip is not self:
                    raise LaunchError(f"tensor {tensor.name!r} is another chip's: make it with this chip.tensor")
                if named.setdefault(tensor.name, tensor) is not tensor:
                    raise LaunchError(f"two tensors are named {tensor.name!r}: give each its own name")
        return list(named.values())

    def space(self, home: Program, name: str) -> Space:
        """The HBM slice of the PE that runs program `home`."""
        found = self._hbm.get(home)
        if found is None:
            found = self._hbm[home] = Space(len(self._hbm), name, self.spec.hbm_slice_bytes)
        return found

    def view(self, tensor: Tensor, space: Space) -> Array:
        """The part of `tensor` in `space`, as it is in memory."""
        return np.ndarray(tensor.stored, tensor.dtype, space.bytes(self._top), tensor.offset)

    def array(self, tensor: Tensor, grid: tuple[int, int], computed: bool) -> Array:
        """A copy of the parts: (ranks, ...) for "local", one part otherwise; a leading axis of cubes if several."""
        if not computed:
            raise LaunchError(
                f"tensor {tensor.name!r}: the run was structure only; give a tensor data=, or run with data=True"
            )
        ranks, cubes = grid
        one = isinstance(tensor.place, int) or tensor.place == "replicate"
        parts = [
            [self._part(tensor, tensor.home((cube, rank))) for rank in range(1 if one else ranks)]
            for cube in range(cubes)
        ]
        stacked = np.stack([part[0] if one else np.stack(part) for part in parts])
        return stacked if cubes > 1 else stacked[0]

    def _part(self, tensor: Tensor, home: Program) -> Array:
        space = self._hbm.get(home)
        if space is None:
            raise LaunchError(
                f"tensor {tensor.name!r} has no part at rank {home[1]} of cube {home[0]}: it was never launched"
            )
        return tensor.layout.restore(np.array(self.view(tensor, space)), tensor.shape)


def _found(launch: Launch, checks: list[Any]) -> tuple[Hazard, ...]:
    """The findings so far."""
    return tuple(launch.findings) + tuple(hazard for each in checks for hazard in each.findings())


def _header(call: arguments.Call, launch: Launch) -> dict[str, str]:
    """What defines the run, for the first lines of its goldens: nothing that changes by itself, nor any cost."""
    ranks, cubes = launch.grid
    header = {"device": "ahbm", "kernel": call.name, "grid": str(ranks) if cubes == 1 else f"{ranks}x{cubes}"}
    if launch.placement != tuple(range(ranks)):
        header["placement"] = ",".join(map(str, launch.placement))
    for name, value in call.named.items():
        if isinstance(value, Tensor):
            header[value.name] = f"{'x'.join(map(str, value.stored))} {value.dtype} at {value.place}"
        elif isinstance(value, (bool, int, float)):
            header[name] = repr(value)
    return header


def _grid(spec: AhbmSpec, grid: int | tuple[int, int] | None) -> tuple[int, int]:
    """(programs a cube, cubes). Raises LaunchError for more than there are."""
    given = arguments.shape(1 if grid is None else grid) or ()
    ranks, cubes = (*given, 1)[:2] if len(given) in (1, 2) else (0, 0)
    if not (1 <= ranks <= spec.pes_per_cube and 1 <= cubes <= spec.cubes):
        raise LaunchError(f"grid {grid!r}: wants 1..{spec.pes_per_cube} programs a cube and 1..{spec.cubes} cubes")
    return ranks, cubes


def _named(wanted: Tensor | str, tensors: list[Tensor]) -> Tensor:
    """The argument `wanted`, or of that name. Raises LaunchError if there is none."""
    for tensor in tensors:
        if tensor is wanted or (isinstance(wanted, str) and tensor.name == wanted):
            return tensor
    names = ", ".join(tensor.name for tensor in tensors) or "none"
    raise LaunchError(f"no tensor {wanted!r} among the kernel's arguments, which are: {names}")


def _axes(name: str, axes: Any, shape: tuple[int, ...]) -> Axes:
    """Axis names, one an axis and all different, or none at all."""
    given = tuple(axes) if isinstance(axes, (tuple, list)) else (None,)
    if not all(map(arguments.is_name, given)) or len(set(given)) != len(given) or len(given) not in (0, len(shape)):
        raise LaunchError(f"tensor {name!r}: axes {axes!r} wants {len(shape)} different names, one an axis of {shape}")
    return given


def _schedule(name: str, seed: int) -> Any:
    number = arguments.whole(seed)
    if number is None:
        raise LaunchError(f"seed {seed!r}: wants a whole number")
    try:
        return schedule_named(name if isinstance(name, str) else repr(name), number)
    except ValueError as error:
        raise LaunchError(str(error)) from None
