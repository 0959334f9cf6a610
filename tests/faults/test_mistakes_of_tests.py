"""Mistakes of the tests themselves as rows of the fault matrix: each hides a fault that a sound test sees.

They are missed by design. What is sound stands beside each: the same fault, judged as everywhere else, is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode, gqa_decode_batch

from .delta_rule import seeded
from .edits import FAULTS
from .matrix import SCHEDULES, Caught, Seen, caught_by, finished, work_of_the_core

SMALL = {"d": 64, "d_v": 64, "group": 4}
Judge = Callable[[Any, Any, float], bool]
"""Whether O is right, by the answer and the bound of the error."""


def sound(o: Any, answer: Any, bound: float) -> bool:
    return bool(np.abs(o - answer).max() <= bound)  # NaN is not right either


def too_wide(o: Any, answer: Any, bound: float) -> bool:
    return sound(o, answer, 100 * bound)


def not_a_number_is_left_out(o: Any, answer: Any, bound: float) -> bool:
    return bool(np.nanmax(np.abs(o - answer), initial=0) <= bound)


@pytest.fixture
def seen(split: Any, broken: Any) -> Callable[..., Caught]:
    """`seen(id, request, n, tile, judge)`: the checkers that see the fault of that number."""

    def run(id: str, request: Any, n: int, tile: int, judge: Judge) -> Caught:
        def attempt(kernel: Any, schedule: str, seed: int) -> Seen:
            how = {"check": "collect", "schedule": schedule, "seed": seed}
            done = split([request], n, tile=tile, kernel=kernel, run=how)
            o = done.outputs[0]
            return finished(done.run, [o], judge(o.astype(float), request.answer[0], request.error.bound), ())

        kernel = broken(gqa_decode_batch, FAULTS[id])
        found = {letter: attempt(kernel, *how) for letter, how in SCHEDULES.items()}
        return caught_by(found, attempt(gqa_decode_batch, "model", 0))

    return run


def numeric(caught: Caught) -> bool:
    return all("numeric" in checkers for checkers in caught.values())


def test_h_1_heads_that_are_alike(problem: Any, decode: Any, broken: Any, on_the_page: Any) -> None:
    """B-55 takes the wrong head's queries; where all heads have the same, nobody can tell."""
    kernel = broken(gqa_decode, FAULTS["B-55"])

    class Alike(problem):  # type: ignore[misc]
        @property
        def inputs(self) -> tuple[Any, ...]:
            return tuple(np.repeat(each[:1], len(each), axis=0) for each in super().inputs)

    def caught(each: Any) -> Caught:
        def attempt(kernel: Any, schedule: str, seed: int) -> Seen:
            run = decode(each, kernel, schedule=schedule, seed=seed, check="collect")
            o = run.array("O")
            return finished(run, [o], sound(o.astype(float), each.by_cube(), each.error.bound), ())

        found = {letter: attempt(kernel, *how) for letter, how in SCHEDULES.items()}
        return caught_by(found, attempt(gqa_decode, "model", 0))

    sizes = {"s": 100, "group": 4, "heads": 2}
    text = "symmetric inputs: B-55, the wrong head, where all heads are alike"
    on_the_page("H-1", text, ("numeric",), caught(Alike(**sizes)))
    assert numeric(caught(problem(**sizes)))


def test_h_2_a_tolerance_a_hundred_times_too_wide(seen: Any, case: Any, on_the_page: Any) -> None:
    """B-41 rounds l to float16."""
    each = case(kv_len=300, dtype="float32", **SMALL)
    text = "a tolerance a hundred times too wide: B-41, the sum in float16"
    on_the_page("H-2", text, ("numeric",), seen("B-41", each, 1, 16, too_wide))
    assert numeric(seen("B-41", each, 1, 16, sound))


def test_h_3_not_a_number_is_left_out_of_the_comparison(seen: Any, case: Any, on_the_page: Any) -> None:
    """B-23 makes NaN, which the checkers of findings still see."""
    each = case(kv_len=3, **SMALL)
    text = "cubecl #1070: NaN is left out of the comparison: B-23, a merge of two empty sides"
    on_the_page("H-3", text, ("numeric",), seen("B-23", each, 8, 64, not_a_number_is_left_out))
    assert numeric(seen("B-23", each, 8, 64, sound))


def test_h_4_a_single_tile(seen: Any, case: Any, on_the_page: Any) -> None:
    """B-50 does not correct l from tile to tile."""
    each = case(kv_len=16, **SMALL)
    text = "a single tile: B-50, l is not corrected from tile to tile"
    on_the_page("H-4", text, ("numeric",), seen("B-50", each, 1, 16, sound))
    assert numeric(seen("B-50", case(kv_len=100, **SMALL), 1, 16, sound))


def test_h_5_a_symmetric_state(delta: Any, on_the_page: Any) -> None:
    """6.6 takes the state for its transpose."""

    def caught(given: Any) -> Caught:
        def attempt(kernel: Any, schedule: str, seed: int) -> Seen:
            outcome = delta.call(given, variant=kernel, schedule=schedule, seed=seed, check="collect")
            right = bool(np.allclose(outcome.final_state.ravel(), wanted, rtol=1e-3))
            results = [outcome.out, outcome.final_state]
            return finished(outcome.run, results, right, work_of_the_core(outcome.run))

        wanted = delta.call(given).final_state.ravel()
        found = {letter: attempt(seeded.KeysFirst, *how) for letter, how in SCHEDULES.items()}
        return caught_by(found, attempt(seeded.ChunkGatedDeltaRule, "model", 0))

    anchor = seeded.one_token([1, 0], [0, 1], [10, 20], [[1, 2], [4, 8]])
    symmetric = replace(anchor, initial_state=seeded.halves([[1, 2], [2, 5]], 1, 1, 2, 2))
    text = "a symmetric state: 6.6, the state taken for its transpose"
    on_the_page("H-5", text, ("numeric",), caught(symmetric))
    assert numeric(caught(anchor))


def test_the_page_has_no_other_mistakes(ids_on_the_page: list[str]) -> None:
    assert [id for id in ids_on_the_page if id.startswith("H-")] == [f"H-{number}" for number in range(1, 6)]
