"""Each suspected fault of the public version is found, as what it is; the mended kernel is right where it fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling, tiling_of_step
from pytest_kernbench.simulator.errors import KernelError, LivelockError

from .seeded import FAITHFUL, FaithfulOneSliceMore, OneSliceMore, TwoBuffers, counting_beta, infinite


def kinds(run: Any) -> set[str]:
    return {hazard.kind for hazard in run.hazards}


# 1: DotFp32


@pytest.mark.adr("0311", "6.2")
@pytest.mark.adr("0310", "3.5", "5.4")
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_sums_race_with_the_products_they_fall_on(delta: Any, schedule: str) -> None:
    inputs = delta.inputs((2,), dk=64, dv=16)
    run = delta.unchecked(inputs, Shape((2,), 1, 1, 64, 16), variant=FAITHFUL, schedule=schedule).run

    assert kinds(run) == {"race-raw", "illegal-overlap"}
    race, overlap = sorted(run.hazards, key=lambda hazard: hazard.kind, reverse=True)
    assert [op.name for op in race.ops] == ["Mul", "WholeReduceSum"]
    assert all("faithful.py" in str(op.site) for op in race.ops)
    assert "WholeReduceSum" in overlap.message and "overlap in part" in overlap.message


def test_the_race_is_wrong_by_value_under_some_schedule(delta: Any) -> None:
    inputs, shape = delta.inputs((3,), dk=64, dv=16), Shape((3,), 1, 1, 64, 16)
    right = delta.call(inputs)
    late = [delta.unchecked(inputs, shape, variant=FAITHFUL, schedule="late", seed=seed) for seed in range(2)]

    assert any(each.out.tobytes() != right.out.tobytes() for each in late)


class ProductsAreThere:
    """An `asc` that says the barrier which is missing."""

    def __init__(self, asc: Any) -> None:
        self.asc = asc

    def __getattr__(self, name: str) -> Any:
        return getattr(self.asc, name)

    def Mul(self, *operands: Any) -> None:
        self.asc.Mul(*operands)
        self.asc.PipeBarrier(self.asc.PIPE_V)


class SumsInPlace(FAITHFUL):
    """Half of the fault: the sums fall on the products, after these."""

    def DotFp32(self, one: Any, other: Any) -> Any:
        asc, self.asc = self.asc, ProductsAreThere(self.asc)
        try:
            return super().DotFp32(one, other)
        finally:
            self.asc = asc


@pytest.mark.adr("0311", "6.2")
@pytest.mark.parametrize("dk", [64, 80, 128])
def test_with_the_barrier_alone_the_sums_are_right_where_the_unit_reads_before_it_writes(delta: Any, dk: int) -> None:
    inputs, shape = delta.inputs((2,), dk=dk, dv=1), Shape((2,), 1, 1, dk, 1)
    outcome, right = (delta.unchecked(inputs, shape, variant=each) for each in (SumsInPlace, None))

    assert kinds(outcome.run) == {"illegal-overlap"}
    assert (outcome.out.tobytes(), outcome.final_state.tobytes()) == (right.out.tobytes(), right.final_state.tobytes())


def test_narrow_keys_have_no_sums_to_race(delta: Any) -> None:
    inputs = delta.inputs((3,), dk=16, dv=16)
    outcome = delta.unchecked(inputs, Shape((3,), 1, 1, 16, 16), variant=FAITHFUL)

    assert not outcome.run.hazards
    delta.check(inputs, outcome)


@pytest.mark.parametrize("tokens", [3, 9])
def test_a_narrower_last_tile_in_rows_of_the_others_width_gives_the_same(delta: Any, tokens: int) -> None:
    """One chunk or two; what fills the rows up reaches neither GM nor the state."""
    inputs, shape = delta.inputs((tokens,), dk=16, dv=48), Shape((tokens,), 1, 1, 16, 48)
    plan = tiling_of_step(shape, 32, cores=1, chunk=8)
    public, mended = (delta.unchecked(inputs, shape, variant=each, tiling=plan) for each in (FAITHFUL, None))

    assert not public.run.hazards
    assert public.out.tobytes() == mended.out.tobytes()
    assert public.final_state.tobytes() == mended.final_state.tobytes()
    delta.check(inputs, mended)


# 6.1: decays above the diagonal


def test_steep_gates_make_infinities_above_the_diagonal(delta: Any) -> None:
    inputs, shape = delta.inputs((5,), dk=16, dv=16, decay=48.0), Shape((5,), 1, 1, 16, 16)
    faithful = delta.unchecked(inputs, shape, variant=FAITHFUL)

    (found,) = faithful.run.hazards
    assert (found.kind, [op.name for op in found.ops]) == ("overflow", ["Exp"])
    assert "PrepareDecayAndExp" in found.message
    delta.check(inputs, faithful)  # nobody uses them
    assert not delta.call(inputs, check="collect").run.hazards


# 3: an empty sequence


@pytest.mark.adr("0311", "1.4")
def test_an_empty_sequence_leaves_its_final_state_unwritten(delta: Any) -> None:
    inputs = delta.inputs((3, 0, 2), dk=4, dv=4)
    faithful = delta.unchecked(inputs, Shape((3, 0, 2), 1, 1, 4, 4), variant=FAITHFUL)

    assert np.isnan(faithful.final_state[1]).all()  # the poison of memory that nothing has written
    assert np.isfinite(faithful.final_state[[0, 2]]).all()
    delta.check(inputs, delta.call(inputs))


# 5: ScalarExp


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_sum_of_gates_that_overflows_is_such_an_infinity(delta: Any) -> None:
    inputs, shape = delta.inputs((3,), dk=4, dv=4), Shape((3,), 1, 1, 4, 4)
    inputs = replace(inputs, g=np.full_like(inputs.g, -3e38))

    with pytest.raises(LivelockError, match="faithful"):
        delta.unchecked(inputs, shape, variant=FAITHFUL, max_ops=20_000)
    delta.unchecked(inputs, shape, max_ops=20_000)
    with pytest.raises(ValueError, match="its sum over the tokens of a head, is not finite"):
        delta.call(inputs)


@pytest.mark.adr("0310", "3.9")
def test_the_exponential_of_an_infinity_does_not_end(delta: Any) -> None:
    inputs, shape = infinite(delta.inputs((3,), dk=4, dv=4)), Shape((3,), 1, 1, 4, 4)

    with pytest.raises(LivelockError, match="faithful"):
        delta.unchecked(inputs, shape, variant=FAITHFUL, max_ops=20_000)
    assert np.isnan(delta.unchecked(inputs, shape, max_ops=20_000).final_state).all()  # -inf - -inf; it ends


@pytest.mark.parametrize("variant", [FAITHFUL, ChunkGatedDeltaRule])
@pytest.mark.parametrize("x", [0.0, -0.3, -1.0, -4.0, -16.0, -64.0, 2.5])
def test_the_exponential_is_right_to_a_few_ulp_a_halving(variant: Any, x: float) -> None:
    kernel = variant.__new__(variant)
    kernel.asc = Silent()
    found = kernel.ScalarExp(np.float32(x))

    assert isinstance(found, np.float32)
    assert abs(float(found) / np.exp(x) - 1) <= 3e-7 * max(abs(x), 1)


class Silent:
    """An `asc` for the scalar unit alone."""

    def GetBlockIdx(self) -> int:
        return 0


@pytest.mark.parametrize(("x", "wanted"), [(-np.inf, 0.0), (np.inf, np.inf), (-95.0, 0.0)])
def test_the_mended_exponential_ends(x: float, wanted: float) -> None:
    kernel = ChunkGatedDeltaRule.__new__(ChunkGatedDeltaRule)

    with np.errstate(over="ignore"):
        assert kernel.ScalarExp(np.float32(x)) == wanted


# 7 and 9: heads and lengths


@pytest.mark.adr("0311", "1.3")
def test_a_head_ratio_that_is_not_whole_reads_behind_the_keys(delta: Any) -> None:
    inputs = delta.inputs((2,), hk=2, hv=5, dk=16, dv=4)

    with pytest.raises(KernelError, match="takes") as caught:
        delta.unchecked(inputs, Shape((2,), 2, 5, 16, 4), variant=FAITHFUL)
    assert caught.value.hazard.kind == "out-of-bounds"


def test_more_key_heads_than_value_heads_are_taken_one_by_one(delta: Any) -> None:
    """Nothing is found, and half of the keys are not used: only a check of the sizes tells."""
    inputs = delta.inputs((3,), hk=4, hv=2, dk=4, dv=4)
    outcome = delta.unchecked(inputs, Shape((3,), 4, 2, 4, 4), variant=FAITHFUL)

    assert not outcome.run.hazards
    delta.check(replace(inputs, query=inputs.query[:, :2], key=inputs.key[:, :2]), outcome)


@pytest.mark.parametrize("lengths", [(3, 3), (4, -1)], ids=str)
def test_lengths_that_are_too_many_or_negative_leave_the_tensors(delta: Any, lengths: tuple[int, ...]) -> None:
    with pytest.raises(KernelError) as caught:
        delta.unchecked(of_lengths(delta, lengths), Shape(lengths, 1, 1, 4, 4), variant=FAITHFUL)
    assert caught.value.hazard.kind == "out-of-bounds"


def test_a_negative_length_in_front_takes_every_item_out_of_the_shares(delta: Any) -> None:
    outcome = delta.unchecked(of_lengths(delta, (-2, 5)), Shape((-2, 5), 1, 1, 4, 4), variant=FAITHFUL)

    assert not outcome.run.hazards
    assert np.isnan(outcome.final_state).all() and np.isnan(outcome.out).all()


def of_lengths(delta: Any, lengths: tuple[int, ...]) -> Any:
    """Three tokens, whatever the lengths say."""
    return replace(delta.inputs((3, 0), dk=4, dv=4), lengths=lengths)


def test_a_tiling_of_another_shape_goes_unnoticed_until_it_leaves_a_tensor(delta: Any) -> None:
    inputs, other = delta.inputs((3,), dk=4, dv=4), Shape((3,), 1, 1, 8, 4)

    with pytest.raises(KernelError) as caught:
        delta.unchecked(inputs, Shape((3,), 1, 1, 4, 4), tiling=tiling(other), variant=FAITHFUL)
    assert caught.value.hazard.kind == "out-of-bounds"


# 11, 12, 13: one account of UB


@pytest.mark.adr("0311", "10.3")
@pytest.mark.adr("0310", "2.4")
def test_all_the_rest_of_ub_leaves_nothing_for_the_runtime(delta: Any) -> None:
    """GetCoreMemSize says 262144, and 8 KB of it are the runtime's."""
    inputs, shape, reserved = delta.inputs((1,), dk=4, dv=4), Shape((1,), 1, 1, 4, 4), {"ub_usable": 253_952}

    with pytest.raises(KernelError, match=r"UB has 253952 bytes, 2048 are taken, 260096 more were asked for"):
        delta.unchecked(inputs, shape, variant=FAITHFUL, tiling=tiling(shape, ub=262_144), spec=reserved)
    delta.check(inputs, delta.call(inputs, spec=reserved))  # the mended host asks for what the core has


