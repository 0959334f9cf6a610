"""Requests that nobody picked: prefill and batches on split keys match the oracle, and the budget errs high only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench import strategies as kst
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth


def silent(budget: object) -> None:
    """Nobody reads what a property test announces."""


@st.composite
def requests(draw):
    """Sizes of a prefill, with a chunk that may begin before the sequence or behind it."""
    group = draw(st.sampled_from([1, 2, 4]))
    heads = draw(st.integers(1, 3).filter(lambda heads: heads != group))
    logits = st.lists(st.floats(-3, 6, width=32), min_size=group * heads, max_size=group * heads)
    return {
        "t_q": draw(st.integers(1, 40)),
        "kv_len": draw(st.integers(0, 90)),
        "q_start": draw(st.none() | st.integers(-8, 100)),
        "group": group,
        "heads": heads,
        "sinks": draw(st.none() | logits),
        "d": draw(st.sampled_from([40, 64, 128])),
        "d_v": draw(st.sampled_from([40, 64, 128])),
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        "window": draw(st.none() | st.integers(1, 60)),
        "softcap": draw(st.none() | st.sampled_from([2.0, 30.0])),
        "seed": draw(st.integers(0, 99)),
    }


@pytest.mark.adr("0060", "5.4", "11.1", "11.8", "B.5")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=requests(), tile=st.integers(4, 70), q_block=st.integers(1, 45), layout=st.sampled_from(["head", "token"]),
    schedule=kst.schedules(),
)  # fmt: skip
def test_any_prefill_matches_the_oracle_under_any_schedule(prefill, case, sizes, tile, q_block, layout, schedule):
    each = case(**sizes)
    how = {"lse": True, "run": schedule._asdict(), "announce": silent}
    outcome = prefill([each], tile=tile, q_block=q_block, layout=layout, **how)

    each.check(outcome.outputs[0])
    each.check_lse(outcome.run.array("lse").reshape(each.answer[1].shape))


@st.composite
def batches(draw):
    """Sizes of a split launch: every variant at once, or none."""
    group = draw(st.sampled_from([1, 2, 4]))
    sinks = draw(st.none() | st.lists(st.floats(-3, 6, width=32), min_size=group, max_size=group))
    common = {
        "group": group, "d": draw(st.sampled_from([40, 64])), "d_v": draw(st.sampled_from([40, 64])),
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])), "sinks": sinks,
        "window": draw(st.none() | st.integers(1, 40)), "softcap": draw(st.none() | st.sampled_from([1.0, 2.0, 30.0])),
    }  # fmt: skip
    each = st.fixed_dictionaries({
        "kv_len": st.integers(0, 60), "t_q": st.integers(1, 9), "q_start": st.none() | st.integers(-4, 70),
        "seed": st.integers(0, 9),
    })  # fmt: skip
    return [{**common, **sizes} for sizes in draw(st.lists(each, min_size=1, max_size=3))]


@pytest.mark.adr("0060", "5.3", "5.4", "11.1", "11.8", "B.5")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=batches(), n=st.sampled_from([1, 2, 3, 5, 8]), tile=st.integers(1, 40),
    layout=st.sampled_from(["head", "token"]), schedule=st.sampled_from(["model", "jitter", "late"]),
)  # fmt: skip
def test_any_batch_with_any_variants_matches_the_oracle(split, case, sizes, n, tile, layout, schedule):
    cases = [case(**each) for each in sizes]
    run = {"schedule": schedule, "seed": sizes[0]["seed"]}
    outcome = split(cases, n, tile=tile, layout=layout, lse=True, run=run)

    lse = np.split(outcome.run.array("lse"), np.cumsum([each.problem.t_q for each in cases])[:-1], axis=1)
    for each, o, rows in zip(cases, outcome.outputs, lse, strict=True):
        each.check(o)
        each.check_lse(rows)


@pytest.mark.adr("0060", "11.5")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    t_q=st.integers(1, 40), kv_len=st.integers(0, 90), group=st.integers(1, 4), d=st.sampled_from([40, 64]),
    d_v=st.sampled_from([24, 64]), tile=st.integers(1, 70), q_block=st.integers(1, 50),
    window=st.none() | st.integers(1, 60), sinks=st.booleans(), lse=st.booleans(),
    ahead=st.integers(0, 2), in_flight=st.integers(1, 3), layout=st.sampled_from(["head", "token"]),
)  # fmt: skip
def test_the_budget_errs_high_only(
    prefill, case, t_q, kv_len, group, d, d_v, tile, q_block, window, sinks, lse, ahead, in_flight, layout
):
    announced = []
    sizes = {"t_q": t_q, "kv_len": kv_len, "group": group, "d": d, "d_v": d_v, "window": window}
    each = case(**sizes, sinks=[0.0] * group if sinks else None, structure=True)
    options = {"depth": Depth(ahead, in_flight), "layout": layout, "lse": lse, "announce": announced.append}
    run = prefill([each], tile=tile, q_block=q_block, **options).run

    assert run.scratch_high_water <= announced[0].total
