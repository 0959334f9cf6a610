"""A run is held against the kept figures: worse by more than the margin fails, noise that goes away does not."""

import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compare() -> Iterable[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield importlib.import_module("benchmarks.compare")


@pytest.fixture(scope="module")
def table(compare: Any) -> Any:
    return importlib.import_module("benchmarks.table")


def rounds_of(*rounds: Iterable[Any]) -> tuple[Callable[[Sequence[int]], Iterable[Any]], list[list[int]]]:
    """A measurement that gives each round's results in turn, of the rows it is asked for; and what it was asked for."""
    left, asked = [list(results) for results in rounds], []

    def measure(rows: Sequence[int]) -> Iterable[Any]:
        asked.append(list(rows))
        return [result for result in left.pop(0) if result.row in rows]

    return measure, asked


def verdicts(compared: Iterable[Any]) -> list[str]:
    return [each.verdict for each in compared]


@pytest.mark.parametrize(
    ("at_most", "now", "verdict"),
    [
        (True, 12.5, "same"),  # the margin itself is allowed
        (True, 12.6, "WORSE"),
        (True, 1.0, "same"),  # better is no finding
        (False, 8.0, "same"),
        (False, 7.9, "WORSE"),  # where more is better, the margin is the other way
        (False, 99.0, "same"),
    ],
)
def test_only_worse_by_more_than_the_margin_is_worse(
    compare: Any, table: Any, at_most: bool, now: float, verdict: str
) -> None:
    result = table.against(1, "work", [now], table.Target(10, "T", at_most))

    assert compare.Comparison(result, compare.Kept(10.0, False), 1.25).verdict == verdict


@pytest.mark.parametrize(
    ("kept", "now", "verdict"),
    [
        ((4.9, True), 5.3, "TARGET LOST"),  # well within the margin, and still not allowed
        ((4.9, True), 5.2, "same"),  # the noise of a median so close
        ((5.1, False), 5.3, "same"),  # missed before: held against the file alone
        ((5.1, False), 6.9, "WORSE"),
        ((None, None), 5.0, "NOT KEPT"),
    ],
)
def test_a_target_that_was_met_stays_met_and_a_missed_one_is_not_asked_for(
    compare: Any, table: Any, kept: Any, now: float, verdict: str
) -> None:
    result = table.against(1, "work", [now], table.Target(5, "T"))

    assert compare.Comparison(result, compare.Kept(*kept), 1.25).verdict == verdict


def test_a_target_is_lost_when_not_even_the_best_repetition_comes_to_it(compare: Any, table: Any) -> None:
    kept, target = compare.Kept(4.9, True), table.Target(5, "T")

    for samples, verdict in (((5.2, 5.4, 5.5), "same"), ((5.3, 5.4, 5.5), "TARGET LOST")):
        assert compare.Comparison(table.against(1, "work", samples, target), kept, 1.25).verdict == verdict


def test_a_figure_without_a_target_is_held_against_the_file(compare: Any, table: Any) -> None:
    result = table.Result(8, "gain", (3.0,))

    assert compare.Comparison(result, compare.Kept(2.0, None), 1.25).verdict == "WORSE"


def test_what_looks_worse_is_measured_again_and_the_best_round_counts(compare: Any, table: Any) -> None:
    kept = {(1, "noisy"): compare.Kept(1.0, None), (2, "calm"): compare.Kept(1.0, None)}
    calm = table.Result(2, "calm", (1.0,))
    measure, asked = rounds_of(*([table.Result(1, "noisy", (took,)), calm] for took in (3.0, 1.5, 1.1)))

    assert verdicts(compare.compare(kept, measure, (1, 2))) == ["same", "same"]
    assert asked == [[1, 2], [1], [1]]


def test_two_figures_of_a_row_may_be_good_in_different_rounds(compare: Any, table: Any) -> None:
    kept = {(1, "off"): compare.Kept(1.0, None), (1, "on"): compare.Kept(1.0, None)}
    measure, _ = rounds_of(
        [table.Result(1, "off", (1.0,)), table.Result(1, "on", (2.0,))],
        [table.Result(1, "off", (2.0,)), table.Result(1, "on", (1.0,))],
    )

    assert verdicts(compare.compare(kept, measure, (1,))) == ["same", "same"]


def test_what_stays_worse_is_told_with_row_and_both_numbers(compare: Any, table: Any) -> None:
    kept = {(3, "decode"): compare.Kept(6.8, True)}
    slow = table.against(3, "decode", [9.1], table.Target(8))
    measure, asked = rounds_of(*[[slow]] * 3)

    (found,) = compare.compare(kept, measure, (3,), margin=1.2)
    assert str(found) == "row 3, decode: WORSE: kept 6.80x, now 9.10x, allowed <= 8.16x, target <= 8x"
    assert asked == [[3]] * 3


def test_a_new_figure_and_one_that_is_gone_are_told_and_not_measured_again(compare: Any, table: Any) -> None:
    kept = {(1, "gone"): compare.Kept(1.0, None), (9, "of another row"): compare.Kept(1.0, None)}
    measure, asked = rounds_of([table.Result(1, "new", (1.0,))])

    gone, new = compare.compare(kept, measure, (1,))
    assert (gone.now.work, gone.verdict) == ("gone", "NOT RUN")
    assert (new.now.work, new.verdict) == ("new", "NOT KEPT")
    assert asked == [[1]]


@given(
    kept=st.floats(1e-6, 1e6), margin=st.floats(1.01, 3), slower=st.floats(1, 10), noise=st.lists(st.floats(1, 5)),
)  # fmt: skip
def test_the_verdict_is_that_of_the_calmest_round_whatever_the_noise(
    compare: Any, table: Any, kept: float, margin: float, slower: float, noise: list[float]
) -> None:
    rounds = [[table.Result(1, "work", (kept * slower * more,))] for more in [*noise, 1.0]]
    measure, _ = rounds_of(*rounds)

    (found,) = compare.compare(
        {(1, "work"): compare.Kept(kept, None)}, measure, (1,), margin=margin, rounds=len(rounds)
    )
    assert found.verdict == ("same" if kept * slower <= kept * margin else "WORSE")


def test_figures_are_read_as_they_were_saved(compare: Any, table: Any, tmp_path: Path) -> None:
    met = table.against(1, "a row", [4.0, 3.456, 12.34], table.Target(5, "T"), "3 us")
    missed = table.against(2, "an op", [70.0], table.Target(100, at_most=False))
    left_out = table.not_run(4, "a peer", table.Target(6, at_most=False), "give --pallas PYTHON")

    compare.save(tmp_path / "figures.json", [met, missed, left_out], {"commit": "abc", "unit": "T = 1 us"})
    about, kept = compare.load(tmp_path / "figures.json")
    assert about == {"commit": "abc", "unit": "T = 1 us"}
    assert kept == {
        (1, "a row"): compare.Kept(4.0, True),
        (2, "an op"): compare.Kept(70.0, False),
        (4, "a peer"): compare.Kept(None, None),
    }
    saved = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["figures"][0]
    assert (saved["least"], saved["measured"], saved["most"]) == (3.46, 4.0, 12.3)


def test_every_row_of_the_benchmarks_has_kept_figures_each_under_a_name_of_its_own(compare: Any) -> None:
    figures = json.loads(compare.FIGURES.read_text(encoding="utf-8"))["figures"]
    names = [(each["row"], each["work"]) for each in figures]

    assert {row for row, _ in names} == set(importlib.import_module("benchmarks.__main__").ROWS)
    assert len(set(names)) == len(names)
    assert all(each["measured"] is not None for each in figures if each["row"] in compare.ROWS)


def test_figures_are_kept_of_one_full_run_only(compare: Any, capsys: pytest.CaptureFixture[str]) -> None:
    command = importlib.import_module("benchmarks.__main__")

    for part in (["--quick"], ["--rows", "1"], ["--compare"]):
        with pytest.raises(SystemExit, match="2"):
            command.main(["--save", *part])
    assert "leave --quick, --rows and --compare out" in capsys.readouterr().err
