"""A module that lists its public names has every one of them, and each says what it is."""

import importlib
import inspect
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def public(modules: dict[str, Path]) -> list[tuple[str, object, str]]:
    """(module, object or None, name) of every `__all__` entry of the distribution."""
    loaded = {name: importlib.import_module(name) for name in modules if not name.endswith("__main__")}
    found = [(name, module, each) for name, module in loaded.items() for each in getattr(module, "__all__", ())]
    assert len(found) > 10
    return [(name, getattr(module, each, None), each) for name, module, each in found]


def test_every_public_name_exists(public: list[tuple[str, object, str]]) -> None:
    assert [f"{module}.{name}" for module, value, name in public if value is None] == []


def test_every_public_function_and_class_has_a_docstring(public: list[tuple[str, object, str]]) -> None:
    assert [
        f"{module}.{name}" for module, value, name in public if needs_text(value) and not inspect.getdoc(value)
    ] == []


def needs_text(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def test_no_public_name_is_listed_twice(public: list[tuple[str, object, str]]) -> None:
    entries = [(module, name) for module, _, name in public]

    assert len(entries) == len(set(entries))
