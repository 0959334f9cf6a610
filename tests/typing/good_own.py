"""What a user writes beside kernels: a device of one's own, a `tl` for a unit test, an observer's bound."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pytest_kernbench import Device, HostTensor, Run, RunKernel
from pytest_kernbench import assertions as ka
from pytest_kernbench.deprecation import deprecated


class Board:
    """A device that runs kernels somewhere else."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, kernel: Callable[..., None], *args: Any, **kwargs: Any) -> Run:
        kernel(*args, tl=Regions())
        return self._run


class Regions:
    """The one call that a kernel under test makes."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def region(self, name: str) -> AbstractContextManager[None, None]:
        self.names.append(name)
        return nullcontext()


@dataclass(frozen=True)
class RoundingBound:
    """Half an ulp an addition."""

    bound: float

    def __str__(self) -> str:
        return f"half an ulp an addition: {self.bound}"


def test_board(run_kernel: RunKernel, finished: Run, tensor: HostTensor) -> None:
    board: Device = Board(finished)
    run = run_kernel(print, tensor, on=board)
    ka.assert_matches_reference(run, tensor, 0.0, RoundingBound(1e-3))


def old_helper() -> None:
    deprecated("old_helper", "new_helper", until="2.0")
