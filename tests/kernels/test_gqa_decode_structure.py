"""What decode reads, computes, sends and overlaps is what ADR-0060 promises, counted in its log."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement, tree
from pytest_kernbench.kernels.reference.bounds import Decode, latency_bounds
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.errors import KernelError

LLAMA = {"s": 8192, "n": 8, "tile": 256, "data": False}


@pytest.mark.adr("0060", "11.2", "B.4")
def test_kv_traffic_does_not_grow_with_the_group_and_work_does(decode, problem):
    runs = {g: decode(problem(**LLAMA, group=g)) for g in (1, 2, 4, 8)}

    ka.assert_dma_reads_independent_of_group(runs, tensors=("K", "V"))
    ka.assert_work_scales_with_group(runs, unit="GEMM")


@pytest.mark.adr("0060", "11.2", "B.4")
@pytest.mark.parametrize(("group", "n"), [(8, 3), (64, 1)], ids=["one row tile", "two row tiles"])
def test_k_and_v_are_read_once_to_the_byte(decode, problem, group, n):
    """64 rows are two M tiles: the streamed operand is pinned, not read again (R34)."""
    case = problem(s=1000, n=n, group=group, data=False)
    run = decode(case)

    expected = [length * case.d * 2 for length in case.lengths]
    ka.assert_bytes_read(run, "K", expected)
    ka.assert_bytes_read(run, "V", expected)
    macs = run.log.where(name="gemm").work.sum()
    assert macs == 2 * group * 1000 * 128


@pytest.mark.adr("0060", "11.3", "4")
@pytest.mark.parametrize("n", range(1, 9))
def test_the_tree_takes_log2_n_rounds_over_one_hop_edges(decode, problem, n):
    run = decode(problem(s=100, n=n, data=False))

    assert len(run.log.where(name="send")) == len(run.log.where(name="recv")) == 3 * (n - 1)
    if n > 1:
        ka.assert_reduction_rounds(run, n)
        ka.assert_neighbour_only_hops(run)
    ka.assert_queues_drained(run)


@pytest.mark.adr("0060", "11.3", "4")
@pytest.mark.parametrize("mesh", [(4, 2), (4, 4), (1, 8), (3, 3)], ids=lambda mesh: f"{mesh[0]}x{mesh[1]}")
def test_other_meshes_reduce_in_the_rounds_of_their_tree(decode, problem, mesh):
    chip = AhbmChip(AhbmSpec(mesh_rows=mesh[0], mesh_cols=mesh[1]))
    n = mesh[0] * mesh[1]
    run = decode(problem(s=200, n=n, data=False), on=chip)

    ka.assert_reduction_rounds(run, n, tree(n, mesh).rounds)
    ka.assert_neighbour_only_hops(run)


@pytest.mark.adr("0060", "11.3")
def test_the_baseline_takes_n_minus_1_steps_where_the_tree_takes_3_rounds(baseline, problem):
    run = baseline(problem(s=100, n=8, data=False))

    assert len(run.log.where(name="send")) == 3 * 8 * 7  # every triple visits every other PE, both ways along the chain
    with pytest.raises(AssertionError):
        ka.assert_reduction_rounds(run, 8)


@pytest.mark.adr("0060", "11.7", "7")
def test_both_products_are_composites_issued_a_tile_ahead(decode, problem):
    run = decode(problem(**LLAMA))

    ka.assert_composite_offload(run, streamed=("K", "V"))
    ka.assert_issue_ahead(run, 1, region="QK")
    ka.assert_gemm_count(run, [2 * 4] * 8)


@pytest.mark.adr("0060", "7")
def test_control_does_not_depend_on_values(decode, problem):
    logs = [decode(problem(s=300, n=4, seed=seed)).log for seed in (1, 2)]

    assert logs[0].cells.tobytes() == logs[1].cells.tobytes()


@pytest.mark.adr("0060", "0.5.4", "0.5.1")
def test_only_o_is_written_to_hbm_and_kv_are_read_alone(decode, problem):
    run = decode(problem(s=1000, n=8))

    assert len(run.log.where(writes=("K", "V", "Q"))) == 0
    assert run.log.where(unit="DMA_W").bytes.sum() == 8 * 128 * 2


@pytest.mark.adr("0060", "0.5.2", "4")
def test_state_travels_in_float32(decode, problem):
    run = decode(problem(s=100, n=2))

    assert list(run.log.where(name="send").bytes) == [8 * 4, 8 * 4, 8 * 128 * 4]


@pytest.mark.adr("0060", "2.1", "B.2")
def test_a_tile_of_k_is_one_contiguous_run_a_panel(decode, problem):
    run = decode(problem(s=1024, n=1, tile=128, data=False))

    panels = run.log.where(name="panel", tensor="K")
    assert set(panels.runs) == {1}
    assert set(panels.bytes) == {32 * 128 * 2} and len(panels) == 1024 // 32


@pytest.mark.adr("0060", "5.1", "5.2", "5.3")
def test_each_pe_sweeps_its_own_tiles_and_the_last_has_its_exact_width(decode, problem):
    case = problem(s=1000, n=3, tile=100, data=False)  # 334, 333, 333 tokens a PE
    run = decode(case)

    shapes = [
        [row.shape[1] for row in run.log.where(name="composite", region="QK", program=rank)] for rank in range(case.n)
    ]
    assert shapes == [[100, 100, 100, 34], [100, 100, 100, 33], [100, 100, 100, 33]]


@pytest.mark.adr("0060", "5.1", "4")
def test_a_pe_without_tokens_sweeps_nothing_and_still_takes_part_in_the_tree(decode, problem):
    run = decode(problem(s=3, n=8, data=False))

    idle = [rank for rank in range(8) if not len(run.log.where(name="composite", program=rank))]
    assert idle == [3, 4, 5, 6, 7]
    assert {row.program for row in run.log.where(name="send")} == set(range(7))


@pytest.mark.adr("0060", "11.5", "5.2")
def test_scratch_does_not_grow_with_the_context(decode, problem):
    marks = {s: decode(problem(s=s, n=8, tile=1024, data=False)).scratch_high_water for s in (32768, 65536, 131072)}

    assert len(set(marks.values())) == 1
    ka.assert_scratch_within(decode(problem(s=32768, n=8, tile=1024, data=False)), 256 * 1024)


@pytest.mark.adr("0060", "11.5")
def test_without_scopes_the_same_sweep_runs_out_of_scratch(decode, problem, broken):
    scope = 'with tl.scratch_scope():\n            with tl.region("softmax"):\n                s ='
    leaky = broken(gqa_decode, {scope: scope.replace("with tl.scratch_scope()", "if True")})
    case = problem(s=32768, group=64, tile=32, data=False)

    with pytest.raises(KernelError, match=r"capacity.*holds 1048576 bytes"):
        decode(case, leaky)
    ka.assert_scratch_within(decode(case), 256 * 1024)


def bounds(case, spec):
    """The terms of clause 11.6: this kernel's MATH takes 6 lane cycles a score and 12 instructions a tile."""
    shape = tree(case.n, (spec.mesh_rows, spec.mesh_cols))
    rounds = shape.rounds if case.n > 1 else 0
    work = Decode(s=case.s, tile=case.tile, ops_per_score=6, instructions_per_tile=12, n=case.n, rounds=rounds)
    return latency_bounds(work, spec)


