"""What holds for any delta rule without a reference beside it (facts, section 2), each property for both forms."""

from functools import partial
from math import exp
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.kernels.reference.delta_rule import Inputs, chunked, random_delta_rule, recurrent

Array = npt.NDArray[Any]
Results = tuple[Array, Array]

FORMS = pytest.mark.parametrize(
    "form", [pytest.param(recurrent, id="recurrent"), pytest.param(partial(chunked, chunk=4), id="chunked")]
)


@st.composite
def inputs_of(draw: st.DrawFn, *, dims: tuple[int, int] | None = None, sequences: int = 3) -> Inputs:
    """Up to `sequences` sequences of 0 to 9 tokens, float64, any whole head ratio, any strength of decay."""
    hk, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return random_delta_rule(
        draw(st.integers(0, 2**32)),
        tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=sequences))),
        (hk, hk * group),
        dims or (draw(st.integers(1, 6)), draw(st.integers(1, 6))),
        mean_g=draw(st.sampled_from([None, 0.0, -5e-4, -0.016, -0.48, -48.0])),
        mask=draw(st.sampled_from([0.0, 0.5])),
        dtype=np.float64,
    )


def same(found: Results, expected: Results) -> None:
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


def tokens(x: Inputs, rows: Any, lengths: list[int], state: Array) -> Inputs:
    """Those rows of x, in sequences of these lengths."""
    g = None if x.g is None else x.g[rows]
    return Inputs(x.query[rows], x.key[rows], x.value[rows], x.beta[rows], state, np.array(lengths), g)


@settings(max_examples=40)
@given(inputs_of(sequences=1), st.integers(0, 9))
@FORMS
def test_a_sequence_in_two_parts_with_the_state_carried_is_the_whole(form: Any, x: Inputs, cut: int) -> None:
    total, cut = len(x.query), min(cut, len(x.query))

    out, state = form(*tokens(x, slice(0, cut), [cut], x.initial_state))
    rest, state = form(*tokens(x, slice(cut, total), [total - cut], state))

    same((np.concatenate([out, rest]), state), form(*x))


@settings(max_examples=40)
@given(inputs_of(), st.integers(1, 12))
def test_any_chunk_size_gives_the_recurrence(x: Inputs, chunk: int) -> None:
    same(chunked(*x, scale=0.3, chunk=chunk), recurrent(*x, scale=0.3))


@settings(max_examples=40)
@given(inputs_of())
@FORMS
def test_a_batch_is_its_sequences_one_by_one(form: Any, x: Inputs) -> None:
    ends = np.cumsum(x.lengths)
    alone = [
        form(*tokens(x, slice(end - n, end), [n], x.initial_state[b : b + 1]))
        for b, (n, end) in enumerate(zip(x.lengths, ends, strict=True))
    ]
    same((np.concatenate([out for out, _ in alone]), np.concatenate([state for _, state in alone])), form(*x))


