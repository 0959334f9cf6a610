"""What a ring prefill reads, sends, computes and overlaps is what ADR-0060 promises, counted in its log.

Counts are exact: closed forms where the sizes divide, and an independent count over positions where they do not.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring, slots_needed
from pytest_kernbench.kernels.ahbm.positions import imbalance, needed_hops, shards, slots
from pytest_kernbench.rooflines import roofline
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.errors import DeadlockError
from pytest_kernbench.simulator.ops.retime import retime

SHARDINGS = ["contiguous", "striped", "zigzag"]
GROUP, D, D_V = 2, 32, 16
WIDTHS = {"group": GROUP, "d": D, "d_v": D_V}
SHAPE = {**WIDTHS, "structure": True}
KEY, VALUE = D * 2, D_V * 2  # bytes of a row
BLOCK = 8  # positions of a query block and of a tile where they are to divide everything
T = 3  # trips
N = 8


@pytest.fixture(scope="module")
def finished():
    """Runs that several tests look at, by what they are of."""
    return {}


@pytest.fixture
def swept(ring, case, finished):
    """`swept(sharding, n=8)`: T trips of a ring in which blocks and tiles divide every span."""

    def run(sharding, n=N):
        if (sharding, n) not in finished:
            each = case(kv_len=n * T * BLOCK, t_q=n * T * BLOCK, **SHAPE)
            tile = BLOCK // 2 if sharding == "zigzag" else BLOCK  # a zigzag block is half of each of two spans
            finished[sharding, n] = ring(each, n, tile=tile, q_block=BLOCK, sharding=sharding).run
        return finished[sharding, n]

    return run


def per_trip(sharding, t_q, kv_len, n, q_block, tile):
    """By trip: query blocks by rank, and key pieces by rank, as spans; counted here without the kernel's help."""
    queries, keys = shards(t_q, n, sharding, kv_len - t_q), shards(kv_len, n, sharding)
    blocks = [[span.tiles(max(q_block // len(shard), 1)) for span in shard] for shard in queries]
    pieces = [[piece for span in shard for _, piece in span.tiles(tile)] for shard in keys]
    count = max(len(tiles) for spans in blocks for tiles in spans)
    for trip in range(count):
        yield [[tiles[trip][1] for tiles in spans if trip < len(tiles)] for spans in blocks], pieces


def sees(queries, keys):
    return keys.first <= queries.last


RAGGED = {"t_q": 61, "kv_len": 83, "n": 5, "q_block": 6, "tile": 7}


@pytest.fixture
def fresh(ring, case):
    """`fresh(sharding)`: a chunk at the end of its context, whose sizes divide nothing."""

    def run(sharding):
        each = case(kv_len=RAGGED["kv_len"], t_q=RAGGED["t_q"], **SHAPE)
        sizes = {"tile": RAGGED["tile"], "q_block": RAGGED["q_block"]}
        return ring(each, RAGGED["n"], **sizes, sharding=sharding).run

    return run


@pytest.fixture
def ragged(fresh, finished):
    """The same, run once for all tests that only look at it."""

    def run(sharding):
        if sharding not in finished:
            finished[sharding] = fresh(sharding)
        return finished[sharding]

    return run


# --- bytes ------------------------------------------------------------------------------------------------------------


def rows_read(sharding, n):
    """Rows of K that each rank reads in T trips: its shard once a trip, but what nobody sees yet.

    Only the last keys of the sequence wait for their trip: contiguous has them at the last rank, zigzag in the late
    run of rank 0, striped everywhere.
    """
    shard, rising = T * BLOCK, BLOCK * T * (T + 1) // 2
    if sharding == "contiguous":
        return [T * shard] * (n - 1) + [rising]
    if sharding == "striped":
        return [rising] * n
    return [T * shard // 2 + rising // 2] + [T * shard] * (n - 1)


@pytest.mark.adr("0060", "5.5", "11.2", "B.4")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("n", [1, 4, 8])
def test_a_rank_reads_its_own_keys_once_a_trip_and_no_others(swept, sharding, n):
    run = swept(sharding, n)

    rows = rows_read(sharding, n)
    ka.assert_bytes_read(run, "K", [count * KEY for count in rows])
    ka.assert_bytes_read(run, "V", [count * VALUE for count in rows])
    ka.assert_bytes_read(run, "Q", [T * BLOCK * GROUP * KEY] * n)
    assert set(run.log.where(tensor=("K", "V", "Q", "O")).peer) == {-1}


@pytest.mark.adr("0060", "5.5", "11.2")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_ragged_ring_reads_once_a_trip_what_somebody_sees(ragged, sharding):
    rows = [0] * RAGGED["n"]
    for blocks, pieces in per_trip(sharding, **RAGGED):
        queries = [each for by_rank in blocks for each in by_rank]
        for rank, own in enumerate(pieces):
            rows[rank] += sum(piece.count for piece in own if any(sees(each, piece) for each in queries))

    run = ragged(sharding)

    ka.assert_bytes_read(run, "K", [count * KEY for count in rows])
    ka.assert_bytes_read(run, "V", [count * VALUE for count in rows])


def rows_sent(sharding, n):
    """Rows of K over all links: contiguous is an open chain, the others go all the way, but for what only rank 0 sees
    (the last run of zigzag)."""
    shard, rising = T * BLOCK, BLOCK * T * (T + 1) // 2
    if sharding == "contiguous":
        return T * shard * n * (n - 1) // 2
    if sharding == "striped":
        return n * (n - 1) * rising
    return (n - 1) * (2 * n - 1) * T * shard // 2


@pytest.mark.adr("0060", "5.5", "11.2")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_links_carry_what_the_closed_form_says(swept, sharding, n):
    sends = swept(sharding, n).log.where(name="send")

    assert sends.bytes.sum() == rows_sent(sharding, n) * (KEY + VALUE)


@pytest.mark.adr("0060", "5.5", "11.2")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_links_of_a_ragged_ring_carry_each_piece_its_needed_hops(ragged, sharding):
    rows = messages = 0
    for blocks, pieces in per_trip(sharding, **RAGGED):
        queries = tuple(map(tuple, blocks))
        hops = [(piece, needed_hops(queries, (piece,), rank)) for rank, own in enumerate(pieces) for piece in own]
        rows += sum(far * piece.count for piece, far in hops)
        messages += 2 * sum(far for _, far in hops)

    sends = ragged(sharding).log.where(name="send")

    assert (sends.bytes.sum(), len(sends)) == (rows * (KEY + VALUE), messages)


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize(("sharding", "left_out"), [("contiguous", 28), ("striped", 0), ("zigzag", 0)])
def test_contiguous_shards_leave_out_28_of_64_steps_and_the_others_none(ring, case, sharding, left_out):
    """One block a rank (a pair of runs for zigzag), so that a step is a pair of rank and block (R28)."""
    each = case(kv_len=64, t_q=64, **SHAPE)
    run = ring(each, 8, tile=8, q_block=8, sharding=sharding).run
    received = [run.log.where(name="recv_async", program=rank) for rank in range(8)]
    folded = [len(run.log.where(name="composite", region="QK", program=rank)) for rank in range(8)]

    if sharding == "zigzag":  # of early runs all go round, of late ones all but the last; see both blocks of a rank
        assert [len(rows) // 2 for rows in received] == [14] + [13] * 7
        assert folded == [2 * 8 + 1] * 8
        return
    assert 64 - sum(len(rows) // 2 for rows in received) - 8 == 64 - sum(folded) == left_out
    assert len(run.log.where(name="send")) == sum(map(len, received))


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_skipped_block_is_neither_sent_nor_received(ring, case, n):
    """The open chain of R30: rank r gets the blocks of ranks 0..r-1, and the last rank sends nothing."""
    run = ring(case(kv_len=8 * n, t_q=8 * n, **SHAPE), n, tile=8, q_block=8, sharding="contiguous").run

    for rank in range(n):
        assert len(run.log.where(name="recv_async", program=rank)) == 2 * rank
        assert len(run.log.where(name="send", program=rank)) == (2 * (rank + 1) if rank < n - 1 else 0)
    ka.assert_queues_drained(run)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_queues_are_empty_and_credits_home_at_exit(swept, ragged, sharding):
    for run in (swept(sharding), ragged(sharding)):
        ka.assert_queues_drained(run)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_a_window_shortens_the_way(ring, case, sharding):
    """Contiguous blocks go one step to the queries just behind them; striped ones have a query near every key."""

    def sends(window):
        each = case(kv_len=64, t_q=64, window=window, **SHAPE)
        return len(ring(each, 8, tile=8, q_block=8, sharding=sharding).log.where(name="send"))

    without, within = sends(None), sends(8)
    early, late = 6 * 2 + 1 + 7, 7 * 7  # zigzag: late runs are followed by ranks behind, all the way round
    assert within == {"contiguous": 2 * 7, "striped": without, "zigzag": 2 * (early + late)}[sharding]


# --- slots ------------------------------------------------------------------------------------------------------------

DEPTHS = [
    pytest.param(depth, id=f"{needed - fewer} of {needed}", marks=pytest.mark.ahbm(ipcq_slots=needed - fewer))
    for fewer in (0, 1)
    for depth, needed in ((Depth(0, 1), 4), (Depth(1, 1), 6), (Depth(1, 2), 8))
]


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", ["striped", "zigzag"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_with_the_slots_that_it_states_it_runs_and_with_one_less_it_deadlocks(ring, case, ahbm_spec, sharding, depth):
    each, sizes = case(kv_len=48, t_q=48, **SHAPE), {"tile": 2, "q_block": 16, "sharding": sharding, "depth": depth}
    if ahbm_spec.ipcq_slots == slots_needed(depth):
        ka.assert_queues_drained(ring(each, 8, **sizes).run)
        return

    with pytest.raises(DeadlockError) as caught:
        ring(each, 8, **sizes)

    text, ranks = str(caught.value), " -> ".join(f"PE{rank}" for rank in (*range(8), 0))
    assert f"they wait for each other: {ranks}" in text
    assert "PE0 waits at gqa_ring.py:" in text and "in _send for a free slot of PE0 E> PE1" in text
    assert f"PE1 would end it by releasing one of its {ahbm_spec.ipcq_slots} slots" in text


@pytest.mark.adr("0060", "5.5")
@pytest.mark.ahbm(ipcq_slots=2)
def test_the_open_chain_needs_no_more_than_one_piece(ring, case):
    """Nobody waits for who waits for it: contiguous shards run with K and V of a single piece in slots."""
    ka.assert_queues_drained(ring(case(kv_len=48, t_q=48, **SHAPE), 8, tile=2, q_block=16, sharding="contiguous").run)


# --- work -------------------------------------------------------------------------------------------------------------


def closed_form(sharding, s, n):
    """Facts 5.1 in full: (2n-1)/n for long contiguous sequences, 1 + (n-1)/(s+1) striped, 1 zigzag."""
    return {
        "contiguous": Fraction((2 * n - 1) * s // n + 1, s + 1),
        "striped": 1 + Fraction(n - 1, s + 1),
        "zigzag": Fraction(1),
    }[sharding]


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_visible_pairs_of_the_busiest_rank_are_the_closed_form(sharding, n):
    s = 192
    pairs = [sum(position + 1 for span in shard for position in span.positions) for shard in shards(s, n, sharding)]

    assert sum(pairs) == s * (s + 1) // 2
    assert Fraction(max(pairs) * n, sum(pairs)) == imbalance(s, n, sharding) == closed_form(sharding, s, n)


def tile_pairs(sharding, n):
    """Pairs of query block and piece that each rank folds in T trips of the swept ring."""
    if sharding == "contiguous":
        return [T * T * rank + T * (T + 1) // 2 for rank in range(n)]
    if sharding == "striped":
        return [n * T * (T + 1) // 2] * n
    return [T * T * (2 * n - 1) + T * (T + 1)] * n


@pytest.mark.adr("0060", "5.5", "11.2")
def test_macs_of_each_rank_are_those_of_its_tiles(swept):
    """Printed by sharding: busiest over mean of visible pairs, of computed MACs, and of the time of MATH."""
    print(f"\n{'':12}  visible  computed  MATH busy   (n = {N}, s = {N * T * BLOCK})")
    for sharding in SHARDINGS:
        run = swept(sharding)
        side = BLOCK // 2 if sharding == "zigzag" else BLOCK
        macs = [int(run.log.where(name="gemm", program=rank).work.sum()) for rank in range(N)]
        math = [int((rows.free - rows.start).sum()) for rows in _by_rank(run.log.where(unit="MATH"))]

        assert macs == [pairs * side * side * GROUP * (D + D_V) for pairs in tile_pairs(sharding, N)]
        ka.assert_gemm_count(run, [2 * pairs for pairs in tile_pairs(sharding, N)])
        ratios = float(imbalance(N * T * BLOCK, N, sharding)), *(max(each) * N / sum(each) for each in (macs, math))
        print(f"{sharding:12}" + "".join(f"{ratio:9.3f}" for ratio in ratios))


def _by_rank(rows):
    return [rows.where(program=rank) for rank in range(N)]


@pytest.mark.adr("0060", "5.5", "11.2")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_macs_of_a_ragged_ring_are_counted_over_positions(ragged, sharding):
    macs = [0] * RAGGED["n"]
    for blocks, pieces in per_trip(sharding, **RAGGED):
        for rank, own in enumerate(blocks):
            scores = sum(
                block.count * piece.count for block in own for each in pieces for piece in each if sees(block, piece)
            )
            macs[rank] += scores * GROUP * (D + D_V)

    run = ragged(sharding)

    assert [run.log.where(name="gemm", program=rank).work.sum() for rank in range(RAGGED["n"])] == macs


@pytest.mark.adr("0060", "5.5", "10")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_each_rank_stores_its_own_queries_once_and_there_is_no_tree(ragged, sharding):
    """R35: states of different queries are never merged, so no state travels; messages are K and V as stored."""
    run = ragged(sharding)
    queries = shards(RAGGED["t_q"], RAGGED["n"], sharding, RAGGED["kv_len"] - RAGGED["t_q"])

    stores = [run.log.where(name="store", program=rank) for rank in range(RAGGED["n"])]
    assert [rows.bytes.sum() for rows in stores] == [GROUP * slots(shard) * VALUE for shard in queries]
    for rows in stores:
        written = sorted((each.offset, each.size) for row in rows for each in row.operands if each.written)
        assert all(lo + size <= after for (lo, size), (after, _) in pairwise(written))
    assert len(run.log.where(unit="DMA_W")) == sum(map(len, stores))
    assert len(run.log.where(region="tree")) == 0
    assert {row.shape[1] for row in run.log.where(name="send")} == {D, D_V}
    assert all(row.bytes == 2 * row.shape[0] * row.shape[1] for row in run.log.where(name="send"))


@pytest.mark.adr("0060", "B.7", "11.7", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_products_are_composites_that_take_received_keys_and_values_from_their_slots(swept, sharding):
    run = swept(sharding)

    ka.assert_composite_offload(run)
    own = [T * (T + 1) // 2] * N if sharding != "zigzag" else [T * (T + T + 1)] * N
    for rank in range(N):
        for region in ("QK", "PV"):
            rows = list(run.log.where(name="composite", region=region, program=rank))
            streamed = [row.operands[1].tensor for row in rows]
            assert streamed.count("slot") == tile_pairs(sharding, N)[rank] - own[rank]
            assert streamed.count("scratch") == own[rank]
    assert not len(run.log.where(name=("load", "assign"), reads="slot"))  # nothing is copied out first


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_block(ring, case):
    """`one_block(kernel=...)`: one block a rank and one piece a shard, so that a received piece is folded once."""

    def run(**options):
        return ring(case(kv_len=64, t_q=64, **SHAPE), 8, tile=8, q_block=8, sharding="striped", **options).run

    return run


def asked_before_the_fold(run):
    """Whether every rank asks for each piece before its product of Q and the piece before is said."""
    for rank in range(8):
        asked = run.log.where(name="recv_async", program=rank).index[1::2]  # V, which is asked for after K
        folds = run.log.where(name="composite", region="QK", program=rank, reads="slot").index
        assert len(asked) == len(folds) == 7
        if not (asked[1:] < folds[:-1]).all():
            return False
    return True


@pytest.mark.adr("0060", "5.5", "B.7")
@pytest.mark.parametrize("recv_ahead", [0, 1, 3])
def test_pieces_are_asked_for_before_they_are_needed(one_block, recv_ahead):
    assert asked_before_the_fold(one_block(recv_ahead=recv_ahead)) == (recv_ahead > 0)


@pytest.mark.adr("0060", "5.5", "B.7")
@pytest.mark.parametrize("recv_ahead", [0, 1, 2, 4])
def test_no_more_pieces_are_asked_for_than_is_said(one_block, recv_ahead):
    run = one_block(recv_ahead=recv_ahead)

    for rank in range(8):
        asked = run.log.where(name="recv_async", program=rank).index[1::2]
        folds = run.log.where(name="composite", region="QK", program=rank, reads="slot").index
        before = np.searchsorted(asked, folds)  # pieces asked for before each fold, its own among them
        assert before.tolist() == [min(number + 1 + recv_ahead, 7) for number in range(7)]


@pytest.fixture
def llama(ring, case):
    """`llama(sharding, kernel=...)`: at Llama's sizes a piece takes 256 cycles on its link, thousands to be folded."""

    def run(sharding, **options):
        each = case(kv_len=512, t_q=512, structure=True)
        return ring(each, 8, tile=64, q_block=32, sharding=sharding, **options).run

    return run


@pytest.mark.adr("0060", "5.5", "B.7", "11.6")
@pytest.mark.parametrize("sharding", ["contiguous", "striped"])
def test_nobody_waits_for_a_message_that_could_be_there(llama, sharding):
    run = llama(sharding)

    assert message_wait(run) == [0] * 8
    if sharding == "striped":
        ka.assert_overlap(run, "IPCQ", "MATH", at_least=0.75)
        ka.assert_overlap(run, "IPCQ", "GEMM", at_least=0.65)


@pytest.mark.adr("0060", "5.5", "11.6")
def test_who_passes_on_what_it_has_folded_keeps_the_others_waiting(llama, broken):
    leaves = "        if arrival.stop.row is None:\n"
    onward = "        if arrival.stop.onward:\n            arrival.sent += self._send(arrival.k, arrival.v)\n"
    edits = {"                sent += self._send(k, v)\n": "                pass\n", leaves: onward + leaves}
    run = llama("striped", kernel=broken(gqa_ring, edits))

    ka.assert_queues_drained(run)
    assert min(message_wait(run)) > 0 and run.cycles > llama("striped").cycles


def message_wait(run):
    """Cycles that each rank waited for messages."""
    sends = set(run.log.where(name="send").index.tolist())
    found = [0] * len(run.log.programs)
    for row in run.log.where(name="wait"):
        if row.after in sends and run.log[row.after].program != row.program:
            found[row.program] += row.end - row.start
    return found


@pytest.mark.adr("0060", "11.6", "5.5")
@pytest.mark.parametrize(("sharding", "ratio"), [("contiguous", 1.35), ("striped", 1.35), ("zigzag", 1.8)])
def test_time_lies_between_the_busiest_unit_and_everything_in_turn(ring, case, sharding, ratio):
    run = ring(case(kv_len=1024, t_q=1024, structure=True), 8, tile=64, q_block=32, sharding=sharding).run

    ka.assert_latency_between(run, roofline(run), 10**9, ratio=ratio)


@pytest.mark.adr("0060", "5.5", "11.3")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_messages_go_to_neighbours_where_the_ring_closes_in_one_hop(swept, sharding):
    ka.assert_neighbour_only_hops(swept(sharding, 8))
    ka.assert_neighbour_only_hops(swept(sharding, 4))
    if sharding == "contiguous":
        ka.assert_neighbour_only_hops(swept(sharding, 3))  # an open chain does not use the edge that closes the ring
        return
    with pytest.raises(AssertionError, match="2 hops instead of 1"):
        ka.assert_neighbour_only_hops(swept(sharding, 3))  # odd rings close over two


# --- the same bits ----------------------------------------------------------------------------------------------------

WHOLE = {**WIDTHS, "kv_len": 43, "t_q": 37}


@pytest.mark.adr("0060", "5.4", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_skipping_changes_no_bit_against_computing_and_masking(ring, case, sharding):
    each = case(**WHOLE)
    skipped, masked = (ring(each, 4, tile=8, q_block=6, sharding=sharding, skip=skip) for skip in (True, False))

    assert skipped.outputs[0].tobytes() == masked.outputs[0].tobytes()
    assert len(skipped.log.where(name="send")) < len(masked.log.where(name="send"))
    assert len(skipped.log.where(name="composite")) < len(masked.log.where(name="composite"))


@pytest.mark.adr("0060", "11.8", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_no_schedule_changes_a_bit_of_the_result(ring, case, sharding):
    each = case(**WHOLE)

    def make_run(schedule, seed):
        return ring(each, 5, tile=8, q_block=6, sharding=sharding, run={"schedule": schedule, "seed": seed}).run

    ka.assert_schedule_independent(make_run, ["O"], seeds=range(3))


@pytest.mark.adr("0060", "11.8")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_two_runs_have_one_log_and_retime_tells_its_times(fresh, sharding):
    ka.assert_deterministic(lambda: fresh(sharding))

    run = fresh(sharding)
    retimed = retime(run.log, Timing(run.spec))
    assert (retimed.table == run.log.table()).all() and retimed.cycles == run.cycles


@pytest.mark.adr("0060", "11.8", "5.5")
def test_control_does_not_depend_on_values(ring, case):
    logs = [ring(case(**WHOLE, seed=seed), 4, tile=8, q_block=6).log for seed in (1, 2)]

    assert logs[0].cells.tobytes() == logs[1].cells.tobytes()


# --- long contexts ----------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "11.5", "5.5")
@pytest.mark.parametrize("sharding", SHARDINGS)
def test_scratch_does_not_grow_with_the_context(ring, case, sharding):
    def high_water(s):
        each = case(kv_len=s, t_q=128, structure=True)
        return ring(each, 8, tile=64, q_block=16, sharding=sharding).run.scratch_high_water

    assert high_water(2048) == high_water(4096) < 512 * 1024


@pytest.mark.adr("0060", "11.5", "5.5")
def test_a_long_context_passes_through_four_slots(ring, case):
    """16384 keys over 8 ranks; 131072 take eight times as long, which a test has no time for."""
    run = ring(case(kv_len=16384, t_q=128, structure=True), 8, tile=64, q_block=16, sharding="contiguous").run

    ka.assert_queues_drained(run)
    ka.assert_scratch_within(run, 512 * 1024)
    np.testing.assert_array_equal(run.log.where(name="send").bytes, 16384)
