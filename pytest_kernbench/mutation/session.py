"""A mutation run in place of a test run: learn what each test reaches, then try every mutant on those that reach it.

The process that collects runs no test: every child starts from kernels that nobody has run. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import FunctionType

import pytest

from pytest_kernbench import marks
from pytest_kernbench.mutation import report, sources, survivors, trial
from pytest_kernbench.mutation.children import Message, Pool, Say, Task
from pytest_kernbench.mutation.judgement import Judgement
from pytest_kernbench.mutation.mutants import Mutant, mutants_of
from pytest_kernbench.mutation.results import (
    KILLED,
    SURVIVED,
    UNREACHED,
    Learnt,
    Results,
    Verdict,
    key_of_test,
    mutant_key,
    name_of,
)
from pytest_kernbench.mutation.watching import Probes

Live = Mapping[str, list[FunctionType]]
"""By file, the functions there are."""


@dataclass(frozen=True)
class Options:
    """What the command line and the ini file say."""

    jobs: int
    seconds: float
    only: tuple[str, ...]
    results: Path
    survivors: Path | None
    least: float


def options_of(config: pytest.Config) -> Options:
    """Read them; mutants are tried by as many processes as xdist was told to start, none of them xdist's."""
    seconds = config.getoption("kernbench_mutate_time")
    listed = config.getini("kernbench_mutate_survivors")
    return Options(
        jobs=max(len(getattr(config.option, "tx", None) or ()), 1),
        seconds=math.inf if seconds is None else seconds,
        only=tuple(config.getoption("kernbench_mutate_only") or ()),
        results=config.rootpath / config.getoption("kernbench_mutate_results"),
        survivors=config.rootpath / listed if listed else None,
        least=config.getoption("kernbench_mutate_min"),
    )


def install(config: pytest.Config) -> None:
    """Make this run one of mutants. Raises UsageError where that cannot be."""
    if not hasattr(os, "fork"):
        raise pytest.UsageError("--kernbench-mutate forks processes, which this system cannot do")
    if config.getoption("update_snapshots", False):
        raise pytest.UsageError("--kernbench-mutate and --snapshot-update: goldens are not to be those of mutants")
    options = options_of(config)
    if hasattr(config.option, "tx"):
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], None
    config.option.warn_unused_snapshots = True  # of syrupy, which does not see that children use them
    config.option.disable_unused_snapshots = True
    config.pluginmanager.register(MutationRun(config, options), "kernbench-mutation")


@dataclass
class State:
    """All that is known of a run."""

    learnt: dict[str, Learnt] = field(default_factory=dict)
    mutants: dict[str, Mutant] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # of the modules that are mutated
    tests_of: dict[str, list[str]] = field(default_factory=dict)  # those that reach a mutant
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # mutants that could not be tried, and why
    failing: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    explained: dict[str, survivors.Survivor] = field(default_factory=dict)
    under_way: dict[str, Judgement] = field(default_factory=dict)
    in_time: bool = True
    seconds: float = 0.0
    tried: int = 0

    @property
    def unexplained(self) -> list[str]:
        """Survivors that the list does not have."""
        alive = (SURVIVED, UNREACHED)
        return [each for each, it in self.verdicts.items() if it.state in alive and each not in self.explained]


