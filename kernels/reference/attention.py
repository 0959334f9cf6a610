"""What a GQA attention kernel should return, and how far from it a correct kernel may be. PYTEST_DONT_REWRITE

Written for clarity, head by head, and on purpose not the way a kernel does it: no tiles, no running maximum, no group
folded into rows. Inputs are taken as they are, already rounded to their storage dtype (ADR-0060 11.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]


class Variants(TypedDict, total=False):
    """What a model may ask of its attention besides the scale: keywords, each of them off unless given.

    `causal`: query row t has position q_start + t and sees keys up to that position. `q_start` defaults to S - T_q
    (bottom-right). `window`: it sees that many keys at most, its own position included: 0 <= q - k < window.
    `softcap`: a score x becomes softcap * tanh(x / softcap), after the scale and before the mask.
    `sinks` [H_q]: one logit more for each query head, neither scaled nor capped nor masked, which takes its share of
    the softmax and has no value; minus infinity is no sink.
    """

    q_start: int | None
    causal: bool
    window: int | None
    softcap: float | None
    sinks: npt.ArrayLike | None


def attention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, **variants: Unpack[Variants]
) -> tuple[F64, F64]:
    """Softmax attention in float64: `out` [H_q, T_q, d_v] and `lse` [H_q, T_q], the natural logarithm, sink included.

    q [H_q, T_q, d], k [H_kv, S, d], v [H_kv, S, d_v] of any real dtype, bfloat16 included; query head h reads KV head
    h // (H_q // H_kv). `scale` defaults to 1/sqrt(d); for the rest see `Variants`. A row that sees no key gives out 0
    and for lse its sink, or -inf without one (R19). Raises ValueError for shapes that do not fit, a value that is not
    finite, `q_start` or `window` without `causal`, a window below 1, and a softcap that is not positive and finite.
    """
    rules = _rules(q, k, v, scale, **variants)
    heads = zip(_heads(q, k, v, np.dtype(np.float64)), rules.sinks, strict=True)
    outs, lses = zip(*(_one_head(*head, sink, rules) for head, sink in heads), strict=True)
    return np.stack(outs), np.stack(lses)


def _one_head(q: F64, k: F64, v: F64, sink: np.float64, rules: _Rules) -> tuple[F64, F64]:
    p, total, top = _softmax(rules.logits(q, k), sink)
    log_total = np.log(total, where=total > 0, out=np.full_like(total, -np.inf))
    return (p @ v) / np.where(total > 0, total, 1.0), (top + log_total)[:, 0]


def naive_same_precision(
    q: Array, k: Array, v: Array, dtype: npt.DTypeLike, scale: float | None = None, **variants: Unpack[Variants]
) -> Array:
    """Attention in one piece, rounded where a correct kernel rounds: `out` [H_q, T_q, d_v] of `dtype` (ADR-0060 11.1).

    Inputs in `dtype`, scores, softmax, sinks and accumulation in float32, un-normalised P rounded to `dtype` before
    P.V, the row sum taken in float32 from P before that rounding, the result cast to `dtype`. Shapes and errors as
    `attention`.
    """
    rules = _rules(q, k, v, scale, **variants)
    heads = zip(_heads(q, k, v, np.dtype(dtype)), rules.sinks, strict=True)
    return np.stack([_one_naive_head(*head, np.float32(sink), rules) for head, sink in heads])


def _one_naive_head(q: Array, k: Array, v: Array, sink: np.float32, rules: _Rules) -> Array:
    f32 = np.float32
    p, total, _ = _softmax(rules.logits(q.astype(f32), k.astype(f32)), sink)
    rounded: Array = p.astype(q.dtype)
    out: Array = rounded.astype(f32) @ v.astype(f32) / np.where(total > 0, total, f32(1))
    return out.astype(q.dtype)


def _softmax(scores: Array, sink: np.floating[Any]) -> tuple[Array, Array, Array]:
    """Un-normalised P [T_q, S], its row sum with the sink's share, and the maximum that both are relative to."""
    top = _finite_max(scores, sink)
    p: Array = np.exp(scores - top)
    return p, p.sum(axis=1, keepdims=True) + np.exp(sink - top), top


def _finite_max(scores: Array, sink: np.floating[Any]) -> Array:
    """Each row's maximum, 0 where there is neither key nor sink: keeps -inf - -inf out of the exponent (R18)."""
    top = np.maximum(scores.max(axis=1, keepdims=True, initial=-np.inf), sink)
    finite: Array = np.where(np.isfinite(top), top, scores.dtype.type(0))
    return finite


