"""Results: a reference within a bound, determinism, independence of schedules; each with kernels that must be refused.

A failure has both values, the place, and the op that wrote those bytes last with its line in this file.
"""

import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.tensor import Tensor
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import DeadlockError

ROWS, W = 8, 16
X = np.random.default_rng(0).standard_normal((ROWS, W)).astype(np.float32)
Kernel = Callable[..., None]


def line_of(kernel: Kernel, text: str) -> str:
    """File, line and function of the line of `kernel` that holds `text`, as messages have them."""
    lines, first = inspect.getsourcelines(kernel)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return re.escape(f"test_assertions_results.py:{at} in {kernel.__name__}")


def run(kernel: Kernel, *args: Any, x: Any = X, place: str | int = 0, grid: Any = 1, **how: Any) -> tuple[Run, Tensor]:
    """A run of a kernel of x, the same in every PE, and o at `place`; and that o."""
    chip = AhbmChip()
    source = chip.tensor("X", x.shape, "float32", x, "replicate")
    o = chip.tensor("O", x.shape, "float32", place=place)
    return chip.run(kernel, source, o, *args, grid=grid, **{"check": "collect", **how}), o


def double(x: Any, o: Any, *, tl: Any) -> None:
    """o = 2 x, row by row."""
    for row in range(ROWS):
        part = tl.load(x + row * W, (1, W)) * 2.0
        tl.wait(tl.store(o + row * W, part))


# A reference


def test_a_result_within_its_bound_is_accepted() -> None:
    some, o = run(double)

    ka.assert_matches_reference(some, o, 2.0 * X, 0)
    ka.assert_matches_reference(some, o, 2.0 * X + 1e-3, 1.01e-3)


def test_a_result_beyond_its_bound_is_refused_with_everything_about_the_worst_element() -> None:
    some, o = run(double)
    wanted = 2.0 * X.astype(np.float64)
    wanted[1] += 0.25
    wanted[5, 3] += 0.5

    with pytest.raises(AssertionError) as failure:
        ka.assert_matches_reference(some, o, wanted, 0.125, how="twice x, by hand")

    text = str(failure.value)
    assert f"{W + 1} of {ROWS * W} elements of O are off, most at O[5, 3]" in text
    assert f"got {2 * X[5, 3]:.9g}, expected {2 * X[5, 3] + 0.5:.9g}, error 0.5, bound 0.125" in text
    assert "bound: twice x, by hand" in text
    sixth = some.log.where(name="store").index[5]
    assert re.search(
        rf"written last by row {sixth}, store on DMA_W of PE0, .*O\[320:384\], at {line_of(double, 'tl.store')}", text
    )


@dataclass
class Model:
    """A bound that says where it comes from."""

    bound: float

    def __str__(self) -> str:
        return f"|out - x| <= {self.bound} = two roundings"


def test_a_model_of_the_error_explains_the_bound() -> None:
    some, o = run(double)

    ka.assert_matches_reference(some, o, 2 * X, Model(1e-6))
    with pytest.raises(AssertionError, match=r"bound: \|out - x\| <= 1e-06 = two roundings\n  seed 0"):
        ka.assert_matches_reference(some, o, 2 * X + 1, Model(1e-6), how="seed 0")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_to_be_where_they_are_expected(value: float) -> None:
    x = X.copy()
    x[2, 4] = value
    some, o = run(double, x=x)

    ka.assert_matches_reference(some, o, 2 * x, 0)
    for wrong in (X, -2 * x if np.isinf(value) else X):
        with pytest.raises(AssertionError, match=r"most at O\[2, 4\]\n  got -?(nan|inf), .*, error inf, bound 1e\+30"):
            ka.assert_matches_reference(some, o, wrong, 1e30)


def test_a_number_where_nan_is_expected_is_refused() -> None:
    some, o = run(double)
    wanted = 2 * X
    wanted[7, 15] = np.nan

    with pytest.raises(AssertionError, match=r"1 of 128 elements of O are off, most at O\[7, 15\]\n.*expected nan"):
        ka.assert_matches_reference(some, o, wanted, 1e30)


def test_rows_in_another_order_are_refused_with_the_row_they_belong_to() -> None:
    some, o = run(turned_by, 3)

    with pytest.raises(AssertionError) as failure:
        ka.assert_matches_reference(some, o, X, 1e-6)

    found = re.search(
        r"row (\d) is closest to reference row (\d) \(error 0, .* to its own\): a wrong map", str(failure.value)
    )
    assert found and int(found[1]) == (int(found[2]) + 3) % ROWS


