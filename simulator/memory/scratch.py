"""Bump allocation of scratch with scopes (ADR-0063): leaving a scope releases all that was allocated in it.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.simulator.memory.space import Allocation, Space

ALIGNMENT = 64


class Scratch:
    """A bump allocator; `top` is the first free byte, `high_water` the highest `top` ever was."""

    __slots__ = ("_label", "_scopes", "high_water", "space", "top")

    def __init__(self, space: Space, label: int) -> None:
        self.space = space
        self.top = 0
        self.high_water = 0
        self._label = label
        self._scopes: list[tuple[int, list[Allocation]]] = []

    def allocate(self, size: int) -> Allocation | None:
        """The next `size` bytes, rounded up to the alignment, or None if they do not fit."""
        lo = self.top
        if lo + size > self.space.capacity:
            return None
        top = lo + -(-size // ALIGNMENT) * ALIGNMENT
        if top > self.space.capacity:
            top = self.space.capacity
        self.top = top
        if top > self.high_water:
            self.high_water = top
        allocation = Allocation(self.space, lo, lo + size, "scratch", self._label)
        if self._scopes:
            self._scopes[-1][1].append(allocation)
        return allocation

    def enter(self) -> None:
        self._scopes.append((self.top, []))

    def leave(self, site: int) -> None:
        """Release what the innermost scope allocated; it was left at `site`."""
        self.top, allocations = self._scopes.pop()
        for allocation in allocations:
            allocation.alive = False
            allocation.ended = site
            if allocation.fetched is not None or allocation.taint is not None:
                allocation.fetched = allocation.taint = None  # they lead back to it, and the collector rests in a run

    def in_innermost(self, allocation: Allocation) -> bool:
        """Whether the innermost scope allocated it."""
        return allocation.space is self.space and bool(self._scopes) and allocation.lo >= self._scopes[-1][0]
