"""What every device keeps, as tests that a device of yours runs too: logs, units, memory, determinism, time.

    class TestMyDevice(DeviceContract):
        @pytest.fixture
        def device(self) -> Device:
            return Device(...)

Each program of the description is tried; a test that a device cannot keep is overridden there, with the reason.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_kernbench import simulator
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import KernelError, LaunchError
from pytest_kernbench.simulator.memory.dtypes import POISON, Array
from pytest_kernbench.simulator.ops.entries import Reading
from pytest_kernbench.simulator.ops.log import OpLog, Row
from pytest_kernbench.simulator.ops.text import parse, structure, timing

__all__ = ["WALKS", "Device", "DeviceContract", "Program", "Walk", "digest", "digest_elsewhere"]

SIMULATOR = Path(simulator.__file__).parent
SCHEDULES = ("model", "jitter", "late")
WALKS = range(4)
"""The numbers that `Device.walk` is called with."""


class Program(Protocol):
    """Runs one kernel with data and without findings, on a new device with these fields of its spec.

    `how` goes to the device's `run`. Returns the run, and whatever `Device.untouched` looks at.
    """

    __name__: str
    __module__: str
    __qualname__: str

    def __call__(self, spec: Mapping[str, Any] | None = None, /, **how: Any) -> tuple[Run, Any]: ...


class Walk(Protocol):
    """A program drawn from its number, through every kind of op; its findings are collected, and not its concern."""

    def __call__(self, walk: int, spec: Mapping[str, Any] | None = None, /, **how: Any) -> tuple[Run, Any]: ...


@dataclass(frozen=True)
class Device:
    """How the contract runs programs on a device, and what it has to know of it."""

    program: Program  # a function of a module, for it is called in another process too
    walk: Walk
    fill_a_space: Callable[[], object]  # runs a kernel that wants more bytes than there are
    pipes: tuple[str, ...]  # units that take one op at a time, by name or the beginning of it
    untouched: Callable[[Any], Array]  # bytes of a tensor that no kernel touched, as uint8
    name_is_known: Callable[[str], bool]  # the op of that name has a cost and a meaning
    bandwidth: str  # the field of its spec: bytes a cycle
    folder: Path = SIMULATOR  # the device's own modules: none of them is where a kernel says something
    least_names: int = 4  # names of ops that the programs use at least
    ends_in_order: bool = True  # ops of a pipe
    has_composites: bool = False  # rows that stand for others
    occupies: Callable[[Row], bool] = lambda row: True  # rows that take their pipe's time


@cache
def programs(device: Device) -> tuple[Run, ...]:
    """One run of each program, computed once."""
    return (device.program()[0], *(device.walk(walk)[0] for walk in WALKS))


def pipes(device: Device, log: OpLog) -> Iterator[list[Row]]:
    """The rows of each pipe in the order of their starts. Rows that stand for others (a composite) are no pipe's."""
    rows: dict[tuple[int, str], list[Row]] = {}
    for row in log:
        if row.unit.startswith(device.pipes) and device.occupies(row):
            rows.setdefault((row.program, row.unit), []).append(row)
    return (sorted(each, key=lambda row: (row.start, row.free)) for each in rows.values())


def digest(run: Run) -> str:
    """Names a log to the bit."""
    return hashlib.sha256(run.log.cells.tobytes() + run.log.operand_cells.tobytes()).hexdigest()


