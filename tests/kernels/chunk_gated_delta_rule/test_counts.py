"""Every instruction, repeat, flag pair and byte of a chunk in the middle of a sequence, against the closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.faithful import FaithfulChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import Item, LengthsOfTiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling_of_step
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore


class Counts(NamedTuple):
    """Of one chunk of one value head."""

    instructions: int
    repeats: int
    flag_pairs: int
    scalar_gm: int
    dma_in: int
    dma_out: int
    dmas: int


def repeats_of(elements: int) -> int:
    return -(-elements // 64)


def closed_form(L: int, dk: int, dv: int, v_step: int) -> Counts:
    """Facts 9, for widths that are whole blocks."""
    n2, n1, R, tiles = L * (L + 1) // 2, L * (L - 1) // 2, repeats_of, dv // v_step
    cached, wide = L * dk <= 64 * v_step, dk >= 64
    scalars, rows = (L - 1) * (L - 2) // 2 if L else 0, L * R(v_step)
    key = 1 + L + 2 + 3 * L + 2 * cached + (n1 + n2) * (1 + wide) + scalars + 2 * L + n2
    value = 1 + 2 * L + 1 + n2 + 1 + L * (dk + 3) + L * (dk + 1) + n2 + 2 + dk + L * dk
    key_repeats = (
        R(L * dk) * (1 + 2 * cached) + L * R(dk) + 1 + R(L) + 3 * L * R(L) + (n1 + n2) * (R(dk) + dk // 64) + scalars
        + 2 * L * R(dk) + n2 * R(dk)
    )  # fmt: skip
    value_repeats = (
        4 * R(L * v_step) + 2 * rows + 2 * n2 * R(v_step) + R(dk * v_step) + (dk + 3 + dk + 1) * rows
        + (dk + L * dk) * R(v_step)
    )  # fmt: skip
    flags = 3 * L + 5 + (n1 + n2) + n2 + L * (not cached) + tiles * (2 * n2 + 3 * L * dk + L + 2)
    scalar_gm = 2 * L + L * dk * (not cached) + tiles * (L + 2 * L * dk)
    state = 4 * dk * v_step
    return Counts(
        key + tiles * value, key_repeats + tiles * value_repeats, flags, scalar_gm,
        2 * L * dk * (1 + cached) + tiles * (2 * L * v_step + state), tiles * (2 * L * v_step + state),
        1 + cached + tiles * (2 + 2 * dk),
    )  # fmt: skip


class MiddleChunk(LengthsOfTiling):
    """A sequence's tokens as one chunk that is neither the first nor the last."""

    def ProcessItem(self, item: Item) -> None:
        self.ProcessChunk(Chunk(item.batch, item.head, 0, item.token, item.length, False, False), item.tiles)


class FaithfulMiddleChunk(FaithfulChunkGatedDeltaRule, MiddleChunk):
    """The same of the public version."""


def run_of(L: int, dk: int, dv: int, v_step: int, variant: Any = MiddleChunk, **options: Any) -> Any:
    """Structure only: nothing here depends on data."""
    shape = Shape((L,), 1, 1, dk, dv)
    plan = tiling_of_step(shape, v_step, cores=1)
    launched = host.launch(Ascend310pCore(), shape, tiling=plan, variant=variant)
    return launched.run(check=False, **options)


def counted(run: Any) -> Counts:
    """From the log: rows that have all but their times in common are counted together."""
    log = run.log
    kinds = np.frombuffer(log.cells, np.int32).reshape(len(log), -1)[:, 0]
    total = dict.fromkeys(Counts._fields, 0)
    for kind, times in enumerate(np.bincount(kinds, minlength=len(log.descriptors)).tolist()):
        for field, number in of_a_row(log, log.descriptors[kind]).items():
            total[field] += times * number
    return Counts(**total)


def of_a_row(log: Any, row: Any) -> dict[str, int]:
    """What one row counts for."""
    name, unit = log.names.values[row.name], log.units.values[row.unit]
    if name == "DataCopy":
        return {"dma_in" if unit == "MTE2" else "dma_out": row.bytes, "dmas": 1}
    if name.partition("<")[0] in ("SetFlag", "WaitFlag", "PipeBarrier"):
        return {"flag_pairs": int(name in ("SetFlag<S_V>", "SetFlag<V_S>"))}
    if unit == "V":
        count = log.shapes.values[row.shape][0]
        return {"instructions": 1, "repeats": count if name == "WholeReduceSum" else repeats_of(count)}
    if name in ("GetValue", "SetValue"):
        return {"scalar_gm": int(log.labels.values[(row.reads or row.writes)[0][0]] not in ("UB", "lengths"))}
    return {}


