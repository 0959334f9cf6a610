"""What other plugins and `conftest.py` files add through our hooks, and distributions through entry points.

Asked for where it is needed and judged before it is used: an error names the plugin and the hook. A run in which
nobody implements a hook does not import this module for it. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_kernbench.documents import Clause, Document

if TYPE_CHECKING:
    from pytest_kernbench.checkers import Checker
    from pytest_kernbench.simulator.ops.log import OpLog

__all__ = ["GROUP", "Added", "Answer", "ExtensionError", "LogColumn", "MatrixColumn", "added", "raised"]

GROUP = "kernbench.checkers"
"""The entry points that name a `Checker`."""

LogColumn = Callable[["OpLog"], Any]
"""A number for every row of a log, as an array or a sequence."""

MatrixColumn = Callable[[Document, Clause], object]
"""What the table says about a clause; its text is the cell."""


class ExtensionError(Exception):
    """What a plugin, a `conftest.py` or an entry point adds cannot be used; the message says whose it is and why."""


class Answer(NamedTuple):
    """What one implementation of a hook returned; `who`: the plugin and the hook."""

    who: str
    value: Any


def answers(hook: Any, **given: object) -> Iterator[Answer]:
    """What each implementation returns that is not None, in pluggy's order, each with its plugin's name.

    They are called one by one, since a call of the hook does not tell whose an answer is.
    """
    for each in reversed(hook.get_hookimpls()):
        who = f"{each.plugin_name}: {hook.name}"
        if each.wrapper or each.hookwrapper:
            raise ExtensionError(f"{who} is a wrapper, which this hook has no use for: return what you add")
        try:
            value = each.function(*(given[name] for name in each.argnames))
        except Exception as error:
            raise ExtensionError(f"{who} {raised(error)}") from error
        if value is not None:
            yield Answer(who, value)


def raised(error: Exception) -> str:
    """What was raised, and at which line."""
    frames = extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"raised {type(error).__name__}: {error}{where}"


# Spec documents


def spec_paths(config: pytest.Config) -> Iterator[tuple[str, Path]]:
    """Folders with documents, each with who named it."""
    for who, value in answers(config.hook.pytest_kernbench_spec_paths, config=config):
        for each in _listed(who, value, "folders, as ['design']"):
            if not isinstance(each, str | os.PathLike):
                raise ExtensionError(f"{who} gave {each!r}; give folders, as ['design']")
            yield who, config.rootpath / each


def _listed(who: str, value: object, wanted: str) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ExtensionError(f"{who} returned {value!r}; return a list of {wanted}")
    return value


# Chips


def made_chip(request: pytest.FixtureRequest, name: str, spec: object) -> Any:
    """What a hook puts in the place of the chip; None if there is none."""
    for who, chip in answers(request.node.ihook.pytest_kernbench_make_chip, request=request, name=name, spec=spec):
        for method in ("run", "tensor"):
            if not callable(getattr(chip, method, None)):
                raise ExtensionError(f"{who} returned {chip!r} for {name}, which has no method {method!r}")
        return chip
    return None


# Runs


class Added(NamedTuple):
    """What is added to the runs of a test."""

    checkers: tuple[Checker, ...] = ()
    columns: Mapping[str, LogColumn] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for checker in self.checkers for kind in checker.kinds)


def added(request: pytest.FixtureRequest) -> Added:
    """Checkers and columns of the test's runs. Raises ExtensionError."""
    hooks = request.node.ihook
    found = list(entry_point_checkers(request.config))
    for who, value in answers(hooks.pytest_kernbench_checkers, request=request):
        found += [_checker(who, each) for each in _listed(who, value, "checkers")]
    _refuse_equal_kinds(found)
    columns: dict[str, LogColumn] = {}
    for who, value in answers(hooks.pytest_kernbench_log_columns, request=request):
        for name, function in _named_functions(who, value, "{'energy': a function of the log}"):
            if name in columns:
                raise ExtensionError(f"{who}: another plugin has a column {name!r} already; give it another name")
            columns[name] = _checked_column(who, name, function)
    return Added(tuple(found), columns)


