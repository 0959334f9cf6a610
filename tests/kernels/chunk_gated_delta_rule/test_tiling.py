"""Host and device count UB alike for every shape, as the table says; what does not fit is refused with both numbers."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.carving import Carving, carve
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import CHUNK, Shape, Tiling, tiling

UB_SIZES = (196_608, 253_952, 262_144)


def shape_of(dk: int, dv: int, hv: int, lengths: tuple[int, ...] = (64,)) -> Shape:
    return Shape(lengths, 1, hv, dk, dv)


def carved(plan: Tiling) -> Carving:
    """What a device of that many blocks cuts."""
    shape = plan.shape
    return carve(
        chunk=CHUNK, dk=shape.dk, dv=shape.dv, v_step=plan.v_step, hv=shape.hv, blocks=plan.block_dim
    )  # fmt: skip


def disagreement(dk: int, dv: int, hv: int, cores: int, ub: int) -> str:
    """Where host and device differ, or what is wrong with both; empty if nothing is."""
    try:
        plan = tiling(shape_of(dk, dv, hv), ub=ub, cores=cores)
    except ValueError as refusal:
        needs, has = (
            int(number) for number in re.search(r"takes (\d+) bytes of UB, which has (\d+)", str(refusal)).groups()
        )  # type: ignore[union-attr]
        return "" if needs > has == ub else str(refusal)
    device = carved(plan)
    host = (plan.tmp_bytes, plan.out_queue_bytes, plan.overlap)
    if host != (device.tmp_bytes, device.out_queue_bytes, device.overlap):
        return f"{plan} {device}"
    if plan.tmp_bytes > plan.ub_rest_bytes or plan.ub_rest_bytes + plan.out_queue_bytes != ub:
        return f"{plan}"
    return ""


@pytest.mark.adr("0311", "3.2")
@pytest.mark.parametrize("ub", UB_SIZES)
@pytest.mark.parametrize("hv", [1, 2, 3, 4, 7, 8, 16, 32])
def test_host_and_device_agree_on_every_width(hv: int, ub: int) -> None:
    widths = [*range(4, 40, 4), *range(48, 257, 16), 60, 100, 200, 252]
    shapes = [(dk, dv) for dk in widths for dv in widths]

    assert [found for dk, dv in shapes if (found := disagreement(dk, dv, hv, 8, ub))] == []


@pytest.mark.adr("0311", "3.2")
@given(
    st.integers(1, 256), st.integers(1, 256), st.integers(1, 32), st.integers(1, 12), st.sampled_from(UB_SIZES)
)  # fmt: skip
def test_host_and_device_agree_on_any_shape(dk: int, dv: int, hv: int, cores: int, ub: int) -> None:
    assert disagreement(dk, dv, hv, cores, ub) == ""


@pytest.mark.adr("0311", "3.1")
@given(st.integers(1, 256), st.integers(1, 256), st.integers(1, 32), st.sampled_from(UB_SIZES))
def test_the_widest_tile_that_fits_is_taken(dk: int, dv: int, hv: int, ub: int) -> None:
    try:
        plan = tiling(shape_of(dk, dv, hv), ub=ub)
    except ValueError:
        return
    assert plan.v_step % 16 == 0
    wider = plan.v_step + 16
    if wider < dv + 16:
        device = carve(
            chunk=CHUNK, dk=dk, dv=dv, v_step=wider, hv=hv,
            blocks=min(hv * -(-dv // wider) if hv < 8 and wider < dv else hv, 8),
        )  # fmt: skip
        assert device.tmp_bytes + device.out_queue_bytes > ub


@pytest.mark.adr("0311", "3.2")
def test_slices_of_128_by_128_lie_where_the_table_says() -> None:
    plan = tiling(shape_of(128, 128, 32))

    assert [(each.name, each.elements, each.offset) for each in carved(plan).slices] == [
        ("chunkKFp32", 64 * 128, 0),
        ("kCumdecayFp32", 64 * 128, 32_768),
        ("decayMaskFp32", 64 * 64, 65_536),
        ("chunkVFp32", 64 * 128, 81_920),
        ("chunkScoresFp32", 64 * 64, 114_688),
        ("stateInFp32", 128 * 128, 114_688),
        ("chunkAttnOutFp32", 64 * 128, 180_224),
        ("gCumsumFp32", 64, 212_992),
        ("deltaFp32", 128, 213_248),
        ("dotProductFp32", 128, 213_760),
        ("expGCumFp32", 64, 214_272),
    ]
    assert (plan.tmp_bytes, plan.out_queue_bytes, plan.used_bytes) == (214_528, 32_768, 247_296)
    assert (plan.v_step, plan.overlap, plan.ub_rest_bytes) == (128, True, 229_376)


@pytest.mark.adr("0311", "4.2")
@given(st.integers(1, 256), st.integers(1, 256), st.integers(1, 32), st.integers(1, 16), st.integers(1, 12))
def test_slices_share_no_byte_but_scores_and_state(dk: int, dv: int, hv: int, sixteens: int, blocks: int) -> None:
    device = carve(chunk=CHUNK, dk=dk, dv=dv, v_step=16 * sixteens, hv=hv, blocks=blocks)

    kept = [each for each in device.slices if not device.overlap or each.name != "chunkScoresFp32"]
    for before, behind in pairwise(kept):
        assert before.end <= behind.offset
    assert all(each.offset % 32 == 0 for each in device.slices)


@pytest.mark.adr("0311", "3.1")
@pytest.mark.parametrize(
    ("ub", "dk", "dv", "hv", "v_step", "tiles", "used"),
    [
        (262_144, 128, 128, 4, 128, 1, 247_296),
        (262_144, 128, 128, 32, 128, 1, 247_296),
        (253_952, 128, 128, 32, 128, 1, 247_296),
        (262_144, 64, 64, 32, 64, 1, 107_520),
        (262_144, 80, 80, 32, 80, 1, 137_856),
        (262_144, 96, 96, 32, 96, 1, 171_264),
        (262_144, 128, 256, 32, 112, 3, 243_200),
        (262_144, 128, 256, 4, 128, 2, 247_296),
        (262_144, 192, 192, 32, 64, 3, 239_616),
        (262_144, 256, 256, 32, 32, 8, 231_936),
        (262_144, 256, 256, 4, 48, 6, 248_320),
        (196_608, 128, 128, 32, 64, 2, 181_760),
        (196_608, 128, 128, 4, 80, 2, 185_856),
    ],
)
def test_the_shapes_of_the_table(ub: int, dk: int, dv: int, hv: int, v_step: int, tiles: int, used: int) -> None:
    plan = tiling(shape_of(dk, dv, hv), ub=ub)

    assert (plan.v_step, plan.tiles, plan.used_bytes) == (v_step, tiles, used)


@pytest.mark.adr("0311", "3.1")
def test_a_tile_that_fills_ub_to_the_last_byte_fits() -> None:
    shape, filled = shape_of(128, 128, 32), 247_296

    assert [tiling(shape, ub=ub).v_step for ub in (filled, filled - 1)] == [128, 112]


@pytest.mark.adr("0311", "3.1")
def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"a tile of 16 columns takes 199168 bytes of UB, which has 196608"):
        tiling(shape_of(256, 256, 32), ub=196_608)


@pytest.mark.adr("0311", "3.3")
@pytest.mark.parametrize(
    ("hv", "dv", "cores", "blocks"), [(4, 128, 8, 4), (4, 256, 8, 8), (32, 256, 8, 8), (3, 256, 8, 6), (1, 16, 8, 1)]
)
def test_blocks_are_heads_or_tiles_of_heads(hv: int, dv: int, cores: int, blocks: int) -> None:
    assert tiling(shape_of(128, dv, hv), cores=cores).block_dim == blocks


def test_two_buffers_cost_a_narrower_tile() -> None:
    one, two = (tiling(shape_of(128, 128, 32), buffer_num=number) for number in (1, 2))

    assert (one.v_step, two.v_step, two.tiles, two.overlap) == (128, 96, 2, False)


@pytest.mark.adr("0311", "3.4")
def test_the_workspace_is_the_state_but_not_less_than_the_runtime_wants() -> None:
    small, large = (tiling(shape_of(128, 100, 32, (1,) * batch)) for batch in (1, 30))

    assert (small.state_bytes, small.workspace_bytes) == (32 * 128 * 104 * 4, 33_554_432)
    assert large.workspace_bytes == large.state_bytes == 30 * 32 * 128 * 104 * 4


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dk": 0}, "dk is 0: it counts from 1"),
        ({"hv": -1}, "hv is -1: it counts from 1"),
        ({"lengths": ()}, "lengths is empty"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**{"lengths": (1,), "hk": 1, "hv": 1, "dk": 1, "dv": 1, **sizes})  # type: ignore[arg-type]
