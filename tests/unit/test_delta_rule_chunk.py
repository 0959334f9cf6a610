"""A middle chunk of the delta rule is what a sequence gets longer by, and its units' times add up to it."""

import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_kernbench.kernels.reference.delta_rule_work import Chunk

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT)])
        yield importlib.import_module("benchmarks.delta_rule_chunk")


@pytest.fixture(scope="module")
def small(bench: Any) -> list[Any]:
    """The kernel as it is and with all options, on chunks of 8 tokens and a head of 16 by 16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "SETS", (bench.SETS[0], bench.SETS[-1]))
        return list(bench.measure(16, chunk=8))


def test_small_rows_of_the_page_are_what_is_measured(bench: Any, small: list[Any]) -> None:
    page = (ROOT / "docs" / "delta_rule.md").read_text(encoding="utf-8")

    for line in bench.table(small).splitlines():
        assert line in page


def test_rows_of_the_page_and_of_the_file_are_the_same(bench: Any) -> None:
    page = (ROOT / "docs" / "delta_rule.md").read_text(encoding="utf-8")
    with (ROOT / "docs" / "figures" / "delta_rule" / "middle_chunk.csv").open(encoding="utf-8") as file:
        rows = [bench.Row(**{**row, "faster": float(row["faster"])}) for row in csv.DictReader(file)]

    assert len(rows) == 2 * len(bench.SETS)
    assert bench.table(rows, bench.COSTS) in page


def test_a_flag_per_row_is_worth_it_where_flags_are_dear(bench: Any) -> None:
    def cycles(sync: int, *options: str) -> int:
        two, three = (bench.share(16, 8 * count, options, chunk=8, sync=sync)[1].cycles for count in (2, 3))
        return int(three - two)

    saved = [cycles(sync) - cycles(sync, "flag-per-row") for sync in (1, 16)]
    assert saved[1] > 10 * saved[0]


@pytest.mark.parametrize(("width", "flags", "accesses", "dmas"), [(128, 35_175, 16_576, 260), (64, 22_887, 8_384, 132)])
def test_mended_rows_of_the_page_are_the_closed_forms(
    bench: Any, width: int, flags: int, accesses: int, dmas: int
) -> None:
    page = (ROOT / "docs" / "delta_rule.md").read_text(encoding="utf-8")
    work = Chunk(length=64, dk=width, dv=width, v_step=width).work
    moved = work.bytes_in + work.bytes_out

    assert (work.flag_pairs, work.scalar_gm, work.dma_instructions) == (flags, accesses, dmas)
    assert f"| 1.00 | {flags} | {accesses} | {dmas} | {moved} |" in page


def test_all_time_of_the_vector_unit_has_a_cause(small: list[Any]) -> None:
    for row in small:
        assert row.v_busy + row.v_barrier + row.v_issue + row.v_flag == row.cycles


def test_counts_are_the_closed_forms(small: list[Any]) -> None:
    plain, work = small[0], Chunk(length=8, dk=16, dv=16, v_step=16).work

    assert (plain.flag_pairs, plain.scalar_gm, plain.dmas, plain.dma_bytes) == (
        work.flag_pairs, work.scalar_gm, work.dma_instructions, work.bytes_in + work.bytes_out,
    )  # fmt: skip


def test_a_fourth_chunk_takes_as_long_as_a_third(bench: Any, small: list[Any]) -> None:
    three, four = (bench.share(16, 8 * count, (), chunk=8)[1] for count in (3, 4))

    assert four.cycles - three.cycles == small[0].cycles
