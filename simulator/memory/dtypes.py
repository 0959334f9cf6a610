"""Element types: true bfloat16 (round to nearest even) through `ml_dtypes`, float16, float32, and uint8 for masks.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pytest_kernbench.simulator.errors import LaunchError

Array = np.ndarray[Any, np.dtype[Any]]
DType = np.dtype[Any]
DTypeName = str | DType | type[np.generic]
"""What a host calls a dtype: its name, numpy's object, or numpy's scalar type."""

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float16 = np.dtype(np.float16)
float32 = np.dtype(np.float32)
uint8 = np.dtype(np.uint8)

STORAGE: dict[str, DType] = {"bfloat16": bfloat16, "float16": float16, "float32": float32, "uint8": uint8}
POISON = 0xFF  # a byte that makes NaN in bfloat16, float16 and float32 alike


def dtype_named(dtype: object) -> DType:
    """`dtype` as a numpy dtype. Raises LaunchError if the device cannot store it."""
    name = dtype if isinstance(dtype, str) else _name(dtype)
    if name not in STORAGE:
        raise LaunchError(f"dtype {dtype!r} is not one the device stores: {', '.join(STORAGE)}")
    return STORAGE[name]


def _name(dtype: object) -> str:
    """numpy's name of a dtype or scalar type, else none."""
    if not isinstance(dtype, (type, np.dtype)):
        return ""
    try:
        return np.dtype(dtype).name
    except (TypeError, ValueError):
        return ""


def to_float32(values: Array) -> Array:
    """`values` exactly, in float32; float32 itself is not copied."""
    return values.astype(float32, copy=False)
