"""What prefill issues, reads, computes, masks, takes of the scratch and overlaps, counted against its closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes, largest_q_block
from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Depth, Rules
from pytest_kernbench.kernels.ahbm.requests import Request
from pytest_kernbench.kernels.reference.bounds import PrefillWork, latency_bounds
from pytest_kernbench.kernels.reference.causal import Prefill
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.errors import KernelError
from pytest_kernbench.simulator.ops.retime import retime

SHAPES = [  # t_q, kv_len, q_start, q_block, tile, window
    (128, 128, None, 32, 32, None),
    (256, 256, None, 64, 32, None),
    (113, 203, None, 24, 37, None),
    (128, 217, None, 32, 64, None),
    (217, 128, None, 16, 48, None),
    (40, 200, 90, 16, 32, None),
    (1, 100, None, 16, 32, None),
    (128, 128, None, 32, 32, 48),
    (113, 203, None, 24, 37, 20),
]


LLAMA_SIZES = Sizes(group=8, d=128, d_v=128, itemsize=2, tile=64, rules=Rules(1.0), depth=INTERLEAVED)


def counted(problem, q_block, tile):
    """The closed form of a request."""
    return Prefill(
        t_q=problem.t_q, kv_len=problem.kv_len, q_start=problem.first, q_block=q_block, tile=tile, window=problem.window
    )


@pytest.fixture(params=SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def measured(request, prefill, case):
    """A run without data, on two cubes, and its closed form."""
    t_q, kv_len, q_start, q_block, tile, window = request.param
    sizes = {"t_q": t_q, "kv_len": kv_len, "q_start": q_start, "window": window}
    each = case(**sizes, heads=2, group=4, d=64, d_v=128, structure=True)
    return prefill([each], tile=tile, q_block=q_block).run, counted(each.problem, q_block, tile)


# --- products, bytes, work, masks -------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "11.4", "5.4", "11.7")
def test_two_products_for_each_pair_with_a_visible_key_and_none_for_any_other(measured):
    run, form = measured

    ka.assert_gemm_count(run, [form.gemm_count] * 2)
    ka.assert_composite_offload(run, streamed=("K", "V"))


@pytest.mark.adr("0060", "11.2", "B.4", "5.4")
def test_k_and_v_are_read_for_the_visited_tiles_alone_to_the_byte(measured):
    """Once a query block, however many row tiles it has: 4 heads of 64 positions are 8 of them (R34)."""
    run, form = measured

    ka.assert_bytes_read(run, "K", [form.kv_rows_read * 64 * 2] * 2)
    ka.assert_bytes_read(run, "V", [form.kv_rows_read * 128 * 2] * 2)
    assert 2 * form.kv_bytes_read(64, 2, d_v=128) == sum(run.log.where(name="panel").bytes)


@pytest.mark.adr("0060", "11.2", "11.4")
def test_work_is_that_of_the_visited_pairs(measured):
    run, form = measured

    assert run.log.where(name="gemm").work.sum() == 2 * form.macs(4, 64, d_v=128)


@pytest.mark.adr("0060", "5.4", "3")
def test_masks_are_made_on_partial_tiles_alone(measured):
    run, form = measured
    sides = 1 if form.window is None else 2

    assert len(run.log.where(name="where")) == 2 * form.partial_pairs * sides
    assert len(run.log.where(name="iota")) == 2 * form.partial_pairs * 2


@pytest.mark.adr("0060", "11.4", "5.4")
def test_a_square_prefill_is_the_triangle_of_tiles(prefill, case):
    """Four blocks and tiles of 32: 10 pairs of 16, 4 of them on the boundary."""
    run = prefill([case(t_q=128, kv_len=128, structure=True)], tile=32, q_block=32).run

    ka.assert_gemm_count(run, 2 * 10)
    assert len(run.log.where(name="where")) == 4


@pytest.mark.adr("0060", "5.4")
@pytest.mark.parametrize("t_q", [1, 33])
def test_a_tile_that_ends_at_the_first_query_is_past(prefill, case, t_q):
    """`ke = qs + 1` needs no mask (R41): a single last query needs none at all, 33 need one for their own tile only."""
    run = prefill([case(t_q=t_q, kv_len=65 if t_q == 33 else 64, structure=True)], tile=33, q_block=33).run

    assert len(run.log.where(name="where")) == (0 if t_q == 1 else 1)


@pytest.mark.adr("0060", "5.1", "7")
def test_control_does_not_depend_on_values(prefill, case):
    logs = [prefill([case(t_q=60, kv_len=90, d=64, d_v=64, seed=seed)], tile=32).log for seed in (1, 2)]

    assert logs[0].cells.tobytes() == logs[1].cells.tobytes()


@pytest.mark.adr("0060", "0.5.1", "0.5.4", "10")
def test_only_o_is_written_each_block_once_by_its_own_pe(prefill, case):
    run = prefill([case(t_q=60, kv_len=90, d=64, d_v=64, heads=2, structure=True)], tile=32, q_block=16).run

    stores = run.log.where(unit="DMA_W")
    assert len(stores) == 2 * 4 and len(run.log.where(writes=("K", "V", "Q"))) == 0
    assert stores.bytes.sum() == 2 * 8 * 60 * 64 * 2
    assert len(run.log.where(name="send")) == 0


# --- skip against mask ------------------------------------------------------------------------------------------------

SKIPPED = [
    {"t_q": 60, "kv_len": 60},
    {"t_q": 20, "kv_len": 90, "q_start": 30},
    {"t_q": 50, "kv_len": 40},
    {"t_q": 60, "kv_len": 90, "window": 17},
    {"t_q": 40, "kv_len": 90, "window": 40, "softcap": 2.0},
]


@pytest.mark.adr("0060", "11.4", "5.4", "3")
@pytest.mark.parametrize("sizes", SKIPPED, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_skipping_changes_no_bit_against_compute_then_mask(prefill, case, sizes, dtype):
    each = case(**sizes, d=64, d_v=64, group=2, dtype=dtype)
    skipped, masked = (prefill([each], tile=16, q_block=16, skip=skip) for skip in (True, False))

    assert skipped.outputs[0].tobytes() == masked.outputs[0].tobytes()
    assert len(skipped.log.where(name="composite")) < len(masked.log.where(name="composite"))
    each.check(masked.outputs[0])


@pytest.mark.adr("0060", "5.4", "3")
@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("sizes", SKIPPED, ids=str)
def test_skipping_changes_no_bit_where_keys_are_split(split, case, sizes, n):
    each = case(**sizes, d=64, d_v=64, group=2)
    skipped, masked = (split([each], n, tile=4, skip=skip) for skip in (True, False))

    assert skipped.outputs[0].tobytes() == masked.outputs[0].tobytes()
    assert len(skipped.log.where(name="composite")) <= len(masked.log.where(name="composite"))


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "11.7", "B.3")
def test_scores_of_the_next_tile_are_issued_before_this_one_is_awaited(prefill, case):
    run = prefill([case(t_q=16, kv_len=256, structure=True)], tile=32, q_block=16).run

    ka.assert_issue_ahead(run, 1, region="QK")
    targets = [row.operands[-1].offset for row in run.log.where(name="composite", region="QK")]
    assert targets[::2] == [targets[0]] * 4 and targets[1::2] == [targets[1]] * 4 and targets[0] != targets[1]


def work_of(form, **dims):
    """The kernel's MATH, counted in `flash_sweep` and `gqa_prefill`.

    A tile: max, sub, exp (2 cycles), cast and sum of every score; two passes over O; five columns. A mask: two counts,
    compare, choose, add, and the floor of m. A block: three fills, and two to normalise.
    """
    counts = {"ops_per_score": 6, "ops_per_output": 2, "instructions_per_tile": 12}
    masks = {"ops_per_masked_score": 1, "instructions_per_masked_tile": 6}
    return PrefillWork(prefill=form, **counts, **masks, instructions_per_block=5, **dims)


@pytest.mark.adr("0060", "11.6")
@pytest.mark.parametrize(
    ("q_block", "tile", "ratio"), [(16, 64, 1.27), (16, 128, 1.39), (24, 128, 1.40), (16, 256, 1.65)]
)
def test_latency_lies_between_the_busiest_unit_and_everything_in_turn(
    prefill, case, ahbm_spec, record_property, q_block, tile, ratio
):
    """1.257, 1.380, 1.382 and 1.634 of the lower bound, MATH's: a block's last tile is folded beside nothing."""
    each = case(t_q=512, kv_len=512, structure=True)
    run = prefill([each], tile=tile, q_block=q_block).run
    work = work_of(counted(each.problem, q_block, tile))
    limits = latency_bounds(work, ahbm_spec)

    assert len(run.log.where(unit="MATH")) == work.instructions  # or the bounds are of another kernel
    record_property("cycles over the lower bound", round(run.cycles / limits.lower, 3))
    ka.assert_latency_between(run, limits.lower, limits.upper, ratio=ratio)


@pytest.mark.adr("0060", "11.6", "11.7")
def test_units_work_beside_each_other(prefill, case):
    run = prefill([case(t_q=128, kv_len=512, structure=True)], tile=128, q_block=16).run

    ka.assert_overlap(run, "MATH", "GEMM", at_least=0.8)  # 0.32 if nothing is issued ahead
    ka.assert_overlap(run, "DMA", "GEMM", at_least=0.5)
    ka.assert_overlap(run, "MATH", "DMA", at_least=0.6)


@pytest.mark.adr("0060", "11.6")
def test_the_softmax_beside_the_product_before_saves_time(prefill, case):
    """Two P.V in flight against one: the depth that prefill takes unless it is told another."""
    each = case(t_q=64, kv_len=1024, structure=True)
    cycles = [prefill([each], tile=128, depth=depth).run.cycles for depth in (INTERLEAVED, Depth())]

    assert cycles[0] < 0.92 * cycles[1]


@pytest.mark.adr("0060", "11.8")
def test_two_runs_have_one_log(prefill, case):
    each = case(t_q=60, kv_len=90, d=64, d_v=64, heads=2, structure=True)

    ka.assert_deterministic(lambda: prefill([each], tile=32, q_block=16).run)


@pytest.mark.adr("0060", "11.8", "5.4")
@pytest.mark.parametrize("window", [None, 20])
def test_no_schedule_changes_a_bit_of_the_result(prefill, case, window):
    each = case(t_q=60, kv_len=90, d=64, d_v=64, window=window)

    def make_run(schedule, seed):
        return prefill([each], tile=32, q_block=16, run={"schedule": schedule, "seed": seed}).run

    ka.assert_schedule_independent(make_run, ["O"], seeds=range(3))


@pytest.mark.adr("0060", "11.8", "11.6")
@pytest.mark.parametrize("q_block", [8, 16])
def test_retime_finds_the_times_of_the_log(prefill, case, ahbm_spec, q_block):
    run = prefill([case(t_q=100, kv_len=150, structure=True)], tile=32, q_block=q_block).run

    assert not len(retime(run.log, Timing(ahbm_spec)).changed)


@pytest.mark.adr("0060", "11.4", "11.5")
def test_8192_tokens_at_llama_dimensions(prefill, case):
    """5 s on one core, all checkers on: 1.35 million rows, most of them sub-tiles."""
    each = case(t_q=8192, kv_len=8192, structure=True)
    form = counted(each.problem, 16, 256)
    run = prefill([each], tile=256, q_block=16).run

    ka.assert_gemm_count(run, form.gemm_count)
    ka.assert_bytes_read(run, "K", form.kv_bytes_read(128, 2) // 2)


# --- scratch ----------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "11.5", "5.4")
@pytest.mark.parametrize("depth", [INTERLEAVED, Depth(), Depth(0), Depth(2, 3)], ids=str)
@pytest.mark.parametrize(
    ("t_q", "kv_len", "q_block", "tile", "window", "dtype"),
    [
        (64, 256, 16, 32, None, "bfloat16"),
        (64, 256, 16, 64, 100, "bfloat16"),
        (64, 256, 8, 32, None, "float32"),
        (60, 250, 16, 32, None, "bfloat16"),
    ],
)
def test_the_budget_is_the_high_water_mark(prefill, case, t_q, kv_len, q_block, tile, window, dtype, depth):
    announced = []
    each = case(t_q=t_q, kv_len=kv_len, window=window, dtype=dtype, structure=True)
    run = prefill([each], tile=tile, q_block=q_block, depth=depth, announce=announced.append).run

    assert [each.total for each in announced] == [run.scratch_high_water]


@pytest.mark.adr("0060", "11.5")
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("layout", ["head", "token"])
def test_the_budget_is_exact_where_masks_take_most(prefill, case, window, layout):
    """Narrow values and wide tiles: what folding needs is more than what storing does."""
    announced = []
    each = case(t_q=64, kv_len=512, d_v=16, window=window, structure=True)
    run = prefill([each], tile=128, layout=layout, announce=announced.append).run

    assert announced[0].folding > announced[0].storing
    assert announced[0].total == run.scratch_high_water


@pytest.mark.adr("0060", "11.5", "5.4")
def test_the_budget_is_said_once_a_launch(prefill, case, capsys):
    cases = [case(t_q=20, kv_len=40, heads=2, structure=True), case(t_q=3, kv_len=90, heads=2, structure=True)]
    prefill(cases, tile=32, q_block=16)

    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert said[0].startswith("scratch budget of a query block: ") and "bytes (state " in said[0]
    assert said[0].endswith("16 positions are 128 rows, tiles of 32")


@pytest.mark.adr("0060", "11.5")
def test_the_budget_of_a_batch_is_that_of_its_largest_request():
    requests = [Request(40, 20), Request(900, 3)]
    alone = [Budget.of_prefill([each], 16, LLAMA_SIZES).total for each in requests]

    assert Budget.of_prefill(requests, 16, LLAMA_SIZES).total == max(alone)


@pytest.mark.adr("0060", "11.5", "5.4")
@pytest.mark.parametrize(("tile", "d"), [(64, 128), (128, 128), (256, 128), (128, 64)])
def test_the_largest_query_block_runs_and_one_more_position_does_not(prefill, case, tile, d):
    """R36 with this kernel's own buffers: its interleaved depth keeps two of everything."""
    each = case(t_q=100, kv_len=1024, d=d, d_v=d, structure=True)
    most = largest_q_block(1 << 20, 100, 1024, replace(LLAMA_SIZES, tile=tile, d=d, d_v=d))
    high = prefill([each], tile=tile, q_block=most).run.scratch_high_water

    assert 1 <= most < 100 and high <= 1 << 20
    with pytest.raises(KernelError, match=r"capacity.*holds 1048576 bytes"):
        prefill([each], tile=tile, q_block=most + 1)


@pytest.mark.adr("0060", "11.5")
def test_no_query_block_is_larger_than_the_queries():
    assert largest_q_block(1 << 20, 10, 1024, LLAMA_SIZES) == 10


@pytest.mark.adr("0060", "11.5")
def test_a_tile_that_leaves_no_room_for_one_position_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"one position of 8 heads takes \d+ bytes of scratch .* there are 1048576"):
        largest_q_block(1 << 20, 16, 65536, replace(LLAMA_SIZES, tile=32768))


@pytest.mark.adr("0060", "11.5")
def test_scratch_does_not_grow_with_the_context(prefill, case):
    marks = {
        prefill([case(t_q=32, kv_len=s, structure=True)], tile=128).run.scratch_high_water for s in (512, 2048, 8192)
    }

    assert len(marks) == 1
