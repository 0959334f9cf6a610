"""The rooflines of decode and prefill against published tables, and what each term may depend on."""

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm.placement import tree
from pytest_kernbench.kernels.reference.bounds import (
    Decode,
    PrefillWork,
    gemm_cycles,
    hbm_cycles,
    issue_cycles,
    latency_bounds,
    latency_cycles,
    tree_cycles,
    vector_cycles,
)
from pytest_kernbench.kernels.reference.causal import Prefill

K = 1024


def costs(**changed: int) -> dict[str, int]:
    return {"composite": 48, "math": 8, "send": 16, "recv": 16} | changed


@dataclass(frozen=True)
class Numbers:
    """Proposed hardware numbers; 1 cycle is 1 ns."""

    hbm_bytes_per_cycle: float = 256
    hbm_efficiency_percent: float = 100
    hbm_first_byte_cycles: int = 40
    dma_descriptor_cycles: int = 5
    dma_run_cycles: int = 1
    panel_rows: int = 64
    panel_rows_transposed: int = 32
    gemm_macs_per_cycle: int = 4096
    gemm_fill_cycles: int = 16
    tile_m: int = 32
    math_lanes: int = 128
    math_start_cycles: int = 32
    link_bytes_per_cycle: float = 128
    hop_cycles: int = 9
    injection_cycles: int = 5
    ejection_cycles: int = 5
    issue_costs: dict[str, int] = field(default_factory=costs)


CHIP = Numbers()


def decode(s: int, n: int = 1, tile: int = 1024, ops: int = 6, **more: int) -> Decode:
    rounds = tree(n, (2, 4)).rounds
    return Decode(s=s, n=n, tile=tile, rounds=rounds, ops_per_score=ops, instructions_per_tile=13, **more)


@pytest.mark.parametrize(
    ("s", "hbm", "hbm_at_80", "unpadded", "vec", "hbm_8", "hbm_8_at_80", "with_tree", "speed_up", "share"),
    [
        (8 * K, 16.4, 20.5, 4.1, 3.1, 2.05, 2.56, 3.13, 5.2, 35),
        (16 * K, 32.8, 41.0, 8.2, 6.1, 4.10, 5.12, 5.18, 6.3, 21),
        (32 * K, 65.5, 81.9, 16.4, 12.3, 8.19, 10.24, 9.28, 7.1, 12),
        (64 * K, 131.1, 163.8, 32.8, 24.6, 16.38, 20.48, 17.47, 7.5, 6),
        (128 * K, 262.1, 327.7, 65.5, 49.2, 32.77, 40.96, 33.85, 7.7, 3),
    ],
)
def test_llama3_70b_decode_has_the_published_limits(
    s: int,
    hbm: float,
    hbm_at_80: float,
    unpadded: float,
    vec: float,
    hbm_8: float,
    hbm_8_at_80: float,
    with_tree: float,
    speed_up: float,
    share: float,
) -> None:
    """Microseconds and percent. The table leaves out Q's bytes and T_vec's share per tile; its sends cost 5 cycles."""
    slow = replace(CHIP, hbm_efficiency_percent=80)
    one, eight, sweep = decode(s), decode(s, n=8), replace(decode(s), instructions_per_tile=0)
    merge = tree_cycles(eight, replace(CHIP, issue_costs=costs(send=5, recv=5)))
    us, total = pytest.approx, hbm_cycles(eight, CHIP) + merge

    assert hbm_cycles(one, CHIP) / 1e3 == us(hbm, abs=0.06)
    assert hbm_cycles(one, slow) / 1e3 == us(hbm_at_80, abs=0.06)
    assert gemm_cycles(one, CHIP) / 1e3 == us(hbm, abs=0.06)
    assert gemm_cycles(one, replace(CHIP, tile_m=1)) / 1e3 == us(unpadded, abs=0.06)
    assert (vector_cycles(sweep, CHIP) - sweep.tiles * 3 * 8 * 128 / 128) / 1e3 == us(vec, abs=0.06)
    assert hbm_cycles(eight, CHIP) / 1e3 == us(hbm_8, abs=0.014)
    assert hbm_cycles(eight, slow) / 1e3 == us(hbm_8_at_80, abs=0.014)
    assert total / 1e3 == us(with_tree, abs=0.014)
    assert hbm_cycles(one, CHIP) / total == us(speed_up, abs=0.06)
    assert 100 * merge / total == us(share, abs=0.6)


