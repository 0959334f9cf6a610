"""What users ask of attention besides the scale: windows, caps, sinks, log-sum-exp, batches, a few queries at once.

Each for decode on one PE and on eight, for prefill, and for the ring where it applies, against the float64 oracle.
"""

from __future__ import annotations

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode_batch
from pytest_kernbench.kernels.ahbm.requests import Request
from pytest_kernbench.kernels.reference.causal import Prefill

SMALL = {"d": 64, "d_v": 64, "group": 4}
SINKS = [1.0, -2.0, 5.0, -np.inf]
KERNELS = ["decode on 1", "decode on 8", "prefill", "ring on 1", "ring on 3"]


def lse_of(outcome, problem):
    """The run's log-sum-exp of one request as [H_q, t_q]."""
    return outcome.run.array("lse").reshape(problem.heads * problem.group, problem.t_q)


@pytest.fixture(params=KERNELS)
def attend_alone(request, split, prefill, ring):
    """`attend_alone(case, **options)`: one request by each of the kernels, in tiles of 16 keys."""
    kernel, _, n = request.param.partition(" on ")
    if kernel == "decode":
        return lambda each, **options: split([each], int(n), tile=16, **options)
    if kernel == "prefill":
        return lambda each, **options: prefill([each], tile=16, q_block=8, **options)
    return lambda each, **options: ring(each, int(n), tile=16, q_block=8, **options)


# --- sliding window ---------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.4", "11.1")
@pytest.mark.parametrize("window", [1, 2, 5, 16, 17, 40, 100, 1000], ids=lambda window: f"window {window}")
@pytest.mark.parametrize("t_q", [1, 12])
def test_a_window_of_any_width(attend_alone, case, window, t_q):
    """Narrower than a tile, than the eight PEs, than the queries; as wide as a tile; wider than the context."""
    each = case(t_q=t_q, kv_len=100, window=window, **SMALL)

    each.check(attend_alone(each).outputs[0])


@pytest.mark.adr("0060", "5.4", "11.4", "11.2")
@pytest.mark.parametrize("window", [1, 20, 64, 300])
def test_tiles_are_skipped_at_both_ends_of_a_window(prefill, case, window):
    each = case(t_q=256, kv_len=256, window=window, structure=True, **SMALL)
    run = prefill([each], tile=32, q_block=16).run
    form = Prefill(t_q=256, kv_len=256, q_start=0, q_block=16, tile=32, window=window)

    ka.assert_gemm_count(run, form.gemm_count)
    ka.assert_bytes_read(run, "K", form.kv_rows_read * 64 * 2)


@pytest.mark.adr("0060", "5.4", "5.1", "4")
@pytest.mark.parametrize(("window", "busy"), [(1, 1), (3, 3), (8, 8), (11, 8)])
def test_a_window_narrower_than_the_ranks_leaves_some_without_a_tile(split, case, window, busy):
    """They read nothing, not even Q, and take part in the tree with an empty state."""
    each = case(kv_len=100, window=window, **SMALL)
    outcome = split([each], 8, tile=4)

    each.check(outcome.outputs[0])
    log = outcome.log
    assert len({row.program for row in log.where(name="composite")}) == busy
    assert len({row.program for row in log.where(reads=("Q", "K", "V"))}) == busy
    assert len({row.program for row in log.where(name="send")}) == 7


@pytest.mark.adr("0060", "5.4")
def test_a_decode_step_reads_the_tiles_of_its_window_alone(split, case):
    """Keys 936 .. 999 of 1000 on one PE: tiles 14 and 15 of 64, the last of 40."""
    run = split([case(kv_len=1000, window=64, structure=True, **SMALL)], 1, tile=64).run

    ka.assert_bytes_read(run, "K", (64 + 40) * 64 * 2)
    assert len(run.log.where(name="where")) == 2  # one partial tile, a mask with two sides


