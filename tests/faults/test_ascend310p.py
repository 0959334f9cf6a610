"""The 310P's public faults (facts of the 310P, 4) as rows of the fault matrix; their mended kernels are the variants.

The kernels are those of tests/ascend310p/test_faults.py, which also holds each fault to its very findings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SEES = {  # as the facts say it, in the checkers' names
    "cast_then_multiply": ("race",), "no_barrier": ("race",), "same_range": ("race",), "odd_offset": ("refusal",),
    "too_many_buffers": ("refusal",), "reuse": ("race",), "id_nine": ("refusal",),
    "set_twice": ("leftover", "deadlock"), "hoisted": ("leftover",), "wait_hoisted": ("deadlock",),
    "narrow_rows": ("refusal",), "ninth_sync_point": ("leftover",), "three_allocs": ("lifetime",),
    "tile_of_another_host": ("refusal",), "dequeue_first": ("lifetime",), "enqueue_twice": ("lifetime",),
    "free_twice": ("lifetime",), "foreign": ("lifetime",), "reserved": ("refusal",),
}  # fmt: skip


@pytest.mark.adr("0310", "3.11")
def test_a_fault_of_the_core_is_seen_as_the_page_says(
    core_fault: Callable[..., None],
    outcome_on_the_core: Callable[..., tuple[list[str], Any]],
    seen_by: Callable[..., set[str]],
    on_the_page: Callable[..., None],
    schedules: dict[str, tuple[str, int]],
) -> None:
    right = outcome_on_the_core(core_fault, True, "model", 0)
    found = {letter: outcome_on_the_core(core_fault, False, *how) for letter, how in schedules.items()}
    caught = {letter: seen_by(kinds) for letter, (kinds, _) in found.items()}
    results = [y.tobytes() for _, y in found.values() if y is not None]
    for letter, (_, y) in found.items():
        caught[letter] |= {"numeric"} if y is not None and y.tobytes() != right[1].tobytes() else set()
        caught[letter] |= {"determinism"} if len(set(results)) > 1 else set()

    sees = SEES[core_fault.__name__]
    on_the_page(f"`{core_fault.__name__}`", (core_fault.__doc__ or "").rstrip("."), sees, caught, bool(results))
    assert all(set(sees) <= checkers for checkers in caught.values())


@pytest.mark.adr("0310", "3.11")
def test_the_mended_kernel_passes(
    core_fault: Callable[..., None],
    outcome_on_the_core: Callable[..., tuple[list[str], Any]],
    schedules: dict[str, tuple[str, int]],
) -> None:
    for how in schedules.values():
        kinds, y = outcome_on_the_core(core_fault, True, *how)
        assert kinds == [] and y is not None


def test_the_page_has_no_other_faults(ids_on_the_page: list[str]) -> None:
    assert [id.strip("`") for id in ids_on_the_page if id.startswith("`")] == list(SEES)
