"""GELU keeps the clauses of ADR-7002 at every length, also where a vector ends inside a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_kernbench import assertions as ka
from pytest_kernbench.running import RunKernel
from pytest_kernbench.simulator import Ascend310pCore, Ascend310pSpec, Run
from pytest_kernbench.snapshots import OpLogSnapshot

from kernels.gelu import gelu
from simulator import answers
from simulator.tiling import GeluTiling, whole_blocks

RunGelu = Callable[..., Run]


def values(length: int) -> answers.Array:
    x = np.linspace(-6, 6, length, dtype=np.float16)
    x[::97] = -60000  # whose exponential no float32 holds
    return x


def tensors(core: Ascend310pCore, length: int) -> list[Any]:
    """x and y with room for whole blocks; behind the length x means nothing."""
    room = whole_blocks(length)
    x = np.zeros(room, np.float16)
    x[:length] = values(length)
    return [core.tensor("x", room, "float16", x, valid=length), core.tensor("y", room, "float16")]


@pytest.fixture
def run_gelu(run_kernel: RunKernel, ascend310p_core: Ascend310pCore) -> RunGelu:
    """`run_gelu(length, tile=256, buffers=2, ...) -> Run` on our core."""

    def run(length: int, tile: int = 256, buffers: int = 2, **how: Any) -> Run:
        tiling = GeluTiling(length, tile, buffers)
        return run_kernel(gelu, *tensors(ascend310p_core, length), tiling, on=ascend310p_core, **how)

    return run


@pytest.mark.adr("7002", "1.1", "2.1", "2.2")
@pytest.mark.parametrize("grid", [1, 3])
def test_any_length(run_gelu: RunGelu, length: int, grid: int) -> None:
    run = run_gelu(length, grid=grid)

    expected = np.zeros(whole_blocks(length))
    expected[:length] = answers.gelu(values(length))
    ka.assert_matches_reference(run, "y", expected, answers.bound(expected), how="simulator.answers")


@pytest.mark.adr("7002", "1.3")
def test_no_schedule_changes_a_bit(ascend310p_spec: Ascend310pSpec) -> None:
    def make_run(**how: Any) -> Run:
        core = Ascend310pCore(ascend310p_spec)
        return core.run(gelu, *tensors(core, 600), GeluTiling(600), grid=2, **how)

    ka.assert_schedule_independent(make_run, ["y"], seeds=range(2))
    ka.assert_deterministic(make_run)


@pytest.mark.adr("7002", "3.1")
def test_whole_blocks_come_once(run_gelu: RunGelu) -> None:
    run = run_gelu(1000)

    ka.assert_bytes_read(run, "x", whole_blocks(1000) * 2)
    ka.assert_dma_aligned(run)
    ka.assert_scalar_gm_accesses(run, 0)
    ka.assert_no_dead_transfers(run)


@pytest.mark.adr("7002", "3.2")
def test_copies_run_beside_arithmetic(run_gelu: RunGelu) -> None:
    two, one = (run_gelu(24000, tile=4096, buffers=buffers) for buffers in (2, 1))

    ka.assert_overlap(two, "MTE2", "V", at_least=0.5)
    assert two.cycles < 0.7 * one.cycles


@pytest.mark.adr("7002", "3.3")
@pytest.mark.parametrize("tile", [64, 1024])
def test_ub_is_what_the_tiling_counts(run_gelu: RunGelu, tile: int) -> None:
    ka.assert_ub_budget(run_gelu(1000, tile), GeluTiling(1000, tile).ub_bytes)


@pytest.mark.ascend310p(gm_bytes_per_cycle=2)
def test_slower_memory_is_slower(run_gelu: RunGelu, ascend310p_core: Ascend310pCore) -> None:
    assert (ascend310p_core.spec.cores, ascend310p_core.spec.gm_bytes_per_cycle) == (4, 2)  # ours, and the mark's
    core = Ascend310pCore()
    assert run_gelu(1000).cycles > core.run(gelu, *tensors(core, 1000), GeluTiling(1000)).cycles


def test_golden(run_gelu: RunGelu, oplog_snapshot: OpLogSnapshot) -> None:
    oplog_snapshot.assert_matches(run_gelu(1000), columns=["energy"])


def test_energy_is_a_column_of_the_log(run_gelu: RunGelu) -> None:
    log = run_gelu(1000).log
    assert log.where(unit="MTE2").energy.sum() == 20 * whole_blocks(1000) * 2
