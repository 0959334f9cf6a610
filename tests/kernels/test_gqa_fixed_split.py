"""With fixed splits the bits of O and of the log-sum-exp are the same on any number of PEs, from any PE on."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.gqa_fixed_split import canonical, splits_of
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec

SMALL = {"group": 4, "d": 32, "d_v": 32}
SCHEDULES = ["model", "jitter", "late"]


@pytest.fixture
def fixed(attend):
    """`fixed(case, n, split=..., tile=..., spec=..., run={...}) -> Outcome`"""

    def run(each, n, *, split=32, tile=16, spec=None, run=None, **options):
        chip = AhbmChip(spec)
        mesh = (chip.spec.mesh_rows, chip.spec.mesh_cols)
        launch = driver.decode_fixed_split(
            chip, each.problem, n, tile=tile, split=split, mesh=mesh, lse=True, **options
        )
        return attend(chip, launch, **(run or {}))

    return run


@pytest.fixture
def fixed_batch(attend):
    """`fixed_batch([case, ...], n, split=..., tile=...) -> Outcome`"""

    def run(cases, n, *, split=16, tile=8, **options):
        chip = AhbmChip()
        problems = [each.problem for each in cases]
        launch = driver.decode_fixed_split_batch(chip, problems, n, tile=tile, split=split, lse=True, **options)
        return attend(chip, launch)

    return run


def bits(outcome):
    return outcome.outputs[0].tobytes(), outcome.run.array("lse").tobytes()


@pytest.mark.adr("0060", "5.6")
@pytest.mark.parametrize("kv_len", [1, 31, 32, 33, 200, 257])
def test_every_number_of_pes_gives_the_same_bits(fixed, case, kv_len):
    each = case(kv_len=kv_len, **SMALL)
    outcomes = [fixed(each, n, start_pe=n // 2) for n in range(1, 9)]

    assert len({bits(outcome) for outcome in outcomes}) == 1
    each.check(outcomes[0].outputs[0])
    for outcome in outcomes:
        ka.assert_queues_drained(outcome.run)


def test_the_split_decode_that_is_not_fixed_does_not(split, case):
    """What the mode is for: round robin gives every PE other keys, so other sums."""
    each = case(kv_len=257, **SMALL)

    assert len({split([each], n).outputs[0].tobytes() for n in range(1, 9)}) > 1


@pytest.mark.adr("0060", "5.6")
@pytest.mark.parametrize("n", [1, 2, 8])
def test_no_tokens_give_zeros_and_a_log_sum_exp_of_minus_infinity(fixed, case, n):
    outcome = fixed(case(kv_len=1, **SMALL).without_keys(), n)

    assert (outcome.outputs[0].astype(float) == 0).all()
    assert (outcome.run.array("lse") == float("-inf")).all()


@pytest.mark.adr("0060", "5.6")
@pytest.mark.parametrize(("rows", "cols"), [(4, 2), (1, 8), (3, 3), (4, 4)])
def test_other_meshes_give_the_same_bits(fixed, case, rows, cols):
    each = case(kv_len=300, **SMALL)
    spec = AhbmSpec(mesh_rows=rows, mesh_cols=cols)

    assert bits(fixed(each, rows * cols, spec=spec)) == bits(fixed(each, 3))


@pytest.mark.adr("0060", "5.6", "11.8")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_schedule_changes_a_bit(fixed, case, schedule):
    each = case(kv_len=300, **SMALL)

    assert bits(fixed(each, 5, run={"schedule": schedule, "seed": 3})) == bits(fixed(each, 8))


@pytest.mark.adr("0060", "5.6", "11.1")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_request_has_the_same_right_bits_on_two_groups(fixed, case, data):
    draw = data.draw
    t_q, heads = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    variant = draw(st.sampled_from([{}, {"window": 7}, {"softcap": 2.0}, {"dtype": "float32"}]))
    each = case(kv_len=draw(st.integers(t_q, 260)), t_q=t_q, heads=heads, **SMALL, **variant)
    sizes = {"split": draw(st.sampled_from([16, 24, 64])), "tile": draw(st.sampled_from([8, 16, 50]))}
    layout = draw(st.sampled_from(["head", "token"]))
    groups = draw(st.lists(st.integers(1, 8), min_size=2, max_size=2, unique=True))
    one, two = (fixed(each, n, start_pe=draw(st.integers(0, n - 1)), layout=layout, **sizes) for n in groups)

    each.check(one.outputs[0])
    assert bits(one) == bits(two)


def test_an_edge_carries_only_states_that_wait_for_their_other_half(fixed, case):
    """9 splits on 3 PEs: {0 3 6}, {1 4 7}, {2 5 8}; one PE's halves meet nowhere, so all three states travel."""
    run = fixed(case(kv_len=9 * 32, structure=True, **SMALL), 3).run

    assert [len(run.log.where(name="send", program=rank)) for rank in range(3)] == [9, 9, 0]


