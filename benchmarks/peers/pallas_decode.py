"""The decode of row 4 on the Pallas TPU interpreter, with races or without; run by a Python that has jax.

As in our kernel: K and V stay in HBM, async copies fill two VMEM slots of each, the next tile's before the current one
is awaited; operands bfloat16, accumulation float32, P rounded. The running state is values, since every access to a
reference is a callback. One request a line on stdin, one answer a line. PYTEST_DONT_REWRITE
"""

from functools import cache, partial
from typing import Any

import jax  # type: ignore[import-not-found]
import jax.numpy as jnp  # type: ignore[import-not-found]
import numpy as np
from asked import Answer, attention_error, measured, serve  # type: ignore[import-not-found]
from jax.experimental import pallas as pl  # type: ignore[import-not-found]
from jax.experimental.pallas import tpu as pltpu  # type: ignore[import-not-found]

GROUP, D = 8, 128
SCALE = D**-0.5
SLOTS = 2


def decode(
    q_ref: Any, k_hbm: Any, v_hbm: Any, o_ref: Any, k_slots: Any, v_slots: Any, arrived: Any, *, tiles: int, tile: int
) -> None:
    caches = ((k_hbm, k_slots), (v_hbm, v_slots))

    def copy(which: int, j: Any) -> Any:
        hbm, slots = caches[which]
        slot = jax.lax.rem(j, SLOTS)
        return pltpu.make_async_copy(hbm.at[pl.ds(j * tile, tile)], slots.at[slot], arrived.at[which, slot])

    def fetch(j: Any) -> None:
        copy(0, j).start()
        copy(1, j).start()

    def fold(j: Any, state: Any) -> Any:
        m, total, o = state
        pl.when(j + 1 < tiles)(partial(fetch, j + 1))
        slot = jax.lax.rem(j, SLOTS)
        copy(0, j).wait()
        s = dot(q, k_slots[slot].T) * SCALE
        m_new = jnp.maximum(m, s.max(axis=1, keepdims=True))
        p, corr = jnp.exp(s - m_new), jnp.exp(m - m_new)
        copy(1, j).wait()
        return m_new, total * corr + p.sum(axis=1, keepdims=True), o * corr + dot(p.astype(q.dtype), v_slots[slot])

    fetch(0)
    q = q_ref[...]
    nothing = (jnp.full((GROUP, 1), -jnp.inf), jnp.zeros((GROUP, 1)), jnp.zeros((GROUP, D)))
    _, total, o = jax.lax.fori_loop(0, tiles, fold, nothing)
    o_ref[...] = (o / total).astype(o_ref.dtype)


dot = partial(jnp.dot, preferred_element_type=jnp.float32)


@cache
def problem(s: int) -> list[Any]:
    rng = np.random.default_rng(s)
    return [jnp.asarray(rng.standard_normal((rows, D), np.float32), jnp.bfloat16) for rows in (GROUP, s, s)]


@cache
def compiled(s: int, tile: int, races: bool) -> Any:
    """One callable a shape, so that only its first call traces."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    slots = pltpu.VMEM((SLOTS, tile, D), jnp.bfloat16)
    call = pl.pallas_call(
        partial(decode, tiles=s // tile, tile=tile),
        out_shape=jax.ShapeDtypeStruct((GROUP, D), jnp.bfloat16),
        in_specs=[in_vmem, in_hbm, in_hbm],
        out_specs=in_vmem,
        scratch_shapes=[slots, slots, pltpu.SemaphoreType.DMA((2, SLOTS))],
        interpret=pltpu.InterpretParams(detect_races=races),
    )
    return jax.jit(call)


def answer(s: int, tile: int, races: bool = True) -> Answer:
    """What one call takes, until its result is there; the inputs are there before."""
    inputs = jax.block_until_ready(problem(s))
    o, took = measured(lambda: np.asarray(jax.block_until_ready(compiled(s, tile, races)(*inputs))))
    return {**took, "error": attention_error(o, *map(np.asarray, inputs), SCALE)}


if __name__ == "__main__":
    serve(answer)
