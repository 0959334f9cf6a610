"""Round-robin KV: every token has one place, and each rank can tell its share from three numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.placement import owner, slot, token_of, valid_len, writes_next

GROUPS = range(1, 9)
LENGTHS = range(40)


def dealt(kv_len: int, start_pe: int, n: int) -> list[list[int]]:
    """The tokens of each rank, dealt one by one like cards."""
    hands: list[list[int]] = [[] for _ in range(n)]
    rank = start_pe
    for token in range(kv_len):
        hands[rank].append(token)
        rank = 0 if rank == n - 1 else rank + 1
    return hands


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 64))
    return n, draw(st.integers(0, n - 1))


@pytest.mark.parametrize("n", GROUPS)
def test_valid_len_is_what_dealing_one_by_one_gives(n: int) -> None:
    for start_pe in range(n):
        for kv_len in LENGTHS:
            shares = [valid_len(kv_len, start_pe, rank, n) for rank in range(n)]
            assert shares == [len(hand) for hand in dealt(kv_len, start_pe, n)], (start_pe, kv_len)


@pytest.mark.parametrize("n", GROUPS)
def test_owner_and_slot_are_where_dealing_puts_a_token(n: int) -> None:
    for start_pe in range(n):
        hands = dealt(LENGTHS.stop, start_pe, n)
        for token in LENGTHS:
            assert hands[owner(token, start_pe, n)][slot(token, n)] == token, (start_pe, token)


@pytest.mark.parametrize("n", GROUPS)
def test_token_of_reads_back_every_dealt_slot(n: int) -> None:
    for start_pe in range(n):
        for rank, hand in enumerate(dealt(LENGTHS.stop, start_pe, n)):
            assert [token_of(row, rank, start_pe, n) for row in range(len(hand))] == hand, (start_pe, rank)


@pytest.mark.parametrize("n", GROUPS)
def test_exactly_the_writer_grows_by_the_appended_token(n: int) -> None:
    for start_pe in range(n):
        for kv_len in LENGTHS:
            grown = [valid_len(kv_len + 1, start_pe, r, n) - valid_len(kv_len, start_pe, r, n) for r in range(n)]
            assert grown == [int(writes_next(kv_len, start_pe, r, n)) for r in range(n)], (start_pe, kv_len)


def test_a_length_that_leaves_out_the_new_token_makes_its_writer_drop_it() -> None:
    before, n, start_pe = 20, 8, 3
    writer = owner(before, start_pe, n)

    assert valid_len(before + 1, start_pe, writer, n) == slot(before, n) + 1
    assert valid_len(before, start_pe, writer, n) == slot(before, n), "R14: the counter is not the new token's position"


@given(groups(), st.integers(0, 10**9))
def test_valid_lengths_sum_to_the_length_and_differ_by_at_most_one(group: tuple[int, int], kv_len: int) -> None:
    n, start_pe = group
    shares = [valid_len(kv_len, start_pe, rank, n) for rank in range(n)]
    assert sum(shares) == kv_len
    assert max(shares) - min(shares) <= 1


@given(groups(), st.integers(0, 10**9))
def test_a_token_is_found_again_from_its_rank_and_slot(group: tuple[int, int], token: int) -> None:
    n, start_pe = group
    assert token_of(slot(token, n), owner(token, start_pe, n), start_pe, n) == token


@given(groups(), st.data())
def test_a_rank_and_slot_are_found_again_from_their_token(group: tuple[int, int], data: st.DataObject) -> None:
    n, start_pe = group
    rank, row = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, 10**9))
    token = token_of(row, rank, start_pe, n)
    assert (owner(token, start_pe, n), slot(token, n)) == (rank, row)


def test_start_pe_moves_shares_round_without_changing_them() -> None:
    at_0 = [valid_len(21, 0, rank, 8) for rank in range(8)]
    at_3 = [valid_len(21, 3, rank, 8) for rank in range(8)]
    assert at_0 == [3, 3, 3, 3, 3, 2, 2, 2]
    assert at_3 == [2, 2, 2, 3, 3, 3, 3, 3]


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_outside_the_group_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=rf"^rank {rank} is outside a group of 8, its ranks are 0\.\.7"):
        valid_len(16, 0, rank, 8)
    with pytest.raises(ValueError, match=rf"^rank {rank} is outside a group of 8"):
        token_of(0, rank, 0, 8)
    with pytest.raises(ValueError, match=rf"^rank {rank} is outside a group of 8"):
        writes_next(0, 0, rank, 8)


def test_counts_below_zero_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^kv_len is -1: it counts from 0$"):
        valid_len(-1, 0, 0, 8)
    with pytest.raises(ValueError, match=r"^token is -1"):
        owner(-1, 0, 8)
    with pytest.raises(ValueError, match=r"^token is -2"):
        slot(-2, 8)
    with pytest.raises(ValueError, match=r"^slot is -3"):
        token_of(-3, 0, 0, 8)


def test_a_group_without_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        owner(0, 0, 0)
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        slot(0, 0)
