"""GQA prefill with keys and queries sharded over a ring of PEs (ADR-0060 5.5, B.7). PYTEST_DONT_REWRITE

Every rank owns queries and keys. Keys go round in direction +1, a piece of a slot's size at a time: received while the
piece before is folded, multiplied where they arrived, passed on from there, and given back. Each rank stores its own
queries (R35); a piece is neither sent nor received where no rank further on sees it (R30).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes
from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import empty_state
from pytest_kernbench.kernels.ahbm.flash_sweep import Block, Depth, Layout, Rules, Sweep, Tile
from pytest_kernbench.kernels.ahbm.positions import Placement, Sight, Span, needed_hops, shards, sight
from pytest_kernbench.kernels.ahbm.requests import Request, check_heads
from pytest_kernbench.simulator.ahbm.tl import Handle, Op, Pointer, Tl

Positions = tuple[int, Span]
"""A run of positions and the first row of its rank's tensors in which it lies."""

Trip = tuple[tuple[Positions, ...], ...]
"""By rank, the query blocks that it sweeps while the keys go round once; none if all are done."""

Pieces = tuple[tuple[tuple[Positions, ...], ...], ...]
"""By rank, its keys in pieces that fit a slot, in the rounds in which they set out."""

PIECE_BY_PIECE = Depth(ahead=0)  # what four slots allow


def slots_needed(depth: Depth = PIECE_BY_PIECE, *, interleave: bool = False) -> int:
    """Slots a direction without which the ring hangs or crawls: K and V of all pieces in use, and of the next (R37).

    The next one, because what a rank passes on while it uses a piece is its neighbour's next; two if two set out
    together.
    """
    return 2 * (depth.tiles + (2 if interleave else 1))


def gqa_ring(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, t_q: int, kv_len: int, n: int, *, group: int, tile: int,
    q_block: int, scale: float, sharding: Placement = "zigzag", q_start: int | None = None,
    window: int | None = None, softcap: float | None = None, skip: bool = True, sinks: Pointer | None = None,
    lse: Pointer | None = None, layout: Layout = "head", depth: Depth = PIECE_BY_PIECE, interleave: bool = False,
    recv_ahead: int = 1, announce: Callable[[object], None] = print, tl: Tl,
) -> None:  # fmt: skip
    """O = softmax(scale Q K^T) V, causal, of `t_q` queries and `kv_len` keys over `n` ranks, for this cube's KV head.

    Everything is sharded by `shards(t_q, n, sharding, first)` and `shards(kv_len, n, sharding)`, a rank's rows in its
    slots' order: q [group, rows, d] and o [group, rows, d_v] ([rows, group, width] with layout="token"), k [rows, d],
    v [rows, d_v], lse [group, rows]; sinks [H_q] in every PE. `first` is `q_start`, or kv_len - t_q: the last tokens.
    A piece of `tile` keys has to fit a slot; `q_block` query positions go through a trip round the ring together, so
    that keys travel once for each of a rank's query blocks. `interleave` sends a piece of each of a rank's spans at a
    time: with it zigzag keeps its balance from piece to piece and not only in the end. `recv_ahead` pieces are asked
    for before they are needed. The budget is announced at launch. The rest as in `gqa_decode`.

    Launch on ports that lead E from rank to rank and round, such as `ring_ports(ring_order(n, mesh))`, with that order
    as placement. Needs `slots_needed(depth, interleave=interleave)` slots a direction.
    """
    request = Request(kv_len, t_q, q_start=q_start)
    gqa_ring_batch(
        q, k, v, o, [request], n, group=group, tile=tile, q_block=q_block, scale=scale, sharding=sharding,
        window=window, softcap=softcap, skip=skip, sinks=sinks, lse=lse, layout=layout, depth=depth,
        interleave=interleave, recv_ahead=recv_ahead, announce=announce, tl=tl,
    )  # fmt: skip


