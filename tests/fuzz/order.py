"""Happens-before by its definition: reachability in a graph of moments, all pairs, nothing forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Reach:
    """Moments and edges between them; `before(a, b)` once all edges are there."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._earlier: list[set[int]] = []
        self._closed: list[int] = []  # of each moment, the bits of all that come before it

    def _number(self, moment: Hashable) -> int:
        if moment not in self._numbers:
            self._numbers[moment] = len(self._earlier)
            self._earlier.append(set())
        return self._numbers[moment]

    def edge(self, first: Hashable, second: Hashable) -> None:
        before, after = self._number(first), self._number(second)
        self._earlier[after].add(before)

    def close(self) -> bool:
        """Work out all pairs; False if some moment comes before itself."""
        waiting = [len(earlier) for earlier in self._earlier]
        later: list[list[int]] = [[] for _ in waiting]
        for after, earlier in enumerate(self._earlier):
            for before in earlier:
                later[before].append(after)
        ready = [moment for moment, count in enumerate(waiting) if not count]
        self._closed = [0] * len(waiting)
        for moment in ready:  # grows as it is gone through
            for after in later[moment]:
                self._closed[after] |= self._closed[moment] | 1 << moment
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)
        return len(ready) == len(waiting)

    def before(self, first: Hashable, second: Hashable) -> bool:
        return bool(self._closed[self._number(second)] >> self._number(first) & 1)


Span = tuple[Hashable, int, int]  # a memory, and bytes [lo, hi) of it


def pieces(spans: Iterable[Span]) -> list[tuple[Hashable, int]]:
    """One byte for every stretch that no span divides."""
    edges: dict[Hashable, set[int]] = {}
    for memory, lo, hi in spans:
        edges.setdefault(memory, set()).update((lo, hi))
    return [(memory, at) for memory, found in edges.items() for at in sorted(found)[:-1]]


def holds(spans: Iterable[Span], byte: tuple[Hashable, int]) -> bool:
    return any(memory == byte[0] and lo <= byte[1] < hi for memory, lo, hi in spans)
