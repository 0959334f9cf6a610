"""What is deprecated warns where it is used, goes on working, and is gone in the release that it names."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_kernbench
from pytest_kernbench import KernbenchDeprecationWarning, __version__
from pytest_kernbench.deprecation import deprecated

PACKAGE = [Path(folder) for module in ("", "simulator", "kernels", "specs") for folder in __import__(
    f"pytest_kernbench.{module}".rstrip("."), fromlist=["x"]
).__path__]  # fmt: skip


def old_name() -> int:
    deprecated("old_name", "new_name", until="99.0")
    return 7


def test_a_warning_names_both_names_and_the_release_at_the_line_of_the_user() -> None:
    with pytest.warns(KernbenchDeprecationWarning, match=r"^old_name goes away in 99\.0: use new_name$") as caught:
        assert old_name() == 7

    assert caught[0].filename == __file__


def test_a_user_can_make_it_an_error_by_its_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pytest_kernbench.KernbenchDeprecationWarning)
        with pytest.raises(DeprecationWarning):
            old_name()


def overdue(source: str, version: str) -> Iterator[str]:
    """What a source deprecates until a release that has come."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "deprecated":
            (until,) = (ast.literal_eval(each.value) for each in node.keywords if each.arg == "until")
            if release(until) <= release(version):
                yield ast.literal_eval(node.args[0])


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_nothing_outlives_the_release_in_which_it_was_to_go() -> None:
    sources = {path for folder in PACKAGE for path in folder.rglob("*.py")}

    assert len(sources) > 100
    assert [name for path in sources for name in overdue(path.read_text(encoding="utf-8"), __version__)] == []


@pytest.mark.parametrize(("version", "found"), [("0.9", []), ("1.2", ["old"]), ("1.10", ["old"])])
def test_what_was_to_go_is_found(version: str, found: list[str]) -> None:
    assert list(overdue('deprecated("old", "new", until="1.2")', version)) == found
