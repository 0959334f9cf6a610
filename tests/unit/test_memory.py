"""Memories start poisoned and keep what is written; the bytes of a strided block are exactly those of its elements."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.memory.dtypes import bfloat16, float16, float32, uint8
from pytest_kernbench.simulator.memory.space import Allocation, Space, covers, describe, row_major

Shape = tuple[int, ...]


def bytes_of(shape: Shape, strides: Shape, itemsize: int) -> set[int]:
    """Element by element."""
    firsts = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)]
    return {first + byte for first in firsts for byte in range(itemsize)}


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Shape, Shape, int]:
    itemsize = draw(st.sampled_from([1, 2, 4]))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    return shape, tuple(draw(st.integers(0, 12)) * itemsize for _ in shape), itemsize


@settings(max_examples=60)
@given(blocks())
def test_covers_is_the_bytes_of_the_elements(block: tuple[Shape, Shape, int]) -> None:
    ranges = covers(*block)
    assert {byte for lo, hi in ranges for byte in range(lo, hi)} == bytes_of(*block)


@settings(max_examples=60)
@given(blocks())
def test_covers_is_in_order_and_merged(block: tuple[Shape, Shape, int]) -> None:
    """So its length is the number of contiguous runs, and the sum of its sizes the number of bytes."""
    ranges = covers(*block)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


@pytest.mark.parametrize(
    ("shape", "strides", "runs"),
    [
        ((32, 128), (256, 2), ((0, 8192),)),
        ((3, 4), (16, 2), ((0, 8), (16, 24), (32, 40))),
        ((4, 3), (2, 8), ((0, 24),)),  # a transposed dense block
        ((4, 3), (2, 16), ((0, 8), (16, 24), (32, 40))),  # a transposed slice
        ((4, 8), (0, 2), ((0, 16),)),  # one row, four times
        ((4, 4), (4, 2), ((0, 20),)),  # windows that overlap
        ((2, 3), (6, 4), ((0, 2), (4, 12), (14, 16))),  # runs that touch
        ((1, 5), (999, 2), ((0, 10),)),  # the stride of an axis of one never counts
    ],
)
def test_covers_of_blocks_that_kernels_use(shape: Shape, strides: Shape, runs: tuple[tuple[int, int], ...]) -> None:
    assert covers(shape, strides, 2) == runs


@settings(max_examples=60)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.sampled_from(["u1", "f2", "f4"]))
def test_row_major_is_what_numpy_does(shape: Shape, dtype: str) -> None:
    assert row_major(shape, np.dtype(dtype).itemsize) == np.empty(shape, dtype).strides


@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
def test_poison_reads_as_nan_in_every_storage_dtype(dtype: np.dtype) -> None:
    space = Space(0, "scratch", 64)
    space.reserve(64)
    assert np.isnan(space.view(0, (8,), (dtype.itemsize,), dtype).astype(np.float32)).all()


def test_poison_reads_as_255_in_masks() -> None:
    space = Space(0, "scratch", 64)
    space.reserve(64)
    assert (space.view(0, (64,), (1,), uint8) == 255).all()


def test_a_view_is_the_memory_itself() -> None:
    space = Space(0, "scratch", 64)
    space.reserve(64)
    space.view(8, (2, 2), (8, 4), float32)[...] = [[1, 2], [3, 4]]
    assert space.view(8, (2, 2), (4, 8), float32).tolist() == [[1, 3], [2, 4]]
    assert space.bytes(64)[:8].tolist() == [255] * 8
    assert space.bytes(64)[24:].tolist() == [255] * 40


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4096), min_size=1, max_size=6))
def test_growing_keeps_what_was_written_and_poisons_the_rest(asked: list[int]) -> None:
    space, written = Space(0, "HBM", 4096), {}
    for number, hi in enumerate(asked):
        held = space.bytes(hi)
        assert hi <= len(held) <= 4096
        assert all(held[at] == value for at, value in written.items())
        assert (np.delete(held, list(written)) == 255).all()
        if hi:
            held[hi - 1] = written[hi - 1] = number


def test_bytes_are_described_by_their_offset_in_the_tensor_they_belong_to() -> None:
    tensor = Allocation(Space(0, "HBM of PE0", 4096), 1024, 2048, "K", 0)
    tensor.base = 1024
    assert describe((tensor, 1024, 1088)) == "K[0:64] of HBM of PE0"
    scratch = Allocation(Space(1, "scratch of PE0", 4096), 1024, 2048, "scratch", 1)
    assert describe((scratch, 1024, 1088)) == "scratch[1024:1088] of scratch of PE0"
