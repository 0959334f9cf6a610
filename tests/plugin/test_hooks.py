"""Hooks: what a `conftest.py` or a plugin adds, and one clear error for each that is broken, with whose it is.

Spec folders, chips, checkers (also by entry point), columns of the log and of the table of clauses.
"""

from pathlib import Path

import pytest

import pytest_kernbench.simulator.ahbm.chip
import pytest_kernbench.simulator.ascend310p.device
import pytest_kernbench.simulator.ops.text  # noqa: F401  (runs in this process load them once)

GIVEN = "GIVEN"
KERNEL = """
import numpy as np
import pytest

def doubled(x, y, *, tl):
    h = tl.load(x, (8, 64))
    tl.wait(tl.store(y, h * 2.0))

@pytest.fixture
def run(run_kernel, ahbm_chip):
    def run(kernel=doubled, **how):
        x = ahbm_chip.tensor("x", (8, 64), "float32", np.ones((8, 64)), "replicate")
        return run_kernel(kernel, x, ahbm_chip.tensor("y", (8, 64), "float32"), on=ahbm_chip, **how)
    return run
"""
CHECKER = """
from pytest_kernbench.checkers import Checker, about
from pytest_kernbench.simulator import Hazard

def small_loads(run):
    for row in run.log.where(name="load"):
        if row.bytes < 4096:
            side = about(run, row)
            yield Hazard("small-load", f"{side}\\n  moves {row.bytes} bytes of 4096 at least", (side,))

CHECKER = Checker({"small-load": "a load moves fewer bytes than a burst of the board"}, small_loads)
"""
CHECKS = CHECKER + "\ndef pytest_kernbench_checkers(request): return [CHECKER]\n"
PASSES = "\ndef test_it(run): run()\n"


def says(project: pytest.Pytester, conftest: str, tests: str, *args: str) -> pytest.RunResult:
    project.makeconftest(conftest)
    project.makepyfile(KERNEL + tests)
    return project.runpytest(*args)


# Spec folders

FOLDERS = "def pytest_kernbench_spec_paths(config): return GIVEN"
DOCUMENT = "---\nid: 1234\ntitle: Mine\nstatus: draft\n---\n## 1 Traffic\nIt shall be little.\n"
NAMES_IT = '\n@pytest.mark.adr("1234", "1")\ndef test_it(): pass\n'


@pytest.mark.parametrize("folders", ["['design']", "[config.rootpath / 'design']", "{'design', 'docs'}"])
def test_a_conftest_names_folders_of_documents(project: pytest.Pytester, folders: str) -> None:
    project.mkdir("design").joinpath("adr-1234.md").write_text(DOCUMENT)

    result = says(project, FOLDERS.replace(GIVEN, folders), NAMES_IT, "-m", "adr1234.1")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*ADR-1234 Mine*", "1 *normative *1 *passed *Traffic"])


def test_the_list_of_documents_has_those_of_the_hook(project: pytest.Pytester) -> None:
    project.mkdir("design").joinpath("adr-1234.md").write_text(DOCUMENT)
    project.makeconftest(FOLDERS.replace(GIVEN, "['design']"))

    project.runpytest("--adr-list").stdout.fnmatch_lines(["ADR-1234  Mine *"])


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ("'design'", "returned 'design'; return a list of folders, as ['design']"),
        ("7", "returned 7; return a list of folders, as ['design']"),
        ("[7]", "gave 7; give folders, as ['design']"),
        ("['dosc']", "*dosc holds no spec document *"),
        ("{}['design']", "raised KeyError: 'design' at *conftest.py:1 in pytest_kernbench_spec_paths"),
    ],
)
def test_a_wrong_folder_is_a_usage_error(project: pytest.Pytester, folders: str, message: str) -> None:
    result = says(project, FOLDERS.replace(GIVEN, folders), NAMES_IT)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *conftest.py: pytest_kernbench_spec_paths{escaped(message)}"])


def escaped(message: str) -> str:
    """For fnmatch; what follows the hook's name stands behind a colon or a blank."""
    return "*" + message.replace("[", "[[]")


# Chips

