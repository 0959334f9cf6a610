"""Scratch is a pointer that moves forward; leaving a scope moves it back and ends what lived there."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pytest_kernbench.simulator.memory.scratch import ALIGNMENT, Scratch
from pytest_kernbench.simulator.memory.space import Space

CAPACITY = 1000  # not a multiple of the alignment
SITE = 0  # the line where a scope is left, by its number


@pytest.fixture
def scratch() -> Scratch:
    return Scratch(Space(0, "scratch of PE0", CAPACITY), 0)


def test_every_allocation_starts_at_a_multiple_of_the_alignment(scratch: Scratch) -> None:
    places = [(found.lo, found.hi) for found in map(scratch.allocate, (1, 64, 65, 4)) if found]
    assert places == [(0, 1), (64, 128), (128, 193), (256, 260)]
    assert scratch.top == 320


def test_the_last_byte_can_be_taken_and_one_more_cannot(scratch: Scratch) -> None:
    scratch.allocate(896)
    assert scratch.allocate(CAPACITY - 896 + 1) is None
    last = scratch.allocate(CAPACITY - 896)
    assert last is not None
    assert last.hi == CAPACITY
    assert scratch.allocate(1) is None


def test_a_refused_allocation_takes_nothing(scratch: Scratch) -> None:
    assert scratch.allocate(CAPACITY + 1) is None
    assert (scratch.top, scratch.high_water) == (0, 0)


def test_leaving_a_scope_ends_what_was_allocated_in_it_and_nothing_else(scratch: Scratch) -> None:
    outer = scratch.allocate(4)
    scratch.enter()
    inner = scratch.allocate(4)
    scratch.leave(SITE)
    assert outer is not None
    assert inner is not None
    assert (outer.alive, inner.alive) == (True, False)
    again = scratch.allocate(4)
    assert again is not None
    assert (again.lo, again.alive) == (inner.lo, True)


class Scopes(RuleBasedStateMachine):
    """Random allocations and scopes against a list of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Scratch(Space(0, "scratch", CAPACITY), 0)
        self.scopes: list[list[Any]] = [[]]
        self.dead: list[Any] = []
        self.highest = 0

    @property
    def living(self) -> list[Any]:
        return [each for scope in self.scopes for each in scope]

    @rule(size=st.integers(1, 400))
    def allocate(self, size: int) -> None:
        lowest = max((each.hi for each in self.living), default=0)
        lowest = -(-lowest // ALIGNMENT) * ALIGNMENT
        found = self.scratch.allocate(size)
        if found is None:
            assert lowest + size > CAPACITY
            return
        assert (found.lo, found.hi) == (lowest, lowest + size)
        self.scopes[-1].append(found)
        self.highest = max(self.highest, found.hi)

    @rule()
    def enter(self) -> None:
        self.scratch.enter()
        self.scopes.append([])

    @precondition(lambda self: len(self.scopes) > 1)
    @rule()
    def leave(self) -> None:
        self.scratch.leave(SITE)
        self.dead += self.scopes.pop()

    @invariant()
    def the_living_are_alive_and_apart(self) -> None:
        assert all(each.alive for each in self.living)
        assert not any(each.alive for each in self.dead)
        ends = sorted((each.lo, each.hi) for each in self.living)
        assert all(before[1] <= after[0] for before, after in pairwise(ends))

    @invariant()
    def high_water_is_the_highest_top_there_was(self) -> None:
        assert self.highest <= self.scratch.high_water < self.highest + ALIGNMENT
        assert self.scratch.high_water <= CAPACITY


TestScopes = Scopes.TestCase
TestScopes.settings = settings(max_examples=15, stateful_step_count=20)
