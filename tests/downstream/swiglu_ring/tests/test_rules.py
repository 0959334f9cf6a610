"""The rule of our own is kept by every run, found with its line, and allowed where a test says why."""

from __future__ import annotations

import pytest
from pytest_kernbench.running import RunKernel
from pytest_kernbench.simulator import AhbmChip
from pytest_kernbench.simulator.ahbm.topology import ring_ports

from kernels.all_reduce import all_reduce_rows
from simulator.paper import RINGS


def test_a_small_message_is_found_at_its_line(run_kernel: RunKernel) -> None:
    chip = AhbmChip(ports=ring_ports(RINGS[2]))
    x, y = (chip.tensor(name, (2, 8), "float32") for name in "xy")

    run = run_kernel(all_reduce_rows, x, y, 2, 8, on=chip, grid=2, placement=RINGS[2], data=True, check="collect")

    found = [hazard for hazard in run.hazards if hazard.kind == "small-message"]
    assert len(found) == 2 * 2  # two messages of two ranks
    assert "all_reduce.py" in str(found[0])
    assert "sends 32 bytes, less than a burst of 256" in str(found[0])


@pytest.mark.allow_hazard("small-message", reason="this size is only for a quick look")
def test_it_is_allowed_with_a_reason(run_kernel: RunKernel) -> None:
    chip = AhbmChip(ports=ring_ports(RINGS[2]))
    x, y = (chip.tensor(name, (2, 8), "float32") for name in "xy")

    run_kernel(all_reduce_rows, x, y, 2, 8, on=chip, grid=2, placement=RINGS[2])
