"""Findings as assertions, for runs that only collect them: races, and bytes that have another owner by now."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run

SHAPE = (32, 64)


def run(kernel: Callable[..., None], *, check: bool | str = "collect") -> Run:
    chip = AhbmChip()
    return chip.run(kernel, chip.tensor("Q", SHAPE), chip.tensor("K", SHAPE), check=check)


def clean(q: Any, k: Any, *, tl: Any) -> None:
    with tl.scratch_scope():
        tl.exp(tl.wait(tl.composite("gemm", tl.load(q, SHAPE), tl.ref(k, SHAPE), trans_b=True)))


def used_before_it_is_there(q: Any, k: Any, *, tl: Any) -> None:
    scores = tl.composite("gemm", tl.load(q, SHAPE), tl.ref(k, SHAPE), trans_b=True)
    tl.exp(scores)
    tl.wait(scores)


def left_in_flight(q: Any, k: Any, *, tl: Any) -> None:
    rows = tl.wait(tl.load(q, SHAPE))
    with tl.scratch_scope():
        scores = tl.composite("gemm", rows, tl.ref(k, SHAPE), trans_b=True)
    tl.zeros(scores.shape)


def test_a_clean_run_has_neither_races_nor_uses_after_recycle() -> None:
    ka.assert_no_races(run(clean))
    ka.assert_no_use_after_recycle(run(clean))


def test_a_race_is_refused_with_both_ops_and_their_lines() -> None:
    lines, first = inspect.getsourcelines(used_before_it_is_there)
    racy = run(used_before_it_is_there)

    with pytest.raises(AssertionError) as failure:
        ka.assert_no_races(racy)

    text = str(failure.value)
    assert text.startswith("1 of race-raw, race-war, race-waw, expected 0\n\nrace-raw: exp on MATH of PE0")
    for said in ("tl.composite", "tl.exp"):
        at = next(number for number, line in enumerate(lines, first) if said in line)
        assert f"test_assertions_findings.py:{at} in used_before_it_is_there" in text
    ka.assert_no_use_after_recycle(racy)


def test_a_scope_that_is_left_too_early_is_refused_as_that_and_not_as_a_race() -> None:
    early = run(left_in_flight)

    with pytest.raises(AssertionError, match=r"^\d of use-after-recycle, recycle-in-flight, .*\n\nrecycle-in-flight: "):
        ka.assert_no_use_after_recycle(early)
    ka.assert_no_races(early)


@pytest.mark.parametrize("helper", [ka.assert_no_races, ka.assert_no_use_after_recycle])
def test_a_run_that_nobody_checked_is_not_clean_but_a_wrong_use(helper: Callable[[Run], None]) -> None:
    with pytest.raises(ValueError, match='the run had check=False, so nobody looked: run it with check="collect"'):
        helper(run(clean, check=False))
