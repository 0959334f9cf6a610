"""The figures of docs/delta_rule.md that are quick to make are those that the model gives today."""

from pathlib import Path

import pytest

from benchmarks.delta_rule import SETS, measure, table

PAGE = Path(__file__).parents[2] / "docs" / "delta_rule.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not there outside the repository")
def test_the_table_of_the_page_is_what_is_measured() -> None:
    rows = list(measure(16, tokens=24))

    assert len(rows) == len(SETS)
    for line in table(rows).splitlines()[2:]:
        assert line in PAGE.read_text(encoding="utf-8")


def test_a_longer_sequence_takes_longer_and_moves_the_state() -> None:
    (short, *_), (longer, *_) = measure(16, tokens=2), measure(16, tokens=66)

    assert longer.cycles > short.cycles
    assert (short.dmas, longer.dmas) == (3, 2 * 3 + 2 * 16)