# --- how far a kernel may be off --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorModel:
    """The largest |out - oracle| of a correct kernel, and in words how that number was made."""

    bound: float
    how: str

    def __str__(self) -> str:
        return f"|out - oracle| <= {self.bound:.3g} = {self.how}"


def error_bound(
    q: Array, k: Array, v: Array, dtype: npt.DTypeLike, *, scale: float | None = None, **variants: Unpack[Variants]
) -> float:
    """`error_model(...).bound`, for one number to compare with."""
    return error_model(q, k, v, dtype, scale=scale, **variants).bound


def error_model(
    q: Array, k: Array, v: Array, dtype: npt.DTypeLike, *, scale: float | None = None, **variants: Unpack[Variants]
) -> ErrorModel:
    """How far from `attention` a kernel storing `dtype` may be: twice what that precision costs at all (ADR-0060 11.1).

    `2 * max|naive - oracle|`, as FlashAttention's tests have it, plus two terms for data on which the naive version is
    lucky: 2 ulp of max|out| in the storage dtype, and 2 ulp of max|V| in float32 for each unit of 1 + max|logit|, as a
    float32 logit is off in proportion to its size and a kernel may sum it in another order.

    Why not the customary `2 * max|naive - oracle| + 2 ulp(max|V|)` of the storage dtype: measured, it fails at both
    ends. In bfloat16, S = 8192, logit sd 1, it exceeds max|out|, so that a kernel which returns zeros passes, while a
    correct tiled one uses 0.4 % of it (and 20 % of this one). In float32 at logit sd 4 correct tiled kernels exceed it.

    Variants: |logit| is that before the cap, whose slope of at most 1 passes the error on and does not shrink it where
    the logit is small; it also counts the cap itself, as a kernel that makes tanh of exp loses softcap * 2**-24 in
    every logit (measured at softcap 50, two keys, float32: 6.7 times the bound without this term, 0.3 with it), and the
    sinks. A factor of 3 for softcap, as FlashAttention has it, is not needed: its naive scores are rounded to the
    storage dtype before the cap, ours are not.
    """
    oracle, _ = attention(q, k, v, scale=scale, **variants)
    naive = naive_same_precision(q, k, v, dtype, scale, **variants).astype(np.float64)
    naive_error, largest_out = _largest(naive - oracle), _largest(oracle)
    logit = _largest_logit(q, k, _rules(q, k, v, scale, **variants))
    value = _largest(v.astype(np.float64))
    stored, inner = 2 * _ulp(largest_out, dtype), 2 * _ulp(value, np.float32) * (1 + logit)
    how = (
        f"2 * {naive_error:.3g} (naive {np.dtype(dtype)} attention against float64) "
        f"+ {stored:.3g} (2 ulp of max|out| = {largest_out:.3g} in {np.dtype(dtype)}) "
        f"+ {inner:.3g} (2 ulp of max|V| = {value:.3g} in float32, times 1 + max|logit| = {1 + logit:.3g})"
    )
    return ErrorModel(2 * naive_error + stored + inner, how)


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _largest_logit(q: Array, k: Array, rules: _Rules) -> float:
    """Of the visible scores before the cap, of the cap, and of the sinks that are there."""
    heads = _heads(q, k, k, np.dtype(np.float64))
    scores = [_largest(np.where(rules.visible, rules.scale * (qh @ kh.T), 0.0)) for qh, kh, _ in heads]
    return max(*scores, rules.softcap or 0.0, _largest(rules.sinks[np.isfinite(rules.sinks)]))


def _ulp(magnitude: float, dtype: npt.DTypeLike) -> float:
    """The distance from `magnitude` to the next larger number of `dtype`."""
    return float(np.spacing(np.asarray(magnitude).astype(dtype)))


# --- inputs -----------------------------------------------------------------------------------------------------------


def random_attention(
    seed: int | np.random.Generator,
    h_q: int,
    h_kv: int,
    s: int,
    d: int,
    dtype: npt.DTypeLike = ml_dtypes.bfloat16,
    *,
    t_q: int = 1,
    d_v: int | None = None,
    sd: float = 2.0,
) -> tuple[Array, Array, Array]:
    """Random q [h_q, t_q, d], k [h_kv, s, d], v [h_kv, s, d_v] of `dtype`, all different in every head and token (R44).

    `sd` is the standard deviation of the logits under the default scale 1/sqrt(d). Raises ValueError for sd < 1: on
    flatter logits even a missing scale moves the output by less than its rounding.
    """
    if sd < 1:
        raise ValueError(f"logit sd {sd} is below 1: wrong kernels look right on flat logits, take sd >= 1 (R44)")
    rng = np.random.default_rng(seed)
    shapes = (h_q, t_q, d), (h_kv, s, d), (h_kv, s, d if d_v is None else d_v)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    return (sd * q).astype(dtype), k.astype(dtype), v.astype(dtype)


