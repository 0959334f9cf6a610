"""A run that uses nothing of ours imports nothing heavy: counted in modules, since a clock would be noise."""

import json

import pytest

HEAVY = ("numpy", "greenlet", "ml_dtypes", "syrupy.extensions", "asyncio", "difflib")
OURS = ("pytest_kernbench.simulator", "pytest_kernbench.kernels", "pytest_kernbench.parsing", "pytest_kernbench.report")
PROBE = """
import json, sys
def pytest_unconfigure(config):
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""
RUNS = {"plain": ("test_pass.py",), "collect": ("--collect-only",), "help": ("--help",), "failing": ("test_fail.py",)}


@pytest.fixture
def unrelated(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(probe=PROBE, test_pass="def test_it(): pass", test_fail="def test_it(): assert [1] == [2]")
    pytester.syspathinsert()
    return pytester


def modules(project: pytest.Pytester, *args: str) -> set[str]:
    """The modules that are loaded when a run ends."""
    project.runpytest_subprocess("-p", "probe", *args)
    return set(json.loads((project.path / "modules.json").read_text()))


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_an_unrelated_run_loads_only_our_light_modules(unrelated: pytest.Pytester, run: tuple[str, ...]) -> None:
    without = modules(unrelated, "-p", "no:kernbench", *run)
    added = modules(unrelated, "-p", "kernbench", *run) - without

    assert "pytest_kernbench.plugin" in added
    assert not [name for name in added if name.startswith((*HEAVY, *OURS))]
    ours = sorted(name for name in added if name.startswith("pytest_kernbench"))
    assert len(ours) <= 9, f"{len(ours)} modules for a run that does not need us: {ours}"
