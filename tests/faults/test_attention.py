"""The public faults of attention kernels (facts of attention, 4) as rows of the fault matrix, each with a variant.

A fault is an edit of a kernel that is right, and so is its variant, which changes nothing that is promised.
"""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode, gqa_decode_batch
from pytest_kernbench.kernels.ahbm.gqa_prefill import gqa_prefill_batch
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.errors import SimError

EDITS = runpy.run_path(str(Path(__file__).with_name("edits.py")))
KERNELS = {"decode": gqa_decode, "split": gqa_decode_batch, "prefill": gqa_prefill_batch, "ring": gqa_ring}
SMALL = {"d": 64, "d_v": 64, "group": 4}
ROUND = {"d": 32, "d_v": 32, "group": 2, "kv_len": 24, "t_q": 24}
STRIPED = {"n": 4, "tile": 4, "q_block": 8, "sharding": "striped"}


@dataclass(frozen=True, eq=False)
class Fault:
    """A mistake in the kernel that `launch` names, and its variant, both in edits.py.

    `sees`: the checkers that the report calls for; `sizes` and `options` are the request's and the launch's,
    `chip` the fields of the spec that are others, for the variant with those of `variant_chip`.
    """

    id: str
    text: str
    launch: str
    sees: tuple[str, ...]
    sizes: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    chip: Mapping[str, int] = field(default_factory=dict)
    variant_chip: Mapping[str, int] = field(default_factory=dict)
    data: Callable[[Any], Any] = lambda case: case


def far_below(case: Any) -> Any:
    """Keys up to the first query score near -18000 and the ones behind it near 0."""
    k = case.problem.k.astype(np.float32) / 8
    k[:, :13] -= 40
    return replace(case, problem=replace(case.problem, q=case.problem.q * 0 + 57, k=k.astype(case.problem.k.dtype)))


