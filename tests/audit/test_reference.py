"""The pages of docs/reference are what the source says, and docs/api.md promises something for each module."""

import runpy
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def generator(root: Path) -> dict[str, Any]:
    """The names of `python -m docs.reference`."""
    return runpy.run_path(str(root / "docs" / "reference" / "__main__.py"))


def test_every_page_is_what_the_source_says(generator: dict[str, Any], root: Path) -> None:
    written = generator["pages"]()
    there = {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs" / "reference").glob("*.md")}

    assert set(there) == set(written), "python -m docs.reference writes them anew"
    stale = [name for name, text in written.items() if there[name] != text]
    assert stale == [], "python -m docs.reference writes them anew"


def test_every_call_of_both_languages_is_on_its_page(generator: dict[str, Any]) -> None:
    written = generator["pages"]()

    assert "- `load(ptr: Pointer, shape: Shape, " in written["tl"]
    assert "- `Add: forms.TwoSources`\n  dst = src0 + src1." in written["asc"]


def test_a_changed_docstring_changes_the_page(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(a: int, *, b: str = 'x') -> None:\n    '''Says so.'''\n"
    monkeypatch.setitem(generator["defined"].__globals__, "inspect", _Source(source))

    ((node, doc),) = generator["defined"]("pytest_kernbench", "f")

    assert (generator["head"](node), doc) == ("f(a: int, *, b: str='x') -> None", "Says so.")


class _Source:
    """`inspect` with another source."""

    def __init__(self, source: str) -> None:
        self._source = source

    def getsource(self, _: object) -> str:
        return self._source


def test_the_policy_names_every_public_module(generator: dict[str, Any], root: Path) -> None:
    policy = (root / "docs" / "api.md").read_text(encoding="utf-8")
    modules = [name for _, names in generator["PAGES"].values() for name in names]

    assert len(modules) > 10
    assert [name for name in modules if f"`{name}`" not in policy and not name.endswith(".forms")] == []