@settings(max_examples=40)
@given(inputs_of(), st.floats(-3, 3), st.floats(-3, 3), st.integers(0, 2**32))
@FORMS
def test_results_are_linear_in_values_and_states_together(form: Any, x: Inputs, a: float, b: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    other = x._replace(value=rng.standard_normal(x.value.shape), initial_state=rng.standard_normal(x[4].shape))
    mixed = x._replace(value=a * x.value + b * other.value, initial_state=a * x.initial_state + b * other.initial_state)
    out, state = (a * one + b * two for one, two in zip(form(*x), form(*other), strict=True))
    same(form(*mixed), (out, state))


@settings(max_examples=40)
@given(inputs_of(), st.integers(1, 5), st.integers(0, 2**32))
@FORMS
def test_tokens_without_beta_and_g_change_nothing(form: Any, x: Inputs, padding: int, seed: int) -> None:
    """Whatever their key and value are, wherever they stand."""
    total = len(x.query)
    noise = random_delta_rule(seed, (padding,), (x.key.shape[1], x.value.shape[1]), (x.key.shape[2], x.value.shape[2]))
    where = np.sort(np.random.default_rng(seed).integers(0, total + 1, padding))
    owner = np.minimum(np.searchsorted(np.cumsum(x.lengths), where, side="left"), len(x.lengths) - 1)
    silent = noise._replace(beta=np.zeros_like(noise.beta), g=np.zeros_like(noise.beta))
    g = np.zeros_like(x.beta) if x.g is None else x.g
    query, key, value, beta, g = (
        np.insert(one, where, two, axis=0)
        for one, two in zip((*x[:4], g), (*silent[:4], silent.g), strict=True)
        if two is not None
    )
    lengths = x.lengths + np.bincount(owner, minlength=len(x.lengths))

    out, state = form(query, key, value, beta, x.initial_state, lengths, g)

    kept = np.insert(np.ones(total, dtype=bool), where, False)
    same((out[kept], state), form(*x))


@settings(max_examples=40)
@given(inputs_of(), st.integers(0, 2**32))
@FORMS
def test_a_rotation_of_queries_keys_and_states_leaves_the_output(form: Any, x: Inputs, seed: int) -> None:
    width = x.key.shape[2]
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, width)))

    out, state = form(*x._replace(query=x.query @ turn, key=x.key @ turn, initial_state=x.initial_state @ turn))

    expected, turned = form(*x)
    same((out, state), (expected, turned @ turn))


@settings(max_examples=40)
@given(inputs_of())
@FORMS
def test_without_beta_the_state_only_decays(form: Any, x: Inputs) -> None:
    _, state = form(*x._replace(beta=np.zeros_like(x.beta)))

    g = np.zeros_like(x.beta) if x.g is None else x.g
    sums = [each.sum(axis=0, dtype=np.float64) for each in np.split(g, np.cumsum(x.lengths)[:-1])]
    np.testing.assert_allclose(state, np.exp(sums)[:, :, None, None] * x.initial_state, rtol=1e-13)


@settings(max_examples=40)
@given(inputs_of())
@FORMS
def test_without_values_and_states_everything_is_exactly_zero(form: Any, x: Inputs) -> None:
    out, state = form(*x._replace(value=np.zeros_like(x.value), initial_state=np.zeros_like(x.initial_state)))
    assert not out.any()
    assert not state.any()


@settings(max_examples=40)
@given(inputs_of(dims=(1, 1), sequences=1), st.floats(0.1, 2))
@FORMS
def test_with_width_1_it_is_a_recursion_of_numbers(form: Any, x: Inputs, scale: float) -> None:
    group = x.value.shape[1] // x.key.shape[1]
    outs, states = np.zeros_like(x.value), np.zeros_like(x.initial_state)
    for h in range(x.value.shape[1]):
        s = float(x.initial_state[0, h, 0, 0])
        for t in range(len(x.query)):
            q, k, v = (float(each) for each in (x.query[t, h // group, 0], x.key[t, h // group, 0], x.value[t, h, 0]))
            s *= 1.0 if x.g is None else exp(x.g[t, h])
            s += float(x.beta[t, h]) * (v - s * k) * k
            outs[t, h, 0] = s * scale * q
        states[0, h, 0, 0] = s

    same(form(*x, scale=scale), (outs, states))


@settings(max_examples=40)
@given(inputs_of(), st.integers(0, 2**32))
@FORMS
def test_value_heads_of_one_key_head_change_places_with_their_results(form: Any, x: Inputs, seed: int) -> None:
    group = x.value.shape[1] // x.key.shape[1]
    rng = np.random.default_rng(seed)
    order = np.concatenate([head * group + rng.permutation(group) for head in range(x.key.shape[1])])
    g = None if x.g is None else x.g[:, order]

    out, state = form(x.query, x.key, x.value[:, order], x.beta[:, order], x.initial_state[:, order], x.lengths, g)

    expected, expected_state = form(*x)
    same((out, state), (expected[:, order], expected_state[:, order]))
