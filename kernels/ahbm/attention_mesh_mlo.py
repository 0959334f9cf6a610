"""The decode kernel that ADR-0060 replaces (A): split KV, blocking `dot`, and m, l, O of everyone to everyone.

Kept to measure the gain against: n - 1 steps along an open chain both ways where the tree needs ceil(log2 n) rounds,
an answer in every PE where one is asked for, and no KV head shared by query heads. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_rows
from pytest_kernbench.kernels.ahbm.flash_state import LOWEST, State, empty_state, merge, normalised
from pytest_kernbench.kernels.ahbm.flash_sweep import Block, Rules, masked
from pytest_kernbench.kernels.ahbm.gqa_decode import MESSAGE_BYTES, message_rows, pieces
from pytest_kernbench.kernels.ahbm.placement import Mesh, direction, token_of, valid_len
from pytest_kernbench.kernels.ahbm.positions import Sight, Span, sight
from pytest_kernbench.kernels.ahbm.requests import Request, tokens_of
from pytest_kernbench.simulator.ahbm.tl import Handle, Pointer, Tl

SLOTS = 3  # a step sends m, l and a message of O before it receives
Messages = list[list[Handle]]


def attention_mesh_mlo(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, kv_len: int, start_pe: int, n: int, *, group: int, tile: int,
    scale: float, heads_together: int = 1, q_start: int | None = None, message_bytes: int = MESSAGE_BYTES,
    mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """As `gqa_decode`, but o [group, T_q, d_v] is written by every rank. Rows are laid out heads first.

    Query heads go `heads_together` at a time, and keys are read and partial results sent again for each lot: 1, as in
    the original, shares nothing (A.1); `group` has every key read once.
    Launch with `chain(n, mesh)`; needs `SLOTS` slots a direction.
    """
    rank, request = tl.program_id(0), Request(kv_len, tokens_of(q, "head"), start_pe, q_start=q_start)
    length, rules = valid_len(kv_len, start_pe, rank, n), Rules(scale)
    keys = Span(token_of(0, rank, start_pe, n), length, n).tiles(tile) if length else []
    for head, heads in Span(0, group).tiles(heads_together):
        block = Block(Span(request.first, request.t_q), heads.count)
        with tl.scratch_scope():
            state = empty_state(block.rows, v.row, tl)
            for first, positions in keys:
                with tl.scratch_scope(), tl.region("sweep"):
                    k_tile, v_tile = load(k, first, positions.count, tl), load(v, first, positions.count, tl)
                    q_rows = tl.wait(load_rows(q, tl.program_id(1) * group + head, 0, block, tl))
                    fold(state, q_rows, k_tile, v_tile, positions, block, rules, tl)
            fan_out(state, rank, chain(n, mesh), message_rows(message_bytes, v.row), mesh, tl)
            tl.wait(store_rows(o, head, 0, block, normalised(state, tl), tl))


def chain(n: int, mesh: Mesh) -> tuple[int, ...]:
    """The PE of each rank along the rows, every other one backwards, so that neighbours in rank are neighbours."""
    rows, cols = mesh
    snake = [row * cols + (col if row % 2 == 0 else cols - 1 - col) for row in range(rows) for col in range(cols)]
    return tuple(snake[:n])


def sides(rank: int, pes: Sequence[int], mesh: Mesh) -> tuple[str | None, str | None]:
    """The ports of a rank of the chain that lead to rank - 1 and rank + 1; None at an end."""
    left = direction(pes[rank], pes[rank - 1], mesh) if rank else None
    right = direction(pes[rank], pes[rank + 1], mesh) if rank + 1 < len(pes) else None
    return left, right


def load(cache: Pointer, first: int, width: int, tl: Tl) -> Handle:
    """Rows of a cache, [width, cache.row], waited for at once: loads were not lazy then."""
    return tl.wait(tl.load(cache + first * cache.row, (width, cache.row)))


def fold(state: State, q: Handle, k: Handle, v: Handle, keys: Span, block: Block, rules: Rules, tl: Tl) -> None:
    """Take a tile of keys into `state`, each product waited for before anything else is said."""
    some = sight(block.positions, keys) is not Sight.ALL
    s = tl.dot(q, k, trans_b=True) * rules.scale
    if some:
        s = masked(s, keys, block, rules, tl)
    m = tl.max(s)
    p = tl.exp(s - (tl.maximum(m, LOWEST) if some else m))  # a row may see nothing of it
    merge(state, (m, tl.sum(p), tl.dot(tl.cast(p, v.dtype), v, trans_b=False)), tl)
    tl.wait(state[0])


def fan_out(state: State, rank: int, pes: Sequence[int], message_rows: int, mesh: Mesh, tl: Tl) -> None:
    """Pass everyone's m, l, O along the chain both ways, folding what comes by into `state`."""
    left, right = sides(rank, pes, mesh)
    mine, from_left, from_right = (like(state, tl) for _ in range(3))
    for copy, part in zip(mine, state, strict=True):
        tl.assign(copy, part)
    going_right = going_left = messages(mine, message_rows, tl)
    for step in range(1, len(pes)):
        arrivals = [(left, from_left, rank - step >= 0), (right, from_right, rank + step < len(pes))]
        coming = [messages(copies, message_rows, tl) if comes else [] for _, copies, comes in arrivals]
        with tl.region("fan-out"):
            exchange((going_left, going_right), (coming[0], coming[1]), (left, right), tl)
            for _, copies, comes in arrivals:
                if comes:
                    with tl.scratch_scope():
                        merge(state, copies, tl)
        going_right, going_left = coming


def like(state: State, tl: Tl) -> State:
    """Scratch for another state of the same size."""
    m, l, o = state
    return tl.empty(m.shape), tl.empty(l.shape), tl.empty(o.shape)


def messages(triple: State, message_rows: int, tl: Tl) -> Messages:
    """What is sent before anything is received: m, l and as much of O as fits a slot, then the rest of O in turn."""
    m, l, o = triple
    first, *others = pieces(o, message_rows, tl)
    return [[m, l, first], *([other] for other in others)]


def exchange(
    going: tuple[Messages, Messages], coming: tuple[Messages, Messages], ports: tuple[str | None, str | None], tl: Tl
) -> None:
    """Send `going` to the left and right and receive `coming` from there, message by message: slots are few."""
    for number in range(max(map(len, (*going, *coming)))):
        sent = [tl.send(side, part) for side, each in _at(number, ports, going) for part in each]
        tl.wait(*sent)
        for side, each in _at(number, ports, coming):
            with tl.scratch_scope():
                received = [tl.recv(side, part.shape, part.dtype) for part in each]
                for copy, part in zip(each, received, strict=True):
                    tl.assign(copy, part)


def _at(
    number: int, ports: tuple[str | None, str | None], lists: tuple[Messages, Messages]
) -> Iterable[tuple[str, list[Handle]]]:
    """The messages of that number by port, where there is a port and a message."""
    pairs = zip(ports, lists, strict=True)
    return [(side, each[number]) for side, each in pairs if side is not None and number < len(each)]
