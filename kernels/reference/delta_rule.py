"""The gated delta rule, token by token and chunk by chunk, for value heads that share key heads. PYTEST_DONT_REWRITE

Two forms of one function, so that each is the other's check: the recurrence as it is defined, and the chunk form (WY)
by forward substitution that kernels compute (facts of the gated delta rule, section 2). Inputs are taken as they are,
already rounded to their storage dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
State = Literal["random", "zero"]


class Inputs(NamedTuple):
    """What the rule reads, in the order of the vendor's operator: pass it on as `recurrent(*inputs, scale=...)`.

    query, key [T, Hk, Dk], value [T, Hv, Dv], beta [T, Hv], initial_state [B, Hv, Dv, Dk], lengths [B]: tokens of each
    sequence, not cumulative. g [T, Hv] is the natural logarithm of the decay; without it nothing decays.
    """

    query: Array
    key: Array
    value: Array
    beta: Array
    initial_state: Array
    lengths: Array
    g: Array | None = None


def recurrent(
    query: Array,
    key: Array,
    value: Array,
    beta: Array,
    initial_state: Array,
    lengths: npt.ArrayLike,
    g: Array | None = None,
    *,
    scale: float = 1.0,
    dtype: npt.DTypeLike = np.float64,
) -> tuple[Array, Array]:
    """The rule by its definition, one token after another: `out` [T, Hv, Dv] and `final_state` [B, Hv, Dv, Dk].

    For each token and value head h with key head h // (Hv / Hk): S = e^g S; u = beta (v - S k); S = S + u k^T;
    out = S (scale q), in `dtype`, float64 or float32. The decay comes before the read, the output after the write. An
    empty sequence returns its state. Shapes are those of `Inputs`, of any real dtype. Raises ValueError for shapes that
    do not fit, a ratio Hv / Hk that is not whole, lengths that are negative or do not sum to T, and a value that is not
    finite.
    """
    given = Inputs(query, key, value, beta, initial_state, np.asarray(lengths), g)
    return _by_sequence(given, scale, np.dtype(dtype), _token_by_token)


def chunked(
    query: Array,
    key: Array,
    value: Array,
    beta: Array,
    initial_state: Array,
    lengths: npt.ArrayLike,
    g: Array | None = None,
    *,
    scale: float = 1.0,
    dtype: npt.DTypeLike = np.float64,
    chunk: int = 64,
) -> tuple[Array, Array]:
    """The same by chunks of up to `chunk` tokens, as a kernel computes it: `out` and `final_state` as `recurrent`.

    The state goes from chunk to chunk in `dtype`. A sequence's last chunk has its exact length. Raises ValueError as
    `recurrent`, and for a chunk below 1.
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk} tokens, the least is 1: take 64, as kernels do")
    given = Inputs(query, key, value, beta, initial_state, np.asarray(lengths), g)
    return _by_sequence(given, scale, np.dtype(dtype), lambda rows, state: _chunk_by_chunk(rows, state, chunk))


# --- one sequence -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """One sequence, value heads first: query (scaled) and key [Hv, L, Dk], value [Hv, L, Dv], beta and g [Hv, L]."""

    query: Array
    key: Array
    value: Array
    beta: Array
    g: Array

    @property
    def length(self) -> int:
        return int(self.beta.shape[1])

    def __getitem__(self, tokens: slice) -> _Rows:
        return _Rows(*(each[:, tokens] for each in (self.query, self.key, self.value, self.beta, self.g)))

    def chunks(self, size: int) -> Iterator[_Rows]:
        return (self[at : at + size] for at in range(0, self.length, size))


_OneSequence = Callable[[_Rows, Array], tuple[Array, Array]]


def _token_by_token(rows: _Rows, state: Array) -> tuple[Array, Array]:
    """`out` [Hv, L, Dv] and the state [Hv, Dv, Dk] behind the last token."""
    out = np.empty_like(rows.value)
    for t, alpha in enumerate(np.exp(rows.g).T):
        state = alpha[:, None, None] * state
        seen = _apply(state, rows.key[:, t])
        change = rows.beta[:, t, None] * (rows.value[:, t] - seen)
        state = state + change[:, :, None] * rows.key[:, t, None, :]
        out[:, t] = _apply(state, rows.query[:, t])
    return out, state


