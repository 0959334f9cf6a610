"""Counts of causal prefill against enumeration of every pair of positions, and against published numbers."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_kernbench.kernels.reference.attention import attention
from pytest_kernbench.kernels.reference.causal import Prefill, Sweep, visible_pairs

Seen = npt.NDArray[np.bool_]


def seen(work: Prefill) -> Seen:
    """[t_q, kv_len]: which key each query sees, by its definition."""
    q, k = work.q_start + np.arange(work.t_q)[:, None], np.arange(work.kv_len)
    return (k <= q) & (q - k < (work.window or np.inf))


def grid(work: Prefill) -> list[list[Seen]]:
    """For each query block the pieces of `seen` that its tiles are."""
    rows = [*range(0, work.t_q, work.q_block), work.t_q]
    keys = [*range(0, work.kv_len, work.tile), work.kv_len]
    return [[seen(work)[qs:qe, ks:ke] for ks, ke in pairwise(keys)] for qs, qe in pairwise(rows)]


def enumerated(block: list[Seen], rows: int) -> Sweep:
    visited = [piece for piece in block if piece.any()]
    masked = [piece for piece in visited if not piece.all()]
    return Sweep(
        rows=rows,
        keys=sum(piece.shape[1] for piece in visited),
        tiles=len(visited),
        masked_keys=sum(piece.shape[1] for piece in masked),
        masked_tiles=len(masked),
    )


SHAPES = st.builds(
    Prefill,
    t_q=st.integers(1, 24),
    kv_len=st.integers(0, 40),
    q_start=st.integers(-12, 40),
    q_block=st.integers(1, 26),
    tile=st.integers(1, 42),
    window=st.none() | st.integers(1, 45),
)
SQUARE = Prefill(t_q=16, kv_len=16, q_start=0, q_block=4, tile=4)


# --- against enumeration ----------------------------------------------------------------------------------------------


@given(SHAPES)
@example(SQUARE)
@example(replace(SQUARE, window=4))
@example(replace(SQUARE, t_q=7, q_start=9, q_block=7, tile=5, window=3))
def test_every_blocks_sweep_is_what_enumeration_finds(work: Prefill) -> None:
    rows = [min(work.q_block, work.t_q - at) for at in range(0, work.t_q, work.q_block)]
    assert work.sweeps == tuple(enumerated(*each) for each in zip(grid(work), rows, strict=True))


@given(SHAPES)
def test_totals_are_sums_over_the_pairs(work: Prefill) -> None:
    visited = [piece for block in grid(work) for piece in block if piece.any()]
    assert work.tile_pairs == len(visited)
    assert work.gemm_count == 2 * len(visited)
    assert work.partial_pairs == sum(not piece.all() for piece in visited)
    assert work.kv_rows_read == sum(piece.shape[1] for piece in visited)
    assert work.scores == sum(piece.size for piece in visited)
    assert work.kv_bytes_read(8, 2, 5) == sum(piece.shape[1] * (8 + 5) * 2 for piece in visited)
    assert work.macs(3, 8, 5) == sum(3 * piece.size * (8 + 5) for piece in visited)


@given(SHAPES)
def test_visible_pairs_are_counted_one_by_one(work: Prefill) -> None:
    assert work.visible_pairs == seen(work).sum()
    assert work.visible_pairs == visible_pairs(work.t_q, work.kv_len, work.q_start, work.window)


@given(SHAPES)
def test_the_two_conditions_of_the_document_are_the_counts_without_a_window(work: Prefill) -> None:
    """11.4 and R41: visited iff ks < qe, full iff ke <= qs + 1."""
    work, pairs, partial = replace(work, window=None), 0, 0
    for qs in range(work.q_start, work.q_start + work.t_q, work.q_block):
        qe = min(qs + work.q_block, work.q_start + work.t_q)
        for ks in range(0, work.kv_len, work.tile):
            ke = min(ks + work.tile, work.kv_len)
            pairs += ks < qe
            partial += ks < qe and not ke <= qs + 1
    assert (work.tile_pairs, work.partial_pairs) == (pairs, partial)


@given(SHAPES)
def test_smaller_tiles_compute_no_more_and_single_ones_no_mask(work: Prefill) -> None:
    one = replace(work, q_block=1, tile=1)
    assert work.visible_pairs == one.scores <= work.scores
    assert one.partial_pairs == 0
    assert (work.scores == work.visible_pairs) == (work.partial_pairs == 0)


@given(SHAPES)
def test_what_is_visible_is_what_the_oracle_sees(work: Prefill) -> None:
    """With equal logits a row's lse is the logarithm of the number of keys it sees."""
    q, k = np.zeros((1, work.t_q, 1)), np.zeros((1, work.kv_len, 1))
    _, lse = attention(q, k, k, q_start=work.q_start, causal=True, window=work.window)
    assert round(float(np.exp(lse).sum())) == work.visible_pairs


