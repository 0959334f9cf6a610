"""What holds for the kernel's results without a reference beside them (facts 2): in bits where no rounding differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling

Array = Any
CLAUSE = pytest.mark.adr("0311", "2.5")
TOKENS = ("query", "key", "value", "beta", "g")


def bound(values: Array, results: int) -> Array:
    """What so many results that each pass the gate may be off together: an ulp + 2e-6 of the largest, each."""
    wide = np.abs(values.astype(np.float64))
    return results * (np.spacing(wide.astype(np.float16)).astype(np.float64) + 2e-6 * wide.max(initial=0))


def near(found: Array, wanted: Array, results: int = 2) -> None:
    off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    assert (off <= bound(wanted, results)).all(), off.max()


def same(one: Any, other: Any) -> None:
    assert one.out.tobytes() == other.out.tobytes()
    assert one.final_state.tobytes() == other.final_state.tobytes()


def of_tokens(inputs: Inputs, change: Callable[[Array], Array], **others: Any) -> Inputs:
    """The inputs with each array that has a row a token changed alike."""
    return replace(inputs, **{name: change(getattr(inputs, name)) for name in TOKENS}, **others)


def exact(delta: Any, tokens: int) -> Inputs:
    """Keys along the axes, beta 1/2 and values in eighths, without decay: float16 holds every state."""
    inputs, draw = delta.inputs((tokens,), dk=4, dv=4, decay=0.0), np.random.default_rng(1)
    keys = np.eye(4, dtype=np.float16)[np.arange(tokens) % 4][:, None]
    values, state = ((draw.integers(-16, 16, shape) / 8).astype(np.float16) for shape in ((tokens, 1, 4), (1, 1, 4, 4)))
    return replace(inputs, key=keys, value=values, beta=np.full((tokens, 1), 0.5, np.float16), initial_state=state)


@CLAUSE
@pytest.mark.parametrize("cut", [0, 1, 5, 12])
def test_a_sequence_in_two_parts_with_the_state_carried_is_the_whole(delta: Any, cut: int) -> None:
    inputs = exact(delta, 12)
    whole = delta.call(inputs)
    begun = delta.call(of_tokens(inputs, lambda rows: rows[:cut], lengths=(cut,)))
    rest = of_tokens(inputs, lambda rows: rows[cut:], lengths=(12 - cut,), initial_state=begun.final_state)
    ended = delta.call(rest)

    near(np.concatenate([begun.out, ended.out]), whole.out)
    assert ended.final_state.tobytes() == whole.final_state.tobytes()


@CLAUSE
@pytest.mark.parametrize("chunk", [16, 24, 64])
def test_any_chunk_size_gives_the_same(delta: Any, chunk: int) -> None:
    inputs, shape = delta.inputs((26,), dk=4, dv=4, decay=0.02), Shape((26,), 1, 1, 4, 4)
    short, other = (delta.call(inputs, tiling=tiling(shape, chunk=size)) for size in (8, chunk))

    near(other.out, short.out)
    near(other.final_state, short.final_state)


@CLAUSE
def test_twice_the_values_and_the_state_give_twice_the_results(delta: Any) -> None:
    inputs = delta.inputs((9,), dk=4, dv=4)
    doubled = replace(inputs, value=2 * inputs.value, initial_state=2 * inputs.initial_state)
    once, twice = delta.call(inputs), delta.call(doubled)

    same(replace(once, out=2 * once.out, final_state=2 * once.final_state), twice)


@CLAUSE
def test_results_of_a_sum_are_the_sum_of_results(delta: Any) -> None:
    """Values and states in eighths, so that their sums are exact."""
    inputs, draw = delta.inputs((9,), dk=4, dv=4), np.random.default_rng(2)

    def eighths() -> dict[str, Array]:
        shapes = {"value": inputs.value.shape, "initial_state": inputs.initial_state.shape}
        return {name: (draw.integers(-16, 16, shape) / 8).astype(np.float16) for name, shape in shapes.items()}

    one, other = eighths(), eighths()
    both = {name: one[name] + other[name] for name in one}
    first, second, summed = (delta.call(replace(inputs, **each)) for each in (one, other, both))

    for name in ("out", "final_state"):
        parts = getattr(first, name).astype(float), getattr(second, name).astype(float)
        off = np.abs(getattr(summed, name) - sum(parts))
        assert (off <= sum(bound(each, 1) for each in (*parts, getattr(summed, name)))).all()


@CLAUSE
@pytest.mark.parametrize("where", [0, 4, 9])
def test_tokens_without_beta_and_gate_change_no_bit(delta: Any, where: int) -> None:
    """Within a chunk: whatever their keys and values are, they add zeros."""
    inputs, noise = delta.inputs((9,), dk=4, dv=4), delta.inputs((3,), dk=4, dv=4, seed=1)
    silent = replace(noise, beta=np.zeros_like(noise.beta), g=np.zeros_like(noise.g))
    padded = {
        name: np.insert(getattr(inputs, name), [where] * 3, getattr(silent, name), axis=0)
        for name in TOKENS
    }  # fmt: skip
    outcome = delta.call(replace(inputs, **padded, lengths=(12,)))

    same(delta.call(inputs), replace(outcome, out=np.delete(outcome.out, [where, where + 1, where + 2], axis=0)))


@CLAUSE
def test_one_rotation_of_queries_keys_and_states_leaves_the_output(delta: Any) -> None:
    """By axes that change places and signs, which float16 holds; the state turns with them."""
    inputs, places, signs = delta.inputs((9,), dk=4, dv=4), [2, 0, 3, 1], np.array([1, -1, 1, -1], np.float16)
    turned = {name: signs * getattr(inputs, name)[..., places] for name in ("query", "key", "initial_state")}
    straight, other = delta.call(inputs), delta.call(replace(inputs, **turned))

    near(other.out, straight.out)
    near(other.final_state, signs * straight.final_state[..., places])


@CLAUSE
def test_without_beta_the_state_only_decays(delta: Any) -> None:
    inputs = delta.inputs((5, 4), hv=2, dk=4, dv=4, decay=0.3)
    outcome = delta.call(replace(inputs, beta=np.zeros_like(inputs.beta)))
    sums = np.array([each.sum(axis=0, dtype=np.float64) for each in np.split(inputs.g, [5])])

    near(outcome.final_state, np.exp(sums)[:, :, None, None] * inputs.initial_state, 1)


@CLAUSE
@pytest.mark.parametrize("gate", [True, False])
def test_without_values_and_states_everything_is_exactly_zero(delta: Any, gate: bool) -> None:
    inputs = delta.inputs((9, 2), hv=2, dk=4, dv=4, gate=gate)
    nothing = {name: np.zeros_like(getattr(inputs, name)) for name in ("value", "initial_state")}
    outcome = delta.call(replace(inputs, **nothing))

    assert not outcome.out.any()
    assert not outcome.final_state.any()


@CLAUSE
def test_with_width_1_it_is_a_recursion_of_numbers(delta: Any) -> None:
    inputs = delta.inputs((20,), dk=1, dv=1)
    columns = (getattr(inputs, name).ravel().astype(float) for name in TOKENS)
    state, wanted = float(inputs.initial_state.item()), []
    for q, k, v, beta, g in zip(*columns, strict=True):
        state = np.exp(g) * state
        state = state + beta * (v - state * k) * k
        wanted.append(state * q)
    outcome = delta.call(inputs)

    near(outcome.out.ravel(), np.array(wanted), 1)
    near(outcome.final_state.ravel(), np.array([state]), 1)


@CLAUSE
@pytest.mark.adr("0311", "1.3")
@pytest.mark.parametrize("order", [[1, 0, 2, 3], [1, 0, 3, 2]], ids=str)
def test_value_heads_of_a_key_head_may_change_places(delta: Any, order: list[int]) -> None:
    inputs = delta.inputs((5,), hk=2, hv=4, dk=4, dv=4)
    moved = {name: getattr(inputs, name)[:, order] for name in ("value", "beta", "initial_state", "g")}
    straight, other = delta.call(inputs), delta.call(replace(inputs, **moved))

    same(replace(straight, out=straight.out[:, order], final_state=straight.final_state[:, order]), other)


@pytest.mark.adr("0311", "1.3")
def test_value_heads_of_two_key_heads_may_not(delta: Any) -> None:
    inputs, order = delta.inputs((5,), hk=2, hv=4, dk=4, dv=4), [0, 2, 1, 3]
    moved = {name: getattr(inputs, name)[:, order] for name in ("value", "beta", "initial_state", "g")}
    straight, other = delta.call(inputs), delta.call(replace(inputs, **moved))

    assert other.out[:, [0, 3]].tobytes() == straight.out[:, [0, 3]].tobytes()
    assert (other.out[:, [2, 1]] != straight.out[:, [1, 2]]).any()
