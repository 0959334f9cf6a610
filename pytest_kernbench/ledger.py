"""Which test names which clause, and how each test went: what a run writes down while it goes.

A test's worst phase counts, and what is written down does not depend on the order it comes in. PYTEST_DONT_REWRITE
"""

from collections.abc import Mapping

import pytest

_PHASE_RANK = ("passed", "skipped", "failed")  # of one test's phases


class Ledger:
    """Links and outcomes of tests, by node id."""

    def __init__(self) -> None:
        self.workers = 0
        self.silent_workers = 0
        self._links: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}

    def link(self, links: Mapping[str, str]) -> None:
        """Add tests by node id, each with its comma separated references (`ADR-0060#11.2,ADR-0061`)."""
        self._links.update(links)

    def hear(self, report: pytest.TestReport) -> None:
        """Take note of one phase of one test."""
        verifies = dict(report.user_properties).get("verifies")
        if verifies is not None:
            self._links[report.nodeid] = str(verifies)
        ready = report.when == "setup" and report.passed  # and nothing more: the run may stop before the test is over
        if report.outcome in _PHASE_RANK and not ready:
            before = self._outcomes.get(report.nodeid, report.outcome)
            self._outcomes[report.nodeid] = max(before, report.outcome, key=_PHASE_RANK.index)

    def hear_worker(self, links: Mapping[str, str] | None) -> None:
        """Take note of a finished worker process; one that crashed has no links to give."""
        self.workers += 1
        self.silent_workers += links is None
        self.link(links or {})

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    @property
    def has_links(self) -> bool:
        return bool(self._links)

    def outcomes(self) -> dict[str, list[str]]:
        """For every document or clause that a test names, the outcomes of the tests that name exactly it."""
        found: dict[str, list[str]] = {}
        for test, references in self._links.items():
            for reference in references.split(","):
                found.setdefault(reference, []).append(self._outcomes.get(test, "not run"))
        return found
