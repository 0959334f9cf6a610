"""Python blocks of README and docs are real: each compiles, and those that hold a test pass."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

import pytest_kernbench.simulator.ahbm.chip
import pytest_kernbench.simulator.ops.difference
import pytest_kernbench.simulator.ops.text  # noqa: F401

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<role>test|file): (?P<name>\S+) -->\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block; `role` and `name` are those of a comment before it, or empty.

    `<!-- test: NAME -->` makes it a test file of that name, `<!-- file: PATH -->` a file beside the page's tests. What
    lies below `__snapshots__/test_NAME` are goldens that the test file of that name has to match.
    """

    page: Path
    line: int
    role: str
    name: str
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text[: match.start("code")].count("\n") + 1,
            match["role"] or "",
            match["name"] or "",
            match["language"],
            match["code"],
        )
        for match in BLOCK.finditer(text)
    ]


EVERY = [block for page in PAGES for block in blocks(page)]
FILES = [block for block in EVERY if block.role == "file"]
BLOCKS = [block for block in EVERY if block.language == "python"]
TESTS = [block for block in BLOCKS if block.role == "test" or "def test_" in block.code]


def where(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


def test_the_pages_hold_blocks_and_tests_among_them() -> None:
    assert BLOCKS, "no python block in README.md and docs/"
    assert TESTS, "no python block with a test in README.md and docs/"


def test_every_fence_that_says_python_was_read() -> None:
    fences = sum(len(re.findall(r"^\s*```\s*py", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)

    assert len(BLOCKS) == fences


def test_every_golden_on_a_page_is_compared_by_a_test_of_that_page() -> None:
    goldens = {(each.page, each.name.split("/")[1]) for each in FILES if each.name.startswith("__snapshots__/")}

    assert goldens
    assert goldens <= {(each.page, f"test_{each.name}") for each in TESTS if each.role == "test"}


@pytest.mark.parametrize("block", BLOCKS, ids=where)
def test_a_block_compiles(block: Block) -> None:
    compile("\n" * (block.line - 1) + block.code, block.page.name, "exec")


@pytest.mark.parametrize("block", TESTS, ids=where)
def test_a_block_with_a_test_passes(block: Block, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p kernbench -p syrupy --strict-markers")
    name = f"test_{block.name or 'block'}"
    beside = [each for each in FILES if each.page == block.page]
    for each in beside:
        path = pytester.path / each.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(each.code, encoding="utf-8")
    pytester.makepyfile(**{name: block.code})
    has_goldens = any(each.name.startswith(f"__snapshots__/{name}/") for each in beside)

    result = pytester.runpytest_inprocess(name + ".py", *([] if has_goldens else ["--snapshot-update"]))

    assert result.ret == 0, where(block)
    assert result.parseoutcomes().get("passed", 0) > 0
