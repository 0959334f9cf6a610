"""load, store and ref: which bytes move, through which strides, how long it takes, and what the log says of it."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(3)
X = RNG.standard_normal((16, 128)).astype(np.float32)
BF16 = X.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.uint8], ids=["f32", "bf16", "f16", "u8"]
)
def test_a_load_brings_the_bytes_as_they_are(launch: Any, dtype: Any) -> None:
    x = (X * 10).clip(0).astype(dtype)

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x + 128 * 2, (4, 128))
        assert (h.dtype, h.shape, h.size) == (np.dtype(dtype), (4, 128), 512)
        tl.wait(tl.store(o, h))

    assert (launch(kernel, x=x, o=((4, 128), dtype), check=True)["o"] == x[2:6]).all()


def test_a_load_may_overwrite_a_buffer_and_the_next_use_waits_for_it(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        buffer = tl.empty((4, 128), "bfloat16")
        for row in range(0, 16, 4):
            loaded = tl.load(x + row * 128, (4, 128), out=buffer)
            assert loaded is buffer
            tl.wait(tl.store(o + row * 128, loaded))

    outcome = launch(kernel, x=BF16, o=((16, 128), ml_dtypes.bfloat16), check=True)
    assert (outcome["o"] == BF16).all()
    assert {row.operands[1].offset for row in outcome.rows("load")} == {0}


BLOCKS: dict[str, tuple[int, Any, Any, Callable[..., Any]]] = {
    "dense": (0, (4, 128), None, lambda x: x[:4]),
    "one row": (3 * 128, (128,), None, lambda x: x[3]),
    "a number for a shape": (3 * 128, 128, None, lambda x: x[3]),
    "part of a row": (3 * 128 + 5, (7,), None, lambda x: x[3, 5:12]),
    "columns": (8, (16, 8), (128, 1), lambda x: x[:, 8:16]),
    "one column": (9, (16, 1), (128, 1), lambda x: x[:, 9:10]),
    "every second row": (0, (8, 128), (256, 1), lambda x: x[::2]),
    "transposed": (0, (128, 16), (1, 128), lambda x: x.T),
    "one row again and again": (128, (4, 128), (0, 1), lambda x: np.tile(x[1], (4, 1))),
    "overlapping windows": (0, (5, 16), (8, 1), lambda x: np.stack([x.flat[8 * i : 8 * i + 16] for i in range(5)])),
    "three axes": (0, (2, 4, 32), (1024, 32, 1), lambda x: x.reshape(2, 8, 4, 32)[:, 0]),
    "the last element": (2047, (1, 1), None, lambda x: x[15:, 127:]),
    "a list of sizes": (0, [2, 128], [128, 1], lambda x: x[:2]),
}


@pytest.mark.parametrize(("offset", "shape", "strides", "oracle"), BLOCKS.values(), ids=BLOCKS)
def test_strides_count_elements(launch: Any, offset: int, shape: Any, strides: Any, oracle: Callable[..., Any]) -> None:
    expected = oracle(X)

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x + offset, shape, strides)))

    assert (launch(kernel, x=X, o=(expected.shape, "float32"), check=True)["o"] == expected).all()


def test_a_store_takes_strides_and_leaves_the_bytes_between(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o + 4, tl.load(x, (16, 8), (128, 1)), strides=(128, 1)))

    seen = launch(kernel, x=X, o=((16, 128), "float32"))["o"]
    assert (seen[:, 4:12] == X[:, :8]).all()
    assert np.isnan(np.delete(seen, range(4, 12), axis=1)).all()


def test_a_store_of_a_transposed_handle_stores_what_is_seen(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.trans(tl.load(x, (16, 128)))))

    assert (launch(kernel, x=X, o=((128, 16), "float32"), check=True)["o"] == X.T).all()


def test_a_store_rounds_to_the_tensors_dtype(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x, (16, 128))))

    assert (launch(kernel, x=X, o=((16, 128), "bfloat16"))["o"] == BF16).all()
    assert launch(kernel, x=X, o=((16, 128), "bfloat16")).row("store").bytes == 16 * 128 * 2


def test_pointers_add_up_and_count_elements(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        last = x + 128 + 128 + np.int64(3)
        assert (last.offset, last.dtype.itemsize, last.byte - x.byte) == (259, 2, 518)
        tl.wait(tl.store(o, tl.load(last + (-1), (1, 2))))

    assert (launch(kernel, x=BF16, o=((1, 2), "bfloat16"))["o"] == BF16[2, 2:4]).all()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1500), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60)), min_size=1, max_size=3))
def test_random_blocks_are_numpys(launch: Any, offset: int, axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(size for size, _ in axes), tuple(stride for _, stride in axes)

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x + offset, shape, strides)))

    seen = np.lib.stride_tricks.as_strided(X.reshape(-1)[offset:], shape, [4 * stride for stride in strides])
    outcome = launch(kernel, x=X, o=(shape, "float32"), check=True)
    assert (outcome["o"] == seen).all()
    touched = {offset + sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)}
    assert outcome.row("load").bytes == 4 * len(touched)
    assert outcome.row("load").runs == len(touched - {each + 1 for each in touched})


# Time: 5 a descriptor, 1 a contiguous run, whole bursts of 256 B over 256 B/cycle, 40 to the first byte


COSTS: dict[str, tuple[int, Any, Any, int, int, int]] = {  # offset, shape, strides of bf16; bytes, charged, runs
    "an aligned burst": (0, (1, 128), None, 256, 256, 1),
    "half a burst costs a burst": (0, (1, 64), None, 128, 256, 1),
    "across two bursts": (64, (1, 128), None, 256, 512, 1),
    "a dense tile": (0, (16, 128), None, 4096, 4096, 1),
    "columns are runs": (0, (16, 32), (128, 1), 1024, 16 * 256, 16),
    "columns across bursts": (64, (7, 64), (128, 1), 896, 7 * 256, 7),
    "elements are runs": (0, (16, 1), (128, 1), 32, 16 * 256, 16),
    "transposed dense is one run": (0, (128, 16), (1, 128), 4096, 4096, 1),
}


@pytest.mark.parametrize(("offset", "shape", "strides", "size", "charged", "runs"), COSTS.values(), ids=COSTS)
def test_a_load_is_charged_its_runs_and_bursts(
    launch: Any, offset: int, shape: Any, strides: Any, size: int, charged: int, runs: int
) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x + offset, shape, strides)

    row = launch(kernel, x=BF16).row("load")
    assert (row.bytes, row.charged, row.runs) == (size, charged, runs)
    assert row.free - row.start == 5 + runs + charged // 256
    assert row.end == row.free + 40


def test_a_store_costs_what_a_load_does(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.store(o, tl.load(x, (16, 32), (128, 1)), strides=(128, 1))

    load, store = (launch(kernel, x=BF16, o=((16, 128), "bfloat16")).row(name) for name in ("load", "store"))
    assert (store.bytes, store.charged, store.runs) == (load.bytes, load.charged, load.runs)
    assert store.free - store.start == load.free - load.start
    assert store.end - store.free == load.end - load.free == 40


def test_every_number_of_a_transfer_is_a_field_of_the_spec(launch: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (16, 32), (128, 1))

    spec = {
        "dma_descriptor_cycles": 7, "dma_run_cycles": 3, "burst_bytes": 64, "hbm_bytes_per_cycle": 100,
        "hbm_first_byte_cycles": 11, "issue_costs": {"load": 5},
    }  # fmt: skip
    row = launch(kernel, x=BF16, spec=spec).row("load")
    assert row.issue == 5
    assert row.charged == 16 * 64
    assert row.free - row.start == 7 + 16 * 3 + 11  # 1024 B at 100 B/cycle, rounded up once
    assert row.end == row.free + 11


@pytest.mark.parametrize("percent", [80, 33, 100])
def test_efficiency_scales_the_bandwidth_and_is_rounded_once(launch: Any, percent: int) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (16, 128))

    row = launch(kernel, x=X, spec={"hbm_efficiency_percent": percent}).row("load")
    assert row.free - row.start == 6 + -(-8192 * 100 // (256 * percent))


# Rows


def test_the_rows_of_a_load_and_a_store(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x + 256, (2, 128))
        with tl.region("out"):
            tl.wait(tl.store(o + 128, h))

    outcome = launch(kernel, x=BF16, o=((4, 128), "bfloat16"))
    load, wait, store, last = outcome.log
    assert [(each.tensor, each.offset, each.size, each.written) for each in load.operands] == [
        ("x", 512, 512, False), ("scratch", 0, 512, True),
    ]  # fmt: skip
    assert [(each.tensor, each.offset, each.size, each.written) for each in store.operands] == [
        ("scratch", 0, 512, False), ("o", 256, 512, True),
    ]  # fmt: skip
    assert (load.unit, store.unit, wait.unit) == ("DMA_R", "DMA_W", "CPU")
    assert (load.shape, store.shape) == ((2, 128), (2, 128))
    assert (wait.after, last.after) == (load.index, store.index)
    assert (load.peer, store.peer) == (-1, -1)
    assert [row.region for row in outcome.log] == ["", "out", "out", "out"]
    assert [row.site.line - kernel.__code__.co_firstlineno for row in outcome.log] == [1, 3, 3, 3]


def test_a_ref_moves_nothing_and_costs_nothing(launch: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.ref(x, (16, 128))
        tl.zeros((1, 1))

    (row,) = launch(kernel, x=BF16).log
    assert (row.name, row.issue) == ("zeros", 8)


def test_issue_costs_are_paid_before_each_call(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        z = tl.wait(tl.zeros((1, 128)))
        tl.load(x, (1, 128))
        tl.load(x, (1, 128))
        tl.store(o, z)

    rows = [row.issue for row in launch(kernel, x=BF16, o=((1, 128), "float32")).log if row.unit.startswith("DMA")]
    ready = 8 + 32 + 1
    assert rows == [ready + 16, ready + 32, ready + 48]


def test_two_reads_of_one_tensor_from_another_pe_say_whose_it_is(launch: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 1:
            tl.wait(tl.load(x, (1, 128)))

    row = launch(kernel, x=(BF16, 0), grid=2).row("load")
    assert (row.program, row.peer) == (1, 0)


def test_without_data_the_rows_are_the_same(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x + 8, (16, 8), (96, 1)), strides=(128, 1)))

    real, structure = (launch(kernel, x=BF16, o=((16, 128), "bfloat16"), data=data) for data in (True, False))
    assert real.log.cells == structure.log.cells
    assert real.log.operand_cells == structure.log.operand_cells


def test_a_block_that_runs_over_the_end_of_a_row_is_out_of_bounds(refusal: Any) -> None:
    """Only the last row of the tensor would be left; the others would read the row below."""

    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x + 112, (2, 32), (128, 1))

    message = refusal(kernel, "out-of-bounds", x=BF16)
    assert "columns 112..143 of x, whose rows have 128; give the last tile of a row its exact width" in message
