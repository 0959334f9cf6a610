"""`--kernbench-mutate` in a project of a user's: survivors with line and clause, resumed, bounded, in parallel."""

import json
from pathlib import Path

import pytest

KERNEL = """\
def decay(x, y, rows, *, tl):
    for first in range(0, 32, rows):
        with tl.scratch_scope():
            half = tl.load(x + first * 64, (rows, 64)) * 0.5
            tl.wait(tl.store(y + first * 64, tl.exp(half)))
"""
WEAK = """\
import pytest
from my_kernels import decay

@pytest.mark.adr("0099", "11.2")
def test_it_runs(run_kernel, ahbm_chip):
    x, y = ahbm_chip.tensor("x", (32, 64)), ahbm_chip.tensor("y", (32, 64))
    assert run_kernel(decay, x, y, 8, on=ahbm_chip).cycles > 0

def test_host():
    assert 1 + 1 == 2
"""
STRONG = """\
import numpy as np
from my_kernels import decay
from pytest_kernbench import assertions as ka

def test_decay(run_kernel, ahbm_chip):
    data = np.random.default_rng(0).standard_normal((1, 32, 64), dtype=np.float32)
    x, y = ahbm_chip.tensor("x", (32, 64), "float32", data), ahbm_chip.tensor("y", (32, 64), "float32")
    run = run_kernel(decay, x, y, 8, on=ahbm_chip)
    ka.assert_matches_reference(run, "y", np.exp(data.astype(np.float64) / 2), 1e-5)
    ka.assert_bytes_read(run, "x", [32 * 64 * 4])
    ka.assert_scratch_within(run, 3 * 8 * 64 * 4)
"""


@pytest.fixture
def kernels(project: pytest.Pytester) -> pytest.Pytester:
    """A project with the kernel and tests that are too weak."""
    project.makepyfile(my_kernels=KERNEL, test_weak=WEAK)
    project.syspathinsert()
    return project


def mutate(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("--kernbench-mutate", *args, timeout=120)


def verdicts(project: pytest.Pytester) -> dict[str, str]:
    """What became of each mutant, by the results file; later lines count."""
    lines = (project.path / ".kernbench-mutate.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines if line]
    return {each["mutant"]: each["state"] for each in entries if "mutant" in each}


def test_a_survivor_is_reported_with_its_line_and_the_clause_it_endangers(kernels: pytest.Pytester) -> None:
    result = mutate(kernels)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "my_kernels.py:2: survived off-by-one in decay",
            "    - range(0, 32, rows)",
            "    + range(0, 32 - rows, rows)",
            "    runs differ in test_weak.py::test_it_runs",
            "    none of 1 tests that reach it noticed; endangers ADR-0099 11.2",
            "    id my_kernels:decay:off-by-one:1",
        ]
    )
    result.stdout.fnmatch_lines(["all *score *"])
    result.stdout.no_fnmatch_line("*drop-wait in decay")  # a finding of the checkers, whatever a test asserts


