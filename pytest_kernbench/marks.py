"""Marks that tie tests to clauses: `adr("0060", "11.2")` becomes `adr0060`, `adr0060.11` and `adr0060.11.2`.

A mark, or a name in `-m`, that no spec document has is a usage error; it never selects nothing. PYTEST_DONT_REWRITE
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_kernbench.documents import Document, SpecError, ancestors, by_id, nearest, package_index

Documents = Mapping[str, Document]

DOCUMENTS = pytest.StashKey[Documents]()
LINKS = pytest.StashKey[list[tuple[pytest.Item, str]]]()  # node ids are read late: xdist renames items

_MARKERS = (
    "adr(document, *clauses): the clauses of a spec document that this test verifies",
    "allow_hazard(kind, *, reason): this test's runs have findings of this kind, and that is known",
    "ahbm(**spec_fields): this test's AHBM chip has these hardware numbers",
    "ascend310p(**spec_fields): this test's Ascend 310P core has these hardware numbers",
)
_NAME_IN_EXPRESSION = r"(?<![\w.:/-])adr\d[\w.:/-]*"


class Reference(NamedTuple):
    """A document, or one clause of it."""

    document: str
    clause: str | None

    def __str__(self) -> str:
        return f"ADR-{self.document}#{self.clause}" if self.clause else f"ADR-{self.document}"

    def marks(self) -> list[str]:
        """The marks this reference puts on a test: the document, and every subtree the clause lies in."""
        below = ancestors(self.clause) if self.clause else []
        return [f"adr{self.document}", *(f"adr{self.document}.{number}" for number in below)]


def indexed_documents(config: pytest.Config) -> Documents:
    """What start-up needs: the package's documents from their index, and those of the ini setting."""
    return _documents(config, package_index)


def full_documents(config: pytest.Config) -> dict[str, Document]:
    """The same documents with the text of their clauses."""
    from pytest_kernbench.parsing import package_documents

    return _documents(config, package_documents)


def _documents(config: pytest.Config, own: Callable[[], Iterable[Document]]) -> dict[str, Document]:
    """A document of the ini setting takes the place of the package's document with its id."""
    try:
        return {**by_id(own()), **extra_documents(config)}
    except SpecError as error:
        raise pytest.UsageError(str(error)) from error


def extra_documents(config: pytest.Config) -> dict[str, Document]:
    """The documents of the ini setting `kernbench_spec_paths`, and of the folders that plugins name."""
    folders = dict.fromkeys(config.getini("kernbench_spec_paths"), "kernbench_spec_paths")
    if config.hook.pytest_kernbench_spec_paths.get_hookimpls():
        folders = {**_hooked(config), **folders}
    return by_id(document for folder, who in folders.items() for document in _extra(folder, who))


def _hooked(config: pytest.Config) -> dict[Path, str]:
    """Folders that plugins name, each with the plugin."""
    from pytest_kernbench.extensions import ExtensionError, spec_paths

    try:
        return {folder: who for who, folder in spec_paths(config)}
    except ExtensionError as error:
        raise pytest.UsageError(str(error)) from error


def _extra(folder: Path, who: str) -> list[Document]:
    """The documents of one folder that `who` names; one without any is a mistake."""
    from pytest_kernbench.parsing import read_folder  # not every run has folders of its own

    documents = read_folder(folder) if folder.is_dir() else []
    if not documents:
        raise SpecError(f"{who}: {folder} holds no spec document (*.md that begins with '---')")
    return documents


def registrations(documents: Documents) -> Iterator[str]:
    """A line of the `markers` setting for each mark that a test may carry or `-m` may name."""
    yield from _MARKERS
    for document in documents.values():
        own, *clauses = document.marks()
        yield f"{own}: {document.title}"
        yield from (f"{mark}:" for mark in clauses)


