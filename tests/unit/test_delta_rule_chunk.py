"""A middle chunk of the delta rule is what a sequence gets longer by, and its units' times add up to it."""

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
