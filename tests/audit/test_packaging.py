"""The wheel holds what the checkout holds: package list, package data, and no assertion rewriting of our modules."""

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def setuptools(root: Path) -> Any:
    """The [tool.setuptools] table."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["setuptools"]


def test_every_folder_with_modules_is_a_package_of_the_wheel(setuptools: Any, modules: dict[str, Path]) -> None:
    folders = {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in modules.items()}

    assert sorted(setuptools["packages"]) == sorted(folders)


def test_every_package_has_an_init(setuptools: Any, modules: dict[str, Path]) -> None:
    with_init = {name for name, path in modules.items() if path.name == "__init__.py"}

    assert set(setuptools["packages"]) == with_init


def test_every_data_file_is_covered_by_a_pattern(root: Path, setuptools: Any) -> None:
    data = setuptools["package-data"]
    folders = {folder: package for package, folder in setuptools["package-dir"].items()}
    found = [path for folder in folders for path in (root / folder).rglob("*") if is_data(path)]

    assert len(found) >= 3  # two py.typed and the index of the specs
    stray = [path for path in found if not any(path.match(glob) for glob in data[folders[path.parent.name]])]
    assert stray == []


def is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in {".py", ".pyc"} and "egg-info" not in str(path)


def test_no_module_but_the_assertions_and_the_contract_is_rewritten_by_pytest(modules: dict[str, Path]) -> None:
    rewritten = {name for name, path in modules.items() if not switched_off(path)}

    assert rewritten == {"pytest_kernbench.assertions", "pytest_kernbench.contract"}
    assert len(modules) > 40


def switched_off(path: Path) -> bool:
    return "PYTEST_DONT_REWRITE" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")


def test_importing_the_package_asks_for_no_hypothesis_but_in_the_strategies(modules: dict[str, Path]) -> None:
    importing = {name for name, path in modules.items() if {"hypothesis", "strategies"} & imported(path)}

    assert importing == {"pytest_kernbench.strategies"}


def imported(path: Path) -> set[str]:
    """The parts of every name that a module imports as it is imported; what a function imports is its own affair."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in todo:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found.update(part for name in names for part in name.split("."))
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found
