"""Bounds and overlap: the roofline and the serial sum are worked out by hand for small kernels, then used to judge."""

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.rooflines import busy_cycles, terms
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run

ROWS, D, TILES = 128, 128, 16
TILE_BYTES = ROWS * D * 2
Kernel = Callable[..., None]
FREE = AhbmSpec(issue_costs=0)  # saying an op costs nothing: the units alone take time


def line_of(kernel: Kernel, text: str) -> str:
    """File, line and function of the line of `kernel` that holds `text`, as messages have them."""
    lines, first = inspect.getsourcelines(kernel)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return f"test_assertions_time.py:{at} in {kernel.__name__}"


def run(kernel: Kernel, *args: Any, spec: AhbmSpec | None = None, grid: int = 1, schedule: str = "model") -> Run:
    """A structure-only run of a kernel of q and `TILES` tiles of k."""
    chip = AhbmChip(spec)
    q, k = chip.tensor("Q", (32, D)), chip.tensor("K", (TILES * ROWS, D))
    return chip.run(kernel, q, k, *args, grid=grid, schedule=schedule, check=False)


def streamed(q: Any, k: Any, *, tl: Any) -> None:
    """One composite over all of k: the scheduler moves panels while GEMM works."""
    tl.wait(tl.composite("gemm", tl.load(q, (32, D)), tl.ref(k, (TILES * ROWS, D)), trans_b=True))


def one_by_one(q: Any, k: Any, *, tl: Any) -> None:
    """The same products with nothing at the same time."""
    rows = tl.wait(tl.load(q, (32, D)))
    for j in range(TILES):
        tl.dot(rows, tl.wait(tl.load(k + j * ROWS * D, (ROWS, D))), trans_b=True)


# The bounds by hand


def load_and_exp(q: Any, k: Any, *, tl: Any) -> None:
    x = tl.wait(tl.load(k, (ROWS, D)))
    tl.wait(tl.exp(x))


def test_the_terms_are_work_over_rate() -> None:
    (found,) = terms(run(load_and_exp))

    assert found.hbm_read == TILE_BYTES / 256 == 128
    assert found.math == 32 + 2 * ROWS * D / 128 == 288  # start-up, and two cycles an exponential
    assert found.issue == 16 + 8
    assert (found.hbm_write, found.gemm, found.ipcq) == (0, 0, 0)


@pytest.mark.parametrize("kernel", [streamed, one_by_one])
def test_gemm_is_bound_by_its_padded_tiles_however_they_are_issued(kernel: Kernel) -> None:
    (found,) = terms(run(kernel))

    assert found.gemm == 32 * TILES * ROWS * D / 4096 == 2048
    assert found.hbm_read == (TILES * TILE_BYTES + 32 * D * 2) / 256


def test_panels_and_sub_tiles_cost_the_kernel_nothing_to_say() -> None:
    (found,) = terms(run(streamed))

    assert found.issue == 16 + 48  # one load, one composite


def test_a_product_of_one_row_costs_a_whole_tile() -> None:
    (found,) = terms(run(one_row))

    assert found.gemm == 4 * 2 * (32 * 64 * 32 / 4096)  # n = 128 in four, k = 128 in two


def one_row(q: Any, k: Any, *, tl: Any) -> None:
    tl.dot(tl.load(q, (1, D)), tl.load(k, (ROWS, D)), trans_b=True)


def test_stores_and_messages_have_terms_of_their_own() -> None:
    sender, receiver = terms(run(send_and_store, grid=2))

    assert sender.ipcq == 32 * D * 2 / 128
    assert receiver.hbm_write == 32 * D * 2 / 256
    assert (sender.hbm_write, receiver.ipcq) == (0, 0)


def send_and_store(q: Any, k: Any, *, tl: Any) -> None:
    if tl.program_id() == 0:
        tl.wait(tl.send("E", tl.load(q, (32, D))))
    else:
        tl.wait(tl.store(q, tl.recv("W", (32, D), tl.bfloat16)))


def test_the_roofline_is_the_largest_term_of_any_program() -> None:
    assert ka.roofline(run(load_and_exp)) == 288
    assert ka.roofline(run(only_the_second_works, grid=2)) == 288
    assert [each.bound for each in terms(run(load_and_exp))] == ["math"]
    assert terms(run(send_and_store, grid=2))[0].bound == "ipcq"


