"""What a child does: run tests under watch, of kernels as they are or of one mutant.

A child reports to its parent alone: its terminal is shut. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FunctionType

import pytest

from pytest_kernbench.mutation import mutants, sources
from pytest_kernbench.mutation.children import Say
from pytest_kernbench.mutation.mutants import Mutant
from pytest_kernbench.mutation.results import name_of
from pytest_kernbench.mutation.watching import Lines, Probes, Watch


class Outcome:
    """How one test went: hears the reports of its phases."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    @property
    def result(self) -> str:
        """What came of it: "passed" in the ordinary way, "failed", or "other" for skips and expected failures."""
        if any(report.failed for report in self.reports):
            return "failed"
        plain = all(report.passed and not hasattr(report, "wasxfail") for report in self.reports)
        return "passed" if plain and self.reports else "other"

    @property
    def printed(self) -> str:
        """What it wrote to the standard output."""
        return "".join(report.capstdout for report in self.reports)

    @property
    def how(self) -> str:
        """The first line of what failed."""
        failed = next((report for report in self.reports if report.failed), None)
        crash = getattr(getattr(failed, "longrepr", None), "reprcrash", None)
        said = getattr(crash, "message", "") or str(getattr(failed, "longrepr", ""))
        return said.strip().splitlines()[0][:160] if said.strip() else ""


def learn(session: pytest.Session, items: Sequence[pytest.Item], probes: Probes, say: Say) -> None:
    """Run tests of kernels as they are; say of each what it reached, its digest, how long it took, and its reports."""
    watch = Watch(probes)
    watch.start()
    for item, outcome, seconds in _run(session, items, watch, say):
        say({
            "test": item.nodeid, "result": outcome.result, "seconds": round(seconds, 4),
            "seen": seen(watch, outcome),
            "reached": _sorted(probes.reached), "touched": _sorted(probes.touched),
            "files": {name: str(probes.modules[name].__file__) for name in probes.touched},
            "reports": [_portable(session.config, report) for report in outcome.reports],
        })  # fmt: skip


def seen(watch: Watch, outcome: Outcome) -> str:
    """Names all that was to be seen of a test: its runs, and what it printed."""
    return name_of(watch.digest, outcome.printed)


def _sorted(lines: Lines) -> dict[str, list[int]]:
    return {module: sorted(found) for module, found in lines.items()}


def judge(
    session: pytest.Session, mutant: Mutant, file: str, live: Sequence[FunctionType], items: Sequence[pytest.Item],
    say: Say,
) -> None:  # fmt: skip
    """Run tests of a mutant until one fails; say how each went. `live` are the functions there are of its file."""
    code = mutants.mutated_code(Path(file).read_text(encoding="utf-8"), file, mutant.number)
    outer = mutant.function.partition(".<locals>")[0]
    changed = [each for each in live if (each.__code__.co_qualname + ".").startswith(f"{outer}.")]
    if not sources.put(code, changed):
        say({"broke": f"no function {outer} of {mutant.module} is there to be changed"})
        return
    watch = Watch()
    watch.start()
    for item, outcome, _ in _run(session, items, watch, say):
        say({"test": item.nodeid, "result": outcome.result, "seen": seen(watch, outcome), "how": outcome.how})
        if outcome.result == "failed":
            return


def _run(
    session: pytest.Session, items: Sequence[pytest.Item], watch: Watch, say: Say
) -> Iterator[tuple[pytest.Item, Outcome, float]]:
    """Run tests one after another, through every hook that a test run has.

    Fixtures of every scope are torn down after each: a run that tests share is a run of each of them.
    """
    _shut_terminal(session.config)
    for item in items:
        outcome = Outcome()
        session.config.pluginmanager.register(outcome)
        watch.clear()
        say({"start": item.nodeid})
        began = time.perf_counter()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        seconds = time.perf_counter() - began
        session.config.pluginmanager.unregister(outcome)
        yield item, outcome, seconds


def _portable(config: pytest.Config, report: pytest.TestReport) -> object:
    return config.hook.pytest_report_to_serializable(config=config, report=report)


def _shut_terminal(config: pytest.Config) -> None:
    """Nothing of this process is printed, and what it captures goes to files of its own."""
    config.pluginmanager.unregister(name="terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    with contextlib.suppress(AttributeError):
        capture.stop_global_capturing()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    with contextlib.suppress(AttributeError):
        capture.start_global_capturing()
        capture.suspend_global_capture()
    factory = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        factory._given_basetemp = None  # --basetemp is the parent's; children have folders of their own
        factory._basetemp = None