def turned_by(x: Any, o: Any, rows: int, *, tl: Any) -> None:
    for row in range(ROWS):
        tl.wait(tl.store(o + (row + rows) % ROWS * W, tl.load(x + row * W, (1, W))))


def test_a_row_that_is_wrong_by_itself_gets_no_guess() -> None:
    some, o = run(double)

    with pytest.raises(AssertionError) as failure:
        ka.assert_matches_reference(some, o, X, 1e-6)

    assert "closest" not in str(failure.value)


def test_a_row_that_is_only_a_little_nearer_to_another_gets_no_guess() -> None:
    """Zeros are nearer to any row than to the largest, but that says nothing."""
    some, o = run(times, 0.0)

    with pytest.raises(AssertionError, match=r"most at O\[\d, \d+\]\n  got -?0, ") as failure:
        ka.assert_matches_reference(some, o, X, 1e-6)

    assert "closest" not in str(failure.value)


def test_an_element_that_nothing_wrote_is_said_so() -> None:
    some, o = run(forgets_the_last_row)

    with pytest.raises(AssertionError, match=r"got nan, (?s:.*)nothing in the run wrote byte 448 of O of PE0$"):
        ka.assert_matches_reference(some, o, 2 * X, 1e-6)


def forgets_the_last_row(x: Any, o: Any, *, tl: Any) -> None:
    tl.wait(tl.store(o, tl.load(x, (ROWS - 1, W)) * 2.0))


def test_the_last_of_several_writers_is_named() -> None:
    some, o = run(written_twice)

    with pytest.raises(
        AssertionError, match=rf"written last by row \d+, store .* at {line_of(written_twice, '# wrong')}"
    ):
        ka.assert_matches_reference(some, o, 2 * X, 1e-6)


def written_twice(x: Any, o: Any, *, tl: Any) -> None:
    part = tl.load(x, (ROWS, W))
    tl.wait(tl.store(o, part * 2.0))
    tl.wait(tl.store(o, part * 3.0))  # wrong
    tl.wait(tl.store(o + 4 * W, tl.load(x + 4 * W, (4, W)) * 2.0))


def test_the_write_of_a_composite_has_its_line() -> None:
    some, o = run(product_to_memory, x=np.eye(W, dtype=np.float32))

    ka.assert_matches_reference(some, o, np.eye(W), 0)
    with pytest.raises(AssertionError, match=rf"row \d+, writeback .* at {line_of(product_to_memory, 'tl.composite')}"):
        ka.assert_matches_reference(some, o, 2 * np.eye(W), 0)


def product_to_memory(x: Any, o: Any, *, tl: Any) -> None:
    tl.wait(tl.composite("gemm", tl.load(x, (W, W)), tl.ref(x, (W, W)), trans_b=False, out=o))


def test_a_name_does_all_that_the_tensor_does() -> None:
    some, _ = run(double)

    ka.assert_matches_reference(some, "O", 2 * X, 0)
    with pytest.raises(AssertionError, match=r"off, most at O\[(?s:.*)written last by row \d+, store .*O\["):
        ka.assert_matches_reference(some, "O", X, 0)
    with pytest.raises(ValueError, match="the run has no tensor 'o'; it has X, O"):
        ka.assert_matches_reference(some, "o", X, 0)


# Where parts of a tensor are


def own_rank(x: Any, o: Any, *, tl: Any) -> None:
    """o = x plus ten times the cube plus the rank; for one part a cube, all write and the last wins by luck."""
    part = tl.load(x, (ROWS, W)) + (10.0 * tl.program_id(1) + tl.program_id(0))
    tl.wait(tl.store(o, part))


@pytest.mark.parametrize(
    ("place", "grid", "at", "writer"),
    [
        ("local", 2, (1, 0, 0), "PE1"),
        ("local", (2, 2), (1, 0, 0, 0), "cube1.PE0"),
        ("local", (2, 3), (2, 1, 0, 0), "cube2.PE1"),
        ("replicate", (2, 2), (1, 0, 0), "cube1.PE0"),
    ],
)
def test_the_writer_is_that_of_the_part(place: str, grid: Any, at: tuple[int, ...], writer: str) -> None:
    some, o = run(own_rank, place=place, grid=grid)
    wanted = some.array(o).astype(np.float64)
    wanted[at] += 1

    with pytest.raises(AssertionError, match=rf"written last by row \d+, store on DMA_W of {writer}, .*O\[0:512\]"):
        ka.assert_matches_reference(some, o, wanted, 0.5)


