"""What users write is checked: `good_*.py` are clean under `mypy --strict`, and each line of `bad_*.py` is an error.

A comment `# E: text` says what mypy's error on that line has to hold. One run of mypy serves all files.
"""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[lint]' brings it")
pytest.importorskip("hypothesis", reason="hypothesis is not installed: pip install -e '.[test]' brings it")

HERE = Path(__file__).parent
GOOD, BAD = sorted(HERE.glob("good_*.py")), sorted(HERE.glob("bad_*.py"))
ERROR = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+): error: (?P<text>.*)$", re.MULTILINE)
PARTS = ("simulator", "kernels", "specs")


class Error(NamedTuple):
    """An error of mypy, or one that a comment expects."""

    file: str
    line: int
    text: str


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[Error]:
    """What mypy says of all files."""
    folder = tmp_path_factory.mktemp("typing")
    lay_out(folder / "pytest_kernbench")
    for each in (*GOOD, *BAD):
        (folder / each.name).symlink_to(each)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--no-error-summary", "--no-pretty"]
    files = [each.name for each in (*GOOD, *BAD)]
    done = subprocess.run(
        [*command, "--config-file=", "--follow-imports=silent", "--cache-dir=cache", *files],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [Error(found["file"], int(found["line"]), found["text"]) for found in ERROR.finditer(done.stdout)]


def lay_out(target: Path) -> None:
    """The package as a wheel has it: a checker does not see through the finder of an editable install."""
    target.mkdir()
    (source,) = importlib.import_module("pytest_kernbench").__path__
    for each in Path(source).iterdir():
        (target / each.name).symlink_to(each)
    for part in PARTS:
        if not (target / part).exists():
            (folder,) = importlib.import_module(f"pytest_kernbench.{part}").__path__
            (target / part).symlink_to(folder)


def expected(path: Path) -> Iterator[Error]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        _, found, text = line.partition("# E: ")
        if found:
            yield Error(path.name, number, text)


def of(path: Path, errors: list[Error]) -> list[Error]:
    return [each for each in errors if each.file == path.name]


def test_there_are_files_of_both_kinds() -> None:
    assert len(GOOD) > 3
    assert len(BAD) > 2


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_right_code_is_clean(path: Path, errors: list[Error]) -> None:
    assert of(path, errors) == []


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_each_mistake_is_an_error_at_its_line_and_nothing_else_is(path: Path, errors: list[Error]) -> None:
    wanted = list(expected(path))
    said = of(path, errors)

    assert len(wanted) > 3
    assert {each.line for each in said} == {each.line for each in wanted}
    missing = [each for each in wanted if not any(each.line == one.line and each.text in one.text for one in said)]
    assert missing == [], "\n".join(map(str, said))
