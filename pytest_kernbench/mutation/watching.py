"""What device runs do while a test goes on: which lines of kernels they reach, and what comes of them, as a digest.

A digest covers the whole log, the findings and every bit of every tensor: runs with one digest are the same.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from pytest_kernbench import simulator
from pytest_kernbench.mutation import mutants, sources
from pytest_kernbench.running import RunKernel
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import Hazard, LaunchError
from pytest_kernbench.simulator.ops.compact import CELLS, CompactLog
from pytest_kernbench.simulator.ops.log import SITE, WIDTH, Interned, OpLog

Lines = dict[str, set[int]]
"""By module, the first lines of statements and functions."""


class Probes:
    """Makes modules say which lines they go to: `reached` while a device runs a kernel, `touched` at any time."""

    def __init__(self, tests: Collection[str]) -> None:
        self.tests = tests  # files whose kernels are the tests' own
        self.running = 0
        self.modules: dict[str, ModuleType] = {}
        self._kernels: list[Any] = []  # whose modules are known
        self._originals: list[tuple[FunctionType, CodeType]] = []
        self.clear()

    def clear(self) -> None:
        self.reached: Lines = {}
        self.touched: Lines = {}

    def put_in(self, modules: Iterable[ModuleType]) -> None:
        """Probe modules, each once. What is no Python that can be read and compiled is left alone."""
        new = [each for each in modules if each.__name__ not in self.modules]
        functions = sources.live_functions({str(each.__file__) for each in new})
        for module in new:
            self.modules[module.__name__] = module
            live = functions[str(module.__file__)]
            self._originals += [(each, each.__code__) for each in live]
            with contextlib.suppress(SyntaxError, ValueError):
                source = sources.source_of(module)
                sources.put(mutants.probed_code(source, str(module.__file__), mutants.probe_lines(source)), live)
                vars(module)[mutants.PROBE] = self._counter(module.__name__)

    def put_in_kernel(self, kernel: Any) -> None:
        """Probe the modules of a kernel that was imported only now."""
        if callable(kernel) and not any(each is kernel for each in self._kernels):
            self._kernels.append(kernel)
            self.put_in(sources.kernel_modules(kernel, self.tests))

    def take_out(self) -> None:
        for function, code in self._originals:
            function.__code__ = code
        self._originals.clear()

    def _counter(self, module: str) -> Callable[[int], None]:
        def reach(line: int) -> None:
            self.touched.setdefault(module, set()).add(line)
            if self.running:
                self.reached.setdefault(module, set()).add(line)

        return reach


class Watch:
    """Watches every device of the process from `start` on, with `probes` if lines matter."""

    def __init__(self, probes: Probes | None = None) -> None:
        self.probes = probes
        self._devices: set[type] = set()
        self.clear()

    def clear(self) -> None:
        """Begin with the next test."""
        self.runs = 0
        self._digest = hashlib.sha256()
        sources.forget_results()
        if self.probes is not None:
            self.probes.clear()

    @property
    def digest(self) -> str:
        """Of all runs since `clear`, in order; empty if there were none."""
        return self._digest.hexdigest()[:16] if self.runs else ""

    def start(self) -> None:
        for name in simulator.__all__:
            each = getattr(simulator, name)
            if isinstance(each, type) and callable(getattr(each, "run", None)):
                self._wrap(each)
        called = RunKernel.__call__

        def call(runner: RunKernel, kernel: Callable[..., None], *args: Any, on: Any, **kwargs: Any) -> Run:
            __tracebackhide__ = True
            self._wrap(type(on))  # a device of the user's
            return called(runner, kernel, *args, on=on, **kwargs)

        RunKernel.__call__ = call  # type: ignore[method-assign,assignment]

    def _wrap(self, device: Any) -> None:
        if any(each in self._devices for each in device.__mro__):
            return
        self._devices.add(device)
        run = device.run

        def watched(on: Any, kernel: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return self._watched(run, on, kernel, *args, **kwargs)

        device.run = watched

    def _watched(self, run: Callable[..., Any], on: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            with self._running(kernel):
                done = run(on, kernel, *args, **kwargs)
        except Exception as error:
            self._note(repr((type(error).__name__, _found(getattr(error, "hazards", ())) or str(error))).encode())
            raise
        for part in described(done):
            self._note(part)
        return done

    @contextlib.contextmanager
    def _running(self, kernel: Any) -> Iterator[None]:
        if self.probes is None:
            yield
            return
        self.probes.put_in_kernel(kernel)
        self.probes.running += 1
        try:
            yield
        finally:
            self.probes.running -= 1

    def _note(self, part: bytes) -> None:
        self.runs += 1
        self._digest.update(len(part).to_bytes(8, "little") + part)


def described(run: Any) -> list[bytes]:
    """All of a run but the source lines of its ops, as bytes; of what a foreign device returns, its text."""
    if not isinstance(run, Run):
        return [repr(run).encode()]
    log = run.log
    words = [log.header, log.names.values, log.units.values, log.labels.values, log.shapes.values, log.regions.values]
    told = [log.routes.values, log.programs, run.cycles, run.scratch_high_water, _found(run.hazards), _found(run.notes)]
    parts = [*_rows(log), log.operand_cells.tobytes(), repr(words).encode(), repr(told).encode()]
    return parts + [_bits(run, name) for name in run.tensors]


def _found(hazards: Collection[Hazard]) -> list[object]:
    """Findings without their texts, which name files and lines."""
    ops = [[(op.row, op.name, op.unit, op.kernel, op.bytes) for op in each.ops] for each in hazards]
    return [(each.kind, each.count, involved) for each, involved in zip(hazards, ops, strict=True)]


def _rows(log: OpLog) -> list[bytes]:
    """The rows without their lines: an op may well be waited for at another line, and all be as it was."""
    if not isinstance(log, CompactLog):
        return [np.delete(np.frombuffer(log.cells, np.int32).reshape(-1, WIDTH), SITE, axis=1).tobytes()]
    known = Interned()
    same_but_for_line = np.array([known.id(replace(each, site=0)) for each in log.descriptors], np.int32)
    cells = np.frombuffer(log.cells, np.int32).reshape(-1, CELLS).copy()
    if len(cells):
        cells[:, 0] = same_but_for_line[cells[:, 0]]
    return [cells.tobytes(), repr(known.values).encode()]


def _bits(run: Run, name: str) -> bytes:
    try:
        return run.array(name).tobytes()
    except LaunchError:  # structure only
        return b""
