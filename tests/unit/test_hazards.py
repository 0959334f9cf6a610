"""There is one list of kinds of finding: the simulator says no other, and marks may name no other."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from pytest_kernbench import simulator
from pytest_kernbench.hazards import ALLOCATION, KINDS, MEANING, RACES, AllowanceError, allowances, refused
from pytest_kernbench.simulator.errors import Hazard

# What makes a finding, and which of its arguments is the kind.
MAKERS = {"Hazard": 0, "_found": 0, "_report": 0, "_stuck": 0, "_refuse": 1}


def kinds_said(path: Path) -> set[str]:
    """Every word that stands where a finding's kind does."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    places = [node.args[at] for node in calls if (at := MAKERS.get(called(node), 99)) < len(node.args)]
    if path.parent.name == "checks":
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        places += [node.value for node in assigned if ast.unparse(node.targets[0]) == "kind"]
    texts = (each.value for place in places for each in ast.walk(place) if isinstance(each, ast.Constant))
    return {text for text in texts if isinstance(text, str) and re.fullmatch("[a-z]+(-[a-z]+)*", text)}


def called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def test_every_kind_that_the_simulator_says_is_in_the_list() -> None:
    said = {kind for path in Path(simulator.__file__).parent.rglob("*.py") for kind in kinds_said(path)}

    assert said - set(KINDS) == set()
    assert said >= {"race-raw", "recycle-in-flight", "past-logical-length", "credit-lost", "deadlock", "bad-parameter"}


def test_every_kind_has_one_line_and_is_listed_once() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert all(meaning and "\n" not in meaning for meaning in MEANING.values())
    assert {*RACES, *ALLOCATION} <= set(KINDS)


def test_the_list_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        MEANING["race-raw"] = "nothing"  # type: ignore[index]


def mark(*args: Any, **kwargs: Any) -> Any:
    return pytest.mark.allow_hazard(*args, **kwargs).mark


def hazards(*kinds: str) -> list[Hazard]:
    return [Hazard(kind, f"finding {number}") for number, kind in enumerate(kinds)]


def test_what_is_allowed_is_taken_out_and_counted() -> None:
    found = hazards("race-raw", "leak", "race-raw", "overflow")
    allowed = allowances([mark("race-raw", reason="known"), mark("deadlock", reason="known")])

    assert refused(found, allowed) == [found[1], found[3]]
    assert [allowance.matched for allowance in allowed] == [2, 0]


def test_two_allowances_of_a_kind_both_match() -> None:
    allowed = allowances([mark("leak", reason="of the class"), mark("leak", reason="of the test")])

    assert refused(hazards("leak"), allowed) == []
    assert [allowance.matched for allowance in allowed] == [1, 1]


def test_a_stale_allowance_names_its_kind_and_reason() -> None:
    (allowance,) = allowances([mark("leak", reason="issue 7")])

    assert 'allow_hazard("leak", reason="issue 7") is stale: no run of this test had a leak' in allowance.stale()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (mark("leak"), r"allow_hazard\('leak'\) gives no reason"),
        (mark("leak", reason=" "), r"allow_hazard\('leak', reason=' '\) gives no reason"),
        (mark("leak", reason=3), "gives no reason"),
        (mark(reason="known"), r'allow_hazard\(reason=\'known\'\) is not allow_hazard\("kind", reason="..."\)'),
        (mark("leak", "overflow", reason="known"), "one kind a mark"),
        (mark("leak", because="known"), "one kind a mark"),
        (mark("race-rwa", reason="known"), r"there is no such kind; nearest: race-.*\nkinds: race-raw, race-war, "),
        (mark(7, reason="known"), r"there is no such kind\nkinds: race-raw"),
    ],
)
def test_a_mark_that_says_it_wrong_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(AllowanceError, match=message):
        allowances([wrong])
