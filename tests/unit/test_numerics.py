"""The first bad value is found where it is made, with what it was made of; an infinity that was given is an input.

A fault of each unit beside its clean counterpart, under every schedule; what numpy says of all elements is the oracle.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.checks.numerics import (
    each_to_each,
    in_groups,
    left_factor,
    lost_digits,
    new_bad_values,
    operands_of,
    right_factor,
)
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.ops.semantics.elementwise import ELEMENTWISE

SCHEDULES = ["model", "jitter", "late"]
INF = float("inf")
X = np.arange(1, 65, dtype=np.float32).reshape(8, 8)


def run(kernel: Callable[..., None], x: Any = X, dtype: str = "float32", **how: Any) -> Run:
    chip = AhbmChip()
    tensors = chip.tensor("x", (8, 8), "float32", x, "replicate"), chip.tensor("o", (8, 8), dtype)
    return chip.run(kernel, *tensors, **{"check": "collect", **how})


def kinds(run: Run) -> list[str]:
    return [hazard.kind for hazard in run.hazards]


# A fault of every kind of op, and what mends it: (kind, op of the finding, kernel with the fault, kernel without).

Case = Callable[[Any, Any, Any, bool], Any]
FAULTS: dict[str, tuple[str, str, Case]] = {
    "-inf - -inf": (
        "first-nan", "sub", lambda tl, x, o, bad: tl.full((8, 8), -INF) - (tl.full((8, 8), -INF) if bad else x)
    ),
    "0 * inf": ("first-nan", "mul", lambda tl, x, o, bad: (x * (0.0 if bad else 2.0)) * tl.full((8, 8), INF)),
    "0 / 0": ("first-nan", "div", lambda tl, x, o, bad: (x - x) / (x - x if bad else x)),
    "log of less than 0": ("first-nan", "log", lambda tl, x, o, bad: tl.log(x - (2.0 if bad else 0.5))),
    "a sum of both infinities": (
        "first-nan", "sum",
        lambda tl, x, o, bad: tl.sum(tl.where(x < 2.0, INF, tl.where(x < 3.0, -INF if bad else 0.0, x))),
    ),
    "an infinite number": ("first-nan", "sub", lambda tl, x, o, bad: tl.full((8, 8), INF) - (INF if bad else 1.0)),
    "x / 0": ("overflow", "div", lambda tl, x, o, bad: x / (x - (1.0 if bad else 0.5))),
    "exp": ("overflow", "exp", lambda tl, x, o, bad: tl.exp(x * (2.0 if bad else 1.0))),
    "mul": ("overflow", "mul", lambda tl, x, o, bad: x * (1e37 if bad else 1e36)),
    "a sum": ("overflow", "sum", lambda tl, x, o, bad: tl.sum(x * (1e36 if bad else 1e35))),
    "cast": ("overflow", "cast", lambda tl, x, o, bad: tl.cast(x * (1100.0 if bad else 1000.0), "float16")),
    "out=": (
        "overflow", "mul",
        lambda tl, x, o, bad: tl.mul(x, 1100.0 if bad else 1000.0, out=tl.zeros((8, 8), "float16")),
    ),
    "dot": ("overflow", "dot", lambda tl, x, o, bad: tl.dot(x * (1e18 if bad else 1e16), x * 1e18, trans_b=True)),
    "composite": (
        "overflow", "gemm",
        lambda tl, x, o, bad: tl.wait(
            tl.composite("gemm", x * (1e36 if bad else 1e34), tl.ref(o, (8, 8)), trans_b=True)
        ),
    ),
    "composite, epilogue": (
        "overflow", "gemm",
        lambda tl, x, o, bad: tl.wait(
            tl.composite("gemm", x, tl.ref(o, (8, 8)), trans_b=True, epilogue=(("scale", 1e38 if bad else 1e34),))
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_at_its_op_and_the_mended_kernel_is_clean(name: str, schedule: str) -> None:
    kind, op, case = FAULTS[name]

    def kernel(x: Any, o: Any, bad: bool, *, tl: Any) -> None:
        case(tl, tl.wait(tl.load(x, (8, 8))), x, bad)

    (hazard,) = run(lambda x, o, *, tl: kernel(x, o, True, tl=tl), schedule=schedule).hazards
    assert (hazard.kind, hazard.ops[0].name) == (kind, op)
    assert "test_numerics.py:" in hazard.message
    assert kinds(run(lambda x, o, *, tl: kernel(x, o, False, tl=tl), schedule=schedule)) == []


@pytest.mark.parametrize(
    ("dtype", "scale", "found"),
    [("float16", 65520.0, True), ("float16", 65519.0, False), ("bfloat16", 3.4e38, True), ("bfloat16", 3.38e38, False)],
)
def test_what_a_store_casts_to_too_narrow_a_dtype(dtype: str, scale: float, found: bool) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(x, (8, 8)) * scale))

    hazards = run(kernel, np.ones((8, 8)), dtype).hazards
    assert [(each.kind, each.ops[0].name) for each in hazards] == [("overflow", "store")] * found


def test_the_message_has_the_element_its_operands_and_their_ranges() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (8, 8))
        h / (h - 20.0)  # the line

    (hazard,) = run(kernel).hazards
    assert "div on MATH of PE0, scratch[" in hazard.message
    assert (
        "makes an infinity at element [2, 3] of (8, 8) float32: a = 20, in all 1..64; b = 0, in all -19..44"
        in hazard.message
    )


def test_a_product_names_the_row_and_the_column() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.wait(tl.load(x, (8, 8)))
        tl.dot(h, h * 1.25e34, trans_b=True)

    (hazard,) = run(kernel).hazards
    assert "makes an infinity at element [7, 7] of (8, 8) float32: " in hazard.message
    assert "a 8 elements 57..64, in all 1..64; b 8 elements 7.125e+35..8e+35, in all 1.25e+34..8e+35" in hazard.message


# What is no fault


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_masks_of_minus_infinity_are_inputs(schedule: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (8, 8))
        scores = tl.where(h < 20.0, h, -INF)
        m = tl.maximum(tl.max(scores), -3e38)
        p = tl.exp(scores - m)
        tl.wait(tl.store(o, p / tl.maximum(tl.sum(p), 1e-30) + tl.log(p)))

    assert kinds(run(kernel, schedule=schedule)) == []


def test_what_the_host_gives_is_an_input() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (8, 8))
        tl.wait(tl.store(o, tl.exp(h + 1.0) * 2.0))
        tl.dot(tl.wait(h), h, trans_b=True)

    bad = X.copy()
    bad[0, 0], bad[1, 1], bad[2, 2] = np.nan, np.inf, np.inf
    assert kinds(run(kernel, np.where(np.isfinite(bad), bad / 64, bad))) == []


def test_without_data_nothing_is_computed_and_nothing_found() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.exp(tl.load(x, (8, 8)) * 100.0)

    assert kinds(run(kernel, data=False)) == []


@pytest.mark.parametrize(("numerics", "found"), [(True, ["overflow"]), ("precision", ["overflow"]), (False, [])])
def test_it_can_be_left_out(numerics: Any, found: list[str]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.exp(tl.load(x, (8, 8)) * 100.0)

    assert kinds(run(kernel, numerics=numerics)) == found
    assert kinds(run(kernel, numerics=numerics, check=False)) == []


@pytest.mark.parametrize("numerics", ["precise", 1, None, 0])
def test_what_is_no_choice_is_refused(numerics: Any) -> None:
    with pytest.raises(LaunchError, match=r"numerics .* is none of True, 'precision', False"):
        run(lambda x, o, *, tl: None, numerics=numerics)


# The first, and what follows


def test_what_follows_is_not_counted_and_what_does_not_is() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (8, 8))
        big = h * 1e38  # the first
        nan = big - big  # follows
        tl.exp(nan)
        h / (h - h)  # does not

    (hazard,) = run(kernel).hazards
    assert hazard.kind == "overflow"
    assert "1 later ops do the like, from finite operands" in hazard.message


# Precision


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (1.0, -0.9999999, True),  # 1.2e-7 of 1: a bit is left
        (1.0, -0.99, False),
        (1.0, -1.0, False),  # exactly 0
        (16777216.0, 1.0, True),  # vanishes
        (16777216.0, 2.0, False),
        (1.0, 1e-9, False),  # so little that it may
    ],
)
def test_lost_precision_is_found_when_asked_for(one: float, other: float, found: bool, schedule: str) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.add(tl.full((8, 8), one), tl.full((8, 8), other))

    assert kinds(run(kernel, schedule=schedule, data=True)) == []
    assert kinds(run(kernel, schedule=schedule, data=True, numerics="precision")) == ["precision-loss"] * found


def test_an_accumulator_in_bfloat16_that_stands_still() -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        total = tl.full((8, 8), 255.0, "bfloat16")
        for _ in range(3):
            tl.add(total, 1.0, out=total)

    (hazard,) = run(kernel, numerics="precision").hazards
    assert "a sum that is its larger operand, and the smaller one vanishes" in hazard.message
    assert "a = 256, in all 256..256; b = 1" in hazard.message


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
@settings(max_examples=200, deadline=None)
def test_a_vanished_operand_is_judged_exactly(one: float, other: float) -> None:
    a, b = np.float32(one), np.float32(other)
    with np.errstate(all="ignore"):
        total = np.add(a, b)
        fault = lost_digits(a, b, np.asarray(total), 24, 24)
    if fault is None or "vanishes" not in fault.makes:
        large, small = max(abs(a), abs(b)), min(abs(a), abs(b))
        with np.errstate(over="ignore"):
            unit = np.spacing(large)
        assert not (np.isfinite(total) and total in (a, b) and unit / 4 <= small < unit and large > 1e-30)
    else:
        assert abs(total) == max(abs(a), abs(b)) and a != 0 != b


# The oracle: numpy's own word on every element


VALUES = st.lists(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-38, INF, -INF, float("nan"), 88.0, 90.0]),
    min_size=6,
    max_size=6,
)


@given(
    name=st.sampled_from(["add", "sub", "mul", "div", "exp", "tanh", "log"]), a=VALUES, b=VALUES, strict=st.booleans()
)
@settings(max_examples=300, deadline=None)
def test_element_by_element_the_processor_agrees(name: str, a: list[float], b: list[float], strict: bool) -> None:
    """NaN is new where IEEE 754 says invalid, an infinity where it says overflow or divide by zero."""
    binary = name in ("add", "sub", "mul", "div")
    one, other = np.array(a, np.float32), np.array(b, np.float32)
    sources = (one, other) if binary else (one,)
    with np.errstate(all="ignore"):
        result = ELEMENTWISE[name](*sources)
        fault = new_bad_values(name, operands_of(name, sources, result.shape), result, strict)
    made = [_flagged(name, [each[at : at + 1] for each in sources]) for at in range(6)]
    nan = [at for at, flags in enumerate(made) if "invalid value" in flags and np.isnan(result[at])]
    if strict:
        nan = [at for at in nan if all(np.isfinite(each[at]) for each in sources)]
    infinite = [at for at, flags in enumerate(made) if flags & {"overflow", "divide by zero"}] if name != "log" else []
    expected = ("first-nan", nan) if nan else ("overflow", infinite) if infinite else None
    assert (None if fault is None else (fault.kind, np.flatnonzero(fault.where).tolist())) == expected


def _flagged(name: str, sources: list[Any]) -> set[str]:
    """What the processor says of one element."""
    flags: set[str] = set()
    with np.errstate(over="call", invalid="call", divide="call", under="ignore", call=lambda what, _: flags.add(what)):
        ELEMENTWISE[name](*sources)
    return flags


@given(st.integers(0, 2**16 - 1), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_a_product_is_explained_by_its_row_and_column_alone(bits: int, m: int, k: int, n: int) -> None:
    a = np.array([np.nan if bits >> at & 1 else 1.0 for at in range(m * k)], np.float32).reshape(m, k)
    b = np.ones((k, n), np.float32)
    result = np.full((m, n), np.nan, np.float32)

    fault = new_bad_values("gemm", [left_factor(a), right_factor(b)], result, strict=False)

    new = ~np.isnan(a).any(1)[:, None] & np.ones((m, n), bool)
    assert (fault is not None) == new.any()
    assert fault is None or (fault.where == new).all()


def test_operands_of_either_shape_reach_their_results() -> None:
    row = each_to_each("a", np.array([[1.0, np.nan]]), (3, 2))
    pairs = in_groups("src", np.array([1.0, np.nan, 2.0, 3.0]), 2, 1)

    assert row.spread(np.isnan(row.values)).tolist() == [[False, True]] * 3
    assert pairs.spread(np.isnan(pairs.values)).tolist() == [True, False]
    assert pairs.pick((1,)).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_numbers_of_every_dtype_are_judged(dtype: Any) -> None:
    values = np.array([1.0, np.inf, np.nan], dtype)
    ones = each_to_each("a", np.ones(3, dtype), (3,))

    fault = new_bad_values("add", [ones], values, strict=False)

    assert fault is not None and fault.kind == "first-nan" and fault.where.tolist() == [False, False, True]