def test_a_strong_test_lets_nothing_survive_and_a_stopped_run_goes_on(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(test_strong=STRONG)

    stopped = mutate(kernels, "--kernbench-mutate-time", "0")
    stopped.stdout.fnmatch_lines(["no mutants: *as far as the time went; run again to go on"])
    first = mutate(kernels)
    assert first.ret == pytest.ExitCode.OK
    first.stdout.no_fnmatch_line("*survived * in decay")
    first.stdout.fnmatch_lines(["all * 0 survived   0 not reached * score 100.0 %"])
    again = mutate(kernels)

    again.stdout.fnmatch_lines(["kernel mutation: 0 of 3 tests to run first, the others are known"])
    again.stdout.fnmatch_lines(["0 mutants tried in *, the others were known"])
    assert again.ret == pytest.ExitCode.OK


def test_what_was_found_of_other_source_or_weaker_tests_does_not_hold(kernels: pytest.Pytester) -> None:
    mutate(kernels, "--kernbench-mutate-only", "off-by-one")
    assert verdicts(kernels)["my_kernels:decay:off-by-one:1"] == "survived"

    kernels.makepyfile(test_strong=STRONG)
    result = mutate(kernels, "--kernbench-mutate-only", "off-by-one")

    result.stdout.fnmatch_lines(["kernel mutation: 1 of 3 tests to run first, the others are known"])
    assert set(verdicts(kernels).values()) == {"killed"}
    assert all(":off-by-one:" in name for name in verdicts(kernels))


INTERRUPTING = """
import os, signal, time

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process of a background job ignores

def test_quick(run_kernel, ahbm_chip):
    note("quick")
    test_it_runs(run_kernel, ahbm_chip)

def test_last(run_kernel, ahbm_chip):
    note("last")
    if os.environ.get("STOP"):
        time.sleep(0.5)
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    time.sleep(0.1)
    test_it_runs(run_kernel, ahbm_chip)

def note(name):
    with open("ran.txt", "a") as file:
        print(name, file=file)
"""


def test_a_mutant_that_is_given_up_goes_on_from_the_tests_it_has_passed(
    kernels: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.makepyfile(test_weak=WEAK + INTERRUPTING)
    ran, only = kernels.path / "ran.txt", ("--kernbench-mutate-only", "my_kernels:decay:off-by-one:1")
    mutate(kernels, "--kernbench-mutate-only", "none")  # learns
    ran.unlink()

    monkeypatch.setenv("STOP", "1")
    stopped = mutate(kernels, *only)
    assert stopped.ret == pytest.ExitCode.INTERRUPTED
    stopped.stdout.fnmatch_lines(["stopped: 1 mutants were not tried to the end; run again to go on"])
    monkeypatch.delenv("STOP")
    result = mutate(kernels, *only)

    assert ran.read_text().split() == ["quick", "last", "last"]
    assert verdicts(kernels) == {only[1]: "survived"}
    result.stdout.fnmatch_lines(["    runs differ in test_weak.py::*", "    none of 3 tests that reach it noticed*"])


def test_after_a_new_test_a_survivor_is_tried_with_that_alone(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(test_weak=WEAK + INTERRUPTING)
    only = ("--kernbench-mutate-only", "my_kernels:decay:off-by-one:1")
    mutate(kernels, *only)
    (kernels.path / "ran.txt").unlink()

    slower = STRONG.replace("    run = ", "    __import__('time').sleep(0.5)\n    run = ")  # else it would be the first
    kernels.makepyfile(test_strong=slower)
    mutate(kernels, *only)

    assert verdicts(kernels) == {only[1]: "killed"}
    assert not (kernels.path / "ran.txt").exists()


def test_two_processes_find_what_one_does(kernels: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    some = ("--kernbench-mutate-only", "off-by-one", "--kernbench-mutate-only", "*:decay:*-address:*")
    mutate(kernels, *some)
    alone = verdicts(kernels)
    (kernels.path / ".kernbench-mutate.jsonl").unlink()

    result = mutate(kernels, *some, "-p", "xdist", "-n", "2")

    assert verdicts(kernels) == alone
    assert len(alone) == 7 and set(alone.values()) == {"killed", "survived"}
    result.assert_outcomes(passed=2)
    assert not result.stderr.lines


def test_a_mutant_with_the_same_logs_and_bits_is_equivalent(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(
        my_kernels="def fill(y, n, *, tl):\n    tl.wait(tl.store(y, tl.zeros((min(n, 8), 64))))\n",
        test_weak="""
            from my_kernels import fill

            def test_it_runs(run_kernel, ahbm_chip):
                run_kernel(fill, ahbm_chip.tensor("y", (8, 64)), 8, on=ahbm_chip, data=True)
            """,
    )
    result = mutate(kernels, "--kernbench-mutate-only", "drop-bound")

    assert verdicts(kernels) == dict.fromkeys(
        ["my_kernels:fill:drop-bound:1", "my_kernels:fill:drop-bound:2"], "equivalent"
    )
    assert result.ret == pytest.ExitCode.OK


def test_a_mutant_that_never_ends_is_killed(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(
        my_kernels="""
            def spin(y, *, tl):
                n = 3
                while n != 0:
                    n = n - 1
                tl.wait(tl.store(y, tl.zeros((8, 64))))
            """,
        test_weak="""
            from my_kernels import spin

            def test_it_runs(run_kernel, ahbm_chip):
                run_kernel(spin, ahbm_chip.tensor("y", (8, 64)), on=ahbm_chip)
            """,
        conftest="from pytest_kernbench.mutation import judgement\njudgement.PATIENT = 1.0\n",
    )
    mutate(kernels, "--kernbench-mutate-only", "swap-operands")  # 1 - n: -2, 3, -2, ...

    assert verdicts(kernels) == {"my_kernels:spin:swap-operands:1": "killed"}
    assert "no end within" in (kernels.path / ".kernbench-mutate.jsonl").read_text()


def test_a_list_explains_survivors_and_may_not_go_stale(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(test_strong=STRONG)
    ini = kernels.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nkernbench_mutate_survivors = survivors.toml\n")
    entries = {
        "my_kernels:decay:off-by-one:1": ("for first in range(0, 32, rows):", "range(0, 32 - rows, rows)"),
        "my_kernels:decay:off-by-one:9": ("for first in range(0, 32, rows):", "range(0, 32 - rows, rows)"),
        "my_kernels:decay:skip-scope:1": ("with tl.scratch_scope():", "pass"),
        "other_kernels:f:skip-scope:1": ("of a module that this run does not mutate", "pass"),
    }
    listed(kernels.path, entries)

    result = mutate(kernels)

    result.stdout.fnmatch_lines(
        [
            "stale entry in the list of survivors: my_kernels:decay:off-by-one:1: killed by test_strong.py::*",
            "stale entry in the list of survivors: my_kernels:decay:off-by-one:9: there is no such mutant any more; *",
            "stale entry in the list of survivors: my_kernels:decay:skip-scope:1: the entry says *'pass', it is *",
        ]
    )
    result.stdout.no_fnmatch_line("*other_kernels*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_survivor_with_a_reason_does_not_fail_unless_the_score_is_too_low(kernels: pytest.Pytester) -> None:
    ini = kernels.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nkernbench_mutate_survivors = survivors.toml\n")
    only = ("--kernbench-mutate-only", "my_kernels:decay:off-by-one:1")
    listed(kernels.path, {only[1]: ("for first in range(0, 32, rows):", "range(0, 32 - rows, rows)")})

    assert mutate(kernels, *only).ret == pytest.ExitCode.OK
    result = mutate(kernels, *only, "--kernbench-mutate-min", "95")

    result.stdout.fnmatch_lines(["the score is 0.0 %, at least 95 % was asked for"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def listed(folder: Path, entries: dict[str, tuple[str, str]]) -> None:
    text = "".join(
        f"[[survivor]]\nid = '{id}'\nline = '{line}'\nafter = '{after}'\nreason = 'known'\n\n"
        for id, (line, after) in entries.items()
    )
    (folder / "survivors.toml").write_text(text)


def test_a_test_that_fails_by_itself_is_said_so_and_judges_nothing(kernels: pytest.Pytester) -> None:
    kernels.makepyfile(test_weak=WEAK.replace(".cycles > 0", ".cycles < 0"))

    result = mutate(kernels)

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["no mutants: *", "does not pass by itself, and was not used: test_weak.py::test_it_runs"]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_name_that_nothing_has_is_said_so(kernels: pytest.Pytester) -> None:
    result = mutate(kernels, "--kernbench-mutate-only", "no_such_kernel")

    result.stdout.fnmatch_lines(["no mutants: --kernbench-mutate-only names nothing of my_kernels"])


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--snapshot-update"], "ERROR: --kernbench-mutate and --snapshot-update: *"),
        (["--kernbench-mutate-time=soon"], "*argument --kernbench-mutate-time: invalid float value: 'soon'"),
    ],
)
def test_what_cannot_be_is_refused(kernels: pytest.Pytester, given: list[str], complaint: str) -> None:
    result = mutate(kernels, *given)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([complaint])


def test_a_list_that_is_none_is_refused_with_what_an_entry_is(kernels: pytest.Pytester) -> None:
    ini = kernels.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nkernbench_mutate_survivors = survivors.toml\n")
    (kernels.path / "survivors.toml").write_text("[[survivor]]\nid = 'a'\n")

    result = mutate(kernels)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *survivors.toml: no list of survivors: *; an entry is [[][[]survivor]] with *"]
    )
