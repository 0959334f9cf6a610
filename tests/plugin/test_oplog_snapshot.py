"""Golden op logs in a user's project: written, matched, renewed, and not lost to a test that fails for other reasons.

The project's kernel loads, computes and stores; `EDIT` is how its author changes it afterwards.
"""

import importlib
from pathlib import Path

import pytest

import pytest_kernbench.simulator.ahbm.chip
import pytest_kernbench.simulator.ops.difference
import pytest_kernbench.simulator.ops.text  # noqa: F401
from pytest_kernbench import snapshots

KERNEL = """
def double(x, o, *, tl):
    h = tl.load(x, (4, 64))
    with tl.region("scale"):
        y = h * 2.0
    tl.wait(tl.store(o, y))
"""
TEST = """
import pytest
from kernel import double
from pytest_kernbench.simulator.ahbm.chip import AhbmChip

def run(**how):
    chip = AhbmChip()
    x, o = chip.tensor("X", (4, 64), place=0), chip.tensor("O", (4, 64))
    return chip.run(double, x, o, **how)

@pytest.mark.adr("0099", "11.2")
def test_double(oplog_snapshot):
    oplog_snapshot.assert_matches(run())
"""
EDIT = ("y = h * 2.0", "y = tl.exp(h * 2.0)")
STRUCTURE, TIMING = "test_double[structure].oplog", "test_double[timing].oplog"


@pytest.fixture
def goldens(project: pytest.Pytester) -> Path:
    """The folder of goldens of the project's only test file."""
    project.makepyfile(kernel=KERNEL, test_it=TEST)
    project.syspathinsert()
    return project.path / "__snapshots__" / "test_it"


def replace(project: pytest.Pytester, file: str, old: str, new: str) -> None:
    path = project.path / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest(*args)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_update_writes_both_goldens_and_the_next_run_matches_them(project: pytest.Pytester, goldens: Path) -> None:
    run(project, "--snapshot-update").assert_outcomes(passed=1)
    written = contents(goldens)
    run(project).assert_outcomes(passed=1)

    assert list(written) == [STRUCTURE, TIMING]
    assert "  MATH    mul        4x64       scratch+0x0:512 -> scratch+0x200:1024  @scale\n" in written[STRUCTURE]
    assert "\ncycles " in written[TIMING]
    assert contents(goldens) == written


def test_a_missing_golden_fails_with_the_command_that_writes_it(project: pytest.Pytester, goldens: Path) -> None:
    result = run(project)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *structure: no golden yet, test_double?structure?.oplog is missing", "E *accept: *--snapshot-update"]
    )
    assert not goldens.exists()


def test_a_mismatch_names_the_first_differing_op_and_what_to_do(project: pytest.Pytester, goldens: Path) -> None:
    run(project, "--snapshot-update")
    replace(project, "kernel.py", *EDIT)

    result = run(project)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *structure: first difference: PE0 op 3: (line 9) 1 op is added: MATH exp 4x64 *",
            "E *ops: 6 -> 7 (MATH 1 -> 2)",
            "E *-   CPU     wait       for mul@scale",
            "E *+   MATH    exp * @scale",
            "E *said at:  kernel.py:4 in double",
            "E *received: *structure.oplog.new",
            "E *accept:   pytest test_it.py::test_double --snapshot-update",
            "E *verifies: ADR-0099#11.2",
            "E *timing: first difference (line 4): cycles 170 -> 206",
            "2 snapshots failed.",
        ]
    )


def test_what_was_received_lies_under_tmp_path_and_not_beside_the_golden(
    project: pytest.Pytester, goldens: Path
) -> None:
    run(project, "--snapshot-update")
    before = contents(goldens)
    replace(project, "kernel.py", *EDIT)

    run(project, "--basetemp=received")

    new = project.path / "received" / "test_double0" / "structure.oplog.new"
    assert contents(goldens) == before
    assert "exp" in new.read_text()
    run(project, "--snapshot-update").assert_outcomes(passed=1)
    assert contents(goldens)[STRUCTURE] == new.read_text()


@pytest.mark.parametrize(
    "crash",
    [
        ("oplog_snapshot.assert_matches(run())", "assert run().cycles == 0; oplog_snapshot.assert_matches(run())"),
        ("def test_double(", "@pytest.fixture\ndef broken(): 1 / 0\n\ndef test_double(broken, "),
    ],
    ids=["in the test", "in a fixture before ours"],
)  # fmt: skip
def test_a_test_that_fails_before_it_compares_keeps_its_goldens(
    project: pytest.Pytester, goldens: Path, crash: tuple[str, str]
) -> None:
    run(project, "--snapshot-update")
    before = contents(goldens)
    replace(project, "test_it.py", *crash)

    run(project, "--snapshot-update")

    assert contents(goldens) == before


