"""What a run looks like when the plugin is listed, asked for help, or switched off."""

import pytest

OFF = ("-p", "no:kernbench")


@pytest.fixture
def off(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The project as installed: plugins load by themselves. Without an ini line of ours, which pytest would warn of."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.delenv("PYTEST_ADDOPTS")
    (project.path / "pytest.ini").write_text("[pytest]\n")
    return project


def test_help_shows_one_group_with_all_options(project: pytest.Pytester) -> None:
    result = project.runpytest("--help")

    result.stdout.fnmatch_lines(["kernel verification (kernbench):", "  --adr-report *", "  --adr-list*ID*"])
    result.stdout.fnmatch_lines(["  kernbench_spec_paths (paths):*"])


def test_other_tests_do_not_notice_that_it_is_gone(off: pytest.Pytester) -> None:
    off.makepyfile('import pytest\n@pytest.mark.adr("0099", "1")\ndef test_it(): pass')

    off.runpytest(*OFF, "-W", "ignore").assert_outcomes(passed=1)


def test_tests_that_need_it_say_which_fixture_is_missing(off: pytest.Pytester) -> None:
    off.makepyfile("def test_it(kernbench_specs): pass\ndef test_other(): pass")

    result = off.runpytest(*OFF)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'kernbench_specs' not found"])
