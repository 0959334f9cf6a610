"""Golden op logs of the 310P's pipeline with two buffers: copy in, exp, copy out, the flags of its queues between."""

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.text import structure


def pipeline(**how: object) -> Run:
    core = Ascend310pCore()
    x = core.tensor("x", 4096, "float32", np.ones(4096))
    return core.run(copy_compute_copy, x, core.tensor("y", 4096, "float32"), 4096, tile=512, buffer_num=2, **how)


@pytest.mark.adr("0310", "4.3", "6.3")
def test_pipeline(oplog_snapshot):
    oplog_snapshot.assert_matches(pipeline())


@pytest.mark.parametrize("schedule", ["jitter", "late"])
def test_other_schedules_say_the_same(schedule):
    assert structure(pipeline(schedule=schedule, seed=3).log) == structure(pipeline().log)
