"""What the tests said about each clause: passed, failed, skipped, not run, or that no test names it.

A clause with one failing test has failed; skips and expected failures verify nothing. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_kernbench.documents import Clause, Document
from pytest_kernbench.ledger import Ledger
from pytest_kernbench.marks import (
    DOCUMENTS,
    Documents,
    extra_documents,
    find_document,
    indexed_documents,
    named_documents,
)

if TYPE_CHECKING:
    from pytest_kernbench.extensions import MatrixColumn

Outcomes = Mapping[str, list[str]]

_CLAUSE_RANK = ("failed", "passed", "skipped", "not run")  # of one clause's tests
_GAPS = {"failed": "failing", "skipped": "skipped", "not run": "not run", "no test": "without a test"}
_HEAD = Clause("clause", "title", normative=False)
_WHOLE = Clause("-", "the document as a whole", normative=False)


def roll_up(outcomes: Iterable[str]) -> str:
    """The outcome of a clause from those of its tests."""
    return min(outcomes, key=_CLAUSE_RANK.index, default="no test")


def summary_line(document: Document, outcomes: Outcomes) -> str:
    """How many normative clauses of a document are verified, and what is wrong with the others."""
    normative = [clause for clause in document.clauses if clause.normative]
    found = Counter(roll_up(_of(outcomes, document, clause)) for clause in normative)
    verified = f"{document.name}: {found['passed']} of {len(normative)} normative clauses verified"
    return ", ".join([verified, *(f"{found[key]} {words}" for key, words in _GAPS.items() if found[key])])


def table(
    document: Document, outcomes: Outcomes, columns: Mapping[str, MatrixColumn] | None = None
) -> Iterator[tuple[str, str]]:
    """The lines of the clause table, each with the outcome of its clause; `columns` stand before the title."""
    width = max(len(clause.number) for clause in (_HEAD, *document.clauses))
    more = [_column(heading, column, document) for heading, column in (columns or {}).items()]
    yield "  ".join([f"{_HEAD.number:{width}}  {'kind':11}  tests  outcome", *(each[0] for each in more), "title"]), ""
    for row, clause in enumerate(document.clauses, 1):
        yield _row(clause, width, _of(outcomes, document, clause), [each[row] for each in more])
    if whole := outcomes.get(document.name):
        yield _row(_WHOLE, width, whole, [" " * len(each[0]) for each in more])


def _column(heading: str, column: MatrixColumn, document: Document) -> list[str]:
    """Heading and cells, all as wide as the widest."""
    cells = [heading, *(" ".join(str(column(document, clause)).split()) for clause in document.clauses)]
    width = max(map(len, cells))
    return [f"{cell:{width}}" for cell in cells]


def _row(clause: Clause, width: int, outcomes: list[str], more: list[str]) -> tuple[str, str]:
    kind, outcome = "normative" if clause.normative else "informative", roll_up(outcomes)
    start = f"{clause.number:{width}}  {kind:11}  {len(outcomes):5}  {outcome:7}"
    return "  ".join([start, *more, clause.title]), outcome


def _of(outcomes: Outcomes, document: Document, clause: Clause) -> list[str]:
    return outcomes.get(f"{document.name}#{clause.number}", [])


def summarise(terminal: pytest.TerminalReporter, config: pytest.Config, ledger: Ledger) -> None:
    """Print the tables that were asked for, one line on every other document a test names, or nothing."""
    documents, outcomes = config.stash[DOCUMENTS], ledger.outcomes()
    touched = {reference.partition("#")[0] for reference in outcomes}
    tables = _asked_for(config, documents, touched)
    columns = _columns(config) if tables else {}
    for document in tables:
        _write_table(terminal, document, list(table(document, outcomes, columns)))
    for document in documents.values():
        if document in tables or document.name in touched:
            terminal.line(summary_line(document, outcomes))
    if ledger.silent_workers:
        terminal.line(f"clauses may lack tests: {ledger.silent_workers} of {ledger.workers} workers did not report")


def _asked_for(config: pytest.Config, documents: Documents, touched: Collection[str]) -> list[Document]:
    """The documents `-m` names; else, with --adr-report, the user's own and those that a test names."""
    named = named_documents(config, documents)
    if named or not config.getoption("adr_report"):
        return named
    own = extra_documents(config)
    return [each for each in documents.values() if each.id in own or each.name in touched]


def _columns(config: pytest.Config) -> dict[str, MatrixColumn]:
    """The columns that plugins add."""
    if not config.hook.pytest_kernbench_matrix_columns.get_hookimpls():
        return {}
    from pytest_kernbench.extensions import matrix_columns

    return matrix_columns(config)


def _write_table(terminal: pytest.TerminalReporter, document: Document, lines: Iterable[tuple[str, str]]) -> None:
    terminal.section(f"{document.name} {document.title}", "-")
    for text, outcome in lines:
        terminal.line(text, red=outcome == "failed", green=outcome == "passed")


def listing(config: pytest.Config) -> str:
    """What `--adr-list` prints: every document, or with an id every clause of one."""
    documents, wanted = indexed_documents(config), config.getoption("adr_list").removeprefix("ADR-")
    if not wanted:
        return "".join(f"{_heading(document)}\n" for document in documents.values())
    document = find_document(wanted, documents)
    rows = (f"  {document.mark}.{clause.number}  {clause.title}{_note(clause)}\n" for clause in document.clauses)
    return f"{_heading(document)}\n{''.join(rows)}"


def _heading(document: Document) -> str:
    normative = sum(clause.normative for clause in document.clauses)
    counts = f"{len(document.clauses)} clauses, {normative} normative"
    return f"{document.name}  {document.title}  ({document.status}; {counts})"


def _note(clause: Clause) -> str:
    return "" if clause.normative else "  (informative)"
