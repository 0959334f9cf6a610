"""The numbers of the chip: each with a mark and a source, each refused if impossible, each changing only its own."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.errors import LaunchError

NUMBERS = [field.name for field in fields(AhbmSpec) if field.name != "issue_costs"]
# A cost or a latency may be zero, but for what keeps a transfer from arriving in the cycle in which it starts.
FREE = {name for name in NUMBERS if name.endswith("_cycles")} - {"dma_run_cycles", "injection_cycles"}
ISSUED = {
    "math": 8,
    "load": 16,
    "store": 16,
    "dot": 16,
    "send": 16,
    "recv": 16,
    "composite": 48,
    "release": 0,
    "wait": 0,
}


@pytest.mark.parametrize("field", fields(AhbmSpec), ids=lambda field: field.name)
def test_every_number_has_a_mark_and_a_source(field: Any) -> None:
    assert field.metadata["mark"] in ("K", "S", "D", "A")
    assert len(field.metadata["source"]) > 3


def test_there_are_numbers_at_all() -> None:
    assert len(NUMBERS) > 30
    assert len(FREE) == 7


DEFAULTS = {  # ADR-0003 clause 3, ADR-0014, ADR-0064
    "clock_mhz": 1000, "cube_rows": 4, "cube_cols": 4, "mesh_rows": 2, "mesh_cols": 4, "hbm_bytes_per_cycle": 256,
    "hbm_efficiency_percent": 100, "burst_bytes": 256, "hbm_first_byte_cycles": 40, "dma_descriptor_cycles": 5,
    "dma_run_cycles": 1, "gemm_macs_per_cycle": 4096, "tile_m": 32, "tile_k": 64, "tile_n": 32, "gemm_fill_cycles": 16,
    "gemm_f32_factor": 4, "panel_rows_transposed": 32, "panel_rows": 64, "stream_depth": 8, "math_lanes": 128,
    "exp_cycles_per_element": 2, "math_start_cycles": 32, "scratch_bytes": 1 << 20, "hbm_slice_bytes": 4 << 30,
    "link_bytes_per_cycle": 128, "hop_cycles": 9, "injection_cycles": 5, "ejection_cycles": 5, "ipcq_slots": 4,
    "ipcq_slot_bytes": 16 << 10, "credit_bytes": 16, "ucie_bytes_per_cycle": 128, "ucie_cycles": 8,
    "dma_align_bytes": 2,
}  # fmt: skip


def test_the_defaults_are_those_of_the_documents() -> None:
    assert {name: getattr(AhbmSpec(), name) for name in NUMBERS} == DEFAULTS
    assert dict(AhbmSpec().issue_costs) == ISSUED


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, 0.5, 2.0, "2", None, True, float("nan"), [], 2**40 * 2**40], ids=repr)
def test_what_is_no_size_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(LaunchError) as caught:
        AhbmSpec(**{name: value})
    assert f"spec field {name} = {value!r}" in str(caught.value)
    assert "whole number" in str(caught.value)


@pytest.mark.parametrize("name", NUMBERS)
def test_only_costs_and_latencies_may_be_zero(name: str) -> None:
    if name in FREE:
        assert getattr(AhbmSpec(**{name: 0}), name) == 0
    else:
        with pytest.raises(LaunchError, match=f"^spec field {name} = 0: wants a whole number"):
            AhbmSpec(**{name: 0})


def test_numpy_numbers_are_numbers() -> None:
    assert AhbmSpec(mesh_rows=np.int64(4)).pes_per_cube == 16


@pytest.mark.parametrize("costs", [-1, 0.5, "8", None, True, {"math": -1}, {"math": 0.5}, {"math": None}, [8]])
def test_issue_costs_that_are_none(costs: Any) -> None:
    with pytest.raises(LaunchError, match=r"^spec field issue_costs"):
        AhbmSpec(issue_costs=costs)


@pytest.mark.parametrize("unknown", [{"maths": 8}, {5: 8}, {"maths": 8, 5: 8}], ids=repr)
def test_a_kind_that_costs_nothing_of_its_own_is_refused_with_those_there_are(unknown: Any) -> None:
    with pytest.raises(LaunchError) as caught:
        AhbmSpec(issue_costs=unknown)
    assert all(repr(name) in str(caught.value) for name in unknown)
    assert "math, load, store, send, recv, release, dot, composite, wait" in str(caught.value)


def test_costs_given_are_laid_over_the_defaults() -> None:
    assert dict(AhbmSpec(issue_costs={"composite": 200}).issue_costs) == {**ISSUED, "composite": 200}
    assert set(AhbmSpec(issue_costs=0).issue_costs.values()) == {0}
    assert set(AhbmSpec(issue_costs=3).issue_costs.values()) == {3}


def test_a_spec_is_frozen_and_a_changed_one_is_another() -> None:
    spec = AhbmSpec()
    with pytest.raises(FrozenInstanceError):
        spec.mesh_rows = 4  # type: ignore[misc]
    with pytest.raises(TypeError):
        spec.issue_costs["math"] = 4  # type: ignore[index]
    assert replace(spec, mesh_rows=4) != spec
    assert replace(spec, mesh_rows=4).issue_costs == spec.issue_costs
    assert AhbmSpec() == spec


def test_costs_given_to_a_spec_are_not_shared_with_the_giver() -> None:
    costs = {"math": 1}
    spec = AhbmSpec(issue_costs=costs)
    costs["math"] = 99
    assert spec.issue_costs["math"] == 1


def test_a_spec_can_be_copied_and_sent_to_another_process() -> None:
    spec = AhbmSpec(mesh_rows=4, issue_costs={"math": 1})

    for other in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert other == spec
        with pytest.raises(TypeError):
            other.issue_costs["math"] = 4