@pytest.mark.parametrize(("issue", "cycles"), [(5, 1084.5), (16, 1282.5), (0, 994.5)])
def test_three_rounds_of_merging_cost_a_microsecond_mostly_fixed(issue: int, cycles: float) -> None:
    chip = replace(CHIP, issue_costs=costs(send=issue, recv=issue))
    assert tree_cycles(decode(8 * K, n=8), chip) == cycles


def test_one_pe_has_no_tree() -> None:
    assert tree_cycles(decode(8 * K), CHIP) == 0


def test_a_longer_way_costs_its_hops_only() -> None:
    near, far = decode(8 * K, n=8), decode(8 * K, n=8, hops_per_round=4)
    assert tree_cycles(far, CHIP) - tree_cycles(near, CHIP) == 3 * 3 * 9


def test_small_tiles_are_bound_by_vector_starts_and_large_ones_are_not() -> None:
    small, large = decode(64, tile=64), decode(128 * K, n=8)
    assert vector_cycles(small, CHIP) == 464
    assert latency_bounds(small, CHIP).lower == 464 > 3 * hbm_cycles(small, CHIP)
    assert latency_bounds(large, CHIP).lower == pytest.approx(hbm_cycles(large, CHIP), rel=0.01)


def test_issue_counts_two_composites_and_the_math_instructions_of_every_tile() -> None:
    assert issue_cycles(decode(3 * K), CHIP) == 3 * (2 * 48 + 13 * 8)
    assert issue_cycles(decode(3 * K + 1), CHIP) == 4 * (2 * 48 + 13 * 8)


def test_lower_is_the_largest_unit_and_upper_the_sum_of_everything() -> None:
    work = decode(16 * K, n=8)
    bounds = latency_bounds(work, CHIP)
    units = bounds.hbm, bounds.gemm, bounds.vector, bounds.issue
    assert bounds.lower == max(units)
    assert bounds.upper == sum(units) + bounds.latencies + bounds.tree
    assert (bounds.latencies, bounds.tree) == (latency_cycles(work, CHIP), tree_cycles(work, CHIP))


@pytest.mark.parametrize(
    ("s", "tile", "tiles", "panels"),
    [
        (0, 64, 0, 0),
        (64, 64, 1, 2 + 1),
        (65, 64, 2, 2 + 1 + 1 + 1),
        (100, 48, 3, 2 * (2 + 1) + 1 + 1),  # a panel ends where its tile does
        (4 * K, 1024, 4, 128 + 64),
    ],
)
def test_latencies_are_first_bytes_descriptors_and_fills(s: int, tile: int, tiles: int, panels: int) -> None:
    q = 40 + 6
    assert latency_cycles(decode(s, tile=tile), CHIP) == q + 2 * tiles * (40 + 16) + panels * 6


@pytest.mark.parametrize(
    ("chip", "term"),
    [
        (replace(CHIP, hbm_bytes_per_cycle=16), "hbm"),
        (replace(CHIP, gemm_macs_per_cycle=16), "gemm"),
        (replace(CHIP, math_lanes=16), "vector"),
        (replace(CHIP, issue_costs=costs(composite=10_000)), "issue"),
    ],
)
def test_the_slowest_unit_makes_the_lower_bound(chip: Numbers, term: str) -> None:
    """R31: "decode is bound by K and V" follows from the numbers or not at all."""
    bounds = latency_bounds(decode(32 * K), chip)
    assert bounds.lower == getattr(bounds, term)


def test_kv_traffic_does_not_grow_with_the_group_but_work_does() -> None:
    one, eight = decode(8 * K, g=1), decode(8 * K, g=8)
    q_bytes = 7 * 128 * 2
    assert hbm_cycles(eight, CHIP) - hbm_cycles(one, CHIP) == q_bytes / 256
    assert vector_cycles(replace(eight, instructions_per_tile=0), CHIP) == 8 * vector_cycles(
        replace(one, instructions_per_tile=0), CHIP
    )


