"""What MATH ops compute: numpy in, numpy out, float32 inside whatever the operands are stored in.

`np.maximum` carries NaN on, as the hardware does. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array, to_float32


def _f32(value: Any) -> Any:
    return to_float32(value) if isinstance(value, np.ndarray) else np.float32(value)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Array]:
    def compute(*operands: Any) -> Array:
        result: Array = function(*map(_f32, operands))
        return result

    return compute


def where(condition: Array, yes: Any, no: Any) -> Array:
    chosen: Array = np.where(condition != 0, _f32(yes), _f32(no))
    return chosen


def copy(values: Array) -> Array:
    return np.array(values)


def iota(shape: tuple[int, ...], axis: int, start: float, step: float) -> Array:
    """`start + step * index` along `axis`, the same along all others."""
    sizes = [size if at == axis else 1 for at, size in enumerate(shape)]
    counted = (start + step * np.arange(shape[axis])).astype(np.float32)
    return np.broadcast_to(counted.reshape(sizes), shape)


ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _elementwise(np.multiply),
    "div": _elementwise(np.divide),
    "maximum": _elementwise(np.maximum),
    "minimum": _elementwise(np.minimum),
    "exp": _elementwise(np.exp),
    "tanh": _elementwise(np.tanh),
    "log": _elementwise(np.log),
    "less": _elementwise(np.less),
    "less_equal": _elementwise(np.less_equal),
    "greater": _elementwise(np.greater),
    "greater_equal": _elementwise(np.greater_equal),
    "where": where,
    "cast": copy,
    "assign": copy,
    "broadcast": copy,
}

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "max": lambda values, axis: np.asarray(np.max(_f32(values), axis=axis, keepdims=True)),
    "sum": lambda values, axis: np.asarray(np.sum(_f32(values), axis=axis, keepdims=True, dtype=np.float32)),
}
