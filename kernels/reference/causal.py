"""What causal prefill has to issue, read and compute, counted in whole numbers. PYTEST_DONT_REWRITE

Exact, and from positions alone: a pair of query block and key tile is visited if and only if some query of the block
sees some key of the tile, and masked if and only if not all of them do (ADR-0060 5.4).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The key tiles that one block of `rows` query positions visits: `tiles` with `keys` keys in all.

    `masked_tiles` of them, with `masked_keys` keys in all, need a mask.
    """

    rows: int
    keys: int
    tiles: int
    masked_keys: int = 0
    masked_tiles: int = 0


@dataclass(frozen=True, kw_only=True)
class Prefill:
    """Queries at positions q_start..q_start+t_q-1 in blocks of `q_block`, keys 0..kv_len-1 in tiles of `tile`.

    Query q sees key k if k <= q and, with a sliding `window`, q - k < window. The last block and the last tile have
    their exact size. `q_start` is that of `attention`: kv_len - t_q for a chunk at the end of its context. Raises
    ValueError for a size below its least.
    """

    t_q: int
    kv_len: int
    q_start: int
    q_block: int
    tile: int
    window: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("t_q", 1), ("kv_len", 0), ("q_block", 1), ("tile", 1), ("window", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}, the least is {least}: {self}")

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """One for each query block, in order; one without tiles for a block that sees no key."""
        return tuple(self._sweep(qs, qe) for qs, qe in self._blocks())

    def _blocks(self) -> Iterator[tuple[int, int]]:
        end = self.q_start + self.t_q
        for qs in range(self.q_start, end, self.q_block):
            yield qs, min(qs + self.q_block, end)

    def _sweep(self, qs: int, qe: int) -> Sweep:
        visited = self._tiles(*self._some_see(qs, qe))
        full = self._tiles_within(*self._all_see(qs, qe))
        return Sweep(
            rows=qe - qs,
            keys=self._keys(visited),
            tiles=len(visited),
            masked_keys=self._keys(visited) - self._keys(full),
            masked_tiles=len(visited) - len(full),
        )

    def _some_see(self, qs: int, qe: int) -> tuple[int, int]:
        """The keys that at least one query of [qs, qe) sees: the first one's window up to the last one's position."""
        first = 0 if self.window is None else max(0, qs - self.window + 1)
        return first, min(self.kv_len, qe)

    def _all_see(self, qs: int, qe: int) -> tuple[int, int]:
        """The keys that every query of [qs, qe) sees: the last one's window up to the first one's position."""
        first = 0 if self.window is None else max(0, qe - self.window)
        return first, min(self.kv_len, qs + 1)

    def _tiles(self, lo: int, hi: int) -> range:
        """Those that hold a key of [lo, hi)."""
        return range(lo // self.tile, -(-hi // self.tile)) if lo < hi else range(0)

    def _tiles_within(self, lo: int, hi: int) -> range:
        """Those that hold no other key than of [lo, hi); the last one ends at kv_len."""
        ends = -(-hi // self.tile) if hi == self.kv_len else hi // self.tile
        return range(-(-lo // self.tile), ends) if lo < hi else range(0)

    def _keys(self, tiles: range) -> int:
        return min(tiles.stop * self.tile, self.kv_len) - tiles.start * self.tile if tiles else 0

    @property
    def tile_pairs(self) -> int:
        """Pairs of query block and key tile that are visited; without a window those with `ks < qe` (11.4)."""
        return sum(sweep.tiles for sweep in self.sweeps)

    @property
    def partial_pairs(self) -> int:
        """Pairs that need a mask; without a window those with `ks < qe` and not `ke <= qs + 1` (R41)."""
        return sum(sweep.masked_tiles for sweep in self.sweeps)

    @property
    def gemm_count(self) -> int:
        """Products issued, Q.K and P.V of every pair (ADR-0060 11.4)."""
        return 2 * self.tile_pairs

    @property
    def kv_rows_read(self) -> int:
        """Rows of K read, and as many of V: the exact widths of all visited tiles, block by block."""
        return sum(sweep.keys for sweep in self.sweeps)

    @property
    def scores(self) -> int:
        """Pairs of query position and key that are computed, visible or not, for one query head."""
        return sum(sweep.rows * sweep.keys for sweep in self.sweeps)

    @property
    def visible_pairs(self) -> int:
        """Pairs of query position and key that see each other: no tiling computes fewer `scores`."""
        return visible_pairs(self.t_q, self.kv_len, self.q_start, self.window)

    def kv_bytes_read(self, d: int, itemsize: int, d_v: int | None = None) -> int:
        """Bytes of K and V together, for rows of `d` and `d_v` (the same unless given) elements."""
        return self.kv_rows_read * (d + (d if d_v is None else d_v)) * itemsize

    def macs(self, group: int, d: int, d_v: int | None = None) -> int:
        """Both products for `group` query heads on one KV head, as issued: exact widths, no padding to the array."""
        return group * self.scores * (d + (d if d_v is None else d_v))


def visible_pairs(t_q: int, kv_len: int, q_start: int, window: int | None = None) -> int:
    """Pairs of query position q_start..q_start+t_q-1 and key 0..kv_len-1 that see each other; `d + d_v` MACs each.

    Raises ValueError as `Prefill`.
    """
    Prefill(t_q=t_q, kv_len=kv_len, q_start=q_start, q_block=1, tile=1, window=window)
    past = _keys_up_to(q_start + t_q, kv_len) - _keys_up_to(q_start, kv_len)
    if window is None:
        return past
    left = q_start - window
    return past - (_keys_up_to(left + t_q, kv_len) - _keys_up_to(left, kv_len))


def _keys_up_to(positions: int, kv_len: int) -> int:
    """Keys at or before each of the positions 0..positions-1, summed: min(1, kv_len) + min(2, kv_len) + ..."""
    rising = max(0, min(positions, kv_len))
    return rising * (rising + 1) // 2 + max(0, positions - rising) * kv_len
