"""Bytes, products and scratch: each helper accepts a kernel that keeps its promise and refuses one that breaks it.

A failure has the numbers of both sides, the op to blame and the line of this file that said it.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run

D = 64  # width of a row of q and k
S = 128  # rows of k
K_BYTES = S * D * 2
Kernel = Callable[..., None]


def line_of(kernel: Kernel, text: str) -> str:
    """File, line and function of the line of `kernel` that holds `text`, as messages have them."""
    lines, first = inspect.getsourcelines(kernel)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return f"test_assertions_traffic.py:{at} in {kernel.__name__}"


def run(kernel: Kernel, *args: Any, group: int = 1, grid: int = 1) -> Run:
    """A structure-only run of a kernel of q, k and the scores o."""
    chip = AhbmChip()
    q = chip.tensor("Q", (group, D), place="replicate")
    k = chip.tensor("K", (S, D))
    o = chip.tensor("O", (group, S), "float32")
    return chip.run(kernel, q, k, o, group, *args, grid=grid)


def runs(kernel: Kernel) -> dict[int, Run]:
    return {group: run(kernel, group=group) for group in (1, 2, 4)}


def all_heads_at_once(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    """Scores of all rows of the group from one pass over k."""
    scores = tl.composite("gemm", tl.load(q, (group, D)), tl.ref(k, (S, D)), trans_b=True)
    tl.wait(tl.store(o, tl.wait(scores)))


def head_by_head(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    """The same scores, with a pass over k for each row."""
    for head in range(group):
        scores = tl.composite("gemm", tl.load(q + head * D, (1, D)), tl.ref(k, (S, D)), trans_b=True)
        tl.wait(tl.store(o + head * S, tl.wait(scores)))


def in_uneven_parts(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    """All bytes of k once, but in more descriptors for a larger group."""
    rows = tl.load(q, (group, D))
    for first, last in ((0, 16), (16, S)) if group > 1 else ((0, S),):
        part = tl.ref(k + first * D, (last - first, D))
        scores = tl.wait(tl.composite("gemm", rows, part, trans_b=True))
        tl.wait(tl.store(o + first, scores, strides=(S, 1)))


def first_head_only(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    """Forgets all rows of the group but the first."""
    scores = tl.composite("gemm", tl.load(q, (1, D)), tl.ref(k, (S, D)), trans_b=True)
    tl.wait(tl.store(o, tl.wait(scores)))


# Reads and the group


def test_reads_of_a_shared_operand_do_not_depend_on_the_group() -> None:
    ka.assert_dma_reads_independent_of_group(runs(all_heads_at_once), tensors=["K"])


def test_a_pass_for_each_head_is_refused_with_both_sides_and_its_line() -> None:
    with pytest.raises(AssertionError) as failure:
        ka.assert_dma_reads_independent_of_group(runs(head_by_head), tensors=["K"])

    text = str(failure.value)
    assert f"G=1: {K_BYTES} bytes in 4 reads" in text
    assert f"G=4: {4 * K_BYTES} bytes in 16 reads" in text
    extra = re.search(
        r"first read that G=2 has and G=1 has not: row \d+, panel on DMA_R of PE0, K\[0:4096\], at (.*)", text
    )
    assert extra and extra[1] == line_of(head_by_head, "tl.composite")


def test_as_many_bytes_in_more_reads_are_refused_too() -> None:
    with pytest.raises(AssertionError, match=rf"G=2: {K_BYTES} bytes in 5 reads(?s:.*)K\[0:2048\]"):
        ka.assert_dma_reads_independent_of_group(runs(in_uneven_parts), tensors=["K"])


def test_a_read_that_only_the_small_group_has_is_named() -> None:
    mixed = {1: run(head_by_head, group=1), 2: run(only_the_head_of_k)}

    with pytest.raises(
        AssertionError, match=r"first read that G=1 has and G=2 has not: row \d+, panel .* K\[4096:8192\]"
    ):
        ka.assert_dma_reads_independent_of_group(mixed, tensors=["K"])


def only_the_head_of_k(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    scores = tl.composite("gemm", tl.load(q, (1, D)), tl.ref(k, (32, D)), trans_b=True)
    tl.wait(tl.store(o, tl.wait(scores)))


def test_reads_that_move_to_another_program_are_refused() -> None:
    one, other = (run(only_one_reads, reader, group=4, grid=2) for reader in (0, 1))

    with pytest.raises(AssertionError, match=r"first read that G=4 has and G=2 has not: row \d+, load on DMA_R of PE1"):
        ka.assert_dma_reads_independent_of_group({2: one, 4: other}, tensors=["K"])


def only_one_reads(q: Any, k: Any, o: Any, group: int, reader: int, *, tl: Any) -> None:
    if tl.program_id() == reader:
        tl.wait(tl.load(k, (S, D)))


def test_a_tensor_that_no_run_reads_is_not_independent_but_unread() -> None:
    with pytest.raises(AssertionError, match="no run reads O"):
        ka.assert_dma_reads_independent_of_group(runs(all_heads_at_once), tensors=["O"])


def test_a_tensor_that_does_not_exist_is_a_wrong_use() -> None:
    with pytest.raises(ValueError, match=r"no tensor 'V'; it has Q, K, O"):
        ka.assert_dma_reads_independent_of_group(runs(all_heads_at_once))


@pytest.mark.parametrize("helper", [ka.assert_dma_reads_independent_of_group, ka.assert_work_scales_with_group])
def test_one_group_size_is_nothing_to_compare(helper: Callable[..., None]) -> None:
    with pytest.raises(ValueError, match="runs has 1 group size"):
        helper({4: run(all_heads_at_once, group=4)})


# Work and the group


@pytest.mark.parametrize("kernel", [all_heads_at_once, head_by_head, in_uneven_parts])
def test_work_grows_with_the_group_however_it_is_cut(kernel: Kernel) -> None:
    ka.assert_work_scales_with_group(runs(kernel))


def test_a_kernel_that_forgets_heads_is_refused_with_both_sides_and_its_line() -> None:
    macs = S * D

    with pytest.raises(AssertionError) as failure:
        ka.assert_work_scales_with_group(runs(first_head_only))

    text = str(failure.value)
    assert f"G=1: {macs}, {macs} for each" in text
    assert f"G=4: {macs}, {macs / 4:g} for each" in text
    assert f"first at {line_of(first_head_only, 'tl.composite')}: {macs} with G=1, {macs} with G=2" in text


def test_an_epilogue_is_no_product() -> None:
    """Its elements are on GEMM's pipe too: were they counted, no group size would be proportional to another."""
    ka.assert_work_scales_with_group(runs(with_padded_epilogue))


