"""For each clause a kernel that breaks it, beside the one that keeps it: the helper refuses one and takes the other.

Most broken kernels still give the right numbers: only what a clause promises about structure or time can tell.
"""

from __future__ import annotations

import itertools
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode_batch
from pytest_kernbench.kernels.ahbm.gqa_prefill import gqa_prefill_batch
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring
from pytest_kernbench.kernels.ahbm.requests import Request
from pytest_kernbench.kernels.reference.bounds import Decode, latency_bounds
from pytest_kernbench.kernels.reference.causal import Prefill
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.errors import HazardError, KernelError

FAULTS = runpy.run_path(str(Path(__file__).parents[1] / "faults/edits.py"))["FAULTS"]
SMALL = {"d": 64, "d_v": 64, "group": 4}
QK = 'self.tl.composite("gemm", self.q, tile.k, trans_b=True, out=out, epilogue=(("scale", scale),))'
PV = 'tl.composite("gemm", stored, tile.v, trans_b=False, out=next(self._parts))'
COLLECT = {"check": "collect"}


def refused(match=None):
    """What every helper does with a kernel that breaks its clause."""
    return pytest.raises(AssertionError, match=match)


def matches(outcome, each):
    """O of a single request of one KV head against the oracle."""
    ka.assert_matches_reference(outcome.run, "O", each.answer[0], each.error)


def in_parts(kernel, size):
    """`kernel` for `size` heads of the group at a time, as a kernel does that does not fold them into rows."""

    def part_by_part(q, k, v, o, *args, group, tl, **options):
        tokens = q.shape[1]
        for head in range(0, group, size):
            ahead = head * tokens
            kernel(q + ahead * q.row, k, v, o + ahead * o.row, *args, group=size, tl=tl, **options)

    return part_by_part


# --- 11: the verification plan ----------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "11.1")
@pytest.mark.parametrize(
    "edits",
    [
        {'epilogue=(("scale", scale),)': 'epilogue=(("scale", 1.0),)'},
        {"tl.ref(v + first * d_v, (width, d_v))": "tl.ref(k + first * d_v, (width, d_v))"},
        FAULTS["B-50"],
        {"tl.mul(o, product.correction, out=o)": "tl.wait(product.correction)"},
    ],
    ids=["no scale", "K in the place of V", "l not corrected", "O not corrected"],
)
def test_11_1_wrong_numbers(split, case, broken, edits):
    each = case(kv_len=100, **SMALL)

    matches(split([each], 1, tile=16), each)
    with refused("elements of O are off"):
        matches(split([each], 1, tile=16, kernel=broken(gqa_decode_batch, edits)), each)


@pytest.mark.adr("0060", "11.2")
def test_11_2_keys_and_values_are_read_for_every_head(split, case):
    def runs(kernel):
        each = {group: case(kv_len=100, d=64, d_v=64, group=group, structure=True) for group in (1, 2, 4)}
        return {group: split([one], 2, tile=16, kernel=kernel).run for group, one in each.items()}

    ka.assert_dma_reads_independent_of_group(runs(gqa_decode_batch))
    ka.assert_work_scales_with_group(runs(gqa_decode_batch))
    with refused("depend on the group"):
        ka.assert_dma_reads_independent_of_group(runs(in_parts(gqa_decode_batch, 1)))


@pytest.mark.adr("0060", "11.2")
def test_11_2_a_group_whose_heads_are_computed_by_everybody(split, case):
    """Eight heads' rows whatever the group: the reads are right and the work is not."""
    runs = {
        group: split([case(kv_len=100, d=64, d_v=64, group=max(group, 4), structure=True)], 1).run for group in (2, 4)
    }

    ka.assert_dma_reads_independent_of_group(runs)
    with refused("does not grow in proportion"):
        ka.assert_work_scales_with_group(runs)


SNAKE = (0, 1, 2, 3, 7, 6, 5, 4)
CHAIN = {
    "[rank + (1 << level) for rank, level in enumerate(levels)]": "[rank + 1 for rank in range(n - 1)]",
    "pes = [_gray(ident // cols) * cols + _gray(ident % cols) for ident in ids]": f"pes = list({SNAKE})",
}
SLOWEST_FIRST = {"tuple(tuple(order) for order in children)": "tuple(tuple(order[::-1]) for order in children)"}