@pytest.mark.parametrize(("grid", "lead"), [((2, 1), ()), ((2, 2), (1,))])
def test_a_part_of_another_pe_is_written_from_afar(grid: Any, lead: tuple[int, ...]) -> None:
    """Only rank 0 writes, and o is at rank 1."""
    some, o = run(rank_0_writes, place=1, grid=grid)
    wanted = np.broadcast_to(X, some.array(o).shape).astype(np.float64)
    ka.assert_matches_reference(some, o, wanted, 0)
    wanted = wanted.copy()
    wanted[(*lead, 3, 3)] += 1

    writer = "cube1.PE0" if lead else "PE0"
    with pytest.raises(AssertionError, match=rf"written last by row \d+, store on DMA_W of {writer}, "):
        ka.assert_matches_reference(some, o, wanted, 0.5)


def rank_0_writes(x: Any, o: Any, *, tl: Any) -> None:
    if tl.program_id() == 0:
        tl.wait(tl.store(o, tl.load(x, (ROWS, W))))


# Wrong uses of a reference


@pytest.mark.parametrize("bound", [-1, np.nan, np.inf, Model(np.inf)])
def test_a_bound_that_nothing_can_keep_or_miss_is_a_wrong_use(bound: Any) -> None:
    some, o = run(double)

    with pytest.raises(ValueError, match="wants a finite number >= 0"):
        ka.assert_matches_reference(some, o, 2 * X, bound)


@pytest.mark.parametrize("wanted", [X[0], X[None], 2.0, X.T])
def test_a_reference_of_another_shape_is_a_wrong_use(wanted: Any) -> None:
    some, o = run(double)

    with pytest.raises(ValueError, match=r"O is \(8, 16\), the reference \("):
        ka.assert_matches_reference(some, o, wanted, 1)


# Determinism


def times(x: Any, o: Any, factor: float, stores: int = 1, *, tl: Any) -> None:
    part = tl.load(x, (ROWS, W)) * factor
    for _ in range(stores):
        tl.wait(tl.store(o, part))


def test_a_kernel_that_depends_on_its_inputs_alone_is_deterministic() -> None:
    ka.assert_deterministic(lambda: run(times, 2.0)[0])
    ka.assert_deterministic(lambda: run(times, 2.0, schedule="jitter", seed=3)[0], times=3)


def test_a_kernel_that_remembers_its_last_run_is_refused_with_the_first_row_that_differs() -> None:
    count = itertools.count(1)

    with pytest.raises(AssertionError) as failure:
        ka.assert_deterministic(lambda: run(load_rows, next(count))[0], times=3)

    text = str(failure.value)
    assert "run 2 is not run 1: " in text
    assert "bytes 64 against 128" in text
    assert re.search(rf"one:   row 0, load .* at {line_of(load_rows, 'tl.load')}\n  other: row 0, load", text)


def load_rows(x: Any, o: Any, rows: int, *, tl: Any) -> None:
    tl.wait(tl.load(x, (rows, W)))


def test_a_run_with_more_rows_is_refused_with_the_first_extra_one() -> None:
    count = itertools.count(1)

    with pytest.raises(AssertionError, match=r"run 2 is not run 1: 6 rows against 8\n  first extra: row 6, store"):
        ka.assert_deterministic(lambda: run(times, 2.0, next(count))[0])


def test_a_difference_that_only_the_third_run_has_is_found() -> None:
    seeds = iter([1, 1, 2])

    with pytest.raises(AssertionError, match=r"run 3 is not run 1: .*end \d+ against \d+"):
        ka.assert_deterministic(lambda: run(double, schedule="jitter", seed=next(seeds))[0], times=3)


def test_scratch_that_no_row_shows_is_compared_too() -> None:
    sizes = iter([1, 2])

    with pytest.raises(
        AssertionError, match=r"cycles, scratch and findings are \(.*, 64, \(\)\) against \(.*, 128, \(\)\)"
    ):
        ka.assert_deterministic(lambda: run(takes, next(sizes))[0])


