"""Each classic mistake, made in a copy of the decode kernel, is found: with its op, its source line and what to do.

Findings of order are the same under every schedule; the values they spoil show under at least one.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.simulator.errors import DeadlockError, KernelError

FAULTS = runpy.run_path(str(Path(__file__).parents[1] / "faults/edits.py"))["FAULTS"]
SCHEDULES = ["model", "jitter", "late"]


def found(run):
    """The findings as {(kind, count)} and the text of all of them."""
    return {(hazard.kind, hazard.count) for hazard in run.hazards}, "\n".join(map(str, run.hazards))


def wrong_under_some_schedule(decode, case, kernel):
    runs = [
        decode(case, kernel, check=False, schedule=schedule, seed=seed) for schedule in SCHEDULES for seed in (0, 1)
    ]
    errors = [np.abs(run.array("O").astype(float) - case.by_cube()).max() for run in runs]
    return any(np.isnan(error) or error > case.error.bound for error in errors)


@pytest.mark.adr("0060", "11.7", "B.3")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_missing_wait_on_the_pv_composite_is_a_race_in_every_tile(decode, problem, broken, line_of, schedule):
    kernel = broken(gqa_decode, FAULTS["B-01"])
    case = problem(s=256, tile=64)

    kinds, text = found(decode(case, kernel, check="collect", schedule=schedule))

    assert ("race-raw", 4) in kinds
    assert "add on MATH of PE0, scratch[" in text and line_of("product.part, out=o") in text
    assert "composite on GEMM of PE0" in text and line_of("part = tl.composite(") in text
    assert "wait for the first before the second is said" in text
    assert wrong_under_some_schedule(decode, case, kernel)


@pytest.mark.adr("0060", "11.7")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_missing_wait_on_the_qk_composite_is_a_race_in_every_tile(decode, problem, broken, line_of, schedule):
    kernel = broken(gqa_decode, {"capped(tl.wait(scored)": "capped(scored"})
    case = problem(s=256, tile=64)

    kinds, text = found(decode(case, kernel, check="collect", schedule=schedule))

    assert kinds == {("race-raw", 4), ("race-waw", 4)}  # scores are read, and made P in place
    assert line_of("m_new = tl.maximum(m, tl.max(s)") in text and line_of("tl.sub(s, finite, out=s)") in text
    assert line_of('composite("gemm", self.q, tile.k') in text
    assert wrong_under_some_schedule(decode, case, kernel)


@pytest.mark.adr("0060", "B.3")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_score_buffer_with_issue_ahead_is_a_race(decode, problem, broken, line_of, schedule):
    kernel = broken(gqa_decode, FAULTS["B-02"])
    case = problem(s=256, tile=64)

    kinds, text = found(decode(case, kernel, check="collect", schedule=schedule))

    assert {kind for kind, _ in kinds} == {"race-raw", "race-waw"}
    assert line_of('composite("gemm", self.q, tile.k') in text and line_of("m_new = tl.maximum(m, tl.max(s)") in text
    assert wrong_under_some_schedule(decode, case, kernel)


@pytest.mark.adr("0060", "3", "B.3")
def test_state_rebound_inside_the_scope_is_used_after_recycling(decode, problem, broken, line_of):
    kernel = broken(gqa_decode, {"tl.maximum(m, tl.max(s), out=next(self._maxima))": "tl.maximum(m, tl.max(s))"})

    with pytest.raises(KernelError) as caught:
        decode(problem(s=256, tile=64), kernel)

    assert caught.value.kind == "use-after-recycle"
    text = str(caught.value)
    assert line_of("m_new = tl.maximum(m, tl.max(s)") in text and "scratch_scope was left" in text
    assert "tl.assign or out=" in text


@pytest.mark.adr("0060", "4")
def test_recv_of_a_wrong_shape_is_a_message_mismatch(decode, problem, broken, line_of):
    kernel = broken(gqa_decode, FAULTS["B-18"])

    with pytest.raises(KernelError) as caught:
        decode(problem(s=100, n=2), kernel)

    assert caught.value.kind == "message-mismatch"
    text = str(caught.value)
    assert "(1, 8) float32" in text and "(8, 1) float32" in text
    assert line_of("tl.recv(side, m.shape[::-1])") in text and line_of("tl.wait(*[tl.send(side") in text


@pytest.mark.ahbm(ipcq_slots=1)
@pytest.mark.adr("0060", "4")
def test_all_to_all_that_sends_first_deadlocks_with_one_slot(baseline, problem):
    with pytest.raises(DeadlockError) as caught:
        baseline(problem(s=100, n=2))

    text = str(caught.value)
    assert "PE0 waits at attention_mesh_mlo.py:" in text and "a free slot of PE0 E> PE1" in text
    assert "PE1 would end it by releasing one of its 1 slot of PE0 E> PE1" in text
    assert "they wait for each other: PE0 -> PE1 -> PE0" in text


@pytest.mark.ahbm(ipcq_slots=2)
@pytest.mark.adr("0060", "4")
def test_the_tree_deadlocks_with_fewer_slots_than_it_states(decode, problem):
    with pytest.raises(DeadlockError) as caught:
        decode(problem(s=100, n=2))

    text = str(caught.value)
    assert "a free slot of PE0 " in text and "a message of PE0 " in text
    assert "gqa_decode.py:" in text and "they wait for each other" in text


@pytest.mark.ahbm(ipcq_slots=3)
@pytest.mark.adr("0060", "4")
def test_the_slots_that_the_tree_states_are_enough(decode, problem):
    case = problem(s=100, n=8)
    run = decode(case)

    ka.assert_matches_reference(run, "O", case.by_cube(), case.error)


@pytest.mark.adr("0060", "11.5")
def test_a_tile_that_does_not_fit_is_a_capacity_error_with_both_numbers(decode, problem):
    with pytest.raises(KernelError) as caught:
        decode(problem(s=24000, tile=24000, data=False))

    assert caught.value.kind == "capacity"
    text = str(caught.value)
    assert "holds 1048576 bytes" in text and "more were asked for ((8, 24000)" in text
    assert "flash_sweep.py:" in text and "use a smaller tile" in text


@pytest.mark.adr("0060", "3", "B.2")
def test_a_k_tile_the_wrong_way_round_is_refused_though_it_fits(decode, problem, broken, line_of):
    """With TILE == d the product of Q and K without the transpose has the right shape and the wrong numbers (R1)."""
    kernel = broken(gqa_decode, FAULTS["B-57"])

    with pytest.raises(KernelError) as caught:
        decode(problem(s=256, tile=128), kernel)

    text = str(caught.value)
    assert "contracts axis 'd' of a (8, 128) with axis 'token' of b (128, 128)" in text
    assert "pass trans_b=True" in text and line_of('composite("gemm", self.q, tile.k') in text


@pytest.mark.adr("0060", "3", "B.2")
def test_a_square_k_tile_without_an_orientation_is_refused_without_axis_names_too(run_kernel, ahbm_chip):
    def kernel(q, k, *, tl):
        tl.composite("gemm", tl.load(q, (8, 128)), tl.ref(k, (128, 128)))

    q, k = ahbm_chip.tensor("Q", (8, 128)), ahbm_chip.tensor("K", (128, 128))

    with pytest.raises(KernelError, match=r"b is square, \(128, 128\).*pass trans_b=True or trans_b=False"):
        run_kernel(kernel, q, k, on=ahbm_chip)


@pytest.mark.adr("0060", "11.1")
def test_a_wrong_head_map_is_a_mismatch_that_names_the_store_and_the_head(decode, problem, broken, line_of):
    """`h % H_kv` in place of `h // G`: every row is some head's, so nothing but values can tell (B-55)."""
    kernel = broken(gqa_decode, FAULTS["B-55"])
    case = problem(s=100, group=4, heads=2)
    run = decode(case, kernel)

    with pytest.raises(AssertionError) as caught:
        ka.assert_matches_reference(run, "O", case.by_cube(), case.error)

    text = str(caught.value)
    assert "elements of O are off, most at O[1, " in text and "expected" in text and "bound" in text
    assert "store on DMA_W of cube1.PE0" in text and line_of("return tl.store(ptr, tl.reshape") in text