def test_a_test_that_passes_without_comparing_loses_them(project: pytest.Pytester, goldens: Path) -> None:
    run(project, "--snapshot-update")
    replace(project, "test_it.py", "oplog_snapshot.assert_matches(run())", "pass")

    assert run(project).ret == pytest.ExitCode.TESTS_FAILED
    run(project, "--snapshot-update").assert_outcomes(passed=1)

    assert not list(goldens.glob("*.oplog"))


def test_other_schedules_share_the_structure_and_have_no_timing(project: pytest.Pytester, goldens: Path) -> None:
    run(project, "--snapshot-update")
    replace(project, "test_it.py", "run())", "run()); oplog_snapshot.assert_matches(run(schedule='jitter', seed=3))")

    run(project).assert_outcomes(passed=1)


def test_two_logs_of_one_test_need_two_names(project: pytest.Pytester, goldens: Path) -> None:
    two = "run()); oplog_snapshot.assert_matches(run(grid=2){})"
    replace(project, "test_it.py", "run())", two.format(""))
    result = run(project, "--snapshot-update")
    result.stdout.fnmatch_lines(["*this test compares two different logs with its golden structure*"])

    replace(project, "test_it.py", "(grid=2)", "(grid=2), name='both'")
    run(project, "--snapshot-update").assert_outcomes(passed=1)

    assert list(contents(goldens)) == [
        "test_double[both.structure].oplog", "test_double[both.timing].oplog", STRUCTURE, TIMING,
    ]  # fmt: skip


def test_an_id_that_no_file_name_can_hold_is_refused(project: pytest.Pytester, goldens: Path) -> None:
    param = "@pytest.mark.parametrize('n', ['a/b', 'ab'])\ndef test_double(n, oplog_snapshot)"
    replace(project, "test_it.py", "def test_double(oplog_snapshot)", param)

    result = run(project, "--snapshot-update")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["the golden 'test_double?a/b??structure?.oplog' would be called *give the parameters *"]
    )
    assert list(contents(goldens)) == ["test_double[ab][structure].oplog", "test_double[ab][timing].oplog"]


def test_a_log_too_long_to_review_is_refused(project: pytest.Pytester, goldens: Path) -> None:
    replace(
        project,
        "kernel.py",
        "    with tl.region",
        "    for n in range(1, 420):\n        tl.zeros((n % 7 + 1, n * n % 97 + 1))\n    with tl.region",
    )

    result = run(project, "--snapshot-update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*structure: 4?? lines and * bytes are more than *: use a smaller shape, *"])
    assert not goldens.exists()


def test_workers_of_xdist_write_match_and_keep(project: pytest.Pytester, goldens: Path) -> None:
    pytest.importorskip("xdist")
    replace(project, "test_it.py", "def test_double(", "@pytest.mark.parametrize('n', [1, 2, 3])\ndef test_double(n, ")
    parallel = ("-p", "xdist", "-n", "2", "--snapshot-update")
    project.runpytest_subprocess(*parallel, timeout=60).assert_outcomes(passed=3)
    before = contents(goldens)
    replace(project, "test_it.py", "    oplog_snapshot.", "    assert n != 2\n    oplog_snapshot.")

    project.runpytest_subprocess(*parallel, timeout=60).assert_outcomes(passed=2, failed=1)

    assert len(before) == 6
    assert contents(goldens) == before


def test_without_syrupy_the_fixture_says_what_is_missing(project: pytest.Pytester, goldens: Path) -> None:
    result = run(project, "-p", "no:syrupy")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["oplog_snapshot keeps its goldens with the plugin syrupy, which is switched off: *"])


def test_an_error_while_writing_is_no_mismatch(project: pytest.Pytester, goldens: Path) -> None:
    (project.path / "__snapshots__").write_text("a file in the place of the folder")

    result = run(project, "--snapshot-update")

    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*no golden yet*")


def test_the_extension_is_found_under_the_name_it_gives() -> None:
    extension = snapshots.OpLogExtension

    assert getattr(importlib.import_module(extension.__module__), extension.__qualname__) is extension
    with pytest.raises(AttributeError, match="has no attribute 'AmberExtension'"):
        _ = snapshots.AmberExtension


def test_a_plain_syrupy_assertion_shows_the_same_first_line(project: pytest.Pytester, goldens: Path) -> None:
    plain = """
from pytest_kernbench.simulator.ops.text import structure
from pytest_kernbench.snapshots import OpLogExtension

def test_plain(snapshot):
    assert structure(run().log) == snapshot.use_extension(OpLogExtension)
"""
    (project.path / "test_it.py").write_text(TEST.partition("@pytest.mark")[0] + plain)
    run(project, "--snapshot-update").assert_outcomes(passed=1)
    replace(project, "kernel.py", *EDIT)

    result = run(project)

    result.stdout.fnmatch_lines(
        ["E *first difference: PE0 op 3: (line 9) 1 op is added: MATH exp *", "E *+   MATH    exp*"]
    )
