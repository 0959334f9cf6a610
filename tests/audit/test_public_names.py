"""Public modules say what is public, and each name of theirs says what it is and what it takes."""

import ast
import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pytest_kernbench

STARS = {"pytest_kernbench.plugin": "pytest_kernbench.fixtures"}  # pytest collects fixtures from the plugin's names

OVERLOADED = "_overload_dummy"  # typing's: tests/typing has the forms

# Any, where there is no type to name. An entry that is not needed any more fails.
UNTYPED = {
    "Device.run(args)": "the kernel's own arguments",
    "Device.run(kwargs)": "the kernel's own arguments",
    "RunKernel.__call__(args)": "the kernel's own arguments",
    "RunKernel.__call__(kwargs)": "the kernel's own arguments, and options of the device",
    "AhbmChip.run(args)": "the kernel's own arguments",
    "AhbmChip.run(kwargs)": "the kernel's own arguments",
    "Ascend310pCore.run(args)": "the kernel's own arguments",
    "Ascend310pCore.run(kwargs)": "the kernel's own arguments",
    "Run.spec": "AhbmSpec, Ascend310pSpec, or that of a device to come",
    "grid(axes)": "values of a point are the function's own arguments",
    "grid(return)": "values of a point are the function's own arguments",
}


@pytest.fixture(scope="module")
def names(modules: dict[str, Path]) -> list[tuple[str, object, str]]:
    """(module, object or None, name) of every `__all__` entry of the distribution."""
    loaded = {name: importlib.import_module(name) for name in modules if not name.endswith("__main__")}
    found = [(name, module, each) for name, module in loaded.items() for each in getattr(module, "__all__", ())]
    assert len(found) > 10
    return [(name, getattr(module, each, None), each) for name, module, each in found]


@pytest.fixture(scope="module")
def public(root: Path) -> list[ModuleType]:
    """The modules that the reference has pages for; one of forms only serves another's page."""
    pages = runpy.run_path(str(root / "docs" / "reference" / "__main__.py"))["PAGES"]
    return [importlib.import_module(name) for _, each in pages.values() for name in each if not name.endswith(".forms")]


def test_every_listed_name_exists(names: list[tuple[str, object, str]]) -> None:
    assert [f"{module}.{name}" for module, value, name in names if value is None] == []


def test_every_listed_function_and_class_has_a_docstring(names: list[tuple[str, object, str]]) -> None:
    assert [
        f"{module}.{name}" for module, value, name in names if needs_text(value) and not inspect.getdoc(value)
    ] == []


def needs_text(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def test_no_name_is_listed_twice(names: list[tuple[str, object, str]]) -> None:
    entries = [(module, name) for module, _, name in names]

    assert len(entries) == len(set(entries))


def test_every_public_module_lists_its_names(public: list[ModuleType]) -> None:
    assert len(public) > 10
    assert [module.__name__ for module in public if not getattr(module, "__all__", None)] == []


def callables(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Functions of a module's `__all__`, and the methods and properties of its classes that a user sees."""
    for name in module.__all__:
        value = inspect.unwrap(getattr(module, name), stop=inspect.isfunction)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and value.__module__.startswith("pytest_kernbench"):
            yield from ((f"{name}.{each}", function) for each, function in methods(value))


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    made = vars(kind).get("__init__")
    if "__dataclass_fields__" in vars(kind) or getattr(kind, "_is_protocol", False):
        made = None  # written by dataclass or typing
    for name, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else value
        if inspect.isfunction(function) and (name[0] != "_" or name == "__call__" or function is made):
            yield from [(name, function)] if function.__name__ != OVERLOADED else []


def test_every_public_method_has_a_docstring(public: list[ModuleType]) -> None:
    bare = [
        f"{module.__name__}.{name}"
        for module in public
        for name, function in callables(module)
        if not inspect.getdoc(function) and not name.endswith("__init__")
    ]

    assert bare == []


def untyped(name: str, function: Any) -> Iterator[str]:
    """Parameters, and the result, that have no annotation or one with Any in it."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    for each in parameters[1:] if parameters and parameters[0].name == "self" else parameters:
        if each.annotation is each.empty or vague(each.annotation):
            yield f"{name}({each.name})"
    if signature.return_annotation is signature.empty or vague(signature.return_annotation):
        yield f"{name}(return)"


def vague(annotation: object) -> bool:
    """Any says nothing; a tensor of any element type is one that may have each."""
    return re.search(r"\bAny\b", re.sub(r"(Local|Global)Tensor\[Any\]", "", str(annotation))) is not None


def test_nothing_public_is_any_where_a_type_exists(public: list[ModuleType]) -> None:
    found = {each for module in public for name, function in callables(module) for each in untyped(name, function)}
    found |= {
        f"{name}.{field}"
        for module in public
        for name in module.__all__
        if inspect.isclass(getattr(module, name))
        for field, annotation in inspect.get_annotations(getattr(module, name)).items()
        if field[0] != "_" and vague(annotation)
    }

    assert found == set(UNTYPED)


def test_the_audit_sees_a_missing_type_and_an_any() -> None:
    def f(a, b: Any, c: list[Any], d: int):  # type: ignore[no-untyped-def]
        """Takes what it gets."""

    assert list(untyped("f", f)) == ["f(a)", "f(b)", "f(c)", "f(return)"]
    assert not vague("LocalTensor[Any]")


def test_no_module_takes_all_names_of_another(modules: dict[str, Path]) -> None:
    stars = {
        name: node.module
        for name, path in modules.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    }

    assert stars == STARS


def test_the_package_has_every_name_it_lists_and_no_other() -> None:
    assert set(pytest_kernbench.__all__) <= set(dir(pytest_kernbench))
    assert pytest_kernbench.AhbmChip is importlib.import_module("pytest_kernbench.simulator").AhbmChip
    with pytest.raises(AttributeError, match="has no attribute 'AhbmChop'"):
        pytest_kernbench.AhbmChop  # noqa: B018
