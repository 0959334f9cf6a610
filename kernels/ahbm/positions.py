"""Which tokens of the sequence stand where, and who sees whom: plain integer arithmetic of prefill. PYTEST_DONT_REWRITE

Positions decide, never slots or the name of a phase (ADR-0060 5.4, R42): the query at `q` sees the key at `k` if
`0 <= q - k`, and `q - k < window` where there is a window. A shard is a tuple of spans; its slots follow their order.
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, get_args

from pytest_kernbench.kernels.ahbm.placement import (
    Mesh,
    check_count,
    check_fits,
    check_rank,
    check_ranks,
    hops,
    valid_len,
)

Placement = Literal["contiguous", "striped", "zigzag"]
"""How a sequence is dealt to the ranks of a ring, by the names of ADR-0060 5.5."""


# --- spans and sight --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The positions first, first + step, ..., `count` of them; never empty: what holds nothing has no span.

    Raises ValueError for a count or step below 1. Queries may lie before the sequence, which begins at 0: they see
    nothing.
    """

    first: int
    count: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"a span needs at least 1 position, count is {self.count}: leave empty spans out")
        if self.step < 1:
            raise ValueError(f"positions of a span ascend, step is {self.step}: take a step of at least 1")

    @property
    def last(self) -> int:
        """The highest position, itself in the span: `ke` of ADR-0060 5.4 is `last + 1`."""
        return self.first + (self.count - 1) * self.step

    @property
    def positions(self) -> range:
        return range(self.first, self.last + 1, self.step)

    def part(self, start: int, count: int) -> "Span":
        """The elements start .. start + count - 1. Raises ValueError if they are not all in the span."""
        if start < 0 or start + count > self.count:
            raise ValueError(
                f"{count} elements from element {start} on do not lie in a span of {self.count}: "
                "tiles(width) cuts a span with a narrower last piece"
            )
        return Span(self.first + start * self.step, count, self.step)

    def tiles(self, width: int) -> list[tuple[int, "Span"]]:
        """(offset, piece) of at most `width` elements each; the last has its exact width, no mask (R16).

        Raises ValueError for a width below 1.
        """
        if width < 1:
            raise ValueError(f"a tile needs at least 1 element, width is {width}")
        return [(at, self.part(at, min(width, self.count - at))) for at in range(0, self.count, width)]


class Sight(Enum):
    """How many of a tile's (query, key) pairs are visible: NONE issues nothing, SOME needs a mask, ALL needs none."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def sight(queries: Span, keys: Span, window: int | None = None) -> Sight:
    """What a tile of queries sees of a tile of keys, exactly, for any steps (ADR-0060 5.4).

    Without a window: NONE if and only if `keys.first > queries.last`, ALL if and only if `keys.last <= queries.first`,
    which is `ke <= qs + 1` (R41). `window` counts the positions a query sees, its own included. Raises ValueError for
    a window below 1.
    """
    least, most = queries.first - keys.last, queries.last - keys.first
    if window is not None and window < 1:
        raise ValueError(f"window is {window}: a query sees its own position at least, take 1 or more, or None")
    if most < 0 or (window is not None and least >= window):
        return Sight.NONE
    if least >= 0 and (window is None or most < window):
        return Sight.ALL
    if window is None or _some_pair(queries.positions, keys.positions, window):
        return Sight.SOME
    return Sight.NONE


def visible_keys(queries: Span) -> int:
    """The visible (query, key) pairs of `queries` in full causal self-attention: the sum of q + 1 over them."""
    return queries.count * (queries.first + queries.last + 2) // 2


def _some_pair(queries: range, keys: range, window: int) -> bool:
    """Whether a query lies in [k, k + window) of a key k: each of the fewer asks for its nearest among the others.

    The first asked is the likeliest, so that only a window narrower than the steps ever asks many.
    """
    if len(queries) > len(keys):
        queries, keys = _mirrored(keys), _mirrored(queries)
    past = max(0, -((queries.start - keys.start) // queries.step))  # the first query that has a key behind it
    return any(query - _nearest_behind(query, keys) < window for query in queries[past:])


def _nearest_behind(query: int, keys: range) -> int:
    """The highest key up to `query`, which is not below the first one."""
    return keys[min((query - keys.start) // keys.step, len(keys) - 1)]


def _mirrored(positions: range) -> range:
    """The same positions below zero: differences of two mirrored spans keep their value when the two change sides."""
    return range(-positions[-1], -positions[0] + 1, positions.step)


# --- shards -----------------------------------------------------------------------------------------------------------


def shards(s: int, n: int, placement: Placement, start: int = 0) -> tuple[tuple[Span, ...], ...]:
    """By rank, the spans of positions start .. start + s - 1 that it holds, in slot order (ADR-0060 5.5, R28, R29).

    "contiguous": rank r holds the r-th of n runs. "striped": r, r + n, ..., the decode layout of 2.1 with start_pe 0.
    "zigzag": runs r and 2n-1-r of 2n, in that order. Lengths of runs differ by one at most, the longer come first;
    empty spans are left out, so a rank may hold none. `start` may lie before the sequence. Raises ValueError for
    another placement, n < 1, or a negative s.
    """
    if placement not in get_args(Placement):
        raise ValueError(f'no placement {placement!r}: placements are "contiguous", "striped", "zigzag"')
    check_ranks(n)
    check_count("s", s)
    if placement == "striped":
        return tuple(_span(start + rank, valid_len(s, 0, rank, n), n) for rank in range(n))
    if placement == "contiguous":
        return tuple(_runs(s, n, start))
    runs = _runs(s, 2 * n, start)
    return tuple(runs[rank] + runs[-1 - rank] for rank in range(n))


def slots(spans: tuple[Span, ...]) -> int:
    """How many positions a shard or block holds."""
    return sum(span.count for span in spans)


def position_of(spans: tuple[Span, ...], slot: int) -> int:
    """The position in the whole sequence of a shard's row `slot`. Raises ValueError for a slot it does not have."""
    check_count("slot", slot)
    left = slot
    for span in spans:
        if left < span.count:
            return span.first + left * span.step
        left -= span.count
    raise ValueError(f"slot {slot} is outside a shard of {slots(spans)}: slots count from 0, span after span")


