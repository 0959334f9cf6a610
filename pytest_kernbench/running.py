"""What the fixture `run_kernel` calls: a device's `run`, with the test's allowances taken out of what fails it.

Errors of a kernel arrive with the kernel's frames and without the simulator's. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pytest_kernbench import simulator
from pytest_kernbench.hazards import Allowance, refused
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import DeadlockError, HazardError, KernelError

if TYPE_CHECKING:
    from pytest_kernbench.checkers import Checker
    from pytest_kernbench.simulator.ops.log import Column

__all__ = ["Device", "RunKernel"]

_SIMULATOR = Path(simulator.__file__).parent


class Device(Protocol):
    """Anything that runs kernels, such as `AhbmChip`."""

    def run(self, kernel: Callable[..., None], *args: Any, **kwargs: Any) -> Run:
        """Run the kernel to its end."""


class RunKernel:
    """Runs kernels for one test.

    `allowed` are the findings that the test is known to have, `checkers` judge each run beside the device's own, and
    `columns` are added to its log.
    """

    def __init__(
        self, allowed: Iterable[Allowance] = (), *, full_trace: bool = False, checkers: Iterable[Checker] = (),
        columns: Mapping[str, Column] | None = None,
    ) -> None:  # fmt: skip
        self.allowed = list(allowed)
        self._full_trace = full_trace
        self._checkers = tuple(checkers)
        self._columns = dict(columns or {})

    def __call__(
        self,
        kernel: Callable[..., None],
        *args: Any,
        on: Device,
        grid: int | tuple[int, int] | None = None,
        placement: Sequence[int] | None = None,
        schedule: str = "model",
        seed: int = 0,
        data: bool | None = None,
        check: bool | str = True,
        **kwargs: Any,
    ) -> Run:
        """Run `kernel(*args, **kwargs)` on the device `on`, once a program of `grid`.

        `placement`: the PE of each rank, for devices that have a choice. `schedule`: "model", "jitter" or "late", drawn
        from `seed`. `data`: whether to compute; if not given, a run computes if a tensor has data. `check`: True raises
        HazardError at the end of a run that has findings the test does not allow, "collect" only lists them in
        `run.hazards`, False looks for none. More of what the device's `run` takes, such as `numerics`, goes along with
        `kwargs`. Raises ValueError for `on` that is no device, KernelError at what the device refuses, DeadlockError
        and LivelockError.
        """
        __tracebackhide__ = True
        if not callable(getattr(on, "run", None)):
            raise ValueError(
                f"run_kernel: on is {on!r}: wants a device, such as the fixture ahbm_chip or ascend310p_core"
            )
        where: dict[str, Any] = {} if placement is None else {"placement": placement}
        how = {"grid": grid, "schedule": schedule, "seed": seed, "data": data, "check": check and "collect", **where}
        try:
            run = on.run(kernel, *args, **how, **kwargs)
        except Exception as error:  # the simulator's, or whatever the kernel's own code raised
            self._count(error)
            raise error if self._full_trace else error.with_traceback(_own_frames(error.__traceback__)) from None
        run = self._extended(run, bool(check), f"run_kernel({_name(kernel)}, ..., {schedule=}, {seed=})")
        findings = refused(run.hazards, self.allowed)
        if check is True and findings:
            raise HazardError(tuple(findings))
        return run

    def _extended(self, run: Run, check: bool, replay: str) -> Run:
        """The run with what is added to it; as it is for most."""
        __tracebackhide__ = True
        for name, column in self._columns.items():
            run.log.add_column(name, column)
        if not (check and self._checkers):
            return run
        from pytest_kernbench.checkers import judged

        return judged(run, self._checkers, replay)

    def _count(self, error: Exception) -> None:
        """An allowance is not stale because the finding, or a later one, ended the run."""
        if isinstance(error, KernelError | DeadlockError):
            refused(error.hazards, self.allowed)

    def stale(self) -> list[str]:
        """The complaints about allowances that let nothing pass so far."""
        return [allowance.stale() for allowance in self.allowed if not allowance.matched]


def _name(kernel: Any) -> str:
    while isinstance(kernel, functools.partial):
        kernel = kernel.func
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """`trace` without the simulator's frames and this module's."""
    kept: TracebackType | None = None
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    for each in reversed(frames):
        file = Path(each.tb_frame.f_code.co_filename)
        if _SIMULATOR not in file.parents and file != Path(__file__):
            kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
