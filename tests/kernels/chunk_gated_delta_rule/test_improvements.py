"""Options of the kernel: less of what each is about, the same bits, and nothing that a checker finds."""

from __future__ import annotations

import re
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.carving import carve
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.improved import OPTIONS, FlagPerRow, improved
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import UB_BYTES, Shape, tiling, tiling_of_step

ALL = tuple(OPTIONS)
LENGTHS = (17, 0, 9)  # chunks of 8: three, none, two
SETS = [each for size in (1, 2, len(ALL)) for each in combinations(ALL, size)]


def call(delta: Any, *options: str, lengths: tuple[int, ...] = LENGTHS, dk: int = 16, dv: int = 32, **how: Any) -> Any:
    inputs = delta.inputs(lengths, hk=1, hv=2, dk=dk, dv=dv)
    plan = improved(Shape(lengths, 1, 2, dk, dv), *options, chunk=8)
    return inputs, delta.call(inputs, **plan._asdict(), **how)


def copies(outcome: Any, tensor: str) -> int:
    log = outcome.run.log
    return sum(1 for row in log.where(name="DataCopy") if tensor in str(row))


@pytest.mark.adr("0311", "11.5")
@pytest.mark.parametrize("options", SETS, ids="+".join)
def test_no_option_changes_a_bit(delta: Any, options: tuple[str, ...]) -> None:
    inputs, plain = call(delta)
    _, better = call(delta, *options)

    delta.check(inputs, plain)
    assert better.out.tobytes() == plain.out.tobytes()
    assert better.final_state.tobytes() == plain.final_state.tobytes()


@pytest.mark.adr("0311", "11.5")
@pytest.mark.parametrize(("schedule", "seed"), [("jitter", 1), ("late", 0), ("late", 5), ("late", 23)])
@pytest.mark.parametrize("options", [*((each,) for each in ALL), ALL], ids="+".join)
def test_no_schedule_changes_a_bit(delta: Any, options: tuple[str, ...], schedule: str, seed: int) -> None:
    _, model = call(delta, *options, lengths=(9,))
    _, other = call(delta, *options, lengths=(9,), schedule=schedule, seed=seed)

    assert (other.out.tobytes(), other.final_state.tobytes()) == (model.out.tobytes(), model.final_state.tobytes())


@pytest.mark.adr("0311", "11.5")
@pytest.mark.parametrize("options", [*((each,) for each in ALL), ALL], ids="+".join)
def test_narrow_tiles_and_rows_that_are_no_whole_blocks_give_the_same(delta: Any, options: tuple[str, ...]) -> None:
    lengths, shape = (9,), Shape((9,), 1, 2, 12, 36)
    inputs = delta.inputs(lengths, hk=1, hv=2, dk=12, dv=36)
    wide = improved(shape, *options, chunk=8)
    ub = wide.tiling.used_bytes - 32
    plan = improved(shape, *options, chunk=8, ub=ub, cores=2)
    assert (wide.tiling.tiles, plan.tiling.tiles) == (1, 2)  # the second of 4 columns

    plain = delta.call(inputs, **improved(shape, chunk=8)._asdict())
    better = delta.call(inputs, **plan._asdict(), spec={"ub_usable": ub, "cores": 2})

    delta.check(inputs, better)
    assert (better.out.tobytes(), better.final_state.tobytes()) == (plain.out.tobytes(), plain.final_state.tobytes())


@pytest.mark.adr("0311", "11.2")
def test_a_flag_per_row_is_one_pair_for_each_sum(delta: Any) -> None:
    lengths, dk = (8,), 16
    _, plain = call(delta, lengths=lengths)
    _, better = call(delta, "flag-per-row", lengths=lengths)

    def pairs(outcome: Any) -> int:
        return len(outcome.run.log.where(name="SetFlag<S_V>"))

    n2 = 8 * 9 // 2
    assert pairs(plain) - pairs(better) == 2 * (3 * (n2 - 8) + 3 * 8 * (dk - 1))  # of two heads
    assert better.run.cycles < plain.run.cycles


