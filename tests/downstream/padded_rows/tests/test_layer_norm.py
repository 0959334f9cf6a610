"""LayerNorm keeps the clauses of ADR-7002, also for rows that end inside a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest_kernbench import assertions as ka
from pytest_kernbench.running import RunKernel
from pytest_kernbench.simulator import Ascend310pCore, Ascend310pSpec, Run
from pytest_kernbench.snapshots import OpLogSnapshot

from kernels.layer_norm import layer_norm
from simulator import answers
from simulator.tiling import RowTiling

EPS = 1e-5
RunRows = Callable[..., Run]


def values(tiling: RowTiling) -> tuple[answers.Array, answers.Array, answers.Array]:
    """x, gamma and beta without padding."""
    rng = np.random.default_rng(0)
    shapes = ((tiling.rows, tiling.width), tiling.width, tiling.width)
    x, gamma, beta = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    return x, gamma, beta


def tensors(core: Ascend310pCore, tiling: RowTiling, padding: float) -> list[Any]:
    """x, gamma, beta and y, the first three with `padding` behind each row."""
    padded = []
    for name, data in zip(("x", "gamma", "beta"), values(tiling), strict=True):
        rows = np.full((*data.shape[:-1], tiling.pitch), padding, np.float16)
        rows[..., : tiling.width] = data
        padded.append(core.tensor(name, rows.shape, "float16", rows))
    return [*padded, core.tensor("y", (tiling.rows, tiling.pitch), "float16")]


@pytest.fixture
def run_rows(run_kernel: RunKernel, ascend310p_spec: Ascend310pSpec) -> RunRows:
    """`run_rows(tiling, padding=0, ...) -> Run` on a new core of ours."""

    def run(tiling: RowTiling, padding: float = 0.0, **how: Any) -> Run:
        core = Ascend310pCore(ascend310p_spec)
        return run_kernel(layer_norm, *tensors(core, tiling, padding), tiling, eps=EPS, on=core, **how)

    return run


@pytest.mark.adr("7002", "1.2", "2.2")
def test_any_width(run_rows: RunRows, length: int) -> None:
    tiling = RowTiling(rows=3, width=length)

    run = run_rows(tiling, grid=2)

    expected = np.zeros((3, tiling.pitch))
    expected[:, :length] = answers.layer_norm(*values(tiling), EPS)
    ka.assert_matches_reference(run, "y", expected, answers.bound(expected), how="simulator.answers")


@pytest.mark.adr("7002", "2.1")
def test_padding_does_not_matter(run_rows: RunRows) -> None:
    tiling = RowTiling(rows=2, width=100)

    results = [run_rows(tiling, padding).array("y") for padding in (0.0, 1000.0, np.nan)]

    assert all((each == results[0]).all() for each in results)


@pytest.mark.adr("7002", "1.3")
def test_no_schedule_changes_a_bit(ascend310p_spec: Ascend310pSpec) -> None:
    tiling = RowTiling(rows=3, width=100)

    def make_run(**how: Any) -> Run:
        core = Ascend310pCore(ascend310p_spec)
        return core.run(layer_norm, *tensors(core, tiling, 0.0), tiling, eps=EPS, **how)

    ka.assert_schedule_independent(make_run, ["y"], seeds=range(2))


@pytest.mark.adr("7002", "3.1", "3.3")
def test_rows_come_once_and_fill_what_was_counted(run_rows: RunRows) -> None:
    tiling = RowTiling(rows=4, width=100)

    run = run_rows(tiling)

    ka.assert_bytes_read(run, "x", tiling.rows * tiling.pitch * 2)
    ka.assert_dma_aligned(run)
    ka.assert_scalar_gm_accesses(run, 0)
    ka.assert_ub_budget(run, tiling.ub_bytes)


@pytest.mark.adr("7002", "1.2")
def test_golden(run_rows: RunRows, oplog_snapshot: OpLogSnapshot) -> None:
    oplog_snapshot.assert_matches(run_rows(RowTiling(rows=3, width=100)))
