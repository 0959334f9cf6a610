"""The scratch budget of a block of queries, against numbers worked out by hand from the kernel's allocations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth, Rules
from pytest_kernbench.kernels.ahbm.requests import Request

# Three positions of two heads are 6 rows: a column of float32 takes 64 bytes, a matrix of 16 wide 384.
SIZES = Sizes(group=2, d=32, d_v=16, itemsize=2, tile=8, rules=Rules(1.0), depth=Depth(ahead=1, in_flight=2))
COLUMN, MATRIX = 64, 384
MASK = 64 + 64 + 64 + 128  # counts of rows and keys, who sees whom, what is added: 3 x 8


def test_two_whole_tiles_and_a_tail() -> None:
    budget = Budget.of_block(3, 21, SIZES)

    assert budget == Budget(
        positions=3, rows=6, tile=8, state=3 * COLUMN + MATRIX, queries=384,
        scores=2 * 192 + 128, products=2 * 128 + 64 + 2 * (MATRIX + COLUMN),
        folding=5 * COLUMN + MASK, storing=MATRIX + COLUMN,
    )  # fmt: skip
    assert budget.total == budget.state + budget.queries + budget.scores + budget.products + budget.folding


@pytest.mark.parametrize(
    ("keys", "ahead", "in_flight", "scores", "products"),
    [
        (0, 1, 2, 0, 0),
        (8, 1, 2, 192, 128 + 448),  # a single tile has no other to take turns with
        (24, 0, 1, 192, 128 + 448),
        (24, 1, 1, 2 * 192, 128 + 448),
        (24, 1, 3, 2 * 192, 3 * (128 + 448)),
        (64, 2, 2, 3 * 192, 2 * (128 + 448)),
        (5, 0, 2, 128, 64 + 448),
    ],
)
def test_buffers_are_as_many_as_are_in_use_or_tiles_there_are(
    keys: int, ahead: int, in_flight: int, scores: int, products: int
) -> None:
    budget = Budget.of_block(3, keys, replace(SIZES, depth=Depth(ahead, in_flight)))

    assert (budget.scores, budget.products) == (scores, products)


def test_storing_counts_where_it_is_more_than_folding() -> None:
    wide = Budget.of_block(3, 5, replace(SIZES, d_v=64, sinks=True, lse=True))

    assert wide.storing == 6 * 64 * 4 + (1 + 9 + 2) * COLUMN > wide.folding == 5 * COLUMN + 64 + 64 + 64 + 64
    assert wide.total == wide.state + wide.queries + wide.scores + wide.products + wide.storing


def test_a_window_has_a_mask_of_its_own() -> None:
    with_window = Budget.of_block(3, 21, replace(SIZES, rules=Rules(1.0, window=4)))

    assert with_window.folding == 5 * COLUMN + MASK + 64 + 64 + 128


@pytest.mark.parametrize(("tokens", "positions"), [(2, 2), (4, 4), (9, 4)])
def test_a_prefill_takes_blocks_of_what_is_asked_for_or_there_is(tokens: int, positions: int) -> None:
    requests = [Request(21, tokens), Request(21, 1)]

    assert Budget.of_prefill(requests, 4, SIZES) == Budget.of_block(positions, 21, SIZES)


@pytest.mark.parametrize(
    ("t_q", "q_block", "positions"),
    [(40, 6, 3), (40, 1, 1), (9, 40, 9)],
    ids=["half of a block", "at least one position", "no more than there are"],
)
def test_a_zigzag_rank_sweeps_two_blocks_of_half_the_positions_each(t_q: int, q_block: int, positions: int) -> None:
    budget = Budget.of_ring([Request(40, t_q)], 4, "zigzag", q_block, SIZES)  # eight spans of 5 keys, 2 of them a rank

    assert (budget.positions, budget.sweeps, budget.own) == (positions, 2, 3 * (320 + 192))


def test_a_ring_has_a_tile_and_a_tail_of_its_own_keys() -> None:
    budget = Budget.of_ring([Request(42, 42)], 2, "contiguous", 3, SIZES)

    assert budget.own == 3 * (512 + 256 + 320 + 192)  # K and V of 8 rows and of 5
    assert budget.scores == 2 * 192 + 2 * 128
    assert (budget.positions, budget.sweeps) == (3, 1)
