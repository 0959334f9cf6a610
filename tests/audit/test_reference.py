"""The pages of docs/reference are what the source says, and docs/api.md promises something for each module."""

import ast
import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def generator(root: Path) -> dict[str, Any]:
    """The names of `python -m docs.reference`."""
    return runpy.run_path(str(root / "docs" / "reference" / "__main__.py"))


@pytest.fixture(scope="module")
def written(generator: dict[str, Any]) -> dict[str, str]:
    """The pages as they would be written now."""
    pages: dict[str, str] = generator["pages"]()
    return pages


def test_every_page_is_what_the_source_says(written: dict[str, str], root: Path) -> None:
    there = {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs" / "reference").glob("*.md")}

    assert set(there) == set(written), "python -m docs.reference writes them anew"
    stale = [name for name, text in written.items() if there[name] != text]
    assert stale == [], "python -m docs.reference writes them anew"


def test_every_call_of_both_languages_is_on_its_page(written: dict[str, str]) -> None:
    assert "- `load(ptr: Pointer, shape: Shape, " in written["tl"]
    assert "- `Add: forms.TwoSources`\n  dst = src0 + src1." in written["asc"]


def test_every_public_name_is_on_the_page_of_its_module(generator: dict[str, Any], written: dict[str, str]) -> None:
    listed = [(page, each) for page, (_, names) in generator["PAGES"].items() for each in names]
    missing = [
        f"{module}.{name}"
        for page, module in listed
        for name in generator["public"](importlib.import_module(module))
        if not re.search(rf"^(###|-) `(class )?{name}\b", written[page], re.MULTILINE)
    ]

    assert missing == []


def test_a_changed_docstring_changes_the_page(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    body = ast.parse("def f(a: int, *, b: str = 'x') -> None:\n    '''Says so.'''\n").body
    monkeypatch.setitem(generator["defined"].__globals__, "parsed", lambda module: body)

    ((node, doc),) = generator["defined"]("any", "f")

    assert (generator["head"](node), doc) == ("f(a: int, *, b: str='x') -> None", "Says so.")


def test_the_policy_names_every_public_module(generator: dict[str, Any], root: Path) -> None:
    policy = (root / "docs" / "api.md").read_text(encoding="utf-8")
    modules = [name for _, names in generator["PAGES"].values() for name in names]

    assert len(modules) > 10
    assert [name for name in modules if f"`{name}`" not in policy and not name.endswith(".forms")] == []
