"""The sweep that every attention kernel here is made of: tiles of keys folded into m, l, O (ADR-0060 3).

A tile's two products are composites. Q.K of the next tile is said before this one is awaited, into the other of two
score buffers; state lives outside the per-tile scope (R6, R7). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from pytest_kernbench.kernels.ahbm.flash_state import LOWEST, State
from pytest_kernbench.kernels.ahbm.positions import Sight, Span, sight
from pytest_kernbench.simulator.ahbm.tl import Block as Ref
from pytest_kernbench.simulator.ahbm.tl import DTypeLike, Handle, Pointer, Tl

Matrix = Ref | Handle
"""Rows of K or V: a reference into HBM, or a handle."""

Layout = Literal["head", "token"]
"""Which axis of Q and O comes first: [heads, tokens, width] or [tokens, heads, width] (R11)."""


@dataclass(frozen=True)
class Rules:
    """How a score is made, and which keys a query sees: none after itself, nor `window` or more before it.

    `softcap` c makes c * tanh(score / c) of every score before it is masked. With `skip` off, tiles that nobody sees
    are computed and masked away, which changes no bit of the result: it is there to show just that.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    skip: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale):
            raise ValueError(f"scale {self.scale}: give a finite number")
        if self.window is not None and not hasattr(self.window, "__index__"):
            raise ValueError(f"window {self.window}: give a whole number of positions, or None")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window {self.window}: a query sees itself at least, give 1 or more")
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise ValueError(f"softcap {self.softcap}: give a finite number > 0, or None")


@dataclass(frozen=True)
class Block:
    """Query rows that go through a sweep together: `group` heads of each of `positions`, as `layout` orders them."""

    positions: Span
    group: int
    layout: Layout = "head"

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(f'layout {self.layout!r}: layouts are "head" and "token"')

    @property
    def rows(self) -> int:
        return self.group * self.positions.count

    @property
    def axes(self) -> tuple[int, int]:
        """The rows by head and position, in the order in which they lie."""
        tokens = self.positions.count
        return (self.group, tokens) if self.layout == "head" else (tokens, self.group)


def _nothing() -> None:
    """What is to be done about most tiles when they are folded."""


@dataclass(frozen=True)
class Tile:
    """Keys and values of `positions`: references into HBM or handles, [width, d] and [width, d_v].

    `seen` says whether all queries see all of it; `done` is called when nothing reads it any more.
    """

    k: Matrix
    v: Matrix
    positions: Span
    seen: Sight
    done: Callable[[], None] = _nothing

    @property
    def width(self) -> int:
        return self.positions.count


def resident_tiles(
    k: Pointer, v: Pointer, keys: Span | None, tile: int, block: Block, rules: Rules, tl: Tl
) -> Iterator[Tile]:
    """Tiles of rows [0, keys.count) of K and V in HBM, without those that no query of `block` sees (5.4).

    The last tile has its exact width: what lies behind is never read (R16, R17).
    """
    d, d_v = k.row, v.row
    for first, positions in keys.tiles(tile) if keys else ():
        seen = sight(block.positions, positions, rules.window)
        if seen is not Sight.NONE or not rules.skip:
            width = positions.count
            yield Tile(tl.ref(k + first * d, (width, d)), tl.ref(v + first * d_v, (width, d_v)), positions, seen)


@dataclass(frozen=True)
class Depth:
    """How far the kernel runs before what it has said: `ahead` tiles whose Q.K is said before the softmax of this one,
    `in_flight` products P.V that may be awaited later, the softmax of the next tile beside them."""

    ahead: int = 1
    in_flight: int = 1

    def __post_init__(self) -> None:
        if self.ahead < 0 or self.in_flight < 1:
            raise ValueError(f"{self}: ahead counts from 0, in_flight from 1")

    @property
    def tiles(self) -> int:
        """Tiles of K and V in use at once."""
        return self.ahead + self.in_flight


INTERLEAVED = Depth(in_flight=2)  # the softmax of a tile beside the P.V of the one before


@dataclass(frozen=True)
class Pending:
    """A tile whose P.V is in flight, and what O is to be multiplied with before it is added."""

    tile: Tile
    part: Handle
    correction: Handle


