"""Window, softcap and sinks of the attention oracle against plain loops, and its error model against tiled kernels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, fsum, inf, log, tanh
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.reference.attention import (
    attention,
    error_bound,
    error_model,
    naive_same_precision,
    random_attention,
)

Array = npt.NDArray[Any]
Fault = Literal["", "no scale", "left edge unmasked", "capped after the mask", "sink twice"]
F32 = np.float32
DTYPES = [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(F32)]
NONE = F32(-inf)


def by_loops(
    q: Array, k: Array, v: Array, first: int, window: int | None, softcap: float | None, sinks: Array | None
) -> tuple[Array, Array]:
    """Causal attention with a Python loop for every axis; row t has position `first + t`."""
    out, lse = np.zeros((*q.shape[:2], v.shape[2])), np.full(q.shape[:2], -inf)
    for h, t in np.ndindex(*lse.shape):
        shared, last = h * len(k) // len(q), first + t
        keys = [s for s in range(k.shape[1]) if s <= last and (window is None or last - s < window)]
        logits = [fsum(float(a) * float(b) for a, b in zip(q[h, t], k[shared, s], strict=True)) for s in keys]
        logits = [x / q.shape[2] ** 0.5 for x in logits]
        logits = logits if softcap is None else [softcap * tanh(x / softcap) for x in logits]
        extra = [] if sinks is None or sinks[h] == -inf else [float(sinks[h])]
        if not logits + extra:
            continue
        top = max(logits + extra)
        weights = [exp(x - top) for x in logits]
        total = fsum([*weights, *(exp(x - top) for x in extra)])
        lse[h, t] = top + log(total)
        for c in range(v.shape[2]):
            out[h, t, c] = fsum(w * float(v[shared, s, c]) for w, s in zip(weights, keys, strict=True)) / total
    return out, lse


def worst(out: Array, oracle: Array) -> float:
    return float(np.abs(out.astype(np.float64) - oracle).max())


# --- the oracle -------------------------------------------------------------------------------------------------------


@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(0, 7),
    st.integers(-3, 9),
    st.none() | st.integers(1, 9),
    st.none() | st.floats(0.25, 50),
    st.none() | st.tuples(*[st.just(-inf) | st.floats(-9, 9)] * 4),
)
def test_any_variants_together_are_attention_by_loops(
    seed: int, t_q: int, s: int, first: int, window: int | None, softcap: float | None, sinks: tuple[float, ...] | None
) -> None:
    q, k, v = random_attention(seed, 4, 2, s, 3, t_q=t_q, d_v=2)

    out, lse = attention(q, k, v, q_start=first, causal=True, window=window, softcap=softcap, sinks=sinks)

    expected, expected_lse = by_loops(q, k, v, first, window, softcap, None if sinks is None else np.array(sinks))
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_holds_that_many_keys_the_querys_own_among_them(window: int) -> None:
    q, k, v = random_attention(0, 2, 1, 9, 4)
    out, lse = attention(q, k, v, causal=True, window=window)
    alone, alone_lse = attention(q, k[:, -window:], v[:, -window:])
    np.testing.assert_array_equal(out, alone)
    np.testing.assert_array_equal(lse, alone_lse)


def test_a_window_of_one_gives_each_row_its_own_value() -> None:
    q, k, v = random_attention(1, 2, 2, 5, 4, t_q=5)
    np.testing.assert_array_equal(attention(q, k, v, causal=True, window=1)[0], v.astype(np.float64))


def test_a_window_as_long_as_the_context_masks_nothing() -> None:
    q, k, v = random_attention(2, 2, 1, 7, 4, t_q=3)
    np.testing.assert_array_equal(attention(q, k, v, causal=True, window=7)[0], attention(q, k, v, causal=True)[0])


def test_keys_that_a_window_has_left_behind_weigh_nothing_and_empty_rows_give_zero() -> None:
    q, k, v = random_attention(3, 2, 1, 4, 4, t_q=3)
    out, lse = attention(q, k, v, q_start=4, causal=True, window=2)  # positions 4, 5, 6 see key 3, none, none
    np.testing.assert_allclose(out[:, 0], np.repeat(v[:, 3].astype(np.float64), 2, axis=0), rtol=1e-15)
    assert (out[:, 1:] == 0).all()
    assert np.isneginf(lse).tolist() == [[False, True, True]] * 2


def test_a_softcap_bounds_the_logits_and_a_wide_one_leaves_them() -> None:
    q, k, v = np.array([[[1000.0]]]), np.array([[[1.0], [-1.0]]]), np.array([[[1.0], [0.0]]])
    assert attention(q, k, v, softcap=2.0)[0].item() == pytest.approx(1 / (1 + exp(-4)), abs=1e-15)
    q, k, v = random_attention(4, 2, 1, 7, 4)
    assert worst(attention(q, k, v, softcap=1e6)[0], attention(q, k, v)[0]) < 1e-9


def test_the_cap_follows_the_scale() -> None:
    q, k, v = random_attention(5, 2, 1, 7, 4)
    scaled, by_hand = (
        attention(q, k, v, scale=0.1, softcap=1.5),
        attention(0.1 * q.astype(float), k, v, scale=1, softcap=1.5),
    )
    np.testing.assert_allclose(scaled[0], by_hand[0], rtol=0, atol=1e-14)


def test_a_masked_key_stays_masked_under_a_softcap() -> None:
    q, k, v = random_attention(6, 2, 1, 6, 4)
    masked, cut = attention(q, k, v, q_start=3, causal=True, softcap=1.0), attention(q, k[:, :4], v[:, :4], softcap=1.0)
    np.testing.assert_array_equal(masked[0], cut[0])


def test_a_sink_is_one_more_key_without_a_value() -> None:
    """The extra key has score `sink` in every row: a width of its own that only it fills."""
    q, k, v = (x.astype(np.float64) for x in random_attention(7, 3, 3, 5, 4, t_q=2))
    sinks = np.array([-1.0, 0.5, 4.0])
    wide_q = np.concatenate([q, np.full((3, 2, 1), 1.0)], axis=2)
    wide_k = np.concatenate([np.pad(k, ((0, 0), (0, 0), (0, 1))), np.zeros((3, 1, 5))], axis=1)
    wide_k[:, -1, -1] = 2 * sinks  # times the scale of 1/2

    out, lse = attention(q, k, v, sinks=sinks)

    as_key = attention(wide_q, wide_k, np.pad(v, ((0, 0), (0, 1), (0, 0))), scale=0.5)
    np.testing.assert_allclose(out, as_key[0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(lse, as_key[1], rtol=0, atol=1e-14)


def test_each_query_head_has_its_own_sink_and_minus_infinity_is_none() -> None:
    q, k, v = random_attention(8, 4, 2, 5, 4)
    plain, plain_lse = attention(q, k, v)
    out, lse = attention(q, k, v, sinks=[-inf, 1.0, -inf, 2.0])
    np.testing.assert_array_equal(out[::2], plain[::2])
    np.testing.assert_array_equal(lse[::2], plain_lse[::2])
    np.testing.assert_allclose(lse[1::2, 0], np.logaddexp(plain_lse[1::2, 0], [1.0, 2.0]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(out[1::2], plain[1::2] * np.exp(plain_lse - lse)[1::2, :, None], rtol=0, atol=1e-14)


def test_a_sink_is_neither_scaled_nor_capped() -> None:
    q, k, v = np.zeros((1, 1, 4)), np.zeros((1, 1, 4)), np.ones((1, 1, 1))
    out, lse = attention(q, k, v, scale=0.1, softcap=0.5, sinks=[log(3)])
    assert out.item() == pytest.approx(1 / 4, abs=1e-15)
    assert lse.item() == pytest.approx(log(4), abs=1e-15)


@pytest.mark.parametrize("sink", [-70000.0, 0.0, 70000.0])
def test_a_row_without_keys_gives_zero_and_its_sink_as_lse(sink: float) -> None:
    q, k, v = random_attention(9, 2, 1, 0, 4, t_q=3)
    out, lse = attention(q, k, v, sinks=[sink, -inf])
    assert (out == 0).all()
    assert (lse[0] == sink).all()
    assert np.isneginf(lse[1]).all()
    assert (naive_same_precision(q, k, v, F32, sinks=[sink, -inf]) == 0).all()


@given(st.integers(0, 2**32), st.integers(0, 12))
def test_shards_merge_to_the_whole_when_one_of_them_has_the_sink(seed: int, cut: int) -> None:
    q, k, v = random_attention(seed, 4, 2, 12, 3)
    sinks = np.array([0.0, 1.0, -inf, 5.0])
    parts = [attention(q, k[:, :cut], v[:, :cut], sinks=sinks), attention(q, k[:, cut:], v[:, cut:])]

    out, lse = attention(q, k, v, sinks=sinks)

    np.testing.assert_allclose(np.logaddexp(parts[0][1], parts[1][1]), lse, rtol=0, atol=1e-12)
    merged = sum(np.exp(part_lse - lse)[..., None] * part for part, part_lse in parts)
    np.testing.assert_allclose(merged, out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("sinks", [None, [1.0, -inf]])
def test_keys_and_values_may_differ_in_width(
    dtype: np.dtype[Any], softcap: float | None, sinks: list[float] | None
) -> None:
    q, k, v = random_attention(10, 2, 1, 6, 8, dtype, t_q=2, d_v=3)
    variants: dict[str, Any] = {"causal": True, "window": 3, "softcap": softcap, "sinks": sinks}
    out, lse = attention(q, k, v, **variants)
    assert (out.shape, lse.shape) == ((2, 2, 3), (2, 2))
    naive = naive_same_precision(q, k, v, dtype, **variants)
    assert (naive.shape, naive.dtype) == ((2, 2, 3), dtype)
    assert worst(naive, out) < error_bound(q, k, v, dtype, **variants)


def test_unused_variants_leave_every_bit_as_it_was() -> None:
    q, k, v = random_attention(11, 4, 2, 33, 8, t_q=3)
    off: dict[str, Any] = {"window": None, "softcap": None, "sinks": np.full(4, -inf)}
    for plain, spelled in zip(attention(q, k, v, causal=True), attention(q, k, v, causal=True, **off), strict=True):
        np.testing.assert_array_equal(plain, spelled)
    assert error_model(q, k, v, F32) == error_model(q, k, v, F32, **off)


# --- wrong uses -------------------------------------------------------------------------------------------------------

EVERY: list[Callable[..., object]] = [
    attention,
    lambda q, k, v, **variants: naive_same_precision(q, k, v, F32, **variants),
    lambda q, k, v, **variants: error_model(q, k, v, F32, **variants),
    lambda q, k, v, **variants: error_bound(q, k, v, F32, **variants),
]


@pytest.mark.parametrize("of", EVERY, ids=["attention", "naive_same_precision", "error_model", "error_bound"])
@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ({"window": 3}, r"^window is 3 but causal is False, so it masks nothing: pass causal=True or drop it$"),
        ({"window": 0, "causal": True}, r"^window is 0 keys, at least 1 is needed: a query's own position counts as"),
        ({"window": -2, "causal": True}, r"^window is -2 keys, at least 1 is needed"),
        ({"softcap": 0.0}, r"^softcap is 0\.0, it has to be above 0 and finite: pass None for uncapped scores$"),
        ({"softcap": -30.0}, r"^softcap is -30\.0, it has to be above 0"),
        ({"softcap": inf}, r"^softcap is inf, it has to be above 0 and finite"),
        ({"softcap": np.nan}, r"^softcap is nan, it has to be above 0 and finite"),
        ({"sinks": [1.0]}, r"^sinks have shape \(1,\) for 4 query heads: pass one logit a head, \(4,\)$"),
        ({"sinks": 1.0}, r"^sinks have shape \(\) for 4 query heads"),
        ({"sinks": np.zeros((4, 1))}, r"^sinks have shape \(4, 1\) for 4 query heads"),
        ({"sinks": [0, 0, np.nan, 0]}, r"^sinks\[2\] is nan: pass a finite logit, or -inf for a head without a sink$"),
        ({"sinks": [0, inf, 0, 0]}, r"^sinks\[1\] is inf: pass a finite logit"),
    ],
)
def test_variants_that_mean_nothing_are_refused(of: Callable[..., object], variants: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        of(*random_attention(12, 4, 2, 6, 4), **variants)


@pytest.mark.parametrize("of", EVERY, ids=["attention", "naive_same_precision", "error_model", "error_bound"])
def test_a_misspelt_variant_is_not_ignored(of: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="soft_cap"):
        of(*random_attention(12, 4, 2, 6, 4), soft_cap=30.0)


# --- the error model --------------------------------------------------------------------------------------------------


def tanh_of_exp(x: Array) -> Array:
    """What a vector unit without tanh says: it loses 2**-24 where x is small."""
    return F32(1) - F32(2) / (np.exp(F32(2) * np.minimum(x, F32(40))) + F32(1))


@dataclass(frozen=True, kw_only=True)
class Tiled:
    """A causal kernel with its state m, l, O in float32, tile by tile, in `n` round-robin shards merged at the end.

    P is rounded to the storage dtype. Tiles that no row sees are skipped. The sink comes in at the end, or is the
    first shard's state from the start. With a `fault` planted it is wrong.
    """

    window: int | None = None
    softcap: float | None = None
    sinks: Array | None = None
    tile: int = 64
    n: int = 1
    starts_with_sink: bool = False
    tanh: Callable[[Array], Array] = np.tanh
    fault: Fault = ""

    @property
    def variants(self) -> dict[str, Any]:
        return {"causal": True, "window": self.window, "softcap": self.softcap, "sinks": self.sinks}

    def used(self, q: Array, k: Array, v: Array) -> float:
        """How much of the error bound the kernel uses; above 1 it fails."""
        bound = error_bound(q, k, v, q.dtype, **self.variants)
        return worst(self.run(q, k, v), attention(q, k, v, **self.variants)[0]) / bound

    def run(self, q: Array, k: Array, v: Array) -> Array:
        group = len(q) // len(k)
        return np.stack([self._head(h, q[h], k[h // group], v[h // group]) for h in range(len(q))])

    def _head(self, h: int, q: Array, k: Array, v: Array) -> Array:
        sink = NONE if self.sinks is None else F32(self.sinks[h])
        empty = self._state(q, v, NONE)
        states = [
            self._sweep(rank, sink if self.starts_with_sink and not rank else NONE, q, k, v) for rank in range(self.n)
        ]
        late = [] if self.starts_with_sink else [self._state(q, v, sink)]
        again = [self._state(q, v, sink)] if self.fault == "sink twice" else []
        m, l, o = zip(*states, *late, *again, empty, strict=True)
        top = _finite(np.maximum.reduce(m))
        total = sum(np.exp(each - top) * part for each, part in zip(m, l, strict=True))
        out = sum(np.exp(each - top) * part for each, part in zip(m, o, strict=True))
        return np.asarray(out / np.where(total > 0, total, F32(1))).astype(q.dtype)

    def _state(self, q: Array, v: Array, sink: np.float32) -> tuple[Array, Array, Array]:
        m = np.full((len(q), 1), sink, F32)
        return m, np.isfinite(m).astype(F32), np.zeros((len(q), v.shape[1]), F32)

    def _sweep(self, rank: int, sink: np.float32, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        m, l, o = self._state(q, v, sink)
        positions, keys = len(k) - len(q) + np.arange(len(q))[:, None], np.arange(len(k))[rank :: self.n]
        for at in range(0, len(keys), self.tile):
            ks = keys[at : at + self.tile]
            visible = self._visible(positions - ks)
            if not visible.any():
                continue
            if self.fault == "left edge unmasked":
                visible = positions >= ks
            scores = self._scores(q, k[ks], visible)
            top = np.maximum(m, scores.max(axis=1, keepdims=True))
            p, corr = np.exp(scores - _finite(top)), np.exp(m - _finite(top))
            l = l * corr + p.sum(axis=1, keepdims=True)
            o, m = o * corr + p.astype(q.dtype).astype(F32) @ v[ks].astype(F32), top
        return m, l, o

    def _visible(self, behind: Array) -> Array:
        return (behind >= 0) & (behind < (self.window or inf))

    def _scores(self, q: Array, k: Array, visible: Array) -> Array:
        scale = F32(1) if self.fault == "no scale" else F32(q.shape[1] ** -0.5)
        scores = scale * (q.astype(F32) @ k.astype(F32).T)
        if self.fault == "capped after the mask":
            scores = np.where(visible, scores, NONE)
        if self.softcap is not None:
            scores = F32(self.softcap) * self.tanh(scores / F32(self.softcap))
        return scores if self.fault == "capped after the mask" else np.where(visible, scores, NONE)


def _finite(m: Array) -> Array:
    return np.where(np.isfinite(m), m, F32(0))


SINKS = np.array([-inf, -2.0, 3.0, 12.0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sd", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("softcap", [None, 5.0, 50.0])
@pytest.mark.parametrize("sinks", [None, SINKS], ids=["no sinks", "sinks"])
def test_correct_tiled_kernels_stay_well_within_the_bound(
    dtype: np.dtype[Any], sd: float, window: int | None, softcap: float | None, sinks: Array | None
) -> None:
    kernel = Tiled(window=window, softcap=softcap, sinks=sinks)
    ways = [kernel, replace(kernel, n=3, tile=16), replace(kernel, starts_with_sink=True, tanh=tanh_of_exp)]
    for seed, (s, t_q) in enumerate([(64, 1), (130, 3), (1, 2), (203, 9)]):
        inputs = random_attention(1000 * seed + int(sd), 4, 2, s, 32, dtype, t_q=t_q, sd=sd)
        assert [way for way in ways if way.used(*inputs) > 0.6] == [], seed


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sd", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("fault", ["no scale", "left edge unmasked", "capped after the mask", "sink twice"])
def test_faulty_kernels_exceed_the_bound(dtype: np.dtype[Any], sd: float, fault: Fault) -> None:
    """A cap of 2: from 5 on a masked key that is let in by the cap weighs less than bfloat16's rounding."""
    for seed in range(4):
        q, k, v = random_attention(2000 + seed, 4, 2, 150, 32, dtype, t_q=3, sd=sd)
        whole: dict[str, Any] = {"causal": True, "window": 100, "softcap": 2.0}
        near = attention(q, k, v, **whole)[1].mean(axis=1)  # sinks that take half of each row's weight
        wrong = Tiled(window=100, softcap=2.0, sinks=None if fault == "capped after the mask" else near, fault=fault)
        assert replace(wrong, fault="").used(q, k, v) < 0.6
        assert wrong.used(q, k, v) > 1, seed