def _heads(q: Array, k: Array, v: Array, dtype: np.dtype[Any]) -> Iterator[tuple[Array, Array, Array]]:
    """For each query head its rows and those of the KV head that it shares with its group."""
    group = len(q) // len(k)
    q, k, v = q.astype(dtype), k.astype(dtype), v.astype(dtype)
    for head in range(len(q)):
        yield q[head], k[head // group], v[head // group]


# --- variants ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules:
    """Checked variants with their defaults filled in: `visible` [T_q, S], `sinks` [H_q], -inf where there is none."""

    scale: float
    visible: npt.NDArray[np.bool_]
    softcap: float | None
    sinks: F64

    def logits(self, q: Array, k: Array) -> Array:
        """[T_q, S] of one head in the dtype of `q`; masked last, as the cap would make -softcap of -inf."""
        of = q.dtype.type
        scores = of(self.scale) * (q @ k.T)
        if self.softcap is not None:
            scores = of(self.softcap) * np.tanh(scores / of(self.softcap))
        masked: Array = np.where(self.visible, scores, of(-np.inf))
        return masked


def _rules(
    q: Array,
    k: Array,
    v: Array,
    scale: float | None,
    *,
    q_start: int | None = None,
    causal: bool = False,
    window: int | None = None,
    softcap: float | None = None,
    sinks: npt.ArrayLike | None = None,
) -> _Rules:
    _check_shapes(q.shape, k.shape, v.shape)
    _check_finite(q=q, k=k, v=v)
    _check_window(window)
    _check_softcap(softcap)
    visible = _visible(q.shape[1], k.shape[1], q_start, causal, window)
    return _Rules(float(q.shape[2] ** -0.5) if scale is None else scale, visible, softcap, _sinks(sinks, len(q)))


def _visible(rows: int, keys: int, q_start: int | None, causal: bool, window: int | None) -> npt.NDArray[np.bool_]:
    """[T_q, S]: which keys each query row sees."""
    if not causal:
        _check_unmasked(q_start=q_start, window=window)
        return np.ones((rows, keys), dtype=np.bool_)
    first = keys - rows if q_start is None else q_start
    behind = first + np.arange(rows)[:, None] - np.arange(keys)
    return behind >= 0 if window is None else (behind >= 0) & (behind < window)


def _sinks(sinks: npt.ArrayLike | None, heads: int) -> F64:
    if sinks is None:
        return np.full(heads, -np.inf)
    logits = np.asarray(sinks, dtype=np.float64)
    if logits.shape != (heads,):
        raise ValueError(f"sinks have shape {logits.shape} for {heads} query heads: pass one logit a head, ({heads},)")
    bad = np.flatnonzero(np.isnan(logits) | np.isposinf(logits))
    if len(bad):
        raise ValueError(f"sinks[{bad[0]}] is {logits[bad[0]]}: pass a finite logit, or -inf for a head without a sink")
    return logits


def _check_shapes(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    if not len(q) == len(k) == len(v) == 3:
        raise ValueError(f"q, k, v are [heads, tokens, width], got q {q}, k {k}, v {v}: add the missing axis")
    if k[:2] != v[:2] or q[2] != k[2]:
        raise ValueError(f"q {q}, k {k}, v {v} do not fit: k and v share heads and tokens, q and k share the width")
    if not k[0] or not q[0] or q[0] % k[0]:
        raise ValueError(f"{q[0]} query heads cannot share {k[0]} KV heads evenly: H_q is a multiple of H_kv")


def _check_finite(**arrays: Array) -> None:
    for name, array in arrays.items():
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            at = tuple(int(index) for index in bad[0])
            raise ValueError(f"{name}{list(at)} is {array[at]}: pass valid rows only, such as {name}[:, :kv_len]")


def _check_unmasked(**masks: int | None) -> None:
    for name, value in masks.items():
        if value is not None:
            raise ValueError(f"{name} is {value} but causal is False, so it masks nothing: pass causal=True or drop it")


def _check_window(window: int | None) -> None:
    if window is not None and not window >= 1:
        raise ValueError(f"window is {window} keys, at least 1 is needed: a query's own position counts as one")


def _check_softcap(softcap: float | None) -> None:
    if softcap is not None and not 0 < softcap < np.inf:
        raise ValueError(f"softcap is {softcap}, it has to be above 0 and finite: pass None for uncapped scores")
