"""Ring prefill gives the attention of the float64 oracle: every sharding, ring, shape, layout, pipeline and mesh.

Whatever lies behind a rank's own rows is NaN, in HBM as in scratch and slots: a row too many shows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.kernels.ahbm.gqa_ring import slots_needed
from pytest_kernbench.kernels.ahbm.positions import ring_order, shards
from pytest_kernbench.simulator.errors import KernelError

SHARDINGS = ["contiguous", "striped", "zigzag"]
SCHEDULES = ["model", "jitter", "late"]
SMALL = {"group": 2, "d": 32, "d_v": 32}
SHAPES = {
    "square": {"kv_len": 48, "t_q": 48},
    "ragged": {"kv_len": 53, "t_q": 53},
    "fewer keys than ranks": {"kv_len": 3, "t_q": 3},
    "one token": {"kv_len": 1, "t_q": 1},
    "chunk": {"kv_len": 67, "t_q": 19},
    "one query": {"kv_len": 41, "t_q": 1},
}


@pytest.fixture
def right(ring, case):
    """`right({sizes}, n, ...)` runs a case with data, holds it to the oracle, and returns the outcome."""

    def check(sizes, n, *, seed=0, **options):
        each = case(**{**SMALL, **sizes}, seed=seed)
        outcome = ring(each, n, **{"tile": 8, "q_block": 6, **options})
        each.check(outcome.outputs[0])
        return outcome

    return check


@pytest.mark.adr("0060", "5.5", "10", "11.1")
@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_every_sharding_on_every_ring(right, sharding, n, sizes):
    """Tiles of 8 and blocks of 6 divide hardly any shard here."""
    right(sizes, n, sharding=sharding)


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize(("tile", "q_block"), [(1, 1), (5, 7), (64, 64), (16, 3)])
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_any_tile_and_any_block_of_queries(right, sharding, tile, q_block):
    right({"kv_len": 29, "t_q": 29}, 3, sharding=sharding, tile=tile, q_block=q_block)


@pytest.mark.adr("0060", "5.2", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("layout", ["head", "token"])
def test_both_layouts_of_q_and_o(right, sharding, layout):
    right({"kv_len": 31, "t_q": 23}, 4, sharding=sharding, layout=layout)


@pytest.mark.adr("0060", "10", "11.1")
@pytest.mark.parametrize(
    "sizes",
    [{"d": 64, "d_v": 24}, {"d": 16, "d_v": 80}, {"heads": 3, "group": 2}, {"heads": 2, "group": 1}, {"group": 16}],
    ids=["d_v below d", "d_v above d", "three heads", "no groups", "group of 16"],
)
def test_head_sizes_groups_and_heads(right, sizes):
    right({"kv_len": 37, "t_q": 37, **sizes}, 4)


@pytest.mark.adr("0060", "0.5.2", "11.1")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_every_storage_dtype(right, sharding, dtype):
    outcome = right({"kv_len": 37, "t_q": 37, "dtype": dtype}, 4, sharding=sharding)

    assert outcome.outputs[0].dtype == dtype


@pytest.mark.adr("0060", "5.4", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_queries_that_begin_anywhere(right, sharding):
    """In the middle of the keys, and behind all of them; a chunk is never masked from its own corner (R42, B-46)."""
    right({"kv_len": 50, "t_q": 20, "q_start": 13}, 4, sharding=sharding)
    right({"kv_len": 20, "t_q": 10, "q_start": 33}, 4, sharding=sharding)


@pytest.mark.adr("0060", "5.4", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_queries_that_see_no_key_give_zeros_and_nobody_moves_a_key(right, sharding):
    """All keys have left the window of the first query; the sequence goes on behind what is cached."""
    outcome = right({"kv_len": 20, "t_q": 10, "q_start": 40, "window": 7}, 4, sharding=sharding)

    assert (outcome.outputs[0].astype(float) == 0).all()
    assert not len(outcome.log.where(name=("send", "recv_async", "composite")))
    assert not len(outcome.log.where(reads=("K", "V")))


@pytest.mark.adr("0060", "5.4", "5.5", "11.1")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("window", [1, 9, 30])
def test_a_window_over_the_ring(right, sharding, window):
    right({"kv_len": 61, "t_q": 61, "window": window}, 5, sharding=sharding)


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_softcap_and_sinks_count_once_though_keys_come_in_many_pieces(right, ring, case, sharding):
    right({"kv_len": 45, "t_q": 45, "softcap": 3.0}, 4, sharding=sharding)
    with_sinks = case(kv_len=45, t_q=45, sinks=np.array([0.5, 2.0]), **SMALL)
    ring_of_four = ring(with_sinks, 4, tile=8, q_block=6, sharding=sharding)

    with_sinks.check(ring_of_four.outputs[0])


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_each_rank_has_the_log_sum_exp_of_its_own_queries(right, case, sharding):
    n, each = 4, case(kv_len=37, t_q=37, **SMALL)
    run = right({"kv_len": 37, "t_q": 37}, n, sharding=sharding, lse=True).run

    for rank, shard in enumerate(shards(37, n, sharding)):
        own = [position for span in shard for position in span.positions]
        np.testing.assert_allclose(run.array("lse")[rank, :, : len(own)], each.answer[1][:, own], atol=2e-2)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.ahbm(ipcq_slots=6)
def test_the_next_scores_beside_this_softmax_with_six_slots(right, sharding):
    depth = Depth(ahead=1, in_flight=1)
    assert slots_needed(depth) == 6

    for n in (1, 2, 5, 8):
        right({"kv_len": 61, "t_q": 61}, n, sharding=sharding, depth=depth)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.ahbm(ipcq_slots=8)
def test_the_product_before_still_in_flight_with_eight_slots(right, sharding):
    depth = Depth(ahead=1, in_flight=2)
    assert slots_needed(depth) == 8

    for n in (2, 5, 8):
        right({"kv_len": 61, "t_q": 61}, n, sharding=sharding, depth=depth)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.ahbm(ipcq_slot_bytes=65536, ipcq_slots=4)
def test_larger_slots_carry_larger_pieces(right):
    """64 keys of 128 elements fill the usual slot; here 256 do, half a rank's keys."""
    run = right({"kv_len": 1024, "t_q": 16, "d": 128, "d_v": 128}, 2, tile=256, q_block=16).run

    assert set(run.log.where(name="send").bytes) == {65536}


