"""The phases in their order, and the log of one small chunk as a golden."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import LengthsOfTiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling_of_step
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.text import structure

ONCE = (
    "LoadChunkKey", "ComputeGCumsum", "ComputeKBeta", "PrepareDecayAndExp", "PrepareAttnQueryCache",
    "ComputeAttnMatrix", "ComputeKCumdecay",
)  # fmt: skip
FOR_A_TILE = (
    "LoadVBeta", "ComputeValueNew", "LoadStateTile", "ComputeVNew", "ComputeAttnInter", "AccumOutput",
    "WriteAttnTileToGm", "UpdateAndWriteState",
)  # fmt: skip


def one_chunk(**how: Any) -> Run:
    """Five tokens of one head, 16 by 16."""
    return host.launch(Ascend310pCore(), Shape((5,), 1, 1, 16, 16)).run(**how)


@pytest.mark.adr("0311", "5.1")
def test_one_chunk(oplog_snapshot: Any) -> None:
    oplog_snapshot.assert_matches(one_chunk())


@pytest.mark.adr("0311", "6.1")
@pytest.mark.parametrize("schedule", ["jitter", "late"])
def test_other_schedules_say_the_same(schedule: str) -> None:
    assert structure(one_chunk(schedule=schedule, seed=3).log) == structure(one_chunk().log)


def listening(called: list[str]) -> type[LengthsOfTiling]:
    """A kernel that notes which phase it enters."""

    def noted(name: str) -> Any:
        def phase(self: Any, *args: Any) -> Any:
            called.append(name)
            return getattr(super(kind, self), name)(*args)

        return phase

    kind = type("Listening", (LengthsOfTiling,), {name: noted(name) for name in (*ONCE, *FOR_A_TILE)})
    return kind


@pytest.mark.adr("0311", "5.1")
def test_phases_have_an_order() -> None:
    """Two chunks and two tiles of each in turn."""
    called: list[str] = []
    shape = Shape((9,), 1, 1, 4, 32)
    plan = tiling_of_step(shape, 16, cores=1, chunk=8)
    run = host.launch(Ascend310pCore(), shape, tiling=plan, variant=listening(called)).run()

    assert called == [*ONCE, *FOR_A_TILE, *FOR_A_TILE] * 2
    regions = [name for name, _ in groupby(row.region for row in run.log.where(name="DataCopy")) if name]
    assert regions == ["values", "output", "update"] * 2 + ["values", "state", "output"] * 2
