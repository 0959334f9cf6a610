"""Offload and issue-ahead: each helper accepts a kernel that keeps its promise and refuses one that breaks it."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import WIDTH, WORK

TILE, D, TILES = 32, 64, 4
Kernel = Callable[..., None]


def line_of(kernel: Kernel, text: str) -> str:
    """File, line and function of the line of `kernel` that holds `text`, as messages have them."""
    lines, first = inspect.getsourcelines(kernel)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return f"test_assertions_composites.py:{at} in {kernel.__name__}"


def run(kernel: Kernel, *args: Any, grid: int = 1) -> Run:
    """A structure-only run of a kernel of the rows q and `TILES` tiles of k."""
    chip = AhbmChip()
    q, k = chip.tensor("Q", (8, D)), chip.tensor("K", (TILES * TILE, D))
    return chip.run(kernel, q, k, *args, grid=grid, check="collect")


def ahead_by(q: Any, k: Any, depth: int, label: str = "QK", tiles: int = TILES, *, tl: Any) -> None:
    """A product a tile of k; waits for one when `depth` later ones have been issued."""
    rows = tl.load(q, (8, D))
    flying = []
    for j in range(tiles):
        with tl.region(label):
            tile = tl.ref(k + j * TILE * D, (TILE, D))
            flying.append(tl.composite("gemm", rows, tile, trans_b=True))
        if len(flying) > depth:
            tl.wait(flying.pop(0))
    tl.wait(*flying)


# Issue-ahead


@pytest.mark.parametrize(("depth", "promised"), [(1, 1), (2, 1), (2, 2), (3, 3)])
def test_products_that_are_issued_ahead(depth: int, promised: int) -> None:
    some = run(ahead_by, depth)

    ka.assert_issue_ahead(some, promised)
    ka.assert_issue_ahead(some, promised, region="QK")


@pytest.mark.parametrize(("depth", "promised"), [(0, 1), (1, 2), (1, 3)])
def test_a_product_that_is_issued_after_the_wait_is_refused_with_both_and_the_wait(depth: int, promised: int) -> None:
    with pytest.raises(AssertionError) as failure:
        ka.assert_issue_ahead(run(ahead_by, depth), promised)

    text = str(failure.value)
    assert (
        f"composite {promised} labelled 'QK' is issued after composite 0 was awaited, expected {promised} ahead" in text
    )
    issued, awaited = (re.escape(line_of(ahead_by, line)) for line in ("tl.composite", "tl.wait(flying.pop"))
    rows = re.search(
        rf"  0: row (\d+), composite .* at {issued}\n  awaited: row (\d+), wait .* at {awaited}\n"
        rf"  {promised}: row (\d+), composite .* at {issued}",
        text,
    )
    assert rows and int(rows[1]) < int(rows[2]) < int(rows[3])


def test_issue_ahead_is_judged_in_every_program() -> None:
    with pytest.raises(AssertionError, match=r"awaited: row \d+, wait on CPU of PE1"):
        ka.assert_issue_ahead(run(only_rank_0_ahead, grid=2), region="QK")


def only_rank_0_ahead(q: Any, k: Any, *, tl: Any) -> None:
    ahead_by(q, k, 1 - tl.program_id(), tl=tl)


@pytest.mark.parametrize("labels", [{"QK": 1, "PV": 0}, {"PV": 0, "QK": 1}])
def test_one_label_that_is_ahead_is_enough_unless_another_is_named(labels: dict[str, int]) -> None:
    """A decode step: the next scores are issued ahead, the product with V cannot be."""
    some = run(several, labels)

    ka.assert_issue_ahead(some)
    ka.assert_issue_ahead(some, region="QK")
    with pytest.raises(AssertionError, match="composite 1 labelled 'PV' is issued after composite 0 was awaited"):
        ka.assert_issue_ahead(some, region="PV")


def test_labels_of_which_none_is_ahead_are_all_named() -> None:
    with pytest.raises(AssertionError, match=r"labelled 'QK' is issued after (?s:.*)labelled 'PV' is issued after"):
        ka.assert_issue_ahead(run(several, {"QK": 0, "PV": 0}))


def several(q: Any, k: Any, labels: dict[str, int], *, tl: Any) -> None:
    """The products of each label, issued ahead by its depth."""
    for label, depth in labels.items():
        ahead_by(q, k, depth, label, tl=tl)


def test_a_wait_for_a_later_product_is_a_wait_for_the_earlier_one() -> None:
    """Composite 0 is never waited for by itself, but composite 1 is, and that is before 2 is issued."""
    with pytest.raises(AssertionError, match="composite 2 labelled 'QK' is issued after composite 0 was awaited"):
        ka.assert_issue_ahead(run(waits_for_every_second), 2)


def waits_for_every_second(q: Any, k: Any, *, tl: Any) -> None:
    rows = tl.load(q, (8, D))
    for j in range(TILES):
        with tl.region("QK"):
            scores = tl.composite("gemm", rows, tl.ref(k + j * TILE * D, (TILE, D)), trans_b=True)
        if j % 2:
            tl.wait(scores)


def test_the_first_wait_for_a_product_counts_and_not_the_last() -> None:
    with pytest.raises(AssertionError, match="composite 1 labelled 'QK' is issued after composite 0 was awaited"):
        ka.assert_issue_ahead(run(waits_again_at_the_end))


def waits_again_at_the_end(q: Any, k: Any, *, tl: Any) -> None:
    rows = tl.load(q, (8, D))
    with tl.region("QK"):
        scores = [tl.wait(tl.composite("gemm", rows, tl.ref(k, (TILE, D)), trans_b=True)) for _ in range(2)]
    tl.wait(*scores)


def test_one_product_cannot_be_ahead_of_itself() -> None:
    with pytest.raises(AssertionError, match="at most 1 composites a program are labelled 'QK': none can be 1 ahead"):
        ka.assert_issue_ahead(run(ahead_by, 0, "QK", 1))


def test_a_label_without_products_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(AssertionError, match="no composite is labelled 'qk'; labels: 'QK'"):
        ka.assert_issue_ahead(run(ahead_by, 1), region="qk")


def test_a_run_without_products_is_refused() -> None:
    with pytest.raises(AssertionError, match="no composite among 1 rows"):
        ka.assert_issue_ahead(run(nothing_but_a_load))


def nothing_but_a_load(q: Any, k: Any, *, tl: Any) -> None:
    tl.load(q, (8, D))


def test_a_depth_of_nothing_is_a_wrong_use() -> None:
    with pytest.raises(ValueError, match="depth 0"):
        ka.assert_issue_ahead(run(ahead_by, 1), 0)


# Offload


def test_composites_of_streamed_tiles_are_offloaded() -> None:
    some = run(ahead_by, 1)

    ka.assert_composite_offload(some)
    ka.assert_composite_offload(some, streamed=["K"])


def test_a_composite_of_an_operand_on_chip_is_offloaded_too() -> None:
    """The products of a ring take K from received slots: no panels, but sub-tiles."""
    some = run(loaded_tile)

    ka.assert_composite_offload(some)
    with pytest.raises(AssertionError) as failure:
        ka.assert_composite_offload(some, streamed=["K"])

    assert "0 of 1 reads of K are panels of composites, expected all of at least 1" in str(failure.value)
    where = re.escape(line_of(loaded_tile, "tl.load(k"))
    assert re.search(rf"first other read: row \d+, load on DMA_R of PE0, K\[0:4096\] .* at {where}", str(failure.value))


def loaded_tile(q: Any, k: Any, *, tl: Any) -> None:
    tile = tl.load(k, (TILE, D))
    tl.wait(tl.composite("gemm", tl.load(q, (8, D)), tile, trans_b=True))


def test_a_load_beside_the_panels_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"4 of 5 reads of K are panels .*\n  first other read: row \d+, load"):
        ka.assert_composite_offload(run(peeks_at_k), streamed=["K"])


def peeks_at_k(q: Any, k: Any, *, tl: Any) -> None:
    tl.wait(tl.load(k, (1, D)))
    ahead_by(q, k, 1, tl=tl)


def test_a_blocking_dot_is_refused_with_its_line() -> None:
    with pytest.raises(AssertionError) as failure:
        ka.assert_composite_offload(run(composite_and_dot))

    where = re.escape(line_of(composite_and_dot, "tl.dot"))
    assert "1 blocking dots beside 1 composites, expected 0" in str(failure.value)
    assert re.search(rf"first: row \d+, dot on GEMM of PE0, .* at {where}", str(failure.value))


def composite_and_dot(q: Any, k: Any, *, tl: Any) -> None:
    rows, tile = tl.load(q, (8, D)), tl.load(k, (TILE, D))
    tl.wait(tl.composite("gemm", rows, tile, trans_b=True))
    tl.dot(rows, tile, trans_b=True)


def test_a_run_without_any_product_is_not_offloaded() -> None:
    with pytest.raises(AssertionError, match="no composite among 1 rows, expected at least 1"):
        ka.assert_composite_offload(run(nothing_but_a_load))


def test_sub_tiles_that_do_not_make_up_their_composite_are_refused() -> None:
    """A fault of the scheduler, made by hand: the log loses the work of one sub-tile."""
    faulty = run(ahead_by, 1)
    lost = int(faulty.log.where(name="gemm").index[-1])
    faulty.log.cells[lost * WIDTH + WORK] = 0

    with pytest.raises(AssertionError) as failure:
        ka.assert_composite_offload(faulty)

    assert f"the sub-tiles of a composite do 0 MACs, the composite wants {8 * TILE * D}" in str(failure.value)
    assert f"row {faulty.log[lost].parent}, composite" in str(failure.value)
