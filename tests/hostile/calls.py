"""The public calls, found from the surface itself, each with arguments that are right: one of them is then replaced.

A call or a parameter that this table does not know is an error, so that none is forgotten.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench import assertions
from pytest_kernbench.simulator import AhbmChip, AhbmSpec, Ascend310pCore, Ascend310pSpec, TileBlocked, Timing, retime
from pytest_kernbench.simulator.ahbm.language import Language
from pytest_kernbench.simulator.ahbm.topology import ring_ports

ONES = np.ones((4, 4), np.float32)
Say = Callable[[str, Any], Any]  # puts a value in a parameter and makes the call


class Call(NamedTuple):
    """A call and its parameters; `say(parameter, value)` makes it with that value, `say("", None)` as it should be."""

    name: str
    parameters: tuple[str, ...]
    say: Say


def parameters_of(function: Any) -> tuple[str, ...]:
    """Names of what can be given, by position or by name."""
    found = inspect.signature(function).parameters.values()
    return tuple(each.name for each in found if each.name != "self" and each.kind is not each.VAR_KEYWORD)


def said(function: Any, good: dict[str, Any], parameter: str, value: Any) -> Any:
    """`function` with what is right, but for one parameter."""
    given = {**good, parameter: value} if parameter else good
    args, kwargs = [], {}
    by_position = True
    for each in inspect.signature(function).parameters.values():
        if each.name not in given:
            by_position = by_position and each.kind is each.VAR_POSITIONAL
        elif by_position and each.kind is not each.KEYWORD_ONLY:
            args.append(given[each.name])
        else:
            kwargs[each.name] = given[each.name]
    return function(*args, **kwargs)


def host(name: str, function: Any, good: Callable[[], dict[str, Any]]) -> Call:
    return Call(name, parameters_of(function), lambda parameter, value: said(function, good(), parameter, value))


# The host's


def plain(x: Any, *, tl: Any) -> None:
    tl.wait(tl.load(x, (4, 4)))


def plain_asc(x: Any, *, asc: Any) -> None:
    asc.PipeBarrier(asc.PIPE_ALL)


def host_calls() -> list[Call]:
    return [
        host("AhbmChip", AhbmChip, dict),
        host("ring_ports", ring_ports, lambda: {"order": (0, 1)}),
        host("TileBlocked", TileBlocked, lambda: {"tile": 4}),
        host("Ascend310pCore", Ascend310pCore, dict),
        host("Timing", Timing, lambda: {"spec": AhbmSpec()}),
        host("retime", retime, lambda: {"log": a_run().log, "timing": Timing(AhbmSpec())}),
        host_method("AhbmChip.tensor", lambda: AhbmChip().tensor, {"name": "t", "shape": (4, 4)}),
        host_method(
            "AhbmChip.tensor of data", lambda: AhbmChip().tensor,
            {"name": "t", "shape": (4, 4), "dtype": "float32", "data": ONES, "place": 0},
        ),
        host_method("Ascend310pCore.tensor", lambda: Ascend310pCore().tensor, {"name": "t", "shape": (4, 4),
        "dtype": "float32"}),
        host_method(
            "Ascend310pCore.tensor of data", lambda: Ascend310pCore().tensor,
            {"name": "t", "shape": (4, 4), "dtype": "float32", "data": ONES},
        ),
        Call("AhbmChip.run", parameters_of(AhbmChip.run), functools.partial(launched, AhbmChip, plain)),
        Call("Ascend310pCore.run", parameters_of(Ascend310pCore.run), functools.partial(launched, Ascend310pCore,
        plain_asc)),
        Call("Run.array", ("tensor",), lambda _, value: a_run().array(value if _ else "x")),
        *[Call(f"{spec.__name__} field", tuple(field.name for field in dataclasses.fields(spec)),
               lambda name, value, spec=spec: spec(**{name: value} if name else {})) for spec in (AhbmSpec,
               Ascend310pSpec)],
    ]  # fmt: skip


def host_method(name: str, bound: Callable[[], Any], good: dict[str, Any]) -> Call:
    return Call(name, parameters_of(bound()), lambda parameter, value: said(bound(), good, parameter, value))


def launched(device: Any, kernel: Any, parameter: str, value: Any) -> Any:
    """A launch of a kernel with one argument x."""
    chip = device()
    x = chip.tensor("x", (4, 4), "float32")
    how = {parameter: value} if parameter not in ("", "kernel", "args") else {}
    return chip.run(value if parameter == "kernel" else kernel, value if parameter == "args" else x, **how)


@functools.cache
def a_run() -> Any:
    chip = AhbmChip()
    x = chip.tensor("x", (4, 4), "float32", ONES, 0)
    return chip.run(plain, x)


@functools.cache
def a_run_of_310p() -> Any:
    core = Ascend310pCore()
    return core.run(plain_asc, core.tensor("x", (4, 4), "float32", ONES))


ASSERTED: dict[str, Any] = {
    "run": a_run, "runs": lambda: {1: a_run(), 2: a_run()}, "tensors": lambda: ("x",), "tensor": lambda: "x",
    "unit": lambda: "DMA_R", "other": lambda: "GEMM", "expected": lambda: 64, "of": lambda: "product",
    "nbytes": lambda: 64,
    "n": lambda: 1, "at_least": lambda: 0.5, "lower": lambda: 1, "upper": lambda: 10**6, "bound": lambda: 0.5,
    "make_run": lambda: lambda **how: a_run(), "planned": lambda: 0, "region": lambda: None, "rounds": lambda: 0,
    "max_messages": lambda: 1, "streamed": lambda: (), "depth": lambda: 1, "ratio": lambda: 10**6, "how": lambda: "",
    "times": lambda: 2, "seeds": lambda: range(1), "multiple": lambda: 32,
}  # fmt: skip
PIPES = ("flags_balanced", "ub_budget", "scalar_gm_accesses", "dma_aligned", "truncated_copy")


def assertion_calls() -> list[Call]:
    return [assertion(name, getattr(assertions, name)) for name in assertions.__all__]


def assertion(name: str, function: Any) -> Call:
    def good() -> dict[str, Any]:
        given = {each: ASSERTED[each]() for each in parameters_of(function)}
        if name.endswith(PIPES):
            given["run"] = a_run_of_310p()
        return {**given, "expected": ONES[None]} if "reference" in name else given

    return host(f"ka.{name}", function, good)


# A kernel's on AHBM

TL: dict[str, Callable[[Any, Any, Any], Any]] = {  # of tl, a pointer and a handle (4, 4)
    "ptr": lambda tl, p, h: p, "shape": lambda tl, p, h: (4, 4), "strides": lambda tl, p, h: (4, 1),
    "axis": lambda tl, p, h: 0, "dtype": lambda tl, p, h: "float32", "direction": lambda tl, p, h: "E",
    "value": lambda tl, p, h: 1.0, "start": lambda tl, p, h: 0, "step": lambda tl, p, h: 1,
    "first": lambda tl, p, h: 0, "count": lambda tl, p, h: 2, "name": lambda tl, p, h: "block",
    "kind": lambda tl, p, h: "gemm", "trans_b": lambda tl, p, h: False, "epilogue": lambda tl, p, h: (),
    "out": lambda tl, p, h: None, "condition": lambda tl, p, h: h < 2,
    **dict.fromkeys(("h", "a", "b", "x", "yes", "no", "dst", "src", "handles"), lambda tl, p, h: h),
}  # fmt: skip


def tl_calls() -> list[Call]:
    return [tl_call(name) for name in dir(Language) if not name.startswith("_") and callable(getattr(Language, name))
            and inspect.isfunction(getattr(Language, name))]  # fmt: skip


def tl_call(name: str) -> Call:
    function = getattr(Language, name)

    def say(parameter: str, value: Any) -> None:
        def kernel(x: Any, *, tl: Any) -> None:
            h = tl.wait(tl.load(x, (4, 4)))
            if tl.program_id(0):
                tl.wait(tl.send("W", h))
                return
            good = {each: TL[each](tl, x, h) for each in parameters_of(function)}
            if name == "release":
                good["h"] = tl.recv("E", (4, 4))
            if name == "broadcast":
                good["x"] = tl.rows(h, 0, 1)
            result = said(getattr(tl, name), good, parameter, value)
            if hasattr(result, "__enter__"):
                with result:
                    pass

        chip = AhbmChip()
        data = np.ones((2, 4, 4), np.float32)
        chip.run(kernel, chip.tensor("x", (4, 4), "float32", data), grid=2, check="collect", max_ops=1000)

    return Call(f"tl.{name}", parameters_of(function), say)


OPERATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "handle + n": lambda p, h, v: h + v, "n - handle": lambda p, h, v: v - h, "handle * n": lambda p, h, v: h * v,
    "handle / n": lambda p, h, v: h / v, "handle < n": lambda p, h, v: h < v, "handle[n]": lambda p, h, v: h[v],
    "handle @ n": lambda p, h, v: h @ v, "handle ** n": lambda p, h, v: h**v, "pointer + n": lambda p, h, v: p + v,
    "n + pointer": lambda p, h, v: v + p, "pointer - n": lambda p, h, v: p - v, "pointer[n]": lambda p, h, v: p[v],
}  # fmt: skip


def tl_operators() -> list[Call]:
    return [Call(name, ("n",), functools.partial(operated, operate)) for name, operate in OPERATORS.items()]


def operated(operate: Callable[[Any, Any, Any], Any], parameter: str, value: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        operate(x, tl.wait(tl.load(x, (4, 4))), value)

    if parameter:
        chip = AhbmChip()
        chip.run(kernel, chip.tensor("x", (4, 4), "float32", ONES[None]), check="collect")
