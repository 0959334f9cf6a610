"""The list of mutants that may survive names mutants that exist, each with a reason; what is not so is refused."""

import importlib
from pathlib import Path

import pytest

from pytest_kernbench.mutation import survivors
from pytest_kernbench.mutation.mutants import Mutant, mutants_of
from pytest_kernbench.mutation.results import Verdict

LIST = Path(__file__).with_name("survivors.toml")
ENTRY = "[[survivor]]\nid = 'm:f:drop-wait:1'\nline = 'tl.wait(h)'\nafter = 'h'\nreason = 'why'\n"


def mutants() -> dict[str, Mutant]:
    return {each.id: each for each in mutants_of("def f():\n    tl.wait(h)\n", "m")}


def found_stale(tmp_path: Path, text: str, state: str = "survived") -> list[str]:
    (tmp_path / "list.toml").write_text(text)
    verdicts = {each: Verdict(each, "", state, "", 1, "test_it") for each in mutants()}
    return list(survivors.stale(survivors.read(tmp_path / "list.toml"), mutants(), verdicts, ["m"]))


def test_every_entry_of_this_project_is_about_a_mutant_that_is_there() -> None:
    entries = survivors.read(LIST)
    modules = sorted({each.partition(":")[0] for each in entries})
    paths = {name: Path(str(importlib.import_module(name).__file__)) for name in modules}
    there = {each.id: each for name, path in paths.items() for each in mutants_of(path.read_text("utf-8"), name)}

    assert entries
    assert list(survivors.stale(entries, there, {}, modules)) == []


def test_an_entry_about_a_mutant_that_lives_is_not_stale(tmp_path: Path) -> None:
    assert found_stale(tmp_path, ENTRY) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("drop-wait:1", "drop-wait:2", "m:f:drop-wait:2: there is no such mutant any more; take the entry out"),
        (
            "'tl.wait(h)'",
            "'tl.wait(g)'",
            "m:f:drop-wait:1: the entry says 'tl.wait(g)' becomes 'h', it is 'tl.wait(h)'",
        ),
        ("'h'", "'g'", "m:f:drop-wait:1: the entry says 'tl.wait(h)' becomes 'g', it is 'tl.wait(h)' that becomes 'h'"),
    ],
)
def test_an_entry_whose_mutant_is_another_is_stale(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    (line,) = found_stale(tmp_path, ENTRY.replace(old, new))

    assert line.startswith(complaint)


@pytest.mark.parametrize(("state", "complaint"), [("killed", "killed by test_it"), ("equivalent", "equivalent")])
def test_an_entry_whose_mutant_needs_none_is_stale(tmp_path: Path, state: str, complaint: str) -> None:
    (line,) = found_stale(tmp_path, ENTRY, state)

    assert complaint in line


WITHOUT_REASON = [ENTRY.replace("'why'", "' '"), ENTRY.replace("'why'", "3"), ENTRY.replace("reason = 'why'", "")]
NO_LISTS = ["survivor = 1", "[[survivor]", *WITHOUT_REASON]


@pytest.mark.parametrize("text", NO_LISTS)
def test_what_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"list\.toml"):
        found_stale(tmp_path, text)
