"""A SwiGLU feed-forward layer with its hidden units split over a ring of PEs (ADR-7001)."""

from __future__ import annotations

from typing import Any

from kernels.all_reduce import all_reduce


def swiglu(
    x: Any, gate: Any, up: Any, down: Any, y: Any, tokens: int, width: int, hidden: int, *, tile: int, tl: Any
) -> None:
    """y = (silu(x gate^T) * (x up^T)) down, bfloat16 in and out, summed over all ranks in float32.

    x [tokens, width] is the same everywhere; gate, up and down are [hidden, width], this rank's hidden units. `tile`
    hidden units are done at a time, and the products of the next tile are said before this one's are waited for.
    """
    rows = tl.load(x, (tokens, width))
    total = tl.zeros((tokens, width))
    products = [[tl.empty((tokens, tile), "float32") for _ in range(2)] for _ in range(2)]

    def ask(first: int) -> list[Any]:
        """The two products of a tile; two tiles have buffers of their own, the third takes those of the first."""
        panels = [tl.ref(each + first * width, (tile, width)) for each in (gate, up)]
        with tl.region("hidden"):
            pairs = zip(panels, products[first // tile % 2], strict=True)
            return [tl.composite("gemm", rows, panel, trans_b=True, out=out) for panel, out in pairs]

    asked = ask(0)
    for first in range(0, hidden, tile):
        ready, asked = asked, ask(first + tile) if first + tile < hidden else []
        with tl.scratch_scope():
            tl.wait(*ready)
            gated = tl.cast(silu(ready[0], tl) * ready[1], x.dtype)
            with tl.region("out"):
                panel = tl.ref(down + first * width, (tile, width))
                tl.wait(tl.composite("gemm", gated, panel, trans_b=False, epilogue=(("add", total),), out=total))
    all_reduce(total, tl=tl)
    tl.wait(tl.store(y, total))


def silu(h: Any, tl: Any) -> Any:
    """h / (1 + exp(-h)), written with tanh, which cannot overflow."""
    half = h * 0.5
    return half * tl.tanh(half) + half
