"""How rows lie in memory: arranging can be undone, valid rows are exact, and the DMA pays for what it moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.simulator import AhbmChip, HazardError, KernelError, LaunchError, RowMajor, TileBlocked

SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 6))
LAYOUTS = st.one_of(st.just(RowMajor()), st.integers(1, 9).map(TileBlocked))


@given(shape=SHAPES, layout=LAYOUTS)
def test_what_is_arranged_can_be_restored(shape: tuple[int, int], layout: RowMajor) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    stored = layout.arrange(values)

    assert stored.shape == layout.stored(shape)
    assert (layout.restore(stored, shape) == values).all()


@given(shape=SHAPES, layout=LAYOUTS, data=st.data())
def test_an_element_lies_where_the_arrangement_puts_it(shape: tuple[int, int], layout: RowMajor, data: Any) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    index = tuple(data.draw(st.integers(0, size - 1)) for size in shape)

    assert layout.arrange(values).ravel()[layout.element(index, shape)] == values[index]


@given(shape=SHAPES, layout=LAYOUTS, data=st.data())
def test_valid_ranges_are_the_bytes_of_the_valid_rows(shape: tuple[int, int], layout: RowMajor, data: Any) -> None:
    rows = data.draw(st.integers(0, shape[0]))
    marks = np.zeros(shape, np.float16)
    marks[:rows] = 1

    stored = np.nan_to_num(layout.arrange(marks)).ravel()
    covered = np.zeros(stored.size * 2, bool)
    for lo, hi in layout.valid(shape, rows, 2):
        assert not covered[lo:hi].any()
        covered[lo:hi] = True

    assert (covered.reshape(-1, 2).all(1) == (stored == 1)).all()
    assert covered.sum() == 2 * rows * shape[1]


@pytest.mark.adr("0060", "B.2")
def test_k_in_tiles_is_one_run_a_panel_and_gives_the_same_scores() -> None:
    """[S, d] with trans_b and [tiles, d, T] without it are one run a panel; [d, S] pays for a run a row."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((8, 128)), rng.standard_normal((256, 128))

    def scores(block: Any, trans_b: bool) -> Any:
        def kernel(q: Any, k: Any, o: Any, *, tl: Any) -> None:
            a = tl.load(q, (8, 128))
            for j in range(4):
                s = tl.wait(tl.composite("gemm", a, block(tl, k, j), trans_b=trans_b))
                tl.wait(tl.store(o + j * 64, s, (256, 1)))

        return kernel

    rows = scores(lambda tl, k, j: tl.ref(k + j * 64 * 128, (64, 128)), True)
    tiles = scores(lambda tl, k, j: tl.ref(k + j * 64 * 128, (128, 64)), False)
    columns = scores(lambda tl, k, j: tl.ref(k + j * 64, (128, 64), (256, 1)), False)

    def run(kernel: Any, values: Any, axes: tuple[str, ...], **options: Any) -> Any:
        chip = AhbmChip()
        a = chip.tensor("Q", (8, 128), "bfloat16", q, "replicate", axes=("row", "d"))
        b = chip.tensor("K", values.shape, "bfloat16", values, "replicate", axes=axes, **options)
        return chip.run(kernel, a, b, chip.tensor("S", (8, 256), "float32", place=0))

    stored_rows = run(rows, k, ("token", "d"))
    stored_tiles = run(tiles, k, ("token", "d"), layout=TileBlocked(64))
    stored_columns = run(columns, np.ascontiguousarray(k.T), ("d", "token"))

    for other in (stored_tiles, stored_columns):
        np.testing.assert_allclose(other.array("S"), stored_rows.array("S"), rtol=1e-5, atol=1e-5)
        assert other.log.where(name="panel").bytes.sum() == 256 * 128 * 2
    assert set(stored_rows.log.where(name="panel").runs) == set(stored_tiles.log.where(name="panel").runs) == {1}
    assert set(stored_columns.log.where(name="panel").runs) == {64}
    assert stored_columns.log.where(name="panel").charged.sum() == 2 * 256 * 128 * 2  # half of each burst is wasted
    assert stored_tiles.cycles < stored_columns.cycles


def test_rows_behind_the_valid_length_are_tracked_in_a_tile_too() -> None:
    def kernel(k: Any, o: Any, width: int, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(k + 128 * 64, (128, width), (64, 1)), (64, 1)))

    def run(width: int) -> Any:
        chip = AhbmChip()
        k = chip.tensor("K", (128, 128), "float32", np.ones((128, 128)), "replicate", valid=100, layout=TileBlocked(64))
        return chip.run(kernel, k, chip.tensor("O", (128, 64), "float32", place=0), width)

    run(36)
    with pytest.raises(HazardError, match="past-logical-length"):
        run(37)


def test_the_array_of_a_tile_blocked_output_has_the_shape_that_was_declared() -> None:
    def kernel(o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o + 4 * 2, tl.full((2, 4), 7.0)))

    chip = AhbmChip()
    o = chip.tensor("O", (6, 2), "float32", place=0, layout=TileBlocked(4))

    got = chip.run(kernel, o, data=True).array("O")

    assert got.shape == (6, 2) and (got[4:] == 7).all() and np.isnan(got[:4]).all()


def test_the_wrong_orientation_of_a_tile_is_refused_by_its_axes() -> None:
    def kernel(q: Any, k: Any, *, tl: Any) -> None:
        tl.composite("gemm", tl.load(q, (8, 128)), tl.ref(k, (128, 128)), trans_b=True)

    chip = AhbmChip()
    q = chip.tensor("Q", (8, 128), place="replicate", axes=("row", "d"))
    k = chip.tensor("K", (256, 128), place="replicate", axes=("token", "d"), layout=TileBlocked(128))

    with pytest.raises(KernelError, match=r"contracts axis 'd' of a .* with axis 'token' of b"):
        chip.run(kernel, q, k)


@pytest.mark.parametrize(
    ("shape", "layout", "said"),
    [
        ((8,), TileBlocked(4), r"tensor 'K': tile-blocked wants two axes \(rows, columns\), the shape is \(8,\)"),
        ((8, 8), "tiles", r"tensor 'K': layout 'tiles' is none; give RowMajor\(\) or TileBlocked\(tile\)"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(shape: Any, layout: Any, said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        AhbmChip().tensor("K", shape, layout=layout)


@pytest.mark.parametrize("tile", [0, -1, 1.5, True])
def test_a_tile_has_a_whole_number_of_rows(tile: Any) -> None:
    with pytest.raises(ValueError, match="wants a whole number of rows > 0"):
        TileBlocked(tile)
