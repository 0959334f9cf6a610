"""saxpy is right, moves what it must, and has no finding, of ours either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernels.saxpy import saxpy

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator import KernelError, Run

SIZE, TILE = 200, 48


@pytest.fixture
def run_saxpy(run_kernel: Any, vcop: Any) -> Callable[..., Run]:
    """`run_saxpy(...)`: with x = 0, 1, 2, ... and y = 1."""

    def run(tile: int = TILE, grid: int = 2, **how: Any) -> Run:
        x, y = vcop.tensor("x", SIZE, np.arange(SIZE)), vcop.tensor("y", SIZE, np.ones(SIZE))
        found: Run = run_kernel(saxpy, y, x, 0.5, tile, on=vcop, grid=grid, **how)
        return found

    return run


@pytest.mark.adr("7003", "1")
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_the_result(run_saxpy: Callable[..., Run], schedule: str) -> None:
    ka.assert_matches_reference(run_saxpy(schedule=schedule), "y", np.arange(SIZE) * 0.5 + 1, 0)


@pytest.mark.adr("7003", "2")
@pytest.mark.parametrize("grid", [1, 2, 4])
def test_traffic(run_saxpy: Callable[..., Run], grid: int) -> None:
    log = run_saxpy(grid=grid).log
    for name, tensor in (("load", "x"), ("load", "y"), ("store", "y")):
        assert log.where(name=name, tensor=tensor).bytes.sum() == 4 * SIZE


@pytest.mark.adr("7003", "3")
def test_the_operands_are_in_different_banks(run_saxpy: Callable[..., Run]) -> None:
    assert run_saxpy().log.all.conflicts.sum() == 0


@pytest.mark.adr("7003", "3")
def test_a_tile_of_four_banks_has_a_finding_of_ours(run_saxpy: Callable[..., Run]) -> None:
    run = run_saxpy(tile=64, check="collect")

    assert [(hazard.kind, hazard.ops[0].name, hazard.count) for hazard in run.hazards] == [("bank-conflict", "add", 4)]
    assert run.log.all.conflicts.sum() == 4
    assert "saxpy.py" in str(run.hazards[0])


@pytest.mark.allow_hazard("bank-conflict", reason="the operands are as far apart as the banks repeat")
def test_it_may_be_allowed(run_saxpy: Callable[..., Run]) -> None:
    run_saxpy(tile=64)


def test_golden(run_saxpy: Callable[..., Run], oplog_snapshot: Any) -> None:
    oplog_snapshot.assert_matches(run_saxpy(), columns=["conflicts"])


def early(y: Any, *, vc: Any) -> None:
    a = vc.vector(8)
    vc.store(y[:8], a)


def test_findings_of_the_package_are_those_of_this_device_too(run_kernel: Any, vcop: Any) -> None:
    run = run_kernel(early, vcop.tensor("y", 8), on=vcop, data=True, check="collect")

    assert [hazard.kind for hazard in run.hazards] == ["uninitialised-read", "op-in-flight-at-exit"]


def outside(y: Any, *, vc: Any) -> None:
    vc.load(vc.vector(8), y[4:12])


def unequal(y: Any, *, vc: Any) -> None:
    vc.load(vc.vector(4), y)


def backwards(y: Any, *, vc: Any) -> None:
    vc.load(y, vc.vector(8))


def no_vector(y: Any, *, vc: Any) -> None:
    vc.scale(vc.vector(8), 1.0, 2.0)


@pytest.mark.parametrize("kernel", [outside, unequal, backwards, no_vector])
def test_what_the_device_refuses(run_kernel: Any, vcop: Any, kernel: Any) -> None:
    kind = "out-of-bounds" if kernel is outside else "bad-parameter"
    with pytest.raises(KernelError, match=f"^{kind}: .*test_saxpy.py:.* in {kernel.__name__}"):
        run_kernel(kernel, vcop.tensor("y", 8), on=vcop)