class Sweep:
    """Folds tiles of keys into the m, l, O of one block of queries; `state` is that of the tiles folded so far.

    q [rows, d], or None if no tile will come; `widths` are those of all tiles to come, in any order: buffers are made
    here, since bytes taken between two tiles' scopes could still be in use. Every buffer is taken by turns, as many as
    are in use at once (R7).
    """

    def __init__(
        self, q: Handle | None, block: Block, state: State, widths: Iterable[int], dtype: DTypeLike, rules: Rules,
        depth: Depth, tl: Tl,
    ) -> None:  # fmt: skip
        self.q, self.block, self.state, self.rules, self.depth, self.tl = q, block, state, rules, depth, tl
        counts = Counter(widths)
        rows, d_v = state[2].shape
        self._scores = {width: self._turns((rows, width), depth.ahead + 1, n) for width, n in counts.items()}
        self._stored = {width: self._turns((rows, width), depth.in_flight, n, dtype) for width, n in counts.items()}
        self._parts = self._turns((rows, d_v), depth.in_flight, counts.total())
        self._corrections = self._turns((rows, 1), depth.in_flight, counts.total())
        self._maxima = itertools.cycle([tl.empty((rows, 1)), state[0]])
        self._scored: deque[tuple[Tile, Handle]] = deque()
        self._pending: deque[Pending] = deque()

    def _turns(self, shape: tuple[int, int], in_use: int, tiles: int, dtype: DTypeLike = "float32") -> Iterator[Handle]:
        return itertools.cycle([self.tl.empty(shape, dtype) for _ in range(min(in_use, tiles))])

    def fold(self, tiles: Iterable[Tile]) -> State:
        """The state with `tiles` folded in, one after another."""
        for tile in tiles:
            self.push(tile)
        return self.finish()

    def push(self, tile: Tile) -> None:
        """Start on one more tile; those before it are brought as far as `depth` says."""
        self._scored.append((tile, self.score(tile)))
        if len(self._scored) > self.depth.ahead:
            self._advance()

    def finish(self) -> State:
        """The state of everything pushed."""
        while self._scored:
            self._advance()
        while self._pending:
            self.settle(self._pending.popleft())
        return self.state

    def _advance(self) -> None:
        self._pending.append(self.soften(*self._scored.popleft()))
        if len(self._pending) == self.depth.in_flight:
            self.settle(self._pending.popleft())

    def score(self, tile: Tile) -> Handle:
        """Start scale Q K^T; K is as it is stored, [width, d] (R2)."""
        assert self.q is not None
        scale, out = self.rules.scale / (self.rules.softcap or 1.0), next(self._scores[tile.width])
        with self.tl.region("QK"):
            return self.tl.composite("gemm", self.q, tile.k, trans_b=True, out=out, epilogue=(("scale", scale),))

    def soften(self, tile: Tile, scored: Handle) -> Pending:
        """The online softmax of one tile and the start of its P.V: m and l are up to date then, O is not.

        Scores become P in place; m takes turns between two buffers, as the old one is needed beside the new. The last
        wait says that nothing reads the scores any more, and costs nothing beside the product.
        """
        tl = self.tl
        m, l, o = self.state
        some = tile.seen is not Sight.ALL
        with tl.scratch_scope():
            with tl.region("softmax"):
                s = capped(tl.wait(scored), self.rules, tl)
                if some:
                    s = masked(s, tile.positions, self.block, self.rules, tl)
                m_new = tl.maximum(m, tl.max(s), out=next(self._maxima))
                finite = tl.maximum(m_new, LOWEST) if some else m_new  # a row may have seen nothing yet
                p = tl.exp(tl.sub(s, finite, out=s), out=s)
                stored = tl.cast(p, tile.v.dtype, out=next(self._stored[tile.width]))
            with tl.region("PV"):
                part = tl.composite("gemm", stored, tile.v, trans_b=False, out=next(self._parts))
            with tl.region("softmax"):
                correction = tl.exp(m - finite, out=next(self._corrections))
                tl.wait(tl.add(l * correction, tl.sum(p), out=l))
        self.state = m_new, l, o
        return Pending(tile, part, correction)

    def settle(self, product: Pending) -> None:
        """Bring O up to a tile, now that it needs the tile's product."""
        tl, o = self.tl, self.state[2]
        with tl.region("softmax"):
            tl.mul(o, product.correction, out=o)
            tl.add(o, tl.wait(product.part), out=o)
        product.tile.done()


def capped(s: Handle, rules: Rules, tl: Tl) -> Handle:
    """softcap * tanh of the scores, which come divided by it already; before any mask."""
    if rules.softcap is None:
        return s
    return tl.mul(tl.tanh(s, out=s), rules.softcap, out=s)


def masked(s: Handle, keys: Span, block: Block, rules: Rules, tl: Tl) -> Handle:
    """`s` with -inf where a query does not see a key, by positions alone (5.4, R42); one mask serves all heads."""
    queries = block.positions
    heads_first = block.layout == "head"
    tokens = (1, queries.count, 1) if heads_first else (queries.count, 1, 1)
    # Counted from the first key, so that float32 holds every difference.
    row = tl.iota(tokens, 1 if heads_first else 0, queries.first - keys.first, queries.step)
    column = tl.iota((1, 1, keys.count), 2, 0, keys.step)
    mask = tl.where(column <= row, 0.0, float("-inf"))
    if rules.window is not None:
        mask = tl.where(column > row - rules.window, mask, float("-inf"))
    by_head = tl.reshape(s, (*block.axes, keys.count))
    tl.add(by_head, mask, out=by_head)
    return s  # itself: seen as matrix again it would have lost the name of an axis of one key
