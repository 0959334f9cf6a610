"""Results are the recurrence's, and nothing is found: any length, grouped heads, several sequences, both data paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench import assertions as ka
from pytest_kernbench import strategies as kst
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs, Outcome
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling, tiling_of_step


class ScalarPath(ChunkGatedDeltaRule):
    """Every copy but the float32 state's by GetValue and SetValue."""

    def KeysByDma(self) -> bool:
        return False

    def ValuesByDma(self, tile: Any) -> bool:
        return False


def same_bits(one: Outcome, other: Outcome) -> bool:
    pairs = ((one.out, other.out), (one.final_state, other.final_state))
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.adr("0311", "8.1")
@pytest.mark.parametrize("tokens", [1, 2, 3, 15, 16, 17, 33])
@pytest.mark.parametrize(("dk", "dv"), [(4, 4), (8, 20), (16, 16)])
def test_short_sequences(delta: Any, tokens: int, dk: int, dv: int) -> None:
    inputs = delta.inputs((tokens,), dk=dk, dv=dv, seed=tokens)

    delta.check(inputs, delta.call(inputs))


@pytest.mark.adr("0311", "2.2")
@pytest.mark.parametrize("tokens", [64, 65, 130])
def test_chunks_carry_the_state(delta: Any, tokens: int) -> None:
    inputs = delta.inputs((tokens,), dk=1, dv=2, decay=0.01, seed=tokens)

    delta.check(inputs, delta.call(inputs))


@pytest.mark.adr("0311", "2.2", "5.2")
@pytest.mark.parametrize("lengths", [(7,), (8,), (9,), (24,), (25,), (1, 17, 0, 8)])
def test_short_chunks_do(delta: Any, lengths: tuple[int, ...]) -> None:
    inputs = delta.inputs(lengths, hk=1, hv=2, dk=16, dv=20, decay=0.01)
    plan = tiling(Shape(lengths, 1, 2, 16, 20), chunk=8)

    delta.check(inputs, delta.call(inputs, tiling=plan))


@pytest.mark.adr("0311", "8.1")
@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 20), st.sampled_from([8, 16, 64]))
@settings(max_examples=8, deadline=None)
def test_any_length_of_any_small_width_in_any_chunks(delta: Any, tokens: int, dk: int, dv: int, chunk: int) -> None:
    inputs = delta.inputs((tokens,), dk=dk, dv=dv, seed=tokens)
    plan = tiling(Shape((tokens,), 1, 1, dk, dv), chunk=chunk)

    delta.check(inputs, delta.call(inputs, tiling=plan))


@pytest.mark.adr("0311", "8.1")
@given(kst.delta_rule(lengths=kst.varlen(most=9, sequences=2, tile=8), widths=(4, 12)), kst.schedules())
@settings(max_examples=12, deadline=None)
def test_any_inputs_under_any_schedule(delta: Any, inputs: kst.DeltaRule, schedule: kst.Schedule) -> None:
    given = Inputs(*inputs)
    delta.check(given, delta.call(given, **schedule._asdict()))


@pytest.mark.parametrize(
    ("dk", "dv"), [(128, 128), (64, 64), (80, 80), (100, 60), (60, 16), (16, 12), (80, 96)]
)  # fmt: skip
def test_widths(delta: Any, dk: int, dv: int) -> None:
    inputs = delta.inputs((3,), dk=dk, dv=dv)

    delta.check(inputs, delta.call(inputs, scale=dk**-0.5), dk**-0.5)


@pytest.mark.adr("0311", "1.3")
@pytest.mark.parametrize(("hk", "hv"), [(1, 1), (2, 4), (1, 4), (3, 3), (2, 10)])
def test_value_heads_share_key_heads_in_turn(delta: Any, hk: int, hv: int) -> None:
    inputs = delta.inputs((3,), hk, hv, dk=8, dv=16)

    delta.check(inputs, delta.call(inputs))


@pytest.mark.adr("0311", "1.4")
@pytest.mark.parametrize("lengths", [(3, 0, 2), (0, 5), (5, 0), (0, 0), (1, 9, 4, 7), (0,)])
def test_sequences_are_apart_and_an_empty_one_keeps_its_state(delta: Any, lengths: tuple[int, ...]) -> None:
    inputs = delta.inputs(lengths, hk=2, hv=4, dk=4, dv=8)
    outcome = delta.call(inputs)

    delta.check(inputs, outcome)
    for number, length in enumerate(lengths):
        if length == 0:
            assert np.array_equal(outcome.final_state[number], inputs.initial_state[number])


