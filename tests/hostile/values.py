"""What nobody should give: values of wrong types, sizes, owners and manners, each made anew when it is asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_kernbench.simulator import AhbmChip, Ascend310pCore


class Own(Exception):
    """What a hostile object raises of its own accord; it may come out as it is."""


def raises(*methods: str) -> type:
    """A class whose methods of these names raise."""

    def refuse(*given: object, **how: object) -> Any:
        raise Own("the value's own")

    return type(f"Raises{methods[0]}", (), dict.fromkeys(methods, refuse))


def self_referential() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@functools.cache
def strangers() -> dict[str, Any]:
    """Tensors of other devices, and what kernels of other runs held."""
    found: dict[str, Any] = {}

    def on_ahbm(x: Any, *, tl: Any) -> None:
        found.update({"other handle": tl.load(x, (4, 4)), "other pointer": x, "other ref": tl.ref(x, (4, 4)), "tl": tl})

    def on_310p(x: Any, *, asc: Any) -> None:
        pipe, buf, gm = asc.TPipe(), asc.TBuf(), asc.GlobalTensor(asc.float32)
        pipe.InitBuffer(buf, 512)
        gm.SetGlobalBuffer(x)
        found.update({"other local": buf.Get(asc.float32), "other global": gm, "other buffer": buf, "asc": asc})

    chip, core = AhbmChip(), Ascend310pCore()
    found["other tensor"] = chip.tensor("x", (4, 4), "float32", np.ones((1, 4, 4)))
    found["310P tensor"] = core.tensor("x", 16, "float32", np.ones(16))
    chip.run(on_ahbm, found["other tensor"], check=False)
    core.run(on_310p, found["310P tensor"], check=False)
    return found


def stranger(name: str) -> Callable[[], Any]:
    return lambda: strangers()[name]


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


PLAIN = (
    None, True, 0, -1, 1.5, -0.0, float("nan"), float("inf"), 2**31, 2**63, 2**200, -(2**200), 1e308, 1j, "x", "",
    "\0", "\ud800", b"", (), (0,), (-1,), (-4, -4), (1 << 40,), (2**63, 2**63), (None,), ("x", "x"), (1,) * 40, ((),),
    range(0), slice(None), ..., int, AhbmChip, len,
)  # fmt: skip
STRANGERS = (
    "other tensor", "310P tensor", "other handle", "other pointer", "other ref", "tl", "other local", "other global",
    "other buffer", "asc",
)  # fmt: skip
VALUES: dict[str, Callable[[], Any]] = {
    **{repr(value): constant(value) for value in PLAIN},
    "[]": list,
    "{}": dict,
    "set()": set,
    "object()": object,
    "itself in a list": self_referential,
    "a generator": lambda: (each for each in (4, 4)),
    "{1: 2}": lambda: {1: 2},
    "[[1], [1, 2]]": lambda: [[1], [1, 2]],
    "float64 array": lambda: np.ones((4, 4)),
    "empty array": lambda: np.zeros((0,)),
    "0-d array": lambda: np.array(4),
    "object array": lambda: np.array([None, object()]),
    "complex array": lambda: np.ones(4, complex),
    "text array": lambda: np.array(["x"]),
    "NaN array": lambda: np.full((4, 4), np.nan),
    "uint64": lambda: np.uint64(2**64 - 1),
    "datetime64": lambda: np.datetime64("2020-01-01"),
    "structured dtype": lambda: np.dtype([("a", "f4")]),
    **{f"{name} raises": lambda name=name: raises(name)() for name in (
        "__index__", "__array__", "__float__", "__iter__", "__bool__", "__getattr__",
    )},
    "__len__ raises": lambda: raises("__len__", "__getitem__")(),
    "__eq__ raises": lambda: raises("__eq__", "__hash__")(),
    **{name: stranger(name) for name in STRANGERS},
}  # fmt: skip
