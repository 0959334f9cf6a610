"""A user's project in a temporary folder, with one spec document and an ini line that names its folder."""

import pytest

DOCUMENT = """\
---
id: ADR-0099
title: A thing
status: accepted
---

## 1 Decision
Everything shall work.

## 11 Verification

### 11.1 Wrong uses
They must be refused.

### 11.2 Right uses
They must pass.

## B.2 Appendix
Read it.
"""
INI = """\
[pytest]
addopts = --strict-markers
kernbench_spec_paths = docs
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Only kernbench and syrupy are loaded in it, so that a run costs little and is the same everywhere."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p kernbench -p syrupy")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)  # the run in it is nobody's worker
    pytester.mkdir("docs").joinpath("adr-0099-thing.md").write_text(DOCUMENT)
    pytester.makefile(".ini", pytest=INI)
    return pytester