def imbalance(s: int, n: int, placement: Placement) -> Fraction:
    """The work of the busiest rank over the mean, in (query, key) pairs of full causal self-attention (R29).

    Each rank has the queries of its shard against all keys. Contiguous nears (2n-1)/n from below as s grows, striped
    is 1 + (n-1)/(s+1) if n divides s, zigzag exactly 1 if 2n does. 1 for s = 0, where nobody waits. Raises ValueError
    as `shards` does.
    """
    work = [sum(map(visible_keys, spans)) for spans in shards(s, n, placement)]
    return Fraction(max(work) * n, sum(work)) if s else Fraction(1)


def _runs(s: int, parts: int, start: int) -> list[tuple[Span, ...]]:
    """The runs of a sequence cut into `parts`, each as a shard of one span or none."""
    length, longer = divmod(s, parts)
    return [_span(start + part * length + min(part, longer), length + (part < longer)) for part in range(parts)]


def _span(first: int, count: int, step: int = 1) -> tuple[Span, ...]:
    return (Span(first, count, step),) if count else ()


# --- rings ------------------------------------------------------------------------------------------------------------


def ring_order(n: int, mesh: Mesh) -> tuple[int, ...]:
    """The physical PE, numbered row-major, of each rank of a ring: rank r and r + 1 are always neighbours.

    If both sides are 2 or more, the way round takes the fewest hops there are: n for an even n (a closed ring, every
    edge 1 hop), n + 1 for an odd n from 3 on, whose closing edge is 2 hops because neighbours differ in the parity of
    row + column. On a single row or column ranks follow the PEs and the closing edge is n - 1 hops. A ring starts as
    one edge and grows: an edge pushed out to the next row or column takes in the two PEs there. 2x4 with n = 8 gives
    (0, 1, 2, 3, 7, 6, 5, 4). Raises ValueError if the mesh is smaller than `n`.
    """
    check_fits(n, mesh)
    rows, cols = mesh
    if min(rows, cols) == 1 or n == 1:
        return tuple(range(n))
    ring = [0, cols]
    growth = _growth(mesh)
    for pe, out in growth[: n // 2 - 1]:
        at = ring.index(pe) + 1
        ring[at:at] = [pe + out, ring[at] + out]
    if n % 2:  # half a push: the ring opens behind `pe` and ends with the one PE that was taken in
        pe, out = growth[n // 2 - 1]
        at = ring.index(pe) + 1
        ring = [*ring[at:], *ring[:at], pe + out]
    return tuple(ring)


def ring_hops(order: tuple[int, ...], mesh: Mesh) -> tuple[int, ...]:
    """The hops from each rank r to rank r + 1 mod n; the last one closes the ring.

    Raises ValueError for a PE outside the mesh or a ring without ranks.
    """
    check_ranks(len(order))
    return tuple(hops(pe, order[(rank + 1) % len(order)], mesh) for rank, pe in enumerate(order))


def needed_hops(
    queries_by_rank: tuple[tuple[Span, ...], ...], block: tuple[Span, ...], owner: int, window: int | None = None
) -> int:
    """How far the keys of rank `owner` have to go round in direction +1: the distance of the last rank that sees one.

    Ranks before it that see none pass the block on; those behind it are left out by sender and receiver together
    (R30). Full causal prefill: n-1-owner for contiguous shards, an open chain; n-1 for striped and zigzag ones once
    every rank holds two positions. Raises ValueError for an owner outside the ring, or as `sight` does.
    """
    n = len(queries_by_rank)
    check_rank(owner, n)
    distances = (far for far in range(n - 1, 0, -1) if _sees(queries_by_rank[(owner + far) % n], block, window))
    return next(distances, 0)


def _sees(queries: tuple[Span, ...], block: tuple[Span, ...], window: int | None) -> bool:
    return any(sight(some, keys, window) is not Sight.NONE for some in queries for keys in block)


def _growth(mesh: Mesh) -> list[tuple[int, int]]:
    """(pe, out): the order in which a ring grows, by pushing the edge that leaves `pe` by `out` PE numbers.

    First along two rows, then down in pairs of columns; if the columns are odd in number, last into the right one. If
    the rows are odd as well, the last entry has a single PE left to take in.
    """
    rows, cols = mesh
    east = [(col, 1) for col in range(cols - 1)]
    south = [(row * cols + col, cols) for col in range(1, cols, 2) for row in range(1, rows - 1)]
    right = [(row * cols + cols - 2, 1) for row in range(2, rows, 2)] if cols % 2 else []
    return east + south + right
