"""GQA prefill with keys and queries sharded over a ring of PEs (ADR-0060 5.5, B.7). PYTEST_DONT_REWRITE

Every rank owns queries and keys. Keys go round in direction +1, a piece of a slot's size at a time: received while the
piece before is folded, multiplied where they arrived, passed on from there, and given back. Each rank stores its own
queries (R35); a piece is neither sent nor received where no rank further on sees it (R30).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import empty_state
from pytest_kernbench.kernels.ahbm.flash_sweep import Block, Depth, Layout, Rules, Sweep, Tile
from pytest_kernbench.kernels.ahbm.positions import Placement, Sight, Span, needed_hops, shards, sight

Trip = tuple[tuple[tuple[int, Span], ...], ...]
"""By rank, the query blocks that it sweeps while the keys go round once, each with its first row; none if all are done.
"""

Pieces = tuple[tuple[tuple[int, Span], ...], ...]
"""By rank, its keys in pieces that fit a slot, each with its first row."""

PIECE_BY_PIECE = Depth(ahead=0)  # what four slots allow


def slots_needed(depth: Depth = PIECE_BY_PIECE) -> int:
    """Slots a direction without which the ring hangs: K and V of every piece in use, and of the next one (R37).

    The next one, because what a rank passes on while it uses a piece is its neighbour's next.
    """
    return 2 * (depth.tiles + 1)


def gqa_ring(
    q: Any, k: Any, v: Any, o: Any, t_q: int, kv_len: int, n: int, *, group: int, tile: int, q_block: int, scale: float,
    sharding: Placement = "zigzag", q_start: int | None = None, window: int | None = None,
    softcap: float | None = None, skip: bool = True, sinks: Any = None, lse: Any = None, layout: Layout = "head",
    depth: Depth = PIECE_BY_PIECE, tl: Any,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V, causal, of `t_q` queries and `kv_len` keys over `n` ranks, for this cube's KV head.

    Everything is sharded by `shards(t_q, n, sharding, first)` and `shards(kv_len, n, sharding)`, a rank's rows in its
    slots' order: q [group, rows, d] and o [group, rows, d_v] ([rows, group, width] with layout="token"), k [rows, d],
    v [rows, d_v], lse [group, rows]; sinks [H_q] in every PE. `first` is `q_start`, or kv_len - t_q: the last tokens.
    A piece of `tile` keys has to fit a slot; `q_block` query positions go through a trip round the ring together, so
    that keys travel once for each of a rank's query blocks. The rest as in `gqa_decode`.

    Launch on ports that lead E from rank to rank and round, such as `ring_ports(ring_order(n, mesh))`, with that order
    as placement. Needs `slots_needed(depth)` slots a direction.
    """
    rank, cube = tl.program_id(0), tl.program_id(1)
    rules = Rules(scale, window, softcap, skip)
    first = kv_len - t_q if q_start is None else q_start
    queries, keys = shards(t_q, n, sharding, first), shards(kv_len, n, sharding)
    pieces = tuple(tuple(cut(shard, tile)) for shard in keys)
    ring = Ring(k, v, rank, {piece.count for _, piece in pieces[rank]}, depth, tl)
    for trip in trips(queries, q_block):
        with tl.scratch_scope():
            sweeps, stops = [], itinerary(trip, pieces, rank, window, skip)
            for number, (row, positions) in enumerate(trip[rank]):
                block = Block(positions, group, layout)
                state = empty_state(block.rows, v.row, tl)
                widths = [stop.piece.count for stop in stops if stop.seen[number] is not None]
                q_rows = load_rows(q, 0, row, block, tl) if widths else None  # nobody would wait for it
                sweeps.append(Sweep(q_rows, block, state, widths, v.dtype, rules, depth, tl))
            for arrival in ring.arrivals(stops):
                arrival.fold_into(sweeps)
            for sweep, (row, _) in zip(sweeps, trip[rank], strict=True):
                store_result(sweep.finish(), o, lse, sinks, 0, cube * group, row, sweep.block, tl)


def cut(shard: tuple[Span, ...], width: int) -> Iterator[tuple[int, Span]]:
    """(row, piece) of at most `width` positions each, none across two spans."""
    row = 0
    for span in shard:
        for offset, piece in span.tiles(width):
            yield row + offset, piece
        row += span.count