def _apply(state: Array, vector: Array) -> Array:
    """[Hv, Dv] of [Hv, Dv, Dk] and [Hv, Dk]."""
    product: Array = (state @ vector[:, :, None])[:, :, 0]
    return product


def _chunk_by_chunk(rows: _Rows, state: Array, chunk: int) -> tuple[Array, Array]:
    outs = [np.empty_like(rows.value[:, :0])]
    for piece in rows.chunks(chunk):
        out, state = _one_chunk(piece, state)
        outs.append(out)
    return np.concatenate(outs, axis=1), state


def _one_chunk(rows: _Rows, state: Array) -> tuple[Array, Array]:
    """One chunk's output and the state behind it, in products of whole matrices."""
    log_decay = np.cumsum(rows.g, axis=1)
    from_start, to_end = (np.exp(each)[:, :, None] for each in (log_decay, log_decay[:, -1:] - log_decay))
    decay = _decay_between(log_decay)
    k_beta = rows.beta[:, :, None] * rows.key
    inverse = _unit_lower_inverse(-np.tril((k_beta @ _t(rows.key)) * decay, -1))
    w, u = inverse @ (from_start * k_beta), inverse @ (rows.beta[:, :, None] * rows.value)
    new = u - w @ _t(state)
    out = (from_start * rows.query) @ _t(state) + ((rows.query @ _t(rows.key)) * decay) @ new
    return out, from_start[:, -1:] * state + _t(new) @ (to_end * rows.key)


def _decay_between(log_decay: Array) -> Array:
    """[Hv, L, L]: e^(G_i - G_j) for j <= i, else 0: masked first, as above the diagonal the exponent may overflow."""
    difference = log_decay[:, :, None] - log_decay[:, None, :]
    lower = np.tri(log_decay.shape[1], dtype=np.bool_)
    decay: Array = np.exp(np.where(lower, difference, difference.dtype.type(-np.inf)))
    return decay


def _unit_lower_inverse(a: Array) -> Array:
    """(I - A)^-1 of strictly lower A [Hv, L, L], row by row: X_i = A_i + A_i X, which reads finished rows only."""
    x = a.copy()
    for i in range(2, a.shape[1]):  # X_1 is A_1
        x[:, i, :i] += (a[:, i, None, :i] @ x[:, :i, :i])[:, 0]
    inverse: Array = x + np.eye(a.shape[1], dtype=a.dtype)
    return inverse


def _t(matrices: Array) -> Array:
    return matrices.swapaxes(-1, -2)


# --- a batch of sequences ---------------------------------------------------------------------------------------------


def _by_sequence(given: Inputs, scale: float, dtype: np.dtype[Any], run: _OneSequence) -> tuple[Array, Array]:
    _check(given, scale, dtype)
    rows, states = _rows(given, scale, dtype), given.initial_state.astype(dtype)
    ends = accumulate((int(n) for n in given.lengths), initial=0)
    done = [run(rows[slice(*span)], state) for span, state in zip(pairwise(ends), states, strict=True)]
    outs = [np.empty_like(rows.value[:, :0]), *(out for out, _ in done)]
    return np.concatenate(outs, axis=1).swapaxes(0, 1), np.array([state for _, state in done]).reshape(states.shape)


def _rows(given: Inputs, scale: float, dtype: np.dtype[Any]) -> _Rows:
    """Value heads first, each beside its key head's rows (GVA, the order of repeat_interleave)."""
    group = given.value.shape[1] // given.key.shape[1]
    query, key = (np.repeat(each.astype(dtype), group, axis=1) for each in (given.query, given.key))
    g = np.zeros(given.beta.shape) if given.g is None else given.g
    parts = dtype.type(scale) * query, key, given.value, given.beta, g
    return _Rows(*(each.astype(dtype).swapaxes(0, 1) for each in parts))


# --- inputs -----------------------------------------------------------------------------------------------------------