# --- softcap ----------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.4", "3", "11.1")
@pytest.mark.parametrize("softcap", [0.5, 1.0, 2.0, 30.0])
@pytest.mark.parametrize(("t_q", "window"), [(1, None), (12, None), (12, 9)])
def test_a_cap_is_put_on_scores_before_the_mask(attend_alone, case, softcap, t_q, window):
    """With a cap of 2 or less a masked score would come back as -2 at least, and take its share of the softmax."""
    each = case(t_q=t_q, kv_len=60, softcap=softcap, window=window, **SMALL)

    each.check(attend_alone(each).outputs[0])


@pytest.mark.adr("0060", "5.4", "3", "11.1")
def test_a_cap_after_the_mask_is_found(prefill, case, broken):
    from pytest_kernbench.kernels.ahbm.gqa_prefill import gqa_prefill_batch

    edits = {
        "s = capped(tl.wait(scored), self.rules, tl)": "s = tl.wait(scored)",
        "    tl.add(by_head, mask, out=by_head)\n    return s": "    tl.add(by_head, mask, out=by_head)\n"
        "    return capped(s, rules, tl)",
    }
    each = case(t_q=12, kv_len=16, softcap=2.0, **SMALL)
    outcome = prefill([each], tile=16, q_block=16, kernel=broken(gqa_prefill_batch, edits))

    with pytest.raises(AssertionError, match="off by"):
        each.check(outcome.outputs[0])


# --- sinks and log-sum-exp --------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "4", "11.1")
@pytest.mark.parametrize(("t_q", "window"), [(1, None), (12, None), (12, 9)])
def test_sinks_are_added_once_and_the_lse_is_the_oracles(attend_alone, case, t_q, window):
    """Sinks near the rows' own log-sum-exp, so that one that is left out or counted eight times shows."""
    each = case(t_q=t_q, kv_len=60, window=window, sinks=SINKS, sd=1.0, **SMALL)
    outcome = attend_alone(each, lse=True)

    each.check(outcome.outputs[0])
    if outcome.run.array("lse").ndim == 2:  # that of a ring of several lies beside its queries: see below
        each.check_lse(lse_of(outcome, each.problem))


@pytest.mark.adr("0060", "4")
@pytest.mark.parametrize(("t_q", "broadcasts"), [(1, 0), (12, 1)])
def test_sinks_are_spread_over_tokens_only_where_there_are_several(split, case, t_q, broadcasts):
    run = split([case(t_q=t_q, kv_len=60, sinks=SINKS, **SMALL)], 1, tile=16).run

    assert len(run.log.where(name="broadcast").index) == broadcasts


@pytest.mark.adr("0060", "4", "11.1")
@pytest.mark.parametrize("layout", ["head", "token"])
@pytest.mark.parametrize("t_q", [1, 5])
def test_every_kv_head_has_the_sinks_of_its_own_query_heads(attend_alone, case, t_q, layout):
    each = case(t_q=t_q, kv_len=60, heads=2, sinks=[*SINKS, 4.0, 0.5, -np.inf, 2.0], sd=1.0, **SMALL)

    each.check(attend_alone(each, layout=layout).outputs[0])


@pytest.mark.adr("0060", "4", "11.1")
def test_a_sink_counted_by_every_rank_is_found(split, case, broken):
    edits = {"tl.add(l * mine, of_sink, out=l)": "tl.add(l * mine, of_sink * 8.0, out=l)"}
    each = case(kv_len=60, sinks=SINKS, sd=1.0, **SMALL)
    outcome = split([each], 8, tile=16, kernel=broken(gqa_decode_batch, edits))

    with pytest.raises(AssertionError, match="off by"):
        each.check(outcome.outputs[0])


@pytest.mark.adr("0060", "4", "5.2", "5.3")
@pytest.mark.parametrize("n", [1, 8])
def test_without_keys_o_is_zero_and_the_lse_is_the_sink(split, prefill, case, n):
    each = case(t_q=3, kv_len=0, sinks=SINKS, **SMALL)

    for outcome in (split([each], n, lse=True), prefill([each], lse=True)):
        assert (outcome.outputs[0].astype(float) == 0).all()
        np.testing.assert_array_equal(lse_of(outcome, each.problem), np.array(SINKS, np.float32)[:, None].repeat(3, 1))