def named_documents(config: pytest.Config, documents: Documents) -> list[Document]:
    """The documents that `-m` names, each once; a name that nobody has registered is a usage error."""
    expression = config.getoption("markexpr", "")
    if "adr" not in expression:
        return []
    known = {mark: document for document in documents.values() for mark in document.marks()}
    names = re.findall(_NAME_IN_EXPRESSION, expression)
    for name in names:
        if name not in known and name not in _registered(config):
            raise pytest.UsageError(f"-m names {name}, which no spec document has{_suggest(name, known)}")
    return list({known[name].id: known[name] for name in names if name in known}.values())


def _registered(config: pytest.Config) -> set[str]:
    """Marks of anybody's: the user may well have an `adr7` that is no business of ours."""
    return {line.partition(":")[0].partition("(")[0].strip() for line in config.getini("markers")}


def is_asked_for(config: pytest.Config) -> bool:
    """Whether the user wants to read about clauses even if no test names one."""
    return config.getoption("adr_report") or "adr" in config.getoption("markexpr", "")


def find_document(wanted: str, documents: Documents) -> Document:
    """The document with this id, or a usage error that names the nearest."""
    if wanted not in documents:
        raise pytest.UsageError(_no_document(wanted, documents))
    return documents[wanted]


def _no_document(wanted: str, documents: Documents) -> str:
    return f"ADR-{wanted} is no spec document{_suggest(f'ADR-{wanted}', (each.name for each in documents.values()))}"


def _suggest(wanted: str, existing: Iterable[str]) -> str:
    near = nearest(wanted, existing)
    return f"; nearest: {', '.join(near)}" if near else ""


def link(items: Iterable[pytest.Item], documents: Documents) -> list[tuple[pytest.Item, str]]:
    """Give every test the marks of the clauses it names; return the tests that name any, with what they name."""
    named = {item: list(dict.fromkeys(_references(item, documents))) for item in items}
    mistakes = dict.fromkeys(_mistakes(named, documents))
    if mistakes:
        raise pytest.UsageError("\n".join(mistakes))
    return [(item, _apply(item, references)) for item, references in named.items() if references]


def links(config: pytest.Config) -> dict[str, str]:
    """The tests of this process by node id, each with what it names."""
    return {item.nodeid: verifies for item, verifies in config.stash.get(LINKS, [])}


def _apply(item: pytest.Item, references: Iterable[Reference]) -> str:
    for mark in dict.fromkeys(mark for reference in references for mark in reference.marks()):
        item.add_marker(mark)
    verifies = ",".join(map(str, references))
    item.user_properties.append(("verifies", verifies))
    return verifies


def _references(item: pytest.Item, documents: Documents) -> Iterator[Reference]:
    """What a test says it verifies, by `adr(...)` or by a bare mark such as `adr0060` of a document there is."""
    for mark in item.iter_markers():
        if mark.name == "adr":
            yield from _arguments(item, mark)
        elif mark.name.startswith("adr"):
            document, _, clause = mark.name.removeprefix("adr").partition(".")
            yield from [Reference(document, clause or None)] if document in documents else []


def _arguments(item: pytest.Item, mark: pytest.Mark) -> list[Reference]:
    texts = [argument for argument in mark.args if isinstance(argument, str)]
    if mark.kwargs or not texts or len(texts) < len(mark.args):
        said = ", ".join([*map(repr, mark.args), *(f"{key}={value!r}" for key, value in mark.kwargs.items())])
        raise pytest.UsageError(f'{item.nodeid}: adr({said}) is not adr("0060", "11.2", ...) with every part a string')
    document = texts[0].removeprefix("ADR-")
    return [Reference(document, clause) for clause in texts[1:]] or [Reference(document, None)]


def _mistakes(named: Mapping[pytest.Item, list[Reference]], documents: Documents) -> Iterator[str]:
    for item, references in named.items():
        test = item.nodeid.partition("[")[0]  # one mistake, however many parameters
        for document, clause in references:
            if document not in documents:
                yield f"{test}: {_no_document(document, documents)}"
            elif clause and documents[document].clause(clause) is None:
                numbers = [existing.number for existing in documents[document].clauses]
                yield f"{test} names clause {clause}, which ADR-{document} does not have{_suggest(clause, numbers)}"
