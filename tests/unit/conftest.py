"""What a simulator test starts from: a fresh chip a launch, tensors by keyword, and what came of it."""

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import KernelError
from pytest_kernbench.simulator.ops.log import OpLog, Row


@dataclass(frozen=True)
class Outcome:
    """A finished launch; `outcome["o"]` is the tensor `o` afterwards, of its first part."""

    run: Run
    tensors: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        tensor = self.tensors[name]
        array = self.run.array(tensor)
        return array[0] if tensor.place == "local" else array

    @property
    def log(self) -> OpLog:
        return self.run.log

    @property
    def cycles(self) -> int:
        return self.run.cycles

    @property
    def kinds(self) -> list[str]:
        return [hazard.kind for hazard in self.run.hazards]

    def rows(self, name: str) -> list[Row]:
        return list(self.run.log.where(name=name))

    def row(self, name: str) -> Row:
        (only,) = self.rows(name)
        return only


def tensors_of(chip: AhbmChip, given: dict[str, Any], data: bool) -> dict[str, Any]:
    """An array becomes a replicated input, (array, place) one at a place, (shape, dtype[, place]) one without data."""
    made = {}
    for name, value in given.items():
        array, place = value if isinstance(value, tuple) and isinstance(value[0], np.ndarray) else (value, "replicate")
        if isinstance(array, np.ndarray):
            made[name] = chip.tensor(name, array.shape, array.dtype, array if data else None, place)
        else:
            made[name] = chip.tensor(name, *value[:2], place=value[2] if len(value) > 2 else 0)
    return made


@pytest.fixture
def launch() -> Callable[..., Outcome]:
    """`launch(kernel, x=array, o=(shape, dtype), grid=2, spec={...})` on a new chip; findings are listed only."""

    def launch(
        kernel: Callable[..., None], *, spec: dict[str, Any] | None = None, ports: Any = None, check: Any = "collect",
        grid: Any = 1, placement: Any = None, schedule: str = "model", seed: int = 0, data: bool = True,
        numerics: bool | str = True, max_cycles: int = 10**6, max_ops: int = 10**4, **given: Any,
    ) -> Outcome:  # fmt: skip
        chip = AhbmChip(AhbmSpec(**(spec or {})), ports=ports)
        tensors = tensors_of(chip, given, data)
        run = chip.run(
            kernel, *tensors.values(), grid=grid, placement=placement, schedule=schedule, seed=seed, data=data,
            check=check, numerics=numerics, max_cycles=max_cycles, max_ops=max_ops,
        )  # fmt: skip
        return Outcome(run, tensors)

    return launch


@pytest.fixture
def refusal(launch: Callable[..., Outcome]) -> Callable[..., str]:
    """Launch a kernel that the device refuses: the message, which has to name the kernel's own line.

    `refusal(kernel, "bad-parameter", x=...)`.
    """

    def refusal(kernel: Callable[..., None], kind: str, **given: Any) -> str:
        with pytest.raises(KernelError) as caught:
            launch(kernel, **given)
        assert caught.value.kind == kind
        message = str(caught.value)
        assert where(caught.value, kernel) in message
        return re.sub(r"\n  replay: .*", "", message)

    return refusal


def where(error: BaseException, kernel: Callable[..., None]) -> str:
    """The line of `kernel`'s file that an error came from, as messages write it."""
    file = kernel.__code__.co_filename
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(file).name}:{frames[-1].lineno} in {frames[-1].name}"
