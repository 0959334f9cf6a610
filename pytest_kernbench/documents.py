"""Spec documents: a document has an id, and its numbered clauses are what it promises.

Every pytest run loads this module, so it reads the index only; Markdown is for `parsing`. PYTEST_DONT_REWRITE
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["Clause", "Document", "SpecError"]

INDEX_FORMAT = 1
_INDEX = "index.json"


class SpecError(ValueError):
    """A spec document says something that cannot be understood; the message begins with file and line."""


class Clause(NamedTuple):  # a dataclass takes a start-up some eight times as long to make
    """One numbered promise of a document. `text` is empty when the clause was read from the index."""

    number: str
    title: str
    normative: bool
    text: str = ""


class Document(NamedTuple):
    """A spec document; its clauses are in the order of the text, and no number occurs twice."""

    id: str
    title: str
    status: str
    file: str
    clauses: tuple[Clause, ...]

    @property
    def name(self) -> str:
        """What people call the document: `ADR-0060`."""
        return f"ADR-{self.id}"

    @property
    def mark(self) -> str:
        """The pytest mark of the whole document: `adr0060`."""
        return f"adr{self.id}"

    def clause(self, number: str) -> Clause | None:
        """The clause of that number, if there is one."""
        return next((clause for clause in self.clauses if clause.number == number), None)

    def marks(self) -> list[str]:
        """Every mark that selects tests of this document: its own, the clauses', and their ancestors'."""
        numbers = {part: None for clause in self.clauses for part in ancestors(clause.number)}
        return [self.mark, *(f"{self.mark}.{number}" for number in sorted(numbers, key=sort_key))]


def sort_key(number: str) -> tuple[tuple[int, int, str], ...]:
    """Order of clause numbers: 2 < 2.1 < 2.10 < 11 < B.2. Never a float, for which 1.10 is 1.1."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in number.split("."))


def ancestors(number: str) -> list[str]:
    """The subtrees a clause lies in, itself last: 11.2.1 gives 11, 11.2, 11.2.1."""
    parts = number.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def nearest(wanted: str, existing: Iterable[str]) -> list[str]:
    """Up to three existing names that look like `wanted`, the best first."""
    from difflib import get_close_matches  # only a mistake needs it

    return get_close_matches(wanted, list(existing), n=3, cutoff=0.5)


def by_id(documents: Iterable[Document]) -> dict[str, Document]:
    """Documents under their ids; an id has one document."""
    found: dict[str, Document] = {}
    for document in documents:
        other = found.setdefault(document.id, document)
        if other is not document:
            raise SpecError(f"{document.file}:1: {document.name} is already the id of {other.file}")
    return found


def package_folder() -> "Traversable":
    """Where the package's own documents are."""
    return files("pytest_kernbench.specs")


def package_index() -> list[Document]:
    """The package's own documents without the text: what a pytest run reads when it starts."""
    return read_index((package_folder() / _INDEX).read_text(encoding="utf-8"))


def read_index(text: str) -> list[Document]:
    """Read back what `index_text` wrote."""
    index = json.loads(text)
    if index["format"] != INDEX_FORMAT:
        remedy = "run python -m pytest_kernbench.specs"
        raise SpecError(f"{_INDEX}:1: format {index['format']} is not {INDEX_FORMAT}: {remedy}")
    return [_from_entry(entry) for entry in index["documents"]]


def _from_entry(entry: dict[str, object]) -> Document:
    fields = dict(entry)
    rows = fields.pop("clauses")
    assert isinstance(rows, list)
    return Document(**fields, clauses=tuple(Clause(*row) for row in rows))  # type: ignore[arg-type]
