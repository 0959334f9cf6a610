"""Modules that kernels are made of, and their functions while they live: other code is put into them in place.

What a name refers to never changes, so that whoever imported a kernel before runs the other code too.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

OWN, OWN_KERNELS = "pytest_kernbench", "pytest_kernbench.kernels"


def kernel_modules(kernel: Callable[..., Any], tests: Collection[str]) -> list[ModuleType]:
    """The module of a kernel and those of the same author's that it imports, but none of the files `tests`.

    Left out are the standard library, installed packages other than the kernel's own, and the simulator.
    """
    start = module_of(kernel)
    found: dict[str, ModuleType] = {}
    waiting = [start] if start is not None else []
    package = start.__name__.partition(".")[0] if start is not None else ""
    while waiting:
        module = waiting.pop()
        if module.__name__ not in found and is_kernel_source(module, package, tests):
            found[module.__name__] = module
            waiting += _imported(module)
    return list(found.values())


def own_modules(tests: Collection[str]) -> list[ModuleType]:
    """What is loaded of the user's own modules, and the kernels of ours; installed packages and `tests` are neither."""
    loaded = [each for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
    return [each for each in loaded if is_kernel_source(each, "", tests)]


def module_of(kernel: Callable[..., Any]) -> ModuleType | None:
    """Where a kernel is defined, whatever wraps it."""
    while isinstance(kernel, functools.partial):
        kernel = kernel.func
    name = getattr(inspect.unwrap(kernel), "__module__", None) or type(kernel).__module__
    return sys.modules.get(name)


def _imported(module: ModuleType) -> Iterator[ModuleType]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value
        else:
            home = sys.modules.get(getattr(value, "__module__", None) or "")
            if home is not None:
                yield home


def is_kernel_source(module: ModuleType, package: str, tests: Collection[str]) -> bool:
    """Whether a module may be part of the kernels of `package`."""
    file, name = getattr(module, "__file__", None), module.__name__
    if not file or not file.endswith(".py") or file in tests or not Path(file).is_file():
        return False
    if name == OWN or name.startswith(f"{OWN}."):
        return name.startswith(f"{OWN_KERNELS}.")
    folders = sysconfig.get_paths()
    installed = _is_below(file, folders["purelib"]) or _is_below(file, folders["platlib"])
    if installed:
        return name.partition(".")[0] == package
    return not _is_below(file, folders["stdlib"])


def _is_below(file: str, folder: str) -> bool:
    return Path(folder) in Path(file).parents


def source_of(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Names a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def importable(name: str, file: str) -> ModuleType | None:
    """The module of that name, if it can be had here and is that file: kernels written by a test cannot."""
    try:
        module = sys.modules.get(name) or importlib.import_module(name)
    except ImportError:
        return None
    return module if getattr(module, "__file__", None) == file and Path(file).is_file() else None


def live_functions(files: Collection[str]) -> dict[str, list[FunctionType]]:
    """Every function there is of each of `files`: methods, decorated ones and closures as well."""
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in found:
            found[each.__code__.co_filename].append(each)
    return found


def put(code: CodeType, functions: Iterable[FunctionType]) -> int:
    """Give functions the code that `code`, their module's, has for them; return how many there were."""
    known = {(each.co_qualname, each.co_firstlineno): each for each in _codes(code)}
    done = 0
    for function in functions:
        new = known.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
        if new is not None and new.co_freevars == function.__code__.co_freevars:
            function.__code__ = new
            done += 1
    return done


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def forget_results() -> None:
    """Empty the caches of functions of kernels and tests: what they hold may have been computed by other code."""
    for module in list(sys.modules.values()):
        caches = [each for each in list(getattr(module, "__dict__", {}).values()) if _is_cache(each)]
        if caches and is_kernel_source(module, "", ()):
            for each in caches:
                each.cache_clear()


def _is_cache(value: object) -> bool:
    return isinstance(value, functools._lru_cache_wrapper)