def only_the_second_works(q: Any, k: Any, *, tl: Any) -> None:
    if tl.program_id() == 1:
        load_and_exp(q, k, tl=tl)


def composite_on_chip(q: Any, k: Any, *, tl: Any) -> None:
    """A composite whose sub-tiles alone take time: nothing is streamed."""
    rows = tl.wait(tl.load(q, (32, D)))
    tile = tl.wait(tl.load(k, (ROWS, D)))
    tl.wait(tl.composite("gemm", rows, tile, trans_b=True))


@pytest.mark.parametrize("spec", [AhbmSpec(), FREE, replace(AhbmSpec(), hbm_efficiency_percent=80)])
@pytest.mark.parametrize("kernel", [load_and_exp, one_by_one, composite_on_chip])
def test_a_kernel_that_waits_for_everything_takes_exactly_the_serial_sum(kernel: Kernel, spec: AhbmSpec) -> None:
    serial = run(kernel, spec=spec)

    assert serial.cycles == ka.serial_sum(serial)


def test_the_serial_sum_of_two_programs_is_the_longest_chain_and_not_their_total() -> None:
    """Both work for as long; the second needs a message of the first, which is there before it is asked for."""
    both = run(works_then_talks, grid=2)
    alone = run(works_then_talks)

    assert both.cycles <= ka.serial_sum(both) < 2 * ka.serial_sum(alone)
    assert ka.serial_sum(both) > ka.serial_sum(alone)


def works_then_talks(q: Any, k: Any, *, tl: Any) -> None:
    one_by_one(q, k, tl=tl)
    if tl.num_programs() == 2:
        if tl.program_id() == 0:
            tl.wait(tl.send("E", tl.load(q, (32, D))))
        else:
            tl.wait(tl.exp(tl.recv("W", (32, D), tl.bfloat16)))


# Latency


@pytest.mark.parametrize("kernel", [streamed, one_by_one, load_and_exp])
def test_every_kernel_lies_between_the_roofline_and_the_serial_sum(kernel: Kernel) -> None:
    some = run(kernel)

    ka.assert_latency_between(some, ka.roofline(some), ka.serial_sum(some))


def test_a_streamed_kernel_is_near_its_roofline_and_a_serial_one_is_not() -> None:
    ahead, serial = run(streamed), run(one_by_one)

    ka.assert_latency_between(ahead, ka.roofline(ahead), ka.serial_sum(ahead), ratio=1.35)
    with pytest.raises(AssertionError) as failure:
        ka.assert_latency_between(serial, ka.roofline(serial), ka.serial_sum(serial), ratio=1.35)

    lower = ka.roofline(serial)
    times = f"{serial.cycles} cycles are {serial.cycles / lower:.3f} times the lower bound of {lower:g}"
    assert f"{times}, expected at most 1.35 times" in str(failure.value)
    where = re.escape(line_of(one_by_one, "tl.dot"))
    assert re.search(rf"last to end, at cycle \d+: row \d+, (dot|wait) .* at {where}", str(failure.value))
    assert re.search(rf"longest wait, \d+ cycles: row \d+, wait .* at {where}", str(failure.value))
    assert "units of PE0: hbm_read 2080, hbm_write 0, gemm 2048" in str(failure.value)


def test_a_run_below_its_lower_bound_is_a_fault_of_the_model() -> None:
    some = run(load_and_exp)

    with pytest.raises(
        AssertionError, match=rf"{some.cycles} cycles are below the lower bound of 10000: .* model is wrong"
    ):
        ka.assert_latency_between(some, 10_000, 20_000)


def test_a_run_above_its_upper_bound_is_refused_with_both_numbers() -> None:
    some = run(load_and_exp)

    ka.assert_latency_between(some, some.cycles, some.cycles, ratio=1)
    with pytest.raises(
        AssertionError, match=rf"{some.cycles} cycles are above the upper bound of 300 \(lower bound 288\)"
    ):
        ka.assert_latency_between(some, 288, 300)


