"""What GEMM computes: operands exact in float32, products accumulated in float32, element-wise steps after.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array, to_float32

EPILOGUE: dict[str, Callable[..., Array]] = {
    "scale": lambda values, factor: values * np.float32(factor),
    "bias": lambda values, row: values + to_float32(row),
    "add": lambda values, other: values + to_float32(other),
    "relu": lambda values: np.maximum(values, np.float32(0)),
}


def matmul(a: Array, b: Array, trans_b: bool, steps: tuple[tuple[str, tuple[Any, ...]], ...] = ()) -> Array:
    """a (M, K) times b (K, N), or b (N, K) transposed, then `steps` of (name, operands); float32."""
    left, right = to_float32(a), to_float32(b)
    result: Array = left @ (right.T if trans_b else right)
    for name, operands in steps:
        result = EPILOGUE[name](result, *operands)
    return result
