"""Bytes that nobody wrote are found by who wrote them, not by NaN: masks, padding and recycled scratch count too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.arange(64, dtype=np.float32).reshape(8, 8)
OUT = ((8, 8), "float32")


def findings(launch: Callable[..., Any], kernel: Callable[..., None], **given: Any) -> list[str]:
    given = {"x": X, "o": OUT, **given}
    return [hazard.kind for hazard in launch(kernel, **given).run.hazards]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "uint8"])
def test_scratch_that_nothing_wrote(launch: Any, dtype: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        e = tl.empty((8, 8), dtype)
        e + 1.0

    outcome = launch(kernel, x=X, o=OUT)
    assert outcome.kinds == ["uninitialised-read"]
    size = (
        64 * np.dtype(outcome.tensors["o"].dtype if dtype == "float32" else {"uint8": "u1"}.get(dtype, "f2")).itemsize
    )
    (hazard,) = outcome.run.hazards
    assert f"add on MATH of PE0, scratch[0:{size}] of scratch of PE0, at test_initialisation.py:" in hazard.message
    assert "tl.zeros, tl.load, out=" in hazard.message


READS: dict[str, Callable[..., Any]] = {
    "MATH": lambda tl, x, o, e: tl.exp(e),
    "DMA": lambda tl, x, o, e: tl.wait(tl.store(o, e)),
    "GEMM": lambda tl, x, o, e: tl.wait(tl.composite("gemm", e, tl.ref(x, (8, 8)), trans_b=True)),
    "GEMM, b": lambda tl, x, o, e: tl.dot(tl.zeros((8, 8)), e, trans_b=True),
    "GEMM, epilogue": lambda tl, x, o, e: tl.wait(
        tl.composite("gemm", tl.zeros((8, 8)), tl.ref(x, (8, 8)), trans_b=True, epilogue=(("add", e),))
    ),
    "IPCQ": lambda tl, x, o, e: tl.wait(tl.send("E", e)),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_unit_that_reads_it_is_told(launch: Any, read: Callable[..., Any]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            read(tl, x, o, tl.empty((8, 8)))
        elif read is READS["IPCQ"]:
            tl.recv("W", (8, 8))

    assert findings(launch, kernel, grid=2) == ["uninitialised-read"]


@pytest.mark.parametrize("write", ["out=", "assign", "composite", "zeros"])
def test_once_written_it_is_no_finding(launch: Any, write: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        e, h = tl.empty((8, 8)), tl.wait(tl.load(x, (8, 8)))
        said = {
            "out=": lambda: tl.exp(h, out=e),
            "assign": lambda: tl.assign(e, h),
            "composite": lambda: tl.wait(tl.composite("gemm", h, tl.ref(x, (8, 8)), trans_b=True, out=e)),
            "zeros": lambda: tl.zeros((8, 8)),
        }[write]()
        tl.wait(tl.store(o, said))

    assert findings(launch, kernel) == []


def test_recycled_scratch_is_uninitialised_again(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        with tl.scratch_scope():
            tl.zeros((8, 8))
        with tl.scratch_scope():
            e = tl.empty((8, 8))
            e + 1.0

    assert findings(launch, kernel) == ["uninitialised-read"]


def test_part_of_a_tensor_that_nobody_stored(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x, (2, 8))))
        tl.wait(tl.store(o + 32, tl.load(x, (2, 8))))
        tl.wait(tl.load(o, (6, 8)))

    outcome = launch(kernel, x=X, o=OUT)
    (hazard,) = outcome.run.hazards
    assert hazard.kind == "uninitialised-read"
    assert "load on DMA_R of PE0, o[64:128] of HBM of PE0" in hazard.message


def test_parts_that_were_all_stored_in_pieces_and_out_of_order(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (2, 8))
        tl.wait(*[tl.store(o + 16 * row, h) for row in (2, 0, 3, 1)])
        tl.wait(tl.load(o, (8, 8)))

    assert findings(launch, kernel) == []


def test_a_stream_of_bytes_that_nobody_stored(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.composite("gemm", tl.load(x, (8, 8)), tl.ref(o, (8, 8)), trans_b=True))

    assert findings(launch, kernel) == ["uninitialised-read"]


def test_strides_read_only_the_elements_they_touch(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x, (8, 4)), strides=(8, 1)))  # the left half of each row
        tl.wait(tl.load(o, (8, 4), (8, 1)))

    def one_more(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x, (8, 4)), strides=(8, 1)))
        tl.wait(tl.load(o, (8, 5), (8, 1)))

    assert findings(launch, kernel) == []
    assert findings(launch, one_more) == ["uninitialised-read"]


def test_one_line_that_reads_it_again_and_again_is_one_finding(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        e = tl.empty((8, 8))
        for _ in range(5):
            tl.exp(e)

    (hazard,) = launch(kernel, x=X, o=OUT).run.hazards
    assert hazard.count == 5
    assert "(found 5 times at these lines)" in str(hazard)


def test_without_data_the_same_is_found(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.exp(tl.empty((8, 8)))

    assert findings(launch, kernel, data=False) == ["uninitialised-read"]


def test_checks_that_are_off_find_nothing(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.exp(tl.empty((8, 8)))

    assert findings(launch, kernel, check=False) == []


# The host's side: what it put there, and how much of it counts


def test_what_one_run_stored_the_next_may_read(chip: Any) -> None:
    x, o = chip.tensor("x", (8, 8), "float32", X, 0), chip.tensor("o", (8, 8), "float32", place=0)

    def kernel(source: Any, target: Any, *, tl: Any) -> None:
        tl.wait(tl.store(target, tl.load(source, (8, 8)) + 1.0))

    chip.run(kernel, x, o)
    run = chip.run(kernel, o, x)
    assert (run.array(x) == X + 2).all()


def test_what_no_run_stored_it_may_not(chip: Any) -> None:
    x, o = chip.tensor("x", (8, 8), "float32", X, 0), chip.tensor("o", (8, 8), "float32", place=0)

    def half(source: Any, target: Any, *, tl: Any) -> None:
        tl.wait(tl.store(target, tl.load(source, (4, 8))))

    def whole(source: Any, *, tl: Any) -> None:
        tl.wait(tl.load(source, (8, 8)))

    chip.run(half, x, o)
    (hazard,) = chip.run(whole, o, check="collect").hazards
    assert hazard.kind == "uninitialised-read"
    assert "o[128:256]" in hazard.message


@pytest.fixture
def chip() -> Any:
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip

    return AhbmChip()


def tile(rows: int) -> Callable[..., None]:
    def kernel(k: Any, *, tl: Any) -> None:
        tl.wait(tl.store(k, tl.load(k, (rows, 8))))

    return kernel


@pytest.mark.parametrize("valid", [5, [5], np.array([5]), np.int64(5)], ids=["int", "list", "array", "numpy int"])
def test_rows_behind_the_logical_length_are_found(chip: Any, valid: Any) -> None:
    k = chip.tensor("K", (8, 8), "float32", X[None], valid=valid)
    assert chip.run(tile(5), k).hazards == ()
    (hazard,) = chip.run(tile(6), k, check="collect").hazards
    assert hazard.kind == "past-logical-length"
    assert hazard.message.startswith("store on DMA_W of PE0, K[0:192] of HBM of PE0")
    assert "load on DMA_R of PE0, K[160:192] of HBM of PE0" in hazard.message
    assert "give the last tile its exact width" in hazard.message


def test_they_are_poison_to_whoever_reads_them_all_the_same(chip: Any) -> None:
    k = chip.tensor("K", (8, 8), "float32", X[None], valid=5)
    seen = chip.run(tile(5), k).array(k)[0]
    assert (seen[:5] == X[:5]).all()
    assert np.isnan(seen[5:]).all()


def test_each_rank_has_a_length_of_its_own(chip: Any) -> None:
    k = chip.tensor("K", (8, 8), "float32", np.stack([X, X]), valid=[8, 3])
    (hazard,) = chip.run(tile(8), k, grid=2, check="collect").hazards
    assert hazard.ops[0].kernel == "PE1"


def test_a_row_appended_by_the_kernel_counts_from_then_on(chip: Any) -> None:
    def kernel(k: Any, *, tl: Any) -> None:
        tl.wait(tl.store(k + 5 * 8, tl.full((1, 8), 7.0)))
        tl.wait(tl.load(k, (6, 8)))

    k = chip.tensor("K", (8, 8), "float32", X[None], valid=5)
    assert chip.run(kernel, k).array(k)[0, 5].tolist() == [7.0] * 8


def test_a_length_of_zero_leaves_nothing_to_read(chip: Any) -> None:
    k = chip.tensor("K", (8, 8), "float32", X[None], valid=0)
    (hazard,) = chip.run(tile(1), k, check="collect").hazards
    assert hazard.kind == "past-logical-length"


def test_the_length_counts_without_data_too(chip: Any) -> None:
    k = chip.tensor("K", (8, 8), "float32", valid=5)
    assert chip.run(tile(5), k).hazards == ()
    assert [hazard.kind for hazard in chip.run(tile(6), k, check="collect").hazards] == ["past-logical-length"]
