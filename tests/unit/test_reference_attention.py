"""The attention oracle against plain loops, and the error model against correct and wrong kernels."""

from math import exp, fsum, inf, log, sqrt
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.reference.attention import (
    ErrorModel,
    attention,
    error_bound,
    error_model,
    naive_same_precision,
    random_attention,
)

Array = npt.NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)


def by_loops(q: Array, k: Array, v: Array, scale: float, position: int | None = None) -> tuple[Array, Array]:
    """Attention with a Python loop for every axis; row t sees keys up to `position + t`, or all of them."""
    out, lse = np.zeros((*q.shape[:2], v.shape[2])), np.full(q.shape[:2], -inf)
    for h in range(q.shape[0]):
        shared = h * k.shape[0] // q.shape[0]
        for t in range(q.shape[1]):
            row, keys = q[h, t], [s for s in range(k.shape[1]) if position is None or s <= position + t]
            logits = [scale * fsum(float(a) * float(b) for a, b in zip(row, k[shared, s], strict=True)) for s in keys]
            if not keys:
                continue
            weights = [exp(logit - max(logits)) for logit in logits]
            lse[h, t] = max(logits) + log(fsum(weights))
            for c in range(v.shape[2]):
                column = [w * float(v[shared, s, c]) for w, s in zip(weights, keys, strict=True)]
                out[h, t, c] = fsum(column) / fsum(weights)
    return out, lse


