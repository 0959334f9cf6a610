"""Public faults of the gated delta rule, each seeded into the kernel by its smallest edit, and what sees it (facts 6).

Oracles: *value*, the results against the recurrence and the facts' own numbers; *checker*, a finding or a refusal;
*property*, which needs no reference. What only a value shows runs with every checker on, and none has a finding.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import checked
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling, tiling_of_step
from pytest_kernbench.kernels.reference.delta_rule import random_delta_rule, recurrent
from pytest_kernbench.simulator.errors import KernelError

from .seeded import (
    AllRowsOfKeys,
    CompactChunks,
    HalvesBetweenChunks,
    KeysFirst,
    LastRowNotWritten,
    LastRowOfTheChunk,
    LastRowUnsigned,
    MaskAfterExp,
    NoGateNoUpdate,
    OneSequence,
    SafeExp,
    StateOverScores,
    SumAcrossSequences,
    Unsized,
    Wrapping,
    after_a_chunk_of_nothing,
    base,
    halves,
    one_token,
    poisoned,
    rows_as_they_are,
)

Array = Any
PAGE = Path(__file__).parents[3] / "docs/delta_rule.md"
SCALE = 2**-0.5
RIGHT = {  # out and state of the base case by its constant g
    -1.0: ([0.52026, 0.52422, -0.82893, 1.57291], [1.52079, 1.67966]),
    0.0: ([1.41421, 0.66468, -0.99278, 2.20193], [1.64880, 2.99160]),
    -45.0: ([0.0, 0.42426, -0.84853, 1.41421], [1.6, 1.2]),
}


def close(found: Array, wanted: Any) -> bool:
    """Within what inputs and outputs of float16 leave of the facts' numbers."""
    return bool(np.allclose(found.ravel().astype(float), wanted, rtol=0, atol=2e-3))


# 1


@pytest.mark.adr("0311", "2.4")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_1_a_mask_behind_the_exponential_makes_nan(delta: Any) -> None:
    """Checker and value, and only where (L - 1) |g| is above 88.7."""
    steep, shape = base(-45.0), Shape((4,), 1, 1, 2, 1)
    broken, mended = (delta.unchecked(steep, shape, variant=each, scale=SCALE) for each in (MaskAfterExp, None))
    clean = delta.call(base(-29.0), variant=MaskAfterExp, scale=SCALE)

    assert np.isnan(broken.out).any()
    assert {hazard.kind for hazard in broken.run.hazards} == {"overflow"}, "infinity times 0 is the scalar unit's"
    assert np.isfinite(clean.out).all(), "3 * 29 is 87"
    assert not mended.run.hazards
    assert close(mended.out, RIGHT[-45.0][0]) and close(mended.final_state, RIGHT[-45.0][1])


# 3


@pytest.mark.adr("0311", "2.2")
def test_3_a_safe_exponential_drops_what_does_not_decay(delta: Any) -> None:
    """Value, at g = 0: gates that decay hide most of it."""
    broken, mended = (delta.call(base(0.0), variant=each, scale=SCALE) for each in (SafeExp, ChunkGatedDeltaRule))

    assert close(broken.out[1], 0.70711) and close(broken.final_state, [1.74, 3.02])
    assert close(mended.out, RIGHT[0.0][0]) and close(mended.final_state, RIGHT[0.0][1])


# 5


@pytest.mark.adr("0311", "2.3")
def test_5_the_last_gate_is_not_that_of_the_last_row(delta: Any) -> None:
    """Value: slot 7 holds what the chunk before left."""
    inputs = after_a_chunk_of_nothing(base(-1.0, tokens=3))
    plan = tiling(Shape((11,), 1, 1, 2, 1), chunk=8)
    broken, mended = (
        delta.call(inputs, variant=each, scale=SCALE, tiling=plan) for each in (LastRowOfTheChunk, ChunkGatedDeltaRule)
    )

    assert close(mended.final_state, [0.27273, 1.66990])
    assert not close(broken.final_state, [0.27273, 1.66990])
    assert close(broken.out[8:], RIGHT[-1.0][0][:3]), "outputs are right: only the state is carried on wrong"


