"""GQA decode whose bits do not depend on how many PEs share the work. PYTEST_DONT_REWRITE

Keys are cut into splits of a fixed number of tokens, whole splits go round the PEs, and split states are merged along
one binary tree over the splits, whoever holds them. A PE merges what it has both halves of and passes the rest on, so
that its parent in the tree of PEs finds the other halves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state, merge
from pytest_kernbench.kernels.ahbm.flash_sweep import (
    INTERLEAVED,
    Block,
    Depth,
    Layout,
    Rules,
    Sweep,
    Tile,
    resident_tiles,
)
from pytest_kernbench.kernels.ahbm.gqa_decode import MESSAGE_BYTES, message_rows, pieces
from pytest_kernbench.kernels.ahbm.placement import Mesh, Tree, direction, tree
from pytest_kernbench.kernels.ahbm.positions import Span
from pytest_kernbench.kernels.ahbm.requests import Request, check_heads, tokens_of
from pytest_kernbench.simulator.ahbm.tl import DTypeLike, Handle, Pointer, Tl

Node = tuple[int, int]
"""(level, index): splits index * 2**level up to, but not including, (index + 1) * 2**level, as far as there are any."""


def gqa_decode_fixed_split(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, kv_len: int, start_pe: int, n: int, *, group: int, tile: int,
    split: int, scale: float, q_start: int | None = None, window: int | None = None, softcap: float | None = None,
    skip: bool = True, sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head",
    depth: Depth = INTERLEAVED, message_bytes: int = MESSAGE_BYTES, mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """As `gqa_decode`, with bits that are the same for every `n`, `start_pe` and mesh.

    Split i, tokens i * split and up, lies on rank (start_pe + i) mod n, behind that rank's splits before it. An edge of
    the tree carries one m, l, O for each split state that waits for its other half: up to kv_len / split / n of them,
    for which a PE needs scratch; one PE alone needs as many as the tree over splits has levels.
    """
    request = Request(kv_len, tokens_of(q, layout), start_pe, q_start=q_start)
    gqa_decode_fixed_split_batch(
        q, k, v, o, [request], n, group=group, tile=tile, split=split, scale=scale, window=window, softcap=softcap,
        skip=skip, sinks=sinks, lse=lse, layout=layout, depth=depth, message_bytes=message_bytes, mesh=mesh, tl=tl,
    )  # fmt: skip


def gqa_decode_fixed_split_batch(
    q: Pointer, k: Pointer, v: Pointer, o: Pointer, requests: Sequence[Request], n: int, *, group: int, tile: int,
    split: int, scale: float, window: int | None = None, softcap: float | None = None, skip: bool = True,
    sinks: Pointer | None = None, lse: Pointer | None = None, layout: Layout = "head", depth: Depth = INTERLEAVED,
    message_bytes: int = MESSAGE_BYTES, mesh: Mesh = (2, 4), tl: Tl,
) -> None:  # fmt: skip
    """`gqa_decode_fixed_split` of each request in turn; their splits lie behind `kv_row` of every PE's caches."""
    rank, head = tl.program_id(0), tl.program_id(1) * group
    check_heads(q, group * tl.num_programs(1), layout)
    rules, shape, rows = Rules(scale, window, softcap, skip), tree(n, mesh), message_rows(message_bytes, v.row)
    for request in requests:
        block = Block(Span(request.first, request.t_q), group, layout)
        count = split_count(request.kv_len, split)
        with tl.scratch_scope():
            partial = Partial(count, block.rows, v.row, rows, tl)
            shares = share_of(k, v, request, rank, n, split, tile, block, rules, tl)
            q_rows = load_rows(q, head, request.q_row, block, tl) if any(shares.values()) else None
            for number, tiles in shares.items():
                partial.add((0, number), fold_split(q_rows, tiles, block, partial.blank(), v.dtype, rules, depth, tl))
            reduce_partials(partial, rank, request.start_pe, shape, tl)
            if rank == shape.root:
                store_result(partial.whole(), o, lse, sinks, 0, head, request.q_row, block, tl)


def share_of(
    k: Pointer, v: Pointer, request: Request, rank: int, n: int, split: int, tile: int, block: Block, rules: Rules,
    tl: Tl,
) -> dict[int, list[Tile]]:  # fmt: skip
    """The splits of a rank, in the order of its rows, with the tiles of each that some query sees."""
    found = {}
    for number, index in enumerate(splits_of(rank, request.start_pe, split_count(request.kv_len, split), n)):
        row = request.kv_row + number * split
        keys = Span(index * split, min(split, request.kv_len - index * split))
        found[index] = list(resident_tiles(k + row * k.row, v + row * v.row, keys, tile, block, rules, tl))
    return found


