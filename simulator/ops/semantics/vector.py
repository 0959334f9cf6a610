"""What the 310P's vector instructions compute: numpy in, the last argument is written in place.

Fused forms are computed in float64 and rounded once; half is rounded after every operation. Integers wrap (assumed).
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array

Compute = Callable[..., Any]


def _rounded_once(function: Callable[[Array], Array]) -> Compute:
    """`function` in float64, rounded to the target's type at the end."""

    def compute(values: Array, out: Array) -> None:
        out[...] = function(values.astype(np.float64))

    return compute


def axpy(values: Array, scalar: Any, out: Array) -> None:
    """out = scalar * values + out, rounded once; `values` may be half while `out` is float."""
    total = values.astype(np.float64)
    total *= scalar
    total += out
    out[...] = total


def muladddst(one: Array, other: Array, out: Array) -> None:
    """out = one * other + out, rounded once."""
    total = np.multiply(one, other, dtype=np.float64)
    total += out
    out[...] = total


def duplicate(scalar: Any, out: Array) -> None:
    out[...] = scalar


def copy(values: Array, out: Array) -> None:
    out[...] = values


def reciprocal(values: Array) -> Array:
    result: Array = 1.0 / values
    return result


BINARY: dict[str, Compute] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": lambda one, other, out: np.maximum(one, other, out=out),
    "Min": lambda one, other, out: np.minimum(one, other, out=out),
    "MulAddDst": muladddst,
    "And": np.bitwise_and,
    "Or": np.bitwise_or,
}
SCALAR: dict[str, Compute] = {
    "Adds": np.add,
    "Muls": np.multiply,
    "Maxs": lambda values, scalar, out: np.maximum(values, scalar, out=out),
    "Mins": lambda values, scalar, out: np.minimum(values, scalar, out=out),
    "Axpy": axpy,
}
UNARY: dict[str, Compute] = {
    "Exp": _rounded_once(np.exp),
    "Ln": _rounded_once(np.log),
    "Sqrt": _rounded_once(np.sqrt),
    "Rsqrt": _rounded_once(lambda values: reciprocal(np.sqrt(values))),
    "Reciprocal": _rounded_once(reciprocal),
    "Abs": np.absolute,
    "Not": np.invert,
    "Relu": lambda values, out: np.maximum(values, values.dtype.type(0), out=out),
}
COMPARISONS: dict[str, Callable[[Array, Any], Array]] = {
    "LT": np.less,
    "GT": np.greater,
    "EQ": np.equal,
    "LE": np.less_equal,
    "GE": np.greater_equal,
    "NE": np.not_equal,
}


def compare(mode: str, one: Array, other: Any, out: Array) -> None:
    """One bit an element, the first in the lowest bit of the first byte; `other` is values or a scalar."""
    out.view(np.uint8)[...] = np.packbits(COMPARISONS[mode](one, other), bitorder="little")


def select(bits: Any, mask: Array, one: Array, other: Any, out: Array) -> None:
    """`one` where the mask has a bit, `other` (values or a scalar) elsewhere; `bits`: which bit each element has."""
    out[...] = np.where(np.unpackbits(mask.view(np.uint8), bitorder="little")[bits] != 0, one, other)