def test_5_in_a_first_chunk_nothing_is_there(delta: Any) -> None:
    """Checker: slot 7 holds what nothing has written."""
    inputs, shape = base(-1.0, tokens=3), Shape((3,), 1, 1, 2, 1)
    run = delta.unchecked(inputs, shape, variant=LastRowOfTheChunk, tiling=tiling(shape, chunk=8), scale=SCALE).run

    assert "uninitialised-read" in {hazard.kind for hazard in run.hazards}


@pytest.mark.adr("0311", "2.3")
def test_5_rows_behind_the_last_token_are_padding(delta: Any) -> None:
    """Checker where they are another sequence's or nobody's; value where 1e4 and -7 lie there."""
    inputs = poisoned(base(-1.0, tokens=3))
    shape = Shape((3,), 1, 1, 2, 1)
    plan = tiling(shape, chunk=8)
    broken = delta.unchecked(inputs, shape, variant=Unsized.of(AllRowsOfKeys), tiling=plan, scale=SCALE)
    mended = delta.unchecked(inputs, shape, variant=Unsized, tiling=plan, scale=SCALE)

    assert broken.run.hazards
    assert not close(broken.final_state, [0.27273, 1.66990])
    assert not mended.run.hazards
    assert close(mended.final_state, [0.27273, 1.66990])


# 6


@pytest.mark.adr("0311", "1.1", "2.1", "5.2")
def test_6_the_anchor_of_the_layout(delta: Any) -> None:
    """Value. Queries that are keys hide the state from the output: the final state tells."""
    anchor = one_token([1, 0], [1, 0], [10, 20, 30], [[1, 2], [4, 8], [16, 32]])
    broken, mended = (delta.call(anchor, variant=each, scale=SCALE) for each in (KeysFirst, ChunkGatedDeltaRule))

    assert np.allclose(mended.out.ravel(), np.array([10, 20, 30]) * SCALE, rtol=1e-3)
    assert mended.final_state.ravel().tolist() == [10, 2, 20, 8, 30, 32]
    assert close(broken.out, mended.out.ravel())
    assert broken.final_state.ravel().tolist() != [10, 2, 20, 8, 30, 32]


@pytest.mark.adr("0311", "1.1", "5.2")
def test_6_a_square_state_is_not_its_transpose(delta: Any) -> None:
    """Value: no shape tells a square state's layout."""
    square = one_token([1, 0], [0, 1], [10, 20], [[1, 2], [4, 8]])
    broken, mended = (delta.call(square, variant=each) for each in (KeysFirst, ChunkGatedDeltaRule))

    assert (mended.out.ravel().tolist(), mended.final_state.ravel().tolist()) == ([1, 4], [1, 10, 4, 20])
    assert broken.out.ravel().tolist() == [1, 2]


@pytest.mark.parametrize("state", [[[0, 0], [0, 0]], [[1, 2], [2, 5]]], ids=["zero", "symmetric"])
def test_6_states_that_hide_it(delta: Any, state: Any) -> None:
    hidden = one_token([1, 0], [0, 1], [10, 20], state)
    broken, mended = (delta.call(hidden, variant=each) for each in (KeysFirst, ChunkGatedDeltaRule))

    assert broken.out.tobytes() == mended.out.tobytes()


# 8


@pytest.mark.adr("0311", "1.4", "2.2")
def test_8_a_sequence_begins_anew(delta: Any) -> None:
    """Value: both faults are right in the first sequence."""
    inputs = replace(base(-1.0), lengths=(2, 2), initial_state=halves([1, 2, 1, 2], 2, 1, 1, 2))
    mended, across = (
        delta.call(inputs, variant=each, scale=SCALE) for each in (ChunkGatedDeltaRule, SumAcrossSequences)
    )
    ignored = delta.unchecked(inputs, Shape((2, 2), 1, 1, 2, 1), variant=OneSequence, scale=SCALE)

    assert close(mended.out[2], -0.90055)
    assert close(ignored.out[2], -0.82893)
    assert not close(across.out[2], -0.90055)
    assert all(close(each.out[:2], RIGHT[-1.0][0][:2]) for each in (mended, across, ignored))
    assert np.isnan(ignored.final_state[1]).all()


