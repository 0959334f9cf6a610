"""The ring by itself: who sends what to whom, and everybody's sum in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pytest_kernbench import assertions as ka

from kernels.all_reduce import all_reduce_rows
from simulator.paper import RINGS, Layer

if TYPE_CHECKING:
    from pytest_kernbench.running import RunKernel
    from pytest_kernbench.simulator import AhbmSpec, Run
    from pytest_kernbench.snapshots import OpLogSnapshot


def reduced(run_kernel: RunKernel, spec: AhbmSpec, n: int, rows: int = 16, width: int = 32, **how: Any) -> Run:
    from pytest_kernbench.simulator import AhbmChip
    from pytest_kernbench.simulator.ahbm.topology import ring_ports

    chip = AhbmChip(spec, ports=ring_ports(RINGS[n]))
    data = np.arange(n * rows * width, dtype=np.float32).reshape(n, rows, width)
    x, y = chip.tensor("x", (rows, width), "float32", data), chip.tensor("y", (rows, width), "float32")
    return run_kernel(all_reduce_rows, x, y, rows, width, on=chip, grid=n, placement=RINGS[n], **how)


@pytest.mark.parametrize("n", RINGS)
def test_everybody_has_the_sum(run_kernel: RunKernel, ahbm_spec: AhbmSpec, n: int) -> None:
    run = reduced(run_kernel, ahbm_spec, n)

    assert (run.array("y") == run.array("x").sum(axis=0)).all()  # whole numbers: the order does not matter


@pytest.mark.adr("7001", "2.2")
@pytest.mark.parametrize("n", RINGS)
def test_messages_go_round_twice(run_kernel: RunKernel, ahbm_spec: AhbmSpec, n: int) -> None:
    layer = Layer(ranks=n, tokens=16, width=32)

    run = reduced(run_kernel, ahbm_spec, n)

    sends = run.log.where(name="send")
    assert len(sends.index) == n * layer.messages
    assert set(sends.bytes.tolist()) == {layer.block_bytes}
    ka.assert_neighbour_only_hops(run)
    ka.assert_queues_drained(run)


@pytest.mark.adr("7001", "2.2")
def test_golden(run_kernel: RunKernel, ahbm_spec: AhbmSpec, oplog_snapshot: OpLogSnapshot) -> None:
    oplog_snapshot.assert_matches(reduced(run_kernel, ahbm_spec, 4))
