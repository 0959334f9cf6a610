"""Spans and sight: what a tile of queries sees of a tile of keys is decided exactly, from positions alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm import positions
from pytest_kernbench.kernels.ahbm.positions import Sight, Span, sight, visible_keys

spans = st.builds(Span, st.integers(0, 40), st.integers(1, 12), st.integers(1, 9))
windows = st.none() | st.integers(1, 40)


def told_pair_by_pair(queries: Span, keys: Span, window: int | None) -> Sight:
    seen = [
        key <= query and (window is None or query - key < window)
        for query in queries.positions
        for key in keys.positions
    ]
    return Sight.ALL if all(seen) else Sight.SOME if any(seen) else Sight.NONE


def block(start: int, end: int) -> Span:
    """[start, end) as ADR-0060 5.4 writes it."""
    return Span(start, end - start)


def test_a_span_holds_count_positions_one_step_apart() -> None:
    span = Span(3, 4, 8)
    assert list(span.positions) == [3, 11, 19, 27]
    assert span.last == 27
    assert span.part(1, 2) == Span(11, 2, 8)


@given(spans, st.data())
def test_a_part_is_a_slice_of_the_positions(span: Span, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, span.count - 1))
    count = data.draw(st.integers(1, span.count - start))
    assert span.part(start, count).positions == span.positions[start : start + count]


@given(spans, st.integers(1, 15))
def test_tiles_cover_a_span_once_in_order_and_only_the_last_is_narrower(span: Span, width: int) -> None:
    tiles = span.tiles(width)
    assert [position for _, tile in tiles for position in tile.positions] == list(span.positions)
    assert [tile.first for _, tile in tiles] == [span.positions[offset] for offset, _ in tiles]
    assert {tile.count for _, tile in tiles[:-1]} <= {width}
    assert 1 <= tiles[-1][1].count <= width


def test_the_last_tile_has_its_exact_width() -> None:
    assert Span(5, 10, 2).tiles(4) == [(0, Span(5, 4, 2)), (4, Span(13, 4, 2)), (8, Span(21, 2, 2))]


@given(spans)
def test_visible_keys_counts_the_keys_of_each_query(span: Span) -> None:
    assert visible_keys(span) == sum(query + 1 for query in span.positions)


@given(spans, spans, windows)
def test_sight_is_what_asking_every_pair_says(queries: Span, keys: Span, window: int | None) -> None:
    assert sight(queries, keys, window) is told_pair_by_pair(queries, keys, window)


@pytest.mark.parametrize("window", [None, 1, 2, 3, 5, 8])
@pytest.mark.parametrize("steps", [(1, 1), (4, 4), (1, 4), (4, 1), (4, 6), (3, 5)], ids=str)
def test_sight_is_exact_around_both_edges(steps: tuple[int, int], window: int | None) -> None:
    keys = Span(20, 3, steps[1])
    for first in range(40):
        for count in (1, 2, 5):
            queries = Span(first, count, steps[0])
            assert sight(queries, keys, window) is told_pair_by_pair(queries, keys, window), queries


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ((0, 16), Sight.ALL),
        ((1, 17), Sight.ALL),  # ke = qs + 1, which `ke <= qs` would mask for nothing (R41)
        ((2, 18), Sight.SOME),
        ((31, 47), Sight.SOME),
        ((32, 48), Sight.NONE),
    ],
)
def test_blocks_meet_the_conditions_of_the_adr(keys: tuple[int, int], seen: Sight) -> None:
    assert sight(block(16, 32), block(*keys)) is seen


def test_one_new_query_never_needs_a_mask() -> None:
    """Decode: T_q = 1 stands on the newest key (R41)."""
    cached = Span(0, 100)
    assert {sight(Span(99, 1), tile) for _, tile in cached.tiles(7)} == {Sight.ALL}
    assert sight(Span(98, 2), cached) is Sight.SOME, "two new queries do (R42)"


@pytest.mark.parametrize("key_rank", range(4))
@pytest.mark.parametrize("query_rank", range(4))
def test_striped_tiles_are_seen_by_slot_first_and_rank_second(query_rank: int, key_rank: int) -> None:
    """ADR-0060 5.5: a key slot below the query slot, or equal slots and the key's PE not above the query's."""
    for query_slot in range(4):
        for key_slot in range(4):
            visible = key_slot < query_slot or (key_slot == query_slot and key_rank <= query_rank)
            query, key = Span(query_slot * 4 + query_rank, 1, 4), Span(key_slot * 4 + key_rank, 1, 4)
            assert sight(query, key) is (Sight.ALL if visible else Sight.NONE)


def test_a_window_counts_the_query_itself() -> None:
    query = Span(10, 1)
    assert [sight(query, Span(key, 1), 3).name for key in (7, 8, 10, 11)] == ["NONE", "ALL", "ALL", "NONE"]


def test_a_window_that_falls_between_keys_sees_none_of_them() -> None:
    keys = Span(0, 100, 8)
    assert sight(Span(3, 90, 8), keys, 3) is Sight.NONE
    assert sight(Span(3, 90, 8), keys, 4) is Sight.SOME, "3 positions behind is inside a window of 4"


def test_sight_asks_few_pairs_of_long_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    nearest = positions._nearest_behind
    monkeypatch.setattr(positions, "_nearest_behind", lambda query, keys: asked.append(query) or nearest(query, keys))
    long, few = Span(0, 10**5, 8), Span(3, 5, 8)

    assert sight(long, long, 128) is Sight.SOME
    assert sight(Span(4, 10**5, 8), long, 8) is Sight.SOME
    assert len(asked) == 2, "a window as long as a step shows a key to the first query that has one behind it"

    assert sight(few, long, 2) is Sight.NONE
    assert sight(long, few, 2) is Sight.NONE
    assert len(asked) == 2 + 2 * few.count, "the shorter span asks"


def test_an_empty_span_or_one_that_stands_still_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a span needs at least 1 position, count is 0: leave empty spans out$"):
        Span(0, 0)
    with pytest.raises(ValueError, match=r"^positions of a span ascend, step is 0: take a step of at least 1$"):
        Span(0, 4, 0)


@pytest.mark.parametrize(("start", "count"), [(6, 3), (-1, 2), (8, 1)])
def test_a_part_outside_the_span_is_refused(start: int, count: int) -> None:
    with pytest.raises(ValueError, match=rf"^{count} elements from element {start} on do not lie in a span of 8: "):
        Span(0, 8).part(start, count)


def test_an_empty_part_and_tiles_without_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a span needs at least 1 position, count is 0"):
        Span(0, 8).part(3, 0)
    with pytest.raises(ValueError, match=r"^a tile needs at least 1 element, width is 0$"):
        Span(0, 8).tiles(0)


@pytest.mark.parametrize("keys", [Span(0, 4), Span(90, 4)], ids=["past", "future"])
def test_a_window_without_positions_is_refused_whatever_the_tiles(keys: Span) -> None:
    with pytest.raises(ValueError, match=r"^window is 0: a query sees its own position at least, take 1 or more"):
        sight(Span(8, 4), keys, 0)
