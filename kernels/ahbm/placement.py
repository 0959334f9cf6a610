"""Which PE holds which token, and which PE merges with which: plain integer arithmetic of a kernel. PYTEST_DONT_REWRITE

Round-robin KV (ADR-0060 2.1, 2.2): token `i` of a request lives on rank `(start_pe + i) mod n`, in slot `i // n` there.
`start_pe` moves the tokens, never the tree: the tree is physical and fixed (R26).

Reduction trees (ADR-0060 4, R23-R25): every edge joins two neighbours of the mesh, for every number of ranks. Logical
ranks 0..n-1 are laid on physical PEs, numbered row-major (`row * cols + col`); rank n-1 is the root.
"""

from dataclasses import dataclass

Mesh = tuple[int, int]
"""Rows and columns of a mesh of PEs."""

GRAY_SIDES = (1, 2, 4)
"""Sides for which Gray-code ids make every edge of the binomial tree one hop (R23); on 8, ids 3 and 7 are 3 apart."""

_STEPS = {"N": (-1, 0), "S": (1, 0), "W": (0, -1), "E": (0, 1)}
_OPPOSITE = {"N": "S", "S": "N", "W": "E", "E": "W"}


# --- round-robin KV ---------------------------------------------------------------------------------------------------


def valid_len(kv_len: int, start_pe: int, rank: int, n: int) -> int:
    """How many of a request's first `kv_len` tokens `rank` holds; they fill its slots 0, 1, 2, ... (ADR-0060 2.2).

    `kv_len` counts cached tokens *including* one appended for this step (R14). Raises ValueError for a rank outside
    0..n-1 or a negative length.
    """
    check_rank(rank, n)
    check_count("kv_len", kv_len)
    return kv_len // n + (_offset(start_pe, rank, n) < kv_len % n)


def owner(token: int, start_pe: int, n: int) -> int:
    """The rank that holds `token`, a position in the whole sequence (ADR-0060 0, layers 1 and 2)."""
    check_ranks(n)
    check_count("token", token)
    return (start_pe + token) % n


def slot(token: int, n: int) -> int:
    """The row of its owner's K and V caches in which `token` lies (ADR-0060 2.1); it does not depend on `start_pe`."""
    check_ranks(n)
    check_count("token", token)
    return token // n


def token_of(slot: int, rank: int, start_pe: int, n: int) -> int:
    """The position in the whole sequence of row `slot` of `rank`'s caches (ADR-0060 2.1), which RoPE uses (P5)."""
    check_rank(rank, n)
    check_count("slot", slot)
    return slot * n + _offset(start_pe, rank, n)


def writes_next(kv_len_before_append: int, start_pe: int, rank: int, n: int) -> bool:
    """Whether `rank` stores the token that is appended to `kv_len_before_append` cached ones (ADR-0060 2.2, R14)."""
    check_rank(rank, n)
    return owner(kv_len_before_append, start_pe, n) == rank


def _offset(start_pe: int, rank: int, n: int) -> int:
    """Steps from the rank of token 0 to `rank`, going round."""
    return (rank - start_pe) % n


