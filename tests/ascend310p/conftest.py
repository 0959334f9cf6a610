"""What a test of the 310P starts from: arrays in, arrays out, on a new core."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import SimError
from pytest_kernbench.simulator.ops.log import Row


@dataclass(frozen=True)
class Outcome:
    """A finished launch; `outcome["o"]` is a tensor afterwards."""

    run: Run

    def __getitem__(self, name: str) -> Any:
        return self.run.array(name)

    @property
    def kinds(self) -> list[str]:
        return [hazard.kind for hazard in self.run.hazards]

    @property
    def cycles(self) -> int:
        return self.run.cycles

    def rows(self, name: str) -> list[Row]:
        return [row for row in self.run.log if row.name == name]


def launched(kernel: Callable[..., None], given: dict[str, Any], how: dict[str, Any], spec: dict[str, Any]) -> Run:
    core = Ascend310pCore(Ascend310pSpec(**spec))
    args = {}
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            args[name] = core.tensor(name, value.shape, value.dtype, value)
        elif isinstance(value, tuple):
            args[name] = core.tensor(name, *value)
        else:
            args[name] = value
    return core.run(kernel, **args, **how)


@pytest.fixture
def launch() -> Callable[..., Outcome]:
    """`launch(kernel, x=array, o=(shape, dtype), n=3, spec={...}, schedule=...)`: arrays are inputs; lists findings."""

    def launch(kernel: Callable[..., None], *, spec: dict[str, Any] | None = None, **given: Any) -> Outcome:
        names = ("grid", "schedule", "seed", "data", "check", "log", "max_ops", "max_cycles")
        how = {"check": "collect", **{name: given.pop(name) for name in names if name in given}}
        return Outcome(launched(kernel, given, how, spec or {}))

    return launch


@pytest.fixture
def refusal(launch: Callable[..., Outcome]) -> Callable[..., str]:
    """Launch a kernel that ends in an error of `kind`: its message, which has to name a line of the kernel's file."""

    def refusal(kernel: Callable[..., None], kind: str, **given: Any) -> str:
        with pytest.raises(SimError) as caught:
            launch(kernel, **given)
        error: Any = caught.value
        assert error.hazard.kind == kind, str(error)
        assert error.hazards[-1] is error.hazard
        assert f"{Path(kernel.__code__.co_filename).name}:" in str(error)
        return str(error)

    return refusal


@pytest.fixture
def ub(launch: Callable[..., Outcome]) -> Callable[..., Any]:
    """`ub(body, dtype, n)`: a TBuf of `n` elements for tests that need no GM: `body(asc, tensor)`."""

    def run(body: Callable[..., None], dtype: str = "float32", n: int = 4096, **how: Any) -> Outcome:
        def kernel(*, asc: Any) -> None:
            pipe, buf = asc.TPipe(), asc.TBuf()
            kind = getattr(asc, dtype)
            pipe.InitBuffer(buf, n * kind.size)
            body(asc, buf.Get(kind))

        return launch(kernel, **{"data": True, **how})

    return run
