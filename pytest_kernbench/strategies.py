"""Hypothesis strategies for kernels' tests: shapes around tile boundaries, meshes, schedules, batches, inputs of rules.

Whatever shrinks does so to the smallest case that a person would try first. Needs the extra `hypothesis`, which nothing
else of the package imports. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pytest_kernbench.strategies needs hypothesis: python -m pip install 'pytest-kernbench[hypothesis]'"
    ) from error

__all__ = [
    "Attention", "DeltaRule", "Mesh", "Schedule", "attention", "delta_rule", "lengths_around", "meshes", "orders",
    "placements", "schedules", "varlen",
]  # fmt: skip

Array = npt.NDArray[Any]
PLACEMENTS = ("contiguous", "striped", "zigzag")
MEAN_GATES = (-0.016, 0.0, -5e-4, -0.48, -48.0)


class Schedule(NamedTuple):
    """`run_kernel(..., **schedule._asdict())`."""

    schedule: str
    seed: int


class Mesh(NamedTuple):
    """PEs of a cube: `AhbmSpec(mesh_rows=rows, mesh_cols=cols)`."""

    rows: int
    cols: int

    @property
    def size(self) -> int:
        """PEs."""
        return self.rows * self.cols


class Attention(NamedTuple):
    """Sizes of one attention: `kv_len` keys, `t_q` queries, `heads` KV heads of `group` query heads, widths d and d_v.

    `q_start`: the position of the first query, the last `t_q` of the sequence if it is causal and nothing else is said.
    """

    kv_len: int
    t_q: int
    heads: int
    group: int
    d: int
    d_v: int
    q_start: int


class DeltaRule(NamedTuple):
    """Inputs of the gated delta rule in the operator's order, float16 but for `g` in float32 or None."""

    query: Array
    key: Array
    value: Array
    beta: Array
    initial_state: Array
    lengths: tuple[int, ...]
    g: Array | None


def schedules(*, orders: int = 24, jitters: int = 1000) -> st.SearchStrategy[Schedule]:
    """Every schedule a device has: the model's, jitter of some seed, `late` in one of `orders` orders of pipes."""
    late = st.builds(Schedule, st.just("late"), st.integers(0, orders - 1))
    jitter = st.builds(Schedule, st.just("jitter"), st.integers(0, jitters - 1))
    return st.just(Schedule("model", 0)) | late | jitter


def lengths_around(tile: int, most: int, *, least: int = 1) -> st.SearchStrategy[int]:
    """Lengths from `least` to `most`, every other one at a multiple of `tile` or one beside it.

    Raises ValueError if no length lies there.
    """
    if tile < 1 or not 0 <= least <= most:
        raise ValueError(
            f"tile is {tile}, lengths are {least}..{most}: a tile has 1 or more, and least is not above most"
        )
    # One integer under both kinds: what is too long at an edge is too long without it, so that it shrinks on.
    beside = st.sampled_from((None, None, None, -1, 0, 1))
    return st.builds(lambda length, by: _beside(length, by, tile, least, most), st.integers(least, most), beside)


def _beside(length: int, by: int | None, tile: int, least: int, most: int) -> int:
    """The multiple of `tile` below, and `by` more, as long as that lies within; or the length itself."""
    edge = length if by is None else length // tile * tile + by
    return min(max(edge, least), most)


def varlen(
    *, most: int = 200, sequences: int = 5, tile: int = 64, empty: bool = True
) -> st.SearchStrategy[tuple[int, ...]]:
    """Lengths of a batch of 1 to `sequences`: tails and whole tiles, and sequences without tokens if `empty`."""
    one = lengths_around(tile, most, least=0 if empty else 1)
    return st.lists(one, min_size=1, max_size=sequences).map(tuple)


def meshes(*, most: int = 8) -> st.SearchStrategy[Mesh]:
    """Meshes of up to `most` PEs, rows and lines too."""
    sizes = [Mesh(rows, cols) for rows in range(1, most + 1) for cols in range(1, most // rows + 1)]
    return st.sampled_from(sorted(sizes, key=lambda mesh: (mesh.size, mesh.rows)))


def orders(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Which PE has which rank: the natural order first."""
    return st.permutations(range(size)).map(tuple)


def placements() -> st.SearchStrategy[str]:
    """How tokens are dealt to ranks."""
    return st.sampled_from(PLACEMENTS)


@st.composite
def attention(
    draw: st.DrawFn, *, tile: int = 64, most: int = 200, queries: int = 1, heads: int = 3,
    groups: Sequence[int] = (1, 2, 4, 8), widths: Sequence[int] = (64, 40, 128),
) -> Attention:  # fmt: skip
    """Sizes of an attention with up to `queries` queries and `most` keys, ragged around tiles of `tile` keys.

    KV heads and the group differ, since equal ones hide a mistaken head map, unless both are 1.
    """
    kv_len = draw(lengths_around(tile, most))
    t_q = draw(st.integers(1, min(queries, kv_len)))
    group = draw(st.sampled_from(groups))
    kv_heads = draw(st.integers(1, heads).filter(lambda number: number != group or number == 1))
    d, d_v = draw(st.sampled_from(widths)), draw(st.sampled_from(widths))
    return Attention(kv_len, t_q, kv_heads, group, d, d_v, kv_len - t_q)


@st.composite
def delta_rule(
    draw: st.DrawFn, *, lengths: st.SearchStrategy[tuple[int, ...]] | None = None, heads: int = 2, ratio: int = 3,
    widths: Sequence[int] = (16, 4, 12), gates: Sequence[float | None] = (*MEAN_GATES, None),
) -> DeltaRule:  # fmt: skip
    """Inputs of the gated delta rule that hide no fault: what a fault would have to be to pass is left out.

    Keys are normalised (others explode), queries are other vectors than keys, beta lies in (0, 1), states are random,
    gates lie between half and three halves of their mean so that float32 sums of them are exact enough.
    `ratio`: value heads a key head, at most; `gates`: means of g, None for none.
    """
    batch = draw(lengths if lengths is not None else varlen(most=20, sequences=3, tile=8))
    hk = draw(st.integers(1, heads))
    hv = hk * draw(st.integers(1, ratio))
    dk, dv = draw(st.sampled_from(widths)), draw(st.sampled_from(widths))
    mean = draw(st.sampled_from(gates))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tokens = sum(batch)
    query, key = (_normalised(random.standard_normal((tokens, hk, dk))) for _ in range(2))
    g = None if mean is None else (mean * random.uniform(0.5, 1.5, (tokens, hv))).astype(np.float32)
    return DeltaRule(
        query, key, random.standard_normal((tokens, hv, dv)).astype(np.float16),
        random.uniform(0.05, 0.95, (tokens, hv)).astype(np.float16),
        random.standard_normal((len(batch), hv, dv, dk)).astype(np.float16), batch, g,
    )  # fmt: skip


def _normalised(vectors: Array) -> Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: Array = (vectors / lengths).astype(np.float16)
    return result