def gqa_ring_batch(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, requests: Sequence[Request], n: int, *, group: int, tile: int,
    q_block: int, scale: float, sharding: Placement = "zigzag", window: int | None = None,
    softcap: float | None = None, skip: bool = True, sinks: Pointer | None = None, lse: Pointer | None = None,
    layout: Layout = "head", depth: Depth = PIECE_BY_PIECE, interleave: bool = False, recv_ahead: int = 1,
    announce: Callable[[object], None] = print, tl: Tl,
) -> None:  # fmt: skip
    """`gqa_ring` of each request in turn; a rank's rows of it begin at `q_row` of Q and O, at `kv_row` of K and V."""
    rank, head = tl.program_id(0), tl.program_id(1) * group
    rules = Rules(scale, window, softcap, skip)
    check_heads(q, group, layout)
    if rank == tl.program_id(1) == 0:
        sizes = Sizes(
            group, q.row, v.row, k.dtype.itemsize, tile, rules, depth, sinks=sinks is not None, lse=lse is not None
        )
        announce(Budget.of_ring(requests, n, sharding, q_block, sizes))
    for request in requests:
        queries = shards(request.t_q, n, sharding, request.first)
        pieces = tuple(tuple(in_rounds(shard, tile, interleave)) for shard in shards(request.kv_len, n, sharding))
        widths = {piece.count for setting_out in pieces[rank] for _, piece in setting_out}
        cache = k + request.kv_row * k.row, v + request.kv_row * v.row
        with tl.scratch_scope():
            ring = Ring(*cache, rank, widths, depth, recv_ahead, tl)
            for trip in trips(queries, q_block):
                blocks = [(request.q_row + row, Block(positions, group, layout)) for row, positions in trip[rank]]
                stops = itinerary(trip, pieces, rank, window, skip)
                with tl.scratch_scope():
                    sweeps = [
                        ready(q, v, row, block, stops, number, rules, depth, tl)
                        for number, (row, block) in enumerate(blocks)
                    ]
                    for arrival in ring.arrivals(stops):
                        arrival.fold_into(sweeps)
                    for sweep, (row, block) in zip(sweeps, blocks, strict=True):
                        store_result(sweep.finish(), o, lse, sinks, 0, head, row, block, tl)
            ring.close()


def ready(
    q: Pointer, v: Pointer, row: int, block: Block, stops: list[Stop], number: int, rules: Rules, depth: Depth, tl: Tl
) -> Sweep:
    """The sweep of a rank's query block `number` over what it sees of `stops`."""
    state = empty_state(block.rows, v.row, tl)
    widths = [stop.piece.count for stop in stops if stop.seen[number] is not None]
    q_rows = load_rows(q, 0, row, block, tl) if widths else None  # nobody would wait for it
    return Sweep(q_rows, block, state, widths, v.dtype, rules, depth, tl)


def cut(shard: tuple[Span, ...], width: int) -> list[list[Positions]]:
    """For each span, its positions at most `width` at a time."""
    found, row = [], 0
    for span in shard:
        found.append([(row + offset, piece) for offset, piece in span.tiles(width)])
        row += span.count
    return found


def in_rounds(shard: tuple[Span, ...], width: int, interleave: bool) -> Iterator[tuple[Positions, ...]]:
    """A rank's pieces in the order in which they set out: one of each span together, or span after span."""
    spans = cut(shard, width)
    if interleave:
        return (tuple(filter(None, pieces)) for pieces in itertools.zip_longest(*spans))
    return ((piece,) for pieces in spans for piece in pieces)


