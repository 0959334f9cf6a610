"""What a request asks of an attention kernel, and what makes several of them one launch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.kernels.ahbm.requests import Request

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One request: `t_q` queries against `kv_len` keys, for `heads` KV heads, one a cube, of `group` query heads each.

    q [H_q, t_q, d], k [heads, kv_len, d], v [heads, kv_len, d_v] of `dtype`, or none of them: structure only. `sinks`
    [H_q]. Queries are the last tokens unless `q_start` gives the first one's position. Raises ValueError for sizes
    below 1 (`kv_len`: 0), arrays of other shapes or only some of them, and a sink that is NaN or plus infinity.
    """

    kv_len: int
    t_q: int = 1
    q_start: int | None = None
    heads: int = 1
    group: int = 8
    d: int = 128
    d_v: int = 128
    dtype: str = "bfloat16"
    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    q: Array | None = field(default=None, repr=False)
    k: Array | None = field(default=None, repr=False)
    v: Array | None = field(default=None, repr=False)
    sinks: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("kv_len", 0), ("t_q", 1), ("heads", 1), ("group", 1), ("d", 1), ("d_v", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: it counts from {least}")
        given = [name for name in "qkv" if getattr(self, name) is not None]
        if len(given) not in (0, 3):
            raise ValueError(f"of q, k and v there is only {', '.join(given)}: give all three, or none for structure")
        h_q, keys = self.heads * self.group, (self.heads, self.kv_len)
        wanted = {"q": (h_q, self.t_q, self.d), "k": (*keys, self.d), "v": (*keys, self.d_v), "sinks": (h_q,)}
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array is not None and np.shape(array) != shape:
                raise ValueError(f"{name} has shape {np.shape(array)}, these sizes want {shape}")
        if self.sinks is not None and not (np.asarray(self.sinks, float) < np.inf).all():
            raise ValueError("a sink is a finite logit, or minus infinity for a head without one")

    @property
    def has_data(self) -> bool:
        return self.q is not None

    @property
    def first(self) -> int:
        """The position of the first query."""
        return Request(self.kv_len, self.t_q, q_start=self.q_start).first

    @property
    def rules(self) -> dict[str, Any]:
        """What every kernel is told of how scores are made."""
        scale = self.d**-0.5 if self.scale is None else self.scale
        return {"group": self.group, "scale": scale, "window": self.window, "softcap": self.softcap}


def alike(requests: Sequence[Problem]) -> dict[str, Any]:
    """The rules that all requests of a batch share.

    Raises ValueError for no requests, and for one of another kind than the first.
    """
    if not requests:
        raise ValueError("a launch without requests: give at least one")
    shared = ("heads", "group", "d", "d_v", "dtype", "scale", "window", "softcap", "has_data")
    for number, each in enumerate(requests[1:], 1):
        for name in shared:
            if getattr(each, name) != getattr(requests[0], name):
                fact = f"{name} of request {number} is {getattr(each, name)}, of request 0 {getattr(requests[0], name)}"
                raise ValueError(f"{fact}: a launch has one, so give requests of a kind")
        if (each.sinks is None) != (requests[0].sinks is None) or not np.array_equal(
            [] if each.sinks is None else each.sinks, [] if requests[0].sinks is None else requests[0].sinks
        ):
            raise ValueError(f"sinks of request {number} are not those of request 0: a launch has one of each head")
    return requests[0].rules