def trips(queries: tuple[tuple[Span, ...], ...], q_block: int) -> list[Trip]:
    """What every rank sweeps in each trip round the ring: `q_block` positions, as many of each of its spans.

    A zigzag rank has an early and a late span; only both at once are as much work as any other rank's. At least one of
    each goes. Raises ValueError for a q_block below 1.
    """
    if q_block < 1:
        raise ValueError(f"q_block is {q_block}: a trip round the ring takes at least 1 position")
    by_rank = []
    for shard in queries:
        width, row, spans = max(q_block // max(len(shard), 1), 1), 0, []
        for span in shard:
            spans.append([(row + offset, piece) for offset, piece in span.tiles(width)])
            row += span.count
        by_rank.append([tuple(filter(None, blocks)) for blocks in itertools.zip_longest(*spans)])
    return list(itertools.zip_longest(*by_rank, fillvalue=()))


@dataclass(frozen=True)
class Stop:
    """A piece of keys at a rank: its row in the rank's own shard, or None if it is received.

    `seen` says how each of the rank's query blocks sees it, None where it is not folded; `onward`: it is sent on.
    """

    piece: Span
    row: int | None
    seen: tuple[Sight | None, ...]
    onward: bool


def itinerary(trip: Trip, pieces: Pieces, rank: int, window: int | None, skip: bool) -> list[Stop]:
    """The pieces that a rank has in hand in one trip, in order: the i-th of its own, of rank - 1, rank - 2, ...

    Everybody keeps this order, piece by piece and not shard by shard: a rank that sent all of its own before it
    received would wait for slots that its neighbour fills in turn (R37).
    """
    n = len(pieces)
    far = _hops(trip, pieces, window) if skip else tuple((n - 1,) * len(shard) for shard in pieces)
    found = []
    for number, step in itertools.product(range(max(map(len, pieces))), range(n)):
        owner = (rank - step) % n
        if number < len(pieces[owner]) and step <= far[owner][number]:
            row, piece = pieces[owner][number]
            sights = (sight(positions, piece, window) for _, positions in trip[rank])
            seen = tuple(each if each is not Sight.NONE or not skip else None for each in sights)
            onward = step < far[owner][number]
            if step or onward or any(seen):
                found.append(Stop(piece, None if step else row, seen, onward))
    return found


@lru_cache(maxsize=64)
def _hops(trip: Trip, pieces: Pieces, window: int | None) -> tuple[tuple[int, ...], ...]:
    """How far each piece goes round; the same for all ranks, which ask one after another."""
    queries = tuple(tuple(positions for _, positions in blocks) for blocks in trip)
    return tuple(
        tuple(needed_hops(queries, (piece,), owner, window) for _, piece in shard) for owner, shard in enumerate(pieces)
    )


@dataclass
class Arrival:
    """A piece in hand: K and V in a slot or a buffer of the rank's own, and the sends that pass them on."""

    ring: Ring
    stop: Stop
    k: Any
    v: Any
    sent: list[Any]
    readers: int = 0

    def fold_into(self, sweeps: list[Sweep]) -> None:
        """Fold it where it is seen; the last sweep that is done with it, or nobody at all, lets it go.

        A sweep that does not see it is brought up to date: it may not sit on older pieces while others go by.
        """
        self.readers = 1 + sum(seen is not None for seen in self.stop.seen)
        for sweep, seen in zip(sweeps, self.stop.seen, strict=True):
            if seen is None:
                sweep.finish()
            else:
                sweep.push(Tile(self.k, self.v, self.stop.piece, seen, self.done))
        self.done()

    def done(self) -> None:
        """One reader less; after the last, nothing reads the piece here any more but what sends it on."""
        self.readers -= 1
        if not self.readers:
            self.ring.leave(self)


class Ring:
    """A rank's place in the ring: where its own pieces are loaded, and what it receives from W and sends on to E."""

    def __init__(self, k: Any, v: Any, rank: int, widths: set[int], depth: Depth, tl: Any) -> None:
        self.k, self.v, self.rank, self.tl = k, v, rank, tl
        self._own = {
            width: itertools.cycle([self._pair(width) for _ in range(depth.tiles)]) for width in sorted(widths)
        }
        self._busy: dict[int, list[Any]] = {}  # sends from own buffers that nobody has waited for, by place of K

    def _pair(self, width: int) -> tuple[Any, Any]:
        tl = self.tl
        return tl.empty((width, self.k.row), self.k.dtype), tl.empty((width, self.v.row), self.v.dtype)

    def arrivals(self, stops: list[Stop]) -> Iterator[Arrival]:
        """The pieces in order, sent on already; the next one is asked for before this one is handed out."""
        coming = iter([stop for stop in stops if stop.row is None])
        asked = self._ask(next(coming, None))
        for stop in stops:
            if stop.row is None:
                k, v = self.tl.wait(*asked)
                asked = self._ask(next(coming, None))
            else:
                k, v = self._load(stop)
            yield Arrival(self, stop, k, v, self._send(k, v) if stop.onward else [])

    def _load(self, stop: Stop) -> tuple[Any, Any]:
        tl, width, row = self.tl, stop.piece.count, stop.row
        k, v = next(self._own[width])
        tl.wait(*self._busy.pop(id(k), []))
        with tl.region("own"):
            tl.load(self.k + row * self.k.row, k.shape, out=k)
            tl.load(self.v + row * self.v.row, v.shape, out=v)
        return k, v

    def _ask(self, stop: Stop | None) -> tuple[Any, ...]:
        if stop is None:
            return ()
        tl, width = self.tl, stop.piece.count
        with tl.region("ring"):
            k = tl.recv_async("W", (width, self.k.row), self.k.dtype)
            return k, tl.recv_async("W", (width, self.v.row), self.v.dtype)

    def _send(self, k: Any, v: Any) -> list[Any]:
        with self.tl.region("ring"):
            return [self.tl.send("E", k), self.tl.send("E", v)]

    def leave(self, arrival: Arrival) -> None:
        """Give the piece's slots back once it is sent on, or remember what still sends from a buffer of our own."""
        if arrival.stop.row is not None:
            self._busy[id(arrival.k)] = arrival.sent
            return
        self.tl.wait(*arrival.sent)
        self.tl.release(arrival.k)
        self.tl.release(arrival.v)