def random_delta_rule(
    seed: int | np.random.Generator,
    lengths: tuple[int, ...],
    heads: tuple[int, int],
    dims: tuple[int, int],
    *,
    mean_g: float | None = -0.016,
    mask: float = 0.0,
    state: State = "random",
    dtype: npt.DTypeLike = np.float16,
) -> Inputs:
    """Random inputs of `dtype` (g float32) that hide no fault: unit keys, q != k, 0 < beta < 1, an asymmetric state.

    `heads` is (Hk, Hv), `dims` (Dk, Dv). g lies between half and three halves of `mean_g`, a share `mask` of it is
    exactly 0; None leaves g out. Raises ValueError for a positive mean_g and a mask outside 0..1.
    """
    if (mean_g is not None and mean_g > 0) or not 0 <= mask <= 1:
        raise ValueError(f"mean_g is {mean_g}, mask {mask}: a mean log decay is at most 0, a share from 0 to 1")
    rng = np.random.default_rng(seed)
    t, (hk, hv), (dk, dv) = sum(lengths), heads, dims
    query, key = (_unit(rng.standard_normal((t, hk, dk))) for _ in "qk")
    value, initial = rng.standard_normal((t, hv, dv)), rng.standard_normal((len(lengths), hv, dv, dk))
    beta = 1 / (1 + np.exp(-rng.standard_normal((t, hv))))
    g = rng.uniform(0.5, 1.5, (t, hv)) * (mean_g or 0.0) * (rng.random((t, hv)) >= mask)
    return Inputs(
        query.astype(dtype),
        key.astype(dtype),
        value.astype(dtype),
        beta.astype(dtype),
        (initial * (state == "random")).astype(dtype),
        np.array(lengths, np.int32),
        None if mean_g is None else g.astype(np.float32),
    )


def _unit(vectors: Array) -> Array:
    unit: Array = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return unit


# --- bad input --------------------------------------------------------------------------------------------------------

_AXES = "T, Hk, Dk", "T, Hk, Dk", "T, Hv, Dv", "T, Hv", "B, Hv, Dv, Dk", "B", "T, Hv"


def _check(given: Inputs, scale: float, dtype: np.dtype[Any]) -> None:
    if dtype not in (np.float64, np.float32):
        raise ValueError(f"the arithmetic is float64 or float32, got {dtype}: round the inputs instead")
    _check_ranks(given)
    _check_heads(given.key.shape[1], given.value.shape[1])
    _check_shapes(given)
    _check_lengths(given.lengths, given.query.shape[0])
    _check_finite(given, scale)


def _check_ranks(given: Inputs) -> None:
    for (name, array), axes in zip(given._asdict().items(), _AXES, strict=True):
        if array is not None and array.ndim != 1 + axes.count(","):
            raise ValueError(f"{name} has shape {array.shape}, it is [{axes}]: {1 + axes.count(',')} axes, reshape it")


def _check_heads(hk: int, hv: int) -> None:
    if not hk or not hv or hv % hk:
        raise ValueError(f"{hv} value heads cannot share {hk} key heads evenly: Hv is a multiple of Hk")


def _check_shapes(given: Inputs) -> None:
    (t, _, dk), (_, hv, dv), sequences = given.query.shape, given.value.shape, len(given.lengths)
    expected = {
        "key": given.query.shape,
        "value": (t, hv, dv),
        "beta": (t, hv),
        "initial_state": (sequences, hv, dv, dk),
        "g": (t, hv),
    }
    for name, shape in expected.items():
        array = getattr(given, name)
        if array is not None and array.shape != shape:
            raise ValueError(
                f"{name} has shape {array.shape}, expected {shape} beside query {given.query.shape}, "
                f"value {given.value.shape} and {sequences} lengths"
            )


def _check_lengths(lengths: Array, tokens: int) -> None:
    if len(lengths) and lengths.dtype.kind not in "iu":
        raise ValueError(f"lengths are {lengths.dtype}, they count tokens: pass integers")
    for b, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"lengths[{b}] is {length}, the least is 0: pass lengths of sequences, not their ends")
    if sum(map(int, lengths)) != tokens:
        total = sum(map(int, lengths))
        raise ValueError(f"lengths sum to {total}, query has {tokens} tokens: pass lengths, not their running sum")


def _check_finite(given: Inputs, scale: float) -> None:
    arrays = {name: array for name, array in given._asdict().items() if array is not None}
    for name, array in (arrays | {"scale": np.asarray(scale)}).items():
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            at = tuple(int(index) for index in bad[0])
            raise ValueError(f"{name}{list(at) or ''} is {array[at]}: pass finite numbers and valid tokens only")
