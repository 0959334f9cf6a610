"""Decode matches the oracle for shapes that nobody picked, under every schedule."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench import assertions as ka


@st.composite
def shapes(draw):
    """A decode problem: group and heads differ, tiles of any width, contexts shorter than the PEs that share them."""
    n = draw(st.sampled_from([1, 2, 3, 5, 8]))
    group = draw(st.sampled_from([1, 2, 4, 8]))
    return {
        "n": n,
        "group": group,
        "heads": draw(st.integers(1, 3).filter(lambda heads: heads != group)),
        "s": draw(st.integers(0, 400)),
        "d": draw(st.sampled_from([40, 64, 128])),
        "tile": draw(st.integers(8, 200)),
        "start_pe": draw(st.integers(0, n - 1)),
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        "seed": draw(st.integers(0, 99)),
    }


@pytest.mark.adr("0060", "11.1", "11.8", "5.3")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=shapes(), schedule=st.sampled_from(["model", "jitter", "late"]))
def test_any_shape_matches_the_oracle(decode, problem, shape, schedule):
    case = problem(**shape)
    run = decode(case, schedule=schedule, seed=shape["seed"])

    ka.assert_matches_reference(run, "O", case.by_cube(), case.error, how=str(case.error))


@pytest.mark.adr("0060", "11.1", "5.4")
def test_a_masked_tile_of_one_key_and_one_head_is_a_product_like_any_other(split, prefill, case):
    each = case(kv_len=17, t_q=5, group=1)

    each.check(split([each], 2, tile=8).outputs[0])  # 9 keys of the first rank: 8 and 1
    each.check(prefill([each], tile=16, q_block=8).outputs[0])
