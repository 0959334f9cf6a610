"""What device runs do while a test goes on: which lines of kernels they reach, and what comes of them, as a digest.

A digest covers the whole log, the findings and every bit of every tensor: runs with one digest are the same.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from pytest_kernbench import simulator
from pytest_kernbench.mutation import mutants, sources
from pytest_kernbench.running import RunKernel
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import LaunchError

Reached = dict[str, set[int]]
"""Lines by module, of statements that may be mutated and of functions."""


class Watch:
    """Watches every device of the process from `start` on. With `lines`, kernels are made to say where they go."""

    def __init__(self, tests: Collection[str] = (), *, lines: bool) -> None:
        self.lines = lines
        self._tests = tests  # files whose kernels are the tests' own
        self._devices: set[type] = set()
        self._probed: dict[str, ModuleType] = {}
        self._kernels: set[Any] = set()  # whose modules are known
        self._depth = 0
        self.clear()

    def clear(self) -> None:
        """Begin with the next test."""
        self.reached: Reached = {}
        self.runs = 0
        self._digest = hashlib.sha256()
        sources.forget_results()

    @property
    def digest(self) -> str:
        """Of all runs since `clear`, in order; empty if there were none."""
        return self._digest.hexdigest()[:16] if self.runs else ""

    @property
    def files(self) -> dict[str, str]:
        """The files of the modules that were reached."""
        return {name: str(self._probed[name].__file__) for name in self.reached}

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
        if self.lines:
            self._probe(kernel)
        self._depth += 1
        try:
            done = run(on, kernel, *args, **kwargs)
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}".encode())
            raise
        finally:
            self._depth -= 1
        for part in described(done):
            self._note(part)
        return done

    def _note(self, part: bytes) -> None:
        self.runs += 1
        self._digest.update(len(part).to_bytes(8, "little") + part)

    def _probe(self, kernel: Any) -> None:
        """Make the modules of a kernel say which lines are reached."""
        if not callable(kernel) or kernel in self._kernels:
            return
        self._kernels.add(kernel)
        new = [each for each in sources.kernel_modules(kernel, self._tests) if each.__name__ not in self._probed]
        functions = sources.live_functions({str(each.__file__) for each in new})
        for module in new:
            self._probed[module.__name__] = module
            source, file = sources.source_of(module), str(module.__file__)
            vars(module)[mutants.PROBE] = self._counter(module.__name__)
            sources.put(mutants.probed_code(source, file, mutants.probe_lines(source)), functions[file])
        sources.forget_results()

    def _counter(self, module: str) -> Callable[[int], None]:
        def reach(line: int) -> None:
            if self._depth:
                self.reached.setdefault(module, set()).add(line)

        return reach


def described(run: Any) -> list[bytes]:
    """All of a run, as bytes; of what a foreign device returns, its text."""
    if not isinstance(run, Run):
        return [repr(run).encode()]
    log = run.log
    words = [log.header, log.names.values, log.units.values, log.labels.values, log.shapes.values, log.regions.values]
    words += [log.routes.values, log.programs, getattr(log, "descriptors", ())]
    told = [run.cycles, run.scratch_high_water, run.hazards, run.notes]
    parts = [log.cells.tobytes(), log.operand_cells.tobytes(), repr(words).encode(), repr(told).encode()]
    return parts + [_bits(run, name) for name in run.tensors]


def _bits(run: Run, name: str) -> bytes:
    try:
        return run.array(name).tobytes()
    except LaunchError:  # structure only
        return b""