def with_padded_epilogue(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    rows = tl.load(q, (group, D))
    steps = (("relu",),) * (8 // group) * 3
    tl.wait(tl.composite("gemm", rows, tl.ref(k, (S, D)), trans_b=True, epilogue=steps))


def test_the_work_of_another_unit_can_be_asked_for() -> None:
    some = runs(all_heads_at_once)

    with pytest.raises(AssertionError, match="no run has work on MATH"):
        ka.assert_work_scales_with_group(some, unit="MATH")


# Exact bytes


def test_exact_bytes_as_a_total_and_for_each_program() -> None:
    both = run(all_heads_at_once, group=4, grid=2)

    ka.assert_bytes_read(both, "K", 2 * K_BYTES)
    ka.assert_bytes_read(both, "K", [K_BYTES, K_BYTES])
    ka.assert_bytes_read(both, "O", 0)


def test_bytes_that_are_read_twice_are_refused_with_both_reads() -> None:
    with pytest.raises(AssertionError) as failure:
        ka.assert_bytes_read(run(head_by_head, group=2), "K", K_BYTES)

    text = str(failure.value)
    assert f"{2 * K_BYTES} bytes of K are read, expected {K_BYTES}" in text
    where = re.escape(line_of(head_by_head, "tl.composite"))
    assert re.search(
        rf"read again: row (\d+), panel .* at {where}\n  before by: row (?!\1)\d+, panel .* at {where}", text
    )


def test_a_short_read_is_refused_with_the_last_one() -> None:
    with pytest.raises(
        AssertionError, match=rf"4096 bytes of K are read, expected {K_BYTES}\n  last read: row \d+, panel"
    ):
        ka.assert_bytes_read(run(only_the_head_of_k), "K", K_BYTES)


def test_no_read_at_all_is_said_so() -> None:
    with pytest.raises(AssertionError, match=r"0 bytes of O are read, expected 512\n  there is no read of it"):
        ka.assert_bytes_read(run(all_heads_at_once), "O", 512)


def test_totals_that_fit_do_not_hide_a_wrong_program() -> None:
    one_reads = run(only_one_reads, 1, group=4, grid=2)

    ka.assert_bytes_read(one_reads, "K", K_BYTES)
    with pytest.raises(AssertionError, match=rf"\[0, {K_BYTES}\] bytes of K are read, expected \[{K_BYTES}, 0\]"):
        ka.assert_bytes_read(one_reads, "K", [K_BYTES, 0])


def test_numbers_for_another_number_of_programs_are_a_wrong_use() -> None:
    with pytest.raises(ValueError, match="3 numbers are expected of 2 programs"):
        ka.assert_bytes_read(run(all_heads_at_once, grid=2), "K", [1, 2, 3])


# Number of products


def blocks(q: Any, k: Any, o: Any, group: int, causal: bool, *, tl: Any) -> None:
    """A product for each pair of four query blocks and four tiles of k, or for those below the diagonal."""
    rows = tl.load(q, (group, D))
    for block in range(4):
        for tile in range(block + 1 if causal else 4):
            with tl.region(f"block{block}"):
                tl.wait(tl.composite("gemm", rows, tl.ref(k + tile * 32 * D, (32, D)), trans_b=True))


def test_the_lower_triangle_of_products() -> None:
    causal = run(blocks, True)

    ka.assert_gemm_count(causal, 10)
    ka.assert_gemm_count(causal, [10])
    ka.assert_gemm_count(causal, 3, region="block2")
    ka.assert_gemm_count(causal, 10, of="tile")


def test_the_full_square_is_refused_with_the_first_product_too_many() -> None:
    square = run(blocks, False)
    eleventh = square.log.where(name="composite").index[10]

    with pytest.raises(AssertionError) as failure:
        ka.assert_gemm_count(square, 10)

    where = line_of(blocks, "tl.composite")
    assert "16 products of GEMM, expected 10" in str(failure.value)
    assert f"16 at {where}" in str(failure.value)
    assert re.search(rf"first too many: row {eleventh}, composite .* at {re.escape(where)}", str(failure.value))


def test_missing_products_are_refused_with_the_last_one() -> None:
    with pytest.raises(
        AssertionError, match=r"\[10\] products of GEMM, expected \[16\]\n(?s:.*)last: row \d+, composite"
    ):
        ka.assert_gemm_count(run(blocks, True), [16])


def test_a_region_without_products_is_said_so() -> None:
    with pytest.raises(AssertionError, match=r"0 products of GEMM, expected 1\n  there is none"):
        ka.assert_gemm_count(run(blocks, True), 1, region="block9")


def test_what_to_count_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="of='dots' is none of 'product', 'tile'"):
        ka.assert_gemm_count(run(blocks, True), 1, of="dots")


def test_a_blocking_dot_is_a_product_and_no_tile() -> None:
    dotted = run(one_dot, group=4)

    ka.assert_gemm_count(dotted, 1)
    ka.assert_gemm_count(dotted, 0, of="tile")


def one_dot(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    tl.dot(tl.load(q, (group, D)), tl.load(k, (S, D)), trans_b=True)


# Scratch


def tiles_of_k(q: Any, k: Any, o: Any, group: int, scoped: bool, *, tl: Any) -> None:
    """Four tiles of k, each given back before the next, or none."""
    for tile in range(4):
        if scoped:
            with tl.scratch_scope():
                tl.wait(tl.load(k + tile * 32 * D, (32, D)))
        else:
            tl.wait(tl.load(k + tile * 32 * D, (32, D)))  # no scope


def test_scopes_keep_scratch_within_a_tile() -> None:
    ka.assert_scratch_within(run(tiles_of_k, True), 32 * D * 2)


def test_scratch_without_scopes_is_refused_with_the_first_op_beyond() -> None:
    unscoped = re.escape(line_of(tiles_of_k, "(32, D)))  # no scope"))

    with pytest.raises(AssertionError) as failure:
        ka.assert_scratch_within(run(tiles_of_k, False), 2 * 32 * D * 2)

    assert "scratch goes up to 16384 bytes, expected at most 8192" in str(failure.value)
    assert re.search(rf"first op beyond, up to byte 12288: row 4, load .* at {unscoped}$", str(failure.value))


def test_scratch_that_is_taken_and_never_used_counts() -> None:
    with pytest.raises(AssertionError, match=r"up to 4096 bytes, expected at most 64\n  no op touches"):
        ka.assert_scratch_within(run(taken_in_vain), 64)


def taken_in_vain(q: Any, k: Any, o: Any, group: int, *, tl: Any) -> None:
    tl.empty((16, 64))
