"""Shards: each position of a sequence stands on one rank, and the work of the ranks is as the closed forms say."""

from fractions import Fraction
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.placement import owner, slot, valid_len
from pytest_kernbench.kernels.ahbm.positions import Placement, Span, imbalance, position_of, shards, slots

PLACEMENTS = list[Placement](get_args(Placement))
sizes = st.integers(0, 200)
groups = st.integers(1, 12)
placements = st.sampled_from(PLACEMENTS)


def held(spans: tuple[Span, ...]) -> list[int]:
    return [position for span in spans for position in span.positions]


def counted(s: int, n: int, placement: Placement) -> Fraction:
    """The imbalance from visible pairs, query by query and key by key."""
    each = [sum(key <= query for query in held(spans) for key in range(s)) for spans in shards(s, n, placement)]
    return Fraction(max(each) * n, sum(each))


@given(sizes, groups, placements, st.integers(0, 50))
def test_every_position_stands_on_exactly_one_rank(s: int, n: int, placement: Placement, start: int) -> None:
    ranks = shards(s, n, placement, start)
    assert len(ranks) == n
    assert sorted(position for spans in ranks for position in held(spans)) == list(range(start, start + s))


@given(sizes, groups, placements)
def test_ranks_differ_by_one_position_at_most(s: int, n: int, placement: Placement) -> None:
    counts = [slots(spans) for spans in shards(s, n, placement)]
    assert max(counts) - min(counts) <= 1


@given(sizes, groups, placements, st.integers(0, 50))
def test_a_chunk_stands_as_the_sequence_does_start_positions_later(
    s: int, n: int, placement: Placement, start: int
) -> None:
    later = [[position - start for position in held(spans)] for spans in shards(s, n, placement, start)]
    assert later == [held(spans) for spans in shards(s, n, placement)]


@given(sizes, groups, placements)
def test_position_of_reads_slots_in_the_order_of_spans(s: int, n: int, placement: Placement) -> None:
    for spans in shards(s, n, placement):
        assert [position_of(spans, row) for row in range(slots(spans))] == held(spans)


def test_contiguous_ranks_hold_runs_and_the_first_are_longer() -> None:
    assert shards(10, 4, "contiguous") == ((Span(0, 3),), (Span(3, 3),), (Span(6, 2),), (Span(8, 2),))


@given(sizes, groups)
def test_striped_is_the_decode_layout(s: int, n: int) -> None:
    """ADR-0060 2.1 with start_pe 0: no resharding between prefill and decode."""
    ranks = shards(s, n, "striped")
    assert [slots(spans) for spans in ranks] == [valid_len(s, 0, rank, n) for rank in range(n)]
    for rank, spans in enumerate(ranks):
        assert {owner(position, 0, n) for position in held(spans)} <= {rank}
        assert [slot(position, n) for position in held(spans)] == list(range(slots(spans)))


def test_zigzag_ranks_hold_an_early_and_a_late_run() -> None:
    assert shards(16, 4, "zigzag") == (
        (Span(0, 2), Span(14, 2)),
        (Span(2, 2), Span(12, 2)),
        (Span(4, 2), Span(10, 2)),
        (Span(6, 2), Span(8, 2)),
    )


@pytest.mark.parametrize(
    ("placement", "ranks"),
    [
        ("contiguous", ((Span(0, 1),), (Span(1, 1),), (Span(2, 1),), (), (), ())),
        ("striped", ((Span(0, 1, 6),), (Span(1, 1, 6),), (Span(2, 1, 6),), (), (), ())),
        ("zigzag", ((Span(0, 1),), (Span(1, 1),), (Span(2, 1),), (), (), ())),
    ],
)
def test_ranks_without_positions_have_no_span(placement: Placement, ranks: tuple[tuple[Span, ...], ...]) -> None:
    assert shards(3, 6, placement) == ranks
    assert shards(0, 6, placement) == ((),) * 6


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_imbalance_is_what_counting_pairs_gives(placement: Placement, n: int) -> None:
    for s in range(1, 41):
        assert imbalance(s, n, placement) == counted(s, n, placement), s


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_imbalance_has_its_closed_forms(blocks: int, n: int) -> None:
    s = blocks * n
    assert imbalance(s, n, "contiguous") == Fraction(2 * n - 1, n) - Fraction(n - 1, n * (s + 1))
    assert imbalance(s, n, "striped") == 1 + Fraction(n - 1, s + 1)
    assert imbalance(2 * s, n, "zigzag") == 1


@given(st.integers(0, 10**6), st.integers(1, 64), placements)
def test_no_rank_does_less_than_the_mean_or_more_than_all(s: int, n: int, placement: Placement) -> None:
    assert 1 <= imbalance(s, n, placement) <= n


def test_eight_ranks_of_a_long_sequence_have_the_imbalance_of_the_adr() -> None:
    """R29: 1.875 is the limit for contiguous shards."""
    values = [round(float(imbalance(8 * 2**20, 8, placement)), 5) for placement in PLACEMENTS]
    assert dict(zip(PLACEMENTS, values, strict=True)) == {"contiguous": 1.875, "striped": 1.0, "zigzag": 1.0}


def test_an_empty_sequence_is_balanced() -> None:
    assert imbalance(0, 8, "contiguous") == 1


def test_a_placement_that_is_none_of_the_three_is_refused() -> None:
    wrong = cast(Placement, "blocked")
    for ask in (shards, imbalance):
        with pytest.raises(
            ValueError, match=r"^no placement 'blocked': placements are \"contiguous\", \"striped\", \"zig"
        ):
            ask(16, 4, wrong)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_group_without_ranks_and_a_negative_sequence_are_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match=r"^a group needs at least 1 rank, n is 0$"):
        shards(16, 0, placement)
    with pytest.raises(ValueError, match=r"^s is -1: it counts from 0$"):
        shards(-1, 4, placement)


def test_queries_may_lie_before_the_sequence() -> None:
    assert shards(4, 2, "contiguous", -2) == ((Span(-2, 2),), (Span(0, 2),))


def test_a_slot_outside_a_shard_is_refused() -> None:
    spans = (Span(0, 2), Span(14, 2))
    with pytest.raises(ValueError, match=r"^slot 4 is outside a shard of 4: slots count from 0, span after span$"):
        position_of(spans, 4)
    with pytest.raises(ValueError, match=r"^slot is -1: it counts from 0$"):
        position_of(spans, -1)
    with pytest.raises(ValueError, match=r"^slot 0 is outside a shard of 0"):
        position_of((), 0)
