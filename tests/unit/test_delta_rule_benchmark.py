"""The figures of docs/delta_rule.md that are quick to make are those that the model gives today."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT)])
        yield importlib.import_module("benchmarks.delta_rule")


def test_the_last_rows_of_the_page_are_what_is_measured(bench: Any) -> None:
    rows = list(bench.measure(16, tokens=24))
    page = (ROOT / "docs" / "delta_rule.md").read_text(encoding="utf-8")

    assert len(rows) == len(bench.SETS)
    for line in bench.table(rows).splitlines()[2:]:
        assert line in page


def test_a_state_that_goes_on_is_moved_row_by_row(bench: Any) -> None:
    short, longer = next(bench.measure(16, tokens=2)), next(bench.measure(16, tokens=66))

    assert longer.cycles > short.cycles
    assert longer.dmas - short.dmas == 4 + 2 * 16  # K, Q, V, the output; the state out and in
