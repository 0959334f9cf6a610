"""`kernbench_spec_paths`: a downstream project brings its own documents with one ini line."""

import pytest

FRONT = "---\nid: {id}\ntitle: Mine\nstatus: draft\n---\n"


def test_paths_are_relative_to_the_ini_file(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile('import pytest\n@pytest.mark.adr("0099", "1")\ndef test_it(): pass')
    monkeypatch.chdir(project.mkdir("elsewhere"))

    project.runpytest("-c", "../pytest.ini", "-m", "adr0099", "..").assert_outcomes(passed=1)


def test_a_document_of_the_project_takes_the_place_of_the_packages(project: pytest.Pytester) -> None:
    (project.path / "docs/adr-0060.md").write_text(FRONT.format(id="0060") + "## 77 Mine\nIt must.\n")
    project.makepyfile('import pytest\n@pytest.mark.adr("0060", "77")\ndef test_it(): pass')

    result = project.runpytest()

    result.stdout.fnmatch_lines(["ADR-0060: 1 of 1 normative clauses verified"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("docs/b.md", FRONT.format(id="0099"), "*b.md:1: ADR-0099 is already the id of *adr-0099-thing.md"),
        ("docs/b.md", FRONT.format(id="1") + "## 1 A\n## 1 B\n", "*docs?b.md:7: clause 1 was already given in line 6"),
        ("pytest.ini", "[pytest]\nkernbench_spec_paths = dosc", "kernbench_spec_paths: *dosc holds no spec document *"),
        ("pytest.ini", "[pytest]\nkernbench_spec_paths = src", "kernbench_spec_paths: *src holds no spec document *"),
    ],
    ids=["same-id", "same-clause", "no-folder", "no-document"],
)
def test_a_mistake_in_a_document_or_a_path_stops_the_run(
    project: pytest.Pytester, name: str, text: str, message: str
) -> None:
    project.mkdir("src").joinpath("README.md").write_text("# No document\n")
    (project.path / name).write_text(text)

    result = project.runpytest()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_document_is_utf_8_with_or_without_its_mark(project: pytest.Pytester) -> None:
    document = project.path / "docs" / "adr-0098-other.md"
    document.write_bytes(FRONT.format(id="0098").replace("title: ", "title: \xe9").encode("latin-1"))
    result = project.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *adr-0098-other.md: not UTF-8 from byte *; save it as UTF-8"])

    document.write_bytes(b"\xef\xbb\xbf" + FRONT.format(id="0098").encode())
    project.runpytest("--adr-list").stdout.fnmatch_lines(["*0098*"])


def test_the_fixture_gives_documents_with_their_text(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_it(kernbench_specs):
            assert kernbench_specs["0099"].clause("11.2").text == "They must pass."
            assert kernbench_specs["0060"].clause("11.2").text
        """
    )

    project.runpytest().assert_outcomes(passed=1)