@pytest.mark.adr("0311", "1.2")
def test_without_a_gate_nothing_decays(delta: Any) -> None:
    inputs = delta.inputs((9,), hv=2, dk=16, dv=16, gate=False)
    outcome = delta.call(inputs)

    delta.check(inputs, outcome)
    assert same_bits(outcome, delta.call(replace(inputs, g=np.zeros((9, 2), np.float32))))


@pytest.mark.parametrize("decay", [0.0, 5e-4, 0.48, 48.0])
def test_gates_from_none_to_all(delta: Any, decay: float) -> None:
    inputs = delta.inputs((20,), dk=8, dv=8, decay=decay)

    delta.check(inputs, delta.call(inputs))


@pytest.mark.adr("0311", "5.3")
@pytest.mark.parametrize(("tokens", "dk", "dv"), [(3, 16, 16), (1, 80, 48), (9, 16, 16)])
def test_dma_and_scalar_path_give_the_same_bits(delta: Any, tokens: int, dk: int, dv: int) -> None:
    inputs, plan = delta.inputs((tokens,), hk=1, hv=2, dk=dk, dv=dv), tiling(Shape((tokens,), 1, 2, dk, dv), chunk=8)
    fast, slow = (delta.call(inputs, tiling=plan, variant=each) for each in (ChunkGatedDeltaRule, ScalarPath))

    assert same_bits(fast, slow)
    assert slow.run.log.where(unit="MTE2").bytes.sum() < fast.run.log.where(unit="MTE2").bytes.sum()


@pytest.mark.adr("0311", "5.3")
@pytest.mark.parametrize("hv", [1, 3])
def test_tiles_of_v_give_the_same_bits_as_one(delta: Any, hv: int) -> None:
    inputs = delta.inputs((2,), hv=hv, dk=16, dv=40)
    shape = Shape((2,), 1, hv, 16, 40)
    whole = delta.call(inputs)
    dealt = delta.call(inputs, tiling=tiling_of_step(shape, 16))
    in_turn = delta.call(inputs, tiling=tiling_of_step(shape, 16, cores=1))

    assert dealt.run.log.programs[-1] == f"block{min(3 * hv, 8) - 1}"
    assert in_turn.run.log.programs == ["block0"]
    assert same_bits(whole, dealt)
    assert same_bits(whole, in_turn)


@pytest.mark.adr("0311", "2.5")
def test_the_state_goes_from_call_to_call(delta: Any) -> None:
    """Split anywhere: half is what is lost."""
    inputs = delta.inputs((12,), dk=8, dv=8, decay=0.01)
    first, second = (slice(None, 5), slice(5, None))
    tokens = ("query", "key", "value", "beta", "g")
    parts = [replace(inputs, **{name: getattr(inputs, name)[part] for name in tokens}) for part in (first, second)]
    begun = delta.call(replace(parts[0], lengths=(5,)))
    ended = delta.call(replace(parts[1], lengths=(7,), initial_state=begun.final_state))

    whole = delta.call(inputs)
    assert same_bits(replace(whole, out=whole.out[:5]), replace(begun, final_state=whole.final_state))
    np.testing.assert_allclose(ended.final_state, whole.final_state, atol=2e-3)


def run_of(delta: Any, lengths: tuple[int, ...], dk: int, dv: int, **how: Any) -> Any:
    """The run in chunks of 8."""
    plan = tiling(Shape(lengths, 1, 1, dk, dv), chunk=8)
    return delta.call(delta.inputs(lengths, dk=dk, dv=dv), tiling=plan, **how).run


@pytest.mark.adr("0311", "6.1")
@pytest.mark.adr("0310", "3.11")
@pytest.mark.parametrize(
    ("lengths", "dk", "dv"), [((1, 0), 16, 16), ((2,), 4, 12), ((9,), 1, 2), ((9,), 16, 16)],
    ids=["dma", "scalar", "two chunks", "two chunks by dma"],
)  # fmt: skip
def test_no_schedule_changes_a_bit(delta: Any, lengths: tuple[int, ...], dk: int, dv: int) -> None:
    ka.assert_schedule_independent(
        lambda **how: run_of(delta, lengths, dk, dv, **how), ["out", "final_state"], seeds=range(1)
    )


def test_rows_that_no_token_has_are_not_there(delta: Any) -> None:
    outcome = delta.call(delta.inputs((0, 0), hv=2, dk=4, dv=4))

    assert outcome.out.shape == (0, 2, 4)