def test_a_float32_kernel_may_make_tanh_of_exp() -> None:
    """The cap counts as a logit in the bound: without it, a wide cap leaves too little room."""
    with_term, without = [], []
    for seed in range(60):
        inputs = random_attention(seed, 1, 1, 2, 32, F32, sd=1)
        kernel = Tiled(softcap=50.0, tanh=tanh_of_exp)
        used = kernel.used(*inputs)
        bounds = error_bound(*inputs, F32, softcap=50.0), error_bound(*inputs, F32)
        with_term.append(used)
        without.append(used * bounds[0] / bounds[1])
    assert max(with_term) < 0.75
    assert max(without) > 2


@pytest.mark.parametrize("sink", [-1000.0, 1000.0])
def test_a_sink_counts_as_a_logit_in_the_bound_and_minus_infinity_does_not(sink: float) -> None:
    q, k, v = random_attention(13, 2, 1, 4, 8, F32)
    plain = error_bound(q, k, v, F32)
    assert error_bound(q, k, v, F32, sinks=[-inf, -inf]) == plain
    assert "times 1 + max|logit| = 1e+03" in error_model(q, k, v, F32, sinks=[sink, 0.0]).how


def test_the_bound_ignores_what_the_window_has_left_behind() -> None:
    q, k, v = random_attention(14, 2, 1, 6, 8, F32)
    loud = k.copy()
    loud[:, :3] *= 1e4
    quiet = error_bound(q, k, v, F32, causal=True, window=3)
    assert error_bound(q, loud, v, F32, causal=True, window=3) == pytest.approx(quiet, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_naive_differs_from_the_oracle_by_rounding_alone(dtype: np.dtype[Any]) -> None:
    q, k, v = random_attention(15, 4, 2, 70, 16, dtype, t_q=5)
    for sinks in (None, SINKS):
        variants: dict[str, Any] = {"causal": True, "window": 20, "softcap": 4.0, "sinks": sinks}
        oracle = attention(q, k, v, **variants)[0]
        naive = naive_same_precision(q, k, v, dtype, **variants)
        assert worst(naive, oracle) < 4 * float(np.finfo(F32).eps if dtype == F32 else ml_dtypes.finfo(dtype).eps)