@pytest.mark.adr("0060", "11.6")
@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize("tile", [64, 256, 1024])
def test_latency_lies_between_the_busiest_unit_and_everything_in_turn(decode, problem, ahbm_spec, n, tile):
    case = problem(s=16384, n=n, tile=tile, data=False)
    limits = bounds(case, ahbm_spec)

    ka.assert_latency_between(decode(case), limits.lower, limits.upper)


@pytest.mark.adr("0060", "11.6")
def test_long_contexts_come_within_1_35_of_the_lower_bound(decode, problem, ahbm_spec):
    case = problem(s=131072, n=8, tile=1024, data=False)
    limits = bounds(case, ahbm_spec)
    run = decode(case)

    ka.assert_latency_between(run, limits.lower, limits.upper, ratio=1.35)
    ka.assert_overlap(run, "DMA", "GEMM", at_least=0.7)
    ka.assert_overlap(run, "MATH", "DMA", at_least=0.7)


@pytest.mark.adr("0060", "B.6")
def test_composites_win_with_issue_costs_and_the_free_run_is_beside_it(decode, baseline, problem):
    case = problem(s=8192, n=8, tile=256, data=False)

    cycles = {"hybrid": decode(case).cycles, "baseline": baseline(case).cycles}
    free = decode(case, on=AhbmChip(AhbmSpec(issue_costs=0))).cycles

    assert free < cycles["hybrid"] < cycles["baseline"] / 1.5


