"""Code is exchanged in every function there is of a file, whatever wraps it; and only in kernels of their author's."""

import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm import flash_sweep, gqa_decode
from pytest_kernbench.mutation import sources

SOURCE = """\
import functools
import json
import numpy as np

def plain(n):
    return n - 1

@functools.lru_cache
def cached(n):
    return n - 1

def make(step):
    def inner(n):
        return n - step
    return inner

closure = make(1)
bound = functools.partial(plain, 5)

class Thing:
    @property
    def five(self):
        return 6 - 1

    @staticmethod
    def still(n):
        return n - 1

    @classmethod
    def of_class(cls, n):
        return n - 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A user's module of that source."""
    (tmp_path / "users_kernels.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("users_kernels")
    del sys.modules["users_kernels"]


def changed(module: ModuleType, old: str = "-", new: str = "+") -> None:
    file = str(module.__file__)
    sources.put(compile(SOURCE.replace(old, new), file, "exec"), sources.live_functions({file})[file])
    sources.forget_results()


CALLS: dict[str, Callable[[ModuleType], int]] = {
    "function": lambda module: module.plain(5),
    "function that is imported elsewhere": lambda module: module.bound(),
    "cached function": lambda module: module.cached(5),
    "closure": lambda module: module.closure(5),
    "closure to come": lambda module: module.make(1)(5),
    "property": lambda module: module.Thing().five - 1,
    "static method": lambda module: module.Thing.still(5),
    "class method": lambda module: module.Thing.of_class(5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_whoever_calls_gets_the_other_code(module: ModuleType, call: Callable[[ModuleType], int]) -> None:
    assert call(module) == 4

    changed(module)

    assert call(module) == 6


def test_a_function_with_other_free_variables_keeps_its_code(module: ModuleType) -> None:
    changed(module, "n - step", "n")

    assert module.closure(5) == 4


def test_a_kernel_is_made_of_its_module_and_what_it_imports_of_the_same_author(module: ModuleType) -> None:
    assert sources.kernel_modules(module.plain, ()) == [module]
    assert sources.kernel_modules(functools.partial(module.cached, 1), ()) == [module]

    found = {each.__name__.rpartition(".")[2] for each in sources.kernel_modules(gqa_decode.gqa_decode, ())}
    assert found >= {"gqa_decode", "flash_sweep", "flash_state", "flash_rows", "placement", "positions", "requests"}
    assert not found & {"gqa_ring", "driver", "chip", "numpy"}


def test_test_files_the_simulator_and_installed_packages_are_nobodys_kernels(module: ModuleType) -> None:
    file = str(module.__file__)

    assert sources.kernel_modules(module.plain, {file}) == []
    assert sources.kernel_modules(json.dumps, ()) == []
    assert sources.kernel_modules(sources.kernel_modules, ()) == []
    own = sources.own_modules({file})
    assert flash_sweep in own
    assert module not in own and np not in own and json not in own and sources not in own


def test_a_module_is_taken_by_name_only_if_it_is_that_file(module: ModuleType, tmp_path: Path) -> None:
    assert sources.importable("users_kernels", str(module.__file__)) is module
    assert sources.importable("users_kernels", str(tmp_path / "other.py")) is None
    assert sources.importable("no_such_kernels", str(module.__file__)) is None
