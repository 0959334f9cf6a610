"""bfloat16 is the real one: rounded to nearest even on the way in, exact on the way out."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.memory.dtypes import bfloat16, dtype_named, float16, float32, to_float32, uint8

ALL_16_BITS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def round_to_nearest_even(value: np.float32) -> int:
    """The 16 bits of bfloat16 by integer arithmetic: add half a step, and one more if the last bit kept is odd."""
    bits = int(value.view(np.uint32))
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_rounds_to_nearest_even(value: float) -> None:
    with np.errstate(over="ignore"):
        stored = np.float32(value).astype(bfloat16)
    assert int(stored.view(np.uint16)) == round_to_nearest_even(np.float32(value))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (1 + 2**-8, 1.0),  # half way, down to even
        (1 + 3 * 2**-8, 1 + 2**-6),  # half way, up to even
        (1 + 2**-8 + 2**-20, 1 + 2**-7),  # more than half way
        (3.3961776e38, np.inf),  # more than half way past the largest
        (float("-inf"), float("-inf")),
    ],
)
def test_bfloat16_at_its_corners(given: float, stored: float) -> None:
    with np.errstate(over="ignore"):
        assert float(np.float32(given).astype(bfloat16)) == stored


def test_every_bfloat16_is_exact_in_float32() -> None:
    stored = ALL_16_BITS.view(bfloat16)
    seen = to_float32(stored)
    assert seen.dtype == np.float32
    assert (seen.view(np.uint32) == ALL_16_BITS.astype(np.uint32) << 16).all()
    assert np.array_equal(seen, stored.astype(np.float32), equal_nan=True)


def test_every_float16_is_exact_in_float32() -> None:
    stored = ALL_16_BITS.view(float16)
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        seen = to_float32(stored)
        assert np.array_equal(seen, stored.astype(np.float64).astype(np.float32), equal_nan=True)


def test_masks_become_0_and_1_and_float32_stays_what_it_is() -> None:
    assert to_float32(np.array([0, 1], np.uint8)).tolist() == [0.0, 1.0]
    values = np.array([1.5, np.nan], np.float32)
    assert to_float32(values) is values


@pytest.mark.parametrize("view", [np.s_[:, ::2], np.s_[::-1], np.s_[1:3, 1:2]])
def test_to_float32_reads_through_strides(view: object) -> None:
    stored = np.arange(24).reshape(4, 6).astype(bfloat16)
    assert to_float32(stored[view]).tolist() == stored.astype(np.float32)[view].tolist()
    assert to_float32(stored.T).tolist() == stored.astype(np.float32).T.tolist()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bfloat16", bfloat16), (ml_dtypes.bfloat16, bfloat16), (bfloat16, bfloat16), ("float16", float16),
        (np.float16, float16), ("float32", float32), (np.float32, float32), ("uint8", uint8),
        (np.dtype(">f4"), float32),  # the byte order of host data is the host's business
    ],
)  # fmt: skip
def test_a_storage_dtype_goes_by_every_usual_name(name: object, dtype: np.dtype) -> None:
    assert dtype_named(name) == dtype


@pytest.mark.parametrize(
    "name", ["float64", "int32", "bool", "bf17", "", "f4,f4", "f4,,", None, 4, 1.5, [], {}, (np.void, -1), np.ones(3)],
    ids=repr,
)  # fmt: skip
def test_another_dtype_is_refused_by_name_with_the_ones_there_are(name: object) -> None:
    with pytest.raises(LaunchError) as caught:
        dtype_named(name)
    assert str(caught.value) == f"dtype {name!r} is not one the device stores: bfloat16, float16, float32, uint8"
