"""A set of ranges is the set of its numbers, in as few ranges as possible."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.checks.initialisation import Ranges

Pair = tuple[int, int]
pairs = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


def of(added: list[Pair]) -> tuple[Ranges, set[int]]:
    ranges, numbers = Ranges(), set()
    for lo, hi in added:
        ranges.add(lo, hi)
        numbers |= set(range(lo, hi))
    return ranges, numbers


@settings(max_examples=60)
@given(st.lists(pairs, max_size=12))
def test_it_contains_exactly_what_was_added(added: list[Pair]) -> None:
    ranges, numbers = of(added)
    assert {number for number in range(-1, 42) if number in ranges} == numbers


@settings(max_examples=60)
@given(st.lists(pairs, max_size=12), pairs)
def test_missing_is_the_first_gap(added: list[Pair], asked: Pair) -> None:
    ranges, numbers = of(added)
    absent = [number for number in range(*asked) if number not in numbers]
    if not absent:
        assert ranges.missing(*asked) is None
    else:
        end = next((number for number in range(absent[0], asked[1]) if number in numbers), asked[1])
        assert ranges.missing(*asked) == (absent[0], end)


@settings(max_examples=60)
@given(st.permutations([(lo, lo + 4) for lo in range(0, 24, 4)]))
def test_ranges_that_touch_become_one_in_any_order(added: list[Pair]) -> None:
    ranges, _ = of(added)
    assert ranges.missing(0, 24) is None
    assert ranges.missing(0, 25) == (24, 25)
