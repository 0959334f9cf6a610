"""The PE scheduler: panels of whole rows, read once, sub-tiles that sum to the product, in order (ADR-0014)."""

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BF16 = "bfloat16"


def composite(m: int, rows: int, cols: int, trans_b: bool, offset: int = 0, stride: int = 0) -> Callable[..., None]:
    """One product of M rows with a streamed operand of `rows` x `cols`, as it lies in HBM."""
    k = cols if trans_b else rows

    def kernel(b: Any, *, tl: Any) -> None:
        a = tl.wait(tl.zeros((m, k), b.dtype))
        part = tl.ref(b + offset, (rows, cols), (stride or cols, 1))
        tl.wait(tl.composite("gemm", a, part, trans_b=trans_b))

    return kernel


def run(launch: Any, m: int, rows: int, cols: int, trans_b: bool, dtype: str = BF16, **given: Any) -> Any:
    kernel = composite(m, rows, cols, trans_b, given.pop("offset", 0), given.pop("stride", 0))
    return launch(kernel, b=((given.pop("held", 1 << 16),), dtype), data=False, **given)


# Panels


@pytest.mark.parametrize("trans_b", [True, False])
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 64, 65, 200])
def test_panels_are_whole_rows_and_the_last_has_what_is_left(launch: Any, trans_b: bool, rows: int) -> None:
    step = 32 if trans_b else 64
    panels = run(launch, 8, rows, 128, trans_b).rows("panel")
    heights = [min(step, rows - first) for first in range(0, rows, step)]
    assert [row.bytes for row in panels] == [height * 128 * 2 for height in heights]
    assert [row.runs for row in panels] == [1] * len(heights)
    starts = [0, *np.cumsum(heights)[:-1]]
    assert [[(each.tensor, each.offset, each.size) for each in row.operands] for row in panels] == [
        [("b", 256 * start, 256 * height)] for start, height in zip(starts, heights, strict=True)
    ]


@pytest.mark.parametrize("m", [1, 32, 33, 64, 200])
def test_a_streamed_operand_is_read_once_however_many_rows_use_it(launch: Any, m: int) -> None:
    panels = run(launch, m, 100, 128, True).rows("panel")
    assert sum(row.bytes for row in panels) == 100 * 128 * 2
    assert len(panels) == 4


def test_a_panel_of_rows_that_are_not_dense_is_a_run_a_row(launch: Any) -> None:
    panel, last = run(launch, 8, 40, 100, True, stride=128).rows("panel")
    assert (panel.runs, panel.bytes, panel.charged) == (32, 32 * 200, 32 * 256)
    assert (last.runs, last.bytes) == (8, 8 * 200)
    assert panel.free - panel.start == 5 + 32 + 32


def test_a_panel_is_charged_the_bursts_that_it_touches(launch: Any) -> None:
    aligned, across = (run(launch, 8, 32, 128, True, offset=offset).row("panel") for offset in (0, 8))
    assert (aligned.charged, across.charged) == (8192, 8192 + 256)
    assert across.free - across.start == aligned.free - aligned.start + 1


def test_the_descriptor_and_the_bytes_of_a_panel_are_its_time(launch: Any) -> None:
    panels = run(launch, 8, 128, 128, True).rows("panel")
    assert [row.free - row.start for row in panels] == [5 + 1 + 32] * 4
    assert [row.end - row.free for row in panels] == [40] * 4
    assert all(before.free == after.start for before, after in pairwise(panels))