@pytest.mark.adr("0060", "4", "11.1")
@pytest.mark.parametrize("layout", ["head", "token"])
@pytest.mark.parametrize(("t_q", "kv_len"), [(1, 100), (12, 100), (12, 5), (3, 0)])
@pytest.mark.parametrize("heads", [1, 3])
def test_the_log_sum_exp_of_every_row(split, prefill, case, t_q, kv_len, layout, heads):
    """Minus infinity for rows that see nothing (R19); [heads, tokens] whatever the layout of O."""
    each = case(t_q=t_q, kv_len=kv_len, heads=heads, **SMALL)
    options = {"layout": layout, "lse": True, "tile": 16}

    for outcome in (split([each], 1, **options), split([each], 8, **options), prefill([each], q_block=8, **options)):
        each.check(outcome.outputs[0])
        each.check_lse(lse_of(outcome, each.problem))


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize("sharding", ["contiguous", "striped", "zigzag"])
def test_the_log_sum_exp_of_a_ring_lies_beside_o(ring, case, sharding):
    from pytest_kernbench.kernels.ahbm.positions import shards

    each = case(t_q=24, kv_len=24, sinks=SINKS, **SMALL)
    outcome = ring(each, 4, tile=16, q_block=8, sharding=sharding, lse=True)

    each.check(outcome.outputs[0])
    for rank, spans in enumerate(shards(24, 4, sharding)):
        tokens = [position for span in spans for position in span.positions]
        np.testing.assert_allclose(outcome.run.array("lse")[rank], each.answer[1][:, tokens], atol=1e-5)


@pytest.mark.adr("0060", "0.5.2", "11.1")
@pytest.mark.parametrize(("d", "d_v"), [(128, 64), (40, 128), (64, 1)])
@pytest.mark.parametrize("t_q", [1, 9])
def test_values_have_a_width_of_their_own(attend_alone, case, d, d_v, t_q):
    each = case(t_q=t_q, kv_len=60, d=d, d_v=d_v, group=4)

    each.check(attend_alone(each).outputs[0])


@pytest.mark.adr("0060", "10", "11.1", "B.4")
@pytest.mark.parametrize(("group", "heads"), [(1, 2), (2, 3), (4, 2), (8, 2), (16, 2), (64, 1)])
@pytest.mark.parametrize("t_q", [1, 3])
def test_every_gqa_ratio_and_a_single_kv_head(attend_alone, case, group, heads, t_q):
    """Group and KV heads differ; 64 heads on one KV head is MQA, and more rows than the array has."""
    each = case(t_q=t_q, kv_len=50, d=64, d_v=64, group=group, heads=heads)

    each.check(attend_alone(each).outputs[0])


# --- batches of requests ----------------------------------------------------------------------------------------------

RAGGED = [(40, 1), (0, 1), (7, 3), (100, 12), (1, 1), (0, 2), (33, 33)]  # kv_len, t_q


@pytest.fixture
def requests(case):
    """Requests of different lengths, two of them without keys."""
    return [case(kv_len=s, t_q=t_q, heads=2, seed=number, **SMALL) for number, (s, t_q) in enumerate(RAGGED)]


@pytest.mark.adr("0060", "2.2", "5.1", "11.1", "10")
@pytest.mark.parametrize("layout", ["head", "token"])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_a_batch_of_requests_on_split_keys(split, requests, n, layout):
    """Request i begins at PE i mod n (ADR-0060 0): their rotations differ."""
    outcome = split(requests, n, tile=16, layout=layout)

    for each, o in zip(requests, outcome.outputs, strict=True):
        each.check(o)
    ka.assert_queues_drained(outcome.run)


@pytest.mark.adr("0060", "2.2", "2.1")
@pytest.mark.parametrize("starts", [(0,) * 7, (2, 1, 0, 2, 1, 0, 2)], ids=str)
def test_a_batch_whose_requests_begin_anywhere(split, requests, starts):
    outcome = split(requests, 3, tile=16, start_pes=starts)

    for each, o in zip(requests, outcome.outputs, strict=True):
        each.check(o)


