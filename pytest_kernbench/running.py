"""What the fixture `run_kernel` calls: a device's `run`, with the test's allowances taken out of what fails it.

Errors of a kernel arrive with the kernel's frames and without the simulator's. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pytest_kernbench import simulator
from pytest_kernbench.hazards import Allowance, refused
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import DeadlockError, HazardError, KernelError

__all__ = ["Device", "RunKernel"]

_SIMULATOR = Path(simulator.__file__).parent


class Device(Protocol):
    """Anything that runs kernels, such as `AhbmChip`."""

    def run(self, kernel: Callable[..., None], *args: Any, **kwargs: Any) -> Run:
        """Run the kernel to its end."""


class RunKernel:
    """Runs kernels for one test. `allowed` are the findings that the test is known to have."""

    def __init__(self, allowed: Iterable[Allowance] = (), *, full_trace: bool = False) -> None:
        self.allowed = list(allowed)
        self._full_trace = full_trace

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
        `kwargs`. Raises KernelError at what the device refuses, DeadlockError and LivelockError.
        """
        __tracebackhide__ = True
        where: dict[str, Any] = {} if placement is None else {"placement": placement}
        how = {"grid": grid, "schedule": schedule, "seed": seed, "data": data, "check": check and "collect", **where}
        try:
            run = on.run(kernel, *args, **how, **kwargs)
        except Exception as error:  # the simulator's, or whatever the kernel's own code raised
            self._count(error)
            raise error if self._full_trace else error.with_traceback(_own_frames(error.__traceback__)) from None
        findings = refused(run.hazards, self.allowed)
        if check is True and findings:
            raise HazardError(tuple(findings))
        return run

    def _count(self, error: Exception) -> None:
        """An allowance is not stale because the finding, or a later one, ended the run."""
        if isinstance(error, KernelError | DeadlockError):
            refused(error.hazards, self.allowed)

    def stale(self) -> list[str]:
        """The complaints about allowances that let nothing pass so far."""
        return [allowance.stale() for allowance in self.allowed if not allowance.matched]


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
