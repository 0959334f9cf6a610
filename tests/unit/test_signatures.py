"""What does not fit a signature is refused in words before the function runs; what fits gets through as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.signatures import checked, fits


@checked
def helper(
    count: int,
    names: Sequence[str] | None = None,
    *,
    ratio: float = 1.0,
    make: Callable[[], int] = int,
    by_size: Mapping[int, str] | None = None,
    some: Collection[Any] = (),
    seeds: Iterable[int] = (),
) -> int:
    """A helper."""
    return count


@pytest.mark.parametrize(
    "given",
    [
        {"count": np.int64(2)},
        {"names": ("K", "V")},
        {"names": None},
        {"ratio": 2},
        {"ratio": np.float32(2)},
        {"by_size": {1: "a"}},
        {"some": {object()}},
        {"seeds": (each for each in "not looked into")},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_fits_gets_through(given: dict[str, Any]) -> None:
    assert helper(**{"count": 2, **given}) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": True}, "helper: count is True: wants a whole number"),
        ({"count": 1.0}, "count is 1.0: wants a whole number"),
        ({"names": "KV"}, "names is 'KV': wants several of a text or None"),
        ({"names": ("K", 1)}, r"names is \('K', 1\): wants several of a text"),
        ({"ratio": "2"}, "ratio is '2': wants a number"),
        ({"make": 3}, "make is 3: wants a function"),
        ({"by_size": {"1": "a"}}, "by_size is {'1': 'a'}: wants a mapping from a whole number to a text or None"),
        ({"some": np.array(4)}, r"some is array\(4\): wants several of"),
        ({"seeds": 3}, "seeds is 3: wants several of a whole number"),
    ],
)
def test_what_does_not_is_refused_with_the_parameter_and_what_it_wants(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        helper(**{"count": 2, **given})


def test_python_says_itself_which_parameter_is_missing_or_unknown() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'count'"):
        helper()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'cuont'"):
        helper(2, cuont=2)  # type: ignore[call-arg]


def test_the_helper_keeps_its_name_and_text() -> None:
    assert (helper.__name__, helper.__doc__) == ("helper", "A helper.")
    assert fits(3, Any)