def takes(x: Any, o: Any, rows: int, *, tl: Any) -> None:
    tl.empty((rows, W))


def test_one_run_has_nothing_to_differ_from() -> None:
    with pytest.raises(ValueError, match="times 1: wants 2, since one run has nothing to differ from"):
        ka.assert_deterministic(lambda: run(double)[0], times=1)


# Schedules


def overwritten(x: Any, o: Any, wait: bool, *, tl: Any) -> None:
    """Stores x, then overwrites what the store reads; with `wait`, after it has been read."""
    part = tl.wait(tl.load(x, (ROWS, W)))
    stored = tl.store(o, part)
    if wait:
        tl.wait(stored)
    tl.wait(tl.assign(part, tl.zeros((ROWS, W))))
    tl.wait(stored)


def runner(kernel: Kernel, *args: Any, **how: Any) -> tuple[Callable[..., Run], Tensor]:
    """What the helper takes: a function that makes a run, and the tensor to compare."""
    _, o = run(kernel, *args, **how)
    return (lambda **schedule: run(kernel, *args, **how, **schedule)[0]), o


def test_a_clean_kernel_has_the_same_bits_under_every_schedule() -> None:
    make_run, o = runner(overwritten, True)

    ka.assert_schedule_independent(make_run, [o])
    ka.assert_schedule_independent(make_run, ["O"], seeds=[7])


def test_a_missing_wait_is_refused_by_value_where_nobody_checks() -> None:
    make_run, o = runner(overwritten, False, check=False)

    with pytest.raises(AssertionError) as failure:
        ka.assert_schedule_independent(make_run, [o], seeds=[])

    text = str(failure.value)
    assert f"under schedule 'late', seed 0: {ROWS * W} of {ROWS * W} elements of O change, first O[0, 0]" in text
    assert f"O[0, 0]: 0, and {X[0, 0]:.9g} under the model's schedule" in text
    assert re.search(rf"written last by row \d+, store .* at {line_of(overwritten, 'tl.store')}", text)


def test_a_missing_wait_is_refused_as_a_finding_where_somebody_does() -> None:
    make_run, o = runner(overwritten, False)

    with pytest.raises(AssertionError, match=r"1 findings under schedule 'model', seed 0, expected 0(?s:.*)race-war"):
        ka.assert_schedule_independent(make_run, [o])


def test_every_seed_is_tried() -> None:
    tried: list[tuple[str, int]] = []
    make_run, o = runner(double)

    def noted(*, schedule: str, seed: int) -> Run:
        tried.append((schedule, seed))
        return make_run(schedule=schedule, seed=seed)

    ka.assert_schedule_independent(noted, [o], seeds=[4, 9])

    assert tried == [("model", 0), ("jitter", 4), ("jitter", 9), ("late", 0)]


def test_bits_are_compared_and_not_values() -> None:
    """-0 and +0 are equal, NaN is not even itself: neither may hide or make a change."""
    signs = iter([1.0, 1.0, -1.0])
    _, o = run(times, 1.0)
    zeros = np.zeros((ROWS, W), np.float32)

    with pytest.raises(
        AssertionError, match=r"128 of 128 elements of O change, first O\[0, 0\]: -0, and 0 under the model"
    ):
        ka.assert_schedule_independent(lambda **how: run(times, next(signs), x=zeros, **how)[0], [o], seeds=[1])
    nans = np.full((ROWS, W), np.nan, np.float32)
    ka.assert_schedule_independent(lambda **how: run(times, 1.0, x=nans, **how)[0], [o], seeds=[1])


def test_what_a_run_raises_says_under_which_schedule() -> None:
    def make_run(*, schedule: str, seed: int) -> Run:
        return run(waits_for_ever if schedule == "jitter" else idle, grid=2)[0]

    with pytest.raises(DeadlockError) as failure:
        ka.assert_schedule_independent(make_run, [run(double)[1]], seeds=[5])

    assert failure.value.__notes__ == ["under schedule 'jitter', seed 5"]


def waits_for_ever(x: Any, o: Any, *, tl: Any) -> None:
    tl.recv("E" if tl.program_id() == 0 else "W", (1, W))


def idle(x: Any, o: Any, *, tl: Any) -> None:
    pass


def test_no_tensor_to_compare_is_a_wrong_use() -> None:
    with pytest.raises(ValueError, match="tensors is empty"):
        ka.assert_schedule_independent(runner(double)[0], [])
