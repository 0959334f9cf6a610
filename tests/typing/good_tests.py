"""Tests with every fixture, with helpers, marks, findings, logs, property tests and sweeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given

from pytest_kernbench import (
    AhbmChip,
    AhbmSpec,
    Asc,
    Ascend310pCore,
    Ascend310pSpec,
    HazardError,
    KernbenchDeprecationWarning,
    KernelError,
    OpLog,
    OpLogSnapshot,
    Run,
    RunKernel,
    Tl,
    strategies,
    sweeps,
)
from pytest_kernbench import assertions as ka
from pytest_kernbench.documents import Document
from pytest_kernbench.hazards import KINDS, MEANING
from pytest_kernbench.messages import link_bytes
from pytest_kernbench.rooflines import busy_cycles
from pytest_kernbench.simulator import Hazard, Site, TileBlocked, Timing, retime
from pytest_kernbench.simulator.ahbm.tl import Pointer
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.ascend310p.asc import Pointer as GmPointer


def double(x: Pointer, y: Pointer, *, scale: float = 2.0, tl: Tl) -> None:
    tl.wait(tl.store(y, tl.load(x, (8, 64)) * scale))


def add(x: GmPointer, y: GmPointer, count: int, *, asc: Asc) -> None:
    gm = asc.GlobalTensor(asc.float32)
    gm.SetGlobalBuffer(x, count)
    y_gm = asc.GlobalTensor(asc.float32)
    y_gm.SetGlobalBuffer(y)
    y_gm.SetValue(0, gm.GetValue(0) + np.float32(1))


@pytest.fixture
def ahbm_spec() -> AhbmSpec:
    return AhbmSpec(mesh_rows=1, hbm_bytes_per_cycle=512)


@pytest.mark.adr("0060", "11.2")
@pytest.mark.ahbm(issue_costs=0)
@pytest.mark.allow_hazard("op-in-flight-at-exit", reason="the host waits")
def test_double(run_kernel: RunKernel, ahbm_chip: AhbmChip, oplog_snapshot: OpLogSnapshot) -> None:
    data: npt.NDArray[np.float32] = np.ones((8, 64), np.float32)
    x = ahbm_chip.tensor("x", (8, 64), "float32", data, place=0, axes=("token", "d"), layout=TileBlocked(64))
    y = ahbm_chip.tensor("y", (8, 64), np.float32, place="local", valid=[8])
    run = run_kernel(double, x, y, on=ahbm_chip, grid=(2, 1), placement=(0, 1), schedule="late", seed=3, scale=3.0)
    assert_type(run, Run)
    assert_type(run.cycles, int)
    ka.assert_matches_reference(run, "y", 2 * data, 1e-6)
    ka.assert_matches_reference(run, y, [[2.0]], np.float64(0.5), how="by hand")
    ka.assert_latency_between(run, ka.roofline(run), ka.serial_sum(run), ratio=1.35)
    ka.assert_bytes_read(run, "x", [2048, 0])
    ka.assert_dma_reads_independent_of_group({1: run, 2: run}, ("x",))
    oplog_snapshot.assert_matches(run, name="late")
    kinds = [hazard.kind for hazard in run.hazards]
    assert_type(kinds, list[str])
    log = run.log
    assert_type(log, OpLog)
    assert log.where(unit="DMA", tensor="x").bytes.sum() + link_bytes(run) > 0
    assert busy_cycles(log, "DMA")[0] > 0
    first = log[0]
    assert_type(first.site, Site)
    assert retime(log, Timing(AhbmSpec())).cycles < run.time_ns


def test_add(run_kernel: RunKernel, ascend310p_core: Ascend310pCore, ascend310p_spec: Ascend310pSpec) -> None:
    x = ascend310p_core.tensor("x", 8, "float32", np.zeros(8))
    y = ascend310p_core.tensor("y", 8, "float32")
    run = run_kernel(add, x, y, 8, on=ascend310p_core, grid=1, check="collect")
    ka.assert_flags_balanced(run)
    assert ascend310p_spec.ub_usable > 0


def test_findings(ahbm_chip: AhbmChip, kernbench_specs: dict[str, Document]) -> None:
    with pytest.raises(HazardError) as caught:
        ahbm_chip.run(double, ahbm_chip.tensor("x", (8, 64)), 1)
    hazards = caught.value.hazards
    assert_type(hazards, tuple[Hazard, ...])
    assert hazards[0].kind in KINDS
    assert_type(MEANING, Mapping[str, str])
    clause = kernbench_specs["0060"].clause("11.2")
    assert clause is not None
    with pytest.raises(KernelError), pytest.warns(KernbenchDeprecationWarning):
        AhbmChip(ports=ring_ports((0, 1, 5, 4))).run(double)


@given(strategies.attention(), strategies.schedules())
def test_property(size: strategies.Attention, schedule: strategies.Schedule) -> None:
    def make_run(schedule: str, seed: int) -> Run:
        chip = AhbmChip()
        return chip.run(double, chip.tensor("x", (size.kv_len, 64)), schedule=schedule, seed=seed)

    ka.assert_schedule_independent(make_run, ["y"])
    ka.assert_deterministic(lambda: make_run(**schedule._asdict()))


def test_sweep(tmp_path: Path) -> None:
    def cycles(tile: int, n: int) -> dict[str, float]:
        return {"cycles": tile / n}

    rows = sweeps.sweep(cycles, sweeps.grid(tile=(64, 128), n=(1, 2)))
    sweeps.write_csv(rows, tmp_path / "rows.csv")
