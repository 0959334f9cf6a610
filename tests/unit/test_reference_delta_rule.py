"""The two forms of the delta rule against each other, against published numbers, and what they refuse."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pytest_kernbench.kernels.reference.delta_rule import Inputs, chunked, random_delta_rule, recurrent

Array = npt.NDArray[Any]
Results = tuple[Array, Array]
Row = tuple[tuple[int, ...], tuple[int, int], tuple[int, int], float | None, float]
F32 = np.dtype(np.float32)
FORMS = pytest.mark.parametrize("form", [recurrent, chunked])

# (lengths, (Hk, Hv), (Dk, Dv), mean g, share of g that is 0): the lengths and head ratios of the facts, small widths
CASES: list[Row] = [
    ((1,), (1, 1), (16, 12), -0.48, 0.0),
    ((2,), (2, 4), (8, 16), -0.05, 0.0),
    ((15,), (2, 8), (60, 60), -48.0, 0.5),
    ((16,), (16, 32), (16, 12), -0.48, 0.0),
    ((17,), (16, 48), (8, 8), -0.05, 0.5),
    ((63,), (2, 4), (80, 96), -0.1, 0.0),
    ((64,), (3, 3), (64, 64), -0.48, 0.0),
    ((65,), (2, 8), (16, 12), -48.0, 0.0),
    ((75,), (1, 1), (100, 100), -0.05, 0.0),
    ((127,), (2, 4), (16, 12), -0.48, 0.5),
    ((128,), (1, 1), (128, 256), -0.05, 0.0),
    ((129,), (3, 3), (16, 12), -48.0, 0.5),
    ((130,), (1, 1), (128, 128), -0.48, 0.0),
    ((194,), (1, 2), (32, 16), -0.05, 0.0),
    ((500,), (1, 1), (32, 32), -0.1, 0.0),
    ((1000,), (1, 1), (16, 16), -0.05, 0.5),
    ((1, 64, 130, 7), (2, 4), (16, 12), -0.05, 0.0),
    ((13, 20), (16, 48), (16, 16), -0.48, 0.0),
    ((15, 85, 200, 900, 800), (1, 1), (8, 8), -0.05, 0.0),
    ((128, 0, 128), (1, 2), (16, 24), -0.05, 0.0),
    ((0, 5), (2, 2), (16, 12), -0.1, 0.0),
    ((64, 64), (1, 3), (16, 12), -0.48, 0.5),
]
SLOW_DECAYS: list[Row] = [
    ((64,), (2, 4), (64, 64), 0.0, 0.0),
    ((130,), (2, 4), (32, 16), -5e-4, 0.0),
    ((194,), (2, 4), (32, 16), -0.016, 0.0),
    ((1000,), (1, 1), (32, 32), -5e-4, 0.0),
    ((500,), (1, 2), (32, 32), 0.0, 0.0),
    ((64,), (1, 2), (32, 16), None, 0.0),
]


def made(case: Row, state: Any) -> tuple[Inputs, float]:
    """Inputs of a case, and a scale: 1 with a state, Dk**-0.5 without."""
    lengths, heads, dims, mean_g, mask = case
    inputs = random_delta_rule(7, lengths, heads, dims, mean_g=mean_g, mask=mask, state=state)
    return inputs, 1.0 if state == "random" else dims[0] ** -0.5


def errors(results: Results, expected: Results) -> list[tuple[float, float]]:
    """For out and state: largest error in units of the largest value, and rms error over rms value."""
    pairs = [(got.astype(np.float64) - want, want) for got, want in zip(results, expected, strict=True)]
    norm = np.linalg.norm
    return [(float(np.abs(e).max() / np.abs(want).max()), float(norm(e) / norm(want))) for e, want in pairs]


def within(found: list[tuple[float, float]], largest: float, rms: float) -> bool:
    return all(each[0] <= largest and each[1] <= rms for each in found)


def by_loops(inputs: Inputs, scale: float) -> Results:
    """The rule for one sequence with a Python loop for every axis, in the public layout."""
    q, k, v, beta, s0, _, g = (np.asarray(each, np.float64) for each in inputs)
    out, state = np.zeros_like(v), s0.copy()
    for t, h, row in np.ndindex(*v.shape):
        kh, alpha, s = k[t, h * k.shape[1] // v.shape[1]], np.exp(g[t, h]), state[0, h, row]
        seen = sum(alpha * s[d] * kh[d] for d in range(len(kh)))
        for d in range(len(kh)):
            s[d] = alpha * s[d] + beta[t, h] * (v[t, h, row] - seen) * kh[d]
        out[t, h, row] = sum(s[d] * scale * q[t, h * k.shape[1] // v.shape[1], d] for d in range(len(kh)))
    return out, state


# --- the forms --------------------------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize("heads", [(1, 1), (2, 4), (2, 6), (3, 3)])
def test_each_form_is_the_rule_by_loops_for_every_head_ratio(form: Any, heads: tuple[int, int]) -> None:
    inputs = random_delta_rule(0, (5,), heads, (3, 2))

    out, state = form(*inputs, scale=0.7)

    expected, expected_state = by_loops(inputs, 0.7)
    assert {out.dtype, state.dtype} == {np.dtype(np.float64)}
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(state, expected_state, rtol=0, atol=1e-14)


@pytest.mark.parametrize("state", ["random", "zero"])
@pytest.mark.parametrize("case", CASES + SLOW_DECAYS, ids=str)
def test_the_forms_agree_in_float64(case: Row, state: str) -> None:
    inputs, scale = made(case, state)
    assert within(errors(chunked(*inputs, scale=scale), recurrent(*inputs, scale=scale)), 1e-14, 1e-14)


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64, 100, 1000])
def test_the_chunk_size_changes_nothing(chunk: int) -> None:
    inputs = random_delta_rule(1, (100, 0, 31), (1, 2), (16, 12))
    assert within(errors(chunked(*inputs, chunk=chunk), recurrent(*inputs)), 1e-14, 1e-14)


@pytest.mark.parametrize("state", ["random", "zero"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_errs_as_measured(case: Row, state: str) -> None:
    """Twice the worst of 26 cases with mean |g| from 0.05 to 48 (facts, section 3); the worst here is 1.4 times."""
    inputs, scale = made(case, state)
    exact, token = recurrent(*inputs, scale=scale), recurrent(*inputs, scale=scale, dtype=F32)
    chunk = chunked(*inputs, scale=scale, dtype=F32)
    assert {each.dtype for each in (*token, *chunk)} == {F32}
    assert within(errors(token, exact), 2 * 3.0e-7, 2 * 1.9e-7)
    assert within(errors(chunk, exact), 2 * 5.5e-7, 2 * 3.1e-7)
    assert within(errors(token, chunk), 2 * 5.7e-7, 2 * 3.3e-7)


@pytest.mark.parametrize("case", SLOW_DECAYS, ids=str)
def test_float32_errs_no_more_where_the_state_lives_long(case: Row) -> None:
    inputs, scale = made(case, "random")
    exact = recurrent(*inputs, scale=scale)
    assert within(errors(recurrent(*inputs, scale=scale, dtype=F32), exact), 1e-6, 1e-6)
    assert within(errors(chunked(*inputs, scale=scale, dtype=F32), exact), 1e-6, 1e-6)


def test_a_float32_cumsum_loses_small_decays_behind_large_ones() -> None:
    """At G = -3000 an ulp is 2.4e-4, so that e^-0.01 between two tokens is off by as much in any float32 chunk form."""
    inputs = random_delta_rule(0, (64,), (1, 1), (16, 12), mean_g=-48.0)
    g = inputs.g
    assert g is not None
    g[-8:] = -0.01
    exact = recurrent(*inputs)
    assert within(errors(recurrent(*inputs, dtype=F32), exact), 1e-6, 1e-6)
    assert 1e-5 < errors(chunked(*inputs, dtype=F32), exact)[0][0] < 1e-3


# --- published numbers ------------------------------------------------------------------------------------------------


def base(g: float | None, tokens: int = 4, lengths: tuple[int, ...] | None = None) -> Inputs:
    """The base case of the bug catalogue (facts, section 6): one head, Dk = 2, Dv = 1, each S0 = [1, 2]."""
    q, k = [(0, 1), (1, 0), (0.6, -0.8), (0.8, 0.6)], [(1, 0), (0.6, 0.8), (0, 1), (0.8, 0.6)]
    lengths = lengths or (tokens,)
    return Inputs(
        query=np.array(q)[:tokens, None],
        key=np.array(k)[:tokens, None],
        value=np.arange(1.0, 1 + tokens).reshape(tokens, 1, 1),
        beta=np.full((tokens, 1), 0.5),
        initial_state=np.tile([1.0, 2.0], (len(lengths), 1, 1, 1)),
        lengths=np.array(lengths),
        g=None if g is None else np.full((tokens, 1), g),
    )


def run_base(form: Any, inputs: Inputs, **options: Any) -> tuple[list[float], list[float]]:
    out, state = form(*inputs, scale=2**-0.5, **options)
    return out.ravel().tolist(), state.ravel().tolist()


def printed(*values: float) -> Any:
    """As given with five decimals."""
    return pytest.approx(values, rel=0, abs=0.51e-5)


@FORMS
@pytest.mark.parametrize(
    ("g", "out", "state"),
    [
        (-1.0, (0.52026, 0.52422, -0.82893, 1.57291), (1.52079, 1.67966)),
        (0.0, (1.41421, 0.66468, -0.99278, 2.20193), (1.64880, 2.99160)),  # row 3: a difference of 0 is not dropped
        (None, (1.41421, 0.66468, -0.99278, 2.20193), (1.64880, 2.99160)),  # row 16: no g is g = 0, not no update
        (-45.0, (0.0, 0.42426, -0.84853, 1.41421), (1.6, 1.2)),  # row 1: e^135 above the diagonal is never taken
    ],
)
def test_the_base_case_has_its_published_values(form: Any, g: float | None, out: Any, state: Any) -> None:
    assert run_base(form, base(g)) == (printed(*out), printed(*state))
    assert run_base(form, base(g), dtype=np.float32) == (printed(*out), printed(*state))


@FORMS
def test_the_last_valid_token_ends_the_decay_of_a_short_chunk(form: Any) -> None:
    """Row 5: with the decay of slot 3 of 4 the state is another."""
    assert run_base(form, base(-1.0, tokens=3))[1] == printed(0.27273, 1.66990)


ANCHOR = Inputs(
    query=np.array([[[1.0, 0.0]]]),
    key=np.array([[[1.0, 0.0]]]),
    value=np.array([[[10.0, 20.0, 30.0]]]),
    beta=np.ones((1, 1)),
    initial_state=np.array([[[[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]]]),
    lengths=np.array([1]),
)


@FORMS
def test_the_state_is_value_by_key(form: Any) -> None:
    """Row 6 and the layout anchor of section 4."""
    out, state = form(*ANCHOR, scale=2**-0.5)
    np.testing.assert_allclose(out.ravel(), np.array([10, 20, 30]) / np.sqrt(2), rtol=1e-15)
    np.testing.assert_allclose(state[0, 0], [[10, 2], [20, 8], [30, 32]], rtol=1e-15)


@FORMS
def test_a_square_state_shows_a_transposition(form: Any) -> None:
    """Row 6: a transposed state gives out 1 2."""
    square = np.array([[[[1.0, 2.0], [4.0, 8.0]]]])
    inputs = ANCHOR._replace(key=np.array([[[0.0, 1.0]]]), value=np.array([[[10.0, 20.0]]]), initial_state=square)
    out, state = form(*inputs)
    assert (out.ravel().tolist(), state.ravel().tolist()) == ([1, 4], [1, 10, 4, 20])

    transposed, _ = form(*inputs._replace(initial_state=square.swapaxes(-1, -2)))
    assert transposed.ravel().tolist() == [1, 2]


@FORMS
def test_the_decay_starts_anew_with_each_sequence(form: Any) -> None:
    """Row 8: out[2] is -.82893 where the boundary is ignored."""
    assert run_base(form, base(-1.0, lengths=(2, 2)))[0][2:3] == printed(-0.90055)
    assert run_base(form, base(-1.0))[0][2:3] == printed(-0.82893)


@FORMS
@pytest.mark.parametrize("lengths", [(2, 0, 2), (0, 4), (4, 0), (0, 0, 4, 0)])
def test_an_empty_sequence_returns_its_state(form: Any, lengths: tuple[int, ...]) -> None:
    """Row 10."""
    inputs = base(-1.0, lengths=lengths)
    inputs.initial_state[:] = np.arange(2 * len(lengths)).reshape(-1, 1, 1, 2)
    _, state = form(*inputs)
    empty = np.array(lengths) == 0
    assert (state[empty] == inputs.initial_state[empty]).all()
    assert (state[~empty] != inputs.initial_state[~empty]).all()


@FORMS
def test_a_batch_may_be_empty_and_so_may_its_only_sequence(form: Any) -> None:
    for lengths in ((), (0,)):
        out, state = form(*random_delta_rule(0, lengths, (1, 2), (3, 4)))
        assert (out.shape, state.shape) == ((0, 2, 4), (len(lengths), 2, 4, 3))


def test_a_float32_state_does_not_depend_on_the_chunk_size() -> None:
    """Row 14: a state rounded to float16 after every chunk is off by 4.6e-4 (C = 16) and 2.2e-4 (C = 64)."""
    inputs = random_delta_rule(3, (1024,), (1, 1), (32, 32), mean_g=-0.016)
    assert within(errors(chunked(*inputs, dtype=F32, chunk=16), chunked(*inputs, dtype=F32, chunk=64)), 1e-6, 1e-6)
    assert errors(carried_in_float16(inputs, 16), carried_in_float16(inputs, 64))[1][1] > 1e-4


def carried_in_float16(inputs: Inputs, chunk: int) -> Results:
    outs, state = [], inputs.initial_state
    for at in range(0, len(inputs.query), chunk):
        query, key, value, beta = (each[at : at + chunk] for each in inputs[:4])
        g = None if inputs.g is None else inputs.g[at : at + chunk]
        out, state = chunked(query, key, value, beta, state.astype(np.float16), [len(query)], g, chunk=chunk)
        outs.append(out)
    return np.concatenate(outs), state


@FORMS
def test_a_value_above_float16_is_left_to_the_cast(form: Any) -> None:
    """Row 30: 80000 is inf in float16; a kernel may saturate by contract, and never wrap."""
    inputs = base(0.0, tokens=1)._replace(
        query=np.ones((1, 1, 2)), beta=np.zeros((1, 1)), initial_state=np.full((1, 1, 1, 2), 40000.0)
    )
    out, _ = form(*inputs)
    assert out.item() == 80000
    with np.errstate(over="ignore"):
        assert np.isposinf(out.astype(np.float16)).all()


# --- inputs that hide faults (section 2) ------------------------------------------------------------------------------


@FORMS
def test_trap_a_a_query_equal_to_its_unit_key_returns_the_value(form: Any) -> None:
    inputs = random_delta_rule(0, (9,), (1, 2), (4, 3), dtype=np.float64)
    beta = np.ones_like(inputs.beta)
    for state in (inputs.initial_state, 100 * inputs.initial_state):
        out, _ = form(*inputs._replace(query=inputs.key, beta=beta, initial_state=state), scale=0.5)
        np.testing.assert_allclose(out, 0.5 * inputs.value, rtol=0, atol=1e-12)


@FORMS
def test_trap_b_strong_decay_leaves_nothing_of_the_last_chunk(form: Any) -> None:
    def influence(mean_g: float) -> float:
        inputs = random_delta_rule(0, (64, 8), (1, 1), (16, 16), mean_g=mean_g)
        other = inputs._replace(initial_state=-inputs.initial_state)
        return float(np.abs(form(*inputs)[1][0] - form(*other)[1][0]).max())

    assert influence(-0.48) < 4e-13
    assert influence(-0.016) > 0.01


@FORMS
@pytest.mark.parametrize(("strength", "growth"), [(1.0, 0.0), (1.9, 0.9**64), (2.1, 1.1**64), (4.0, 3.0**64)])
def test_trap_c_a_key_with_beta_k_squared_above_2_expands(form: Any, strength: float, growth: float) -> None:
    """1.1**64 is 446, 3**64 is 3.4e30: keys are normalised, or the test measures that alone."""
    inputs = Inputs(
        query=np.ones((64, 1, 1)),
        key=np.full((64, 1, 1), strength**0.5),
        value=np.zeros((64, 1, 1)),
        beta=np.ones((64, 1)),
        initial_state=np.ones((1, 1, 1, 1)),
        lengths=np.array([64]),
    )
    assert form(*inputs)[1].item() == pytest.approx(growth, rel=1e-9, abs=1e-14)


@FORMS
def test_trap_d_a_symmetric_state_hides_its_transposition(form: Any) -> None:
    inputs = random_delta_rule(0, (9,), (1, 2), (4, 4))

    def shows(state: Array) -> bool:
        outs = [form(*inputs._replace(initial_state=each))[0] for each in (state, state.swapaxes(-1, -2))]
        return bool(np.abs(outs[0] - outs[1]).max() > 0.1)

    assert shows(inputs.initial_state)
    assert not shows(inputs.initial_state + inputs.initial_state.swapaxes(-1, -2))


@FORMS
@pytest.mark.parametrize(("heads", "shown"), [((1, 1), False), ((3, 3), False), ((1, 4), False), ((2, 4), True)])
def test_trap_e_as_many_value_heads_as_key_heads_hide_the_map(form: Any, heads: tuple[int, int], shown: bool) -> None:
    inputs, group = random_delta_rule(0, (9,), heads, (4, 3)), heads[1] // heads[0]
    query, key = inputs.query, inputs.key
    right = inputs._replace(query=np.repeat(query, group, axis=1), key=np.repeat(key, group, axis=1))
    wrong = inputs._replace(query=np.tile(query, (1, group, 1)), key=np.tile(key, (1, group, 1)))
    np.testing.assert_array_equal(form(*right)[0], form(*inputs)[0])
    assert (np.abs(form(*wrong)[0] - form(*inputs)[0]).max() > 0.1) == shown


def test_random_inputs_fall_into_no_trap() -> None:
    x = random_delta_rule(0, (20, 3), (2, 4), (16, 16), mean_g=-0.5, mask=0.5)
    assert x.g is not None
    assert np.abs(x.query - x.key).max(axis=2).min() > 0.1
    np.testing.assert_allclose(np.linalg.norm(x.key.astype(float), axis=2), 1, atol=1e-3)
    assert 0 < x.beta.min() < x.beta.max() < 1
    assert np.abs(x.initial_state - x.initial_state.swapaxes(-1, -2)).max() > 1
    assert [each.dtype for each in x if each is not None] == [np.dtype(n) for n in "eeeee"] + ["int32", "float32"]
    assert (x.g == 0).mean() == pytest.approx(0.5, abs=0.2)
    assert x.g[x.g != 0].mean() == pytest.approx(-0.5, abs=0.1)
    assert x.g[x.g != 0].max() < -0.25


def test_random_inputs_without_a_state_or_a_decay() -> None:
    x = random_delta_rule(0, (3,), (1, 1), (4, 4), mean_g=None, state="zero")
    assert x.g is None
    assert not x.initial_state.any()


# --- bad input --------------------------------------------------------------------------------------------------------

GOOD = random_delta_rule(0, (4, 3), (2, 4), (5, 6))
NAN_G = np.zeros((7, 4))
NAN_G[6, 3] = np.nan


@FORMS
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"value": GOOD.value[:, :3], "beta": GOOD.beta[:, :3]}, r"3 value heads cannot share 2 key heads evenly: Hv"),
        ({"value": GOOD.value[:, :1]}, r"1 value heads cannot share 2 key heads evenly"),
        ({"value": GOOD.value[:, :0]}, r"0 value heads cannot share 2 key heads evenly"),
        ({"query": GOOD.query[:, :0], "key": GOOD.key[:, :0]}, r"4 value heads cannot share 0 key heads evenly"),
        ({"lengths": [4, 4]}, r"lengths sum to 8, query has 7 tokens: pass lengths, not their running sum"),
        ({"lengths": [4, 2]}, r"lengths sum to 6, query has 7 tokens"),
        ({"lengths": [9, -2]}, r"lengths\[1\] is -2, the least is 0"),
        ({"lengths": [4.0, 3.0]}, r"lengths are float64, they count tokens: pass integers"),
        ({"lengths": 7}, r"lengths has shape \(\), it is \[B\]: 1 axes"),
        ({"lengths": [7]}, r"initial_state has shape \(2, 4, 6, 5\), expected \(1, 4, 6, 5\) beside .* 1 lengths"),
        ({"query": GOOD.query[:, 0]}, r"query has shape \(7, 5\), it is \[T, Hk, Dk\]: 3 axes"),
        ({"beta": GOOD.value}, r"beta has shape \(7, 4, 6\), it is \[T, Hv\]: 2 axes"),
        ({"key": GOOD.key[:6]}, r"key has shape \(6, 2, 5\), expected \(7, 2, 5\) beside query"),
        ({"value": GOOD.value[:6]}, r"value has shape \(6, 4, 6\), expected \(7, 4, 6\)"),
        ({"beta": GOOD.beta[:, :2]}, r"beta has shape \(7, 2\), expected \(7, 4\)"),
        ({"g": GOOD.beta[:, :2]}, r"g has shape \(7, 2\), expected \(7, 4\)"),
        (
            {"initial_state": GOOD.initial_state.swapaxes(-1, -2)},
            r"initial_state has shape \(2, 4, 5, 6\), expected \(2, 4, 6, 5\)",
        ),
        ({"g": NAN_G}, r"g\[6, 3\] is nan: pass finite numbers"),
        ({"g": NAN_G - np.inf}, r"g\[0, 0\] is -inf: pass finite numbers"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(form: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        form(**(GOOD._asdict() | wrong))


@FORMS
def test_options_out_of_range_are_refused(form: Any) -> None:
    with pytest.raises(ValueError, match=r"^scale is inf: pass finite"):
        form(*GOOD, scale=np.inf)
    with pytest.raises(ValueError, match=r"^the arithmetic is float64 or float32, got float16: round the inputs"):
        form(*GOOD, dtype=np.float16)


def test_a_chunk_holds_a_token() -> None:
    with pytest.raises(ValueError, match=r"^chunk is 0 tokens, the least is 1"):
        chunked(*GOOD, chunk=0)


def test_random_inputs_decay_and_never_grow() -> None:
    with pytest.raises(ValueError, match=r"^mean_g is 0\.1, mask 0\.0: "):
        random_delta_rule(0, (1,), (1, 1), (1, 1), mean_g=0.1)
    with pytest.raises(ValueError, match=r"^mean_g is -1, mask 2: "):
        random_delta_rule(0, (1,), (1, 1), (1, 1), mean_g=-1, mask=2)