TABLE = {
    (128, 128, 128): Counts(41_867, 82_723, 35_175, 16_576, 114_688, 81_920, 260),
    (128, 128, 64): Counts(71_118, 82_467, 64_041, 41_216, 98_304, 81_920, 517),
    (128, 128, 16): Counts(246_636, 257_955, 236_853, 139_904, 98_304, 81_920, 2_065),
    (64, 64, 64): Counts(29_515, 30_019, 22_887, 8_384, 40_960, 24_576, 132),
    (80, 80, 80): Counts(32_603, 59_607, 25_959, 10_432, 56_320, 35_840, 164),
}


@pytest.mark.parametrize(("widths", "counts"), TABLE.items(), ids=str)
def test_the_closed_form_is_the_table(widths: tuple[int, int, int], counts: Counts) -> None:
    assert closed_form(64, *widths) == counts


@pytest.mark.parametrize(("L", "instructions", "repeats"), [(1, 539, 1_327), (17, 8_027, 16_359), (63, 40_963, 80_966)])
def test_the_closed_form_has_the_tables_tails(L: int, instructions: int, repeats: int) -> None:
    assert closed_form(L, 128, 128, 128)[:2] == (instructions, repeats)


@pytest.mark.adr("0311", "6.3", "9.1")
@pytest.mark.parametrize("variant", [MiddleChunk, FaithfulMiddleChunk], ids=["mended", "faithful"])
@pytest.mark.parametrize(
    ("L", "dk", "dv", "v_step"),
    [
        (1, 128, 128, 128), (5, 128, 128, 64), (3, 128, 128, 16), (9, 64, 64, 64), (6, 80, 80, 80), (7, 16, 32, 16),
        (17, 16, 16, 16), (2, 192, 64, 32), (64, 16, 16, 16),
    ],
)  # fmt: skip
def test_a_chunk_is_the_closed_form(L: int, dk: int, dv: int, v_step: int, variant: Any) -> None:
    assert counted(run_of(L, dk, dv, v_step, variant)) == closed_form(L, dk, dv, v_step)


@pytest.mark.adr("0311", "9.1")
def test_the_chunk_of_the_table_as_it_runs() -> None:
    """And its times: the scalar unit, flags among it, is what it waits for."""
    run = run_of(64, 128, 128, 128, FaithfulMiddleChunk)

    assert counted(run) == TABLE[128, 128, 128]
    assert (run.cycles, busy(run)) == (1_306_440, {"MTE2": 7_616, "MTE3": 5_184, "S": 621_942, "V": 171_653})


def busy(run: Any) -> dict[str, int]:
    """Cycles that each unit was occupied by operations."""
    rows = {unit: run.log.where(unit=unit) for unit in ("MTE2", "MTE3", "S", "V")}
    return {unit: int((each.free - each.start).sum()) for unit, each in rows.items()}


def test_the_first_and_the_last_chunk_bring_and_take_the_state_by_scalars() -> None:
    shape = Shape((5,), 1, 1, 16, 16)
    run = host.launch(Ascend310pCore(), shape).run(check=False)

    middle, found = closed_form(5, 16, 16, 16), counted(run)
    assert found.instructions == middle.instructions + 2
    assert found.scalar_gm == middle.scalar_gm + 2 * 16 * 16
    assert (found.dmas, found.dma_in, found.dma_out) == (4, 3 * 160, 160)
    ka.assert_dma_aligned(run)
    ka.assert_ub_budget(run, 262_144)


@pytest.mark.parametrize("gate", [True, False])
def test_a_run_without_data_has_the_log_of_one_with(delta: Any, gate: bool) -> None:
    inputs = delta.inputs((9, 0, 3), hk=1, hv=2, dk=16, dv=12, gate=gate)
    with_data = delta.call(inputs).run
    alone = host.launch(Ascend310pCore(), Shape((9, 0, 3), 1, 2, 16, 12), gate=gate).run()

    assert [alone.log.cells[at] for at in range(1, 400)] == [with_data.log.cells[at] for at in range(1, 400)]
    assert counted(alone) == counted(with_data)
    assert alone.cycles == with_data.cycles
