"""The launches that are tuned: structure only, under the model's schedule, without checkers, for only time is asked.

That these kernels are clean and right is what tests/kernels shows, with every checker on. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.driver import Problem
from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Depth
from pytest_kernbench.kernels.ahbm.gqa_ring import PIECE_BY_PIECE
from pytest_kernbench.kernels.ahbm.positions import Placement
from pytest_kernbench.rooflines import roofline
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run

GROUP, D, ITEMSIZE = 8, 128, 2  # one KV head of Llama3-70B: 8 query heads of 128 elements, in bfloat16
N = 8


def decode(s: int, tile: int, depth: Depth = INTERLEAVED) -> Run:
    """`gqa_decode` of one token against `s` keys over 8 PEs."""
    chip = AhbmChip()
    launch = driver.decode(chip, [Problem(kv_len=s)], N, tile=tile, depth=depth)
    run: Run = launch.run(chip, check=False)
    return run


def prefill(s: int, tile: int, q_block: int, depth: Depth = INTERLEAVED) -> Run:
    """`gqa_prefill` of `s` tokens in one PE."""
    chip = AhbmChip()
    launch = driver.prefill(chip, [Problem(kv_len=s, t_q=s)], tile=tile, q_block=q_block, depth=depth)
    run: Run = launch.run(chip, check=False, announce=_silent)
    return run


def _silent(budget: object) -> None:
    """Hundreds of budgets are no news."""


def ring(
    s: int, tile: int, q_block: int, sharding: Placement, spec: AhbmSpec, depth: Depth = PIECE_BY_PIECE,
    *, interleave: bool = False, recv_ahead: int = 1,
) -> Run:  # fmt: skip
    """`gqa_ring` of `s` tokens over a ring of 8 PEs."""
    chip = AhbmChip(spec, ports=driver.ring_ports(N, 1))
    problem = Problem(kv_len=s, t_q=s)
    launch = driver.ring(
        chip, problem, N, tile=tile, q_block=q_block, sharding=sharding, depth=depth, interleave=interleave,
        recv_ahead=recv_ahead,
    )  # fmt: skip
    run: Run = launch.run(chip, check=False, announce=_silent)
    return run


def times(run: Run, point: Mapping[str, object]) -> dict[str, int | float]:
    """Cycles, those of the busiest unit of the busiest PE, how many times more the run takes, and scratch at most."""
    busiest = roofline(run)
    return {
        "cycles": run.cycles,
        "busiest_cycles": round(busiest, 1),
        "over_busiest": round(run.cycles / busiest, 4),
        "scratch_bytes": run.scratch_high_water,
    }


def kv_cycles(keys: int) -> int:
    """What HBM needs to read so many keys and values of one PE: the least that a decode takes."""
    return -(-2 * keys * D * ITEMSIZE // AhbmSpec().hbm_bytes_per_cycle)
