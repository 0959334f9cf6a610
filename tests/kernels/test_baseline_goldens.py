"""Golden op logs of the kernels that ADR-0060 replaces, small: blocking products, everyone to everyone (A)."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.simulator.ahbm.chip import AhbmChip

Launched = tuple[AhbmChip, driver.Launch]


def decode(keys: int, n: int, group: int) -> Launched:
    chip = AhbmChip()
    problem = driver.Problem(kv_len=keys, group=group, d=32, d_v=32)
    return chip, driver.baseline_decode(chip, problem, n, tile=16, mesh=(2, 4))


def prefill(tokens: int, n: int, group: int) -> Launched:
    chip = AhbmChip()
    problem = driver.Problem(kv_len=tokens, t_q=tokens, group=group, d=32, d_v=32)
    return chip, driver.baseline_prefill(chip, problem, n, tile=8, q_block=8, mesh=(2, 4), heads_together=group)


CASES = {
    "decode-tiles": decode(96, 3, 1),
    "decode-heads": decode(32, 1, 2),
    "prefill-ranks": prefill(24, 3, 2),
    "prefill-blocks": prefill(16, 1, 1),
}


@pytest.mark.adr("0060", "A", "9")
@pytest.mark.parametrize(("chip", "launch"), CASES.values(), ids=CASES)
def test_what_they_do_and_when(run_kernel: Any, oplog_snapshot: Any, chip: AhbmChip, launch: driver.Launch) -> None:
    oplog_snapshot.assert_matches(run_kernel(launch.kernel, *launch.args, on=chip, **launch.options))
