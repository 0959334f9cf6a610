"""The Ascend 310P as a host sees it: tensors in GM, and launches of one kernel on a grid of blocks.

Blocks run one after another, and nothing orders them: their conflicts in GM are found from what each touched.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np

from pytest_kernbench.simulator import arguments
from pytest_kernbench.simulator.ascend310p.auto_sync import AutoSyncCore
from pytest_kernbench.simulator.ascend310p.core import Core
from pytest_kernbench.simulator.ascend310p.effects import PRIORITIES, Effects, Starved, Timed
from pytest_kernbench.simulator.ascend310p.language import Asc
from pytest_kernbench.simulator.ascend310p.numerics import CoreNumerics
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.speech import Judges
from pytest_kernbench.simulator.ascend310p.tensors import GM_ALIGNMENT, GM_BASE, Pointer, Tensor
from pytest_kernbench.simulator.ascend310p.vector_exceptions import VectorExceptions
from pytest_kernbench.simulator.ascend310p.vocabulary import BY_NUMPY, PIPES, TYPES
from pytest_kernbench.simulator.checks.blocks import Footprint, conflicts, shared_lines
from pytest_kernbench.simulator.checks.pipes import PipeRaceChecker
from pytest_kernbench.simulator.checks.shadow import PAST, Memory, Shadow
from pytest_kernbench.simulator.checks.transfers import BlockTransfers
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.engine.schedule import schedule_named
from pytest_kernbench.simulator.errors import (
    DeadlockError,
    Hazard,
    HazardError,
    Involved,
    KernelError,
    LaunchError,
)
from pytest_kernbench.simulator.memory.dtypes import POISON
from pytest_kernbench.simulator.ops.compact import CompactLog

MOST_BLOCKS = 4096
LOGS = (True, "data")


class Ascend310pCore:
    """AI cores of one 310P. Tensors stay in GM from one run to the next; everything else is new in each."""

    def __init__(self, spec: Ascend310pSpec | None = None) -> None:
        if spec is not None and not isinstance(spec, Ascend310pSpec):
            raise LaunchError(f"Ascend310pCore({spec!r}): wants an Ascend310pSpec")
        self.spec = spec or Ascend310pSpec()
        self._top = GM_BASE
        self._tensors = 0

    def tensor(
        self, name: str, shape: int | Sequence[int], dtype: object = "float16", data: Any = None, *, valid: Any = None
    ) -> Tensor:
        """A tensor in GM, dense and row-major. Without data it is an output, or the run is structure only.

        `valid`: rows, from the first, that mean something; the others are poisoned. Raises LaunchError.
        """
        arguments.tensor_name(name, ("UB",))
        size = arguments.shape(shape)
        if size is None:
            raise LaunchError(f"tensor {name!r}: shape {shape!r} wants 1 to {arguments.MOST_AXES} whole numbers > 0")
        tensor = Tensor(name, size, _dtype(dtype), self._top, self._tensors)
        if valid is not None:
            rows = arguments.number(f"tensor {name!r}: valid", valid, 0, size[0])
            tensor.valid_bytes = tensor.nbytes // size[0] * rows
        if data is not None:
            values = arguments.array(f"tensor {name!r}: data", data)
            if values.shape != size:
                raise LaunchError(f"tensor {name!r}: data is {values.shape}, the tensor {size}")
            tensor.give(values)
        self._top += -(-tensor.nbytes // GM_ALIGNMENT) * GM_ALIGNMENT
        self._tensors += 1
        return tensor

    def run(
        self, kernel: Callable[..., None], *args: Any, grid: int | None = None, block_dim: int | None = None,
        schedule: str = "model", seed: int = 0, data: bool | None = None, check: bool | str = True,
        numerics: bool | str = True, log: bool | str = True, part: tuple[int, int] = (0, 1),
        max_cycles: int = 2**31 - 2, max_ops: int = 200_000_000, **kwargs: Any,
    ) -> Run:  # fmt: skip
        """Run `kernel(*args, asc=..., **kwargs)` once a block; tensors among the arguments become pointers into GM.

        `grid` (or `block_dim`): blocks, block b on core b modulo the cores. `schedule`: "model", "jitter" or "late"
        from `seed`. `data`: whether to compute; if not given, a run computes if a tensor has data. `check`: True raises
        HazardError at the end of a run with findings, "collect" only lists them, False looks for none. `numerics`:
        whether values are judged too; "precision" looks for lost digits as well. `log="data"` leaves Set, Wait and
        barriers out of the log. `part=(1, 3)`: only the second third of the cores, with their blocks, so that processes
        can share a launch; blocks of different parts see nothing of each other. Raises KernelError at what
        the device refuses, DeadlockError, LivelockError, LaunchError.
        """
        if not isinstance(check, bool) and not (isinstance(check, str) and check == "collect"):
            raise LaunchError(f"check {check!r} is none of True, 'collect', False")
        if data is not None and not isinstance(data, bool):
            raise LaunchError(f"data {data!r} is none of True, False, None")
        if not isinstance(log, bool | str) or log not in LOGS:
            raise LaunchError(f"log {log!r} is none of True, 'data'")
        if grid is not None and block_dim is not None:
            raise LaunchError(f"grid={grid!r} and block_dim={block_dim!r} are two names of one number: give one")
        arguments.numerics(numerics)
        which, parts = _part(part)
        call = arguments.call(kernel, args, kwargs, language="asc")
        tensors = self._named((*call.args, *call.kwargs.values()))
        with_data = any(tensor.filled for tensor in tensors.values()) if data is None else data
        given = block_dim if grid is None else grid
        blocks = arguments.number("grid", 1 if given is None else given, 1, MOST_BLOCKS)
        here = [block for block in range(blocks) if block % self.spec.cores % parts == which]
        launch = Launch(
            self.spec, call, tensors, blocks, here, schedule, seed, with_data, bool(check), check and numerics,
            log is True, arguments.number("max_cycles", max_cycles, 1, 2**31 - 2),
            arguments.number("max_ops", max_ops, 1),
        )  # fmt: skip
        launch.go()
        hazards = tuple(launch.findings)
        if check is True and hazards:
            raise HazardError(hazards)
        return Run(
            launch.log, launch.cycles, self.spec.clock_mhz, hazards, launch.high_water, schedule, seed, self.spec,
            tensors, bool(check), lambda tensor: _one_of(tensor, tensors).array(), notes=tuple(launch.notes),
            late_orders=len(PRIORITIES),
        )  # fmt: skip

    def _named(self, values: tuple[Any, ...]) -> dict[str, Tensor]:
        """The tensors among a kernel's arguments, by name."""
        named: dict[str, Tensor] = {}
        for each in values:
            if isinstance(each, Tensor) and named.setdefault(each.name, each) is not each:
                raise LaunchError(f"two tensors are named {each.name!r}: give each its own name")
        return named