class MutationRun:
    """The hooks of a mutation run."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config, self.options, self.state = config, options, State()
        self._items: dict[str, pytest.Item] = {}
        self._kills: Counter[tuple[str, str]] = Counter()  # by module and test

    def pytest_sessionstart(self) -> None:
        _steady_hypothesis(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or self.config.option.collectonly:
            return None  # pytest says what is wrong, and runs nothing
        began = time.monotonic()
        state, options = self.state, self.options
        if options.survivors is not None:
            state.explained = survivors.read(options.survivors)
        self._items = {item.nodeid: item for item in session.items}
        pool, results = Pool(options.jobs, began + options.seconds), Results(options.results)
        self.progress = report.Progress(self.config)
        try:
            state.in_time = self._learn(session, pool, results)
            self._list_mutants()
            state.in_time = state.in_time and self._judge(session, pool, results)
        finally:
            results.close()
            self._conclude()
            state.seconds = time.monotonic() - began
        session.testsfailed += len(state.failing) + len(state.stale) + len(state.unexplained)
        session.testsfailed += report.score(state.verdicts.values()) < options.least
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        report.summarise(terminalreporter, self.state, self.options.least, marks.links(self.config))

    # Tests, of kernels as they are

    def _learn(self, session: pytest.Session, pool: Pool, results: Results) -> bool:
        unknown: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            known = results.learnt.get(item.nodeid)
            if known is not None and known.key == key_of_test(item) and _same_sources(known):
                self._take(known)
            else:
                unknown.setdefault(item.path, []).append(item)
        waiting = deque(unknown.values())

        probes = Probes(_test_files(session))
        if waiting:
            probes.put_in(sources.own_modules(probes.tests))

        def more() -> Task | None:
            return self._lesson(session, waiting, probes, results) if waiting else None

        self.progress.learning(sum(map(len, waiting)), len(session.items))
        try:
            return pool.run(more, lambda: None)
        finally:
            probes.take_out()

    def _lesson(
        self, session: pytest.Session, waiting: deque[list[pytest.Item]], probes: Probes, results: Results
    ) -> Task:
        items = waiting.popleft()
        under_way: list[str] = []
        left = [item.nodeid for item in items]

        def work(say: Say) -> None:
            trial.learn(session, items, probes, say)

        def hear(message: Message) -> None:
            if "start" in message:
                under_way[:] = [message["start"]]
            elif "test" in message:
                left.remove(message["test"])
                under_way.clear()
                self._heard(message, results)

        def over(late: bool) -> None:
            lost = under_way or left[:1]  # its process died
            self.state.failing += lost
            rest = [self._items[each] for each in left if each not in lost]
            if rest:
                waiting.appendleft(rest)

        return Task(work, hear, lambda: math.inf, over)

    def _heard(self, message: Message, results: Results) -> None:
        self.progress.show_reports(message["reports"])
        item, files = self._items[message["test"]], message["files"]
        found = Learnt(
            message["test"], key_of_test(item), message["result"], message["seconds"], message["seen"],
            message["reached"], message["touched"], files, {each: _digest_of(file) for each, file in files.items()},
        )  # fmt: skip
        self._take(found)
        if found.result != "failed":
            results.add(found)

    def _take(self, found: Learnt) -> None:
        if found.result == "failed":
            self.state.failing.append(found.test)
        self.state.learnt[found.test] = found

    # Mutants

    def _list_mutants(self) -> None:
        """The mutants of functions that are reached while a device runs, and the tests that go there at any time."""
        state = self.state
        good = [found for found in state.learnt.values() if found.result == "passed"]
        reached = {(module, line) for found in good for module, lines in found.reached.items() for line in lines}
        touching: dict[tuple[str, int], list[str]] = {}
        for found in good:
            for module, lines in found.touched.items():
                for line in lines:
                    touching.setdefault((module, line), []).append(found.test)
        files = {module: found.files[module] for found in good for module in found.reached}
        state.files = {module: file for module, file in sorted(files.items()) if sources.importable(module, file)}
        for module, file in state.files.items():
            found_here = mutants_of(_text(file), module)
            entered = {each.function for each in found_here if (module, each.statement) in reached}
            for mutant in found_here:
                if mutant.function in entered and self._is_wanted(mutant, file):
                    state.mutants[mutant.id] = mutant
                    state.tests_of[mutant.id] = touching.get((module, mutant.statement), [])

    def _is_wanted(self, mutant: Mutant, file: str) -> bool:
        names = (mutant.module, f"{mutant.module}:{mutant.function}", mutant.id, file)
        return not self.options.only or any(_matches(name, each) for each in self.options.only for name in names)

    def _judge(self, session: pytest.Session, pool: Pool, results: Results) -> bool:
        waiting: deque[Mutant] = deque()
        for mutant in self.state.mutants.values():
            known = results.verdicts.get(mutant.id)
            if not self.state.tests_of[mutant.id]:
                self.state.verdicts[mutant.id] = self._verdict(mutant, UNREACHED)
            elif known is not None and self._holds(mutant, known):
                self.state.verdicts[mutant.id] = known
                self._kills[mutant.module, known.by] += 1
            else:
                waiting.append(mutant)

        live = sources.live_functions(set(self.state.files.values()))

        def more() -> Task | None:
            return self._trial(session, waiting.popleft(), live, results) if waiting else None

        self.progress.judging(len(waiting), self.state)
        return pool.run(more, lambda: self.progress.show(self.state))

    def _holds(self, mutant: Mutant, known: Verdict) -> bool:
        """Whether an earlier verdict is of this mutant, and of the tests there are now."""
        if known.key != self._key(mutant):
            return False
        killer = self.state.learnt.get(known.by)
        if known.state == KILLED:
            return killer is not None and name_of(killer.key) == known.against
        return known.against == self._against(mutant)

    def _key(self, mutant: Mutant) -> str:
        return mutant_key(mutant, _digest_of(self.state.files[mutant.module]))

    def _against(self, mutant: Mutant) -> str:
        return name_of(*sorted((each, self.state.learnt[each].key) for each in self.state.tests_of[mutant.id]))

    def _verdict(self, mutant: Mutant, state: str, by: str = "", how: str = "") -> Verdict:
        against = name_of(self.state.learnt[by].key) if by else self._against(mutant)
        return Verdict(mutant.id, self._key(mutant), state, against, len(self.state.tests_of[mutant.id]), by, how)

    def _ordered(self, mutant: Mutant) -> list[str]:
        """The tests of a mutant, cheapest first; one that killed others of its module is worth more."""

        def cost(test: str) -> float:
            return (self.state.learnt[test].seconds + 0.002) / (1 + self._kills[mutant.module, test])

        return sorted(self.state.tests_of[mutant.id], key=cost)

    def _trial(self, session: pytest.Session, mutant: Mutant, live: Live, results: Results) -> Task:
        tests, file = {each: self.state.learnt[each] for each in self._ordered(mutant)}, self.state.files[mutant.module]
        begun = results.begun.get(mutant.id)
        known = begun if begun is not None and begun.key == self._key(mutant) else None
        judgement = self.state.under_way[mutant.id] = Judgement(mutant, tests, known)
        left = judgement.left

        def work(say: Say) -> None:
            trial.judge(session, mutant, file, live[file], [self._items[each] for each in left], say)

        def over(late: bool) -> None:
            judgement.end(late)
            self._judged(judgement, results)

        def given_up() -> None:
            if judgement.state or judgement.broke:
                self._judged(judgement, results)
            else:
                results.add(judgement.so_far(self._key(mutant)))

        return Task(work, judgement.hear, judgement.limit, over, given_up)

    def _judged(self, judgement: Judgement, results: Results) -> None:
        mutant = judgement.mutant
        del self.state.under_way[mutant.id]
        self.state.tried += 1
        if judgement.broke:
            self.state.broken[mutant.id] = judgement.broke
            return
        if judgement.state != KILLED:
            results.add(judgement.so_far(self._key(mutant)))  # a new test will be the only one to run
        verdict = self._verdict(mutant, judgement.state, judgement.by, judgement.how)
        self._kills[mutant.module, verdict.by] += 1
        self.state.verdicts[mutant.id] = verdict
        results.add(verdict)

    def _conclude(self) -> None:
        state = self.state
        modules = set(state.files) if not self.options.only else {each.module for each in state.mutants.values()}
        every = {each.id: each for name in modules for each in mutants_of(_text(state.files[name]), name)}
        state.stale = list(survivors.stale(state.explained, every, state.verdicts, modules))


def _matches(name: str, pattern: str) -> bool:
    return pattern in name or fnmatchcase(name, pattern)


def _text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _digest_of(file: str) -> str:
    path = Path(file)
    return sources.digest(_text(file)) if path.is_file() else ""


def _same_sources(known: Learnt) -> bool:
    return all(_digest_of(file) == known.sources[each] for each, file in known.files.items())


def _test_files(session: pytest.Session) -> set[str]:
    """Files whose kernels are the tests' own: those that tests were collected from, and every `conftest.py`."""
    plugins = session.config.pluginmanager.get_plugins()
    conftests = (str(file) for each in plugins if (file := getattr(each, "__file__", "")) and _is_conftest(file))
    return {*conftests, *(str(item.path) for item in session.items)}


def _is_conftest(file: str) -> bool:
    return Path(file).name == "conftest.py"


def _steady_hypothesis(config: pytest.Config) -> None:
    """The same examples every time, none of them kept, and no search for the smallest one that fails."""
    if not config.pluginmanager.hasplugin("hypothesispytest"):
        return
    from hypothesis import Phase, settings

    kept = [each for each in settings().phases if each in (Phase.explicit, Phase.generate)]
    settings.register_profile(
        "kernbench-mutate", settings(), derandomize=True, database=None, deadline=None, phases=kept,
        report_multiple_bugs=False,
    )  # fmt: skip
    settings.load_profile("kernbench-mutate")