FAULTS = [
    Fault("B-01", "ThunderKittens #33: a product is committed and never waited for", "split", ("race", "determinism"),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-02", "triton #9720: fewer buffers than stages in flight", "split", ("race",),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-07", "tilelang #2668: the refill overtakes the read", "ring", ("race",),
          ROUND, {**STRIPED, "depth": Depth(ahead=1, in_flight=1)}, chip={"ipcq_slots": 6}),
    Fault("B-09", "FlashMLA-ETAP PR 3: P goes to the product before it is there", "split", ("race", "numeric"),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-12", "tt-metal #53053, #54812: a wait for the first half of a block", "ring", ("race", "determinism"),
          ROUND, STRIPED),
    Fault("B-14", "tt-metal #49511: a PE with nothing to do leaves before the handshake", "split", ("deadlock",),
          {"kv_len": 3, **SMALL}, {"n": 8, "start_pes": [5]}),
    Fault("B-15", "tt-metal #54835: all send before anybody receives, round a ring", "ring", ("deadlock",),
          ROUND, STRIPED, variant_chip={"ipcq_slots": 8}),
    Fault("B-18", "pytorch #113376, nccl #1938: sender and receiver differ in shape",
          "split", ("numeric", "deadlock", "leftover"),
          {"kv_len": 100, **SMALL}, {"n": 2}),
    Fault("B-18b", "the same, where shapes agree: m and l change places", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 2}),
    Fault("B-21", "vllm #468 (local-inference-lab): merged over an input that is still needed", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 2}),
    Fault("B-23", "flashinfer #4051: a merge of two empty sides", "split", ("nan",),
          {"kv_len": 3, **SMALL}, {"n": 8}),
    Fault("B-26", "burn #4694, iree #24175: softmax of a row that sees nothing", "split", ("nan",),
          {"kv_len": 4, "t_q": 6, **SMALL}, {"n": 8, "tile": 4}),
    Fault("B-28", "flash-attention #1745, #2374: the last tile at full width, P masked to 0", "decode", ("nan",),
          {"s": 61, "tile": 64}),
    Fault("B-32", "lattice #373: a finite mask beats valid logits", "prefill", ("numeric",),
          {"t_q": 12, "kv_len": 24, **SMALL}, {"tile": 16}, data=far_below),
    Fault("B-38", "ring-flash-attention #22, #42: O rounded to bfloat16 after every fold", "ring", ("numeric",),
          {**ROUND, "dtype": "float16"}, STRIPED),
    Fault("B-41", "tract #2586: the sum of a row in float16", "split", ("numeric",),
          {"kv_len": 300, "dtype": "float32", **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-43", "maxtext #1370, SKaiNET #880, Megatron-LM #848: scaled twice", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-43b", "the same, inverted", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-43c", "the same, with the group in it", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-44", "triton #8853: the range without a mask is rounded up", "prefill", ("numeric",),
          {"t_q": 24, "kv_len": 24, **SMALL}, {"tile": 16, "q_block": 8}),
    Fault("B-46", "flash-attention #282, jax #24491, sparkinfer #3: causal from the top left", "ring", ("numeric",),
          {**ROUND, "t_q": 12}, STRIPED),
    Fault("B-50", "tt-metal #56171: right for a single tile, l is not corrected", "split", ("numeric",),
          {"kv_len": 100, **SMALL}, {"n": 1, "tile": 16}),
    Fault("B-51", "flash-linear-attention #1031: every block is written to the first one's place",
          "prefill", ("numeric", "race"),
          {"t_q": 24, "kv_len": 24, **SMALL}, {"tile": 16, "q_block": 8}),
    Fault("B-55", "HipKittens #22, ONNXim #34, jax-js #180, onnx #7274: h % H_kv for the KV head",
          "decode", ("numeric",),
          {"s": 100, "group": 4, "heads": 2}),
    Fault("B-57", "vllm #11979, transformer-from-scratch #6: a view where a transpose belongs", "prefill", ("numeric",),
          {"t_q": 16, "kv_len": 128, **SMALL}, {"tile": 64}),
    Fault("B-58", "triton-msl #7: the mask is lost where tiles divide exactly", "prefill", ("numeric",),
          {"t_q": 24, "kv_len": 32, **SMALL}, {"tile": 16}),
    Fault("B-62", "vllm #40023, #25342, #50781, pie #414: temporaries pile up in a fixed room", "prefill", ("refusal",),
          {"t_q": 4, "kv_len": 64, **SMALL}, {"tile": 8}, chip={"scratch_bytes": 20480}),
]  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What a run was seen to be: kinds of findings, O unless it was refused, whether O is right, its traffic."""

    kinds: list[str]
    o: Any = None
    right: bool = True
    traffic: tuple[int, ...] = ()


Attempt = Callable[..., Seen]


@pytest.fixture
def attempt(request: pytest.FixtureRequest, broken: Any, case: Any, problem: Any) -> Attempt:
    """`attempt(fault, kernel, schedule, seed) -> Seen`."""

    def run(fault: Fault, kernel: Any, schedule: str, seed: int) -> Seen:
        how = {"check": "collect", "schedule": schedule, "seed": seed}
        launch = request.getfixturevalue(fault.launch)
        try:
            if fault.launch == "decode":
                each = problem(**fault.sizes)
                done = launch(each, kernel, **how)
                o, wanted = done.array("O"), each.by_cube()
            else:
                each = fault.data(case(**fault.sizes))
                requests = each if fault.launch == "ring" else [each]
                outcome = launch(requests, kernel=kernel, run=how, **fault.options)
                done, o, wanted = outcome.run, outcome.outputs[0], each.answer[0]
        except SimError as error:
            return Seen([hazard.kind for hazard in error.hazards])  # type: ignore[attr-defined]
        right = bool(np.abs(o.astype(float) - wanted).max() <= each.error.bound)  # NaN is not right either
        return Seen([hazard.kind for hazard in done.hazards], o, right, traffic(done.log))

    return run


def traffic(log: Any) -> tuple[int, ...]:
    """Products of GEMM, and the bytes that come from and go to HBM."""
    return (len(log.where(unit="GEMM")), *(int(log.where(unit=unit).bytes.sum()) for unit in ("DMA_R", "DMA_W")))


def on_chips(variant: bool) -> list[Any]:
    chips = [{**each.chip, **(each.variant_chip if variant else {})} for each in FAULTS]
    return [
        pytest.param(each, id=each.id, marks=pytest.mark.ahbm(**chip) if chip else ())
        for each, chip in zip(FAULTS, chips, strict=True)
    ]


@pytest.mark.adr("0060", "11.1", "11.7", "11.8")
@pytest.mark.parametrize("fault", on_chips(variant=False))
def test_a_fault_is_seen_as_the_page_says(
    fault: Fault, attempt: Attempt, broken: Any, schedules: Any, seen_by: Any, on_the_page: Any
) -> None:
    kernel = broken(KERNELS[fault.launch], EDITS["FAULTS"][fault.id])
    usual = attempt(fault, KERNELS[fault.launch], "model", 0).traffic
    found = {letter: attempt(fault, kernel, *how) for letter, how in schedules.items()}
    results = {seen.o.tobytes() for seen in found.values() if seen.o is not None}

    caught = {}
    for letter, seen in found.items():
        caught[letter] = seen_by(seen.kinds)
        caught[letter] |= set() if seen.right else {"numeric"}
        caught[letter] |= {"structure"} if seen.traffic and seen.traffic != usual else set()
        caught[letter] |= {"determinism"} if len(results) > 1 else set()
        caught[letter] |= {"nan"} if seen.o is not None and np.isnan(seen.o.astype(float)).any() else set()
    on_the_page(fault.id, fault.text, fault.sees, caught, bool(results))
    assert all(caught.values())


@pytest.mark.adr("0060", "11.1", "11.7", "11.8")
@pytest.mark.parametrize("fault", on_chips(variant=True))
def test_the_variant_passes(fault: Fault, attempt: Attempt, broken: Any, schedules: Any) -> None:
    kernel = broken(KERNELS[fault.launch], EDITS["VARIANTS"][fault.id])
    found = [attempt(fault, kernel, *how) for how in schedules.values()]

    assert [seen.kinds for seen in found] == [[]] * len(found)
    assert all(seen.o is not None and seen.right for seen in found)
    assert len({seen.o.tobytes() for seen in found}) == 1


@pytest.mark.adr("0060", "5.6")
def test_b_65_sums_that_depend_on_the_number_of_pes(case: Any, split: Any, on_the_page: Any, schedules: Any) -> None:
    """Bits are compared among numbers of PEs here; the variant is the kernel of fixed splits."""
    each = case(kv_len=100, **SMALL)
    caught: dict[str, set[str]] = {}
    for letter, (schedule, seed) in schedules.items():
        how = {"schedule": schedule, "seed": seed}
        found = {split([each], n, tile=16, run=how).outputs[0].tobytes() for n in (1, 2)}
        caught[letter] = {"determinism"} if len(found) > 1 else set()

    text = "sglang #10425, flash-attention #1897: bits depend on the number of PEs (compared among them)"
    on_the_page("B-65", text, ("determinism",), caught)


@pytest.mark.adr("0060", "5.6")
def test_b_65_fixed_splits_pass(case: Any, attend: Any, schedules: Any) -> None:
    each = case(kv_len=100, **SMALL)
    found = set()
    for (schedule, seed), n in itertools.product(schedules.values(), (1, 2)):
        chip = AhbmChip()
        launch = driver.decode_fixed_split(chip, each.problem, n, tile=16, split=32)
        outcome = attend(chip, launch, schedule=schedule, seed=seed)
        each.check(outcome.outputs[0])
        found.add(outcome.outputs[0].tobytes())

    assert len(found) == 1


def test_the_page_has_no_other_faults(ids_on_the_page: list[str]) -> None:
    assert [id for id in ids_on_the_page if id.startswith("B-")] == [*(fault.id for fault in FAULTS), "B-65"]
