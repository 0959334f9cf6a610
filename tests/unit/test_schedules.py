"""Other schedules: jitter is drawn from its seed, late starves what nobody needs, and a clean kernel does not care."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.engine.schedule import schedule_named

RNG = np.random.default_rng(1)
X = RNG.standard_normal((8, 64)).astype(np.float32)
W = RNG.standard_normal((64, 64)).astype(np.float32)
ALL = [("model", 0), ("jitter", 0), ("jitter", 1), ("jitter", 2), ("late", 0)]


def ring_of_products(x: Any, w: Any, o: Any, *, tl: Any) -> None:
    """Every unit: loads, a composite, MATH, messages both ways, stores."""
    rank = tl.program_id(0)
    h = tl.load(x, (8, 64))
    c = tl.composite("gemm", h, tl.ref(w, (64, 64)), trans_b=False, epilogue=(("scale", 0.5),))
    total = tl.sum(h)
    y = tl.maximum(tl.wait(c), total)
    sent = tl.send("W" if rank else "E", y)
    other = tl.recv("W" if rank else "E", (8, 64))
    z = y + other
    tl.wait(z)
    tl.release(other)
    tl.wait(sent, tl.store(o, z))


def run(launch: Callable[..., Any], kernel: Callable[..., None], schedule: str, seed: int, **given: Any) -> Any:
    return launch(kernel, x=X, w=W, o=((8, 64), "float32", "local"), grid=2, schedule=schedule, seed=seed, **given)


@pytest.mark.parametrize(("schedule", "seed"), ALL)
def test_a_clean_kernel_has_one_result_under_every_schedule(launch: Any, schedule: str, seed: int) -> None:
    outcome = run(launch, ring_of_products, schedule, seed, check=True)
    y = np.maximum(0.5 * (X @ W), X.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(outcome["o"], 2 * y, rtol=1e-5, atol=1e-4)
    assert (outcome["o"] == run(launch, ring_of_products, "model", 0)["o"]).all()


@pytest.mark.parametrize(("schedule", "seed"), ALL)
def test_a_run_is_repeated_by_its_schedule_and_seed(launch: Any, schedule: str, seed: int) -> None:
    first, second = (run(launch, ring_of_products, schedule, seed) for _ in range(2))
    assert first.log.cells == second.log.cells
    assert first.log.operand_cells == second.log.operand_cells


def test_another_seed_is_another_jitter(launch: Any) -> None:
    times = {run(launch, ring_of_products, "jitter", seed).cycles for seed in range(5)}
    assert len(times) > 1


def test_jitter_makes_about_one_op_in_three_eight_times_as_long(launch: Any) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        y = tl.zeros((8, 64))
        for _ in range(100):
            tl.add(y, 1.0, out=y)

    lengths = [row.free - row.start for row in run(launch, kernel, "jitter", 0).rows("add")]
    assert set(lengths) == {36, 8 * 36}
    assert 0.2 < lengths.count(8 * 36) / len(lengths) < 0.5


def test_jitter_never_makes_a_unit_work_on_two_ops(launch: Any) -> None:
    rows = [row for row in run(launch, ring_of_products, "jitter", 4).log if row.unit in ("MATH", "GEMM", "DMA_R")]
    for unit, program in {(row.unit, row.program) for row in rows}:
        mine = sorted((row.start, row.free) for row in rows if (row.unit, row.program) == (unit, program))
        assert all(before[1] <= after[0] for before, after in pairwise(mine))


def test_late_starts_what_nobody_waits_for_last(launch: Any) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        unneeded = tl.load(w, (64, 64))
        needed = tl.full((8, 64), 1.0)
        tl.wait(needed)
        tl.wait(tl.store(o, needed))
        tl.wait(unneeded)

    late, model = (run(launch, kernel, schedule, 0) for schedule in ("late", "model"))
    assert late.rows("load")[0].start >= late.rows("store")[0].end
    assert model.rows("load")[0].start < model.rows("store")[0].start


def test_late_starts_an_op_only_once_a_kernel_sleeps_for_it(launch: Any) -> None:
    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        a = tl.load(x, (8, 64))
        tl.zeros((8, 64))
        tl.wait(a)

    row = run(launch, kernel, "late", 0).rows("zeros")[0]
    assert row.start >= run(launch, kernel, "late", 0).rows("load")[0].end


def test_late_steps_a_chain_of_needs_across_kernels(launch: Any) -> None:
    """PE1 waits for a message of what PE0 has still to compute from what it has still to load."""

    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("E", tl.load(x, (8, 64)) + 1.0))
        else:
            tl.wait(tl.store(o, tl.recv("W", (8, 64))))

    outcome = run(launch, kernel, "late", 0, check=True)
    assert (outcome.run.array(outcome.tensors["o"])[1] == X + 1).all()


def test_late_runs_what_a_credit_waits_for_though_nobody_sleeps_for_it(launch: Any) -> None:
    """The reader of a slot is needed by the credit, the credit by the sender; the receiver has long returned."""

    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h = tl.load(x, (8, 64))
            tl.wait(tl.send("E", h), tl.send("E", h))
            return
        y = tl.empty((8, 64))
        for _ in range(2):
            with tl.scratch_scope():
                tl.exp(tl.recv("W", (8, 64)), out=y)

    outcome = run(launch, kernel, "late", 0, check=True, spec={"ipcq_slots": 1})
    assert len(outcome.rows("send")) == 2


def test_a_schedule_has_one_of_three_names() -> None:
    assert [schedule_named(name, 0).name for name in ("model", "jitter", "late")] == ["model", "jitter", "late"]
    with pytest.raises(ValueError, match=r"^schedule 'lazy' is none of 'model', 'jitter', 'late'$"):
        schedule_named("lazy", 0)
