"""Reading spec documents from Markdown: numbered headings are clauses; and writing the index of what was read.

Nothing here knows pytest, and what cannot be read is one `SpecError` with file and line. PYTEST_DONT_REWRITE
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_kernbench.documents import INDEX_FORMAT, Clause, Document, SpecError, package_folder, sort_key

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["index_text", "package_documents", "parse", "read_folder"]

_HEADING = re.compile(r"#{1,6}\s")
# A letter alone is a number before a capital only: "B Open items" is clause B, "A short history" is a heading.
_NUMBERED = re.compile(r"#{2,6}\s+(\d+(?:\.\d+)*|[A-Z](?:\.\d+)+|[A-Z](?=\.?\s+[^a-z\s]))\.?\s+(\S.*?)\s*$")
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_PROMISE = re.compile(r"\b(?:shall|must)\b", re.IGNORECASE)
_ID = re.compile(r"(?:ADR-)?(\d+)$")
_REQUIRED = ("id", "title", "status")


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


def read_folder(folder: "Traversable") -> list[Document]:
    """The spec documents of a folder: its Markdown files that begin with front matter, by file name."""
    documents = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".md"):
            try:
                text = entry.read_text(encoding="utf-8").removeprefix("\ufeff")  # which some editors put first
            except UnicodeDecodeError as error:
                raise SpecError(f"{entry}: not UTF-8 from byte {error.start}; save it as UTF-8") from None
            if text.startswith("---"):
                documents.append(parse(text, str(entry)))
    return documents


def package_documents() -> list[Document]:
    """The package's own documents, with the text of their clauses."""
    return read_folder(package_folder())


def index_text(documents: Iterable[Document]) -> str:
    """The index of documents: JSON with one clause a line, so that changes to two clauses merge."""
    entries = ",\n".join(_index_entry(document) for document in documents)
    return f'{{"format": {INDEX_FORMAT}, "documents": [\n{entries}\n]}}\n'


def _index_entry(document: Document) -> str:
    head = {"id": document.id, "title": document.title, "status": document.status}
    head["file"] = PurePath(document.file).name
    rows = [[clause.number, clause.title, clause.normative] for clause in document.clauses]
    clauses = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{json.dumps(head, ensure_ascii=False)[:-1]}, "clauses": [\n{clauses}\n]}}'
