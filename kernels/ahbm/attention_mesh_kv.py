"""The prefill kernel that ADR-0060 replaces (A): K and V of everyone to everyone, both ways along an open chain.

Kept to measure the gain against: block i reaches rank j at step |i - j| whether or not j sees any of it, nothing is
received while something is folded, and no KV head is shared by query heads. The chain is open, so that no block comes
from both sides (R38). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_kernbench.kernels.ahbm.attention_mesh_mlo import chain, fold, load, sides
from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_rows
from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state, normalised
from pytest_kernbench.kernels.ahbm.flash_sweep import Block, Rules
from pytest_kernbench.kernels.ahbm.placement import Mesh
from pytest_kernbench.kernels.ahbm.positions import Span, shards
from pytest_kernbench.simulator.ahbm.tl import Handle, Op, Pointer, Tl

SLOTS = 4  # K and V of the piece that is folded or sent on, and those of the next

Tiles = list[tuple[int, Span]]
"""Positions cut into pieces, each with its first row."""


def attention_mesh_kv(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, t_q: int, kv_len: int, n: int, *, group: int, tile: int,
    q_block: int, scale: float, heads_together: int = 1, q_start: int | None = None, mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V, causal, of `t_q` queries and `kv_len` keys over `n` ranks, for this cube's KV head.

    Ranks have contiguous shards: q [group, rows, d] and o [group, rows, d_v], k [rows, d], v [rows, d_v]; each stores
    its own queries. A piece of `tile` keys has to fit a slot. Queries go `q_block` positions at a time and heads
    `heads_together` at a time, and K and V travel once for each lot of either: 1 head, as in the original, shares
    nothing (A.1). Launch with `chain(n, mesh)`; needs `SLOTS` slots a direction.
    """
    rank, first = tl.program_id(0), kv_len - t_q if q_start is None else q_start
    queries, keys = _tiles(t_q, n, q_block, first), _tiles(kv_len, n, tile)
    line = Chain(k, v, keys, rank, chain(n, mesh), mesh, tl)
    for head, heads in Span(0, group).tiles(heads_together):
        for number in range(max(map(len, queries))):
            with tl.scratch_scope():
                if number < len(queries[rank]):
                    row, positions = queries[rank][number]
                    attend(q, o, head, row, Block(positions, heads.count), line, Rules(scale), tl)
                else:
                    for _ in line.arrivals():
                        pass  # others still need what comes by


def attend(q: Pointer, o: Pointer, head: int, row: int, block: Block, line: Chain, rules: Rules, tl: Tl) -> None:
    """O of one block of queries: everyone's keys are folded as they come by, those in the future masked."""
    state: State = empty_state(block.rows, o.row, tl)
    q_rows = tl.wait(load_rows(q, head, row, block, tl))
    for piece in line.arrivals():
        with tl.scratch_scope(), tl.region("sweep"):
            fold(state, q_rows, piece.k, piece.v, piece.positions, block, rules, tl)
    tl.wait(store_rows(o, head, row, block, normalised(state, tl), tl))


def _tiles(length: int, n: int, width: int, first: int = 0) -> list[Tiles]:
    """By rank, its contiguous shard in pieces of at most `width` positions; none if it holds nothing."""
    return [[each for span in shard for each in span.tiles(width)] for shard in shards(length, n, "contiguous", first)]


@dataclass(frozen=True)
class Piece:
    """K [width, d] and V [width, d_v] of `positions`, in the rank's own scratch or in the slots where they arrived."""

    k: Handle
    v: Handle
    positions: Span
    received: bool


class Chain:
    """A rank's place in the chain: what it loads, sends to both sides, and receives from them."""

    def __init__(
        self, k: Pointer, v: Pointer, keys: list[Tiles], rank: int, pes: Sequence[int], mesh: Mesh, tl: Tl
    ) -> None:
        self.k, self.v, self.keys, self.rank, self.tl = k, v, keys, rank, tl
        self.left, self.right = sides(rank, pes, mesh)

    def arrivals(self) -> Iterator[Piece]:
        """All keys: the first piece of the rank's own, of rank - 1, rank + 1, rank - 2, ..., then the second of each.

        Piece by piece and not shard by shard, since a whole shard fits neither slots nor scratch for long.
        """
        for number in range(max(map(len, self.keys))):
            with self.tl.scratch_scope():
                yield from self._round(number)

    def _round(self, number: int) -> Iterator[Piece]:
        """Everyone's piece of that number in n - 1 steps; it is kept where it arrived until it is sent on."""
        going_right = going_left = self._load(number)
        if going_right is not None:
            yield going_right
        for step in range(1, len(self.keys)):
            self.tl.wait(*self._send(self.right, going_right), *self._send(self.left, going_left))
            self._give_back(going_right, going_left)
            going_right = self._receive(self.left, self.rank - step, number)
            if going_right is not None:
                yield going_right
            going_left = self._receive(self.right, self.rank + step, number)
            if going_left is not None:
                yield going_left
        self._give_back(going_right, going_left)

    def _load(self, number: int) -> Piece | None:
        own = self.keys[self.rank]
        if number >= len(own):
            return None
        row, positions = own[number]
        with self.tl.region("own"):
            k, v = (load(cache, row, positions.count, self.tl) for cache in (self.k, self.v))
        return Piece(k, v, positions, received=False)

    def _send(self, side: str | None, piece: Piece | None) -> list[Op]:
        if side is None or piece is None:
            return []
        with self.tl.region("fan-out"):
            return [self.tl.send(side, part) for part in (piece.k, piece.v)]

    def _receive(self, side: str | None, owner: int, number: int) -> Piece | None:
        """The piece of `owner` that comes from `side`, if there is such a rank and it has one of that number."""
        if side is None or not 0 <= owner < len(self.keys) or number >= len(self.keys[owner]):
            return None
        _, positions = self.keys[owner][number]
        with self.tl.region("fan-out"):
            k = self.tl.recv(side, (positions.count, self.k.row), self.k.dtype)
            v = self.tl.recv(side, (positions.count, self.v.row), self.v.dtype)
        return Piece(k, v, positions, received=True)

    def _give_back(self, *pieces: Piece | None) -> None:
        for piece in pieces:
            if piece is not None and piece.received:
                self.tl.release(piece.k)
                self.tl.release(piece.v)
