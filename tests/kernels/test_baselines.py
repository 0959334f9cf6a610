"""The kernels that ADR-0060 replaces compute the same attention, by the steps that A describes, at a measured price."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm import attention_mesh_kv as mesh_kv
from pytest_kernbench.kernels.ahbm import attention_mesh_mlo as mesh_mlo
from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.errors import DeadlockError, KernelError

GROUP = 2
SMALL = {"group": GROUP, "d": 32, "d_v": 32}
RANKS = pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
TOGETHER = pytest.mark.parametrize("heads_together", [1, GROUP], ids=["one head", "heads folded"])


@pytest.fixture
def baseline_decode(attend: Any, ahbm_spec: AhbmSpec) -> Callable[..., Any]:
    """`baseline_decode(case, n, tile=16, **options) -> Outcome`; `run={...}` are options of `run_kernel`."""

    def run(case: Any, n: int, *, tile: int = 16, run: Any = None, **options: Any) -> Any:
        chip, mesh = AhbmChip(ahbm_spec), (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols)
        launch = driver.baseline_decode(chip, case.problem, n, tile=tile, mesh=mesh, **options)
        return attend(chip, launch, **(run or {}))

    return run


@pytest.fixture
def baseline_prefill(attend: Any, ahbm_spec: AhbmSpec) -> Callable[..., Any]:
    """`baseline_prefill(case, n, tile=16, q_block=16, **options) -> Outcome`; `run` as above."""

    def run(case: Any, n: int, *, tile: int = 16, q_block: int = 16, run: Any = None, **options: Any) -> Any:
        chip, mesh = AhbmChip(ahbm_spec), (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols)
        launch = driver.baseline_prefill(chip, case.problem, n, tile=tile, q_block=q_block, mesh=mesh, **options)
        return attend(chip, launch, **(run or {}))

    return run


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "A", "9")
@RANKS
@TOGETHER
@pytest.mark.parametrize("kv_len", [3, 77])
def test_decode_gives_everyone_the_answer(baseline_decode, case, kv_len, n, heads_together):
    each = case(kv_len=kv_len, heads=2, **SMALL)
    done = baseline_decode(each, n, heads_together=heads_together, start_pe=1 % n)

    by_rank = np.moveaxis(done.run.array("O"), 1, 0)
    assert by_rank.shape == (n, 2, GROUP, 1, 32)
    for o in by_rank:
        each.check(o.reshape(done.outputs[0].shape))
    each.check(done.outputs[0])
    ka.assert_queues_drained(done.run)


@pytest.mark.adr("0060", "A", "9")
@RANKS
@TOGETHER
@pytest.mark.parametrize(("kv_len", "t_q"), [(41, 41), (90, 21), (3, 3)], ids=str)
def test_prefill_gives_each_rank_its_own_queries(baseline_prefill, case, kv_len, t_q, n, heads_together):
    """Ragged shards, ranks without any, more than one piece and block a rank, and a chunk that begins late."""
    each = case(kv_len=kv_len, t_q=t_q, heads=1 + (n == 2), **SMALL)
    done = baseline_prefill(each, n, heads_together=heads_together, tile=5, q_block=4 if n > 3 else 9)

    each.check(done.outputs[0])
    ka.assert_queues_drained(done.run)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_any_dtype_and_a_value_width_of_its_own(baseline_decode, baseline_prefill, case, dtype):
    for run, sizes in ((baseline_decode, {"kv_len": 50}), (baseline_prefill, {"kv_len": 50, "t_q": 50})):
        each = case(**sizes, group=3, d=32, d_v=48, dtype=dtype)
        each.check(run(each, 3, heads_together=2).outputs[0])  # two heads, then the one that is left


@pytest.mark.ahbm(ipcq_slots=3)
@TOGETHER
def test_decode_of_several_queries_sends_o_in_pieces_and_masks_by_position(baseline_decode, case, heads_together):
    each = case(kv_len=60, t_q=5, group=8, d=32, d_v=128)
    done = baseline_decode(each, 4, heads_together=2 * heads_together, message_bytes=16 * 128 * 4)

    each.check(done.outputs[0])
    rows = 2 * heads_together * 5
    expected = [rows * 4] * 2 + [count * 128 * 4 for count in [16] * (rows // 16) + [rows % 16]]
    first_rank = done.log.where(name="send", program=0).bytes
    assert list(first_rank[: len(expected)]) == expected
    ka.assert_queues_drained(done.run)


def test_a_query_that_stands_among_the_keys_does_not_see_what_follows(baseline_decode, baseline_prefill, case):
    for run in (baseline_decode, baseline_prefill):
        each = case(kv_len=40, t_q=1, q_start=11, **SMALL)
        each.check(run(each, 3).outputs[0])


@pytest.mark.parametrize("rules", [{"window": 4}, {"softcap": 5.0}], ids=str)
def test_what_a_baseline_does_not_know_is_refused(baseline_decode, baseline_prefill, case, rules):
    for run in (baseline_decode, baseline_prefill):
        with pytest.raises(ValueError, match=f"a baseline knows no {next(iter(rules))}"):
            run(case(kv_len=8, structure=True, **rules), 2)


def test_no_heads_together_is_refused(baseline_decode, baseline_prefill, case):
    for run in (baseline_decode, baseline_prefill):
        with pytest.raises((ValueError, KernelError), match="width is 0"):
            run(case(kv_len=8, structure=True), 2, heads_together=0)


# --- steps and traffic ------------------------------------------------------------------------------------------------


@pytest.mark.adr("0060", "A.2", "A")
@pytest.mark.parametrize("n", [2, 5, 8])
def test_block_i_reaches_rank_j_at_step_i_minus_j_along_one_hop_edges(baseline_decode, baseline_prefill, case, n):
    def sides(rank):
        steps = range(1, n)
        return [[rank - 1] * (rank >= step) + [rank + 1] * (rank + step < n) for step in steps]

    of_k_and_v = baseline_prefill(case(kv_len=n * 16, t_q=n * 16, structure=True), n, heads_together=8)
    of_m_l_o = baseline_decode(case(kv_len=n * 16, structure=True), n, heads_together=8)
    for done, messages in ((of_k_and_v, 2), (of_m_l_o, 3)):
        for rank in range(n):
            arrived = [row.peer for row in done.log.where(name="recv", program=rank)]
            assert arrived == [peer for step in sides(rank) for peer in step for _ in range(messages)]
        assert len(done.log.where(name="send")) == messages * n * (n - 1)
        ka.assert_neighbour_only_hops(done.run)
        ka.assert_queues_drained(done.run)


@pytest.mark.adr("0060", "A.1", "11.2")
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_reads_of_keys_grow_with_the_group_unless_heads_are_folded(baseline_decode, baseline_prefill, case, phase):
    def runs(together):
        return {group: run(case(group=group, **sizes), 2, heads_together=together or group).run for group in (1, 2, 4)}

    run, t_q = (baseline_decode, 1) if phase == "decode" else (baseline_prefill, 32)
    sizes = {"kv_len": 32, "t_q": t_q, "structure": True}
    alone, folded = runs(together=1), runs(together=None)

    with pytest.raises(AssertionError, match="DMA reads of K depend on the group"):
        ka.assert_dma_reads_independent_of_group(alone)
    for group, each in alone.items():
        ka.assert_bytes_read(each, "K", [group * 16 * 128 * 2] * 2)
    ka.assert_dma_reads_independent_of_group(folded)


@pytest.mark.adr("0060", "A", "B.6")
def test_products_are_blocking_dots_of_every_tile_even_in_the_future(baseline_decode, baseline_prefill, case):
    prefill = baseline_prefill(case(kv_len=128, t_q=128, structure=True), 4, tile=16, q_block=32, heads_together=8)
    decode = baseline_decode(case(kv_len=128, structure=True), 4, tile=16, heads_together=8)

    for done, tiles in ((prefill, 8), (decode, 2)):
        assert len(done.log.where(name="composite")) == 0
        assert len(done.log.where(name="dot")) == 4 * 2 * tiles
        with pytest.raises(AssertionError):
            ka.assert_composite_offload(done.run)


@pytest.mark.adr("0060", "A")
def test_no_product_is_computed_while_a_load_or_a_message_is_under_way(baseline_prefill, case):
    done = baseline_prefill(case(kv_len=64, t_q=64, structure=True), 4, tile=16, q_block=16, heads_together=8)

    for rank in range(4):
        products = done.log.where(unit="GEMM", program=rank)
        for unit in ("DMA_R", "IPCQ"):
            moves = done.log.where(unit=unit, program=rank)
            assert len(products) and len(moves)
            assert not [a for a in products for b in moves if a.start < b.end and b.start < a.end], unit


@pytest.mark.adr("0060", "11.8")
@pytest.mark.parametrize("n", [3, 8])
def test_no_schedule_changes_a_bit_of_either(case, n):
    decoded, prefilled = case(kv_len=30, **SMALL), case(kv_len=30, t_q=30, **SMALL)

    def decode(schedule, seed):
        chip = AhbmChip()
        return driver.baseline_decode(chip, decoded.problem, n, tile=8).run(chip, schedule=schedule, seed=seed)

    def prefill(schedule, seed):
        chip = AhbmChip()
        launch = driver.baseline_prefill(chip, prefilled.problem, n, tile=4, q_block=10, heads_together=GROUP)
        return launch.run(chip, schedule=schedule, seed=seed)

    ka.assert_schedule_independent(decode, ["O"], seeds=range(2))
    ka.assert_schedule_independent(prefill, ["O"], seeds=range(2))


@pytest.mark.ahbm(ipcq_slots=mesh_kv.SLOTS)
def test_the_slots_that_the_chain_of_keys_states_are_enough(baseline_prefill, case):
    ka.assert_queues_drained(baseline_prefill(case(kv_len=80, t_q=80, group=1, structure=True), 8, tile=4).run)


@pytest.mark.ahbm(ipcq_slots=mesh_kv.SLOTS - 1)
def test_the_chain_of_keys_deadlocks_with_one_slot_less(baseline_prefill, case):
    with pytest.raises(DeadlockError, match=r"attention_mesh_kv\.py"):
        baseline_prefill(case(kv_len=80, t_q=80, group=1, structure=True), 8, tile=4)


@pytest.mark.ahbm(ipcq_slots=mesh_mlo.SLOTS)
def test_the_slots_that_the_exchange_of_results_states_are_enough(baseline_decode, case):
    ka.assert_queues_drained(baseline_decode(case(kv_len=128, structure=True), 8).run)


# --- what the ADR gains -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    cycles: int
    hbm_bytes: int
    link_bytes: int


def cost(chip: AhbmChip, launch: driver.Launch) -> Cost:
    """What one run takes; every message goes one hop here, so that bytes sent are bytes on links."""
    run = launch.run(chip)
    ka.assert_neighbour_only_hops(run)
    hbm = run.log.where(unit="DMA_R").bytes.sum() + run.log.where(unit="DMA_W").bytes.sum()
    return Cost(run.cycles, int(hbm), int(run.log.where(name="send").bytes.sum()))


@pytest.mark.adr("0060", "A", "11.2", "11.3")
def test_decode_gains_by_shared_keys_and_again_by_the_hybrid():
    """S=8192, N=8, TILE=256. The baseline as it was, with heads folded into M, and the kernel of the ADR."""
    problem = driver.Problem(kv_len=8192)
    chips = [AhbmChip() for _ in range(3)]
    original = cost(chips[0], driver.baseline_decode(chips[0], problem, 8, tile=256))
    folded = cost(chips[1], driver.baseline_decode(chips[1], problem, 8, tile=256, heads_together=8))
    new = cost(chips[2], driver.decode(chips[2], [problem], 8, tile=256))

    assert original.cycles > 5 * folded.cycles and folded.cycles > 1.7 * new.cycles
    assert original.hbm_bytes > 6 * new.hbm_bytes and folded.hbm_bytes < 1.1 * new.hbm_bytes
    assert original.link_bytes == folded.link_bytes == 8 * new.link_bytes  # n (n - 1) partial results against n - 1


@pytest.mark.adr("0060", "A", "5.5")
def test_prefill_gains_by_shared_keys_and_again_by_the_ring():
    """S=1024, N=8, TILE=64: blocks of 128 rows for one head (all queries of a rank), and of 256 for heads together."""
    problem = driver.Problem(kv_len=1024, t_q=1024)
    chips = [AhbmChip() for _ in range(2)]
    rings = [AhbmChip(ports=driver.ring_ports(8, 1)) for _ in range(2)]
    original = cost(chips[0], driver.baseline_prefill(chips[0], problem, 8, tile=64, q_block=128))
    folded = cost(chips[1], driver.baseline_prefill(chips[1], problem, 8, tile=64, q_block=32, heads_together=8))
    zigzag, contiguous = (
        cost(chip, driver.ring(chip, problem, 8, tile=64, q_block=32, sharding=sharding))
        for chip, sharding in zip(rings, ("zigzag", "contiguous"), strict=True)
    )

    assert original.cycles > 1.15 * folded.cycles and folded.cycles > 2 * zigzag.cycles
    assert original.hbm_bytes > 1.2 * zigzag.hbm_bytes and folded.hbm_bytes >= zigzag.hbm_bytes
    assert original.link_bytes > 1.6 * zigzag.link_bytes and folded.link_bytes > 1.6 * contiguous.link_bytes
    assert zigzag.link_bytes < folded.link_bytes
