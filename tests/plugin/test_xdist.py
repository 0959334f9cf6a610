"""`-n 2`: the report on clauses is the same as without workers, and says so if a worker is lost."""

import pytest

pytest.importorskip("xdist")

TESTS = """
import os
import pytest

@pytest.mark.adr("0099", "11.1")
def test_wrong_uses(): pass

@pytest.mark.adr("0099", "11.2")
def test_right_uses(): assert 0

@pytest.mark.adr("0099", "1")
def test_decision(): pass

@pytest.mark.xdist_group("g")
@pytest.mark.adr("0099", "B.2")
def test_appendix(): pass
"""


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "xdist", "-n", "2", *args, timeout=60)


def test_results_and_links_of_all_workers_reach_the_table(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    result = run(project, "--dist", "loadgroup", "-m", "adr0099", "-k", "not decision")

    result.stdout.fnmatch_lines(
        [
            "1       normative        1  not run  Decision",
            "11      informative      0  no test  Verification",
            "11.1    normative        1  passed   Wrong uses",
            "11.2    normative        1  failed   Right uses",
            "B.2     informative      1  passed   Appendix",
            "ADR-0099: 1 of 3 normative clauses verified, 1 failing, 1 not run",
        ]
    )
    result.stdout.no_fnmatch_line("clauses may lack tests*")


def test_an_unknown_clause_is_a_usage_error_and_no_internal_one(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS.replace("B.2", "B.3"))

    result = run(project)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::test_appendix names clause B.3, which ADR-0099 does not have; *"])


def test_a_lost_worker_is_said_so(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS.replace("assert 0", "os._exit(1)"))

    result = run(project)

    result.stdout.fnmatch_lines(["clauses may lack tests: 1 of ? workers did not report"])
    result.stdout.fnmatch_lines(["ADR-0099: 2 of 3 normative clauses verified, 1 failing"])


def test_a_lost_worker_matters_only_to_those_who_name_clauses(project: pytest.Pytester) -> None:
    project.makepyfile("import os\ndef test_it(): os._exit(1)\ndef test_other(): pass")

    run(project).stdout.no_fnmatch_line("clauses may lack tests*")