CHIP = """
from pytest_kernbench.simulator import AhbmChip

class Slow(AhbmChip):
    pass

def pytest_kernbench_make_chip(request, name, spec):
    return GIVEN
"""


def test_a_plugin_puts_its_chip_in_the_place_of_ours_with_the_tests_spec(project: pytest.Pytester) -> None:
    tests = """
@pytest.mark.ahbm(math_lanes=16)
def test_it(run, ahbm_chip):
    assert type(ahbm_chip).__name__ == "Slow"
    assert run().spec.math_lanes == 16

def test_the_other_is_ours(ascend310p_core):
    assert type(ascend310p_core).__name__ == "Ascend310pCore"
"""
    result = says(project, CHIP.replace(GIVEN, "Slow(spec) if name == 'ahbm_chip' else None"), tests)

    result.assert_outcomes(passed=2)


def test_a_conftest_speaks_for_the_tests_below_it(project: pytest.Pytester) -> None:
    test = "def test_it(ahbm_chip): assert type(ahbm_chip).__name__ == '{}'"
    for folder, wanted in {"a": "Slow", "b": "AhbmChip"}.items():
        project.mkdir(folder).joinpath(f"test_{folder}.py").write_text(test.format(wanted))
    (project.path / "a/conftest.py").write_text(CHIP.replace(GIVEN, "Slow(spec)"))

    project.runpytest().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("spec", "returned AhbmSpec(*) for ahbm_chip, which has no method 'run'"),
        ("1 / 0", "raised ZeroDivisionError: division by zero at *conftest.py:7 in pytest_kernbench_make_chip"),
    ],
)
def test_a_wrong_chip_is_an_error_of_the_test(project: pytest.Pytester, made: str, message: str) -> None:
    result = says(project, CHIP.replace(GIVEN, made), PASSES)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*conftest.py: pytest_kernbench_make_chip {message}"])


# Checkers


def test_what_a_checker_finds_fails_the_test_with_its_op_and_line(project: pytest.Pytester) -> None:
    result = says(project, CHECKS, PASSES)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *HazardError: small-load (1 in all)",
            "E *small-load: load on DMA_R of PE0, x[[]0:2048] -> scratch[[]0:2048], at test_*.py:5 in doubled",
            "E *moves 2048 bytes of 4096 at least",
            "E *replay: run_kernel(doubled, ..., schedule='model', seed=0)",
        ]
    )


def test_its_findings_are_collected_allowed_and_switched_off_as_ours_are(project: pytest.Pytester) -> None:
    tests = """
def test_collected(run):
    assert [hazard.kind for hazard in run(check="collect").hazards] == ["small-load"]

def test_off(run):
    assert run(check=False).hazards == ()

@pytest.mark.allow_hazard("small-load", reason="issue 7")
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_allowed(run, schedule): run(schedule=schedule)

def big(x, y, *, tl):
    tl.wait(tl.store(y, tl.zeros((8, 64))))

@pytest.mark.allow_hazard("small-load", reason="issue 7")
def test_stale(run): run(big)

@pytest.mark.allow_hazard("small-lod", reason="issue 7")
def test_no_such_kind(run): run()
"""
    result = says(project, CHECKS, tests)

    result.assert_outcomes(passed=6, errors=2)  # the stale one fails when it is torn down
    result.stdout.fnmatch_lines(["*allow_hazard('small-lod', *there is no such kind; nearest: small-load"])
    result.stdout.fnmatch_lines(['*allow_hazard("small-load", reason="issue 7") is stale*'])


def test_a_checker_may_only_name_kinds_that_a_device_reports(project: pytest.Pytester) -> None:
    names = "from pytest_kernbench.checkers import Checker\n"
    names += "def pytest_kernbench_checkers(request): return [Checker({'burnt-fuse': 'the device found one'})]\n"
    tests = """
from dataclasses import replace
from pytest_kernbench.simulator import AhbmChip, Hazard

class Device(AhbmChip):
    def run(self, *args, **how):
        return replace(super().run(*args, **how), hazards=(Hazard("burnt-fuse", "F3"),))

@pytest.fixture
def ahbm_chip(): return Device()

@pytest.mark.allow_hazard("burnt-fuse", reason="board 2")
def test_it(run): run()
"""
    says(project, names, tests).assert_outcomes(passed=1)