@pytest.mark.parametrize(("g", "padded"), [(1, 32), (8, 32), (32, 32), (33, 64)])
def test_rows_are_padded_to_whole_tiles_of_the_array(g: int, padded: int) -> None:
    assert gemm_cycles(decode(4 * K, g=g), CHIP) == 2 * padded * 4 * K * 128 / 4096


@given(st.integers(0, 200_000), st.integers(1, 8), st.integers(1, 4096), st.integers(1, 16))
def test_lower_never_exceeds_upper_and_faster_memory_never_slows(s: int, n: int, tile: int, g: int) -> None:
    work = decode(s, n=n, tile=tile, g=g)
    bounds, faster = latency_bounds(work, CHIP), latency_bounds(work, replace(CHIP, hbm_bytes_per_cycle=512))
    assert 0 < bounds.lower <= bounds.upper
    assert faster.lower <= bounds.lower
    assert faster.upper < bounds.upper


def test_a_group_without_rounds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^8 PEs merge in 0 rounds: pass rounds=tree\(n, mesh\)\.rounds$"):
        Decode(s=K, n=8, tile=64, ops_per_score=4, instructions_per_tile=13)
    with pytest.raises(ValueError, match=r"^1 PEs merge in 3 rounds"):
        Decode(s=K, rounds=3, tile=64, ops_per_score=4, instructions_per_tile=13)


@pytest.mark.parametrize("wrong", [{"tile": 0}, {"s": -1}, {"g": 0}, {"n": 0}])
def test_sizes_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^s counts from 0, n, tile, g, t_q and d from 1: Decode"):
        replace(decode(K), **wrong)


# --- prefill ----------------------------------------------------------------------------------------------------------


def shape(q_block: int, t_q: int = 2 * K, tile: int = 64, **more: Any) -> Prefill:
    return Prefill(**{"t_q": t_q, "kv_len": t_q, "q_start": 0, "q_block": q_block, "tile": tile} | more)


def prefill(q_block: int, t_q: int = 2 * K, tile: int = 64, ops: int = 6, **more: Any) -> PrefillWork:
    return PrefillWork(
        prefill=shape(q_block, t_q, tile, **more), ops_per_score=ops, ops_per_masked_score=0, instructions_per_tile=13
    )


@pytest.mark.parametrize(
    ("q_block", "gemm", "vec", "reads"), [(16, 1081, 811, 270), (64, 1081, 811, 68), (128, 1114, 836, 35)]
)
def test_llama3_70b_prefill_has_the_published_limits(q_block: int, gemm: float, vec: float, reads: float) -> None:
    """Microseconds. The table leaves out Q's bytes and T_vec's share per tile."""
    work, q_bytes = prefill(q_block), 8 * 2 * K * 128 * 2
    assert gemm_cycles(work, CHIP) / 1e3 == pytest.approx(gemm, abs=0.6)
    assert vector_cycles(scores_only(work), CHIP) / 1e3 == pytest.approx(vec, abs=0.6)
    assert hbm_cycles(work, CHIP) - q_bytes / 256 == pytest.approx(1e3 * reads, abs=600)
    assert latency_bounds(work, CHIP).tree == 0


def scores_only(work: PrefillWork) -> PrefillWork:
    return replace(work, ops_per_output=0, instructions_per_tile=0, instructions_per_masked_tile=0)


def test_a_dear_exp_makes_prefill_vector_bound() -> None:
    """Nine lane cycles a score: a roofline of MACs alone is wrong, even without the passes over O."""
    cheap, dear = (latency_bounds(scores_only(prefill(16, ops=ops)), CHIP) for ops in (6, 9))
    assert cheap.lower == cheap.gemm > cheap.vector
    assert dear.lower == dear.vector == pytest.approx(1217e3, abs=600)


