"""Each classic mistake of a ring, made in a copy of the kernel, is found: with its kind and its source line.

Findings of order are the same under every schedule. Two edits change nothing that is promised, and pass.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring
from pytest_kernbench.simulator.errors import DeadlockError, KernelError

FAULTS = runpy.run_path(str(Path(__file__).parents[1] / "faults/edits.py"))["FAULTS"]
SCHEDULES = ["model", "jitter", "late"]
SHAPE = {"group": 2, "d": 32, "d_v": 32}
AHEAD = Depth(ahead=1, in_flight=1)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@pytest.fixture
def attempt(ring, case, broken):
    """`attempt({edits}, sharding, s=48, ...)`: outcome and case of the edited kernel, findings collected."""

    def run(edits, sharding="striped", *, schedule="model", s=48, n=4, sizes=None, **options):
        each = case(**{**SHAPE, "kv_len": s, "t_q": s, **(sizes or {})})
        options = {"tile": 4, "q_block": 12, "sharding": sharding, **options}
        how = {"check": "collect", "schedule": schedule, "seed": 1}
        outcome = ring(each, n, kernel=broken(gqa_ring, edits), run=how, **options)
        return outcome, each

    return run


def found(run):
    """The kinds of findings and the text of all of them."""
    return {hazard.kind for hazard in run.hazards}, "\n".join(map(str, run.hazards))


def wrong(outcome, each):
    try:
        each.check(outcome.outputs[0])
    except AssertionError:
        return True
    return False


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.5", "B.7")
@every_schedule
def test_an_own_buffer_refilled_while_it_is_sent_is_a_race(attempt, line_of, schedule):
    """In an open chain; round a closed ring the credits of later pieces happen to say that the send is over."""
    edit = {"        tl.wait(*sent)\n        sent.clear()\n": "        sent.clear()\n"}
    outcome, _ = attempt(edit, "contiguous", schedule=schedule)

    kinds, text = found(outcome.run)
    assert kinds == {"race-war"}
    assert line_of("tl.load(self.k + row") in text and line_of('self.tl.send("E", k)') in text


@pytest.mark.adr("0060", "5.5", "B.7")
@pytest.mark.ahbm(ipcq_slots=6)
@every_schedule
def test_one_own_buffer_under_scores_said_ahead_is_a_race(attempt, line_of, schedule):
    edit = {"[self._buffers(width) for _ in range(depth.tiles)]": "[self._buffers(width)]"}
    outcome, _ = attempt(edit, "contiguous", schedule=schedule, depth=AHEAD, n=1, s=12)

    kinds, text = found(outcome.run)
    assert "race-war" in kinds
    assert line_of("tl.load(self.k + row") in text and line_of('composite("gemm", self.q, tile.k') in text


@pytest.mark.adr("0060", "5.5", "B.7")
@every_schedule
@pytest.mark.parametrize(
    ("sharding", "user"),
    [("contiguous", "part = tl.composite("), ("striped", 'self.tl.send("E", v)')],
    ids=["by a product", "by who passes it on"],
)
def test_a_wait_for_k_alone_uses_v_before_it_is_there(attempt, line_of, sharding, user, schedule):
    """B-12: K and V of a piece are two messages."""
    with pytest.raises(KernelError) as caught:
        attempt(FAULTS["B-12"], sharding, schedule=schedule, n=2 if sharding == "contiguous" else 4)

    text = str(caught.value)
    assert caught.value.kind == "race-raw" and "tl.wait(handle) first" in text
    assert line_of(user) in text


@pytest.mark.adr("0060", "5.5", "B.7")
@pytest.mark.ahbm(ipcq_slots=6)
@every_schedule
def test_a_slot_released_while_its_values_are_multiplied_is_a_race(attempt, line_of, schedule):
    """B-07: the credit lets the neighbour write the next piece over the one that P.V still reads."""
    outcome, _ = attempt(FAULTS["B-07"], schedule=schedule, depth=AHEAD)

    kinds, text = found(outcome.run)
    assert kinds == {"race-war"}
    assert line_of("self.tl.release(arrival.v)") in text and line_of("part = tl.composite(") in text


@pytest.mark.adr("0060", "5.5", "B.7")
@pytest.mark.ahbm(ipcq_slots=6)
@every_schedule
def test_a_slot_released_as_soon_as_its_scores_are_said_is_used_after(attempt, line_of, schedule):
    with pytest.raises(KernelError) as caught:
        edit = {"1 + sum(seen is not None for seen in self.stop.seen)": "1"}
        attempt(edit, schedule=schedule, depth=AHEAD)

    text = str(caught.value)
    assert caught.value.kind == "use-after-recycle"
    assert line_of("self.tl.release(arrival.v)") in text and line_of("part = tl.composite(") in text


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_a_slot_released_while_it_is_passed_on_is_a_race(attempt, line_of, schedule):
    edit = {"self.tl.wait(*arrival.sent)": "arrival.sent"}
    outcome, _ = attempt(edit, schedule=schedule)

    kinds, text = found(outcome.run)
    assert kinds == {"race-war"}
    assert line_of("self.tl.release(arrival.k)") in text and line_of('self.tl.send("E", k)') in text


# --- hang -------------------------------------------------------------------------------------------------------------


def deadlock(attempt, *args, **options):
    with pytest.raises(DeadlockError) as caught:
        attempt(*args, **options)
    return str(caught.value)


RECEIVERS_SKIP = {"seen, step < hops))": "seen, step < n - 1))"}


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_receivers_that_skip_what_is_sent_all_the_same_let_the_ring_run_full(attempt, line_of, schedule):
    """R30: without the sender's skip, slots fill with blocks that nobody takes."""
    text = deadlock(attempt, RECEIVERS_SKIP, "contiguous", schedule=schedule)

    assert "waits at" in text and line_of('self.tl.send("E", k)') in text
    assert "for a free slot of PE3 E> PE0" in text


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_few_blocks_that_nobody_takes_are_left_over(attempt, line_of, schedule):
    outcome, _ = attempt(RECEIVERS_SKIP, "contiguous", n=2, s=8, schedule=schedule)

    kinds, text = found(outcome.run)
    assert kinds == {"message-left"}
    assert line_of('self.tl.send("E", k)') in text
    with pytest.raises(AssertionError, match="never received"):
        ka.assert_queues_drained(outcome.run)


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_senders_that_skip_what_is_waited_for_starve_the_ranks_behind(attempt, line_of, schedule):
    """A rank in the middle sees nothing of a late run of keys, and the next one does (R30)."""
    edit = {"seen, step < hops))": "seen, step < hops and (not step or any(seen))))"}
    text = deadlock(attempt, edit, "zigzag", s=64, schedule=schedule)

    assert "for a message of PE" in text and line_of("k, v = self.tl.wait(*asked") in text


