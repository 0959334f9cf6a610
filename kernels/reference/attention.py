"""What a GQA attention kernel should return, and how far from it a correct kernel may be. PYTEST_DONT_REWRITE

Written for clarity, head by head, and on purpose not the way a kernel does it: no tiles, no running maximum, no group
folded into rows. Inputs are taken as they are, already rounded to their storage dtype (ADR-0060 11.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]


def attention(
    q: Array, k: Array, v: Array, *, scale: float | None = None, q_start: int | None = None, causal: bool = False
) -> tuple[F64, F64]:
    """Softmax attention in float64: `out` [H_q, T_q, d_v] and natural-log `lse` [H_q, T_q].

    q [H_q, T_q, d], k [H_kv, S, d], v [H_kv, S, d_v] of any real dtype, bfloat16 included; query head h reads KV head
    h // (H_q // H_kv). `scale` defaults to 1/sqrt(d). With `causal`, query row t has position q_start + t and sees keys
    up to that position; `q_start` defaults to S - T_q (bottom-right). A row that sees no key gives out 0 and lse -inf
    (R19). Raises ValueError for shapes that do not fit, a value that is not finite, and `q_start` without `causal`.
    """
    visible = _visible(q, k, v, q_start, causal)
    factor = _scale(q, scale)
    heads = [_one_head(*head, factor, visible) for head in _heads(q, k, v, np.dtype(np.float64))]
    outs, lses = zip(*heads, strict=True)
    return np.stack(outs), np.stack(lses)


def _one_head(q: F64, k: F64, v: F64, scale: float, visible: npt.NDArray[np.bool_]) -> tuple[F64, F64]:
    scores = np.where(visible, scale * (q @ k.T), -np.inf)
    top = _finite_max(scores)
    p = np.exp(scores - top)
    total = p.sum(axis=1, keepdims=True)
    log_total = np.log(total, where=total > 0, out=np.full_like(total, -np.inf))
    return (p @ v) / np.where(total > 0, total, 1.0), (top + log_total)[:, 0]


def naive_same_precision(
    q: Array,
    k: Array,
    v: Array,
    dtype: npt.DTypeLike,
    scale: float | None = None,
    *,
    q_start: int | None = None,
    causal: bool = False,
) -> Array:
    """Attention in one piece, rounded where a correct kernel rounds: `out` [H_q, T_q, d_v] of `dtype` (ADR-0060 11.1).

    Inputs in `dtype`, scores, softmax and accumulation in float32, un-normalised P rounded to `dtype` before P.V, the
    row sum taken in float32 from P before that rounding, the result cast to `dtype`. Shapes and errors as `attention`.
    """
    visible = _visible(q, k, v, q_start, causal)
    factor = np.float32(_scale(q, scale))
    heads = _heads(q, k, v, np.dtype(dtype))
    return np.stack([_one_naive_head(*head, factor, visible) for head in heads])


def _one_naive_head(q: Array, k: Array, v: Array, scale: np.float32, visible: npt.NDArray[np.bool_]) -> Array:
    f32 = np.float32
    scores = np.where(visible, scale * (q.astype(f32) @ k.astype(f32).T), f32(-np.inf))
    p = np.exp(scores - _finite_max(scores))
    total = p.sum(axis=1, keepdims=True)
    rounded: Array = p.astype(q.dtype)
    out: Array = rounded.astype(f32) @ v.astype(f32) / np.where(total > 0, total, f32(1))
    return out.astype(q.dtype)


def _finite_max(scores: Array) -> Array:
    """Each row's maximum, 0 where the row sees nothing: keeps -inf - -inf out of the exponent (R18)."""
    top = scores.max(axis=1, keepdims=True, initial=-np.inf)
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
    q: Array,
    k: Array,
    v: Array,
    dtype: npt.DTypeLike,
    *,
    scale: float | None = None,
    q_start: int | None = None,
    causal: bool = False,
) -> float:
    """`error_model(...).bound`, for one number to compare with."""
    return error_model(q, k, v, dtype, scale=scale, q_start=q_start, causal=causal).bound


def error_model(
    q: Array,
    k: Array,
    v: Array,
    dtype: npt.DTypeLike,
    *,
    scale: float | None = None,
    q_start: int | None = None,
    causal: bool = False,
) -> ErrorModel:
    """How far from `attention` a kernel storing `dtype` may be: twice what that precision costs at all (ADR-0060 11.1).

    `2 * max|naive - oracle|`, as FlashAttention's tests have it, plus two terms for data on which the naive version is
    lucky: 2 ulp of max|out| in the storage dtype, and 2 ulp of max|V| in float32 for each unit of 1 + max|logit|, as a
    float32 logit is off in proportion to its size and a kernel may sum it in another order.

    Why not the customary `2 * max|naive - oracle| + 2 ulp(max|V|)` of the storage dtype: measured, it fails at both
    ends. In bfloat16, S = 8192, logit sd 1, it exceeds max|out|, so that a kernel which returns zeros passes, while a
    correct tiled one uses 0.4 % of it (and 20 % of this one). In float32 at logit sd 4 correct tiled kernels exceed it.
    """
    masking: dict[str, Any] = {"q_start": q_start, "causal": causal}
    oracle, _ = attention(q, k, v, scale=scale, **masking)
    naive = naive_same_precision(q, k, v, dtype, scale, **masking).astype(np.float64)
    naive_error, largest_out = _largest(naive - oracle), _largest(oracle)
    logit = _largest_logit(q, k, _scale(q, scale), _visible(q, k, v, q_start, causal))
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


def _largest_logit(q: Array, k: Array, scale: float, visible: npt.NDArray[np.bool_]) -> float:
    heads = _heads(q, k, k, np.dtype(np.float64))
    return max(_largest(np.where(visible, scale * (qh @ kh.T), 0.0)) for qh, kh, _ in heads)


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


def _scale(q: Array, scale: float | None) -> float:
    return float(q.shape[2] ** -0.5) if scale is None else scale


def _visible(q: Array, k: Array, v: Array, q_start: int | None, causal: bool) -> npt.NDArray[np.bool_]:
    """[T_q, S]: which keys each query row sees."""
    _check_shapes(q.shape, k.shape, v.shape)
    _check_finite(q=q, k=k, v=v)
    rows, keys = q.shape[1], k.shape[1]
    if not causal:
        _check_unmasked(q_start)
        return np.ones((rows, keys), dtype=np.bool_)
    first = keys - rows if q_start is None else q_start
    return np.arange(keys) <= first + np.arange(rows)[:, None]


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


def _check_unmasked(q_start: int | None) -> None:
    if q_start is not None:
        raise ValueError(f"q_start is {q_start} but causal is False, so it masks nothing: pass causal=True or drop it")
