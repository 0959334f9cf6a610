"""What a repository elsewhere gets from the wheel: fixtures, goldens, clauses, workers, reports; and with it off.

Runs two repositories that use the package and nothing else of this checkout. `python -m tests.downstream.matrix` does
the same on other Pythons and with the oldest versions that pyproject.toml allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Repositories = Callable[[str], Any]


@dataclass(frozen=True)
class Case:
    """A repository, and how many of its tests do what."""

    name: str
    document: str
    clauses: int  # normative ones
    tests: int
    of_document: int
    of_chapter_1: int
    without_plugin: int  # tests that use nothing of ours
    golden: str
    line: str  # that the repository's own hook prints


SWIGLU = Case(
    "swiglu_ring", "7001", 7, tests=28, of_document=16, of_chapter_1=5, without_plugin=6,
    golden="tests/__snapshots__/test_swiglu/test_golden[timing].oplog",
    line="cycles   2464  ADR-7001#2.1  tests/test_swiglu.py::test_weights_are_streamed_once",
)  # fmt: skip
PADDED = Case(
    "padded_rows", "7002", 8, tests=39, of_document=30, of_chapter_1=24, without_plugin=6,
    golden="tests/__snapshots__/test_gelu/test_golden[structure].oplog",
    line="tests/test_gelu.py::test_any_length[513-3] PASSED",
)  # fmt: skip
CASES = pytest.mark.parametrize("case", [SWIGLU, PADDED], ids=lambda case: case.name)


def test_the_sdist_builds_the_same_wheel(environments: Any, built: Any) -> None:
    direct, by_sdist = environments.files_of(built.wheel), environments.files_of(built.wheel_of_sdist)

    assert sorted(direct) == sorted(by_sdist)
    assert [name for name in direct if direct[name] != by_sdist[name]] == []


def test_the_wheel_has_one_package_and_every_module_of_the_checkout(environments: Any, built: Any) -> None:
    names = set(environments.files_of(built.wheel))

    assert {re.sub(r"-.*", "", name.partition("/")[0]) for name in names} == {"pytest_kernbench"}
    for folder in ("simulator", "kernels", "specs", "pytest_kernbench"):
        inside = "pytest_kernbench" if folder == "pytest_kernbench" else f"pytest_kernbench/{folder}"
        here = {
            f"{inside}/{path.relative_to(environments.ROOT / folder).as_posix()}"
            for path in (environments.ROOT / folder).rglob("*.py")
        }
        assert len(here) > 1
        assert here <= names


def test_the_package_is_that_of_the_environment(environments: Any, python: Path, tmp_path: Path) -> None:
    where = environments.call(python, "-c", "import pytest_kernbench as p; print(p.__file__)", cwd=tmp_path)

    assert python.parents[1] in Path(where).parents


@CASES
def test_plain(repository: Repositories, case: Case) -> None:
    run = repository(case.name).run("-v")

    assert run.counts == {"passed": case.tests}, run.text
    assert f"ADR-{case.document}: {case.clauses} of {case.clauses} normative clauses verified" in run.text
    assert "4 snapshots passed." in run.text
    assert case.line in run.text


@CASES
def test_the_tests_of_its_document(repository: Repositories, case: Case) -> None:
    run = repository(case.name).run("-m", f"adr{case.document}")

    assert run.counts == {"passed": case.of_document, "deselected": case.tests - case.of_document}, run.text
    table = re.findall(r"^[\d.]+ +(normative|informative) +\d+ +(passed|no test) ", run.text, re.MULTILINE)
    assert table.count(("normative", "passed")) == case.clauses
    assert len(table) == case.clauses + 4  # three chapters, and what is left out
    assert (re.search("^clause .* owner +title$", run.text, re.MULTILINE) is not None) == (case is SWIGLU)  # by a hook


@CASES
def test_the_tests_of_a_chapter_and_of_a_clause_nobody_wrote(repository: Repositories, case: Case) -> None:
    copy = repository(case.name)

    run, wrong = copy.run("-m", f"adr{case.document}.1"), copy.run("-m", f"adr{case.document}.9")

    assert run.counts == {"passed": case.of_chapter_1, "deselected": case.tests - case.of_chapter_1}, run.text
    assert wrong.status == pytest.ExitCode.USAGE_ERROR
    assert f"-m names adr{case.document}.9, which no spec document has" in wrong.text


@CASES
def test_snapshot_update_renews_what_changed_and_drops_what_nobody_uses(repository: Repositories, case: Case) -> None:
    copy = repository(case.name)
    goldens = {path: path.read_bytes() for path in (copy.path / "tests/__snapshots__").rglob("*.oplog")}
    changed = copy.path / case.golden
    unused = changed.with_name("test_gone[timing].oplog")
    changed.write_bytes(changed.read_bytes().replace(b"2", b"3"))
    unused.write_bytes(b"# oplog 1 timing\n")

    before = copy.run("-q")
    update = copy.run("-q", "--snapshot-update")

    assert before.counts == {"failed": 1, "passed": case.tests - 1}, before.text
    assert "1 snapshot failed. 3 snapshots passed. 1 snapshot unused." in before.text
    assert update.counts == {"passed": case.tests}, update.text
    assert "3 snapshots passed. 1 snapshot updated. 1 unused snapshot deleted." in update.text
    assert {path: path.read_bytes() for path in (copy.path / "tests/__snapshots__").rglob("*.oplog")} == goldens


@CASES
def test_two_workers_say_the_same(repository: Repositories, case: Case) -> None:
    copy = repository(case.name)

    run = copy.run("-n", "2", "-v", "--adr-report")

    assert run.counts == {"passed": case.tests}, run.text
    assert "4 snapshots passed." in run.text
    assert len(re.findall(r"^[\d.]+ +normative +\d+ +passed ", run.text, re.MULTILINE)) == case.clauses
    assert "clauses may lack tests" not in run.text


@CASES
def test_with_pytest_html(repository: Repositories, case: Case) -> None:
    copy = repository(case.name)

    run = copy.run("--html=report.html", "--self-contained-html")

    assert run.counts == {"passed": case.tests}, run.text
    page = (copy.path / "report.html").read_text(encoding="utf-8")
    assert f'<span class="passed">{case.tests} Passed,' in page
    assert ("<th>Cycles</th>" in page) == (case is SWIGLU)


def test_a_device_of_its_own_keeps_the_contract_that_is_installed(repository: Repositories) -> None:
    run = repository("toy_device").run("-n", "2")

    assert set(run.counts) == {"passed"}, run.text
    assert run.counts["passed"] > 18  # promises of a device alone are so many
    assert "ADR-7003: 3 of 3 normative clauses verified" in run.text


def test_a_repository_with_the_plugin_off_runs_what_does_not_use_it(repository: Repositories) -> None:
    run = repository("padded_rows").run("-p", "no:kernbench", "-rE")

    assert run.counts["passed"] >= PADDED.without_plugin
    assert run.counts["passed"] + run.counts["errors"] == PADDED.tests, run.text
    assert "fixture 'run_kernel' not found" in run.text
    assert "PytestUnknownMarkWarning: Unknown pytest.mark.adr" in run.text
    assert "kernbench" not in "".join(re.findall("Unknown config option.*", run.text))  # its folders come by a hook


def test_a_strict_repository_with_the_plugin_off_names_what_it_lacks(repository: Repositories) -> None:
    copy = repository("swiglu_ring")

    strict = copy.run("-p", "no:kernbench")
    lenient = copy.run("-p", "no:kernbench", "-o", "addopts=", "-W", "default")

    assert strict.counts == {"errors": 3}, strict.text  # of the four files, those that have marks
    assert "'adr' not found in `markers` configuration option" in strict.text
    assert "Unknown config option: kernbench_spec_paths" in strict.text
    assert lenient.counts["passed"] >= SWIGLU.without_plugin
    assert lenient.counts["passed"] + lenient.counts["errors"] == SWIGLU.tests, lenient.text


@dataclass(frozen=True)
class Fault:
    """An edit of a kernel, what it should be found as, and where: lines counted from the edit's own."""

    case: Case
    file: str
    old: str
    new: str
    failed: int
    reads: str
    writes: str


