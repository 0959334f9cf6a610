"""The 310P's public faults (facts of the 310P, 4) as rows of the fault matrix; their mended kernels are the variants.

The kernels are those of tests/ascend310p/test_faults.py, which also holds each fault to its very findings.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_kernbench.simulator.errors import SimError

from .elsewhere import module_of
from .matrix import SCHEDULES, Seen, caught_by, finished, refused, work_of_the_core

core = module_of("ascend310p/test_faults.py")

SEES = {  # as the facts say it, in the checkers' names
    "cast_then_multiply": ("race",), "no_barrier": ("race",), "same_range": ("race",), "odd_offset": ("refusal",),
    "too_many_buffers": ("refusal",), "reuse": ("race",), "id_nine": ("refusal",),
    "set_twice": ("leftover", "deadlock"), "hoisted": ("leftover",), "wait_hoisted": ("deadlock",),
    "narrow_rows": ("refusal",), "ninth_sync_point": ("leftover",), "three_allocs": ("lifetime",),
    "tile_of_another_host": ("refusal",), "dequeue_first": ("lifetime",), "enqueue_twice": ("lifetime",),
    "free_twice": ("lifetime",), "foreign": ("lifetime",), "reserved": ("refusal",),
}  # fmt: skip


def attempt(kernel: Callable[..., None], mended: bool, schedule: str, seed: int, right: Seen | None = None) -> Seen:
    """A run of the kernel, whose y is compared with that of the run that was `right`."""
    try:
        run = core.launch(kernel, mended, schedule, seed)
    except SimError as error:
        return refused(error)
    y = run.array("y")
    same = right is None or y.tobytes() == right.bits
    return finished(run, [y], same, work_of_the_core(run))


each_fault = pytest.mark.parametrize("kernel", core.FAULTS, ids=lambda kernel: kernel.__name__)


@each_fault
@pytest.mark.adr("0310", "3.11")
def test_a_fault_of_the_core_is_seen_as_the_page_says(
    kernel: Callable[..., None], on_the_page: Callable[..., None]
) -> None:
    right = attempt(kernel, True, "model", 0)
    found = {letter: attempt(kernel, False, *how, right) for letter, how in SCHEDULES.items()}
    caught, sees = caught_by(found, right), SEES[kernel.__name__]

    text = (kernel.__doc__ or "").rstrip(".")
    on_the_page(f"`{kernel.__name__}`", text, sees, caught, any(seen.ended for seen in found.values()))
    assert all(set(sees) <= checkers for checkers in caught.values())


@each_fault
@pytest.mark.adr("0310", "3.11")
def test_the_mended_kernel_passes(kernel: Callable[..., None]) -> None:
    right = attempt(kernel, True, "model", 0)
    found = {letter: attempt(kernel, True, *how, right) for letter, how in SCHEDULES.items()}

    assert right.ended
    assert caught_by(found, right) == {letter: set() for letter in SCHEDULES}


def test_the_page_has_no_other_faults(ids_on_the_page: list[str]) -> None:
    assert [id.strip("`") for id in ids_on_the_page if id.startswith("`")] == list(SEES)