# 10


@pytest.mark.adr("0311", "1.4")
def test_10_a_sequence_without_tokens_in_the_middle(delta: Any) -> None:
    """Value of the next sequence's state; a checker where the underflow leaves the tensor."""
    inputs, shape = delta.inputs((2, 0, 2), dk=16, dv=1), Shape((2, 0, 2), 1, 1, 16, 1)
    mended = delta.call(inputs)
    compact = delta.unchecked(inputs, shape, variant=CompactChunks)

    assert mended.final_state[1].tobytes() == inputs.initial_state[1].tobytes()
    assert not np.array_equal(compact.final_state[1], inputs.initial_state[1])
    assert np.isnan(compact.final_state[2]).all()
    with pytest.raises(KernelError, match="DataCopy") as caught:
        delta.unchecked(inputs, shape, variant=LastRowUnsigned)
    assert caught.value.hazard.kind == "out-of-bounds"


# 14


def carried(delta: Any, variant: Any, chunk: int) -> Array:
    """The float32 state behind 16 of 17 tokens, as the last chunk reads it."""
    inputs, shape = delta.inputs((17,), dk=4, dv=8, decay=0.01), Shape((17,), 1, 1, 4, 8)
    return delta.call(inputs, variant=variant, tiling=tiling(shape, chunk=chunk)).run.array("workspace")


@pytest.mark.adr("0311", "5.2", "8.3")
def test_14_a_state_in_halves_depends_on_the_chunks(delta: Any) -> None:
    """Property: the state does not know how long chunks are."""
    mended, broken = (
        [carried(delta, each, chunk) for chunk in (8, 16)] for each in (ChunkGatedDeltaRule, HalvesBetweenChunks)
    )
    largest = np.abs(mended[0]).max()

    assert np.abs(mended[0] - mended[1]).max() <= 1e-6 * largest
    assert np.abs(broken[0] - broken[1]).max() > 2e-5 * largest


# 16


@pytest.mark.adr("0311", "1.2")
def test_16_without_a_gate_the_state_is_updated(delta: Any) -> None:
    """Value; the outputs of one chunk do not tell."""
    broken, mended = (
        delta.call(base(None), variant=each, scale=SCALE) for each in (NoGateNoUpdate, ChunkGatedDeltaRule)
    )

    assert close(mended.out, RIGHT[0.0][0]) and close(mended.final_state, RIGHT[0.0][1])
    assert close(broken.out, RIGHT[0.0][0]) and close(broken.final_state, [1, 2])
    assert close(delta.call(base(0.0), variant=NoGateNoUpdate, scale=SCALE).final_state, RIGHT[0.0][1])


# 23


@pytest.mark.adr("0310", "4.5")
@pytest.mark.adr("0311", "4.1", "4.2")
def test_23_a_second_tile_takes_the_state_for_scores(delta: Any) -> None:
    """Checker, and value of all tiles but the first."""
    inputs, shape = delta.inputs((3,), dk=32, dv=48), Shape((3,), 1, 1, 32, 48)
    plan = tiling_of_step(shape, 16, cores=1)
    broken, mended = (delta.unchecked(inputs, shape, variant=each, tiling=plan) for each in (StateOverScores, None))
    off = np.abs(broken.out.astype(float) - mended.out).reshape(3, 3, 16).max(axis=(0, 2))

    assert {hazard.kind for hazard in broken.run.hazards} == {"live-alias"}
    assert any("reads as chunkScoresFp32 what stateInFp32," in hazard.message for hazard in broken.run.hazards)
    assert off[0] == 0
    assert off[1] > 0.1 and off[2] > 0.1
    delta.check(inputs, mended)


# 24


@pytest.mark.adr("0311", "3.2", "10.3")
def test_24_rows_that_the_host_does_not_round_are_beyond_ub(delta: Any) -> None:
    """Checker: 1024 bytes too many."""
    inputs, shape = delta.inputs((1,), dk=100, dv=128), Shape((1,), 1, 1, 100, 128)
    plan = rows_as_they_are(tiling(shape))

    with pytest.raises(KernelError, match=r"UB has 262144 bytes, 26624 are taken, 236544 more were asked for"):
        delta.unchecked(inputs, shape, tiling=plan)
    assert 26_624 + 236_544 == 262_144 + 1_024
    assert 26_624 + tiling(shape).ub_rest_bytes == 262_144


