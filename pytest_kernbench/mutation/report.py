"""What a mutation run prints: how far it is, what survived and which clauses that endangers, the score.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_kernbench.mutation.judgement import Judgement
from pytest_kernbench.mutation.mutants import Mutant
from pytest_kernbench.mutation.results import EQUIVALENT, KILLED, SURVIVED, UNREACHED, Verdict

if TYPE_CHECKING:
    from pytest_kernbench.mutation.session import State

EVERY = 10.0  # seconds between two lines of progress
LONG = 30.0  # seconds after which a mutant is named that is still being tried
MOST_CLAUSES = 12


def score(verdicts: Iterable[Verdict]) -> float:
    """Per cent of mutants that a test noticed, of those that are not equivalent; 100 if there are none."""
    states = Counter(verdict.state for verdict in verdicts)
    counted = states[KILLED] + states[SURVIVED] + states[UNREACHED]
    return 100.0 * states[KILLED] / counted if counted else 100.0


class Progress:
    """Says how far a run is, on the terminal that pytest writes to."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._terminal = config.pluginmanager.getplugin("terminalreporter")
        self._began = self._shown = time.monotonic()
        self._waiting = 0

    def _line(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.write_line(text)

    def learning(self, unknown: int, tests: int) -> None:
        """`unknown` of so many tests are to be run of kernels as they are."""
        self._line(
            f"kernel mutation: {unknown} of {tests} tests to run first{', the others are known' * (unknown < tests)}"
        )
        if self._terminal is not None:
            self._terminal.showfspath = False

    def show_reports(self, reports: Iterable[Mapping[str, Any]]) -> None:
        """The reports of a test, as pytest shows them."""
        for data in reports:
            made = self.config.hook.pytest_report_from_serializable(config=self.config, data=data)
            if self._terminal is not None:
                self._terminal.pytest_runtest_logreport(made)

    def judging(self, waiting: int, state: State) -> None:
        """So many mutants are to be tried."""
        self._began = self._shown = time.monotonic()
        self._waiting = waiting
        files = len({each.module for each in state.mutants.values()})
        known = len(state.verdicts)
        self._line("")  # ends the dots
        self._line(f"kernel mutation: {len(state.mutants)} mutants of {files} modules, {known} of them known")

    def show(self, state: State) -> None:
        """A line of progress, now and then."""
        now = time.monotonic()
        if now - self._shown >= EVERY:
            self._shown = now
            minutes = (now - self._began) / 60
            tried = f"{state.tried} of {self._waiting} tried, {state.tried / minutes:.0f} a minute"
            self._line(f"  {tried}: {_counts(state)}")
            for line in long_trials(state.under_way.values(), now):
                self._line(line)


def long_trials(under_way: Iterable[Judgement], now: float) -> Iterator[str]:
    """A line for each mutant that holds the run up: it is likely to survive."""
    for each in under_way:
        if now - each.began >= LONG:
            passed = f"{len(each.passed)} of {len(each.tests)} tests passed"
            yield f"    for {now - each.began:.0f} s: {each.mutant.id}, {passed}"


def _counts(state: State) -> str:
    found = Counter(verdict.state for verdict in state.verdicts.values())
    names = {KILLED: "killed", SURVIVED: "survived", UNREACHED: "not reached", EQUIVALENT: "equivalent"}
    return ", ".join(f"{found[key]} {words}" for key, words in names.items() if found[key] or key == KILLED)


def summarise(terminal: pytest.TerminalReporter, state: State, least: float, links: Mapping[str, str]) -> None:
    """The whole report of a run."""
    terminal.section("kernel mutation", "-")
    for line in lines(state, least, links):
        terminal.line(line)


def lines(state: State, least: float, links: Mapping[str, str]) -> Iterator[str]:
    if not state.mutants:
        yield from no_mutants(state)
    for each in state.verdicts.values():
        if each.state in (SURVIVED, UNREACHED) and each.mutant not in state.explained:
            yield from survivor(state.mutants[each.mutant], each, state, links)
    for name, why in state.broken.items():
        yield f"could not be tried: {name}: {why}"
    yield from (f"does not pass by itself, and was not used: {each}" for each in state.failing)
    yield from (f"stale entry in the list of survivors: {each}" for each in state.stale)
    if state.mutants:
        yield from scores(state)
    reached = score(state.verdicts.values())
    if reached < least:
        yield f"the score is {reached:.1f} %, at least {least:g} % was asked for"


def no_mutants(state: State) -> Iterator[str]:
    """Why there is nothing to try."""
    if state.files:
        yield f"no mutants: --kernbench-mutate-only names nothing of {', '.join(state.files)}"
        return
    so_far = "" if state.in_time else ", as far as the time went; run again to go on"
    yield f"no mutants: no test that passes runs a kernel that is defined outside of test files{so_far}"


def survivor(mutant: Mutant, verdict: Verdict, state: State, links: Mapping[str, str]) -> Iterator[str]:
    """A survivor: where, what, how many tests did not notice, and which clauses those tests are there for."""
    file = Path(state.files[mutant.module])
    yield f"{shown(file)}:{mutant.line}: {verdict.state} {mutant.kind} in {mutant.function}"
    yield f"    - {mutant.before}"
    yield f"    + {mutant.after}"
    tests = state.tests_of[mutant.id]
    noticed = f"none of {len(tests)} tests that reach it noticed" if tests else "no test reaches it"
    if verdict.how:
        yield f"    {verdict.how}"
    named = clauses(tests or _of_module(mutant, state), links)
    yield f"    {noticed}; endangers {named}" if named else f"    {noticed}; no test of it names a clause"
    yield f"    id {mutant.id}"


def _of_module(mutant: Mutant, state: State) -> list[str]:
    return [each.test for each in state.learnt.values() if mutant.module in each.reached]


def clauses(tests: Iterable[str], links: Mapping[str, str]) -> str:
    """The clauses that tests verify, those of most tests first: "ADR-0060 3.2, 6.1"."""
    counted = Counter(reference for test in tests for reference in links.get(test, "").split(",") if reference)
    listed = [reference for reference, _ in counted.most_common()]
    more = f" and {len(listed) - MOST_CLAUSES} more" if len(listed) > MOST_CLAUSES else ""
    by_document: dict[str, list[str]] = {}
    for reference in listed[:MOST_CLAUSES]:
        document, _, clause = reference.partition("#")
        by_document.setdefault(document, []).extend([clause] if clause else [])
    return ", ".join(f"{document} {', '.join(found)}".strip() for document, found in by_document.items()) + more


def scores(state: State) -> Iterator[str]:
    """A line a module, and one for all."""
    by_module: dict[str, list[Verdict]] = {each.module: [] for each in state.mutants.values()}
    for verdict in state.verdicts.values():
        by_module[verdict.mutant.partition(":")[0]].append(verdict)
    width = max(map(len, by_module))
    for module, verdicts in by_module.items():
        yield f"{module:{width}}  {_score_line(verdicts)}"
    yield f"{'all':{width}}  {_score_line(list(state.verdicts.values()))}"
    left = len(state.mutants) - len(state.verdicts) - len(state.broken)
    if left or not state.in_time:
        yield f"stopped: {left} mutants were not tried to the end; run again to go on"
    rate = f", {60 * state.tried / state.seconds:.0f} a minute" if state.seconds else ""
    yield f"{state.tried} mutants tried in {state.seconds:.0f} s{rate}, the others were known"


def _score_line(verdicts: list[Verdict]) -> str:
    found = Counter(verdict.state for verdict in verdicts)
    parts = f"{found[KILLED]:4} killed {found[SURVIVED]:3} survived {found[UNREACHED]:3} not reached"
    return f"{parts} {found[EQUIVALENT]:3} equivalent  score {score(verdicts):5.1f} %"


def shown(file: Path) -> str:
    """A path as it is clicked on: below the current folder if it is there."""
    here = Path.cwd()
    return str(file.relative_to(here)) if here in file.parents else str(file)