@pytest.mark.adr("0060", "5.5")
def test_a_piece_larger_than_a_slot_is_refused_with_both_numbers(right):
    with pytest.raises(KernelError, match=r"16640 bytes, a slot holds 16384"):
        right({"kv_len": 260, "t_q": 2, "d": 128, "d_v": 128}, 2, tile=65, sharding="contiguous")


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("wrong", [{"q_block": 0}, {"q_block": -3}, {"tile": 0}], ids=str)
def test_blocks_and_tiles_of_nothing_are_refused(right, wrong):
    with pytest.raises(
        ValueError, match=rf"{'q_block is' if 'q_block' in wrong else 'width is'} {min(wrong.values())}"
    ):
        right({"kv_len": 16, "t_q": 16}, 2, **wrong)


@pytest.mark.adr("0060", "5.5", "11.3")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize(
    "mesh",
    [
        pytest.param((4, 2), marks=pytest.mark.ahbm(mesh_rows=4, mesh_cols=2)),
        pytest.param((1, 4), marks=pytest.mark.ahbm(mesh_rows=1, mesh_cols=4)),
        pytest.param((3, 3), marks=pytest.mark.ahbm(mesh_rows=3, mesh_cols=3)),
    ],
    ids=["4x2", "1x4", "3x3"],
)
def test_rings_on_other_meshes(right, mesh, sharding):
    n = mesh[0] * mesh[1]
    run = right({"kv_len": 43, "t_q": 43}, n, sharding=sharding).run

    assert tuple(run.log.pes) == ring_order(n, mesh)


@pytest.mark.adr("0060", "10", "11.1")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_scores_that_a_finite_mask_would_win_against(ring, case, sharding):
    """Logits near -18000: what is masked has to stay below them (R20)."""
    each = case(kv_len=41, t_q=41, **SMALL)
    q, k = each.problem.q, each.problem.k
    low = replace(each.problem, q=q * 0 + 56, k=(k.astype(np.float32) / 8 - 56).astype(k.dtype))
    each = type(each)(low)
    outcome = ring(each, 4, tile=8, q_block=6, sharding=sharding)

    each.check(outcome.outputs[0])
    assert np.abs(each.answer[0]).max() > 0.1


@pytest.mark.adr("0060", "5.5", "10", "11.1")
def test_eight_pes_at_llama_dimensions(ring, case):
    """All 2048 positions of one KV head with its eight query heads."""
    each = case(kv_len=2048, t_q=2048)
    outcome = ring(each, 8, tile=64, q_block=32)

    each.check(outcome.outputs[0])


@pytest.mark.adr("0060", "10", "11.1")
@pytest.mark.xfail(raises=KernelError, strict=True, reason="P of one key loses the name of that axis to a reshape")
def test_one_key_on_the_boundary_of_queries_of_one_head(right):
    """Three queries of one head on a piece of one key need a mask; its reshape calls an axis of size 1 "1"."""
    right({"kv_len": 3, "t_q": 3, "group": 1}, 1, tile=1, sharding="contiguous")


@st.composite
def problems(draw):
    """Sizes of a case and of a ring: shards that are empty, ragged, or cut across a block; queries anywhere."""
    kv_len = draw(st.integers(1, 70))
    t_q = draw(st.integers(1, 40))
    sizes = {
        "kv_len": kv_len,
        "t_q": t_q,
        "q_start": draw(st.integers(0, kv_len + 5)),
        "group": draw(st.sampled_from([2, 3, 8])),  # 1: see the test above
        "heads": draw(st.integers(1, 2)),
        "d": draw(st.sampled_from([16, 40, 64])),
        "d_v": draw(st.sampled_from([16, 24, 64])),
        "dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        "window": draw(st.none() | st.integers(1, 40)),
        "softcap": draw(st.none() | st.sampled_from([2.0, 30.0])),
    }
    launch = {
        "n": draw(st.sampled_from([1, 2, 3, 4, 5, 8])),
        "tile": draw(st.integers(3, 40)),
        "q_block": draw(st.integers(1, 20)),
        "sharding": draw(st.sampled_from(SHARDINGS)),
        "layout": draw(st.sampled_from(["head", "token"])),
    }
    return sizes, launch


@pytest.mark.adr("0060", "5.5", "10", "11.1", "11.8")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(), schedule=st.sampled_from(SCHEDULES), seed=st.integers(0, 99))
def test_any_problem_on_any_ring_under_every_schedule(right, problem, schedule, seed):
    sizes, launch = problem

    right(sizes, seed=seed, run={"schedule": schedule, "seed": seed}, **launch)
