"""A document, a clause or a `-m` name that does not exist stops the run and names what comes nearest."""

import pytest


def marked(mark: str) -> str:
    return f"import pytest\n@pytest.mark.{mark}\n@pytest.mark.parametrize('i', [0, 1])\ndef test_it(i): pass"


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (
            'adr("0099", "11.3")',
            "*test_bad.py::test_it names clause 11.3, which ADR-0099 does not have; nearest: 11.?, *",
        ),
        ('adr("0099", "11.02")', "*test_bad.py::test_it names clause 11.02, which * nearest: 11.2*"),
        ('adr("0098", "1")', "*test_bad.py::test_it: ADR-0098 is no spec document; nearest: ADR-0099*"),
        ('adr("0099", 11.2)', "*test_bad.py::test_it*: adr('0099', 11.2) is not adr(*) with every part a string"),
        ('adr("0099", clause="1")', "*: adr('0099', clause='1') is not adr(*"),
        ("adr()", "*: adr() is not adr(*"),
        ("adr", "*: adr() is not adr(*"),
    ],
    ids=["clause", "zero", "document", "float", "keyword", "empty", "bare"],
)
def test_a_mark_that_names_nothing_is_a_usage_error(project: pytest.Pytester, mark: str, message: str) -> None:
    project.makepyfile(test_bad=marked(mark))

    result = project.runpytest()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_every_mistake_is_listed_once(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=marked('adr("0099", "7")'), test_b=marked('adr("0099", "8")'))

    result = project.runpytest()

    assert result.stderr.str().count(" names clause ") == 2


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("adr0098", "-m names adr0098, which no spec document has; nearest: *adr0099*"),
        ("adr0099.11.3", "-m names adr0099.11.3, which no spec document has; nearest: adr0099.11.?, *"),
        ("slow or (adr0099 and not adr99)", "-m names adr99, which no spec document has; nearest: *"),
    ],
    ids=["document", "clause", "one-of-many"],
)
def test_an_unknown_name_in_an_expression_is_a_usage_error(
    project: pytest.Pytester, expression: str, message: str
) -> None:
    project.makepyfile("def test_it(): pass")

    result = project.runpytest("-m", expression, "-o", "addopts=", "-o", "markers=slow")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.no_fnmatch_line("*collected*")
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


@pytest.mark.parametrize("name", ["my_adr0098", "adr7", "adrift"])
def test_marks_of_the_users_own_are_left_alone(project: pytest.Pytester, name: str) -> None:
    project.makepyfile(f"import pytest\n@pytest.mark.{name}\ndef test_it(): pass\ndef test_other(): pass")

    result = project.runpytest("-m", name, "-o", f"markers={name}: mine")

    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.no_fnmatch_line("ADR-*")
