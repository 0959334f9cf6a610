"""Each item is one block's, whatever the lengths; blocks get about as many tokens."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule, Item
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, Tiling, tiling, tiling_of_step


class Dealt(ChunkGatedDeltaRule):
    """A block that only looks which items are its own."""

    def __init__(self, plan: Tiling, block: int) -> None:
        self.tiling, self.B_, self.NV_ = plan, plan.shape.batch, plan.shape.hv
        self.blockIdx_, self.blockNum_ = block, plan.block_dim

    def LengthOf(self, batch: int) -> int:
        return self.tiling.shape.lengths[batch]


def items(plan: Tiling) -> list[list[Item]]:
    return [list(Dealt(plan, block).Items()) for block in range(plan.block_dim)]


lengths_of_sequences = st.lists(st.integers(0, 300), min_size=1, max_size=6).map(tuple)


@pytest.mark.adr("0311", "7.1")
@given(lengths_of_sequences, st.integers(1, 12), st.sampled_from([16, 48, 64]), st.integers(1, 9))
def test_every_tile_of_every_head_of_every_sequence_is_done_once(
    lengths: tuple[int, ...], hv: int, v_step: int, cores: int
) -> None:
    plan = tiling_of_step(Shape(lengths, 1, hv, 16, 100), v_step, cores=cores)
    done = Counter((each.batch, each.head, tile) for dealt in items(plan) for each in dealt for tile in each.tiles)

    assert done == Counter(
        (batch, head, tile) for batch in range(len(lengths)) for head in range(hv) for tile in range(plan.tiles)
    )
    starts = [sum(lengths[:batch]) for batch in range(len(lengths))]
    assert all(each.token == starts[each.batch] for dealt in items(plan) for each in dealt)
    assert all(each.length == lengths[each.batch] for dealt in items(plan) for each in dealt)


@pytest.mark.adr("0311", "7.2")
@given(st.integers(1, 2000), st.integers(1, 64))
def test_heads_of_one_length_are_dealt_out_evenly(length: int, hv: int) -> None:
    sizes = [len(dealt) for dealt in items(tiling(Shape((length,), 1, hv, 128, 128)))]

    assert max(sizes) == -(-hv // len(sizes))


def test_four_heads_of_128_by_128_leave_half_of_the_cores_idle() -> None:
    plan = tiling(Shape((64,) * 16, 1, 4, 128, 128))

    assert (plan.v_step, plan.block_dim) == (128, 4)
    assert [len(dealt) for dealt in items(plan)] == [16] * 4


@pytest.mark.adr("0311", "7.2")
def test_what_few_blocks_do_in_turn_is_what_many_do(delta: Any) -> None:
    inputs = delta.inputs((3, 5), hk=2, hv=4, dk=16, dv=16)
    many, few = (delta.call(inputs, spec={"cores": cores}) for cores in (8, 3))

    assert (len(many.run.log.programs), len(few.run.log.programs)) == (4, 3)
    assert many.out.tobytes() == few.out.tobytes()
    delta.check(inputs, few)


def test_the_runner_may_be_the_fixture(delta: Any, run_kernel: Any) -> None:
    inputs = delta.inputs((2,), dk=4, dv=4)

    delta.check(inputs, delta.call(inputs, run=run_kernel, schedule="jitter", seed=3))
