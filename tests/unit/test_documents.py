"""Spec documents: which headings are clauses, which clauses promise something, and what is refused."""

from pathlib import Path

import pytest

from pytest_kernbench import documents, parsing
from pytest_kernbench.documents import Document, SpecError

FRONT = '---\nid: ADR-0099\ntitle: "A thing"\nstatus: accepted\n---\n'  # five lines


def parse(body: str) -> Document:
    return parsing.parse(FRONT + body, "adr.md")


def numbers(body: str) -> list[str]:
    return [clause.number for clause in parse(body).clauses]


def test_front_matter_gives_id_title_and_status() -> None:
    document = parse("")

    assert (document.id, document.title, document.status) == ("0099", "A thing", "accepted")
    assert (document.name, document.mark) == ("ADR-0099", "adr0099")


@pytest.mark.parametrize(
    ("heading", "number"),
    [
        ("## 11.2 GQA reuse", "11.2"),
        ("### 0.5.1. Position", "0.5.1"),
        ("### B.2 Orientation", "B.2"),
        ("## B Open items", "B"),
        ("## B. Open items", "B"),
    ],
)
def test_a_numbered_heading_is_a_clause(heading: str, number: str) -> None:
    assert numbers(heading) == [number]


@pytest.mark.parametrize("heading", ["# 1 Title of all", "## TL;DR", "## A short history", "##1 No space", "1 Prose"])
def test_other_headings_are_no_clauses(heading: str) -> None:
    assert numbers(heading) == []


def test_clauses_keep_the_order_of_the_text() -> None:
    assert numbers("## 2 Two\n## 1 One\n## 1.10 Ten\n## 1.1 One\n") == ["2", "1", "1.10", "1.1"]


@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_headings_inside_code_fences_are_code(fence: str) -> None:
    assert numbers(f"## 1 One\n{fence}python\n## 2 Two\n{fence}\n## 3 Three\n") == ["1", "3"]


def test_a_clause_ends_at_the_next_heading_of_any_kind() -> None:
    document = parse("## 1 One\nIts text.\n\n### An aside\nIt must not count.\n")

    assert document.clauses[0].text == "Its text."
    assert not document.clauses[0].normative


@pytest.mark.parametrize(
    ("text", "normative"),
    [
        ("A load shall wait.", True),
        ("Loads **must** wait.", True),
        ("Shall it?", True),
        ("Mustard and marshalling are words too.", False),
        ("```\nkernels must wait\n```", False),
    ],
)
def test_a_clause_is_normative_if_its_prose_says_shall_or_must(text: str, normative: bool) -> None:
    assert parse(f"## 1 One\n{text}\n").clauses[0].normative is normative


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# No front matter\n", r"^adr\.md:1: a spec document begins with a line '---'"),
        ("---\nid: 0099\ntitle: A\nstatus: x\n", r"^adr\.md:1: the front matter has no closing '---'"),
        ("---\nid: 0099\nA title\n---\n", r"^adr\.md:3: 'A title' in the front matter is not 'key: value'"),
        ("---\nid: 0099\nstatus: x\n---\n", r"^adr\.md:1: the front matter lacks title$"),
        ("---\nid: GQA\ntitle: A\nstatus: x\n---\n", r"^adr\.md:1: id 'GQA' is not a document number such as ADR-0060"),
        (FRONT + "## 1.1 One\n\n## 1.1 Again\n", r"^adr\.md:8: clause 1\.1 was already given in line 6$"),
        (FRONT + "## 1 One\n```\n## 2 Two\n", r"^adr\.md:7: the code fence is never closed"),
    ],
)
def test_a_mistake_is_one_error_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parsing.parse(text, "adr.md")


def test_numbers_are_compared_part_by_part_and_never_as_floats() -> None:
    shuffled = ["B.2", "11", "1.10", "B", "1.9", "2", "1.1", "1"]

    assert sorted(shuffled, key=documents.sort_key) == ["1", "1.1", "1.9", "1.10", "2", "11", "B", "B.2"]
    assert numbers("## 1.1 One\n## 1.10 Ten\n") == ["1.1", "1.10"]  # no duplicate


def test_marks_cover_every_ancestor_of_every_clause() -> None:
    assert parse("## 11.2.1 Deep\n## B.2 Appendix\n## 9 Nine\n").marks() == [
        "adr0099",
        "adr0099.9",
        "adr0099.11",
        "adr0099.11.2",
        "adr0099.11.2.1",
        "adr0099.B",
        "adr0099.B.2",
    ]


def test_the_nearest_numbers_come_first() -> None:
    assert documents.nearest("11.22", ["1", "11.2", "3", "11"])[0] == "11.2"
    assert documents.nearest("C.7", ["1", "11.2"]) == []


def test_an_id_has_one_document() -> None:
    first, second = parsing.parse(FRONT, "a.md"), parsing.parse(FRONT, "b.md")

    with pytest.raises(SpecError, match=r"^b\.md:1: ADR-0099 is already the id of a\.md$"):
        documents.by_id([first, second])


def test_a_folder_gives_its_markdown_files_with_front_matter_by_name(tmp_path: Path) -> None:
    for name, text in {"b.md": FRONT, "a.md": FRONT, "README.md": "# Notes\n", "c.txt": FRONT}.items():
        (tmp_path / name).write_text(text)

    assert [Path(document.file).name for document in parsing.read_folder(tmp_path)] == ["a.md", "b.md"]


def test_the_index_gives_back_everything_but_the_text() -> None:
    document = parse("## 1 Größe\nIt shall fit.\n## B.2 Appendix\n")

    (read,) = documents.read_index(parsing.index_text([document]))

    assert [(each.number, each.title, each.normative) for each in read.clauses] == [
        ("1", "Größe", True),
        ("B.2", "Appendix", False),
    ]
    assert (read.id, read.title, read.status, read.file) == ("0099", "A thing", "accepted", "adr.md")


def test_an_index_of_another_format_is_refused() -> None:
    with pytest.raises(SpecError, match="format 2 is not 1"):
        documents.read_index('{"format": 2, "documents": []}')