@pytest.mark.adr("0060", "11.8")
def test_two_runs_have_one_log(decode, problem):
    ka.assert_deterministic(lambda: decode(problem(s=500, n=5), on=AhbmChip()))


@pytest.mark.adr("0060", "11.8", "5.3")
@pytest.mark.parametrize("n", [1, 8])
def test_no_schedule_changes_a_bit_of_the_result(decode, problem, n):
    def make_run(schedule, seed):
        return decode(problem(s=300, n=n), on=AhbmChip(), schedule=schedule, seed=seed)

    ka.assert_schedule_independent(make_run, ["O"], seeds=range(3))


SCRIPT = """
import hashlib
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
chip = AhbmChip()
q, o = chip.tensor("Q", (8, 128), place="replicate"), chip.tensor("O", (8, 128), place=7)
k, v = chip.tensor("K", (128, 128)), chip.tensor("V", (128, 128))
shape = {"group": 8, "tile": 64, "scale": 0.1, "grid": 8, "placement": placement(8, (2, 4))}
run = chip.run(gqa_decode, q, k, v, o, 1000, 3, 8, **shape)
print(hashlib.sha256(run.log.cells.tobytes() + run.log.operand_cells.tobytes()).hexdigest(), run.cycles)
"""


@pytest.mark.adr("0060", "11.8")
def test_the_log_is_the_same_byte_for_byte_under_another_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }

    assert len(outputs) == 1 and len(outputs.pop().split()[0]) == len(hashlib.sha256().hexdigest())


@pytest.mark.adr("0060", "4")
def test_gray_code_lays_eight_ranks_as_the_document_says():
    assert [placement(8, (2, 4)).index(pe) for pe in range(8)] == [0, 1, 3, 2, 4, 5, 7, 6]


@pytest.mark.adr("0060", "B.3", "3")
def test_scores_alternate_between_two_buffers_outside_the_scope(decode, problem):
    run = decode(problem(s=1024, n=1, tile=128, data=False))

    targets = [row.operands[-1].offset for row in run.log.where(name="composite", region="QK")]
    assert targets[::2] == [targets[0]] * 4 and targets[1::2] == [targets[1]] * 4
    assert targets[0] != targets[1]


@pytest.mark.adr("0060", "2.2")
def test_every_token_is_read_by_exactly_one_pe(decode, problem):
    """V is one-hot by token and K is 0, so O is 1/s for each token that is counted once, and for no other."""
    s, n = 100, 3
    case = problem(s=s, n=n, start_pe=2, d=128, dtype="float32")
    q, _, _ = case.inputs
    k, v = np.zeros((1, s, 128), np.float32), np.eye(s, 128, dtype=np.float32)[None]
    case.__dict__["inputs"] = (q, k, v)
    run = decode(case)

    np.testing.assert_allclose(run.array("O")[:, :s], 1 / s, rtol=1e-5)
    assert (run.array("O")[:, s:] == 0).all()
