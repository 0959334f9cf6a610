"""The 310P's public faults (facts of the 310P, 4) as rows of the fault matrix; their mended kernels are the variants.

The kernels are those of tests/ascend310p/test_faults.py, which also holds each fault to its very findings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import SimError

from .edits import PIPELINE_FAULTS, PIPELINE_VARIANTS
from .elsewhere import module_of
from .matrix import SCHEDULES, Seen, caught_by, finished, refused, work_of_the_core

core = module_of("ascend310p/test_faults.py")

SEES = {  # as the facts say it, in the checkers' names
    "cast_then_multiply": ("race",), "no_barrier": ("race",), "same_range": ("race",), "odd_offset": ("refusal",),
    "too_many_buffers": ("refusal",), "reuse": ("race",), "id_nine": ("refusal",),
    "set_twice": ("leftover", "deadlock"), "hoisted": ("leftover",), "wait_hoisted": ("deadlock",),
    "narrow_rows": ("refusal",), "ninth_sync_point": ("leftover",), "three_allocs": ("lifetime",),
    "tile_of_another_host": ("refusal",),
    "tiling_of_zeros": ("numeric", "nan"), "tiling_in_another_order": ("refusal",),
    "tiling_in_another_order_that_fits": ("time",), "dequeue_first": ("lifetime",), "enqueue_twice": ("lifetime",),
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
    assert set(sees) <= caught["M"]
    assert all(set(sees) - {"time"} <= checkers for checkers in caught.values()), "time is judged under the model alone"


@each_fault
@pytest.mark.adr("0310", "3.11")
def test_the_mended_kernel_passes(kernel: Callable[..., None]) -> None:
    right = attempt(kernel, True, "model", 0)
    found = {letter: attempt(kernel, True, *how, right) for letter, how in SCHEDULES.items()}

    assert right.ended
    assert caught_by(found, right) == {letter: set() for letter in SCHEDULES}


PIPELINE = {
    "one_buffer": "a queue of one buffer: copies and compute take turns",
    "barrier_on_all": "one PIPE_ALL a tile too many",
}


def piped(kernel: Callable[..., None], schedule: str, seed: int) -> Seen:
    """Copy, compute and copy of eight tiles by `kernel`."""
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    device = Ascend310pCore()
    tensors = device.tensor("x", x.shape, x.dtype, x), device.tensor("y", x.shape, x.dtype)
    run = device.run(kernel, *tensors, x.size, tile=512, buffer_num=2, schedule=schedule, seed=seed, check="collect")
    y = run.array("y")
    return finished(run, [y], bool(np.allclose(y, np.exp(x), rtol=1e-6)), work_of_the_core(run))


@pytest.mark.adr("0310", "4.3")
@pytest.mark.parametrize("name", PIPELINE)
def test_a_fault_of_time_alone_is_seen_as_the_page_says(name: str, broken: Any, on_the_page: Any) -> None:
    kernel = broken(copy_compute_copy, PIPELINE_FAULTS[name])
    found = {letter: piped(kernel, *how) for letter, how in SCHEDULES.items()}

    on_the_page(f"`{name}`", PIPELINE[name], ("time",), caught_by(found, piped(copy_compute_copy, "model", 0)))


@pytest.mark.adr("0310", "4.3")
@pytest.mark.parametrize("name", PIPELINE)
def test_the_variant_takes_no_longer(name: str, broken: Any) -> None:
    kernel = broken(copy_compute_copy, PIPELINE_VARIANTS[name])
    found = {letter: piped(kernel, *how) for letter, how in SCHEDULES.items()}

    assert caught_by(found, piped(copy_compute_copy, "model", 0)) == {letter: set() for letter in SCHEDULES}


def test_the_page_has_no_other_faults(ids_on_the_page: list[str]) -> None:
    assert [id.strip("`") for id in ids_on_the_page if id.startswith("`")] == [*SEES, *PIPELINE]