def check_whole(name: str, value: object) -> None:
    """Raise ValueError for what does not count anything: 2.0, True, a string, None."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{name} is {value!r}: give a whole number")


def check_ranks(n: int) -> None:
    check_whole("n", n)
    """Raise ValueError for a group without ranks."""
    if n < 1:
        raise ValueError(f"a group needs at least 1 rank, n is {n}")


def check_rank(rank: int, n: int) -> None:
    """Raise ValueError for a rank outside 0..n-1."""
    check_ranks(n)
    if not 0 <= rank < n:
        raise ValueError(
            f"rank {rank} is outside a group of {n}, its ranks are 0..{n - 1}: a PE of no group has no tokens"
        )


def check_count(name: str, value: int) -> None:
    """Raise ValueError for a negative length, position or slot."""
    if value < 0:
        raise ValueError(f"{name} is {value}: it counts from 0")


# --- reduction trees --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """Who merges with whom; each edge is one mesh hop and `rank n-1` is the root.

    `placement[rank]` is a physical PE, `parent[rank]` a rank (None at the root), `children[rank]` the ranks that send
    to `rank` in the order in which it receives them, `rounds` the steps until the root is done if a PE receives one
    child a step.
    """

    mesh: Mesh
    placement: tuple[int, ...]
    parent: tuple[int | None, ...]
    children: tuple[tuple[int, ...], ...]
    rounds: int

    @property
    def root(self) -> int:
        return len(self.parent) - 1


def placement(n: int, mesh: Mesh) -> tuple[int, ...]:
    """The physical PE of each logical rank 0..n-1, such that every edge of `tree(n, mesh)` is one hop (R23, R25).

    2x4 with n = 8 carries ADR-0060's tree: 0>1, 2>3, 4>5, 6>7; 1>3, 5>7; 3>7. Raises ValueError if the mesh is smaller
    than `n`.
    """
    return tree(n, mesh).placement


def tree(n: int, mesh: Mesh) -> Tree:
    """The log-sum-exp tree of `n` ranks on `mesh`, for any n from 1 to rows * cols.

    Sides in `GRAY_SIDES`: the binomial tree in ceil(log2 n) rounds (R25). Any other side: rows reduce to their middle
    column, then that column to its middle row (R24); the full mesh takes ceil(rows / 2) + ceil(cols / 2) rounds (0 for
    a side of 1). Both roots sit at (rows // 2, cols // 2). Raises ValueError if the mesh is smaller than `n`.
    """
    check_fits(n, mesh)
    if all(side in GRAY_SIDES for side in mesh):
        return _assemble(mesh, *_binomial(n, mesh))
    return _assemble(mesh, *_rows_then_column(n, mesh))


def direction(src_pe: int, dst_pe: int, mesh: Mesh) -> str:
    """The port "N", "S", "E" or "W" of `src_pe` that leads to its neighbour `dst_pe`: N is row - 1, W is column - 1.

    Raises ValueError if the two are not neighbours or outside the mesh.
    """
    src, dst = _position(src_pe, mesh), _position(dst_pe, mesh)
    for name, (down, right) in _STEPS.items():
        if (src[0] + down, src[1] + right) == dst:
            return name
    apart = hops(src_pe, dst_pe, mesh)
    raise ValueError(
        f"PE {src_pe} at {src} and PE {dst_pe} at {dst} are {apart} hops apart on {_name(mesh)}, neighbours are 1: "
        "take the pairs of tree(n, mesh), or forward hop by hop"
    )


def hops(src_pe: int, dst_pe: int, mesh: Mesh) -> int:
    """The links of the shortest way between two PEs. Raises ValueError for a PE outside the mesh."""
    (src_row, src_col), (dst_row, dst_col) = _position(src_pe, mesh), _position(dst_pe, mesh)
    return abs(src_row - dst_row) + abs(src_col - dst_col)


def opposite(direction: str) -> str:
    """The port at the other end of a link: what goes out "E" comes in "W". Raises ValueError for another word."""
    if direction not in _OPPOSITE:
        raise ValueError(f'no direction {direction!r}: directions are "N", "S", "E", "W"')
    return _OPPOSITE[direction]


_Levels = tuple[list[int], list[int | None], list[int]]
"""By rank: its PE, its parent (None at the root), the level at which it sends."""


def _assemble(mesh: Mesh, pes: list[int], parents: list[int | None], levels: list[int]) -> Tree:
    """The tree in which every rank receives lower levels first."""
    children: list[list[int]] = [[] for _ in pes]
    for rank in sorted(range(len(pes)), key=levels.__getitem__):
        parent = parents[rank]
        if parent is not None:
            children[parent].append(rank)
    orders = tuple(tuple(order) for order in children)
    return Tree(mesh, tuple(pes), tuple(parents), orders, _rounds(orders))


def _rounds(children: tuple[tuple[int, ...], ...]) -> int:
    """Steps until the last rank is done, at one child a step; children have smaller ranks than their parents."""
    done: list[int] = []
    for order in children:
        step = 0
        for child in order:
            step = max(step, done[child]) + 1
        done.append(step)
    return done[-1]


def _binomial(n: int, mesh: Mesh) -> _Levels:
    """R25 with relative rank rr = n-1-rank: rr sends at level ctz(rr) to rr - 2^level, and takes Gray id size-1-rr.

    An edge changes bit `level` of the id while all lower bits are ones. On a Gray-coded side up to 4 that is one hop.
    """
    rows, cols = mesh
    ids = range(rows * cols - n, rows * cols)
    levels = [_trailing_zeros(n - 1 - rank) for rank in range(n - 1)]
    parents: list[int | None] = [rank + (1 << level) for rank, level in enumerate(levels)]
    pes = [_gray(ident // cols) * cols + _gray(ident % cols) for ident in ids]
    return pes, [*parents, None], [*levels, 0]


def _gray(index: int) -> int:
    """The Gray code of 0..3, which is its own inverse there: 0, 1, 3, 2."""
    return index ^ (index >> 1)


def _trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


def _rows_then_column(n: int, mesh: Mesh) -> _Levels:
    """R24: the `n` PEs of the full tree that send last, so that a parent is always among them."""
    levels = {pe: _send_level(pe, mesh) for pe in range(mesh[0] * mesh[1])}
    pes = sorted(levels, key=lambda pe: (levels[pe], pe))[-n:]
    rank_of = {pe: rank for rank, pe in enumerate(pes)}
    parents: list[int | None] = [rank_of[_inwards(pe, mesh)] for pe in pes[:-1]]
    return pes, [*parents, None], [levels[pe] for pe in pes]


def _send_level(pe: int, mesh: Mesh) -> int:
    """The round in which `pe` sends on the full mesh; the root, which does not send, comes after all others."""
    (row, col), (rows, cols) = _position(pe, mesh), mesh
    if col != cols // 2:
        return min(col + 1, cols - col)
    if row != rows // 2:
        return cols + min(row + 1, rows - row)
    return cols + rows


def _inwards(pe: int, mesh: Mesh) -> int:
    """The neighbour one hop nearer to the root: along the row first, then along the middle column."""
    (row, col), (rows, cols) = _position(pe, mesh), mesh
    if col != cols // 2:
        return pe + (1 if col < cols // 2 else -1)
    return pe + (cols if row < rows // 2 else -cols)


def _position(pe: int, mesh: Mesh) -> tuple[int, int]:
    rows, cols = mesh
    if not 0 <= pe < rows * cols:
        raise ValueError(f"PE {pe} is outside {_name(mesh)}: its PEs are 0..{rows * cols - 1}")
    return divmod(pe, cols)


def check_fits(n: int, mesh: Mesh) -> None:
    """Raise ValueError if the mesh is smaller than `n`."""
    rows, cols = mesh
    if rows < 1 or cols < 1:
        raise ValueError(f"{_name(mesh)} has no PE: give both sides at least 1")
    check_ranks(n)
    if n > rows * cols:
        raise ValueError(f"{n} ranks do not fit {_name(mesh)} of {rows * cols} PEs: take fewer ranks or a larger mesh")


def _name(mesh: Mesh) -> str:
    return f"a {mesh[0]}x{mesh[1]} mesh"
