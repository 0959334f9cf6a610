"""Verify accelerator kernels on a reference simulator, from pytest. PYTEST_DONT_REWRITE

What tests and kernels import most is here by name, and is loaded when it is first used: a run that needs none of it
imports none of it. What of the package is public, and for how long, is in docs/api.md.
"""

import importlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_kernbench.deprecation import KernbenchDeprecationWarning
    from pytest_kernbench.running import Device, RunKernel
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
    from pytest_kernbench.simulator.ahbm.tl import Tl
    from pytest_kernbench.simulator.ascend310p.asc import Asc
    from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
    from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
    from pytest_kernbench.simulator.device import HostTensor, Run
    from pytest_kernbench.simulator.errors import (
        DeadlockError,
        Hazard,
        HazardError,
        KernelError,
        LaunchError,
        LivelockError,
        SimError,
    )
    from pytest_kernbench.simulator.ops.log import OpLog
    from pytest_kernbench.snapshots import OpLogSnapshot

__all__ = [
    "AhbmChip",
    "AhbmSpec",
    "Asc",
    "Ascend310pCore",
    "Ascend310pSpec",
    "DeadlockError",
    "Device",
    "Hazard",
    "HazardError",
    "HostTensor",
    "KernbenchDeprecationWarning",
    "KernelError",
    "LaunchError",
    "LivelockError",
    "OpLog",
    "OpLogSnapshot",
    "Run",
    "RunKernel",
    "SimError",
    "Tl",
    "__version__",
]

__version__ = "0.1.0"

_HOME = {
    "Asc": "simulator.ascend310p.asc",
    "Device": "running",
    "KernbenchDeprecationWarning": "deprecation",
    "OpLogSnapshot": "snapshots",
    "RunKernel": "running",
    "Tl": "simulator.ahbm.tl",
}

# Before anything imports them: failing asserts inside the helpers and the contract then show their values.
pytest.register_assert_rewrite("pytest_kernbench.assertions", "pytest_kernbench.contract")


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'simulator')}"), name)
        globals()[name] = value  # the next use finds it without asking
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