@pytest.mark.adr("0060", "5.5")
@every_schedule
@pytest.mark.parametrize("sharding", ["striped", "zigzag"])
def test_all_own_pieces_before_anything_is_received_is_a_deadlock(attempt, line_of, sharding, schedule):
    """R37: shard by shard in place of piece by piece."""
    text = deadlock(attempt, FAULTS["B-15"], sharding, schedule=schedule)

    assert line_of('self.tl.send("E", k)') in text
    assert all(f"PE{rank} -> PE{(rank + 1) % 4}" in text for rank in range(4))  # the cycle, from wherever it begins


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_a_rank_without_queries_that_leaves_is_missed(attempt, line_of, schedule):
    """B-14: the only query is rank 0's, and the others still have keys to send and to pass on."""
    loop = "for trip in trips(queries, q_block):"
    edit = {loop: f"{loop}\n                if not trip[rank]:\n                    continue"}
    text = deadlock(attempt, edit, "contiguous", sizes={"t_q": 1}, schedule=schedule)

    assert "for a message of PE3 E> PE0" in text and line_of("k, v = self.tl.wait(*asked") in text


UNSEEN_STAYS = {"                sweep.finish()\n": "                pass\n"}


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.ahbm(ipcq_slots=6)
@every_schedule
def test_a_sweep_that_sits_on_an_old_piece_finds_another_in_its_place(attempt, schedule):
    """Early zigzag queries see no late key. Loads into the own buffers are all waited for, so only values tell."""
    outcome, each = attempt(UNSEEN_STAYS, "zigzag", s=64, q_block=16, depth=AHEAD, schedule=schedule)

    assert not outcome.run.hazards and wrong(outcome, each)


@pytest.mark.adr("0060", "5.5")
@every_schedule
def test_with_four_slots_no_sweep_has_a_piece_left_to_sit_on(attempt, schedule):
    outcome, each = attempt(UNSEEN_STAYS, "zigzag", schedule=schedule)

    assert not outcome.run.hazards
    each.check(outcome.outputs[0])


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.5")
def test_half_a_piece_is_not_what_was_sent(attempt, line_of):
    """B-18: a receiver that asks for less is refused, not given a part."""
    edit = {'recv_async("W", (width, self.v.row)': 'recv_async("W", (width, self.v.row // 2)'}
    with pytest.raises(KernelError) as caught:
        attempt(edit)

    assert caught.value.kind == "message-mismatch"
    assert "(4, 16) bfloat16" in str(caught.value) and "(4, 32) bfloat16" in str(caught.value)
    assert line_of('self.tl.send("E", v)') in str(caught.value)