# 27


def inverse_of(keys: Array, beta: float = 0.5) -> Array:
    length = len(keys)
    return np.linalg.inv(np.eye(length) + np.tril(beta * keys @ keys.T, -1))


def test_27_keys_are_normalised_or_the_solution_explodes(delta: Any) -> None:
    """No fault of a kernel: random keys that are not of length 1 make a state of thousands."""
    unit = random_delta_rule(0, (64,), (1, 1), (16, 16)).key[:, 0].astype(float)
    wild = np.random.default_rng(0).standard_normal((64, 16))
    inputs = delta.inputs((20,), dk=16, dv=1)
    outcome = delta.call(replace(inputs, key=halves(wild[:20], 20, 1, 16)))

    assert np.allclose(np.linalg.norm(unit, axis=1), 1, atol=1e-3)
    assert np.abs(inverse_of(unit)).max() <= 1.01
    assert np.abs(inverse_of(wild)).max() > 1e7
    assert np.abs(outcome.final_state).max() > 1e3
    mended = delta.call(inputs)
    assert np.abs(mended.final_state).max() < 10
    delta.check(inputs, mended)


# 29


@pytest.mark.adr("0311", "1.1")
def test_29_what_nobody_wrote_is_nan(delta: Any) -> None:
    """Value: outputs hold NaN before a launch. Rows that no sequence has are refused by the host."""
    inputs = delta.inputs((3, 2), dk=4, dv=4)
    broken, mended = (
        delta.unchecked(inputs, Shape((3, 2), 1, 1, 4, 4), variant=each) for each in (LastRowNotWritten, None)
    )

    assert np.isnan(broken.out[[2, 4]]).all() and np.isfinite(broken.out[[0, 1, 3]]).all()
    assert np.isfinite(mended.out).all() and np.isfinite(mended.final_state).all()
    with pytest.raises(ValueError, match="lengths add up to 4 tokens, query has 5"):
        checked(replace(inputs, lengths=(2, 2)))


# 30


@pytest.mark.adr("0311", "8.4")
@pytest.mark.parametrize("sign", [1, -1])
def test_30_beyond_float16_is_infinity(delta: Any, sign: int) -> None:
    """Value, and a checker that names the cast: what wraps around is no infinity, and only its value tells."""
    inputs = replace(one_token([1, 1], [1, 0], [0], [[sign * 40_000] * 2]), beta=halves([0], 1, 1))
    broken = delta.call(inputs, variant=Wrapping)
    mended = delta.unchecked(inputs, Shape((1,), 1, 1, 2, 1))

    assert mended.out.ravel().tolist() == [sign * np.inf]
    assert [(hazard.kind, hazard.ops[0].name) for hazard in mended.run.hazards] == [("overflow", "Cast")]
    assert np.isfinite(broken.out).all()


# The base case itself


@pytest.mark.adr("0311", "2.1", "2.2")
@pytest.mark.parametrize("g", RIGHT)
def test_the_base_case_has_the_facts_numbers_in_both(delta: Any, g: float) -> None:
    inputs, (out, state) = base(g), RIGHT[g]
    found = delta.call(inputs, scale=SCALE)
    reference = recurrent(**inputs.arrays(), lengths=inputs.lengths, scale=SCALE)

    assert close(found.out, out) and close(found.final_state, state)
    assert close(reference[0], out) and close(reference[1], state)
    delta.check(inputs, found, SCALE)


def test_the_page_lists_the_faults_that_are_seeded_here() -> None:
    """As the facts number them."""
    section = PAGE.read_text(encoding="utf-8").partition("## Faults")[2].partition("Suspected in")[0]
    seeded = {int(name.split("_")[1]) for name in globals() if re.match(r"test_\d+_", name)}

    assert seeded == {1, 3, 5, 6, 8, 10, 14, 16, 23, 24, 27, 29, 30}
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == seeded
