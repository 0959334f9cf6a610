"""The 310P's kernels: right, clean, the same under every schedule; and what the log shows of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ascend310p.causal_conv1d import causal_conv1d
from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.kernels.ascend310p.rms_norm import rms_norm
from pytest_kernbench.kernels.ascend310p.softmax import scaled_row_softmax
from pytest_kernbench.kernels.ascend310p.vector_add import vector_add
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

HALF_ULP = 2.0**-11


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def run_of(
    kernel: Callable[..., None], inputs: dict[str, Any], shape: Any, dtype: str, *sizes: int, **given: Any
) -> Any:
    """A function that runs the kernel on a new core; its output is `y`, the last tensor."""

    def make_run(**how: Any) -> Run:
        core = Ascend310pCore()
        tensors = [core.tensor(name, array.shape, array.dtype, array) for name, array in inputs.items()]
        return core.run(kernel, *tensors, core.tensor("y", shape, dtype), *sizes, **given, **how)

    return make_run


def softmax_case(rows: int = 5, width: int = 128, outlier: float | None = None, **given: Any) -> tuple[Any, Any]:
    """`outlier` is the value of the last lane of the last repeat, or of the first in odd rows."""
    x = values(rows, width)
    if outlier is not None:
        x[::2, -1] = x[1::2, 63] = outlier
    scaled = x.astype(np.float64) * 0.5
    expected = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    return run_of(scaled_row_softmax, {"x": x}, x.shape, "float16", rows, width, scale=0.5, **given), expected


def rms_case(rows: int = 5, width: int = 208, size: float = 1.0, **given: Any) -> tuple[Any, Any]:
    x, weight = values(rows, width) * np.float16(size), values(width)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-6) * weight
    return run_of(rms_norm, {"x": x, "weight": weight}, x.shape, "float16", rows, width, **given), expected


def conv_case(tokens: int = 9, channels: int = 48, taps: int = 4, **given: Any) -> tuple[Any, Any]:
    x, weight = values(tokens, channels), values(taps, channels)
    padded = np.concatenate([np.zeros((taps - 1, channels)), x.astype(np.float64)])
    expected = sum(padded[tap : tap + tokens] * weight[tap].astype(np.float64) for tap in range(taps))
    inputs = {"x": x, "weight": weight}
    return run_of(causal_conv1d, inputs, x.shape, "float16", tokens, channels, taps=taps, **given), expected


def add_case(length: int = 2048, **given: Any) -> tuple[Any, Any]:
    x, z = values(length), values(length)[::-1].copy()
    return run_of(vector_add, {"x": x, "z": z}, length, "float16", length, tile=256, **given), x + z


def pipeline_case(buffer_num: int = 2, **given: Any) -> tuple[Any, Any]:
    x = values(4096).astype(np.float32)
    run = run_of(copy_compute_copy, {"x": x}, x.shape, "float32", x.size, tile=512, buffer_num=buffer_num, **given)
    return run, np.exp(x.astype(np.float64))


CASES = {
    "vector_add": add_case, "vector_add on 4 blocks": partial(add_case, grid=4), "softmax": softmax_case,
    "softmax on 3 blocks": partial(softmax_case, grid=3), "softmax of narrow rows": partial(softmax_case, width=64),
    "rms_norm": rms_case, "rms_norm on 2 blocks": partial(rms_case, grid=2), "conv1d": conv_case,
    "conv1d of one token": partial(conv_case, 1), "conv1d of one tap": partial(conv_case, taps=1),
    "conv1d of two taps": partial(conv_case, taps=2), "softmax of an outlier": partial(softmax_case, outlier=400.0),
    "softmax of wide rows": partial(softmax_case, width=320), "rms_norm of small rows": partial(rms_case, size=1e-3),
    "pipeline": pipeline_case, "pipeline with one buffer": partial(pipeline_case, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_right_and_nothing_is_found(case: Any) -> None:
    make_run, expected = case()
    run = make_run()

    bound = float(np.abs(expected).max()) * HALF_ULP * 1.01
    ka.assert_matches_reference(run, "y", expected, bound, how="float64, one rounding to half")
    assert not run.hazards
    ka.assert_no_redundant_transfers(run)
    ka.assert_no_dead_transfers(run)


@pytest.mark.adr("0310", "3.11")
@pytest.mark.parametrize("case", [softmax_case, rms_case, conv_case, pipeline_case], ids=lambda case: case.__name__)
def test_no_schedule_changes_a_bit(case: Any) -> None:
    make_run, _ = case()
    ka.assert_schedule_independent(make_run, ["y"], seeds=range(3))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_run_without_data_has_the_same_log(case: Any) -> None:
    make_run, _ = case()
    assert make_run(data=False, check=False).log.cells.tobytes() == make_run().log.cells.tobytes()


@pytest.mark.adr("0310", "4.3")
def test_two_buffers_overlap_copies_with_compute_and_one_does_not() -> None:
    one, two = pipeline_case(1)[0](), pipeline_case(2)[0]()

    ka.assert_overlap(two, "MTE2", "MTE3", at_least=0.5)
    with pytest.raises(AssertionError, match="overlap for"):
        ka.assert_overlap(one, "MTE2", "V", at_least=0.5)
    assert two.cycles < 0.7 * one.cycles


@pytest.mark.adr("0310", "4.3")
def test_the_vector_add_plays_with_two_buffers_unless_told_otherwise() -> None:
    one, two = add_case(buffer_num=1)[0](), add_case()[0]()

    ka.assert_overlap(two, "MTE2", "V", at_least=0.3)
    with pytest.raises(AssertionError, match="overlap for 0 cycles"):
        ka.assert_overlap(one, "MTE2", "V", at_least=0.1)
    assert two.cycles < 0.7 * one.cycles


def test_every_row_of_the_convolution_is_read_once() -> None:
    make_run, _ = conv_case(9, 48)
    run = make_run()

    ka.assert_bytes_read(run, "x", 9 * 48 * 2)
    ka.assert_scalar_gm_accesses(run, 0)
    ka.assert_dma_aligned(run)