SWAPPED = {'[self.tl.send("E", k), self.tl.send("E", v)]': '[self.tl.send("E", v), self.tl.send("E", k)]'}


@pytest.mark.adr("0060", "5.5", "11.1")
def test_v_before_k_is_a_mismatch_if_they_differ_in_width(attempt, line_of):
    with pytest.raises(KernelError) as caught:
        attempt(SWAPPED, sizes={"d_v": 16})

    assert caught.value.kind == "message-mismatch" and line_of('[self.tl.send("E", v)') in str(caught.value)


@pytest.mark.adr("0060", "5.5", "11.1")
def test_v_before_k_is_wrong_numbers_if_they_do_not(attempt):
    outcome, each = attempt(SWAPPED)

    assert not outcome.run.hazards and wrong(outcome, each)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize("sharding", ["contiguous", "striped", "zigzag"])
def test_a_block_folded_twice_counts_twice(attempt, sharding):
    stop = "found.append(Stop(piece, None if step else row, seen, step < hops))"
    again = f"{stop}\n                if not step:\n                    found.append(Stop(piece, row, seen, False))"
    outcome, each = attempt({stop: again}, sharding)

    assert not outcome.run.hazards and wrong(outcome, each)


@pytest.mark.adr("0060", "5.5", "11.1")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("owner = (rank - step) % n", "owner = (rank + step) % n"),
        ("in shards(request.kv_len, n, sharding))", 'in shards(request.kv_len, n, "contiguous"))'),
        ("= shards(request.t_q, n, sharding, ", '= shards(request.t_q, n, "contiguous", '),
        ("found.append([(row + offset, piece)", "found.append([(offset, piece)"),
    ],
    ids=[
        "pieces from the other side",
        "keys laid out otherwise",
        "queries laid out otherwise",
        "rows of the first span",
    ],
)
def test_positions_of_another_rank_or_layout_are_wrong_numbers(attempt, old, new):
    """Masks are made of them (R42), and nothing but the values can tell."""
    outcome, each = attempt({old: new}, "striped" if "step" in old else "zigzag")

    assert wrong(outcome, each)


@pytest.mark.adr("0060", "5.5", "5.4", "11.1")
def test_a_chunk_masked_from_its_own_corner_is_wrong(attempt):
    """B-46: top-left in place of bottom-right."""
    outcome, each = attempt(FAULTS["B-46"], sizes={"t_q": 20})

    assert wrong(outcome, each)


TREE = """
def merged_along_the_ring(state, rank, n, tl):
    if rank:
        merge_received(state, "W", 32, tl)
    if rank < n - 1:
        tl.wait(*[tl.send("E", part) for part in state])


def cut("""


@pytest.mark.adr("0060", "10", "5.5", "11.1")
@pytest.mark.parametrize("n", [2, 4])
def test_a_tree_at_the_end_of_a_ring_merges_states_of_different_queries(attempt, n):
    """R35: shapes fit and no checker has a complaint; n-1 outputs are lost and the last is wrong."""
    store = "store_result(sweep.finish(), o, lse, sinks, 0, head, row, block, tl)"
    merged = "merged_along_the_ring(sweep.finish(), rank, n, tl)\n"
    merged += "                        if rank == n - 1:\n                            "
    edits = {
        store: merged + store.replace("sweep.finish()", "sweep.state"),
        "\ndef cut(": TREE,
        "\nTrip = tuple": "\nfrom pytest_kernbench.kernels.ahbm.gqa_decode import merge_received\n\nTrip = tuple",
    }
    outcome, each = attempt(edits, "contiguous", n=n, s=8 * n, q_block=8)

    by_rank = outcome.run.array("O").astype(float)
    last = np.abs(by_rank[-1] - each.answer[0][:, -8:]).max()
    assert not outcome.run.hazards
    assert np.isnan(by_rank[:-1]).all() and np.isfinite(by_rank[-1]).all()
    assert last > 10 * each.error.bound


@pytest.mark.adr("0060", "5.5", "11.1", "0.5.2")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_state_rounded_to_bfloat16_after_each_piece_is_too_coarse(attempt, dtype):
    """B-38: the error grows with the ring; storage that is finer than bfloat16 shows it."""
    off = []
    for n in (1, 8):
        outcome, each = attempt(FAULTS["B-38"], n=n, s=64, tile=8, q_block=16, sizes={"dtype": dtype})
        assert not outcome.run.hazards and wrong(outcome, each)
        off.append(np.abs(outcome.outputs[0].astype(float) - each.answer[0]).max() / each.error.bound)
    assert min(off) > 1
