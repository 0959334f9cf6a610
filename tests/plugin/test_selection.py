"""`-m`: a test that names clauses is selected by its document, by its clauses and by every subtree they lie in."""

import pytest

TESTS = """
import pytest

@pytest.mark.adr("0099", "1")
def test_decision(): pass

@pytest.mark.adr("0099", "11.1", "B.2")
def test_wrong_uses(): pass

@pytest.mark.adr("0099", "11.2")
def test_right_uses(): pass

@pytest.mark.adr("ADR-0099")
def test_document(): pass

@pytest.mark.adr0099
def test_bare(): pass

@pytest.mark.parametrize("value", [0, pytest.param(1, marks=pytest.mark.adr("0099", "11"))])
def test_parameter(value): pass

def test_plain(): pass
"""


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("adr0099", 6),
        ("adr0099.11", 3),
        ("adr0099.11.2", 1),
        ("adr0099.B", 1),
        ("adr0099.B.2", 1),
        ("adr0099.11 and not adr0099.11.1", 2),
        ("not adr0099", 2),
    ],
)
def test_an_expression_selects_the_subtree(project: pytest.Pytester, expression: str, selected: int) -> None:
    project.makepyfile(TESTS)

    project.runpytest("-m", expression).assert_outcomes(passed=selected, deselected=8 - selected)


def test_the_documents_of_the_package_are_always_there(project: pytest.Pytester) -> None:
    project.makepyfile('import pytest\n@pytest.mark.adr("0060", "11.2")\ndef test_it(): pass\ndef test_other(): pass')

    project.runpytest("-m", "adr0060.11").assert_outcomes(passed=1, deselected=1)


def test_a_class_or_module_mark_counts_for_every_test_in_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        'import pytest\npytestmark = pytest.mark.adr("0099", "11.2")\ndef test_a(): pass\ndef test_b(): pass'
    )

    project.runpytest("-m", "adr0099.11").assert_outcomes(passed=2)


def test_unmarked_tests_run_as_ever_and_nothing_is_printed(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it(): pass")

    result = project.runpytest()

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*ADR-*")


def test_what_a_test_verifies_is_a_property_in_the_junit_file(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS)

    project.runpytest("--junit-xml=out.xml", "-k", "test_wrong_uses")

    xml = (project.path / "out.xml").read_text()
    assert '<property name="verifies" value="ADR-0099#11.1,ADR-0099#B.2"' in xml


def test_every_mark_is_registered(project: pytest.Pytester) -> None:
    result = project.runpytest("--markers")

    result.stdout.fnmatch_lines_random(
        [
            "@pytest.mark.adr(document, [*]clauses): *",
            "@pytest.mark.allow_hazard(kind, [*], reason): *",
            "@pytest.mark.ahbm([*][*]spec_fields): *",
            "@pytest.mark.adr0060: *",
            "@pytest.mark.adr0099: A thing",
            "@pytest.mark.adr0099.11.2:*",
            "@pytest.mark.adr0099.B:*",
        ]
    )