def tiled(q: Array, k: Array, v: Array, dtype: npt.DTypeLike, tile: int, n: int) -> Array:
    """A correct split kernel: running m, l, O in float32 for each of `n` round-robin shards, merged at the end."""
    f32, group, outs = np.float32, len(q) // len(k), []
    for h in range(len(q)):
        qh, kh, vh = (x.astype(f32) for x in (q[h], k[h // group], v[h // group]))
        shards = []
        for rank in range(n):
            ks, vs = kh[rank::n], vh[rank::n]
            m, total, acc = np.full((len(qh), 1), -np.inf, f32), f32(0), f32(0)
            for at in range(0, len(ks), tile):
                scores = f32(q.shape[2] ** -0.5) * (qh @ ks[at : at + tile].T)
                top = np.maximum(m, scores.max(axis=1, keepdims=True))
                p, corr = np.exp(scores - top), np.exp(m - top)
                total = total * corr + p.sum(axis=1, keepdims=True)
                acc, m = acc * corr + p.astype(dtype).astype(f32) @ vs[at : at + tile], top
            shards.append((m, total, acc))
        top = np.maximum.reduce([m for m, _, _ in shards])
        totals = sum(np.exp(m - top) * total for m, total, _ in shards)
        outs.append((sum(np.exp(m - top) * acc for m, _, acc in shards) / totals).astype(dtype))
    return np.stack(outs)


def worst(out: Array, oracle: Array) -> float:
    return float(np.abs(out.astype(np.float64) - oracle).max())


# --- the oracle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16, F32, np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize(("h_q", "h_kv"), [(1, 1), (4, 4), (4, 1), (6, 2), (6, 3)])
def test_the_oracle_is_attention_by_loops_for_every_group_size(dtype: np.dtype[Any], h_q: int, h_kv: int) -> None:
    q, k, v = random_attention(0, h_q, h_kv, 7, 3, dtype, t_q=2, d_v=5)

    out, lse = attention(q, k, v)

    expected, expected_lse = by_loops(q, k, v, 1 / sqrt(3))
    assert (out.shape, lse.shape) == ((h_q, 2, 5), (h_q, 2))
    assert {out.dtype, lse.dtype} == {np.dtype(np.float64)}
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("t_q", "s"), [(1, 6), (3, 7), (4, 4), (6, 2), (5, 1)])
def test_causal_is_bottom_right_the_last_query_sees_the_last_key(t_q: int, s: int) -> None:
    q, k, v = random_attention(1, 2, 1, s, 4, t_q=t_q)

    out, lse = attention(q, k, v, causal=True)

    expected, expected_lse = by_loops(q, k, v, 0.5, position=s - t_q)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-13)


@pytest.mark.parametrize("q_start", [-3, -1, 0, 2, 5, 9])
def test_q_start_says_at_which_position_the_first_query_is(q_start: int) -> None:
    q, k, v = random_attention(2, 2, 1, 6, 4, t_q=2)

    out, lse = attention(q, k, v, q_start=q_start, causal=True)

    expected, expected_lse = by_loops(q, k, v, 0.5, position=q_start)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_a_request_without_tokens_gives_zero_and_minus_infinity(causal: bool) -> None:
    q, k, v = random_attention(3, 4, 2, 0, 8, t_q=3)
    out, lse = attention(q, k, v, causal=causal)
    assert (out == 0).all()
    assert (lse == -inf).all()
    assert (naive_same_precision(q, k, v, BF16, causal=causal) == 0).all()


def test_only_rows_before_the_first_key_are_empty() -> None:
    q, k, v = random_attention(4, 2, 1, 3, 4, t_q=5)
    out, lse = attention(q, k, v, causal=True)
    assert (out == 0).all(axis=2).tolist() == [[True, True, False, False, False]] * 2
    assert np.isneginf(lse).tolist() == [[True, True, False, False, False]] * 2


def test_a_scale_of_its_own_replaces_the_default() -> None:
    q, k, v = random_attention(5, 2, 2, 9, 4)
    np.testing.assert_allclose(attention(q, k, v, scale=0.3)[0], by_loops(q, k, v, 0.3)[0], rtol=0, atol=1e-14)
    assert worst(attention(q, k, v, scale=0.0)[0], v.astype(np.float64).mean(axis=1, keepdims=True)) < 1e-15


@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(0, 20))
def test_shards_merged_by_their_lse_are_the_whole(seed: int, s: int, cut: int) -> None:
    q, k, v = random_attention(seed, 4, 2, s, 3, t_q=2)
    parts = [attention(q, k[:, :cut], v[:, :cut]), attention(q, k[:, cut:], v[:, cut:])]

    out, lse = attention(q, k, v)

    np.testing.assert_allclose(np.logaddexp(parts[0][1], parts[1][1]), lse, rtol=0, atol=1e-12)
    merged = sum(np.exp(part_lse - lse)[..., None] * part for part, part_lse in parts)
    np.testing.assert_allclose(merged, out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("logit", [-7e4, 7e4])
def test_huge_logits_neither_overflow_nor_lose_to_a_mask(logit: float) -> None:
    q, k, v = np.ones((1, 1, 1)), np.full((1, 3, 1), logit), np.array([[[1.0], [2.0], [30.0]]])
    out, lse = attention(q, k, v, q_start=1, causal=True)
    assert out.item() == 1.5
    assert lse.item() == pytest.approx(logit + log(2), abs=1e-9)


def test_a_masked_key_weighs_nothing_however_large_its_logit() -> None:
    q, k, v = random_attention(6, 2, 1, 6, 4)
    loud = k.copy()
    loud[:, 4:] = 1000 * np.sign(q[0])
    np.testing.assert_array_equal(attention(q, loud, v, q_start=3, causal=True)[0], attention(q, k[:, :4], v[:, :4])[0])


@pytest.mark.parametrize("wrong", ["h % h_kv", "h // h_kv"])
def test_two_wrong_head_mappings_are_seen_when_the_group_is_not_the_number_of_kv_heads(wrong: str) -> None:
    """B-55: with 64 and 8 heads the second one would be right."""
    q, k, v = random_attention(7, 8, 2, 32, 16)
    heads = [h % 2 if wrong == "h % h_kv" else h // 2 % 2 for h in range(8)]
    mapped = attention(q, k[heads], v[heads])[0]
    assert worst(mapped, attention(q, k, v)[0]) > 100 * error_bound(q, k, v, BF16) / 3


# --- wrong uses of the oracle -----------------------------------------------------------------------------------------


def test_heads_that_do_not_divide_are_refused() -> None:
    q, k, v = np.ones((6, 1, 4)), np.ones((4, 3, 4)), np.ones((4, 3, 4))
    with pytest.raises(ValueError, match=r"^6 query heads cannot share 4 KV heads evenly"):
        attention(q, k, v)
    with pytest.raises(ValueError, match=r"^6 query heads cannot share 0 KV heads evenly"):
        attention(q, k[:0], v[:0])


@pytest.mark.parametrize(
    ("k", "v"),
    [
        ((2, 4, 3), (2, 3, 4)),  # K transposed
        ((2, 3, 4), (2, 2, 4)),  # one token less in V
        ((2, 3, 4), (1, 3, 4)),
        ((2, 3, 5), (2, 3, 5)),  # wider keys than queries
    ],
)
def test_shapes_that_do_not_fit_are_refused_and_printed(k: tuple[int, ...], v: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^q \(2, 1, 4\), k .* v .* do not fit"):
        attention(np.ones((2, 1, 4)), np.ones(k), np.ones(v))


def test_a_missing_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^q, k, v are \[heads, tokens, width\], got q \(1, 4\)"):
        naive_same_precision(np.ones((1, 4)), np.ones((1, 3, 4)), np.ones((1, 3, 4)), F32)


@pytest.mark.parametrize("poison", [np.nan, inf])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_poisoned_rows_are_refused_where_they_are_and_sliced_off_are_not(dtype: np.dtype[Any], poison: float) -> None:
    q, k, v = random_attention(8, 2, 2, 6, 4, dtype)
    v[1, 4:] = poison
    with pytest.raises(ValueError, match=rf"^v\[1, 4, 0\] is {poison}: pass valid rows only, such as v\[:, :kv_len\]$"):
        attention(q, k, v)
    assert np.isfinite(attention(q, k[:, :4], v[:, :4])[0]).all()


def test_q_start_that_would_mask_nothing_is_refused() -> None:
    q, k, v = random_attention(9, 1, 1, 4, 4)
    with pytest.raises(ValueError, match=r"^q_start is 3 but causal is False"):
        attention(q, k, v, q_start=3)


# --- same precision ---------------------------------------------------------------------------------------------------


def two_keys(logit: np.float32, p_dtype: npt.DTypeLike, sum_dtype: npt.DTypeLike) -> Array:
    """Softmax over logits 0 and `logit` < 0, values 0 and 1, with P and the row sum's P in the dtypes given."""
    p = np.exp(logit)
    total = np.float32(1) + p.astype(sum_dtype).astype(np.float32)
    return np.asarray(p.astype(p_dtype).astype(np.float32) / total).astype(BF16)


def test_naive_rounds_p_before_the_product_and_sums_it_before_that_rounding() -> None:
    logits = -np.linspace(0.01, 3, 200, dtype=np.float32).astype(BF16).astype(np.float32)
    k, v = np.array([[[0.0], [1.0]]]), np.array([[[0.0], [1.0]]])

    naive = [naive_same_precision(np.full((1, 1, 1), x), k, v, BF16, 1.0).item() for x in logits]

    assert naive == [two_keys(x, BF16, F32) for x in logits]
    assert naive != [two_keys(x, BF16, BF16) for x in logits]
    assert naive != [two_keys(x, F32, F32) for x in logits]


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_naive_returns_the_storage_dtype_and_first_rounds_its_inputs_to_it(dtype: np.dtype[Any]) -> None:
    q, k, v = random_attention(10, 2, 1, 8, 4, np.float64)
    naive = naive_same_precision(q, k, v, dtype)
    assert naive.dtype == dtype
    rounded = naive_same_precision(q.astype(dtype), k.astype(dtype), v.astype(dtype), dtype)
    np.testing.assert_array_equal(naive, rounded)


@pytest.mark.parametrize(("dtype", "measured"), [(BF16, 2.4e-4), (F16, 3.6e-5), (F32, 3e-8)], ids=str)
def test_naive_is_off_by_the_rounding_of_its_dtype(dtype: np.dtype[Any], measured: float) -> None:
    """4096 tokens, logit sd 1: errors measured for another implementation."""
    q, k, v = random_attention(11, 4, 1, 4096, 64, dtype, sd=1)
    error = worst(naive_same_precision(q, k, v, dtype), attention(q, k, v)[0])
    assert measured / 4 < error < measured * 4


def test_naive_masks_as_the_oracle_does() -> None:
    q, k, v = random_attention(12, 2, 1, 9, 8, F32, t_q=4)
    for q_start in (None, 1, -2):
        naive = naive_same_precision(q, k, v, F32, q_start=q_start, causal=True)
        assert worst(naive, attention(q, k, v, q_start=q_start, causal=True)[0]) < 1e-6


# --- the error model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("s", [1, 7, 64, 333])
@pytest.mark.parametrize("sd", [1.0, 4.0])
def test_a_correct_tiled_and_split_kernel_stays_well_within_the_bound(dtype: np.dtype[Any], s: int, sd: float) -> None:
    q, k, v = random_attention(1300 + s, 4, 2, s, 32, dtype, t_q=2, sd=sd)
    oracle, bound = attention(q, k, v)[0], error_bound(q, k, v, dtype)
    for tile, n in [(16, 1), (64, 1), (s, 1), (32, min(3, s))]:
        assert worst(tiled(q, k, v, dtype, tile, n), oracle) < 0.75 * bound, (tile, n)


def summed_one_by_one(q: Array, k: Array, v: Array) -> Array:
    """A correct float32 kernel for one head whose array adds the products of a logit from left to right."""
    logits = np.float32(q.shape[2] ** -0.5) * np.cumsum(q[0, :, None] * k[0], axis=2)[..., -1]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    out: Array = (p @ v[0] / p.sum(axis=1, keepdims=True))[None]
    return out


def test_a_float32_kernel_may_add_up_its_logits_in_another_order() -> None:
    with_term, without = [], []
    for seed in range(100):
        q, k, v = random_attention(seed, 1, 1, 7, 128, F32, sd=8)
        oracle, naive = attention(q, k, v)[0], naive_same_precision(q, k, v, F32)
        error = worst(summed_one_by_one(q, k, v), oracle)
        with_term.append(error / error_bound(q, k, v, F32))
        without.append(error / (2 * worst(naive, oracle) + 2 * np.spacing(np.float32(abs(oracle).max()))))
    assert max(with_term) < 1 < max(without)


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_wrong_kernels_exceed_the_bound(dtype: np.dtype[Any]) -> None:
    q, k, v = random_attention(14, 8, 2, 50, 16, dtype)
    oracle, bound = attention(q, k, v)[0], error_bound(q, k, v, dtype)
    wrong = {
        "no scale": attention(q, k, v, scale=1)[0],
        "scaled twice": attention(q, k, v, scale=1 / 16)[0],
        "K for V": attention(q, k, k)[0],
        "heads swapped": attention(q, k[::-1], v[::-1])[0],
        "newest token dropped": attention(q, k[:, :-1], v[:, :-1])[0],
        "zeros": 0 * oracle,
    }
    assert {name: worst(out, oracle) > bound for name, out in wrong.items()} == dict.fromkeys(wrong, True)


def test_zeros_do_not_pass_on_a_long_flat_context() -> None:
    q, k, v = random_attention(15, 2, 1, 8192, 64, BF16, sd=1)
    oracle, naive = attention(q, k, v)[0], naive_same_precision(q, k, v, BF16)
    customary = 2 * worst(naive, oracle) + 2 * float(np.spacing(np.abs(v).max()))
    assert customary > np.abs(oracle).max() > 20 * error_bound(q, k, v, BF16)


def test_a_lucky_naive_result_still_leaves_two_roundings() -> None:
    q, k, v = random_attention(16, 1, 1, 1, 8, BF16)  # one token: out is v, exactly
    two_ulp = 2 * float(np.spacing(np.abs(v).max()))
    assert two_ulp <= error_bound(q, k, v, BF16) < 1.01 * two_ulp


def test_nothing_to_attend_to_leaves_no_room() -> None:
    q, k, v = random_attention(17, 2, 1, 0, 8, F32)
    assert 0 < error_bound(q, k, v, F32) < 1e-40


def test_the_bound_ignores_what_is_masked() -> None:
    q, k, v = random_attention(18, 2, 1, 6, 8, F32)
    loud = k.copy()
    loud[:, 4:] *= 1e4
    quiet = error_bound(q, k, v, F32, q_start=3, causal=True)
    assert error_bound(q, loud, v, F32, q_start=3, causal=True) == pytest.approx(quiet, rel=1e-6)


def test_the_model_prints_the_bound_and_where_it_comes_from() -> None:
    q, k, v = random_attention(19, 2, 1, 32, 16, BF16)
    model = error_model(q, k, v, BF16)
    assert str(model).startswith(f"|out - oracle| <= {model.bound:.3g} = 2 * ")
    assert "naive bfloat16 attention against float64" in model.how
    assert "2 ulp of max|out|" in model.how
    assert model == ErrorModel(error_bound(q, k, v, BF16), model.how)


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_random_inputs_have_the_shapes_and_dtype_asked_for() -> None:
    q, k, v = random_attention(20, 6, 2, 5, 8, F16, t_q=3, d_v=4)
    assert (q.shape, k.shape, v.shape) == ((6, 3, 8), (2, 5, 8), (2, 5, 4))
    assert {x.dtype for x in (q, k, v)} == {F16}
    assert random_attention(20, 1, 1, 1, 2)[0].dtype == BF16


def test_random_inputs_differ_in_every_head_and_token() -> None:
    for x in random_attention(21, 8, 4, 100, 16, t_q=4):
        rows = x.astype(np.float32).reshape(-1, x.shape[2])
        assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.parametrize("sd", [1.0, 2.0, 8.0])
def test_sd_is_the_spread_of_the_logits(sd: float) -> None:
    q, k, _ = random_attention(22, 8, 8, 64, 64, np.float64, t_q=16, sd=sd)
    logits = q @ k.transpose(0, 2, 1) / sqrt(64)
    assert logits.std() == pytest.approx(sd, rel=0.05)


def test_logits_too_flat_to_show_a_fault_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^logit sd 0\.02 is below 1"):
        random_attention(23, 1, 1, 4, 4, sd=0.02)


def test_a_seed_gives_the_same_inputs_and_a_generator_goes_on() -> None:
    assert (random_attention(24, 1, 1, 4, 4)[0] == random_attention(24, 1, 1, 4, 4)[0]).all()
    rng = np.random.default_rng(24)
    first, second = (random_attention(rng, 1, 1, 4, 4) for _ in range(2))
    assert (first[0] == random_attention(24, 1, 1, 4, 4)[0]).all()
    assert (first[0] != second[0]).any()
