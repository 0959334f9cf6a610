"""A trial of a mutant goes on from the tests it has passed before, as long as they are the same tests."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_kernbench.mutation.judgement import Judgement
from pytest_kernbench.mutation.mutants import Mutant, mutants_of
from pytest_kernbench.mutation.report import long_trials
from pytest_kernbench.mutation.results import Begun, Learnt, Results

MUTANT: Mutant = mutants_of("def kernel(x, tl):\n    tl.wait(x)\n", "m")[0]
TESTS = {name: Learnt(name, f"file of {name}", "passed", 1.0, "seen", {}, {}, {}, {}) for name in "abc"}


def judged(known: Begun | None, *passed: str, seen: str = "seen") -> Judgement:
    """What there is after some tests have passed."""
    judgement = Judgement(MUTANT, TESTS, known)
    for test in passed:
        judgement.hear({"start": test})
        judgement.hear({"test": test, "result": "passed", "seen": seen, "how": ""})
    return judgement


def test_what_was_passed_is_not_run_again() -> None:
    known = judged(None, "a", "b").so_far("key")
    again = judged(known)

    assert (again.passed, again.left) == (["a", "b"], ["c"])
    again = judged(known, "c")
    again.end(late=False)
    assert (again.state, again.how) == ("equivalent", "")


def test_a_difference_is_remembered() -> None:
    again = judged(judged(None, "a", seen="other").so_far("key"), "b", "c")
    again.end(late=False)

    assert (again.state, again.how) == ("survived", "runs differ in a")


def test_an_edited_test_is_run_again_and_a_new_one_too() -> None:
    known = judged(None, "a", "b", seen="other").so_far("key")
    edited = {**TESTS, "a": replace(TESTS["a"], key="edited"), "d": TESTS["c"]}
    again = Judgement(MUTANT, edited, known)

    assert again.left == ["a", "c", "d"]
    assert again.so_far("key").differs == ""  # `a` may be the same by now; `b` is not known to be


def test_one_that_goes_away_is_not_missed() -> None:
    known = judged(None, "a", "b").so_far("key")

    assert Judgement(MUTANT, {"b": TESTS["b"]}, known).left == []


@pytest.mark.parametrize(("late", "how"), [(True, "no end within 20 s"), (False, "its process died")])
def test_one_that_does_not_end_is_killed_whatever_was_passed_before(late: bool, how: str) -> None:
    again = judged(judged(None, "a").so_far("key"), "b")
    again.hear({"start": "c"})
    again.end(late)

    assert (again.state, again.by, again.how) == ("killed", "c", how)


def test_the_file_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    first = Results(file)
    for passed in (["a"], ["a", "b"]):
        first.add(judged(None, *passed).so_far("key"))
    first.close()

    assert Results(file).begun == {MUTANT.id: judged(None, "a", "b").so_far("key")}


def test_progress_names_what_holds_the_run_up() -> None:
    judgement = judged(None, "a")

    assert list(long_trials([judgement], judgement.began + 29)) == []
    assert list(long_trials([judgement], judgement.began + 41)) == [
        "    for 41 s: m:kernel:drop-wait:1, 1 of 3 tests passed"
    ]
