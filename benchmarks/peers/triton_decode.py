"""The decode of row 4 on Triton's interpreter, run by a Python that has triton, not ours and not torch.

The same tiles and types: operands bfloat16, accumulation float32, P rounded. Triton's language has no asynchronous
copy: a tile's loads are blocking gathers. Its interpreter multiplies the bits of bfloat16 as integers (3.9.0), so
operands are widened first. One request a line on stdin, one answer a line. PYTEST_DONT_REWRITE
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # has to be said before triton is imported

import numpy as np
import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from asked import Answer, Array, attention_error, measured, serve  # type: ignore[import-not-found]

GROUP, D = 8, 128
SCALE = D**-0.5


@triton.jit  # type: ignore[untyped-decorator]
def decode(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, tiles: Any, scale: Any,
    GROUP: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
) -> None:  # fmt: skip
    rows = tl.arange(0, TILE)[:, None] * D + tl.arange(0, D)[None, :]
    heads = tl.arange(0, GROUP)[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + heads).to(tl.float32)
    m = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    o = tl.zeros((GROUP, D), tl.float32)
    for j in range(tiles):
        k = tl.load(k_ptr + j * TILE * D + rows).to(tl.float32)
        s = tl.dot(q, tl.trans(k)) * scale
        m_new = tl.maximum(m, tl.max(s, 1))
        p, corr = tl.exp(s - m_new[:, None]), tl.exp(m - m_new)
        v = tl.load(v_ptr + j * TILE * D + rows).to(tl.float32)
        total = total * corr + tl.sum(p, 1)
        o = o * corr[:, None] + tl.dot(p.to(tl.bfloat16).to(tl.float32), v)
        m = m_new
    tl.store(o_ptr + heads, (o / total[:, None]).to(tl.bfloat16))


@dataclass(frozen=True)
class HostTensor:
    """What the interpreter asks of a torch tensor on the CPU, where copies to the host and back are no copies."""

    bits: Array
    dtype: str = "torch.bfloat16"

    def data_ptr(self) -> int:
        return int(self.bits.ctypes.data)

    def size(self) -> tuple[int, ...]:
        return tuple(map(int, self.bits.shape))

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.bits.itemsize for step in self.bits.strides)

    def storage_offset(self) -> int:
        return 0

    def untyped_storage(self) -> "HostTensor":
        return self

    def cpu(self) -> "HostTensor":
        return self

    def new_empty(self, size: int, device: str) -> "HostTensor":
        return self

    def set_(self, *what: Any) -> None:
        """The tensor made by `new_empty` is this one already."""

    def copy_(self, source: "HostTensor") -> None:
        assert source is self


@cache
def problem(s: int) -> list[HostTensor]:
    rng = np.random.default_rng(s)
    return [HostTensor(bfloat16(rng.standard_normal((rows, D), np.float32))) for rows in (GROUP, s, s)]


def bfloat16(values: Array) -> Array:
    """The upper halves of finite float32 values, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def float32(tensor: HostTensor) -> Array:
    return (tensor.bits.astype(np.uint32) << 16).view(np.float32)


def answer(s: int, tile: int) -> Answer:
    """What one call takes, until its result is there; the inputs are there before."""
    inputs, o = problem(s), HostTensor(np.zeros((GROUP, D), np.uint16))
    _, took = measured(lambda: decode[(1,)](*inputs, o, s // tile, SCALE, GROUP, D, tile))
    return {**took, "error": attention_error(float32(o), *map(float32, inputs), SCALE)}


if __name__ == "__main__":
    serve(answer)
