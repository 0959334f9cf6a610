"""Reduction trees: every edge is a link of the mesh, every rank is merged once, in as few rounds as the mesh allows."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.placement import GRAY_SIDES, Mesh, Tree, direction, opposite, placement, tree

GRAY_MESHES = [(rows, cols) for rows in GRAY_SIDES for cols in GRAY_SIDES]
OTHER_MESHES = [(1, 8), (8, 1), (3, 3), (2, 3), (2, 8), (1, 7), (5, 3), (4, 8)]
STEP = {"N": (-1, 0), "S": (1, 0), "W": (0, -1), "E": (0, 1)}


def hops(a: int, b: int, mesh: Mesh) -> int:
    cols = mesh[1]
    return abs(a // cols - b // cols) + abs(a % cols - b % cols)


def every_tree(meshes: list[Mesh]) -> list[Tree]:
    return [tree(n, mesh) for mesh in meshes for n in range(1, mesh[0] * mesh[1] + 1)]


def edges(one: Tree) -> list[tuple[int, int]]:
    return [(rank, parent) for rank, parent in enumerate(one.parent) if parent is not None]


def pairwise_rounds(one: Tree) -> list[set[tuple[int, int]]]:
    """The edges of each round when a rank sends once all its children are merged, and receives one message a round."""
    waiting = [list(order) for order in one.children]
    sent: set[int] = set()
    rounds = []
    while len(sent) < len(one.parent) - 1:
        ready = {rank for rank, left in enumerate(waiting) if not left and rank not in sent}
        now = {(left[0], rank) for rank, left in enumerate(waiting) if left and left[0] in ready}
        assert now, "nobody can go on"
        for child, parent in now:
            sent.add(child)
            waiting[parent].remove(child)
        rounds.append(now)
    return rounds


@pytest.mark.parametrize("mesh", GRAY_MESHES + OTHER_MESHES, ids=str)
def test_every_edge_is_one_hop_for_every_number_of_ranks(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        lengths = [hops(one.placement[rank], one.placement[parent], mesh) for rank, parent in edges(one)]
        assert lengths == [1] * len(lengths), one


@pytest.mark.parametrize("mesh", GRAY_MESHES + OTHER_MESHES, ids=str)
def test_ranks_lie_on_different_pes_of_the_mesh(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        assert len(set(one.placement)) == len(one.placement)
        assert set(one.placement) <= set(range(mesh[0] * mesh[1]))
        assert one.placement == placement(len(one.parent), mesh)


@pytest.mark.parametrize("mesh", GRAY_MESHES + OTHER_MESHES, ids=str)
def test_every_rank_but_the_last_has_one_parent_that_lists_it_as_a_child(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        assert [rank for rank, parent in enumerate(one.parent) if parent is None] == [one.root]
        assert one.root == len(one.parent) - 1
        assert len(edges(one)) == one.root
        listed = [(child, rank) for rank, order in enumerate(one.children) for child in order]
        assert sorted(listed) == edges(one)


@pytest.mark.parametrize("mesh", GRAY_MESHES, ids=str)
def test_gray_meshes_take_log2_rounds_for_every_number_of_ranks(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        assert one.rounds == ceil(log2(len(one.parent))), one


@pytest.mark.parametrize(
    ("mesh", "rounds"),
    [
        ((1, 1), 0),
        ((1, 2), 1),
        ((2, 2), 2),
        ((1, 4), 2),
        ((2, 4), 3),
        ((4, 2), 3),
        ((1, 8), 4),
        ((3, 3), 4),
        ((2, 3), 3),
        ((4, 4), 4),
        ((2, 8), 5),
        ((4, 8), 6),
        ((2, 16), 9),
    ],
    ids=str,
)
def test_a_full_mesh_takes_the_fewest_rounds_known_for_it(mesh: Mesh, rounds: int) -> None:
    """The table of ADR-0060 clause 4: max(ceil(log2 N), radius) is reached wherever a search found that it can be."""
    one = tree(mesh[0] * mesh[1], mesh)
    assert one.rounds == rounds
    assert divmod(one.placement[one.root], mesh[1]) == (mesh[0] // 2, mesh[1] // 2)


@pytest.mark.parametrize("mesh", GRAY_MESHES + OTHER_MESHES, ids=str)
def test_rounds_counts_the_steps_of_a_one_message_a_round_schedule(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        assert len(pairwise_rounds(one)) == one.rounds, one


@pytest.mark.parametrize("mesh", GRAY_MESHES + OTHER_MESHES, ids=str)
def test_merging_in_tree_order_brings_every_rank_to_the_root_once(mesh: Mesh) -> None:
    for one in every_tree([mesh]):
        merged: list[list[int]] = []
        for rank, order in enumerate(one.children):
            assert all(child < rank for child in order), "a child sends before its parent does"
            merged.append([rank] + [leaf for child in order for leaf in merged[child]])
        assert sorted(merged[one.root]) == list(range(len(one.parent)))


def test_eight_ranks_on_2x4_are_the_tree_of_the_adr() -> None:
    one = tree(8, (2, 4))
    assert pairwise_rounds(one) == [{(0, 1), (2, 3), (4, 5), (6, 7)}, {(1, 3), (5, 7)}, {(3, 7)}]
    assert one.children[7] == (6, 5, 3)
    assert one.placement == (0, 1, 3, 2, 4, 5, 7, 6)


def test_row_major_ids_would_stretch_two_edges_of_the_same_tree() -> None:
    stretched = [edge for edge in edges(tree(8, (2, 4))) if hops(*edge, (2, 4)) > 1]
    assert stretched == [(1, 3), (5, 7)], "R23, and why placement exists"


def test_fewer_ranks_take_the_last_ids_of_the_full_tree() -> None:
    full = placement(8, (2, 4))
    assert [placement(n, (2, 4)) for n in range(1, 9)] == [full[-n:] for n in range(1, 9)]


def test_a_level_is_received_before_the_next_higher_one() -> None:
    assert tree(16, (4, 4)).children[15] == (14, 13, 11, 7)
    assert tree(6, (2, 4)).children[5] == (4, 3, 1)


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_any_mesh_has_one_hop_edges_and_no_more_rounds_than_its_two_phases(
    rows: int, cols: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, rows * cols))
    one = tree(n, (rows, cols))
    assert {hops(one.placement[a], one.placement[b], (rows, cols)) for a, b in edges(one)} <= {1}
    assert len(edges(one)) == n - 1
    phases = sum(ceil(side / 2) for side in (rows, cols) if side > 1)
    assert ceil(log2(n)) <= one.rounds <= phases


@pytest.mark.parametrize("mesh", [(2, 4), (3, 3)], ids=str)
def test_more_ranks_than_pes_are_refused_with_both_numbers(mesh: Mesh) -> None:
    pes = mesh[0] * mesh[1]
    with pytest.raises(ValueError, match=rf"^{pes + 1} ranks do not fit a {mesh[0]}x{mesh[1]} mesh of {pes} PEs"):
        tree(pes + 1, mesh)


def test_an_empty_group_and_an_empty_mesh_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        tree(0, (2, 4))
    with pytest.raises(ValueError, match=r"^a 0x4 mesh has no PE"):
        placement(1, (0, 4))


@pytest.mark.parametrize(("dst", "port"), [(1, "N"), (9, "S"), (4, "W"), (6, "E")])
def test_north_is_the_row_above_and_west_the_column_before(dst: int, port: str) -> None:
    assert direction(5, dst, (3, 4)) == port


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_a_direction_leads_there_and_its_opposite_leads_back(rows: int, cols: int, data: st.DataObject) -> None:
    src = data.draw(st.integers(0, rows * cols - 1))
    for dst in range(rows * cols):
        if hops(src, dst, (rows, cols)) == 1:
            port = direction(src, dst, (rows, cols))
            down, right = STEP[port]
            assert (src // cols + down, src % cols + right) == divmod(dst, cols)
            assert direction(dst, src, (rows, cols)) == opposite(port)


@pytest.mark.parametrize(
    ("src", "dst", "apart"),
    [
        (0, 0, 0),
        (0, 5, 2),
        (3, 4, 4),  # neighbours by number, at the two ends of their rows
        (0, 3, 3),  # a mesh is no torus
    ],
)
def test_pes_that_are_not_neighbours_have_no_direction(src: int, dst: int, apart: int) -> None:
    ends = rf"PE {src} at \({src // 4}, {src % 4}\) and PE {dst} at \({dst // 4}, {dst % 4}\)"
    with pytest.raises(ValueError, match=rf"^{ends} are {apart} hops apart on a 2x4 mesh"):
        direction(src, dst, (2, 4))


@pytest.mark.parametrize("pe", [-1, 8])
def test_a_pe_outside_the_mesh_has_no_direction(pe: int) -> None:
    with pytest.raises(ValueError, match=rf"^PE {pe} is outside a 2x4 mesh: its PEs are 0\.\.7$"):
        direction(pe, 0, (2, 4))


def test_opposite_of_a_word_that_is_no_direction_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no direction 'north': directions are \"N\", \"S\", \"E\", \"W\"$"):
        opposite("north")
