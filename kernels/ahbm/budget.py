"""Scratch that a block of queries takes in a sweep, and the largest block that fits (ADR-0060 11.5, R36).

Static arithmetic over the kernel's own allocations, so it can be said before the launch. Errs high only: a launch whose
blocks see fewer tiles, or no partial one, takes less. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Depth, Rules
from pytest_kernbench.kernels.ahbm.requests import Request

ALIGNMENT = 64  # bytes, of every allocation in scratch
F32 = 4


@dataclass(frozen=True)
class Budget:
    """Bytes of scratch by what they are for; `folding` and `storing` take the same bytes by turns."""

    q_block: int
    rows: int
    tile: int
    state: int
    queries: int
    scores: int
    products: int
    folding: int
    storing: int

    @property
    def total(self) -> int:
        return self.state + self.queries + self.scores + self.products + max(self.folding, self.storing)

    def __str__(self) -> str:
        parts = {name: getattr(self, name) for name in ("state", "queries", "scores", "products", "folding", "storing")}
        said = ", ".join(f"{name} {size}" for name, size in parts.items())
        size = f"{self.q_block} positions are {self.rows} rows, tiles of {self.tile}"
        return f"scratch budget of a query block: {self.total} bytes ({said}); {size}"

    @classmethod
    def of_prefill(
        cls, requests: Sequence[Request], group: int, d: int, d_v: int, itemsize: int, tile: int, q_block: int,
        rules: Rules, depth: Depth, *, sinks: bool = False, lse: bool = False,
    ) -> Budget:  # fmt: skip
        """The largest that one of `requests` can need. Raises ValueError for a tile or q_block below 1."""
        for name, value in (("tile", tile), ("q_block", q_block)):
            if value < 1:
                raise ValueError(f"{name} is {value}: it counts from 1")
        budgets = [
            cls.of_block(min(q_block, each.t_q), each.kv_len, group, d, d_v, itemsize, tile, rules, depth, sinks, lse)
            for each in requests
        ]
        return max(budgets, key=lambda budget: budget.total)

    @classmethod
    def of_block(
        cls, positions: int, kv_len: int, group: int, d: int, d_v: int, itemsize: int, tile: int, rules: Rules,
        depth: Depth, sinks: bool = False, lse: bool = False,
    ) -> Budget:  # fmt: skip
        """One block of queries against `kv_len` keys."""
        rows = group * positions
        whole, tail = divmod(kv_len, tile)
        widest = tile if whole else tail
        column, matrix = _bytes(rows, F32), _bytes(rows * d_v, F32)
        tiles = whole + bool(tail)
        scores = min(whole, depth.ahead + 1) * _bytes(rows * tile, F32) + _bytes(rows * tail, F32)
        products = min(whole, depth.in_flight) * _bytes(rows * tile, itemsize) + _bytes(rows * tail, itemsize)
        products += min(tiles, depth.in_flight) * (matrix + column)
        return cls(
            q_block=positions, rows=rows, tile=tile, state=3 * column + matrix, queries=_bytes(rows * d, itemsize),
            scores=scores, products=products, folding=5 * column + _mask(positions, widest, rules),
            storing=column + matrix + (9 if sinks else 0) * column + (2 if lse else 0) * column,
        )  # fmt: skip


def _mask(positions: int, width: int, rules: Rules) -> int:
    """The mask of a partial tile: counts along both axes, who sees whom, and what is added to the scores."""
    counts = _bytes(positions, F32) + _bytes(width, F32)
    once = _bytes(positions * width, 1) + _bytes(positions * width, F32)
    return counts + once + (0 if rules.window is None else _bytes(positions, F32) + once)


def _bytes(elements: int, itemsize: int) -> int:
    return -(-elements * itemsize // ALIGNMENT) * ALIGNMENT


def largest_q_block(
    scratch_bytes: int, t_q: int, kv_len: int, *, group: int, d: int, d_v: int, itemsize: int, tile: int,
    window: int | None = None, depth: Depth = INTERLEAVED, sinks: bool = False, lse: bool = False,
) -> int:  # fmt: skip
    """The most query positions, up to `t_q`, whose budget is within `scratch_bytes`.

    Raises ValueError with both numbers if not even one position fits.
    """
    rules = Rules(1.0, window)

    def total(positions: int) -> int:
        return Budget.of_block(positions, kv_len, group, d, d_v, itemsize, tile, rules, depth, sinks, lse).total

    if total(1) > scratch_bytes:
        raise ValueError(
            f"one position of {group} heads takes {total(1)} bytes of scratch with tiles of {tile}, there are "
            f"{scratch_bytes}: take a smaller tile"
        )
    fits, too_many = 1, t_q + 1  # the budget grows with the block
    while fits + 1 < too_many:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if total(middle) <= scratch_bytes else (fits, middle)
    return fits
