"""How the 310P's Cast rounds: one pure function a mode; integers out of range saturate, NaN becomes 0 (assumed).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array


def _away_from_zero(values: Array) -> Array:
    result: Array = np.trunc(values + np.copysign(0.5, values))
    return result


ROUNDING: dict[str, Callable[[Array], Array]] = {
    "NONE": np.rint,
    "RINT": np.rint,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "ROUND": _away_from_zero,
    "TRUNC": np.trunc,
}


def to_integer(mode: str, values: Array, out: Array) -> None:
    """Rounded by `mode`, saturated."""
    limits = np.iinfo(out.dtype)
    rounded = np.nan_to_num(ROUNDING[mode](values.astype(np.float64)), nan=0.0, posinf=limits.max, neginf=limits.min)
    out[...] = np.clip(rounded, limits.min, limits.max).astype(np.int64)


def narrower(values: Array, out: Array) -> None:
    """An integer to a narrower one, saturated."""
    limits = np.iinfo(out.dtype)
    out[...] = np.clip(values, limits.min, limits.max)


def plain(values: Array, out: Array) -> None:
    """Exact, or to nearest and ties to even."""
    out[...] = values


def to_odd(values: Array, out: Array) -> None:
    """float to half by von Neumann rounding: towards zero, and the last bit set if anything was lost."""
    nearest = values.astype(np.float16)
    bits = nearest.view(np.uint16)
    beyond = np.abs(nearest.astype(np.float32)) > np.abs(values)  # rounded away from zero, or to infinity
    towards_zero = np.where(beyond, bits - np.uint16(1), bits).view(np.float16)
    inexact = (towards_zero.astype(np.float32) != values) & np.isfinite(values)
    out[...] = np.where(inexact, towards_zero.view(np.uint16) | np.uint16(1), towards_zero.view(np.uint16)).view(
        np.float16
    )


def dequantised(scale: Any, values: Array, out: Array) -> None:
    """int32 to half through the scale of SetDeqScale."""
    out[...] = values.astype(np.float64) * float(scale)


INTEGER_MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC")

# (source, target) by the vendor's names: the modes that 310P takes (facts 2.6).
MODES: dict[tuple[str, str], tuple[str, ...]] = {
    ("int8_t", "half"): ("NONE",),
    ("uint8_t", "half"): ("NONE",),
    ("int16_t", "half"): ("NONE",),
    ("half", "int8_t"): ("FLOOR", "CEIL", "ROUND", "TRUNC", "NONE"),
    ("half", "uint8_t"): ("FLOOR", "CEIL", "ROUND", "TRUNC", "NONE"),
    ("half", "int16_t"): ("RINT",),
    ("half", "int32_t"): INTEGER_MODES,
    ("half", "float"): ("NONE",),
    ("float", "half"): ("NONE", "ODD"),
    ("float", "int32_t"): INTEGER_MODES,
    ("int32_t", "float"): ("NONE",),
    ("int32_t", "int16_t"): ("NONE",),
    ("int32_t", "half"): ("NONE", *INTEGER_MODES),  # the mode is ignored: SetDeqScale decides
}
