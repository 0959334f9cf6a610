"""Scratch that a block of queries takes in a sweep, and the largest block that fits (ADR-0060 11.5, R36).

Static arithmetic over the kernel's own allocations, so it can be said before the launch. Errs high only: a launch whose
blocks see fewer tiles, or no partial one, takes less. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_kernbench.kernels.ahbm.flash_sweep import Depth, Rules
from pytest_kernbench.kernels.ahbm.placement import check_whole
from pytest_kernbench.kernels.ahbm.positions import Placement, shards
from pytest_kernbench.kernels.ahbm.requests import Request

ALIGNMENT = 64  # bytes, of every allocation in scratch
F32 = 4


@dataclass(frozen=True)
class Sizes:
    """What a block's scratch depends on beside its positions: the heads of a group, widths of rows, and options."""

    group: int
    d: int
    d_v: int
    itemsize: int
    tile: int
    rules: Rules
    depth: Depth
    sinks: bool = False
    lse: bool = False

    def __post_init__(self) -> None:
        check_whole("tile", self.tile)
        if self.tile < 1:
            raise ValueError(f"tile is {self.tile}: it counts from 1")


@dataclass(frozen=True)
class Budget:
    """Bytes of scratch by what they are for; `folding` and `storing` take the same bytes by turns.

    `sweeps` blocks of `positions` go through together; `own` is where a ring's rank loads keys of its own.
    """

    positions: int
    rows: int
    tile: int
    state: int
    queries: int
    scores: int
    products: int
    folding: int
    storing: int
    own: int = 0
    sweeps: int = 1

    @property
    def total(self) -> int:
        block = self.state + self.queries + self.scores + self.products
        return self.sweeps * block + max(self.folding, self.storing) + self.own

    def __str__(self) -> str:
        names = ("state", "queries", "scores", "products", "folding", "storing", "own")
        said = ", ".join(f"{name} {getattr(self, name)}" for name in names if getattr(self, name))
        blocks = "a query block" if self.sweeps == 1 else f"{self.sweeps} query blocks"
        size = f"{self.positions} positions are {self.rows} rows, tiles of {self.tile}"
        return f"scratch budget of {blocks}: {self.total} bytes ({said}); {size}"

    @classmethod
    def of_prefill(cls, requests: Sequence[Request], q_block: int, sizes: Sizes) -> Budget:
        """The largest that one of `requests` can need. Raises ValueError for a q_block below 1."""
        _check_block(q_block)
        budgets = [cls.of_block(min(q_block, each.t_q), each.kv_len, sizes) for each in requests]
        return max(budgets, key=lambda budget: budget.total)

    @classmethod
    def of_block(cls, positions: int, kv_len: int, sizes: Sizes) -> Budget:
        """One block of queries against `kv_len` keys, tile by tile."""
        whole, tail = divmod(kv_len, sizes.tile)
        return cls._of_tiles(positions, {sizes.tile: whole, tail: 1}, sizes)

    @classmethod
    def of_ring(cls, requests: Sequence[Request], n: int, sharding: Placement, q_block: int, sizes: Sizes) -> Budget:
        """The largest that a rank can need for one of `requests`: its blocks of a trip, and its own pieces of keys."""
        _check_block(q_block)
        budgets = [cls._of_trip(each, n, sharding, q_block, sizes) for each in requests]
        return max(budgets, key=lambda budget: budget.total)

    @classmethod
    def _of_trip(cls, request: Request, n: int, sharding: Placement, q_block: int, sizes: Sizes) -> Budget:
        depth, tile = sizes.depth, sizes.tile
        lengths = {span.count for shard in shards(request.kv_len, n, sharding) for span in shard}
        widths = {width for length in lengths for width in (min(length, tile), length % tile) if width}
        sweeps = max(len(shard) for shard in shards(request.t_q, n, sharding, request.first))
        positions = min(max(q_block // sweeps, 1), request.t_q)
        block = cls._of_tiles(positions, dict.fromkeys(widths, depth.tiles + 1), sizes)
        own = sum(_bytes(width * row, sizes.itemsize) for width in widths for row in (sizes.d, sizes.d_v))
        return replace(block, own=depth.tiles * own, sweeps=sweeps)

    @classmethod
    def _of_tiles(cls, positions: int, tiles: dict[int, int], sizes: Sizes) -> Budget:
        """One block against so many tiles of each width."""
        depth, rows = sizes.depth, sizes.group * positions
        column, matrix = _bytes(rows, F32), _bytes(rows * sizes.d_v, F32)
        scores = sum(min(count, depth.ahead + 1) * _bytes(rows * width, F32) for width, count in tiles.items())
        stored = sum(
            min(count, depth.in_flight) * _bytes(rows * width, sizes.itemsize) for width, count in tiles.items()
        )
        widest = max((width for width, count in tiles.items() if count), default=0)
        return cls(
            positions=positions, rows=rows, tile=sizes.tile, state=3 * column + matrix,
            queries=_bytes(rows * sizes.d, sizes.itemsize), scores=scores,
            products=stored + min(sum(tiles[width] for width in tiles if width), depth.in_flight) * (matrix + column),
            folding=5 * column + _mask(positions, widest, sizes.rules),
            storing=matrix + (1 + (9 if sizes.sinks else 0) + (2 if sizes.lse else 0)) * column,
        )  # fmt: skip


def _check_block(q_block: int) -> None:
    check_whole("q_block", q_block)
    if q_block < 1:
        raise ValueError(f"q_block is {q_block}: it counts from 1")


def _mask(positions: int, width: int, rules: Rules) -> int:
    """The mask of a partial tile: counts along both axes, who sees whom, and what is added to the scores."""
    counts = _bytes(positions, F32) + _bytes(width, F32)
    once = _bytes(positions * width, 1) + _bytes(positions * width, F32)
    return counts + once + (0 if rules.window is None else _bytes(positions, F32) + once)


def _bytes(elements: int, itemsize: int) -> int:
    return -(-elements * itemsize // ALIGNMENT) * ALIGNMENT


def largest_q_block(scratch_bytes: int, t_q: int, kv_len: int, sizes: Sizes) -> int:
    """The most query positions, up to `t_q`, whose budget is within `scratch_bytes`.

    Raises ValueError with both numbers if not even one position fits.
    """

    def total(positions: int) -> int:
        return Budget.of_block(positions, kv_len, sizes).total

    if total(1) > scratch_bytes:
        raise ValueError(
            f"one position of {sizes.group} heads takes {total(1)} bytes of scratch with tiles of {sizes.tile}, there "
            f"are {scratch_bytes}: take a smaller tile"
        )
    fits, too_many = 1, t_q + 1  # the budget grows with the block
    while fits + 1 < too_many:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if total(middle) <= scratch_bytes else (fits, middle)
    return fits