@pytest.mark.parametrize(("lower", "upper", "ratio"), [(2, 1, None), (-1, 5, None), (0, 5, 1.35), (1, 5, 0.9)])
def test_bounds_that_nothing_can_keep_or_break_are_a_wrong_use(lower: int, upper: int, ratio: float | None) -> None:
    with pytest.raises(ValueError, match=rf"bounds {lower}\.\.{upper} with ratio {ratio}"):
        ka.assert_latency_between(run(load_and_exp), lower, upper, ratio)


def test_times_of_another_schedule_are_not_judged() -> None:
    late = run(load_and_exp, schedule="late")

    with pytest.raises(ValueError, match="times under schedule 'late' mean nothing"):
        ka.assert_latency_between(late, 1, 10**9)
    with pytest.raises(ValueError, match="times under schedule 'late' mean nothing"):
        ka.assert_overlap(late, "DMA", "MATH", at_least=0.5)


# Overlap


def test_a_streamed_operand_overlaps_with_its_products() -> None:
    ka.assert_overlap(run(streamed), "DMA", "GEMM", at_least=0.9)
    ka.assert_overlap(run(streamed), "GEMM", "DMA_R", at_least=0.9)


def test_a_kernel_that_waits_for_its_loads_overlaps_nothing() -> None:
    serial = run(one_by_one)

    with pytest.raises(AssertionError) as failure:
        ka.assert_overlap(serial, "DMA", "GEMM", at_least=0.1)

    busy = 32 * D * 2 // 256 + TILES * 128 + (1 + TILES) * 6
    assert "DMA and GEMM overlap for 0 cycles of PE0, 0.000 of the shorter one, expected at least 0.1" in str(
        failure.value
    )
    assert f"DMA is busy for {busy}, GEMM for {2048 + TILES * 16}" in str(failure.value)
    where = re.escape(line_of(one_by_one, "tl.load(q"))
    assert re.search(rf"first DMA without GEMM: row 0, load .* at {where}, cycles \d+\.\.\d+", str(failure.value))


def test_overlap_is_measured_by_hand_for_two_ops() -> None:
    """A load of 128 + 6 cycles is issued at 16; zeros of 160 follow 8 later: 126 of the load's cycles have both."""
    some = run(load_beside_exp, spec=replace(AhbmSpec(), issue_costs={"load": 16, "math": 8, "wait": 0}))

    ka.assert_overlap(some, "DMA", "MATH", at_least=126 / 134)
    assert (busy_cycles(some.log, "DMA"), busy_cycles(some.log, "MATH")) == ([134], [448])
    with pytest.raises(
        AssertionError, match=r"overlap for 126 cycles of PE0, 0\.940 of .*: DMA is busy for 134, MATH for 448"
    ):
        ka.assert_overlap(some, "DMA", "MATH", at_least=127 / 134)


def load_beside_exp(q: Any, k: Any, *, tl: Any) -> None:
    x = tl.load(k, (ROWS, D))
    tl.exp(tl.zeros((ROWS, D)))
    tl.wait(x)


def test_the_program_that_overlaps_least_decides() -> None:
    with pytest.raises(AssertionError, match=r"of PE1, 0\.000 of the shorter one"):
        ka.assert_overlap(run(first_streams_second_waits, grid=2), "DMA", "GEMM", at_least=0.5)


def first_streams_second_waits(q: Any, k: Any, *, tl: Any) -> None:
    (streamed if tl.program_id() == 0 else one_by_one)(q, k, tl=tl)


def test_a_program_without_work_on_one_of_the_units_is_not_judged() -> None:
    ka.assert_overlap(run(first_streams_second_rests, grid=2), "DMA", "GEMM", at_least=0.9)
    with pytest.raises(AssertionError, match="no program has work on both DMA and MATH"):
        ka.assert_overlap(run(first_streams_second_rests, grid=2), "DMA", "MATH", at_least=0.9)


def first_streams_second_rests(q: Any, k: Any, *, tl: Any) -> None:
    if tl.program_id() == 0:
        streamed(q, k, tl=tl)


@pytest.mark.parametrize("fraction", [0, -0.5, 1.01])
def test_a_fraction_that_nothing_can_miss_or_reach_is_a_wrong_use(fraction: float) -> None:
    with pytest.raises(ValueError, match=f"at_least={fraction}: wants a fraction over 0"):
        ka.assert_overlap(run(streamed), "DMA", "GEMM", at_least=fraction)