@pytest.mark.adr("0060", "5.6", "11.5")
def test_scratch_of_one_pe_grows_by_a_state_when_the_context_doubles(fixed, case):
    """Merged states leave theirs to the next; without that 64K tokens in splits of 256 did not fit (R36)."""
    state = 4 * (4 * 32 + 64)  # O [4, 32], and m and l, which take 64 bytes each: allocations are aligned
    high = [fixed(case(kv_len=32 * count, structure=True, **SMALL), 1).run.scratch_high_water for count in (32, 64)]

    assert high[1] - high[0] <= state


@pytest.mark.adr("0060", "5.6", "11.5")
@pytest.mark.parametrize("n", [1, 8])
def test_a_long_context_fits_the_scratch(fixed, case, n):
    run = fixed(case(kv_len=65536, structure=True), n, split=256, tile=256).run

    assert run.scratch_high_water < 1 << 19


VARIANTS = [
    {"sinks": [-0.5, 0.5, 1.5, 2.5]},
    {"sinks": [-0.5, 0.5, 1.5, 2.5], "t_q": 5, "window": 40, "softcap": 3.0},
    {"d": 48, "d_v": 24},
    {"group": 1, "heads": 2},
    {"group": 16},
]


@pytest.mark.adr("0060", "5.6", "4", "11.1")
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_variants_match_the_oracle_and_sinks_count_once(fixed, case, variant, n):
    each = case(kv_len=150, sd=1.0, **{**SMALL, **variant})
    outcome = fixed(each, n)

    each.check(outcome.outputs[0])
    each.check_lse(outcome.run.array("lse").reshape(each.answer[1].shape))


@pytest.mark.adr("0060", "5.6", "11.4")
@pytest.mark.parametrize("n", [1, 3])
def test_skipping_changes_no_bit(fixed, case, n):
    each = case(kv_len=150, t_q=20, window=40, **SMALL)
    skipped, masked = (fixed(each, n, skip=skip) for skip in (True, False))

    assert bits(skipped) == bits(masked)
    assert len(skipped.log.where(name="composite")) < len(masked.log.where(name="composite"))


@pytest.mark.parametrize(("start_pe", "shares"), [(0, [[0, 3, 6], [1, 4], [2, 5]]), (1, [[2, 5], [0, 3, 6], [1, 4]])])
def test_splits_are_dealt_in_the_order_of_the_ranks_from_the_first_on(start_pe, shares):
    assert [list(splits_of(rank, start_pe, 7, 3)) for rank in range(3)] == shares


@given(count=st.integers(1, 70), n=st.integers(1, 9), start_pe=st.integers(0, 8))
def test_what_a_group_holds_together_is_the_whole_and_nothing_twice(count, n, start_pe):
    shares = [splits_of(rank, start_pe % n, count, n) for rank in range(n)]
    assert sorted(number for share in shares for number in share) == list(range(count))

    (top,) = canonical(range(count), count)
    assert top[1] == 0 and 1 << top[0] >= count
    for share in shares:
        covered = [
            number
            for level, index in canonical(share, count)
            for number in range(index << level, min((index + 1) << level, count))
        ]
        assert sorted(covered) == list(share)


@pytest.mark.adr("0060", "5.6")
@pytest.mark.parametrize("layout", ["head", "token"])
def test_every_request_of_a_batch_has_the_bits_that_it_has_alone(fixed, fixed_batch, case, layout):
    sizes = [(50, 1), (129, 3), (7, 2), (64, 1)]
    cases = [case(kv_len=kv, t_q=t_q, heads=2, seed=seed, **SMALL) for seed, (kv, t_q) in enumerate(sizes)]
    batches = [fixed_batch(cases, n, layout=layout) for n in (1, 3, 8)]

    for number, each in enumerate(cases):
        alone = fixed(each, 2, split=16, tile=8, layout=layout).outputs[0]
        each.check(alone)
        assert {batch.outputs[number].tobytes() for batch in batches} == {alone.tobytes()}


@pytest.mark.adr("0060", "5.6")
def test_a_request_without_tokens_in_a_batch_gives_zeros(fixed_batch, case):
    one = case(kv_len=40, **SMALL)
    outcome = fixed_batch([one, one.without_keys()], 3)

    one.check(outcome.outputs[0])
    assert (outcome.outputs[1].astype(float) == 0).all()