BROKEN = CHECKER + "\ndef pytest_kernbench_checkers(request): return GIVEN\n"


@pytest.mark.parametrize(
    ("checkers", "message"),
    [
        ("CHECKER", "returned Checker(*; return a list of checkers"),
        ("[small_loads]", "gave <function small_loads *>; give pytest_kernbench.checkers.Checker(kinds, judge)"),
        ("[CHECKER, CHECKER]", "the kind 'small-load' is one of *conftest.py: pytest_kernbench_checkers already"),
        ("[Checker({})]", "raised ValueError: Checker({}): give its kinds, as *"),
        ("[Checker(['a'])]", "raised ValueError: Checker(['a']): give its kinds, as *"),
        ("[Checker({'A kind': 'b'})]", "raised ValueError: Checker: 'A kind' is no name of a kind; *"),
        ("[Checker({'race-raw': 'b'})]", "raised ValueError: Checker: the kind 'race-raw' is the package's own; *"),
        ("[Checker({'a-kind': 'b'}, 7)]", "raised ValueError: Checker(a-kind): judge is 7; give a function of a run*"),
        ("request.nothing", "raised AttributeError: * at *conftest.py:12 in pytest_kernbench_checkers"),
    ],
)
def test_a_wrong_checker_is_an_error_of_each_test(project: pytest.Pytester, checkers: str, message: str) -> None:
    result = says(project, BROKEN.replace(GIVEN, checkers), PASSES)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*conftest.py: pytest_kernbench_checkers{escaped(message)}"])


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("lambda run: 1 / 0", "raised ZeroDivisionError: division by zero at *conftest.py:12 in <lambda>"),
        ("lambda run: ['slow']", "gave 'slow'; give Hazard(kind, message, ops)"),
        ("lambda run: None", "raised TypeError: 'NoneType' object is not iterable *"),
        ("small_loads", "gave a finding of kind 'small-load', which is none of its kinds"),
    ],
)
def test_a_checker_that_breaks_says_whose_it_is(project: pytest.Pytester, judge: str, message: str) -> None:
    result = says(project, BROKEN.replace(GIVEN, f"[Checker({{'a-kind': 'it is'}}, {judge})]"), PASSES)

    result.assert_outcomes(failed=1)
    wanted = f"E *ExtensionError: *conftest.py: pytest_kernbench_checkers: the checker of a-kind {message}"
    result.stdout.fnmatch_lines([wanted.replace("[", "[[]")])


def test_a_wrapper_of_a_hook_is_refused(project: pytest.Pytester) -> None:
    wrapper = "import pytest\n@pytest.hookimpl(wrapper=True)\ndef pytest_kernbench_checkers(request): return (yield)\n"

    result = says(project, wrapper, PASSES)

    result.stdout.fnmatch_lines(["*conftest.py: pytest_kernbench_checkers is a wrapper, *: return what you add"])


def test_a_hook_of_a_wrong_name_or_with_a_wrong_argument_stops_the_run(project: pytest.Pytester) -> None:
    for hook in ("def pytest_kernbench_chekers(request): pass", "def pytest_kernbench_checkers(requests): pass"):
        result = says(project, hook, PASSES)

        assert result.ret
        assert "conftest.py" in str(result.stderr) + str(result.stdout)
        assert hook.split("(")[0].removeprefix("def ") in str(result.stderr) + str(result.stdout)


def test_a_conftest_may_have_hooks_of_a_plugin_that_is_switched_off(project: pytest.Pytester) -> None:
    project.makeconftest(
        "import pytest\n@pytest.hookimpl(optionalhook=True)\ndef pytest_kernbench_checkers(request): return []\n"
    )
    project.makepyfile("def test_it(): pass")

    project.runpytest_subprocess("-p", "no:kernbench", "-c", "/dev/null").assert_outcomes(passed=1)


# Checkers of entry points


@pytest.fixture
def installed(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A distribution `board-checks` with an entry point `board`, in a folder of `sys.path`."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")  # which takes its time
    folder = project.mkdir("site")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    offer(folder, "board_checks:CHECKER")
    (folder / "board_checks.py").write_text(CHECKER)
    return project