def trips(queries: tuple[tuple[Span, ...], ...], q_block: int) -> list[Trip]:
    """What every rank sweeps in each trip round the ring: `q_block` positions, as many of each of its spans.

    A zigzag rank has an early and a late span; only both at once are as much work as any other rank's. Raises
    ValueError for a q_block below 1.
    """
    if q_block < 1:
        raise ValueError(f"q_block is {q_block}: a trip round the ring takes at least 1 position")
    by_rank = [in_rounds(shard, max(q_block // max(len(shard), 1), 1), True) for shard in queries]
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
    found = []
    for number, step in itertools.product(range(max(map(len, pieces))), range(n)):
        owner = (rank - step) % n
        setting_out = pieces[owner][number] if number < len(pieces[owner]) else ()
        far = _hops(trip, setting_out, owner, window) if skip else (n - 1,) * len(setting_out)
        for (row, piece), hops in zip(setting_out, far, strict=True):
            sights = (sight(positions, piece, window) for _, positions in trip[rank])
            seen = tuple(each if each is not Sight.NONE or not skip else None for each in sights)
            if 0 < step <= hops or (step == 0 and (hops or any(seen))):
                found.append(Stop(piece, None if step else row, seen, step < hops))
    return found


@lru_cache(maxsize=4096)
def _hops(trip: Trip, setting_out: tuple[Positions, ...], owner: int, window: int | None) -> tuple[int, ...]:
    """How far each piece goes round; the same for all ranks, which ask one after another."""
    queries = tuple(tuple(positions for _, positions in blocks) for blocks in trip)
    return tuple(needed_hops(queries, (piece,), owner, window) for _, piece in setting_out)


@dataclass
class Arrival:
    """A piece in hand: K and V in a slot or a buffer of the rank's own, and the sends that pass them on."""

    ring: Ring
    stop: Stop
    k: Handle
    v: Handle
    sent: list[Op]  # what is not known to have left; an own buffer's list, so that its next piece waits for it
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

    def __init__(
        self, k: Pointer, v: Pointer, rank: int, widths: set[int], depth: Depth, recv_ahead: int, tl: Tl
    ) -> None:
        self.k, self.v, self.rank, self.tl = k, v, rank, tl
        if recv_ahead < 0:
            raise ValueError(f"recv_ahead is {recv_ahead}: it counts pieces from 0")
        self._recv_ahead = recv_ahead
        own = {width: [self._buffers(width) for _ in range(depth.tiles)] for width in sorted(widths)}
        self._own = {width: itertools.cycle(buffers) for width, buffers in own.items()}
        self._sent = [sent for buffers in own.values() for _, _, sent in buffers]

    def _buffers(self, width: int) -> tuple[Handle, Handle, list[Op]]:
        """Where K and V of a piece are loaded, and what still sends from there."""
        tl = self.tl
        return tl.empty((width, self.k.row), self.k.dtype), tl.empty((width, self.v.row), self.v.dtype), []

    def arrivals(self, stops: list[Stop]) -> Iterator[Arrival]:
        """The pieces in order, sent on already; `recv_ahead` more are asked for before one is handed out."""
        coming = iter([stop for stop in stops if stop.row is None])
        asked = deque(map(self._ask, itertools.islice(coming, self._recv_ahead)))
        for stop in stops:
            sent: list[Op] = []
            if stop.row is None:
                if not asked:
                    asked.append(self._ask(stop))
                k, v = self.tl.wait(*asked.popleft())
                asked.extend(map(self._ask, itertools.islice(coming, min(self._recv_ahead, 1))))
            else:
                k, v, sent = self._load(stop.row, stop.piece.count)
            if stop.onward:
                sent += self._send(k, v)
            yield Arrival(self, stop, k, v, sent)

    def _load(self, row: int, width: int) -> tuple[Handle, Handle, list[Op]]:
        tl = self.tl
        k, v, sent = next(self._own[width])
        tl.wait(*sent)
        sent.clear()
        with tl.region("own"):
            tl.load(self.k + row * self.k.row, k.shape, out=k)
            tl.load(self.v + row * self.v.row, v.shape, out=v)
        return k, v, sent

    def _ask(self, stop: Stop) -> tuple[Handle, Handle]:
        tl, width = self.tl, stop.piece.count
        with tl.region("ring"):
            k = tl.recv_async("W", (width, self.k.row), self.k.dtype)
            return k, tl.recv_async("W", (width, self.v.row), self.v.dtype)

    def _send(self, k: Handle, v: Handle) -> list[Op]:
        with self.tl.region("ring"):
            return [self.tl.send("E", k), self.tl.send("E", v)]

    def close(self) -> None:
        """Nothing is sent from the rank's own buffers any more: their scratch may be given back."""
        with self.tl.region("ring"):
            self.tl.wait(*itertools.chain(*self._sent))

    def leave(self, arrival: Arrival) -> None:
        """Give the piece's slots back once it is sent on; a buffer of our own waits when it is needed again."""
        if arrival.stop.row is None:
            self.tl.wait(*arrival.sent)
            self.tl.release(arrival.k)
            self.tl.release(arrival.v)
