"""Hooks of the pytest plugin, and nothing else.

A run that uses nothing of ours pays for these hooks and the clause index, and for no numpy. PYTEST_DONT_REWRITE
"""

import sys

import pytest

from pytest_kernbench import hookspecs, ledger, marks, workers
from pytest_kernbench.fixtures import *  # noqa: F403  (its __all__ is the list of our fixtures)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kernbench", "kernel verification (kernbench)")
    group.addoption("--adr-report", action="store_true", help="print, clause by clause, which tests verify a document")
    listing = "list the spec documents, or the clauses of one, and exit"
    group.addoption("--adr-list", nargs="?", const="", default=None, metavar="ID", help=listing)
    parser.addini(
        "kernbench_spec_paths", "folders with spec documents of your own (Markdown)", type="paths", default=[]
    )
    _add_mutation_options(group)
    parser.addini("kernbench_mutate_survivors", "list of mutants that may survive, with reasons (TOML)", default="")


def _add_mutation_options(group: pytest.OptionGroup) -> None:
    what = (
        "mutate the kernels that the selected tests run, and report what no test notices; -n tells how many at a time"
    )
    group.addoption("--kernbench-mutate", action="store_true", help=what)
    group.addoption(
        "--kernbench-mutate-time", type=float, metavar="SECONDS", help="stop after so long; a second run goes on"
    )
    group.addoption(
        "--kernbench-mutate-only", action="append", metavar="NAME",
        help="mutate only modules, functions, files or ids of mutants that contain NAME or match it (repeatable)",
    )  # fmt: skip
    group.addoption(
        "--kernbench-mutate-results", default=".kernbench-mutate.jsonl", metavar="FILE",
        help="what is known of mutants so far, for the next run (default: %(default)s, below the root folder)",
    )  # fmt: skip
    group.addoption(
        "--kernbench-mutate-min", type=float, default=0.0, metavar="PERCENT",
        help="fail if fewer mutants than this are noticed, even if the list of survivors explains them",
    )  # fmt: skip


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if config.getoption("adr_list") is None:
        return None
    from pytest_kernbench import report

    sys.stdout.write(report.listing(config))
    return 0


def pytest_configure(config: pytest.Config) -> None:
    config.stash[marks.DOCUMENTS] = documents = marks.indexed_documents(config)
    for line in marks.registrations(documents):
        config.addinivalue_line("markers", line)
    marks.named_documents(config, documents)
    if config.getoption("kernbench_mutate"):
        from pytest_kernbench.mutation import session

        session.install(config)
    elif not workers.is_worker(config):
        config.pluginmanager.register(_Results(), "kernbench-results")


@pytest.hookimpl(tryfirst=True)  # before -m and -k deselect: a test left out of this run still names its clauses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    workers.link(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo and "oplog_snapshot" in getattr(item, "fixturenames", ()):
        from pytest_kernbench import snapshots

        snapshots.keep_goldens(item)


def pytest_sessionfinish(session: pytest.Session) -> None:
    workers.send_links(session.config)


class _Results:
    """The hooks of the process that prints: under xdist the controller, which collects nothing itself."""

    def __init__(self) -> None:
        self.ledger = ledger.Ledger()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ledger.hear(report)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        workers.hear(self.ledger, getattr(node, "workeroutput", {}))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
    ) -> None:
        if exitstatus == pytest.ExitCode.USAGE_ERROR or (
            terminalreporter.stats.get("error") and not self.ledger.has_outcomes
        ):
            return  # collection failed: "no test" would mislead
        self.ledger.link(marks.links(config))
        if self.ledger.has_links or marks.is_asked_for(config):
            _summarise(terminalreporter, config, self.ledger)


def _summarise(terminal: pytest.TerminalReporter, config: pytest.Config, heard: ledger.Ledger) -> None:
    from pytest_kernbench import report
    from pytest_kernbench.extensions import ExtensionError

    try:
        report.summarise(terminal, config, heard)
    except ExtensionError as error:
        raise pytest.UsageError(str(error)) from error
