"""Prefill gives the attention of the float64 oracle: any query block, any tile, any chunk, any heads, either layout."""

from __future__ import annotations

import numpy as np
import pytest

SQUARE_AND_RAGGED = [(1, 1), (64, 64), (128, 128), (113, 203), (128, 217), (217, 217), (108, 256)]
DIMS = {"d": 64, "d_v": 64, "group": 2}


@pytest.mark.adr("0060", "5.4", "10", "11.1")
@pytest.mark.parametrize(("t_q", "kv_len"), SQUARE_AND_RAGGED)
def test_square_and_ragged_lengths(prefill, case, t_q, kv_len):
    """Queries are the last tokens: the causal mask is bottom-right, not the lower triangle of the rectangle."""
    each = case(t_q=t_q, kv_len=kv_len, **DIMS)

    each.check(prefill([each], tile=48, q_block=32).outputs[0])


@pytest.mark.adr("0060", "5.4", "11.1")
@pytest.mark.parametrize("t_q", [1, 2, 3, 5, 16, 17])
def test_any_number_of_queries_from_one_upward(prefill, case, t_q):
    each = case(t_q=t_q, kv_len=70, **DIMS)

    each.check(prefill([each], tile=32, q_block=4).outputs[0])


@pytest.mark.adr("0060", "5.4", "10")
@pytest.mark.parametrize("q_start", [0, 1, 31, 32, 33, 60, 80], ids=lambda first: f"from {first}")
def test_a_chunk_may_begin_anywhere(prefill, case, q_start):
    """From 80 on every key is past: the last keys are still all seen, though no query stands among them."""
    each = case(t_q=20, kv_len=80, q_start=q_start, **DIMS)

    each.check(prefill([each], tile=32, q_block=8).outputs[0])


@pytest.mark.adr("0060", "5.4")
def test_chunk_after_chunk_is_the_prefill_in_one(prefill, case):
    """The offset is counted: three chunks of one sequence, each against what is cached by then, give its rows."""
    whole = case(t_q=96, kv_len=96, dtype="float32", **DIMS)
    o = prefill([whole], tile=32, q_block=16).outputs[0]

    for first in range(0, 96, 32):
        chunk = whole.part(first, 32)
        np.testing.assert_array_equal(prefill([chunk], tile=32, q_block=16).outputs[0], o[:, first : first + 32])


@pytest.mark.adr("0060", "5.4")
@pytest.mark.parametrize(("t_q", "kv_len", "q_start"), [(9, 0, None), (217, 128, None), (24, 40, -10), (8, 40, -20)])
def test_rows_that_see_no_key_are_zero(prefill, case, t_q, kv_len, q_start):
    """Blocks wholly before the sequence, and the rows of a mixed block in whose first tile nothing is seen (R18)."""
    each = case(t_q=t_q, kv_len=kv_len, q_start=q_start, **DIMS)
    o = prefill([each], tile=32, q_block=16).outputs[0]

    each.check(o)
    blind = -each.problem.first
    assert blind > 0 and (o[:, :blind].astype(float) == 0).all() and np.isfinite(o.astype(float)).all()


@pytest.mark.adr("0060", "5.4", "B.5", "11.1")
@pytest.mark.parametrize("q_block", [1, 7, 32, 100, 1000])
def test_a_query_block_need_not_divide_the_queries(prefill, case, q_block):
    each = case(t_q=100, kv_len=130, **DIMS)

    each.check(prefill([each], tile=64, q_block=q_block).outputs[0])


@pytest.mark.adr("0060", "B.5", "5.4", "11.1")
@pytest.mark.parametrize("tile", [5, 37, 64, 96, 100, 1000])
def test_a_tile_need_not_divide_the_keys(prefill, case, tile):
    """64 equals d, where a K tile the wrong way round would fit; the others do not."""
    each = case(t_q=60, kv_len=130, **DIMS)

    each.check(prefill([each], tile=tile, q_block=24).outputs[0])


@pytest.mark.adr("0060", "B.5", "5.4", "3")
@pytest.mark.parametrize("layout", ["head", "token"])
@pytest.mark.parametrize("kv_len", [1, 33])
def test_a_tile_of_one_key_may_need_a_mask(prefill, split, case, kv_len, layout):
    """Its scores are seen by head and position and as a matrix again, and are [row, token] still for P.V."""
    each = case(t_q=3, kv_len=kv_len, **DIMS)

    for outcome in (prefill([each], tile=32, layout=layout), split([each], 1, tile=32, layout=layout)):
        each.check(outcome.outputs[0])


@pytest.mark.adr("0060", "0.5.2", "11.1")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_storage_dtype(prefill, case, dtype):
    each = case(t_q=60, kv_len=100, dtype=dtype, **DIMS)
    o = prefill([each], tile=32, q_block=24).outputs[0]

    each.check(o)
    assert o.dtype == dtype


@pytest.mark.adr("0060", "11.1", "5.4")
@pytest.mark.parametrize(("d", "d_v"), [(40, 40), (64, 64), (128, 128), (128, 64), (40, 128)])
def test_any_width_of_keys_and_another_of_values(prefill, case, d, d_v):
    each = case(t_q=50, kv_len=80, d=d, d_v=d_v, group=4)

    each.check(prefill([each], tile=32, q_block=24).outputs[0])


@pytest.mark.adr("0060", "10", "11.1")
@pytest.mark.parametrize(("group", "heads"), [(1, 3), (2, 3), (4, 2), (8, 2), (16, 1), (64, 1)])
def test_every_gqa_ratio_and_a_single_kv_head(prefill, case, group, heads):
    """Group and KV heads differ, so that a kernel which swaps them is wrong; 64 heads on one KV head is MQA."""
    each = case(t_q=20, kv_len=50, d=64, d_v=64, group=group, heads=heads)

    each.check(prefill([each], tile=32, q_block=8).outputs[0])


@pytest.mark.adr("0060", "5.2", "11.1")
@pytest.mark.parametrize("layout", ["head", "token"])
def test_both_layouts_of_q_and_o(prefill, case, layout):
    each = case(t_q=30, kv_len=70, d=64, d_v=64, group=4, heads=3)

    each.check(prefill([each], tile=32, q_block=8, layout=layout).outputs[0])


@pytest.mark.adr("0060", "5.4", "11.1", "10")
def test_2048_tokens_at_llama_dimensions(prefill, case):
    """4 s on one core, 1 of them the run's and the others the oracle's."""
    each = case(t_q=2048, kv_len=2048)

    each.check(prefill([each], tile=256, q_block=16).outputs[0])


@pytest.mark.adr("0060", "5.4")
@pytest.mark.parametrize(("tile", "q_block", "message"), [(0, 8, "tile is 0"), (32, 0, "q_block is 0")])
def test_a_tile_or_block_of_nothing_is_refused(prefill, case, tile, q_block, message):
    with pytest.raises(ValueError, match=message):
        prefill([case(t_q=4, kv_len=40, **DIMS)], tile=tile, q_block=q_block)