class Steps(FlagPerRow):
    """What `Ready` does, in order, without a core."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def CoefficientReady(self) -> None:
        self.steps.append("flag")

    def read(self, name: str) -> str:
        self.steps.append(f"read {name}")
        return name


@pytest.mark.adr("0311", "11.2")
def test_the_pair_of_a_row_stands_between_its_reads_and_its_sums() -> None:
    kernel = Steps()
    for term in kernel.Ready(kernel.read(name) for name in "abc"):
        kernel.steps.append(f"sum {term}")

    assert kernel.steps == ["read a", "read b", "read c", "flag", "sum a", "sum b", "sum c"]


@pytest.mark.adr("0311", "11.3")
@pytest.mark.parametrize("dv", [32, 20])
def test_the_state_is_one_dma_either_way(delta: Any, dv: int) -> None:
    inputs, plain = call(delta, dv=dv)
    _, better = call(delta, "state-by-one-dma", dv=dv)
    delta.check(inputs, plain)

    assert better.out.tobytes() == plain.out.tobytes()
    chunk_ends = 2 * (2 + 1)  # of two heads, chunks that are not the last of their sequence
    assert copies(plain, "workspace") - copies(better, "workspace") == 2 * chunk_ends * (16 - 1)
    assert copies(better, "workspace") == 2 * chunk_ends


@pytest.mark.adr("0311", "11.4")
def test_a_resident_state_makes_no_round_trip(delta: Any) -> None:
    _, plain = call(delta)
    _, better = call(delta, "resident-state")

    assert copies(plain, "workspace") == 2 * 6 * 16
    assert copies(better, "workspace") == 0
    ka.assert_no_races(better.run)


@pytest.mark.adr("0311", "11.4")
def test_a_resident_state_does_tiles_one_after_the_other(delta: Any) -> None:
    lengths, shape = (9,), Shape((9,), 1, 2, 16, 48)
    inputs = delta.inputs(lengths, hk=1, hv=2, dk=16, dv=48)
    one = improved(shape, "resident-state", chunk=8)
    ub = one.tiling.used_bytes - 32
    narrow = improved(shape, "resident-state", chunk=8, ub=ub, cores=2)
    assert (one.tiling.tiles, narrow.tiling.tiles) == (1, 2)

    whole = delta.call(inputs, **one._asdict())
    tiles = delta.call(inputs, **narrow._asdict(), spec={"ub_usable": ub, "cores": 2})

    assert (tiles.out.tobytes(), tiles.final_state.tobytes()) == (whole.out.tobytes(), whole.final_state.tobytes())


@pytest.mark.adr("0311", "11.6")
def test_cheap_rewrites_leave_out_what_the_form_says(delta: Any) -> None:
    _, plain = call(delta, lengths=(8,))
    _, better = call(delta, "cheap-rewrites", lengths=(8,))

    def instructions(outcome: Any) -> int:
        return sum(1 for row in outcome.run.log.where(unit="V") if row.name[0].isupper() and row.work)

    assert instructions(plain) - instructions(better) == 2 * (8 + 16 - 1)


# What they ask of UB


@pytest.mark.adr("0311", "11.1")
@pytest.mark.parametrize(
    ("options", "v_step", "tiles", "used"),
    [
        ((), 128, 1, 247_296),
        (("double-buffer",), 96, 2, 247_296),
        (("resident-state",), 112, 2, 243_200),
        (("flag-per-row", "state-by-one-dma", "cheap-rewrites"), 128, 1, 247_296),
    ],
    ids=str,
)
def test_the_tile_that_128_by_128_is_left(options: tuple[str, ...], v_step: int, tiles: int, used: int) -> None:
    plan = improved(Shape((64,), 16, 32, 128, 128), *options).tiling
    assert (plan.v_step, plan.tiles, plan.used_bytes) == (v_step, tiles, used)


@given(
    st.integers(1, 256), st.integers(1, 256), st.integers(1, 32), st.integers(1, 8), st.sets(st.sampled_from(ALL))
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_host_and_device_agree_with_any_options(dk: int, dv: int, hv: int, cores: int, options: set[str]) -> None:
    plan = improved(Shape((5,), 1, hv, dk, dv), *options, ub=2**20, cores=cores)
    cut = carve(
        chunk=64, dk=dk, dv=dv, v_step=plan.tiling.v_step, hv=hv, blocks=plan.tiling.block_dim,
        apart=plan.variant.APART,
    )  # fmt: skip
    assert (cut.tmp_bytes, cut.out_queue_bytes, cut.overlap) == (
        plan.tiling.tmp_bytes, plan.tiling.out_queue_bytes, plan.tiling.overlap,
    )  # fmt: skip
    assert not (cut.overlap and "resident-state" in options)


@pytest.mark.adr("0311", "11.1")
@pytest.mark.parametrize("ub", [196_608, 253_952, 262_144])
@pytest.mark.parametrize("options", [("double-buffer",), ("resident-state",), ALL], ids="+".join)
def test_what_host_and_device_count_fills_no_more_than_the_ub_there_is(options: tuple[str, ...], ub: int) -> None:
    sizes = (4, 12, 16, 60, 64, 100, 128, 144, 192, 252, 256)

    shapes = product(sizes, sizes, (1, 4, 8, 32))
    assert [found for shape in shapes if (found := disagreement(shape, options, ub))] == []


def disagreement(sizes: tuple[int, int, int], options: tuple[str, ...], ub: int) -> str:
    """Where host and device differ, or take more than there is; empty if nothing is wrong."""
    dk, dv, hv = sizes
    try:
        variant, plan = improved(Shape((64,), 1, hv, dk, dv), *options, ub=ub)
    except ValueError as refusal:
        needs = re.search(r"takes (\d+) bytes of UB, which has (\d+)", str(refusal))
        return "" if needs and int(needs[1]) > int(needs[2]) == ub else str(refusal)
    cut = carve(chunk=64, dk=dk, dv=dv, v_step=plan.v_step, hv=hv, blocks=plan.block_dim, apart=variant.APART)
    queue = (2 if "double-buffer" in options else 1) * cut.out_queue_bytes
    same = (cut.tmp_bytes, queue, cut.overlap) == (
        plan.tmp_bytes, plan.buffer_num * plan.out_queue_bytes, plan.overlap,
    )  # fmt: skip
    return "" if same and plan.ub_rest_bytes + queue == ub and cut.tmp_bytes <= plan.ub_rest_bytes else f"{plan} {cut}"


@pytest.mark.adr("0311", "11.4")
def test_a_resident_state_of_128_columns_is_1536_bytes_too_many() -> None:
    plan = tiling_of_step(Shape((64,), 16, 32, 128, 128), 128, apart=True)
    assert (plan.used_bytes, plan.used_bytes - UB_BYTES) == (263_680, 1536)


@pytest.mark.adr("0311", "11.1")
@pytest.mark.parametrize(("options", "places"), [((), 1), (("double-buffer",), 2)], ids=str)
def test_outputs_go_through_as_many_buffers_as_asked_for(delta: Any, options: tuple[str, ...], places: int) -> None:
    _, outcome = call(delta, *options, lengths=(17,))
    writes = [row.operands for row in outcome.run.log.where(name="DataCopy", unit="MTE3")]
    sources = [source.offset for source, target in writes if target.tensor == "out"]
    assert len(sources) == 2 * 3  # of two heads, three chunks
    assert len(set(sources)) == places


def test_what_does_not_fit_or_is_no_option_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes \d+ bytes of UB, which has 65536"):
        improved(Shape((64,), 1, 1, 256, 256), "resident-state", ub=65_536)
    with pytest.raises(ValueError, match="option 'faster' is none of flag-per-row"):
        improved(Shape((64,), 1, 1, 16, 16), "faster")


def test_a_tiling_that_overlaps_is_not_for_a_resident_state(delta: Any) -> None:
    lengths, shape = (9,), Shape((9,), 1, 2, 16, 32)
    plan = improved(shape, "resident-state", chunk=8)
    overlapping = tiling(shape, chunk=8)
    assert overlapping.overlap and not plan.tiling.overlap

    done = delta.call(
        delta.inputs(lengths, hk=1, hv=2, dk=16, dv=32), variant=plan.variant, tiling=overlapping, check="collect"
    )
    assert "tiling-mismatch" in {hazard.kind for hazard in done.run.hazards}
