"""Arguments are of the types that a function's signature says, or one ValueError names the one that is not.

Only what the annotations of assertions use is understood; an annotation of another kind is an error when it is met.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import functools
import inspect
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
NUMBERS = {int: Integral, float: Real}
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", types.NoneType: "None"}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which refuses what does not fit its annotations with ValueError: parameter, value, what is wanted."""
    signature = inspect.signature(function)
    hints = functools.cache(lambda: typing.get_type_hints(function))

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if not fits(value, hints()[name]):
                wanted = in_words(hints()[name])
                raise ValueError(f"{function.__name__}: {name} is {reprlib.repr(value)}: wants {wanted}")
        return function(*args, **kwargs)

    return call


def fits(value: object, hint: Any) -> bool:
    """Whether `value` is what `hint` says; what can be gone through only once is not looked into."""
    if hint is Any:
        return True
    parts = typing.get_args(hint)
    kind = typing.get_origin(hint) or hint
    if kind in (types.UnionType, typing.Union):
        return any(fits(value, each) for each in parts)
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    if kind is Callable:
        return callable(value)
    if not isinstance(value, kind) or isinstance(value, str) is not (kind is str) or getattr(value, "ndim", 1) == 0:
        return False
    if kind is Mapping:
        return all(fits(key, parts[0]) and fits(each, parts[1]) for key, each in typing.cast(Any, value).items())
    return kind not in (Sequence, Collection) or all(fits(each, parts[0]) for each in typing.cast(Any, value))


def in_words(hint: Any) -> str:
    """What `hint` asks for, as a message says it."""
    parts = typing.get_args(hint)
    kind = typing.get_origin(hint) or hint
    if kind in (types.UnionType, typing.Union):
        return " or ".join(map(in_words, parts))
    if kind is Callable:
        return "a function"
    if kind is Mapping:
        return f"a mapping from {in_words(parts[0])} to {in_words(parts[1])}"
    if kind in (Sequence, Collection, Iterable):
        return f"several of {in_words(parts[0])}"
    return WORDS.get(kind) or f"a {getattr(kind, '__name__', kind)}"
