"""Decode gives the attention of the float64 oracle: every length, every number of PEs, every rotation, any tile."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.reference.attention import naive_same_precision

LENGTHS = (0, 1, 5, 7, 63, 64, 65, 1000, 1009)  # 1009 is prime
GROUPS = [(n, start_pe) for n in (1, 2, 3, 5, 8) for start_pe in range(n)]


def assert_right(run, case):
    ka.assert_matches_reference(run, "O", case.by_cube(), case.error, how=str(case.error))


@pytest.mark.adr("0060", "5.2", "11.1", "0.5.2")
@pytest.mark.parametrize("tile", [1024, 8192], ids=["tiled", "one-shot"])
def test_one_pe_at_llama_dimensions(decode, problem, tile):
    case = problem(s=8192, n=1, tile=tile)
    run = decode(case)

    assert_right(run, case)


@pytest.mark.adr("0060", "5.3", "11.1", "4", "10")
@pytest.mark.parametrize("tile", [64, 1024])
def test_eight_pes_at_llama_dimensions(decode, problem, tile):
    case = problem(s=8192, n=8, tile=tile)
    run = decode(case)

    assert_right(run, case)


@pytest.mark.adr("0060", "11.1")
def test_eight_pes_keep_the_bound_of_two_units_in_the_last_place_of_v_too(decode, problem):
    """Of the published rule only the second term, two bfloat16 ulp of the largest V: no help from the naive error."""
    case = problem(s=8192, n=8, tile=1024)
    run = decode(case)

    two_ulp = 2 * 2.0 ** (np.floor(np.log2(np.abs(case.inputs[2].astype(float)).max())) - 7)
    assert np.abs(run.array("O").astype(float) - case.by_cube()).max() <= two_ulp


@pytest.mark.adr("0060", "11.1")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("s", [65, 1000, 8192])
def test_the_bound_is_tighter_than_two_storage_ulp_of_v(problem, dtype, s):
    """The published rule is twice the naive error and two ulp of the largest V; a kernel of zeros can keep that."""
    case = problem(s=s, dtype=dtype)
    q, k, v = case.inputs
    naive = naive_same_precision(q[:, None], k, v, np.dtype(dtype), scale=case.scale)[:, 0].astype(float)
    two_ulp = 2 * np.spacing(np.abs(v).max()).astype(float)

    assert case.error.bound <= 2 * np.abs(naive - case.expected).max() + two_ulp
    assert np.abs(case.expected).max() > case.error.bound


@pytest.mark.adr("0060", "2.1", "2.2", "5.1", "5.2", "5.3", "0.5.3")
@pytest.mark.parametrize(("n", "start_pe"), GROUPS, ids=lambda value: str(value))
@pytest.mark.parametrize("s", LENGTHS)
def test_any_length_on_any_number_of_pes(decode, problem, s, n, start_pe):
    case = problem(s=s, n=n, start_pe=start_pe, tile=64)
    run = decode(case)

    assert_right(run, case)


@pytest.mark.adr("0060", "4", "5.2", "5.3")
@pytest.mark.parametrize("n", [1, 2, 8])
def test_no_tokens_give_zeros_and_not_nan(decode, problem, n):
    run = decode(problem(s=0, n=n))

    assert (run.array("O").astype(float) == 0).all()


@pytest.mark.adr("0060", "10", "11.1")
@pytest.mark.parametrize(("group", "heads"), [(1, 3), (2, 4), (4, 8), (8, 2)])
def test_query_heads_of_a_group_share_their_kv_head(decode, problem, group, heads):
    """G and H_kv differ, so a kernel that swaps them is wrong (B-55)."""
    case = problem(s=200, n=2, group=group, heads=heads, tile=64)
    run = decode(case)

    assert_right(run, case)


@pytest.mark.adr("0060", "11.1", "0.5.2")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_every_storage_dtype(decode, problem, dtype):
    case = problem(s=300, n=3, dtype=dtype)
    run = decode(case)

    assert_right(run, case)
    assert run.array("O").dtype == dtype


@pytest.mark.adr("0060", "0.5.2")
def test_logits_that_a_half_would_overflow_are_fine_in_bfloat16(decode, problem):
    """q and k near 24 a element give 73728 before scaling (R21)."""
    case = problem(s=130, n=2, sd=6000.0)
    run = decode(case)

    assert np.isfinite(run.array("O").astype(float)).all()
    assert_right(run, case)


@pytest.mark.adr("0060", "B.5", "11.1")
@pytest.mark.parametrize("tile", [16, 37, 64, 100, 128, 1000])
def test_any_tile_gives_the_same_attention(decode, problem, tile):
    """128 equals d, where a K tile the wrong way round would fit; the others do not."""
    case = problem(s=1000, n=1, tile=tile)
    run = decode(case)

    assert_right(run, case)


@pytest.mark.adr("0060", "5.2", "0.5.3")
def test_what_lies_behind_the_valid_length_does_not_matter(decode, problem):
    """The spare rows of the caches are NaN in every test here; more of them change nothing, not a bit."""
    runs = [decode(problem(s=77, n=2, tile=32, spare=spare)) for spare in (1, 200)]

    assert runs[0].array("O").tobytes() == runs[1].array("O").tobytes()


@pytest.mark.adr("0060", "0.5.4")
def test_only_the_root_stores(decode, problem):
    run = decode(problem(s=100, n=8))

    stores = run.log.where(name=("store", "writeback"))
    assert [row.program for row in stores] == [7]
    assert [operand.tensor for row in stores for operand in row.operands if operand.written] == ["O"]


@pytest.mark.adr("0060", "5.3")
def test_each_pe_reads_only_its_own_slice(decode, problem):
    run = decode(problem(s=1000, n=8))

    assert set(run.log.where(tensor=("K", "V")).peer) == {-1}


@pytest.mark.adr("0060", "A")
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_baseline_gives_the_same_attention_to_everyone(baseline, problem, n):
    case = problem(s=500, n=n, tile=64)
    run = baseline(case)

    ka.assert_matches_reference(run, "O", np.stack([case.by_cube()] * n), case.error)


@pytest.mark.adr("0060", "3", "4")
@pytest.mark.parametrize("n", [1, 8])
def test_logits_below_any_finite_start_are_attended_to(decode, problem, n):
    """Every score is near -18000: a running maximum that began at -1e4 would see nothing (R20)."""
    case = problem(s=150, n=n)
    q, k, v = case.inputs
    case.__dict__["inputs"] = (q * 0 + 40, (k.astype(np.float32) / 8 - 40).astype(k.dtype), v)
    run = decode(case)

    assert_right(run, case)
    assert np.abs(case.by_cube()).max() > 0.1
