"""`--adr-list [ID]` lists documents or the clauses of one, and runs nothing."""

import pytest


def test_without_an_id_it_lists_the_documents(project: pytest.Pytester) -> None:
    project.makepyfile("raise SystemExit('collected')")

    result = project.runpytest("--adr-list")

    assert result.ret == 0
    result.stdout.fnmatch_lines(["ADR-0060  *", "ADR-0099  A thing  (accepted; 5 clauses, 3 normative)"])


@pytest.mark.parametrize("name", ["0099", "ADR-0099"])
def test_with_an_id_it_lists_the_marks_of_the_clauses(project: pytest.Pytester, name: str) -> None:
    result = project.runpytest("--adr-list", name)

    result.stdout.fnmatch_lines(
        [
            "ADR-0099  A thing *",
            "  adr0099.1  Decision",
            "  adr0099.11  Verification  (informative)",
            "  adr0099.11.1  Wrong uses",
        ],
        consecutive=True,
    )


def test_an_unknown_id_is_a_usage_error(project: pytest.Pytester) -> None:
    result = project.runpytest("--adr-list", "0098")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ADR-0098 is no spec document; nearest: *ADR-0099*"])