MISSING_WAIT = Fault(
    SWIGLU, "kernels/swiglu.py", "            tl.wait(*ready)\n", "", failed=15,
    reads=r"mul on MATH of PE0, .* at swiglu\.py:{0} in swiglu",
    writes=r"composite on GEMM of PE0, .* at swiglu\.py:27 in ",
)  # fmt: skip
MISSING_BARRIER = Fault(
    PADDED, "kernels/gelu.py", "        asc.PipeBarrier(asc.PIPE_V)\n        asc.Adds(", "        asc.Adds(", failed=22,
    reads=r"Adds on V of block0, .* at gelu\.py:{0} in compute",
    writes=r"Exp on V of block0, .* at gelu\.py:43 in compute",
)  # fmt: skip


@pytest.mark.parametrize("fault", [MISSING_WAIT, MISSING_BARRIER], ids=lambda fault: fault.case.name)
def test_a_broken_kernel_fails_with_the_finding_and_its_lines(repository: Repositories, fault: Fault) -> None:
    copy = repository(fault.case.name)
    line = copy.replace(fault.file, fault.old, fault.new)

    run = copy.run()

    assert run.counts == {"failed": fault.failed, "passed": fault.case.tests - fault.failed}, run.text
    found = rf"race-raw: {fault.reads.format(line)}\nE +reads what\nE +{fault.writes}"
    assert re.search(found, run.text), run.text