@pytest.mark.adr("0060", "5.4", "11.1", "10")
@pytest.mark.parametrize("layout", ["head", "token"])
def test_a_batch_of_prefills(prefill, requests, layout):
    outcome = prefill(requests, tile=16, q_block=8, layout=layout)

    for each, o in zip(requests, outcome.outputs, strict=True):
        each.check(o)


@pytest.mark.adr("0060", "11.5")
def test_a_batch_takes_no_more_scratch_than_its_largest_request(split, case):
    cases = [case(kv_len=s, structure=True, **SMALL) for s in (500, 300, 0, 77)]
    together, alone = (split(batch, 8, tile=16).run.scratch_high_water for batch in (cases, cases[:1]))

    assert together == alone


# --- a few queries at once on split keys ------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.2", "5.3", "5.4", "4", "11.1")
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("t_q", "kv_len"), [(2, 9), (4, 4), (5, 3), (16, 50)])
def test_queries_at_once_from_every_rotation(split, case, n, t_q, kv_len):
    """Speculative decode, a whole short prompt, more queries than tokens, a chunk: masked by position (R42)."""
    each = case(t_q=t_q, kv_len=kv_len, d=64, d_v=64, group=2)

    for start_pe in range(n):
        each.check(split([each], n, tile=4, start_pes=[start_pe]).outputs[0])


@pytest.mark.adr("0060", "5.4", "10", "11.1")
@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("q_start", [0, 10, 36])
def test_a_chunk_on_split_keys_ends_with_the_tree(split, case, n, q_start):
    """Keys of one block are split, so its parts are merged; no part of another block's is (R35)."""
    each = case(t_q=24, kv_len=60, q_start=q_start, heads=2, **SMALL)
    outcome = split([each], n, tile=4)

    each.check(outcome.outputs[0])
    ka.assert_reduction_rounds(outcome.run, n)
    assert len(outcome.log.where(unit="DMA_W")) == 2


@pytest.mark.adr("0060", "4", "11.1")
@pytest.mark.parametrize("message_bytes", [16384, 8192, 1024])
def test_a_state_too_large_for_a_slot_travels_in_pieces(split, case, message_bytes):
    """96 rows of 64 float32 are 24576 bytes: 2, 3 or 24 messages of O beside m and l."""
    each = case(t_q=24, kv_len=60, **SMALL)
    outcome = split([each], 8, tile=4, message_bytes=message_bytes)

    each.check(outcome.outputs[0])
    assert len(outcome.log.where(name="send")) == 7 * (2 + -(-24576 // message_bytes))
    ka.assert_reduction_rounds(outcome.run, 8)


# --- wrong uses -------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.4")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window": 0}, "window 0: a query sees itself at least, give 1 or more"),
        ({"window": -3}, "window -3"),
        ({"softcap": 0.0}, "softcap 0.0: give a finite number > 0, or None"),
        ({"softcap": -2.0}, "softcap -2.0"),
        ({"softcap": float("nan")}, "softcap nan"),
        ({"softcap": float("inf")}, "softcap inf"),
    ],
    ids=str,
)
def test_a_rule_that_means_nothing_is_refused(attend_alone, case, wrong, message):
    with pytest.raises(ValueError, match=message):
        attend_alone(case(t_q=2, kv_len=9, structure=True, **SMALL, **wrong))


@pytest.mark.adr("0060", "2.2")
@pytest.mark.parametrize(
    "wrong", [{"t_q": 0}, {"kv_len": -1}, {"q_row": -1}, {"kv_row": -2}, {"t_q": -1}], ids=lambda wrong: str(wrong)
)
def test_a_request_of_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match=r"t_q counts from 1; kv_len, q_row and kv_row from 0: Request\("):
        Request(**{"kv_len": 5, **wrong})


@pytest.mark.adr("0060", "9.3")
def test_a_tile_of_nothing_is_refused(split, case):
    with pytest.raises(ValueError, match="a tile needs at least 1 element, width is 0"):
        split([case(kv_len=9, structure=True, **SMALL)], 2, tile=0)