def _checker(who: str, value: object) -> Checker:
    from pytest_kernbench.checkers import Checker

    if not isinstance(value, Checker):
        raise ExtensionError(f"{who} gave {value!r}; give pytest_kernbench.checkers.Checker(kinds, judge)")
    return replace(value, origin=who)


def _refuse_equal_kinds(checkers: Iterable[Checker]) -> None:
    owners: dict[str, str] = {}
    for checker in checkers:
        for kind in checker.kinds:
            if kind in owners:
                raise ExtensionError(f"{checker.origin}: the kind {kind!r} is one of {owners[kind]} already")
            owners[kind] = checker.origin


def _named_functions(who: str, value: object, wanted: str) -> Iterable[tuple[str, Callable[..., Any]]]:
    if not isinstance(value, Mapping):
        raise ExtensionError(f"{who} returned {value!r}; return {wanted}")
    for name, function in value.items():
        if not isinstance(name, str) or not name.isprintable() or not name or not callable(function):
            raise ExtensionError(f"{who} gave {name!r}: {function!r}; give {wanted}")
    return value.items()


def _checked_column(who: str, name: str, function: LogColumn) -> LogColumn:
    """The column with its name looked at now, and what it computes when it is asked for."""
    from pytest_kernbench.simulator.ops.log import refuse_column_name

    try:
        refuse_column_name(name)
    except ValueError as error:
        raise ExtensionError(f"{who}: {error}") from None

    def column(log: OpLog) -> Any:
        __tracebackhide__ = True
        import numpy as np

        try:
            values = np.asarray(function(log))
        except Exception as error:
            raise ExtensionError(f"{who}: the column {name!r} {raised(error)}") from error
        if values.shape != (len(log),) or values.dtype.kind not in "biuf":
            fact = f"{values.dtype} of shape {values.shape}"
            raise ExtensionError(f"{who}: the column {name!r} is {fact}; give {len(log)} numbers, one a row")
        return values

    return column


_LOADED = pytest.StashKey[tuple["Checker", ...]]()


def entry_point_checkers(config: pytest.Config) -> tuple[Checker, ...]:
    """The checkers that installed distributions bring. Raises ExtensionError for one that cannot be loaded.

    As with plugins, `-p no:NAME` leaves one out and PYTEST_DISABLE_PLUGIN_AUTOLOAD all of them.
    """
    if _LOADED not in config.stash:
        config.stash[_LOADED] = tuple(_load(config))
    return config.stash[_LOADED]


def _load(config: pytest.Config) -> Iterator[Checker]:
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        return
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP)):
        if config.pluginmanager.is_blocked(point.name):
            continue
        who = f"{point.dist.name if point.dist else 'unknown'}: the entry point {point.name} = {point.value} of {GROUP}"
        try:
            value = point.load()
        except Exception as error:
            fact = f"{type(error).__name__}: {error}; mend it, or leave it out with -p no:{point.name}"
            raise ExtensionError(f"{who} cannot be loaded: {fact}") from error
        yield _checker(who, value)


# The table of clauses


def matrix_columns(config: pytest.Config) -> dict[str, MatrixColumn]:
    """Columns of the table of clauses, by heading. Raises ExtensionError, also when a column is computed."""
    found: dict[str, MatrixColumn] = {}
    for who, value in answers(config.hook.pytest_kernbench_matrix_columns, config=config):
        for heading, function in _named_functions(who, value, "{'owner': a function of document and clause}"):
            if heading in found:
                raise ExtensionError(f"{who}: another plugin has a column {heading!r} already; give it another name")
            found[heading] = _checked_cell(who, heading, function)
    return found


def _checked_cell(who: str, heading: str, function: MatrixColumn) -> MatrixColumn:
    def cell(document: Document, clause: Clause) -> object:
        try:
            return function(document, clause)
        except Exception as error:
            fact = f"{raised(error)} for clause {clause.number} of {document.name}"
            raise ExtensionError(f"{who}: the column {heading!r} {fact}") from error

    return cell
