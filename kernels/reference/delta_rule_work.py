"""What a vector-only kernel of the gated delta rule has to issue and move, in whole numbers. PYTEST_DONT_REWRITE

Exact, and from shapes alone: closed forms of the flow of `chunk_gated_delta_rule` on the Ascend 310P, where every
matrix product is one scalar coefficient and one vector instruction over a row (facts of the gated delta rule, sections
1 and 9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add

CHUNK = 64
"""Tokens of a full chunk: the kernel's masks and its caches have this many rows whatever the chunk's length."""

LANES = 64
"""float32 numbers that one repeat of a vector instruction takes, 256 bytes."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What was issued and moved: each a count, DMA in bytes. `scalar_gm` are GetValue and SetValue on global memory."""

    vector_instructions: int = 0
    repeats: int = 0
    flag_pairs: int = 0
    scalar_gm: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    dma_instructions: int = 0
    macs: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def __mul__(self, times: int) -> Work:
        return Work(**{name: value * times for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """One chunk of one value head: `length` tokens, the values in tiles of `v_step` columns, the last tile exact.

    `first` and `last` of its sequence: there the state comes from the operator's input, or goes to its output, number
    by number, otherwise row by row from and to float32 memory. The length is 1 to 64; dk, dv and v_step are multiples
    of 16, as only rows of whole 32-byte blocks take the DMA paths that are counted here. Raises ValueError otherwise.
    g is given; without it there are `length` scalar reads less. K comes by DMA whatever v_step is, as in the facts'
    table; a kernel that stages it in the 128 * v_step float16 of the values' buffer has to read a larger one by number.
    """

    length: int
    dk: int
    dv: int
    v_step: int
    first: bool = False
    last: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.length <= CHUNK:
            raise ValueError(f"a chunk has 1 to {CHUNK} tokens, got {self.length}: {self}")
        for name in ("dk", "dv", "v_step"):
            value = getattr(self, name)
            if value < 16 or value % 16:
                raise ValueError(f"{name} is {value}, counted are multiples of 16, whole blocks of float16: {self}")

    @property
    def tiles(self) -> tuple[int, ...]:
        """Columns of each tile of the values."""
        return tuple(min(self.v_step, self.dv - at) for at in range(0, self.dv, self.v_step))

    @property
    def caches_query(self) -> bool:
        """Whether Q * scale fits where the output will be; if not, S reads Q once more, number by number."""
        return self.length * self.dk <= CHUNK * self.v_step

    @property
    def work(self) -> Work:
        """Of the key side, once, and of the value side, tile by tile."""
        counted = Work(
            vector_instructions=self._key_instructions + sum(map(self._tile_instructions, self.tiles)),
            repeats=self._key_repeats + sum(map(self._tile_repeats, self.tiles)),
            flag_pairs=self.flag_pairs,
            scalar_gm=self._scalar_gm,
            macs=self.macs,
        )
        return counted + self._dma

    @property
    def flag_pairs(self) -> int:
        """Set and Wait between S and V: 3 L + 5 + n1 + 2 n2 [+ L] + tiles (L + 2 + 2 n2 + 3 L Dk [+ 1] [+ 1]).

        n1 = L (L - 1) / 2 and n2 = L (L + 1) / 2 pairs of tokens without and with the diagonal. One V_S for each dot
        product of K K^T (n1) and Q K^T (n2); one S_V for each coefficient of W = T (beta e^G K) (n2); L for beta, L for
        the rows of the substitution and its end, L for e^G, and 5 between the phases; L more for rows of Q without
        their cache. A tile has L for beta, n2 for T V, L Dk each for W S, Q S and the update of S, n2 for the sum
        over new values, 2 between phases, and one more where S itself fills the state (first) or empties it (last).
        """
        length, n1, n2 = self.length, self._below, self._lower
        keys = 3 * length + 5 + n1 + 2 * n2 + (0 if self.caches_query else length)
        tile = length + 2 + 2 * n2 + 3 * length * self.dk + self.first + self.last
        return keys + len(self.tiles) * tile

    @property
    def macs(self) -> int:
        """Of both products of scores, the substitution, W, T V, the scores' sum, and the three with the state."""
        scores = (self._below + 2 * self._lower) * self.dk
        substitution = self.length * (self.length - 1) * (self.length - 2) // 6
        return scores + substitution + 2 * self._lower * self.dv + 3 * self.length * self.dk * self.dv

    @property
    def _below(self) -> int:
        """n1: pairs of tokens below the diagonal."""
        return self.length * (self.length - 1) // 2

    @property
    def _lower(self) -> int:
        """n2: with the diagonal."""
        return self.length * (self.length + 1) // 2

    @property
    def _substitutions(self) -> int:
        """Row prefixes that are added to later rows."""
        return (self.length - 1) * (self.length - 2) // 2

    @property
    def _key_instructions(self) -> int:
        length = self.length
        staging = 1 + length + 2 + 3 * length + 2 * self.caches_query
        dots = (self._below + self._lower) * (1 + (self.dk >= LANES))
        return staging + dots + self._substitutions + 2 * length + self._lower

    @property
    def _key_repeats(self) -> int:
        length, row, block = self.length, _repeats(self.dk), _repeats(self.length * self.dk)
        staging = block + length * row + 2 + 3 * length + 2 * block * self.caches_query
        dots = (self._below + self._lower) * (row + self.dk // LANES)
        return staging + dots + self._substitutions + (2 * length + self._lower) * row

    def _tile_instructions(self, _: int) -> int:
        length, dk = self.length, self.dk
        values = 1 + 2 * length + 1 + self._lower
        state = 1 + length * (dk + 3) + length * (dk + 1)
        return values + state + self._lower + 2 + dk + length * dk + 2 * self.last

    def _tile_repeats(self, columns: int) -> int:
        """Rows have the tile's full width v_step, but for the values themselves."""
        length, dk, row, block = self.length, self.dk, _repeats(self.v_step), _repeats(self.length * self.v_step)
        values = 2 * block + 2 * length * _repeats(columns) + self._lower * row
        state = (1 + 2 * self.last) * _repeats(dk * self.v_step) + (length * (2 * dk + 4) + dk + length * dk) * row
        return values + state + self._lower * row + 2 * block

    @property
    def _scalar_gm(self) -> int:
        """g and beta; Q without its cache; a tile's beta, Q and K; the state where S moves it."""
        query = 0 if self.caches_query else self.length * self.dk
        tile = self.length + 2 * self.length * self.dk
        return 2 * self.length + query + len(self.tiles) * tile + (self.first + self.last) * self.dk * self.dv

    @property
    def _dma(self) -> Work:
        """K, Q and the tiles of V and O as one instruction each, the state as one a row."""
        keys, tiles = 1 + self.caches_query, len(self.tiles)
        values, state = 2 * self.length * self.dv, 4 * self.dk * self.dv
        moves = (not self.first) + (not self.last)
        return Work(
            bytes_in=keys * 2 * self.length * self.dk + values + state * (not self.first),
            bytes_out=values + state * (not self.last),
            dma_instructions=keys + tiles * (2 + moves * self.dk),
        )


def _repeats(elements: int) -> int:
    return -(-elements // LANES)


def operator_work(
    lengths: Iterable[int], heads: int, dims: tuple[int, int], v_step: int, *, split_tiles: bool = False
) -> Work:
    """All chunks of all sequences and `heads` value heads together, dims (Dk, Dv); an empty sequence costs nothing.

    `split_tiles`: each tile of the values is a work item of its own, with the key side done again for each, as the
    operator does when there are more cores than heads. Raises ValueError as `Chunk`, and for a negative length.
    """
    dk, dv = dims
    whole = Chunk(length=1, dk=dk, dv=dv, v_step=v_step)
    widths = whole.tiles if split_tiles else (dv,)
    works = (
        chunk.work
        for length in lengths
        for columns in widths
        for chunk in sequence_chunks(length, (dk, columns), v_step)
    )
    return reduce(add, works, Work()) * heads


def sequence_chunks(length: int, dims: tuple[int, int], v_step: int) -> tuple[Chunk, ...]:
    """The chunks of one sequence of `length` tokens and one value head, in order: full ones and the rest."""
    if length < 0:
        raise ValueError(f"a sequence has {length} tokens, the least is 0: pass lengths, not their ends")
    starts = range(0, length, CHUNK)
    return tuple(
        Chunk(
            length=min(CHUNK, length - at),
            dk=dims[0],
            dv=dims[1],
            v_step=v_step,
            first=at == 0,
            last=at == starts[-1],
        )
        for at in starts
    )