def offer(folder: Path, value: str) -> None:
    info = folder / "board_checks-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: board-checks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kernbench.checkers]\nboard = {value}\n")


def test_an_installed_checker_judges_every_run(installed: pytest.Pytester) -> None:
    tests = '\n@pytest.mark.allow_hazard("small-load", reason="issue 7")\ndef test_allowed(run): run()\n'
    installed.makepyfile(KERNEL + PASSES + tests)

    installed.runpytest_subprocess().assert_outcomes(failed=1, passed=1)


def test_p_no_its_name_leaves_it_out_as_it_does_a_plugin(installed: pytest.Pytester) -> None:
    installed.makepyfile(KERNEL + PASSES)

    installed.runpytest_subprocess("-p", "no:board").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("value", "message", "workers"),
    [
        ("board_checks:small_loads", "gave <function small_loads *>; give pytest_kernbench.checkers.Checker(*)", ()),
        (
            "board_chekcs:CHECKER",
            "cannot be loaded: ModuleNotFoundError: *; mend it, or leave it out with -p no:board",
            ("-n", "2"),
        ),
    ],
    ids=["alone", "workers"],
)
def test_one_that_cannot_be_loaded_is_one_error_however_many_tests_there_are(
    installed: pytest.Pytester, value: str, message: str, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    offer(installed.path / "site", value)
    installed.makepyfile(KERNEL + "@pytest.mark.parametrize('n', range(3))\ndef test_it(run, n): run()\n")

    result = installed.runpytest_subprocess(*workers)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    who = f"board-checks: the entry point board = {value} of kernbench.checkers"
    result.stderr.fnmatch_lines([f"ERROR: {who} {message}".replace(" gave", "*gave")])
    assert result.parseoutcomes().get("errors", 0) == 0


def test_one_that_cannot_be_loaded_is_nothing_to_tests_without_kernels(installed: pytest.Pytester) -> None:
    offer(installed.path / "site", "board_chekcs:CHECKER")
    installed.makepyfile("def test_it(): pass")

    installed.runpytest_subprocess().assert_outcomes(passed=1)


# Columns of the log

COLUMNS = """
import numpy as np

def energy(log):
    return log.all.bytes * 3 + log.all.work

def pytest_kernbench_log_columns(request):
    return GIVEN
"""


def test_a_column_is_asked_for_as_ours_are(project: pytest.Pytester) -> None:
    tests = """
def test_it(run):
    log = run().log
    loads = log.where(name="load")
    assert loads.energy.tolist() == [2048 * 3]
    assert log.all.energy.sum() == 2 * 2048 * 3 + 512
    assert len(log.where(energy=2048 * 3, unit="DMA_R")) == 1
    assert "energy=6144" in str(loads)
    assert str(log) == str(run(check=False).log)
    with pytest.raises(AttributeError, match="has no column 'energi'; it has name, .*, energy"):
        log.all.energi
"""
    says(project, COLUMNS.replace(GIVEN, "{'energy': energy}"), tests).assert_outcomes(passed=1)


def test_a_golden_adds_a_column_up_if_it_is_asked_to(project: pytest.Pytester) -> None:
    tests = """
def test_asked(run, oplog_snapshot): oplog_snapshot.assert_matches(run(), columns=["energy", "weight"])
def test_not_asked(run, oplog_snapshot): oplog_snapshot.assert_matches(run())
"""
    columns = "{'energy': energy, 'weight': lambda log: [0.25] * len(log)}"

    says(project, COLUMNS.replace(GIVEN, columns), tests, "--snapshot-update").assert_outcomes(passed=2)

    (folder,) = (project.path / "__snapshots__").iterdir()
    asked = (folder / "test_asked[timing].oplog").read_text()
    assert "DMA_R   1 ops  busy 14  bytes 2048  charged 2048  energy 6144  weight 0.25\n" in asked
    assert "energy" not in (folder / "test_not_asked[timing].oplog").read_text()
    assert "energy" not in (folder / "test_asked[structure].oplog").read_text()
    project.runpytest().assert_outcomes(passed=2)
    columns = columns.replace("'weight': lambda log: [0.25]", "'weight': lambda log: [0.5]")
    result = says(project, COLUMNS.replace(GIVEN, columns), tests)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["E *AssertionError: timing: *", "E *weight 0.25*", "E *weight 0.5*"])


