"""A ring takes requests one after another, its pieces span by span or by turns, and says what it needs at launch."""

from __future__ import annotations

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth, Rules
from pytest_kernbench.kernels.ahbm.gqa_ring import slots_needed
from pytest_kernbench.kernels.ahbm.requests import Request

SMALL = {"group": 4, "d": 32, "d_v": 32}
SHARDINGS = ["contiguous", "striped", "zigzag"]
AHEAD = Depth(ahead=1)


@pytest.mark.adr("0060", "5.5", "5.6", "11.1")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("layout", ["head", "token"])
def test_every_request_of_a_batch_gets_its_attention(ring_batch, case, sharding, layout):
    sizes = [(50, 50), (20, 7), (64, 30), (3, 3)]
    cases = [case(kv_len=kv, t_q=t_q, heads=2, seed=seed, **SMALL) for seed, (kv, t_q) in enumerate(sizes)]
    outcome = ring_batch(cases, 4, tile=8, q_block=8, sharding=sharding, layout=layout)

    for each, o in zip(cases, outcome.outputs, strict=True):
        each.check(o)
    ka.assert_queues_drained(outcome.run)


@pytest.mark.adr("0060", "5.6")
def test_a_request_without_tokens_and_queries_before_the_sequence_give_zeros(ring_batch, ring, case):
    early = case(kv_len=5, t_q=9, q_start=-6, **SMALL)
    early.check(ring(early, 4, tile=4, q_block=4).outputs[0])

    one = case(kv_len=12, t_q=12, **SMALL)
    none = case(kv_len=1, t_q=3, q_start=0, **SMALL).without_keys()
    outcome = ring_batch([one, none], 4, tile=4, q_block=4)
    one.check(outcome.outputs[0])
    assert (outcome.outputs[1].astype(float) == 0).all()


@pytest.mark.adr("0060", "5.5", "11.1", "11.8")
@pytest.mark.ahbm(ipcq_slots=8)
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
@pytest.mark.parametrize(("kv_len", "t_q", "n"), [(128, 128, 4), (77, 50, 3), (96, 96, 8), (9, 9, 2)])
def test_pieces_by_turns_give_the_same_attention(ring, case, kv_len, t_q, n, schedule):
    each = case(kv_len=kv_len, t_q=t_q, **SMALL)
    run = {"schedule": schedule, "seed": 2}
    outcome = ring(each, n, tile=8, q_block=8, depth=AHEAD, interleave=True, run=run)

    each.check(outcome.outputs[0])
    ka.assert_queues_drained(outcome.run)


@pytest.mark.adr("0060", "5.5", "11.6")
@pytest.mark.ahbm(ipcq_slots=8)
def test_zigzag_keeps_its_balance_from_piece_to_piece_by_turns(ring, case):
    """Span after span, every phase waits for the rank that sees most of it."""
    each = case(kv_len=1024, t_q=1024, structure=True)
    cycles = {by_turns: ring(each, 8, q_block=32, depth=AHEAD, interleave=by_turns).run.cycles for by_turns in (0, 1)}

    assert cycles[1] < 0.9 * cycles[0]


def test_two_pieces_at_a_time_need_two_more_slots():
    assert [slots_needed(), slots_needed(AHEAD)] == [4, 6]
    assert [slots_needed(interleave=True), slots_needed(AHEAD, interleave=True)] == [6, 8]


@pytest.mark.adr("0060", "11.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize(
    ("kv_len", "t_q", "n", "exact"),
    [(512, 512, 4, True), (500, 300, 3, False), (40, 40, 8, False), (512, 64, 4, False)],
)
def test_the_budget_of_a_ring_is_said_at_launch_and_enough(ring, case, sharding, kv_len, t_q, n, exact):
    said = []
    each = case(kv_len=kv_len, t_q=t_q, structure=True)
    run = ring(each, n, tile=32, q_block=16, sharding=sharding, announce=said.append).run

    sizes = Sizes(group=8, d=128, d_v=128, itemsize=2, tile=32, rules=Rules(1.0), depth=Depth(ahead=0))
    assert said == [Budget.of_ring([Request(kv_len, t_q)], n, sharding, 16, sizes)] and "own " in str(said[0])
    assert run.scratch_high_water <= said[0].total
    if exact:
        assert run.scratch_high_water == said[0].total