# --- against published numbers ----------------------------------------------------------------------------------------


def prefill_2k(q_block: int, tile: int = 64) -> Prefill:
    return Prefill(t_q=2048, kv_len=2048, q_start=0, q_block=q_block, tile=tile)


@pytest.mark.parametrize("s", [1, 63, 64, 2048])
def test_a_square_needs_g_d_s_times_s_plus_one_macs(s: int) -> None:
    assert visible_pairs(s, s, 0) * 8 * (128 + 128) == 8 * 128 * s * (s + 1)
    assert Prefill(t_q=s, kv_len=s, q_start=0, q_block=1, tile=1).macs(8, 128) == 8 * 128 * s * (s + 1)


@pytest.mark.parametrize(("q_block", "tiled"), [(16, 4.429), (64, 4.429), (128, 4.563)])
def test_prefill_of_2k_has_the_published_macs(q_block: int, tiled: float) -> None:
    """One KV head of Llama3-70B: 8 query heads of width 128. Blocks up to the tile cost the same."""
    work = prefill_2k(q_block)
    assert work.visible_pairs * 8 * 256 / 1e9 == pytest.approx(4.297, abs=5e-4)
    assert work.macs(8, 128) / 1e9 == pytest.approx(tiled, abs=5e-4)


@pytest.mark.parametrize("q_block", [16, 48, 64, 128, 2048])
@pytest.mark.parametrize("tile", [32, 64, 256])
def test_tiles_that_divide_the_context_quantise_as_the_formula_says(q_block: int, tile: int) -> None:
    """2 * M * TILE * d * ceil(qe / TILE), summed over the query blocks."""
    work, quantised = prefill_2k(q_block, tile), 0
    for qs in range(0, 2048, q_block):
        qe = min(qs + q_block, 2048)
        quantised += 2 * 8 * (qe - qs) * tile * 128 * -(-qe // tile)
    assert work.macs(8, 128) == quantised


@pytest.mark.parametrize(("q_block", "microseconds"), [(16, 270), (64, 68), (128, 35)])
def test_larger_query_blocks_read_keys_less_often(q_block: int, microseconds: float) -> None:
    """At 256 bytes a nanosecond, K and V read once for each block."""
    assert prefill_2k(q_block).kv_bytes_read(128, 2) / 256e3 == pytest.approx(microseconds, abs=0.51)


def test_a_lower_triangle_of_square_tiles_masks_its_diagonal_only() -> None:
    work = prefill_2k(64)
    assert work.tile_pairs == 32 * 33 // 2
    assert work.gemm_count == 32 * 33
    assert work.partial_pairs == 32


def test_a_window_bounds_the_work_by_the_context_times_its_length() -> None:
    work = replace(prefill_2k(64), window=256)
    assert work.visible_pairs == 256 * 2048 - 256 * 255 // 2
    assert [sweep.tiles for sweep in work.sweeps] == [1, 2, 3, 4] + 28 * [5]
    assert [sweep.masked_tiles for sweep in work.sweeps] == 4 * [1] + 28 * [2]


def test_decode_of_one_token_needs_no_mask() -> None:
    work = Prefill(t_q=1, kv_len=1000, q_start=999, q_block=1, tile=64)
    assert work.sweeps == (Sweep(rows=1, keys=1000, tiles=16),)


def test_a_chunk_counts_from_its_offset() -> None:
    """The last 32 of 96 positions: two full tiles each, and the diagonal."""
    work = Prefill(t_q=32, kv_len=96, q_start=64, q_block=32, tile=32)
    assert work.sweeps == (Sweep(rows=32, keys=96, tiles=3, masked_keys=32, masked_tiles=1),)


# --- wrong uses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value", "least"), [("t_q", 0, 1), ("kv_len", -1, 0), ("window", 0, 1)])
def test_sizes_below_their_least_are_refused_with_both_numbers(name: str, value: int, least: int) -> None:
    wrong: dict[str, Any] = {"t_q": 4, "kv_len": 4, "q_start": 0, "window": None, name: value}
    said = rf"^{name} is {value}, the least is {least}: Prefill\(t_q="
    with pytest.raises(ValueError, match=said):
        Prefill(**wrong, q_block=2, tile=2)
    with pytest.raises(ValueError, match=said):
        visible_pairs(**wrong)


@pytest.mark.parametrize("name", ["q_block", "tile"])
def test_blocks_and_tiles_hold_something(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is 0, the least is 1: Prefill"):
        replace(SQUARE, **{name: 0})


def test_positions_may_lie_before_the_first_key_and_after_the_last() -> None:
    assert replace(SQUARE, q_start=-20).tile_pairs == 0
    assert replace(SQUARE, q_start=100).partial_pairs == 0
    assert replace(SQUARE, q_start=100, window=10).tile_pairs == 0


def test_a_shape_is_a_value() -> None:
    assert {SQUARE} == {replace(SQUARE)}