class Launch:
    """One run: its blocks in order, one log, one list of findings."""

    def __init__(
        self, spec: Ascend310pSpec, call: arguments.Call, tensors: dict[str, Tensor], blocks: int, here: Sequence[int],
        schedule: str, seed: int, data: bool, checked: bool, numerics: bool | str, syncs: bool, max_cycles: int,
        max_ops: int,
    ) -> None:  # fmt: skip
        self.spec = spec
        self.log = CompactLog()
        self.findings: list[Hazard] = []
        self.notes: list[Hazard] = []
        self._noted: dict[str, int] = {}
        self.cycles = 0
        self.high_water = 0
        self._call = call
        self._tensors = tensors
        self._blocks = blocks
        self._here = here  # the blocks of the grid that this run has
        self._late = schedule == "late"
        number = arguments.whole(seed)
        if number is None:
            raise LaunchError(f"seed {seed!r}: wants a whole number")
        self._seed = number
        try:
            self._schedule = schedule_named(schedule, number)
        except ValueError as error:
            raise LaunchError(str(error)) from None
        self._data = data
        self._checked = checked
        self._syncs = self.log.has_syncs = syncs
        self._max_cycles = max_cycles
        self._calls_left = max_ops
        self._replay = f"run_kernel({call.name}, ..., schedule={schedule!r}, seed={seed})"
        self._numerics: CoreNumerics | None = None
        if numerics and data:
            self._numerics = CoreNumerics(self._about, self._name_of, self._replay, numerics == "precision")
        self._rows: dict[Any, Any] = {}
        self._footprints: list[Footprint] = []
        self._stored: list[dict[int, int]] = []
        self._ends = [0] * spec.cores
        self._header()

    def _header(self) -> None:
        log, given = self.log, self._call.named
        log.header = {"device": "ascend310p", "kernel": self._call.name, "grid": str(self._blocks)}
        for name, value in given.items():
            if isinstance(value, Tensor):
                log.header[name] = f"{'x'.join(map(str, value.shape))} {value.dtype}"
            elif isinstance(value, bool | int | float | str):
                log.header[name] = str(value)
        log.units.id(PIPES[0])
        for unit in PIPES[1:]:
            log.units.id(unit)
        for label in ("UB", *self._tensors):
            log.labels.id(label)

    def go(self) -> None:
        """Run every block; what the chip refuses ends the run, with the findings so far beside it."""
        exceptions = VectorExceptions(self.log, self._replay)
        hearers: list[Callable[[str, FrameType], None]] = [exceptions.seen] if self._checked and self._data else []
        hearers += [] if self._numerics is None else [self._numerics.raised]
        with _listening(hearers), _counting_findings(self):
            memories = self._memories()
            try:
                for block in self._here:
                    self._run_block(block, memories)
            finally:
                self.findings += [] if self._numerics is None else self._numerics.findings()
        if self._checked and self._blocks > 1:
            self.findings += conflicts(self._footprints, self._about, self._replay)
            self.findings += shared_lines(self._stored, self.spec.cache_line_bytes, self._about, self._replay)
        self.notes += exceptions.notes()
        for tensor in self._tensors.values():
            tensor.filled = tensor.filled or self._data

    def _memories(self) -> dict[int, Memory]:
        """The shadow of GM: what the host gave is there, the rest is not."""
        made = {}
        if self._checked:
            for tensor in self._tensors.values():
                valid = bytearray(tensor.nbytes)
                if tensor.filled or not self._data:
                    given = tensor.valid_bytes
                    valid[:given] = b"\x01" * given
                    valid[given:] = bytes([PAST]) * (tensor.nbytes - given)
                made[tensor.number] = Memory(tensor.name, tensor.base, valid)
        return made

    def _run_block(self, block: int, memories: dict[int, Memory]) -> None:
        spec, log, core_number = self.spec, self.log, block % self.spec.cores
        log.programs.append(f"block{block}")
        log.pes.append(core_number)
        log.first_rows.append(len(log))
        judges = self._judges(memories) if self._checked else None
        effects: Effects = Starved(self._seed, spec.queue_depth) if self._late else Timed()
        core = (AutoSyncCore if spec.auto_sync else Core)(
            spec, log, effects, judges.races if judges else None, start=self._ends[core_number], syncs=self._syncs,
            extra=self._schedule.extra,
        )  # fmt: skip
        ub = np.full(spec.ub_usable, POISON, np.uint8) if self._data else None
        asc = Asc(
            spec, core, log, judges, ub, block=block, blocks=self._blocks, replay=self._replay,
            max_ops=self._calls_left, max_cycles=self._max_cycles, rows=self._rows,
        )  # fmt: skip
        ended: Hazard | None = None
        try:
            self._call.kernel(*self._given(asc, self._call.args), asc=asc, **self._given_by_name(asc))
            asc.finish()
        except (KernelError, DeadlockError) as error:
            ended = error.hazard
            raise
        finally:
            asc.findings += [each for each in asc.raised if each is not ended]
            self.findings += self._judged(asc, judges)
        self._ends[core_number] = core.end
        self.cycles = max(self.cycles, core.end)
        self.high_water = max(self.high_water, asc.high_water)
        self._calls_left = max(self._calls_left - asc.calls, 1)
        if judges is not None:
            self._footprints.append(judges.footprint)
            self._stored.append(asc.cache.stored)

    def _judges(self, memories: dict[int, Memory]) -> Judges:
        shadow = Shadow(self._about, self._replay)
        shadow.suspicious = any(tensor.valid_bytes < tensor.nbytes for tensor in self._tensors.values())
        ub = Memory("UB", 0, bytearray(self.spec.ub_usable))
        transfers = BlockTransfers(self._about, self._replay, self.spec.ub_usable)
        return Judges(
            PipeRaceChecker(self._about, GM_BASE, self._replay), shadow, ub, memories, self._numerics, transfers
        )

    def _judged(self, asc: Asc, judges: Judges | None) -> list[Hazard]:
        """The findings of a block, however it ended; the same line in several blocks is one finding."""
        for note in asc.notes:
            self._note(note)
        if judges is None:
            return []
        outputs = {
            judges.memories[tensor.number]: tensor.bytes.view(tensor.dtype) if self._data else None
            for tensor in self._tensors.values()
        }
        judges.shadow.end_of_block(outputs)
        for note in judges.transfers.end():
            self._note(note)
        inserted = asc.core.inserted if isinstance(asc.core, AutoSyncCore) else ()
        for descriptor, count in judges.races.idle_waits.items():
            if descriptor in inserted:
                continue
            where = self.log.site(self.log.descriptors[descriptor].site)
            message = f"the Wait at {where} orders nothing that was not in order already; leave the pair out"
            self._note(Hazard("redundant-flag", message, count=count, replay=self._replay))
        found = [*judges.races.findings(), *judges.shadow.findings(), *asc.findings]
        known = {_lines(hazard) for hazard in self.findings}
        return [hazard for hazard in found if _lines(hazard) not in known]

    def _note(self, note: Hazard) -> None:
        """What several blocks note in the same words is one note."""
        at = self._noted.setdefault(note.message, len(self.notes))
        if at == len(self.notes):
            self.notes.append(note)
        else:
            self.notes[at] = replace(self.notes[at], count=self.notes[at].count + note.count)

    def _given(self, asc: Asc, values: tuple[Any, ...]) -> list[Any]:
        return [Pointer(asc, each) if isinstance(each, Tensor) else each for each in values]

    def _given_by_name(self, asc: Asc) -> dict[str, Any]:
        return dict(zip(self._call.kwargs, self._given(asc, tuple(self._call.kwargs.values())), strict=True))

    def _name_of(self, row: int) -> str:
        name: str = self.log.names.values[self.log.descriptor_of(row).name]
        return name

    def _about(self, row: int, lo: int, hi: int) -> Involved:
        """A row as one side of a finding, about bytes of the core's addresses."""
        log = self.log
        descriptor = log.descriptor_of(row)
        where = f"UB[{lo}:{hi}]"
        if lo >= GM_BASE:
            tensor = next(each for each in self._tensors.values() if each.base <= lo < each.base + each.nbytes)
            where = f"{tensor.name}[{lo - tensor.base}:{hi - tensor.base}] of GM"
        program = log.programs[log.program_of(row)]
        return Involved(
            row, log.names.values[descriptor.name], log.units.values[descriptor.unit], program, where, log.site_of(row)
        )