@pytest.mark.adr("0311", "10.3")
def test_a_second_buffer_that_the_host_does_not_know_of_overruns_ub(delta: Any) -> None:
    inputs, shape = delta.inputs((2,), dk=4, dv=4), Shape((2,), 1, 1, 4, 4)

    with pytest.raises(KernelError, match=r"UB has 262144 bytes, 4096 are taken, 260096 more were asked for"):
        delta.unchecked(inputs, shape, variant=TwoBuffers)
    delta.check(inputs, delta.call(inputs, tiling=tiling(shape, buffer_num=2)))


@pytest.mark.adr("0311", "3.2")
@pytest.mark.adr("0310", "4.7")
def test_one_slice_more_lies_on_the_last_one(delta: Any) -> None:
    inputs, shape = delta.inputs((2,), dk=4, dv=4), Shape((2,), 1, 1, 4, 4)
    plan = counting_beta(tiling(shape))
    mended, faithful = (
        delta.unchecked(inputs, shape, tiling=plan, variant=each).run for each in (OneSliceMore, FaithfulOneSliceMore)
    )

    assert not mended.hazards
    assert kinds(faithful) == {"tiling-mismatch"}
    assert f"the host planned {plan.tmp_bytes} bytes, the kernel carved {plan.tmp_bytes - 256}" in str(faithful.hazards)
