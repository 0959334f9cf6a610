"""No kernel of the project has a finding, under the model's times or any of a few seeds of jitter and late.

A run with a finding raises it. Every launch is run seven times: what the fault matrix catches is not caught here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec

SEEDS = {"model": (0,), "jitter": (2, 3, 4), "late": (0, 2, 3)}
every_schedule = pytest.mark.parametrize("schedule", SEEDS)
SMALL: dict[str, Any] = {"d": 32, "d_v": 32, "group": 2}
Launcher = Callable[..., driver.Launch]

DECODES: dict[str, Launcher] = {
    "decode": lambda chip, ask: driver.decode(chip, [ask(kv_len=43), ask(kv_len=3)], 8, tile=4, lse=True),
    "decode of few positions": lambda chip, ask: driver.decode(chip, [ask(kv_len=40, t_q=3)], 4, tile=4),
    "fixed splits": lambda chip, ask: driver.decode_fixed_split(chip, ask(kv_len=53), 4, tile=4, split=8),
    "prefill": lambda chip, ask: driver.prefill(chip, [ask(kv_len=24, t_q=24)], tile=8, q_block=8, layout="token"),
    "prefill in a window": lambda chip, ask: driver.prefill(
        chip, [ask(kv_len=24, t_q=9, window=7, softcap=30.0)], tile=8, q_block=4
    ),
    "mesh_mlo": lambda chip, ask: driver.baseline_decode(chip, ask(kv_len=33), 4, tile=16),
}
RINGS: dict[str, dict[str, Any]] = {
    "contiguous": {}, "striped": {}, "zigzag": {"interleave": True}, "zigzag said ahead": {"depth": Depth(1, 1)},
}  # fmt: skip
SLOTS = {"contiguous": 4, "striped": 4, "zigzag": 8, "zigzag said ahead": 6}


@pytest.fixture
def ask(case: Any) -> Callable[..., Any]:
    """`ask(kv_len=53)`: a small request with data."""
    return lambda **sizes: case(**SMALL, **sizes).problem


def assert_clean(launch: driver.Launch, chip: AhbmChip, schedule: str, seed: int) -> None:
    run = launch.run(chip, schedule=schedule, seed=seed)
    assert run.checked and not run.hazards


@every_schedule
@pytest.mark.adr("0060", "11.8")
@pytest.mark.parametrize("make", DECODES.values(), ids=DECODES)
def test_kernels_of_a_mesh(make: Launcher, ask: Any, schedule: str) -> None:
    for seed in SEEDS[schedule]:
        chip = AhbmChip()
        assert_clean(make(chip, ask), chip, schedule, seed)


@every_schedule
@pytest.mark.adr("0060", "11.8")
@pytest.mark.parametrize("name", RINGS)
def test_kernels_of_a_ring(name: str, ask: Any, schedule: str) -> None:
    for seed in SEEDS[schedule]:
        chip = AhbmChip(AhbmSpec(ipcq_slots=SLOTS[name]), ports=driver.ring_ports(4, 1))
        options = {"sharding": name.split()[0], **RINGS[name]}
        assert_clean(driver.ring(chip, ask(kv_len=16, t_q=16), 4, tile=4, q_block=8, **options), chip, schedule, seed)


@every_schedule
@pytest.mark.adr("0060", "11.8", "A")
def test_the_mesh_kernel_that_passes_keys_on(ask: Any, schedule: str) -> None:
    for seed in SEEDS[schedule]:
        chip = AhbmChip()
        assert_clean(driver.baseline_prefill(chip, ask(kv_len=16, t_q=16), 4, tile=4, q_block=8), chip, schedule, seed)


@every_schedule
@pytest.mark.adr("0310", "3.11")
def test_kernels_of_the_310p(core_case: Any, schedule: str) -> None:
    make_run, _ = core_case()
    for seed in SEEDS[schedule]:
        assert not make_run(schedule=schedule, seed=seed).hazards


@every_schedule
@pytest.mark.adr("0310", "3.11")
@pytest.mark.parametrize("lengths", [(5,), (2, 0, 5)], ids=str)
def test_the_delta_rule(delta: Any, lengths: tuple[int, ...], schedule: str) -> None:
    inputs = delta.inputs(lengths, dk=8, dv=8)
    for seed in SEEDS[schedule]:
        assert not delta.call(inputs, schedule=schedule, seed=seed).run.hazards
