"""Rings: ranks that follow each other are neighbours, the way round is short, blocks go as far as they are seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.placement import Mesh
from pytest_kernbench.kernels.ahbm.positions import (
    Placement,
    Span,
    needed_hops,
    ring_hops,
    ring_order,
    shards,
)

MESHES = [(rows, cols) for rows in range(1, 5) for cols in range(1, 6)] + [(5, 3), (5, 5), (7, 5), (5, 7)]
Shards = tuple[tuple[Span, ...], ...]


def seen_by(queries: tuple[Span, ...], block: tuple[Span, ...], window: int | None) -> bool:
    pairs = [(q, k) for some in queries for q in some.positions for keys in block for k in keys.positions]
    return any(k <= q and (window is None or q - k < window) for q, k in pairs)


def hops_of(ranks: Shards, window: int | None = None) -> list[int]:
    return [needed_hops(ranks, block, owner, window) for owner, block in enumerate(ranks)]


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_ranks_lie_on_different_pes_and_follow_each_other_by_one_hop(mesh: Mesh) -> None:
    for n in range(1, mesh[0] * mesh[1] + 1):
        order = ring_order(n, mesh)
        assert len(set(order)) == len(order) == n
        assert set(order) <= set(range(mesh[0] * mesh[1]))
        assert set(ring_hops(order, mesh)[:-1]) <= {1}, order


@pytest.mark.parametrize("mesh", [mesh for mesh in MESHES if min(mesh) > 1], ids=str)
def test_the_way_round_is_the_shortest_there_is(mesh: Mesh) -> None:
    """Every edge is a hop at least, and a way back to its start has an even number of them on a mesh."""
    for n in range(2, mesh[0] * mesh[1] + 1):
        hops = ring_hops(ring_order(n, mesh), mesh)
        assert sum(hops) == n + n % 2, n
        assert (hops[-1] == 1) == (n % 2 == 0), "closed if and only if n is even"


@pytest.mark.parametrize("mesh", [(1, 8), (8, 1), (1, 5), (1, 2), (1, 1)], ids=str)
def test_a_single_row_or_column_is_an_open_chain(mesh: Mesh) -> None:
    for n in range(1, max(mesh) + 1):
        order = ring_order(n, mesh)
        assert order == tuple(range(n))
        assert ring_hops(order, mesh) == (1,) * (n - 1) + (n - 1,)


@pytest.mark.parametrize(
    ("n", "mesh", "order"),
    [
        (8, (2, 4), (0, 1, 2, 3, 7, 6, 5, 4)),
        (8, (4, 2), (0, 1, 3, 5, 7, 6, 4, 2)),
        (6, (2, 4), (0, 1, 2, 6, 5, 4)),
        (5, (2, 4), (5, 4, 0, 1, 2)),
        (2, (2, 4), (0, 4)),
        (16, (4, 4), (0, 1, 2, 3, 7, 11, 15, 14, 10, 6, 5, 9, 13, 12, 8, 4)),
        (9, (3, 3), (6, 3, 0, 1, 2, 5, 4, 7, 8)),
    ],
    ids=str,
)
def test_rings_are_these(n: int, mesh: Mesh, order: tuple[int, ...]) -> None:
    assert ring_order(n, mesh) == order


def test_two_ranks_send_both_ways_over_one_link() -> None:
    assert ring_hops(ring_order(2, (2, 4)), (2, 4)) == (1, 1)


def test_one_rank_sends_to_itself() -> None:
    assert ring_hops(ring_order(1, (2, 4)), (2, 4)) == (0,)


def test_row_major_order_would_stretch_two_edges() -> None:
    assert ring_hops(tuple(range(8)), (2, 4)) == (1, 1, 1, 4, 1, 1, 1, 4)


@given(st.integers(1, 10), st.integers(1, 10), st.data())
def test_any_mesh_has_a_ring_of_any_size(rows: int, cols: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, rows * cols))
    order = ring_order(n, (rows, cols))
    assert len(set(order)) == n
    assert set(ring_hops(order, (rows, cols))[:-1]) <= {1}


def test_contiguous_blocks_go_to_the_last_rank_and_no_further() -> None:
    """R28, R30: an open chain that leaves out 28 of 64 (rank, block) pairs."""
    hops = hops_of(shards(64, 8, "contiguous"))
    assert hops == [7, 6, 5, 4, 3, 2, 1, 0]
    assert sum(7 - far for far in hops) == 28


@pytest.mark.parametrize("placement", ["striped", "zigzag"])
def test_striped_and_zigzag_blocks_are_needed_everywhere(placement: Placement) -> None:
    """R28: a shard that spans the sequence cannot be left out by any rank."""
    hops = hops_of(shards(64, 8, placement))
    assert sum(7 - far for far in hops) == 0


def test_striped_ranks_of_one_position_are_contiguous_ones() -> None:
    assert hops_of(shards(8, 8, "striped")) == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_window_lets_blocks_stop_early() -> None:
    ranks = shards(64, 8, "contiguous")
    assert hops_of(ranks, 9) == [1, 1, 1, 1, 1, 1, 1, 0]
    assert hops_of(ranks, 10) == [2, 2, 2, 2, 2, 2, 1, 0], "the first query of rank 2 sees the last key of rank 0"
    assert hops_of(ranks, 1) == [0] * 8


def test_a_rank_in_between_that_sees_nothing_still_passes_the_block_on() -> None:
    queries: Shards = ((Span(8, 4),), (Span(0, 4),), (Span(12, 4),))
    assert needed_hops(queries, (Span(8, 4),), owner=0) == 2


def test_a_block_goes_round_over_the_last_rank() -> None:
    queries: Shards = ((Span(8, 4),), (), (Span(0, 4),))
    assert needed_hops(queries, (Span(0, 4),), owner=2) == 1


@given(st.integers(0, 40), st.integers(1, 6), st.sampled_from(["contiguous", "striped", "zigzag"]), st.data())
def test_needed_hops_is_the_distance_of_the_last_rank_that_sees_a_key(
    s: int, n: int, placement: Placement, data: st.DataObject
) -> None:
    window = data.draw(st.none() | st.integers(1, 40))
    ranks = shards(s, n, placement)
    far = [[h for h in range(1, n) if seen_by(ranks[(o + h) % n], ranks[o], window)] for o in range(n)]
    assert hops_of(ranks, window) == [max(each, default=0) for each in far]


def test_an_empty_block_goes_nowhere() -> None:
    assert hops_of(shards(3, 6, "contiguous"))[3:] == [0, 0, 0]


@pytest.mark.parametrize("mesh", [(2, 4), (3, 3)], ids=str)
def test_more_ranks_than_pes_are_refused_with_both_numbers(mesh: Mesh) -> None:
    pes = mesh[0] * mesh[1]
    with pytest.raises(ValueError, match=rf"^{pes + 1} ranks do not fit a {mesh[0]}x{mesh[1]} mesh of {pes} PEs"):
        ring_order(pes + 1, mesh)


def test_an_empty_ring_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        ring_order(0, (2, 4))
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        ring_hops((), (2, 4))


def test_a_ring_over_a_pe_outside_the_mesh_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^PE 8 is outside a 2x4 mesh: its PEs are 0\.\.7$"):
        ring_hops((0, 8), (2, 4))


@pytest.mark.parametrize("owner", [-1, 8])
def test_an_owner_outside_the_ring_is_refused(owner: int) -> None:
    with pytest.raises(ValueError, match=rf"^rank {owner} is outside a group of 8, its ranks are 0\.\.7"):
        needed_hops(shards(64, 8, "contiguous"), (Span(0, 8),), owner)
