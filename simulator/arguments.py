"""What a host may give: kernels with their arguments, numbers, sequences, names.

Each function returns the value in the one form the simulator uses, or None; those that name what they take raise
LaunchError instead, with what was given and what is wanted. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.errors import LaunchError

MOST_AXES = 32  # numpy's, in its oldest version that is supported
RESERVED = ("scratch", "slot")  # what the log calls bytes that are no tensor's


def whole(value: object) -> int | None:
    """`value` as an int if it is a whole number, numpy's included; a truth value is none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def wholes(values: object) -> tuple[int, ...] | None:
    """`values` as a tuple of whole numbers if they are a sequence of those."""
    if not isinstance(values, (Sequence, np.ndarray)) or (isinstance(values, np.ndarray) and values.ndim == 0):
        return None
    found = tuple([number for number in map(whole, values) if number is not None])
    return found if len(found) == len(values) else None


def shape(given: object) -> tuple[int, ...] | None:
    """`given` as a shape if it is one: a number, or a sequence of 1 to `MOST_AXES` numbers, all > 0."""
    if type(given) is tuple and len(given) == 2 and type(given[0]) is type(given[1]) is int and min(given) > 0:
        return given  # what nearly every call says
    one = whole(given)
    found = wholes(given) if one is None else (one,)
    return found if found and len(found) <= MOST_AXES and min(found) > 0 else None


def number(what: str, value: object, least: int, most: int | None = None) -> int:
    """`value` if it is a whole number of [least, most]."""
    found = whole(value)
    if found is None or found < least or (most is not None and found > most):
        bounds = f">= {least}" if most is None else f"from {least} to {most}"
        raise LaunchError(f"{what} = {value!r}: wants a whole number {bounds}")
    return found


def numerics(value: object) -> None:
    """Refuse what does not say how values are judged."""
    if not isinstance(value, bool) and not (isinstance(value, str) and value == "precision"):
        raise LaunchError(f"numerics {value!r} is none of True, 'precision', False")


def is_name(value: object) -> bool:
    """Whether `value` can name something in a log."""
    return isinstance(value, str) and value != "" and value.isprintable()


def tensor_name(value: object, reserved: tuple[str, ...] = RESERVED) -> str:
    """`value` if it can name a tensor."""
    if not isinstance(value, str) or not is_name(value) or value in reserved:
        taken = f"{' and '.join(map(repr, reserved))} name{'s' * (len(reserved) == 1)} other bytes"
        raise LaunchError(f"tensor name {value!r}: wants a printable string; {taken}")
    return value


def array(what: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """`values` as an array of numbers; `what` names them."""
    try:
        found = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise LaunchError(f"{what} is no array: {error}; give numbers in rows of one length") from None
    if found.dtype.kind not in "biuf" and found.dtype.name != "bfloat16":
        raise LaunchError(f"{what} is of dtype {found.dtype}; give real numbers")
    return found


class Call(NamedTuple):
    """A kernel and its arguments, the language aside; `code` is where its lines are, `named` has arguments by name."""

    kernel: Callable[..., Any]
    name: str
    code: CodeType
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    named: dict[str, Any]


def call(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], language: str = "tl") -> Call:
    """The call `kernel(*args, tl=..., **kwargs)`; `language` names the argument. A partial's own come before."""
    while isinstance(kernel, functools.partial):
        args, kwargs, kernel = (*kernel.args, *args), {**kernel.keywords, **kwargs}, kernel.func
    name = getattr(kernel, "__name__", type(kernel).__name__)
    code, signature = _code(kernel), _signature(kernel)
    if code is None or signature is None or language not in signature.parameters:
        raise LaunchError(
            f"{kernel!r} is not a kernel: it takes no argument `{language}`; write def kernel(..., *, {language})"
        )
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise LaunchError(f"kernel {name} is a generator or async: its body would not run; write a plain function")
    if language in kwargs:
        raise LaunchError(
            f"kernel {name} was given {language} = {kwargs[language]!r}: each program gets its own; leave it out"
        )
    try:
        named = signature.bind(*args, **{language: None}, **kwargs).arguments
    except TypeError as error:
        raise LaunchError(
            f"kernel {name}{signature}: {error}; give every argument but {language}, by position where run has one of "
            "its name"
        ) from None
    del named[language]
    return Call(kernel, name, code, args, kwargs, named)


def _signature(kernel: object) -> inspect.Signature | None:
    try:
        return inspect.signature(kernel)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _code(kernel: Any) -> CodeType | None:
    """The code of a function, a method or an object that can be called."""
    function = inspect.unwrap(kernel)
    code = getattr(function if hasattr(function, "__code__") else type(function).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
