"""The gated delta rule's faults (facts of the gated delta rule, 6 and 7) as rows of the fault matrix, with variants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.simulator.errors import SimError

from .delta_rule import FAULTS, Fault, Kernel, shape_of
from .matrix import SCHEDULES, Seen, caught_by, finished, refused, work_of_the_core

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)


def right(delta: Any, given: Inputs, outcome: Any, scale: float) -> bool:
    """Whether both outputs are within the gate: rows behind the last token have no say, negative lengths no answer."""
    if min(given.lengths) < 0:
        return True
    tokens = {name: array[: sum(given.lengths)] for name, array in given.arrays().items() if name != "initial_state"}
    try:
        delta.check(replace(given, **tokens), outcome, scale)
    except AssertionError:
        return False
    return True


def attempt(delta: Any, fault: Fault, kernel: Kernel, schedule: str, seed: int, *, variant: bool = False) -> Seen:
    """A run of `kernel` on the fault's inputs, or on those that its variant can take."""
    given = fault.fits if variant and fault.fits else fault.given
    plan = (variant and fault.variant_plan) or fault.plan
    how = {"schedule": schedule, "seed": seed, "spec": dict(fault.spec), "scale": fault.scale, "variant": kernel}
    try:
        if fault.host and not variant:
            outcome = delta.call(given, **how, check="collect")
        else:
            shape = shape_of(given)
            outcome = delta.unchecked(given, shape, tiling=plan(shape), max_ops=100_000, **how)
    except (SimError, ValueError) as error:
        return refused(error)
    within = right(delta, given, outcome, fault.scale)
    return finished(outcome.run, [outcome.out, outcome.final_state], within, work_of_the_core(outcome.run))


@each_fault
@pytest.mark.adr("0310", "3.11")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # infinities and NaN, of the kernel and of its comparison
def test_a_fault_is_seen_as_the_page_says(fault: Fault, delta: Any, on_the_page: Any) -> None:
    usual = attempt(delta, fault, fault.base, "model", 0, variant=True)
    found = {letter: attempt(delta, fault, fault.kernel, *how) for letter, how in SCHEDULES.items()}
    caught = caught_by(found, usual)

    on_the_page(fault.id, fault.text, fault.sees, caught, any(seen.ended for seen in found.values()))
    assert all(set(fault.sees) <= checkers for checkers in caught.values())


@each_fault
@pytest.mark.adr("0310", "3.11")
def test_the_variant_passes(fault: Fault, delta: Any, broken: Any) -> None:
    kernel = broken(ChunkGatedDeltaRule, fault.variant)
    found = [attempt(delta, fault, kernel, *how, variant=True) for how in SCHEDULES.values()]

    assert [seen.kinds for seen in found] == [()] * len(found)
    assert all(seen.ended and seen.right for seen in found)
    assert len({seen.bits for seen in found}) == 1


def test_the_page_has_no_other_faults(ids_on_the_page: list[str]) -> None:
    assert [id for id in ids_on_the_page if id.startswith(("6.", "7."))] == [fault.id for fault in FAULTS]