def test_each_tile_passes_over_o_as_often_as_the_kernel_says() -> None:
    work = prefill(16, t_q=64)
    fewer = replace(work, ops_per_output=2)
    assert vector_cycles(work, CHIP) - vector_cycles(fewer, CHIP) == 4 * 8 * 16 * 128 / 128
    work_of_decode = decode(3 * K)
    fewer_of_decode = replace(work_of_decode, ops_per_output=2)
    assert vector_cycles(work_of_decode, CHIP) - vector_cycles(fewer_of_decode, CHIP) == 3 * 8 * 128 / 128


@pytest.mark.parametrize(("s", "tile", "g"), [(4096, 1024, 8), (100, 48, 3), (0, 64, 8)])
def test_prefill_of_one_token_is_decode(s: int, tile: int, g: int) -> None:
    one = PrefillWork(
        prefill=Prefill(t_q=1, kv_len=s, q_start=s, q_block=1, tile=tile),
        ops_per_score=6,
        instructions_per_tile=13,
        g=g,
    )
    assert latency_bounds(one, CHIP) == latency_bounds(decode(s, tile=tile, g=g), CHIP)


def test_a_prefill_is_the_sum_of_its_chunks() -> None:
    whole = latency_bounds(prefill(32, t_q=100), CHIP)
    parts = [latency_bounds(prefill(32, t_q=min(32, 100 - at), q_start=at, kv_len=100), CHIP) for at in (0, 32, 64, 96)]
    for term in ("hbm", "gemm", "vector", "issue", "latencies"):
        assert getattr(whole, term) == pytest.approx(sum(getattr(part, term) for part in parts), rel=1e-12)


def test_masks_cost_on_partial_tiles_only() -> None:
    plain = prefill(64, t_q=256)
    plain = replace(plain, instructions_per_masked_tile=0)
    masked = replace(plain, ops_per_masked_score=2, instructions_per_masked_tile=3)
    diagonal = 4  # of 10 tiles
    assert vector_cycles(masked, CHIP) - vector_cycles(plain, CHIP) == diagonal * (2 * 8 * 64 * 64 / 128 + 3 * 32)
    assert issue_cycles(masked, CHIP) - issue_cycles(plain, CHIP) == diagonal * 3 * 8
    assert issue_cycles(plain, CHIP) == 10 * (2 * 48 + 13 * 8)


def test_every_query_block_has_its_instructions_its_query_and_its_first_bytes() -> None:
    work = prefill(64, t_q=256)
    more = replace(work, instructions_per_block=5)
    assert issue_cycles(more, CHIP) - issue_cycles(work, CHIP) == 4 * 5 * 8
    assert vector_cycles(more, CHIP) - vector_cycles(work, CHIP) == 4 * 5 * 32
    assert latency_cycles(work, CHIP) == 4 * (40 + 6) + 10 * (2 * (40 + 16) + (2 + 1) * 6)


def test_a_window_makes_time_grow_with_the_context_and_not_with_its_square() -> None:
    full, near = (
        [latency_bounds(prefill(64, t_q=s, window=window), CHIP).lower for s in (2 * K, 4 * K)]
        for window in (None, 256)
    )
    assert full[1] / full[0] == pytest.approx(4, rel=0.05)
    assert near[1] / near[0] == pytest.approx(2, rel=0.05)


@given(
    st.integers(1, 60),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(1, 64),
    st.integers(1, 64),
    st.none() | st.integers(1, 300),
)
def test_prefill_terms_are_those_of_its_shape(
    t_q: int, kv_len: int, q_start: int, q_block: int, tile: int, window: int | None
) -> None:
    work = prefill(q_block, t_q, tile, kv_len=kv_len, q_start=q_start, window=window)
    bounds = latency_bounds(work, CHIP)
    assert gemm_cycles(work, replace(CHIP, tile_m=1)) == work.prefill.macs(8, 128) / 4096
    assert hbm_cycles(work, CHIP) == (work.prefill.kv_bytes_read(128, 2) + 8 * t_q * 128 * 2) / 256
    assert len(work.sweeps) == ceil(t_q / q_block)
    assert 0 < bounds.lower <= bounds.upper


@pytest.mark.parametrize("name", ["g", "d", "itemsize"])
def test_prefill_sizes_that_cannot_be_are_refused_with_both_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is 0, the least is 1: PrefillWork"):
        replace(prefill(64), **{name: 0})