# Sub-tiles


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 80), st.integers(1, 150), st.integers(1, 150), st.booleans())
def test_macs_of_the_sub_tiles_sum_to_the_product(launch: Any, m: int, rows: int, cols: int, trans_b: bool) -> None:
    outcome = run(launch, m, rows, cols, trans_b)
    tiles = outcome.rows("gemm")
    assert sum(row.work for row in tiles) == m * rows * cols == outcome.row("composite").work
    assert all(row.work == np.prod(row.shape) for row in tiles)
    n, k = (rows, cols) if trans_b else (cols, rows)
    up = [-(-size // tile) for size, tile in ((m, 32), (n, 32), (k, 64))]
    assert len(tiles) == np.prod(up)


def test_of_a_k_panel_and_a_v_panel(launch: Any) -> None:
    """d = 128, bf16: K 8 KiB and two sub-tiles, V 16 KiB and four (ADR-0014 clause 5)."""
    k, v = run(launch, 8, 32, 128, True), run(launch, 8, 64, 128, False)
    assert (k.row("panel").bytes, [row.shape for row in k.rows("gemm")]) == (8192, [(8, 32, 64)] * 2)
    assert (v.row("panel").bytes, [row.shape for row in v.rows("gemm")]) == (16384, [(8, 32, 64)] * 4)


@pytest.mark.parametrize(("dtype", "cycles"), [("bfloat16", 16), ("float16", 16), ("float32", 64)])
def test_a_sub_tile_takes_its_macs_over_the_array_padded(launch: Any, dtype: str, cycles: int) -> None:
    first, *others = run(launch, 1, 3, 65, True, dtype).rows("gemm")
    assert first.end - first.start == 16 + cycles, "the fill"
    assert [row.end - row.start for row in others] == [cycles]


def test_the_array_the_tiles_and_the_fill_are_fields(launch: Any) -> None:
    spec = {
        "gemm_macs_per_cycle": 1000,
        "tile_m": 8,
        "tile_n": 16,
        "tile_k": 10,
        "gemm_fill_cycles": 5,
        "gemm_f32_factor": 3,
    }
    first, *others = run(launch, 9, 16, 10, True, "float32", spec=spec).rows("gemm")
    assert first.end - first.start == 5 + 3 * 2  # 1280 MAC at 1000 a cycle, rounded up, three passes
    assert [row.end - row.start for row in others] == [6]
    assert [first.shape, others[0].shape] == [(8, 16, 10), (1, 16, 10)]


def test_the_fill_is_paid_once_a_composite(launch: Any) -> None:
    outcome = run(launch, 40, 200, 128, True)
    lengths = [row.end - row.start for row in outcome.rows("gemm")]
    assert lengths == [32] + [16] * (len(lengths) - 1)


def test_no_sub_tile_starts_before_its_panel_has_arrived(launch: Any) -> None:
    outcome = run(launch, 8, 200, 128, True)
    ends = [row.end for row in outcome.rows("panel")]
    starts = [row.start for row in outcome.rows("gemm")]
    assert len(starts) == 2 * len(ends)
    assert all(start >= ends[number // 2] for number, start in enumerate(starts))
    assert starts[0] == ends[0]


def test_where_the_memory_is_slower_each_panel_is_used_as_it_comes(launch: Any) -> None:
    """38 cycles a panel of 32 rows; two sub-tiles take 32."""
    outcome = run(launch, 8, 256, 128, True)
    panels, tiles = outcome.rows("panel"), outcome.rows("gemm")
    before = [row.end for row in tiles[1:-1:2]]
    assert [row.start for row in tiles[2::2]] == [
        max(panel.end, end) for panel, end in zip(panels[1:], before, strict=True)
    ]
    assert tiles[-2].start == panels[-1].end


def test_where_the_array_is_slower_sub_tiles_follow_each_other(launch: Any) -> None:
    tiles = run(launch, 96, 256, 128, True).rows("gemm")
    assert all(before.end == after.start for before, after in pairwise(tiles))


def test_a_product_of_handles_has_sub_tiles_and_no_panels(launch: Any) -> None:
    def kernel(b: Any, *, tl: Any) -> None:
        a, hb = tl.wait(tl.zeros((8, 128), BF16), tl.zeros((40, 128), BF16))
        tl.wait(tl.composite("gemm", a, hb, trans_b=True))

    outcome = launch(kernel, b=((4,), BF16), data=False)
    assert outcome.rows("panel") == []
    tiles = outcome.rows("gemm")
    assert len(tiles) == 4
    assert tiles[0].start == outcome.row("composite").issue
    assert tiles[-1].end == outcome.row("composite").end == tiles[0].start + 16 + 4 * 16


# Stream depth


def in_flight(panels: list[Any], tiles: list[Any], cycle: int) -> int:
    """Panels asked for by `cycle` whose last sub-tile has not ended."""
    each = len(tiles) // len(panels)
    last = [tiles[(number + 1) * each - 1].end for number in range(len(panels))]
    return sum(row.issue <= cycle < end for row, end in zip(panels, last, strict=True))


@pytest.mark.parametrize("depth", [1, 2, 3, 8])
@pytest.mark.parametrize("m", [8, 96])
def test_no_more_panels_than_the_depth_are_in_flight_or_waiting(launch: Any, depth: int, m: int) -> None:
    outcome = run(launch, m, 32 * 12, 128, True, spec={"stream_depth": depth})
    panels, tiles = outcome.rows("panel"), outcome.rows("gemm")
    counts = [in_flight(panels, tiles, row.issue) for row in panels]
    assert max(counts) == depth
    assert counts[:depth] == [depth] * depth, "as many as may be are asked for at once"


def test_a_deeper_stream_is_never_slower_and_one_panel_is_slow(launch: Any) -> None:
    cycles = [run(launch, 8, 32 * 12, 128, True, spec={"stream_depth": depth}).cycles for depth in (1, 2, 4, 8)]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > cycles[-1]


# Order


def several(*sizes: tuple[int, bool]) -> Callable[..., None]:
    """Composites of (rows, streamed), said one right after the other."""

    def kernel(b: Any, *, tl: Any) -> None:
        a = tl.wait(tl.zeros((8, 128), BF16))
        held = tl.wait(tl.zeros((64, 128), BF16))
        done = [
            tl.composite("gemm", a, tl.ref(b, (rows, 128)) if streamed else held, trans_b=True)
            for rows, streamed in sizes
        ]
        tl.wait(*done)

    return kernel


@pytest.mark.parametrize(
    "sizes", [[(64, True)] * 3, [(64, True), (64, False)] * 2, [(320, True), (64, False), (32, True)]]
)
def test_composites_are_served_strictly_in_the_order_issued(launch: Any, sizes: list[tuple[int, bool]]) -> None:
    outcome = launch(several(*sizes), b=((1 << 16,), BF16), data=False)
    for name in ("panel", "gemm"):
        rows = sorted(outcome.rows(name), key=lambda row: row.start)
        assert [row.parent for row in rows] == sorted(row.parent for row in rows)
    ends = [row.end for row in outcome.rows("composite")]
    assert ends == sorted(ends)


def test_panels_of_the_next_one_are_asked_for_while_this_one_is_multiplied(launch: Any) -> None:
    outcome = launch(several((64, True), (64, True)), b=((1 << 16,), BF16), data=False)
    first, second = outcome.rows("composite")
    panels = [row for row in outcome.rows("panel") if row.parent == second.index]
    assert panels[0].start < first.end
    assert panels[0].start >= max(row.start for row in outcome.rows("panel") if row.parent == first.index)


def test_a_load_said_between_two_composites_is_served_between_their_panels(launch: Any) -> None:
    """The stream and direct loads share the DMA channel, first come first served."""

    def kernel(b: Any, *, tl: Any) -> None:
        a = tl.wait(tl.zeros((8, 128), BF16))
        first = tl.composite("gemm", a, tl.ref(b, (64, 128)), trans_b=True)
        h = tl.load(b, (1, 128))
        second = tl.composite("gemm", a, tl.ref(b, (64, 128)), trans_b=True)
        tl.wait(first, h, second)

    outcome = launch(kernel, b=((1 << 16,), BF16), data=False)
    reads = sorted(outcome.log.where(unit="DMA_R"), key=lambda row: row.start)
    assert [row.name for row in reads] == ["panel", "panel", "load", "panel", "panel"]


# Rows


def test_panels_and_sub_tiles_are_children_of_their_composite(launch: Any) -> None:
    outcome = run(launch, 8, 64, 128, True)
    parent = outcome.row("composite")
    children = outcome.rows("panel") + outcome.rows("gemm")
    assert {row.parent for row in children} == {parent.index}
    assert {row.site for row in children} == {parent.site}
    assert {row.unit for row in outcome.rows("panel")} == {"DMA_R"}
    assert {row.unit for row in outcome.rows("gemm")} == {"GEMM"}
    assert parent.unit == "SCHED"
    assert (parent.shape, parent.start) == ((8, 64, 128), outcome.rows("panel")[0].start)
    assert sum(row.bytes for row in outcome.rows("gemm")) == parent.bytes == 0


def test_a_writeback_follows_the_product_and_ends_the_wait(launch: Any) -> None:
    def kernel(b: Any, o: Any, *, tl: Any) -> None:
        a = tl.wait(tl.zeros((8, 128), BF16))
        tl.wait(tl.composite("gemm", a, tl.ref(b, (64, 128)), trans_b=True, out=o))

    outcome = launch(kernel, b=((1 << 16,), BF16), o=((8, 64), BF16), data=False)
    row, parent = outcome.row("writeback"), outcome.row("composite")
    assert (row.unit, row.parent, row.bytes, row.shape) == ("DMA_W", parent.index, 8 * 64 * 2, (8, 64))
    assert row.start == outcome.rows("gemm")[-1].end
    assert row.end - row.start == 6 + 4 + 40
    assert outcome.rows("wait")[-1].end == row.end


def test_the_stream_takes_no_scratch(launch: Any) -> None:
    few, many = (run(launch, 8, rows, 128, False).run.scratch_high_water for rows in (64, 448))
    assert many - few == 8 * (448 - 64) * 2, "a grows with K, the panels do not count"


def test_issue_costs_of_a_composite(launch: Any) -> None:
    assert run(launch, 8, 64, 128, True).row("composite").issue == 8 + 32 + 8 + 48
    assert run(launch, 8, 64, 128, True, spec={"issue_costs": {"composite": 200}}).row("composite").issue == 48 + 200


def test_data_and_structure_take_the_same_time(launch: Any) -> None:
    b = np.zeros((200, 128), ml_dtypes.bfloat16)
    kernel = composite(8, 200, 128, True)
    real, structure = launch(kernel, b=b), launch(kernel, b=b, data=False)
    assert real.log.cells == structure.log.cells


def test_the_log_grows_on_though_a_profiler_keeps_the_frames_that_wrote_to_it(launch: Any) -> None:
    """Those that sample from a thread of their own do now and then, that of a Dask worker for one."""

    def kernel(b: Any, *, tl: Any) -> None:
        a = tl.wait(tl.zeros((8, 128), BF16))
        for _ in range(2):
            tl.wait(tl.composite("gemm", a, tl.ref(b, (64, 128)), trans_b=True))

    frames: list[Any] = []
    sys.setprofile(lambda frame, *_: frames.append(frame))
    try:
        outcome = launch(kernel, b=((1 << 16,), BF16), data=False)
    finally:
        sys.setprofile(None)

    assert len(outcome.rows("composite")) == 2
    assert any(frame.f_code.co_name == "fill_rows" for frame in frames)
