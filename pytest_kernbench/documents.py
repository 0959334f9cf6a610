"""Spec documents, read from Markdown: a document has an id, and its numbered headings are its clauses.

Nothing here knows pytest, and what cannot be read is one `SpecError` with file and line. PYTEST_DONT_REWRITE
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = [
    "Clause",
    "Document",
    "SpecError",
    "ancestors",
    "by_id",
    "index_text",
    "nearest",
    "package_documents",
    "package_index",
    "parse",
    "read_folder",
    "read_index",
    "sort_key",
]

_HEADING = re.compile(r"#{1,6}\s")
# A letter alone is a number before a capital only: "B Open items" is clause B, "A short history" is a heading.
_NUMBERED = re.compile(r"#{2,6}\s+(\d+(?:\.\d+)*|[A-Z](?:\.\d+)+|[A-Z](?=\.?\s+[^a-z\s]))\.?\s+(\S.*?)\s*$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_PROMISE = re.compile(r"\b(?:shall|must)\b", re.IGNORECASE)
_ID = re.compile(r"(?:ADR-)?(\d+)$")
_REQUIRED = ("id", "title", "status")
_INDEX = "index.json"
_INDEX_FORMAT = 1


class SpecError(ValueError):
    """A spec document says something that cannot be understood; the message begins with file and line."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One numbered promise of a document. `text` is empty when the clause was read from the index."""

    number: str
    title: str
    normative: bool
    text: str = ""


@dataclass(frozen=True, slots=True)
class Document:
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


def parse(text: str, file: str) -> Document:
    """Read one document; `file` is only what errors call it."""
    lines = text.splitlines()
    fields, body = _front_matter(lines, file)
    found = _ID.match(fields["id"])
    if found is None:
        raise SpecError(f"{file}:1: id {fields['id']!r} is not a document number such as ADR-0060")
    clauses = tuple(_clauses(lines, body, file))
    return Document(found[1], fields["title"], fields["status"], file, clauses)


def _front_matter(lines: Sequence[str], file: str) -> tuple[dict[str, str], int]:
    """The `key: value` lines between two `---`, and the index of the line after them."""
    fields: dict[str, str] = {}
    if not lines or lines[0].rstrip() != "---":
        raise SpecError(f"{file}:1: a spec document begins with a line '---' and its id, title and status")
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            return _complete(fields, file), index + 1
        key, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise SpecError(f"{file}:{index + 1}: {line.strip()!r} in the front matter is not 'key: value'")
        fields[key.strip()] = value.strip().strip("\"'")
    raise SpecError(f"{file}:1: the front matter has no closing '---'")


def _complete(fields: dict[str, str], file: str) -> dict[str, str]:
    missing = [key for key in _REQUIRED if not fields.get(key)]
    if missing:
        raise SpecError(f"{file}:1: the front matter lacks {', '.join(missing)}")
    return fields


def _clauses(lines: Sequence[str], body: int, file: str) -> Iterator[Clause]:
    """The numbered headings, each with its text up to the next heading of any kind."""
    seen: dict[tuple[tuple[int, int, str], ...], int] = {}
    prose = _prose(lines, body, file)
    heads = [index for index in range(body, len(lines)) if prose[index] and _HEADING.match(lines[index])]
    for head, after in pairwise([*heads, len(lines)]):
        if numbered := _NUMBERED.match(lines[head]):
            number, title = numbered.groups()
            first = seen.setdefault(sort_key(number), head)
            if first != head:
                raise SpecError(f"{file}:{head + 1}: clause {number} was already given in line {first + 1}")
            said = "\n".join(lines[index] for index in range(head + 1, after) if prose[index])
            text = "\n".join(lines[head + 1 : after]).strip()
            yield Clause(number, title, _PROMISE.search(said) is not None, text)


def _prose(lines: Sequence[str], body: int, file: str) -> list[bool]:
    """For each line, whether it lies outside code fences: code has no headings and promises nothing."""
    prose, fence, opened = [True] * len(lines), "", 0
    for index in range(body, len(lines)):
        mark = _FENCE.match(lines[index])
        prose[index] = not fence and mark is None
        if mark and not fence:
            fence, opened = mark[1], index
        elif mark and mark[1].startswith(fence) and not mark[2].strip():
            fence = ""
    if fence:
        raise SpecError(f"{file}:{opened + 1}: the code fence is never closed, so later headings are lost in it")
    return prose


def by_id(documents: Iterable[Document]) -> dict[str, Document]:
    """Documents under their ids; an id has one document."""
    found: dict[str, Document] = {}
    for document in documents:
        other = found.setdefault(document.id, document)
        if other is not document:
            raise SpecError(f"{document.file}:1: {document.name} is already the id of {other.file}")
    return found


def read_folder(folder: "Traversable") -> list[Document]:
    """The spec documents of a folder: its Markdown files that begin with front matter, by file name."""
    documents = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".md"):
            text = entry.read_text(encoding="utf-8")
            if text.startswith("---"):
                documents.append(parse(text, str(entry)))
    return documents


def _package_folder() -> "Traversable":
    return files("pytest_kernbench.specs")


def package_documents() -> list[Document]:
    """The package's own documents, with the text of their clauses."""
    return read_folder(_package_folder())


def package_index() -> list[Document]:
    """The package's own documents without the text: what a pytest run reads when it starts."""
    return read_index((_package_folder() / _INDEX).read_text(encoding="utf-8"))


def index_text(documents: Iterable[Document]) -> str:
    """The index of documents: JSON with one clause a line, so that changes to two clauses merge."""
    entries = ",\n".join(_index_entry(document) for document in documents)
    return f'{{"format": {_INDEX_FORMAT}, "documents": [\n{entries}\n]}}\n'


def _index_entry(document: Document) -> str:
    head = {"id": document.id, "title": document.title, "status": document.status}
    head["file"] = PurePath(document.file).name
    rows = [[clause.number, clause.title, clause.normative] for clause in document.clauses]
    clauses = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "clauses": [\n{clauses}\n]}}'


def read_index(text: str) -> list[Document]:
    """Read back what `index_text` wrote."""
    index = json.loads(text)
    if index["format"] != _INDEX_FORMAT:
        remedy = "run python -m pytest_kernbench.specs"
        raise SpecError(f"{_INDEX}:1: format {index['format']} is not {_INDEX_FORMAT}: {remedy}")
    return [_from_entry(entry) for entry in index["documents"]]


def _from_entry(entry: dict[str, object]) -> Document:
    fields = dict(entry)
    rows = fields.pop("clauses")
    assert isinstance(rows, list)
    return Document(**fields, clauses=tuple(Clause(*row) for row in rows))  # type: ignore[arg-type]