@pytest.mark.adr("0060", "11.3", "4")
@pytest.mark.parametrize(
    ("edits", "options", "rounds"),
    [(CHAIN, {"placement": SNAKE}, 7), (SLOWEST_FIRST, {}, 6)],
    ids=["a chain", "the slowest child first"],
)
def test_11_3_more_rounds_than_the_tree(split, case, broken, edits, options, rounds):
    each = case(kv_len=100, **SMALL)
    good, bad = split([each], 8), split([each], 8, kernel=broken(gqa_decode_batch, edits), run=options)

    ka.assert_reduction_rounds(good.run, 8)
    each.check(bad.outputs[0])  # the numbers are as good, and every hop is one
    ka.assert_neighbour_only_hops(bad.run)
    with refused(f"the reduction of 8 programs takes {rounds} rounds, expected 3"):
        ka.assert_reduction_rounds(bad.run, 8)


@pytest.mark.adr("0060", "11.4", "5.4")
@pytest.mark.parametrize(
    "edits",
    [
        {"if most < 0 or (": "if most < -1 or ("},
        {"if seen is not Sight.NONE or not rules.skip:": "if True:"},
    ],
    ids=["one tile too many", "the full grid"],
)
def test_11_4_tiles_that_nobody_sees(prefill, case, broken, edits):
    each = case(t_q=64, kv_len=64, **SMALL)
    form = Prefill(t_q=64, kv_len=64, q_start=0, q_block=16, tile=16)
    good, bad = (prefill([each], tile=16, kernel=kernel) for kernel in (None, broken(gqa_prefill_batch, edits)))

    ka.assert_gemm_count(good.run, form.gemm_count)
    each.check(bad.outputs[0])
    with refused(f"products of GEMM, expected {form.gemm_count}"):
        ka.assert_gemm_count(bad.run, form.gemm_count)


@pytest.mark.adr("0060", "11.5")
def test_11_5_temporaries_that_pile_up(prefill, case, broken):
    leaky = broken(gqa_prefill_batch, FAULTS["B-62"])

    def high(s, kernel=None):
        return prefill([case(t_q=16, kv_len=s, structure=True)], tile=64, kernel=kernel).run

    enough = high(512).scratch_high_water
    ka.assert_scratch_within(high(4096), enough)
    with refused("scratch goes up to"):
        ka.assert_scratch_within(high(512, leaky), enough)
    with pytest.raises(KernelError, match=r"capacity.*holds 1048576 bytes"):
        high(65536, leaky)


@pytest.mark.adr("0060", "11.6")
def test_11_6_units_that_wait_for_each_other(split, case, broken, ahbm_spec):
    """One PE's share of 128K tokens on eight, which has to come within 1.35 of the lower bound."""
    serial = broken(gqa_decode_batch, {QK: f"self.tl.wait({QK})", PV: f"tl.wait({PV})"})
    each = case(kv_len=16384, structure=True)
    limits = latency_bounds(Decode(s=16384, tile=1024, ops_per_score=6, instructions_per_tile=12), ahbm_spec)
    good, bad = (split([each], 1, tile=1024, kernel=kernel).run for kernel in (None, serial))

    ka.assert_latency_between(good, limits.lower, limits.upper, ratio=1.35)
    ka.assert_overlap(good, "MATH", "GEMM", at_least=0.7)
    with refused("1.35"):
        ka.assert_latency_between(bad, limits.lower, limits.upper, ratio=1.35)
    with refused("MATH and GEMM overlap"):
        ka.assert_overlap(bad, "MATH", "GEMM", at_least=0.7)


@pytest.mark.adr("0060", "11.7")
def test_11_7_a_wait_before_the_next_tile_is_said(split, case, broken):
    waiting = broken(gqa_decode_batch, {QK: f"self.tl.wait({QK})"})
    each = case(kv_len=100, structure=True, **SMALL)

    ka.assert_issue_ahead(split([each], 1, tile=16).run, 1, region="QK")
    with refused("expected 1 ahead"):
        ka.assert_issue_ahead(split([each], 1, tile=16, kernel=waiting).run, 1, region="QK")


@pytest.mark.adr("0060", "11.7")
def test_11_7_blocking_dots(decode, baseline, problem):
    case = problem(s=100, n=2, data=False)

    ka.assert_composite_offload(decode(case), streamed=("K", "V"))
    with refused("blocking dots beside 0 composites"):
        ka.assert_composite_offload(baseline(case))


