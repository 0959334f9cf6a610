"""Device side of `chunk_gated_delta_rule`'s UB: the slices of the hand-carved buffer, in the order they are cut.

Only what the kernel itself has goes in (head sizes, vStep, its number of blocks), and a cursor adds up what is cut; the
host's formula (`tiling`) is not used, so that each checks the other. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FLOAT = 4
BLOCK = 32


class Slice(NamedTuple):
    """`elements` floats from byte `offset` on."""

    name: str
    elements: int
    offset: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.elements * FLOAT


class Carving(NamedTuple):
    """Slices of tmpBuff and the queue's bytes; of scores and state one lies on the other if `overlap`."""

    slices: tuple[Slice, ...]
    out_queue_bytes: int
    overlap: bool

    @property
    def tmp_bytes(self) -> int:
        """Where the last slice ends."""
        return max(each.end for each in self.slices)

    def slice(self, name: str) -> Slice:
        """The slice of that name."""
        return next(each for each in self.slices if each.name == name)


def carve(
    *, chunk: int, dk: int, dv: int, v_step: int, hv: int, blocks: int, more: Sequence[tuple[str, int]] = (),
    apart: bool = False,
) -> Carving:  # fmt: skip
    """What a block of `blocks` cuts for tiles of `v_step` columns (facts 8, the table from top to bottom).

    `apart`: the state is not laid on the scores. `more`: names and elements of slices that another version of the
    kernel has behind these.
    """
    align_k, stride_k = whole_blocks(dk, 2), whole_blocks(dk, 4)
    columns = whole_blocks(v_step, 4)
    overlap = not apart and (v_step >= dv or (dv > v_step and blocks > hv))
    cut: list[Slice] = []

    def take(name: str, elements: int, offset: int | None = None) -> None:
        start = cut[-1].end if cut else 0
        cut.append(Slice(name, elements, start if offset is None else offset))

    take("chunkKFp32", chunk * align_k)
    take("kCumdecayFp32", chunk * align_k)
    take("decayMaskFp32", chunk * chunk)
    take("chunkVFp32", chunk * columns)
    take("chunkScoresFp32", chunk * chunk)
    scores = cut[-1]
    take("stateInFp32", stride_k * columns, scores.offset if overlap else None)
    behind = max(scores.end, cut[-1].end)
    take("chunkAttnOutFp32", chunk * columns, behind)
    take("gCumsumFp32", chunk)
    take("deltaFp32", max(stride_k, chunk, columns))
    take("dotProductFp32", max(stride_k, chunk))
    take("expGCumFp32", chunk)
    for name, elements in more:
        take(name, elements)
    return Carving(tuple(cut), max(stride_k, chunk) * columns * 2, overlap)


def whole_blocks(elements: int, size: int) -> int:
    """Elements of `size` bytes, up to the next block of 32 bytes."""
    per_block = BLOCK // size
    return (elements + per_block - 1) // per_block * per_block
