"""The work that is measured: decode launches of any size, and a chain of MATH ops. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.peers.asked import attention_error
from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.attention_mesh_mlo import attention_mesh_mlo, chain
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import Mesh, placement
from pytest_kernbench.kernels.reference.attention import attention, random_attention
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run

Array = np.ndarray[Any, Any]
GROUP, D, SCALE = 8, 128, 128**-0.5
MESH: Mesh = (2, 4)


@dataclass(frozen=True)
class Decode:
    """`cubes` KV heads, one a cube, each with 8 query heads; `s` tokens of 128 elements over `n` PEs, which divide `s`.

    With `data` (one cube, one PE) the run computes; without, it is structure only.
    """

    s: int
    tile: int
    n: int = 1
    cubes: int = 1
    data: bool = False

    def __post_init__(self) -> None:
        if self.s % self.n or (self.data and (self.n, self.cubes) != (1, 1)):
            raise ValueError(f"n divides s, and data needs one PE and one cube: {self}")

    @cached_property
    def inputs(self) -> tuple[Array, Array, Array]:
        """q [group, d], k and v [s, d], standard normal bfloat16."""
        rng = np.random.default_rng(self.s)
        q, k, v = (rng.standard_normal((rows, D), np.float32) for rows in (GROUP, self.s, self.s))
        return q.astype(ml_dtypes.bfloat16), k.astype(ml_dtypes.bfloat16), v.astype(ml_dtypes.bfloat16)

    def tensors(self, chip: AhbmChip, o_place: str | int) -> tuple[Any, ...]:
        q, k, v = self.inputs if self.data else (None, None, None)
        heads, rows, cache = self.cubes * GROUP, (self.s // self.n, D), ("token", "d")
        return (
            chip.tensor("Q", (heads, D), "bfloat16", q, "replicate", axes=("row", "d")),
            chip.tensor("K", rows, "bfloat16", None if k is None else k[None], axes=cache),
            chip.tensor("V", rows, "bfloat16", None if v is None else v[None], axes=cache),
            chip.tensor("O", (GROUP, D), "bfloat16", place=o_place),
        )

    def run(self, *, check: bool = True, spec: AhbmSpec | None = None) -> Run:
        """A new chip, its tensors and one launch of the decode kernel; a finding is an error."""
        chip = AhbmChip(spec)
        return self._launch(chip, gqa_decode, self.n - 1, placement(self.n, MESH), check)

    def run_baseline(self, *, check: bool = True, spec: AhbmSpec | None = None) -> Run:
        """The same with the kernel that ADR-0060 replaces, which leaves O in every PE; heads share keys here too.

        So the ratio is what composites, lazy loads and the tree give, without the reuse of keys (A.1).
        """
        folded = partial(attention_mesh_mlo, heads_together=GROUP)
        return self._launch(AhbmChip(spec), folded, "local", chain(self.n, MESH), check)

    def _launch(
        self, chip: AhbmChip, kernel: Callable[..., None], o_place: str | int, pes: tuple[int, ...], check: bool
    ) -> Run:
        return chip.run(
            kernel, *self.tensors(chip, o_place), self.s, 0, self.n, group=GROUP, tile=self.tile, scale=SCALE,
            mesh=MESH, grid=(self.n, self.cubes), placement=pes, check=check,
        )  # fmt: skip

    def error(self, o: Array) -> float:
        """The largest distance of `o` from attention in float64 on the same inputs."""
        return attention_error(o, *self.inputs, SCALE)


@dataclass(frozen=True)
class Prefill:
    """One KV head's `t_q` last queries against `s` keys, on one PE, or on a ring of `n` with striped shards.

    Blocks and tiles suit each: 32 positions by 128 keys on one PE, 16 by the 64 keys of a slot on a ring.
    """

    s: int
    t_q: int
    n: int = 1
    data: bool = False

    @cached_property
    def inputs(self) -> driver.Problem:
        if not self.data:
            return driver.Problem(kv_len=self.s, t_q=self.t_q)
        q, k, v = random_attention(self.s, GROUP, 1, self.s, D, t_q=self.t_q)
        return driver.Problem(kv_len=self.s, t_q=self.t_q, q=q, k=k, v=v)

    def run(self, *, check: bool = True) -> Run:
        """A new chip, its tensors and one launch."""
        chip = AhbmChip(ports=driver.ring_ports(self.n, 1)) if self.n > 1 else AhbmChip()
        launch = (
            driver.ring(chip, self.inputs, self.n, tile=64, q_block=16, sharding="striped")
            if self.n > 1
            else driver.prefill(chip, [self.inputs], tile=128, q_block=32)
        )
        run: Run = launch.run(chip, announce=lambda budget: None, check=check)
        return run

    def error(self, o: Array) -> float:
        """The largest distance of O [group, t_q, d] from attention in float64 on the same inputs."""
        each = self.inputs
        assert each.q is not None and each.k is not None and each.v is not None
        return float(np.abs(o.astype(np.float64) - attention(each.q, each.k, each.v, causal=True)[0]).max())


def tiled_decode(case: Decode) -> Array:
    """The tiles of the decode kernel in plain numpy: bfloat16 in, float32 accumulation, P rounded before P.V."""
    q, k, v = case.inputs
    query = q.astype(np.float32)
    m = np.full((GROUP, 1), -np.inf, np.float32)
    total, o = np.zeros((GROUP, 1), np.float32), np.zeros((GROUP, D), np.float32)
    for first in range(0, case.s, case.tile):
        k_tile, v_tile = (cache[first : first + case.tile].astype(np.float32) for cache in (k, v))
        s = query @ k_tile.T * np.float32(SCALE)
        m_new = np.maximum(m, s.max(axis=1, keepdims=True))
        p, corr = np.exp(s - m_new), np.exp(m - m_new)
        total = total * corr + p.sum(axis=1, keepdims=True)
        o = o * corr + p.astype(ml_dtypes.bfloat16).astype(np.float32) @ v_tile
        m = m_new
    result: Array = (o / total).astype(ml_dtypes.bfloat16)
    return result


CHAIN, LINKS = 16, 125  # ops a chain, chains a PE
PES = 8


def math_chains(*, tl: Any) -> None:
    """Chains of dependent MATH ops, each in a scope that begins where the last one is waited for."""
    a, b, out = (tl.zeros((8, 128)) for _ in range(3))
    for _ in range(LINKS):
        with tl.scratch_scope():
            y = a
            for _ in range(CHAIN - 1):
                y = y + b
            tl.wait(tl.assign(out, y))


def run_math_chains(*, check: bool) -> Run:
    return AhbmChip().run(math_chains, grid=PES, check=check)