@pytest.mark.adr("0060", "11.7")
def test_11_7_keys_that_are_loaded_beside_the_panels(split, case, broken):
    loading = broken(gqa_decode_batch, {"Tile(tl.ref(k + first * d, (width": "Tile(tl.load(k + first * d, (width"})
    run = split([case(kv_len=16, structure=True, **SMALL)], 1, tile=16, kernel=loading).run

    ka.assert_composite_offload(run)
    with refused("0 of 1 reads of K are panels"):
        ka.assert_composite_offload(run, streamed=("K",))


@pytest.mark.adr("0060", "11.8")
def test_11_8_a_result_that_depends_on_the_schedule(split, case, broken):
    each, bad = case(kv_len=100, **SMALL), broken(gqa_decode_batch, FAULTS["B-01"])

    def make_run(kernel, **how):
        return lambda schedule, seed: (
            split([each], 1, tile=16, kernel=kernel, run={**how, "schedule": schedule, "seed": seed}).run
        )

    ka.assert_schedule_independent(make_run(None), ["O"], seeds=range(2))
    with refused("under schedule"):
        ka.assert_schedule_independent(make_run(bad, check=False), ["O"], seeds=range(2))


@pytest.mark.adr("0060", "11.8")
def test_11_8_an_order_that_only_timing_keeps(split, case, broken):
    each, bad = case(kv_len=100, **SMALL), broken(gqa_decode_batch, FAULTS["B-01"])

    ka.assert_no_races(split([each], 1, tile=16, run=COLLECT).run)
    with refused("race-raw"):
        ka.assert_no_races(split([each], 1, tile=16, kernel=bad, run=COLLECT).run)


@pytest.mark.adr("0060", "11.8")
def test_11_8_a_log_that_depends_on_what_ran_before(split, case):
    launches = itertools.count()

    def alternating(*args, tile, tl, **options):
        gqa_decode_batch(*args, tile=tile + next(launches) % 2, tl=tl, **options)

    each = case(kv_len=100, structure=True, **SMALL)
    ka.assert_deterministic(lambda: split([each], 1, tile=16).run)
    with refused("run 2 is not run 1"):
        ka.assert_deterministic(lambda: split([each], 1, tile=16, kernel=alternating).run)


# --- B: items of the hybrid -------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "B.2")
def test_b_2_k_the_wrong_way_round(prefill, case, broken):
    """Tile, d and query rows are all 64: every shape fits, and Q.K would be computed in the place of Q.K^T (R1)."""
    flat = broken(gqa_prefill_batch, FAULTS["B-57"])
    each = case(t_q=16, kv_len=128, **SMALL)

    each.check(prefill([each], tile=64).outputs[0])
    with pytest.raises(KernelError, match=r"contracts axis 'd' of a \(64, 64\) with axis 'token' of b \(64, 64\)"):
        prefill([each], tile=64, kernel=flat)


@pytest.mark.adr("0060", "B.2", "2.1")
def test_b_2_rows_that_lie_apart_are_charged_by_run(run_kernel, ahbm_chip):
    """K as [d, capacity]: a tile is d runs of few bytes each, and takes longer than as rows of d."""

    def rows(k, *, tl):
        tl.wait(tl.load(k, (64, 128)))

    def columns(k, *, tl):
        tl.wait(tl.load(k, (128, 64), strides=(1024, 1)))

    k = ahbm_chip.tensor("K", (1024, 128), "bfloat16")
    good, bad = (run_kernel(kernel, k, on=ahbm_chip) for kernel in (rows, columns))

    assert [list(run.log.where(name="load").runs) for run in (good, bad)] == [[1], [128]]
    ka.assert_bytes_read(bad, "K", 64 * 128 * 2)
    assert bad.cycles > good.cycles


@pytest.mark.adr("0060", "B.3")
def test_b_3_one_score_buffer(prefill, case, broken):
    single = broken(gqa_prefill_batch, FAULTS["B-02"])
    each = case(t_q=16, kv_len=128, structure=True, **SMALL)

    ka.assert_no_races(prefill([each], tile=32, run=COLLECT).run)
    with refused("race-"):
        ka.assert_no_races(prefill([each], tile=32, kernel=single, run=COLLECT).run)