@pytest.mark.adr("0060", "4")
def test_a_send_off_the_mesh_names_the_directions_there_are(decode, problem, broken, line_of):
    kernel = broken(gqa_decode, {"tl.wait(*[tl.send(side, part)": 'tl.wait(*[tl.send("N", part)'})

    with pytest.raises(KernelError) as caught:
        decode(problem(s=100, n=8), kernel)

    text = str(caught.value)
    assert "has no neighbour 'N'; it has" in text and line_of('tl.send("N"') in text


@pytest.mark.adr("0060", "4", "0.5.4")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_slot_released_before_its_last_reader_ended_is_a_race(decode, problem, broken, line_of, schedule):
    merged = "tl.add(rows * weight, tl.recv(side, rows.shape) * other, out=rows)"
    early = ("received = tl.recv(side, rows.shape)", "tl.add(rows * weight, received * other, out=rows)")
    edits = {merged: "\n            ".join([*early, "tl.release(received)"])}
    kernel = broken(gqa_decode, edits)

    kinds, text = found(decode(problem(s=100, n=2), kernel, check="collect", schedule=schedule))

    assert {kind for kind, _ in kinds} == {"race-war"}
    assert line_of("tl.release(received)") in text and line_of("received * other, out=rows") in text
    assert "wait for the reader" in text
