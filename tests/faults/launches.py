"""Launches of every kernel of the project, small, in which no checker finds anything under any schedule and seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run

from .elsewhere import module_of

Launcher = Callable[[str, int], Run]
"""A run on a new device under a schedule and a seed; one with a finding raises it."""

Make = Callable[[AhbmChip], driver.Launch]
SMALL: dict[str, Any] = {"d": 32, "d_v": 32, "group": 2}


def ask(**sizes: Any) -> driver.Problem:
    """A small request with data."""
    return module_of("kernels/conftest.py").make_case(**SMALL, **sizes).problem


ON_A_MESH: dict[str, Make] = {
    "decode": lambda chip: driver.decode(chip, [ask(kv_len=43), ask(kv_len=3)], 8, tile=4, lse=True),
    "decode of few positions": lambda chip: driver.decode(chip, [ask(kv_len=40, t_q=3)], 4, tile=4),
    "fixed splits": lambda chip: driver.decode_fixed_split(chip, ask(kv_len=53), 4, tile=4, split=8),
    "prefill": lambda chip: driver.prefill(chip, [ask(kv_len=24, t_q=24)], tile=8, q_block=8, layout="token"),
    "prefill in a window": lambda chip: driver.prefill(
        chip, [ask(kv_len=24, t_q=9, window=7, softcap=30.0)], tile=8, q_block=4
    ),
    "mesh_mlo": lambda chip: driver.baseline_decode(chip, ask(kv_len=33), 4, tile=16),
    "mesh_kv": lambda chip: driver.baseline_prefill(chip, ask(kv_len=16, t_q=16), 4, tile=4, q_block=8),
}
ON_A_RING: dict[str, tuple[int, dict[str, Any]]] = {  # slots and options
    "ring, contiguous": (4, {"sharding": "contiguous"}),
    "ring, striped": (4, {"sharding": "striped"}),
    "ring, zigzag": (8, {"interleave": True}),
    "ring, zigzag said ahead": (6, {"depth": Depth(1, 1)}),
}
OF_THE_DELTA_RULE = {"delta rule": (5,), "delta rule of three sequences": (2, 0, 5)}


def on_a_mesh(make: Make, schedule: str, seed: int) -> Run:
    chip = AhbmChip()
    return make(chip).run(chip, schedule=schedule, seed=seed)


def on_a_ring(slots: int, options: dict[str, Any], schedule: str, seed: int) -> Run:
    chip = AhbmChip(AhbmSpec(ipcq_slots=slots), ports=driver.ring_ports(4, 1))
    launch = driver.ring(chip, ask(kv_len=16, t_q=16), 4, tile=4, q_block=8, **options)
    return launch.run(chip, schedule=schedule, seed=seed)


def on_the_core(case: Callable[[], tuple[Any, Any]], schedule: str, seed: int) -> Run:
    make_run, _ = case()
    return make_run(schedule=schedule, seed=seed)


def of_the_delta_rule(lengths: tuple[int, ...], schedule: str, seed: int) -> Run:
    delta = module_of("kernels/chunk_gated_delta_rule/conftest.py").Delta()
    return delta.call(delta.inputs(lengths, dk=8, dv=8), schedule=schedule, seed=seed).run


LAUNCHES: dict[str, Launcher] = {
    **{name: partial(on_a_mesh, make) for name, make in ON_A_MESH.items()},
    **{name: partial(on_a_ring, *how) for name, how in ON_A_RING.items()},
    **{name: partial(on_the_core, case) for name, case in module_of("kernels/test_ascend310p.py").CASES.items()},
    **{name: partial(of_the_delta_rule, lengths) for name, lengths in OF_THE_DELTA_RULE.items()},
}