@pytest.mark.adr("0060", "B.3")
def test_b_3_a_scope_that_is_left_with_a_product_into_it(run_kernel, ahbm_chip):
    def kernel(q, k, waits, *, tl):
        a = tl.load(q, (8, 128))
        with tl.scratch_scope():
            scores = tl.composite("gemm", a, tl.ref(k, (64, 128)), trans_b=True)
            if waits:
                tl.wait(scores)

    q, k = ahbm_chip.tensor("Q", (8, 128), "bfloat16"), ahbm_chip.tensor("K", (64, 128), "bfloat16")
    good, bad = (run_kernel(kernel, q, k, waits, on=ahbm_chip, **COLLECT) for waits in (True, False))

    ka.assert_no_use_after_recycle(good)
    with refused("recycle-in-flight"):
        ka.assert_no_use_after_recycle(bad)


@pytest.mark.adr("0060", "B.4", "11.2")
@pytest.mark.parametrize("t_q", [1, 16])
def test_b_4_a_streamed_operand_is_read_again_for_more_rows(split, case, t_q):
    """64 rows and more, 32 at a time: what a plan that runs M outermost reads (R34)."""
    each = case(kv_len=100, t_q=t_q, d=64, d_v=64, group=64 if t_q == 1 else 4)
    good, bad = (split([each], 1, tile=32, kernel=kernel) for kernel in (None, in_parts(gqa_decode_batch, 32 // t_q)))

    for tensor in ("K", "V"):
        ka.assert_bytes_read(good.run, tensor, 100 * 64 * 2)
        with refused(f"25600 bytes of {tensor} are read, expected 12800"):
            ka.assert_bytes_read(bad.run, tensor, 100 * 64 * 2)
    each.check(bad.outputs[0])


@pytest.mark.adr("0060", "B.5", "5.2")
def test_b_5_a_tail_that_is_rounded_up_to_the_array(split, case, broken):
    """Right for tiles and contexts of 32, and only for those: elsewhere the next request's keys are taken in."""
    width = "            width = positions.count\n            yield"
    up = width.replace(
        "positions.count\n", "-(-positions.count // 32) * 32\n            positions = Span(positions.first, width)\n"
    )
    rounded = broken(gqa_decode_batch, {width: up})
    aligned, ragged = case(kv_len=96, **SMALL), case(kv_len=100, **SMALL)

    for each in (aligned, ragged):
        for tile in (32, 20):
            each.check(split([each, aligned], 1, tile=tile).outputs[0])
    aligned.check(split([aligned, aligned], 1, tile=32, kernel=rounded).outputs[0])
    with refused("off by"):
        ragged.check(split([ragged, aligned], 1, tile=32, kernel=rounded).outputs[0])
    with pytest.raises(KernelError, match="out-of-bounds"):
        split([aligned], 1, tile=20, kernel=rounded)


def assert_composites_save_time(hybrid, other, free):
    """B.6: from runs that pay for what they say, and with the run beside them that does not."""
    assert any(hybrid.spec.issue_costs.values()), "a claim from runs without issue costs"
    assert hybrid.spec == other.spec and not any(free.spec.issue_costs.values())
    assert hybrid.cycles < other.cycles, f"{hybrid.cycles} cycles with composites, {other.cycles} without"
    assert free.cycles < hybrid.cycles


@pytest.mark.adr("0060", "B.6")
def test_b_6_a_claim_without_issue_costs(decode, baseline, problem):
    case, for_nothing = problem(s=2048, n=2, tile=64, data=False), AhbmChip(AhbmSpec(issue_costs=0))
    hybrid, free, other = decode(case), decode(case, on=for_nothing), baseline(case)

    assert_composites_save_time(hybrid, other, free)
    with refused("a claim from runs without issue costs"):
        assert_composites_save_time(free, other, free)
    with refused("cycles with composites"):
        assert_composites_save_time(other, hybrid, free)


@pytest.mark.adr("0060", "B.7", "11.7")
def test_b_7_ring_products_by_dot(ring, case, broken):
    dotted = broken(gqa_ring, {QK: "self.tl.mul(self.tl.dot(self.q, tile.k, trans_b=True), scale, out=out)"})
    each = case(t_q=32, kv_len=32, **SMALL)
    good, bad = (ring(each, 2, tile=16, kernel=kernel) for kernel in (None, dotted))

    ka.assert_composite_offload(good.run)
    each.check(bad.outputs[0])
    with refused("blocking dots beside"):
        ka.assert_composite_offload(bad.run)


# --- 0.5 to 10: the contract ------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "0.5.1")
def test_0_5_1_a_kernel_that_appends_to_the_cache(split, case):
    def appending(q, k, v, *args, tl, **options):
        tl.wait(tl.store(k + 99 * k.row, tl.cast(tl.zeros((1, k.row)), k.dtype)))
        gqa_decode_batch(q, k, v, *args, tl=tl, **options)

    each = case(kv_len=100, structure=True, **SMALL)
    good, bad = (split([each], 1, kernel=kernel).log for kernel in (None, appending))

    assert len(good.where(writes=("K", "V", "Q"))) == 0
    assert len(bad.where(writes=("K", "V", "Q"))) == 1


@pytest.mark.adr("0060", "0.5.2")
@pytest.mark.parametrize("edits", [
    {"stored = tl.cast(p, tile.v.dtype, out=next(self._stored[tile.width]))": "stored = p"},
    {"m_other, l_other = tl.recv(side, m.shape), tl": 'm_other, l_other = tl.recv(side, m.shape, "bfloat16"), tl'},
], ids=["P is not cast", "m in the storage dtype"])  # fmt: skip
def test_0_5_2_a_dtype_that_the_contract_does_not_have(split, case, broken, edits):
    with pytest.raises(KernelError, match="bfloat16"):
        split([case(kv_len=100, **SMALL)], 2, kernel=broken(gqa_decode_batch, edits))


@pytest.mark.adr("0060", "0.5.3", "2.2")
def test_2_2_a_length_from_before_the_append(split, case):
    """The newest token is missed, by one PE alone (R14)."""

    def too_early(q, k, v, o, requests, n, *, tl, **options):
        gqa_decode_batch(q, k, v, o, [Request(each.kv_len - 1) for each in requests], n, tl=tl, **options)

    each = case(kv_len=20, **SMALL)

    matches(split([each], 8), each)
    with refused("elements of O are off"):
        matches(split([each], 8, kernel=too_early), each)


@pytest.mark.adr("0060", "0.5.4")
def test_0_5_4_two_programs_store(split, case, broken):
    store = ":\n                store_result(state"
    twice = broken(gqa_decode_batch, {f"rank == shape.root{store}": f"rank >= shape.root - 1{store}"})
    each = case(kv_len=100, **SMALL)
    good, bad = (split([each], 8, kernel=kernel, run=COLLECT) for kernel in (None, twice))

    assert [row.program for row in good.log.where(unit="DMA_W")] == [7]
    assert {row.program for row in bad.log.where(unit="DMA_W")} == {6, 7}
    ka.assert_no_races(good.run)
    with refused("race-waw"):
        ka.assert_no_races(bad.run)


@pytest.mark.adr("0060", "0.5.4", "4")
def test_0_5_4_a_result_that_is_not_normalised(split, case, broken):
    edits = {"return o / tl.maximum(l, 1e-30)": "return tl.mul(o, 1.0)"}
    each = case(kv_len=100, **SMALL)

    with refused("elements of O are off"):
        matches(split([each], 2, kernel=broken(gqa_decode_batch, edits)), each)


@pytest.mark.adr("0060", "2.1", "2.2", "5.3")
@pytest.mark.parametrize(
    ("edits", "sizes"),
    [
        ({"return (rank - start_pe) % n": "return rank % n"}, {"kv_len": 21}),
        ({"Span(token_of(0, rank, request.start_pe, n), length, n)": "Span(rank * length, length)"},
         {"kv_len": 40, "t_q": 12}),
    ],
    ids=["start_pe is forgotten", "a run of tokens in the place of every n-th"],
)  # fmt: skip
def test_2_1_tokens_that_are_looked_for_elsewhere(split, case, broken, edits, sizes):
    each = case(**sizes, **SMALL)
    each.check(split([each], 5, start_pes=[3]).outputs[0])
    outcome = split([each], 5, start_pes=[3], kernel=broken(gqa_decode_batch, edits), run=COLLECT)

    with refused("off by"):
        each.check(outcome.outputs[0])


@pytest.mark.adr("0060", "3", "5.4")
def test_3_a_mask_that_is_finite(prefill, case, broken):
    """Keys up to the first query score near -18000 and the ones behind it near 0: -1e4 less is not enough (R20)."""
    each = case(t_q=12, kv_len=24, **SMALL)
    k = each.problem.k.astype(np.float32) / 8
    k[:, :13] -= 40
    low = replace(each, problem=replace(each.problem, q=each.problem.q * 0 + 57, k=k.astype(each.problem.k.dtype)))

    low.check(prefill([low], tile=16).outputs[0])
    with refused("off by"):
        low.check(prefill([low], tile=16, kernel=broken(gqa_prefill_batch, FAULTS["B-32"])).outputs[0])


@pytest.mark.adr("0060", "3")
def test_3_an_offset_that_counts_other_units_than_elements(split, case, broken):
    """Half way into each tile: tiles overlap, and the last tokens are never read (R4)."""
    edits = {"Tile(tl.ref(k + first * d, (width, d))": "Tile(tl.ref(k + first * d // 2, (width, d))"}
    each = case(kv_len=100, **SMALL)

    with refused("elements of O are off"):
        matches(split([each], 1, tile=16, kernel=broken(gqa_decode_batch, edits)), each)


@pytest.mark.adr("0060", "4", "11.3")
def test_4_ranks_that_are_numbered_row_by_row(split, case, broken):
    """Edges 1-3 and 5-7 of the tree are two hops then (R23)."""
    by_row = broken(gqa_decode_batch, {"_gray(ident // cols) * cols + _gray(ident % cols)": "ident"})
    run = {"placement": tuple(range(8))}

    with pytest.raises(ValueError, match="2 hops apart on a 2x4 mesh"):
        split([case(kv_len=100, structure=True, **SMALL)], 8, kernel=by_row, run=run)


@pytest.mark.adr("0060", "4", "5.1", "5.3")
def test_4_ranks_without_tokens_that_stay_away(split, case, broken):
    absent = broken(gqa_decode_batch, FAULTS["B-14"])
    each = case(kv_len=3, **SMALL)
    good, bad = (split([each], 8, kernel=kernel, run=COLLECT) for kernel in (None, absent))

    ka.assert_queues_drained(good.run)
    with refused("is not drained"):
        ka.assert_queues_drained(bad.run)
    with refused("off by"):
        each.check(bad.outputs[0])


@pytest.mark.adr("0060", "3", "4", "5.4")
@pytest.mark.parametrize(
    ("kv_len", "edits"),
    [
        (3, FAULTS["B-23"]),
        (0, {"o / tl.maximum(l, 1e-30)": "o / l"}),
        (4, FAULTS["B-26"]),
    ],
    ids=["both sides empty", "l is 0", "a row without a key in its first tile"],
)
def test_4_minus_infinity_minus_itself(split, case, broken, kv_len, edits):
    """R18, R19: NaN where nothing was seen."""
    each = case(kv_len=kv_len, t_q=1 if kv_len < 4 else 6, **SMALL)

    each.check(split([each], 8, tile=4).outputs[0])
    with pytest.raises(HazardError, match=r"^first-nan \(1 in all\)"):
        split([each], 8, tile=4, kernel=broken(gqa_decode_batch, edits))


@pytest.mark.adr("0060", "5.1")
def test_5_1_a_loop_over_the_length_of_the_whole_request(split, case, broken):
    """Beyond a PE's own rows there are none (R13)."""
    edits = {
        "valid_len(request.kv_len, request.start_pe, rank, n)\n            keys": "request.kv_len\n            keys"
    }

    with pytest.raises(KernelError, match="out-of-bounds"):
        split([case(kv_len=100, **SMALL)], 2, tile=16, kernel=broken(gqa_decode_batch, edits))


@pytest.mark.adr("0060", "5.2")
@pytest.mark.parametrize("edits", [
    {'heads_first = block.layout == "head"': "heads_first = True"},
    {'(of_head, of_token) if block.layout == "head" else (of_token, of_head)': "(of_head, of_token)"},
], ids=["the mask", "the rows"])  # fmt: skip
def test_5_2_rows_in_another_order_than_declared(prefill, case, broken, edits):
    """Four heads of four positions: every shape fits (R11)."""
    each = case(t_q=4, kv_len=20, **SMALL)

    each.check(prefill([each], layout="token").outputs[0])
    with refused("off by"):
        each.check(prefill([each], layout="token", kernel=broken(gqa_prefill_batch, edits)).outputs[0])


@pytest.mark.adr("0060", "5.3")
def test_5_3_a_slice_of_another_pe(run_kernel, ahbm_chip):
    """The column that tells it: -1 is one's own HBM."""

    def kernel(own, far, *, tl):
        tl.wait(tl.load(own, (8, 64)), tl.load(far, (8, 64)))

    own, far = ahbm_chip.tensor("own", (8, 64)), ahbm_chip.tensor("far", (8, 64), place=0)
    log = run_kernel(kernel, own, far, on=ahbm_chip, grid=2).log

    assert set(log.where(reads="own").peer) == {-1}
    assert set(log.where(reads="far", program=1).peer) == {0}


@pytest.mark.adr("0060", "5.4", "3")
@pytest.mark.parametrize(
    "edits",
    [
        {"queries.first - keys.first, queries.step)": "-keys.first, queries.step)"},
        {"some = tile.seen is not Sight.ALL": "some = False"},
        {"tl.where(column <= row, 0.0": "tl.where(column < row, 0.0"},
    ],
    ids=["q_start is not counted", "no mask", "a query does not see itself"],
)
def test_5_4_a_mask_of_something_else_than_positions(prefill, case, broken, edits):
    each = case(t_q=12, kv_len=30, q_start=9, **SMALL)

    each.check(prefill([each], tile=8).outputs[0])
    with refused("off by"):
        each.check(prefill([each], tile=8, kernel=broken(gqa_prefill_batch, edits)).outputs[0])


@pytest.mark.adr("0060", "5.4")
def test_5_4_a_mask_where_everything_is_seen(prefill, case, broken):
    """`ke <= qs` in the place of `ke <= qs + 1`: right, and a mask for every decode step too many (R41)."""
    edits = {"if least >= 0 and (window is None": "if least > 0 and (window is None"}
    each = case(t_q=1, kv_len=64, structure=True, **SMALL)
    good, bad = (prefill([each], tile=32, kernel=kernel) for kernel in (None, broken(gqa_prefill_batch, edits)))

    assert len(good.log.where(name="where")) == 0
    assert len(bad.log.where(name="where")) == 1


def assert_same_control(make_log):
    """Clause 7: the log is the same for other values."""
    logs = [make_log(seed) for seed in (1, 2, 3)]
    assert len({log.cells.tobytes() for log in logs}) == 1, "control depends on values"


@pytest.mark.adr("0060", "7")
def test_7_control_that_depends_on_values(split, case):
    def looking(each):
        def kernel(*args, tile, tl, **options):
            gqa_decode_batch(*args, tile=tile + int(each.problem.v[0, 0, 0] > 0), tl=tl, **options)

        return kernel

    cases = {seed: case(kv_len=100, seed=seed, **SMALL) for seed in (1, 2, 3)}

    assert_same_control(lambda seed: split([cases[seed]], 2, tile=16).log)
    with refused("control depends on values"):
        assert_same_control(lambda seed: split([cases[seed]], 2, tile=16, kernel=looking(cases[seed])).log)


@pytest.mark.adr("0060", "10", "5.4")
def test_10_a_state_that_goes_on_to_other_queries(prefill, case, broken):
    """One m, l, O for all query blocks: each block but the first has those of others in it."""
    edits = {
        "    for request in requests:\n        cache = k + request.kv_row * k.row, v + request.kv_row * v.row\n": (
            "    state = empty_state(group * q_block, v.row, tl)\n"
            "    for request in requests:\n        cache = k + request.kv_row * k.row, v + request.kv_row * v.row\n"
        ),
        "            with tl.scratch_scope():\n                state = empty_state(block.rows, v.row, tl)\n"
        "                keys = Span(0, request.kv_len)": (
            "            if True:\n                keys = Span(0, request.kv_len)"
        ),
    }
    each = case(t_q=32, kv_len=32, **SMALL)
    shared = broken(gqa_prefill_batch, edits)

    each.check(prefill([each], tile=32, q_block=16).outputs[0])
    with refused("off by"):
        each.check(prefill([each], tile=32, q_block=16, kernel=shared).outputs[0])