def test_a_golden_cannot_have_a_column_that_nobody_adds(project: pytest.Pytester) -> None:
    tests = "def test_it(run, oplog_snapshot): oplog_snapshot.assert_matches(run(), columns=['energi'])\n"

    result = says(project, COLUMNS.replace(GIVEN, "{'energy': energy}"), tests)

    result.stdout.fnmatch_lines(["E *ValueError: the log has no column 'energi'; added are energy"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("['energy']", "returned ['energy']; return {'energy': a function of the log}"),
        ("{'energy': 7}", "gave 'energy': 7; give {'energy': a function of the log}"),
        ("{'bytes': energy}", ": 'bytes' cannot name a column of a log: *"),
        ("{'tensor': energy}", ": 'tensor' cannot name a column of a log: *"),
        ("{'where': energy}", ": 'where' cannot name a column of a log: *"),
        ("{'in mJ': energy}", ": 'in mJ' cannot name a column of a log: *"),
        ("{}['energy']", "raised KeyError: 'energy' at *"),
    ],
)
def test_a_wrong_column_is_an_error_of_each_test(project: pytest.Pytester, columns: str, message: str) -> None:
    result = says(project, COLUMNS.replace(GIVEN, columns), PASSES)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*conftest.py: pytest_kernbench_log_columns{escaped(message)}"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("lambda log: [1]", "is int64 of shape (1,); give * numbers, one a row"),
        ("lambda log: ['a'] * len(log)", "is <U1 of shape (*,); give * numbers, one a row"),
        ("lambda log: log.nothing", "raised AttributeError: * at *conftest.py:7 in <lambda>"),
    ],
)
def test_a_column_that_breaks_says_whose_it_is_when_it_is_asked_for(
    project: pytest.Pytester, function: str, message: str
) -> None:
    tests = "\ndef test_not_asked(run): run()\ndef test_asked(run): run().log.all.energy\n"

    result = says(project, COLUMNS.replace(GIVEN, f"{{'energy': {function}}}"), tests)

    result.assert_outcomes(passed=1, failed=1)
    who = "*conftest.py: pytest_kernbench_log_columns: the column 'energy'"
    result.stdout.fnmatch_lines([f"E *ExtensionError: {who} {message}"])


# Columns of the table of clauses

MATRIX = """
def owner(document, clause):
    return "host team" if clause.number.startswith("11") else ""

def pytest_kernbench_matrix_columns(config):
    return GIVEN
"""
VERIFIES = '\n@pytest.mark.adr("0099", "11.2")\ndef test_it(): pass\n'


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "worker"])
def test_the_table_has_the_column_before_the_title(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    if workers:
        pytest.importorskip("xdist")
    project.makeconftest(MATRIX.replace(GIVEN, "{'owner': owner, 'words': lambda document, clause: len(clause.title)}"))
    project.makepyfile(KERNEL + VERIFIES)

    result = project.runpytest_subprocess("-m", "adr0099", *workers)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "clause  kind         tests  outcome  owner      words  title",
            "1       normative        0  no test             8      Decision",
            "11.2    normative        1  passed   host team  10     Right uses",
        ]
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("[owner]", "returned [<function owner *; return {'owner': a function of document and clause}"),
        ("{7: owner}", "gave 7: <function owner *; give {'owner': a function of document and clause}"),
        ("{'owner': lambda clause: 1}", ": the column 'owner' raised TypeError: *for clause 1 of ADR-0099"),
        ("1 / 0", "raised ZeroDivisionError: division by zero at *"),
    ],
)
def test_a_wrong_column_of_the_table_is_a_usage_error_after_the_tests(
    project: pytest.Pytester, columns: str, message: str
) -> None:
    result = says(project, MATRIX.replace(GIVEN, columns), VERIFIES, "-m", "adr0099")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *conftest.py: pytest_kernbench_matrix_columns{escaped(message)}"])