def digest_elsewhere(program: Program, **environment: str) -> str:
    """The digest of the program's run in a process of its own. Raises ValueError for what is no function of a module.

    The process has this one's import path; a module that cannot be imported by its name is run from its file.
    """
    file, name = inspect.getsourcefile(program), program.__qualname__
    if file is None or not name.isidentifier():
        raise ValueError(f"Device.program is {name} of {program.__module__}: give a function of a module")
    code = "import sys; from pytest_kernbench import contract; print(contract._digest_of(*sys.argv[1:]))"
    found = subprocess.run(
        [sys.executable, "-c", code, program.__module__, file, name], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def _digest_of(module: str, file: str, name: str) -> str:
    """What the other process does."""
    return digest((vars(importlib.import_module(module)) if _is(module, file) else runpy.run_path(file))[name]()[0])


def _is(module: str, file: str) -> bool:
    """Whether the file is what an import of that name gives."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()


def told(log: OpLog, rows: Array) -> list[str]:
    """The first rows for which `rows` is true, in words."""
    return [_said(log[int(index)]) for index in rows.nonzero()[0][:5]]


def _said(row: Row) -> str:
    times = f"issue {row.issue} start {row.start} free {row.free} end {row.end}"
    return f"row {row.index}: {row.name} on {row.unit}, {times}, at {row.site}"


class DeviceContract:
    """The tests; a class of yours that begins with `Test` inherits them and has the fixture `device`."""

    # Log

    def test_the_programs_use_every_unit(self, device: Device) -> None:
        """A contract that is tried on nothing holds."""
        seen = {row.unit.split(".")[0] for run in programs(device) for row in run.log}
        assert seen >= set(device.pipes)

    def test_moments_are_in_order_and_none_is_left_open(self, device: Device) -> None:
        for run in programs(device):
            table = run.log.all
            assert told(run.log, table.issue < 0) == []
            assert told(run.log, table.issue > table.start) == []
            assert told(run.log, table.start > table.end) == []
            assert table.end.max() == run.cycles

    def test_ops_of_a_pipe_never_overlap_and_end_in_order(self, device: Device) -> None:
        for run in programs(device):
            for rows in pipes(device, run.log):
                assert [_said(row) for row in rows if not row.start <= row.free <= row.end] == []
                both = [(_said(one), _said(next)) for one, next in pairwise(rows) if one.free > next.start]
                assert both == [], "the second starts while the first occupies the pipe"
                if device.ends_in_order:
                    late = [(_said(one), _said(next)) for one, next in pairwise(rows) if one.end > next.end]
                    assert late == [], "the second ends before the first"

    def test_rows_of_a_program_are_in_the_order_said(self, device: Device) -> None:
        for run in programs(device):
            for program in {row.program for row in run.log}:
                own = [row for row in run.log if row.program == program and row.parent < 0]
                back = [(_said(one), _said(next)) for one, next in pairwise(own) if one.issue > next.issue]
                assert back == [], "the second was said before the first"

    def test_what_a_row_waited_for_ended_before_it_went_on(self, device: Device) -> None:
        for run in programs(device):
            waits = [row for row in run.log if row.after >= 0]
            assert waits
            early = [(_said(row), _said(run.log[row.after])) for row in waits if run.log[row.after].end > row.end]
            assert early == [], "the first waits for the second"

    def test_every_row_has_a_line_of_the_kernels(self, device: Device) -> None:
        for run in programs(device):
            files = {row.site.file for row in run.log}
            folders = (SIMULATOR, device.folder)
            assert [file for file in files if any(Path(file).is_relative_to(folder) for folder in folders)] == []
            assert [_said(row) for row in run.log if row.site.line <= 0] == []

    def test_children_lie_inside_their_parent(self, device: Device) -> None:
        children = [(run.log[row.parent], row) for run in programs(device) for row in run.log if row.parent >= 0]
        assert bool(children) is device.has_composites
        for parent, row in children:
            assert parent.start <= row.start
            assert row.name == "writeback" or row.end <= parent.end

    def test_the_text_of_a_log_reads_back(self, device: Device) -> None:
        """Goldens of the device's logs lose nothing."""
        for run in programs(device):
            assert parse(structure(run.log)) == Reading(run.log).entries()
            assert f"\ncycles {run.cycles}\n" in timing(run.log)

    # Names: an op has a cost and a meaning

    def test_every_op_name_in_a_log_has_a_cost_and_a_meaning(self, device: Device) -> None:
        names = {row.name for run in programs(device) for row in run.log}
        assert len(names) >= device.least_names
        assert [name for name in names if not device.name_is_known(name)] == []

    # Runs

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_a_run_says_how_it_was_run(self, device: Device, schedule: str) -> None:
        run, _ = device.program(schedule=schedule, seed=5, check=False)
        assert (run.schedule, run.seed, run.checked, run.hazards) == (schedule, 5, False, ())
        assert run.log.header["kernel"]
        assert run.log.programs

    def test_the_program_has_no_finding(self, device: Device) -> None:
        for schedule in SCHEDULES:
            run, _ = device.program(schedule=schedule, seed=5, check="collect")
            assert run.checked
            assert run.hazards == ()

    @pytest.mark.parametrize(
        "how", [{"schedule": "sideways"}, {"seed": 0.5}, {"check": "perhaps"}, {"data": 7}], ids=str
    )
    def test_a_run_that_makes_no_sense_is_refused(self, device: Device, how: dict[str, Any]) -> None:
        with pytest.raises(LaunchError, match=str(next(iter(how.values())))):
            device.program(**how)

    # Determinism

    @pytest.mark.parametrize("schedule", SCHEDULES)
    def test_two_runs_are_one_log(self, device: Device, schedule: str) -> None:
        assert len({digest(device.program(schedule=schedule, seed=3)[0]) for _ in range(2)}) == 1
        assert len({digest(device.walk(1, schedule=schedule, seed=3)[0]) for _ in range(2)}) == 1

    def test_checks_change_nothing(self, device: Device) -> None:
        assert digest(device.program(check=False)[0]) == digest(device.program(check=True)[0])

    def test_a_run_without_data_has_the_log_of_the_run_with_data(self, device: Device) -> None:
        assert digest(device.program(data=False)[0]) == digest(programs(device)[0])
        for walk, run in zip(WALKS, programs(device)[1:], strict=True):
            structure = device.walk(walk, data=False)[0]
            assert digest(structure) == digest(run)
            assert structure.hazards == run.hazards

    def test_another_process_with_another_hash_seed_has_the_same_log(self, device: Device) -> None:
        assert digest_elsewhere(device.program, PYTHONHASHSEED="12345") == digest(programs(device)[0])

    # Memory

    def test_what_nobody_wrote_is_poison_to_the_end(self, device: Device) -> None:
        for _, left in (device.program(), device.walk(0)):
            untouched = device.untouched(left)
            assert untouched.size
            assert (untouched == POISON).all()

    def test_a_full_space_is_refused(self, device: Device) -> None:
        with pytest.raises(KernelError, match=r"^capacity"):
            device.fill_a_space()

    # Time

    @pytest.mark.parametrize("program", ["program", *WALKS], ids=str)
    def test_more_bandwidth_never_makes_a_run_slower(self, device: Device, program: str | int) -> None:
        def cycles(width: int) -> int:
            spec = {device.bandwidth: width}
            if isinstance(program, int):
                return device.walk(program, spec, data=False)[0].cycles
            return device.program(spec, data=False)[0].cycles

        found = [cycles(width) for width in (4, 64, 128, 256, 512)]
        assert found == sorted(found, reverse=True)
        assert found[0] > found[-1]