def fold_split(
    q_rows: Handle | None, tiles: list[Tile], block: Block, state: State, dtype: DTypeLike, rules: Rules,
    depth: Depth, tl: Tl,
) -> State:  # fmt: skip
    """`state` with one split's tiles folded in, for good."""
    with tl.scratch_scope():
        m, *_ = Sweep(q_rows, block, state, [each.width for each in tiles], dtype, rules, depth, tl).fold(tiles)
        if m is not state[0]:  # it is in the sweep's own buffer, which ends with the scope
            tl.assign(state[0], m)
        tl.wait(*state)  # the next split's products take the bytes of this one's
    return state


def split_count(kv_len: int, split: int) -> int:
    """How many splits of `split` tokens there are, the last one perhaps shorter. Raises ValueError for none a split."""
    if split < 1:
        raise ValueError(f"split is {split}: it counts tokens from 1")
    return -(-kv_len // split)


def splits_of(rank: int, start_pe: int, count: int, n: int) -> range:
    """The splits that lie on a rank, in the order of its rows."""
    return range((rank - start_pe) % n, count, n)


def canonical(splits: Iterable[int], count: int) -> list[Node]:
    """The nodes of the tree over `count` splits that are left when all halves that meet among `splits` are merged."""
    nodes: set[Node] = set()
    for number in splits:
        node = (0, number)
        while (half := _other_half(node)) in nodes or (_ends(half, count) and _below_top(node, count)):
            nodes.discard(half)
            node = _parent(node)
        nodes.add(node)
    return sorted(nodes)


def _parent(node: Node) -> Node:
    return node[0] + 1, node[1] // 2


def _other_half(node: Node) -> Node:
    return node[0], node[1] ^ 1


def _ends(node: Node, count: int) -> bool:
    """Whether there are no splits as far as `node`."""
    return node[1] << node[0] >= count


def _below_top(node: Node, count: int) -> bool:
    return 1 << node[0] < count


class Partial:
    """The states of some nodes of the tree over splits; adding one merges it as far up as its other halves are here.

    A state that was merged into another leaves its scratch to the next one: it may not grow with the context (11.5).
    """

    def __init__(self, count: int, rows: int, d_v: int, message_rows: int, tl: Tl) -> None:
        self.count, self.rows, self.d_v, self.message_rows, self.tl = count, rows, d_v, message_rows, tl
        self.states: dict[Node, State] = {}
        self._spare: list[State] = []
        self._nothing: State | None = None  # what a spare state is reset to

    def blank(self) -> State:
        """A state of no keys."""
        if not self._spare:
            return empty_state(self.rows, self.d_v, self.tl)
        if self._nothing is None:
            self._nothing = empty_state(self.rows, self.d_v, self.tl)
        state = self._spare.pop()
        for part, value in zip(state, self._nothing, strict=True):
            self.tl.assign(part, value)
        return state

    def add(self, node: Node, state: State) -> None:
        """Take in the state of `node`; left and right are those of the tree, whichever comes first."""
        while _below_top(node, self.count):
            half = _other_half(node)
            if not _ends(half, self.count):
                if half not in self.states:
                    break
                other = self.states.pop(half)
                left, right = (state, other) if node < half else (other, state)
                with self.tl.scratch_scope():
                    merge(left, right, self.tl)
                    self.tl.wait(left[0])  # the last to be written
                self._spare.append(right)
                state = left
            node = _parent(node)
        self.states[node] = state

    def whole(self) -> State:
        """The state of all splits; of no keys if there are none."""
        if not self.states:
            return self.blank()
        (state,) = self.states.values()
        return state

    def receive(self, side: str) -> State:
        """A state from a neighbour, copied out of its slots."""
        tl = self.tl
        m, l, o = self._spare.pop() if self._spare else [tl.empty((self.rows, width)) for width in (1, 1, self.d_v)]
        for part in (m, l, *pieces(o, self.message_rows, tl)):
            with tl.scratch_scope():
                copied = tl.assign(part, tl.recv(side, part.shape))
        tl.wait(copied)  # O was written piece by piece, so that no use of it would wait
        return m, l, o

    def send(self, side: str) -> None:
        """Every state, in the order of the nodes."""
        sent = [
            self.tl.send(side, part)
            for _, (m, l, o) in sorted(self.states.items())
            for part in (m, l, *pieces(o, self.message_rows, self.tl))
        ]
        self.tl.wait(*sent)


def reduce_partials(partial: Partial, rank: int, start_pe: int, shape: Tree, tl: Tl) -> None:
    """Children first, then the parent, along the tree of PEs; the root has all splits in `partial` then."""
    pe, parent, n = shape.placement[rank], shape.parent[rank], len(shape.placement)
    with tl.region("tree"):
        for child in shape.children[rank]:
            side = direction(pe, shape.placement[child], shape.mesh)
            below = [
                number for each in _subtree(child, shape) for number in splits_of(each, start_pe, partial.count, n)
            ]
            for node in canonical(sorted(below), partial.count):
                partial.add(node, partial.receive(side))
        if parent is not None:
            partial.send(direction(pe, shape.placement[parent], shape.mesh))


def _subtree(rank: int, shape: Tree) -> list[int]:
    """A rank and all that send to it, directly or not."""
    return [rank, *(each for child in shape.children[rank] for each in _subtree(child, shape))]
