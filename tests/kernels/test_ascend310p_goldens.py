"""Golden op logs of the 310P's kernels: what each pipe does, by which buffers, and the flags and barriers between."""

from collections.abc import Callable

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.causal_conv1d import causal_conv1d
from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.kernels.ascend310p.rms_norm import rms_norm
from pytest_kernbench.kernels.ascend310p.softmax import scaled_row_softmax
from pytest_kernbench.kernels.ascend310p.vector_add import vector_add
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.text import structure


def pipeline(**how: object) -> Run:
    core = Ascend310pCore()
    x = core.tensor("x", 4096, "float32", np.ones(4096))
    return core.run(copy_compute_copy, x, core.tensor("y", 4096, "float32"), 4096, tile=512, buffer_num=2, **how)


def run_of(kernel: Callable[..., None], shapes: dict[str, tuple[int, ...]], *sizes: int, **given: object) -> Run:
    core = Ascend310pCore()
    tensors = [core.tensor(name, shape, "float16", np.ones(shape)) for name, shape in shapes.items()]
    return core.run(kernel, *tensors, *sizes, **given)


@pytest.mark.adr("0310", "4.3", "6.3")
def test_pipeline(oplog_snapshot):
    oplog_snapshot.assert_matches(pipeline())


@pytest.mark.parametrize("schedule", ["jitter", "late"])
def test_other_schedules_say_the_same(schedule):
    assert structure(pipeline(schedule=schedule, seed=3).log) == structure(pipeline().log)


@pytest.mark.adr("0310", "4.3", "6.3")
def test_vector_add(oplog_snapshot):
    part = (1024,)
    oplog_snapshot.assert_matches(run_of(vector_add, {"x": part, "y": part, "z": part}, 1024, tile=256))


@pytest.mark.adr("0310", "4.3", "6.3")
def test_softmax(oplog_snapshot):
    rows = (4, 128)
    oplog_snapshot.assert_matches(run_of(scaled_row_softmax, {"x": rows, "y": rows}, *rows, scale=0.5))


@pytest.mark.adr("0310", "4.3", "6.3")
def test_rms_norm(oplog_snapshot):
    rows = (4, 128)
    oplog_snapshot.assert_matches(run_of(rms_norm, {"x": rows, "weight": (128,), "y": rows}, *rows))


@pytest.mark.adr("0310", "4.3", "6.3")
def test_causal_conv1d(oplog_snapshot):
    tokens = (6, 64)
    oplog_snapshot.assert_matches(run_of(causal_conv1d, {"x": tokens, "weight": (4, 64), "y": tokens}, *tokens))
