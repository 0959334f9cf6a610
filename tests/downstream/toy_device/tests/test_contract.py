"""The coprocessor keeps what every device keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vcop
from kernels.saxpy import saxpy
from vcop import Vcop, VcopSpec
from vcop.spec import MATH, MOVES

from pytest_kernbench.contract import Device, DeviceContract
from pytest_kernbench.simulator import Run

Spec = Mapping[str, Any] | None


def program(spec: Spec = None, /, **how: Any) -> tuple[Run, Any]:
    """saxpy on two cores, the last tile ragged."""
    device, rng = Vcop(VcopSpec(**(spec or {}))), np.random.default_rng(0)
    x, y = (device.tensor(name, 200, rng.standard_normal(200)) for name in "xy")
    guard = device.tensor("guard", 64)
    return device.run(saxpy, y, x, 0.5, 48, grid=2, **how), (device, guard)


def walk(walk: int, spec: Spec = None, /, **how: Any) -> tuple[Run, Any]:
    """Any command on any part of one vector."""
    device = Vcop(VcopSpec(**(spec or {})))
    x, y = device.tensor("x", 64, np.random.default_rng(walk).standard_normal(64)), device.tensor("y", 64)
    guard = device.tensor("guard", 64)

    def kernel(y: Any, x: Any, *, vc: Any) -> None:
        rng = np.random.default_rng([walk, vc.program_id])
        v = vc.vector(256)
        for _ in range(20):
            step(int(rng.integers(6)), x, y, [v[int(first) : int(first) + 48] for first in rng.integers(0, 200, 3)], vc)
        vc.load(v[:48], x[:48])
        vc.fence()

    return device.run(kernel, y, x, grid=2, check="collect", **how), (device, guard)


def step(choice: int, x: Any, y: Any, parts: list[Any], vc: Any) -> None:
    a, b, c = parts
    [
        lambda: vc.load(a, x[:48]),
        lambda: vc.store(y[8:56], b),
        lambda: vc.add(a, b, c),
        lambda: vc.mul(a, a, b),
        lambda: vc.scale(c, b, 0.5),
        vc.fence,
    ][choice]()


def fill() -> None:
    def kernel(*, vc: Any) -> None:
        vc.vector(200)
        vc.vector(200)

    Vcop(VcopSpec(local_bytes=1000)).run(kernel)


def untouched(left: Any) -> Any:
    device, guard = left
    return device.elements(guard).view(np.uint8)


class TestVcop(DeviceContract):
    @pytest.fixture
    def device(self) -> Device:
        return Device(
            program, walk, fill, ("VEC",), untouched, name_is_known=lambda name: name in (*MOVES, *MATH, "wait"),
            bandwidth="bytes_per_cycle", folder=Path(vcop.__file__).parent, least_names=6,
        )  # fmt: skip
