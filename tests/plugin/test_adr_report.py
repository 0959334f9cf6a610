"""`--adr-report` and the summary line: what the tests of this run say about each clause."""

import pytest

TESTS = """
import pytest

@pytest.mark.adr("0099", "1")
@pytest.mark.parametrize("good", [True, False])
def test_decision(good): assert good

@pytest.mark.adr("0099", "11.1")
def test_wrong_uses(): pass

@pytest.mark.adr("0099", "11.2")
def test_right_uses(): pytest.skip("not today")

@pytest.mark.adr("0099")
def test_document(): pass

@pytest.mark.adr0099
def test_bare(): pass
"""
SUMMARY = "ADR-0099: 1 of 3 normative clauses verified, 1 failing, 1 skipped"


def one(body: str, *decorators: str) -> str:
    return "\n".join(["import pytest", '@pytest.mark.adr("0099", "1")', *decorators, f"def test_it(request): {body}"])


def test_the_table_goes_clause_by_clause(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    result = project.runpytest("--adr-report")

    result.stdout.fnmatch_lines(
        [
            "*- ADR-0099 A thing -*",
            "clause  kind         tests  outcome  title",
            "1       normative        2  failed   Decision",
            "11      informative      0  no test  Verification",
            "11.1    normative        1  passed   Wrong uses",
            "11.2    normative        1  skipped  Right uses",
            "B.2     informative      0  no test  Appendix",
            "-       informative      2  passed   the document as a whole",
            SUMMARY,
            "*= 1 failed, *",
        ],
        consecutive=False,
    )


def test_the_table_comes_by_itself_when_the_expression_names_a_document(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    result = project.runpytest("-m", "adr0099.11")

    result.stdout.fnmatch_lines(
        [
            "1       normative        2  not run  Decision",
            "11.1    normative        1  passed   Wrong uses",
            "ADR-0099: 1 of 3 normative clauses verified, 1 skipped, 1 not run",
        ]
    )


@pytest.mark.parametrize("option", [(), ("--adr-report",)])
def test_only_the_documents_that_the_expression_names_have_a_table(
    project: pytest.Pytester, option: tuple[str, ...]
) -> None:
    project.makepyfile(TESTS)

    result = project.runpytest("-m", "adr0060", *option)

    result.stdout.fnmatch_lines(["*- ADR-0060 *", "ADR-0060: 0 of *", "ADR-0099: 0 of 3 *"])
    result.stdout.no_fnmatch_line("*- ADR-0099 *")


def test_without_the_option_there_is_one_line(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    result = project.runpytest()

    result.stdout.fnmatch_lines([SUMMARY])
    result.stdout.no_fnmatch_line("clause *")


def test_a_document_of_the_user_is_in_the_report_even_if_no_test_names_it(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(): pass")

    result = project.runpytest("--adr-report")

    result.stdout.fnmatch_lines(["ADR-0099: 0 of 3 normative clauses verified, 3 without a test"])
    result.stdout.no_fnmatch_line("*ADR-0060*")


SKIPPED = one("pass", "@pytest.mark.skip")
WAYS = {  # to end: the test, and what it makes of its clause
    "pass": (one("pass"), "passed"),
    "fail": (one("assert 0"), "failed"),
    "skip": (one("pytest.skip()"), "skipped"),
    "skip-mark": (SKIPPED, "skipped"),
    "xfail": (one("assert 0", "@pytest.mark.xfail"), "skipped"),
    "xpass-strict": (one("pass", "@pytest.mark.xfail(strict=True)"), "failed"),
    "setup-error": (one("pass", "@pytest.mark.usefixtures('no_such_fixture')"), "failed"),
    "teardown-error": (one("request.addfinalizer(lambda: 1 / 0)"), "failed"),
    "one-of-two-skipped": (SKIPPED + "\n" + one("pass").replace("test_it", "test_other"), "passed"),
}


@pytest.mark.parametrize(("test", "outcome"), WAYS.values(), ids=WAYS)
def test_a_clause_fails_with_any_of_its_tests_and_skips_verify_nothing(
    project: pytest.Pytester, test: str, outcome: str
) -> None:
    project.makepyfile(test)

    result = project.runpytest("--adr-report")

    result.stdout.fnmatch_lines([f"1       normative        ?  {outcome:7}  Decision"])


def test_a_run_that_stops_early_says_which_clauses_did_not_run(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    result = project.runpytest("-x", "--adr-report")

    result.stdout.fnmatch_lines(["11.1    normative        1  not run  Wrong uses"])


def test_a_test_in_which_the_run_was_stopped_has_not_passed(project: pytest.Pytester) -> None:
    project.makepyfile(one("pytest.exit('enough')"))

    result = project.runpytest("--adr-report")

    result.stdout.fnmatch_lines(["1       normative        1  not run  Decision"])
