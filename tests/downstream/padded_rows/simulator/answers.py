"""What the kernels should give, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
HALF_ULP = 2.0**-11  # relative, of one rounding to half


def gelu(x: Array) -> Array:
    wide = x.astype(np.float64)
    y: Array = wide / (1 + np.exp(np.minimum(-1.702 * wide, 700.0)))
    return y


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    y: Array = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps) * gamma + beta
    return y


def bound(expected: Array) -> float:
    """One rounding to half, where it is denormal too, and a hundredth of it for the steps in float32."""
    return max(float(np.abs(expected).max()) * HALF_ULP, 2.0**-25) * 1.01