def _listening(hearers: Sequence[Callable[[str, FrameType], None]]) -> AbstractContextManager[None]:
    """numpy tells `hearers` of each floating-point flag that is raised, and in which frame; with none, of nothing."""
    if not hearers:
        return np.errstate(all="ignore")

    def told(what: str, _flags: int) -> None:
        frame = sys._getframe(1)
        for hear in hearers:
            hear(what, frame)

    return np.errstate(divide="call", over="call", invalid="call", under="ignore", call=told)


@contextmanager
def _counting_findings(launch: Launch) -> Iterator[None]:
    """An error that ends the run carries every finding so far, its own last."""
    try:
        yield
    except (KernelError, DeadlockError) as error:
        error.hazards = (*launch.findings, error.hazard)
        for each in launch.findings:
            error.add_note(f"found before: {each}")
        raise


def _lines(hazard: Hazard) -> tuple[Any, ...]:
    """What makes two findings of different blocks the same."""
    return (hazard.kind, *[(op.name, op.site) for op in hazard.ops]) if hazard.ops else (hazard.kind, hazard.message)


def _part(given: object) -> tuple[int, int]:
    """Which part, of how many."""
    if not isinstance(given, Sequence) or len(given) != 2:
        raise LaunchError(f"part {given!r} is no pair: give which and of how many, such as (0, 2)")
    many = arguments.number("part: of how many", given[1], 1)
    return arguments.number("part: which", given[0], 0, many - 1), many


def _dtype(given: object) -> Any:
    try:
        found = np.dtype(given)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        found = None
    if found not in BY_NUMPY:
        have = ", ".join(str(each.numpy) for each in TYPES)
        raise LaunchError(f"dtype {given!r} is not one 310P stores: {have}; it has no bfloat16")
    return found


def _one_of(tensor: Any, tensors: dict[str, Tensor]) -> Tensor:
    """The tensor, or the one of that name. Raises LaunchError for one that the run did not have."""
    found = tensors.get(tensor if isinstance(tensor, str) else getattr(tensor, "name", ""))
    if found is None or (isinstance(tensor, Tensor) and found is not tensor):
        raise LaunchError(f"the run has no tensor {tensor!r}; it has {', '.join(tensors) or 'none'}")
    return found


__all__ = ["Ascend310pCore"]
