"""The reference simulator: devices, what their runs return, and what can go wrong in them.

Names are imported when they are first used, so that a module that needs only errors does not load a device.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if __name__ == "simulator":
    raise ImportError("import pytest_kernbench.simulator")

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
    from pytest_kernbench.simulator.ahbm.timing import Timing
    from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
    from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
    from pytest_kernbench.simulator.device import HostTensor, Run
    from pytest_kernbench.simulator.errors import (
        DeadlockError,
        Hazard,
        HazardError,
        Involved,
        KernelError,
        LaunchError,
        LivelockError,
        LogFileError,
        SimError,
        Site,
    )
    from pytest_kernbench.simulator.memory.layout import RowMajor, TileBlocked
    from pytest_kernbench.simulator.ops.log import OpLog, Row, Selection
    from pytest_kernbench.simulator.ops.retime import Retimed, retime
    from pytest_kernbench.simulator.ops.stored import read_log

__all__ = [
    "AhbmChip",
    "AhbmSpec",
    "Ascend310pCore",
    "Ascend310pSpec",
    "DeadlockError",
    "Hazard",
    "HazardError",
    "HostTensor",
    "Involved",
    "KernelError",
    "LaunchError",
    "LivelockError",
    "LogFileError",
    "OpLog",
    "Retimed",
    "Row",
    "RowMajor",
    "Run",
    "Selection",
    "SimError",
    "Site",
    "TileBlocked",
    "Timing",
    "read_log",
    "retime",
]

_HOME = {
    "AhbmChip": "ahbm.chip",
    "AhbmSpec": "ahbm.spec",
    "Ascend310pCore": "ascend310p.device",
    "Ascend310pSpec": "ascend310p.spec",
    "HostTensor": "device",
    "OpLog": "ops.log",
    "Retimed": "ops.retime",
    "Row": "ops.log",
    "RowMajor": "memory.layout",
    "Run": "device",
    "Selection": "ops.log",
    "TileBlocked": "memory.layout",
    "Timing": "ahbm.timing",
    "read_log": "ops.stored",
    "retime": "ops.retime",
}


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
