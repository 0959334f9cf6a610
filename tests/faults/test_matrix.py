"""What counts as seen: of findings their kinds, of a run that came to its end its results, work and time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from .matrix import CHECKERS, SCHEDULES, SLOWER, Seen, caught_by, checkers_of, heading, row_of, rows_on_the_page

ONE, OTHER, NAN = np.array([1.0]), np.array([2.0]), np.array([np.nan])
RIGHT = Seen((), (ONE,), True, (3,), 1000)
NOTHING = {letter: set[str]() for letter in SCHEDULES}


def test_a_run_like_the_right_one_is_seen_by_nobody() -> None:
    assert caught_by(dict.fromkeys(SCHEDULES, RIGHT), RIGHT) == NOTHING


@pytest.mark.parametrize(
    ("change", "checkers"),
    [
        ({"kinds": ("race-raw", "race-war")}, {"race"}),
        ({"kinds": ("out-of-bounds",)}, {"refusal"}),
        ({"right": False}, {"numeric"}),
        ({"results": (NAN,)}, {"nan"}),
        ({"work": (4,)}, {"structure"}),
    ],
    ids=str,
)
def test_each_checker_sees_its_own(change: dict[str, object], checkers: set[str]) -> None:
    found = dict.fromkeys(SCHEDULES, replace(RIGHT, **change))
    assert caught_by(found, RIGHT) == dict.fromkeys(SCHEDULES, checkers)


def test_time_is_judged_under_the_model_alone_and_by_the_stated_rule() -> None:
    slow, at_the_bound = (replace(RIGHT, cycles=int(SLOWER * 1000) + more) for more in (1, 0))

    assert caught_by(dict.fromkeys(SCHEDULES, slow), RIGHT) == {**NOTHING, "M": {"time"}}
    assert caught_by(dict.fromkeys(SCHEDULES, at_the_bound), RIGHT) == NOTHING


def test_nan_where_the_right_kernel_has_it_too_is_nobodys() -> None:
    unwritten = replace(RIGHT, results=(NAN,))
    assert caught_by(dict.fromkeys(SCHEDULES, unwritten), unwritten) == NOTHING


def test_bits_that_differ_are_seen_under_every_schedule() -> None:
    found = {"M": RIGHT, "J": RIGHT, "L": replace(RIGHT, results=(OTHER,))}
    assert caught_by(found, RIGHT) == {letter: {"determinism"} for letter in SCHEDULES}


def test_a_run_that_was_refused_has_findings_alone() -> None:
    found = {**dict.fromkeys(SCHEDULES, RIGHT), "J": Seen(("deadlock",))}
    assert caught_by(found, RIGHT) == {**NOTHING, "J": {"deadlock"}}


def test_a_row_says_who_saw_it_who_did_not_and_who_could_not() -> None:
    caught = {"M": {"race"}, "J": {"race", "numeric"}, "L": set[str]()}
    told, late, missed = (
        row_of("X", "text", *rest)
        for rest in ((("nan",), caught, True), (("nan",), caught, False), ((), NOTHING, True))
    )

    assert told == "| X | text | nan | MJ | . | . | . | . | . | J | . | . | . | caught, not by nan |"
    assert late.endswith(" | caught |"), "it did not come to its end: no checker is said to miss that"
    assert missed.endswith(" | **missed** |")
    assert told.count("|") == heading().count("|")


def test_every_kind_has_a_checker_and_every_checker_a_row() -> None:
    rows = [row.split(" | ")[3:-1] for row in rows_on_the_page().values()]
    seen = {name for name, *cells in zip(CHECKERS, *rows, strict=True) if set(cells) != {"."}}

    assert checkers_of(["no such kind", "livelock", "leak"]) == {"refusal", "deadlock", "leftover"}
    assert seen == set(CHECKERS)
