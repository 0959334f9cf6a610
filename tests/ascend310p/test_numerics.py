"""The first bad value of a core is found where V or S makes it, in place or not, under every schedule.

The processor's flags say when to look: every fault here has to raise one, and its mended counterpart is clean.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

SCHEDULES = pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
INF = float("inf")


def run(kernel: Callable[..., None], x: Any = None, **how: Any) -> Run:
    core = Ascend310pCore()
    data = np.arange(1, 65, dtype=np.float32) if x is None else np.asarray(x)
    given = core.tensor("x", 64, data.dtype, data)
    return core.run(kernel, given, core.tensor("o", 64, "float32"), **{"check": "collect", **how})


def kinds(run: Run) -> list[str]:
    return [hazard.kind for hazard in run.hazards]


class Buffers:
    """UB in pieces of 64 floats (or 128 halves), with a barrier behind everything that is said."""

    def __init__(self, asc: Any) -> None:
        self.asc = asc
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8 * 256)
        self.floats = [buf.GetWithOffset(asc.float32, 64, 256 * at) for at in range(8)]
        self.halves = [each.ReinterpretCast(asc.half) for each in self.floats]

    def __call__(self, name: str, *args: Any) -> None:
        getattr(self.asc, name)(*args)
        self.asc.PipeBarrier(self.asc.PIPE_V)

    def full(self, at: int, value: float, half: bool = False) -> Any:
        tensor = self.halves[at] if half else self.floats[at]
        self("Duplicate", tensor, value, 64)
        return tensor


def binary(
    name: str, one: float, other: float, *, half: bool = False, in_place: bool = False
) -> Callable[[Buffers], None]:
    def say(ub: Buffers) -> None:
        a, b = ub.full(0, one, half), ub.full(1, other, half)
        ub(name, a if in_place else (ub.halves if half else ub.floats)[2], a, b, 64)

    return say


def unary(name: str, value: float, *, half: bool = False) -> Callable[[Buffers], None]:
    return lambda ub: ub(name, (ub.halves if half else ub.floats)[2], ub.full(0, value, half), 64)


def scalar(name: str, value: float, by: float, old: float = 0.0) -> Callable[[Buffers], None]:
    def say(ub: Buffers) -> None:
        target, source = ub.full(2, old), ub.full(0, value)
        ub(name, target, source, by, 64)

    return say


def cast(value: float) -> Callable[[Buffers], None]:
    return lambda ub: ub("Cast", ub.halves[2], ub.full(0, value), ub.asc.RoundMode.CAST_NONE, 64)


def reduction(name: str, value: float) -> Callable[[Buffers], None]:
    def say(ub: Buffers) -> None:
        source = ub.full(0, value)
        if name == "ReduceSum":
            ub(name, ub.floats[2], source, ub.floats[3], 64)
        elif name == "BlockReduceSum":
            ub(name, ub.floats[2], source, 1, 64, 1, 1, 8)
        else:
            ub(name, ub.floats[2], source, 64, 1, 1, 1, 8)

    return say


def masked(value: float) -> Callable[[Buffers], None]:
    """Every other lane."""
    return lambda ub: ub(
        "Mul", ub.floats[2], ub.full(0, value), ub.full(1, 1e38), (0x5555555555555555, 0), 1,
        ub.asc.BinaryRepeatParams(1, 1, 1, 8, 8, 8),
    )  # fmt: skip


def fused(value: float) -> Callable[[Buffers], None]:
    def say(ub: Buffers) -> None:
        target, one, other = ub.full(2, 3e38), ub.full(0, value), ub.full(1, 1e19)
        ub("MulAddDst", target, one, other, 64)

    return say


FAULTS: dict[str, tuple[str, str, Callable[[Buffers], None], Callable[[Buffers], None]]] = {
    "Sub": ("first-nan", "Sub", binary("Sub", -INF, -INF), binary("Sub", -INF, -3e38)),
    "Sub in place": ("first-nan", "Sub", binary("Sub", -INF, -INF, in_place=True), binary("Sub", 1, 2, in_place=True)),
    "Mul": ("overflow", "Mul", binary("Mul", 3e38, 2.0), binary("Mul", 3e38, 1.0)),
    "Mul in place": ("overflow", "Mul", binary("Mul", 3e38, 2.0, in_place=True), binary("Mul", 3e38, 1, in_place=True)),
    "Mul of half": ("overflow", "Mul", binary("Mul", 300, 300, half=True), binary("Mul", 200, 200, half=True)),
    "Mul by lanes": ("overflow", "Mul", masked(4.0), masked(3.0)),
    "0 / 0": ("first-nan", "Div", binary("Div", 0.0, 0.0), binary("Div", 0.0, 1.0)),
    "1 / 0": ("overflow", "Div", binary("Div", 1.0, 0.0), binary("Div", 1.0, 1.0)),
    "Exp": ("overflow", "Exp", unary("Exp", 89.0), unary("Exp", 88.0)),
    "Exp of half": ("overflow", "Exp", unary("Exp", 12.0, half=True), unary("Exp", 11.0, half=True)),
    "Exp of what float64 holds not": ("overflow", "Exp", unary("Exp", 1000.0), unary("Exp", -1000.0)),
    "Ln": ("first-nan", "Ln", unary("Ln", -1.0), unary("Ln", 0.0)),
    "Sqrt": ("first-nan", "Sqrt", unary("Sqrt", -1.0), unary("Sqrt", 0.0)),
    "Rsqrt": ("overflow", "Rsqrt", unary("Rsqrt", 0.0), unary("Rsqrt", 1.0)),
    "Reciprocal": ("overflow", "Reciprocal", unary("Reciprocal", 0.0), unary("Reciprocal", 1.0)),
    "Adds": ("overflow", "Adds", scalar("Adds", 3e38, 3e38), scalar("Adds", 3e38, 1e37)),
    "Muls": ("overflow", "Muls", scalar("Muls", 3e38, 2.0), scalar("Muls", 3e38, 1.0)),
    "Axpy": ("overflow", "Axpy", scalar("Axpy", 1e38, 2.0, 3e38), scalar("Axpy", 1e38, 2.0, 1e38)),
    "MulAddDst": ("overflow", "MulAddDst", fused(1e19), fused(1e18)),
    "Cast": ("overflow", "Cast", cast(65520.0), cast(65519.0)),
    "WholeReduceSum": (
        "overflow",
        "WholeReduceSum",
        reduction("WholeReduceSum", 1e37),
        reduction("WholeReduceSum", 5e36),
    ),
    "BlockReduceSum": (
        "overflow",
        "BlockReduceSum",
        reduction("BlockReduceSum", 1e38),
        reduction("BlockReduceSum", 4e37),
    ),
    "ReduceSum": ("overflow", "ReduceSum", reduction("ReduceSum", 1e37), reduction("ReduceSum", 5e36)),
}


@SCHEDULES
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_at_its_op_and_the_mended_kernel_is_clean(name: str, schedule: str) -> None:
    kind, op, bad, good = FAULTS[name]

    (hazard,) = run(lambda x, o, *, asc: bad(Buffers(asc)), schedule=schedule).hazards
    assert (hazard.kind, hazard.ops[0].name, hazard.ops[0].unit) == (kind, op, "V")
    assert "test_numerics.py:" in hazard.message
    assert kinds(run(lambda x, o, *, asc: good(Buffers(asc)), schedule=schedule)) == []


@SCHEDULES
def test_the_operands_of_an_op_in_place_are_those_before_it(schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        scalar("Axpy", 1e38, 2.0, 3e38)(Buffers(asc))

    (hazard,) = run(kernel, schedule=schedule).hazards
    assert (
        "src0 = 1e+38, in all 1e+38..1e+38; src1 = 2, in all 2..2; src2 = 3e+38, in all 3e+38..3e+38" in hazard.message
    )


@SCHEDULES
def test_an_op_in_place_whose_result_would_hide_it(schedule: str) -> None:
    """1 / 0 is infinite, and 1 / that is 0: the operand counts, not what is left of it."""

    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        zeros, ones = ub.full(0, 0.0), ub.full(1, 1.0)
        ub("Div", zeros, ones, zeros, 64)

    assert kinds(run(kernel, schedule=schedule)) == ["overflow"]


@SCHEDULES
def test_an_op_that_goes_wrong_in_two_ways_is_one_fault(schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        ones, zeros = ub.full(0, 1.0), ub.full(1, 0.0)
        ub("Duplicate", ones, 0.0, 8)
        ub("Div", ub.floats[2], ones, zeros, 64)

    (hazard,) = run(kernel, schedule=schedule).hazards
    assert hazard.kind == "first-nan"
    assert "makes NaN at element [0] of (64,) float32 (one of 8)" in hazard.message
    assert "later ops" not in hazard.message


@SCHEDULES
def test_masks_of_minus_infinity_are_inputs(schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        mask, out = ub.full(0, -INF), ub.floats[2]
        ub("Exp", out, mask, 64)
        ub("Max", out, mask, out, 64)
        ub("Adds", out, mask, 5.0, 64)
        ub("Maxs", out, mask, -3e38, 64)
        ub("Ln", out, ub.full(1, 0.0), 64)
        ub("Cast", ub.halves[3], mask, asc.RoundMode.CAST_NONE, 64)

    assert kinds(run(kernel, schedule=schedule)) == []


@SCHEDULES
def test_what_follows_is_not_counted_and_what_does_not_is(schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        big, out = ub.floats[2], ub.floats[3]
        ub("Muls", big, ub.full(0, 3e38), 10.0, 64)  # the first
        ub("Sub", out, big, big, 64)  # follows
        ub("Adds", out, out, 1.0, 64)
        ub("Reciprocal", out, ub.full(1, 0.0), 64)  # does not

    (hazard,) = run(kernel, schedule=schedule).hazards
    assert (hazard.kind, hazard.ops[0].name) == ("overflow", "Muls")
    assert "1 later ops do the like, from finite operands" in hazard.message


# The scalar unit


@SCHEDULES
@pytest.mark.parametrize("use", ["UB", "GM", "Muls"])
@pytest.mark.parametrize(("one", "kind"), [(np.float32(3e38), "overflow"), (np.float32(INF), "first-nan"), (None, "")])
def test_arithmetic_of_s_is_found_where_its_result_is_used(use: str, one: Any, kind: str, schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        value = np.float32(-INF)  # a mask, said as such
        if one is not None:
            value = one * np.float32(10) if np.isfinite(one) else one - one  # the arithmetic
        if use == "UB":
            ub.floats[0].SetValue(3, value)
        elif use == "GM":
            out = asc.GlobalTensor(asc.float32)
            out.SetGlobalBuffer(o)
            out.SetValue(3, value)
        else:
            ub("Muls", ub.floats[2], ub.full(0, 1.0), value, 64)

    hazards = run(kernel, schedule=schedule).hazards
    assert [hazard.kind for hazard in hazards] == [kind] * bool(kind)
    if hazards:
        assert hazards[0].ops[0].name == ("Muls" if use == "Muls" else "SetValue")
        assert "that arithmetic at test_numerics.py:" in hazards[0].message


def test_a_number_that_its_type_does_not_hold_is_found() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        ub("Muls", ub.halves[2], ub.full(0, 1.0, half=True), 1e6, 64)

    assert kinds(run(kernel)) == ["overflow"]


def test_arithmetic_whose_result_goes_nowhere_is_the_kernels_own() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        table = np.where(np.arange(4) == 0, 0.0, 1.0 / np.arange(4, dtype=np.float32))
        Buffers(asc).floats[0].SetValue(0, table[1])

    assert kinds(run(kernel)) == []


def test_without_data_or_without_numerics_nothing_is_found() -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        ub = Buffers(asc)
        ub.floats[0].SetValue(0, np.float32(1.0) / ub.full(0, 0.0).GetValue(0))

    for how in ({"numerics": False}, {"data": False}, {"check": False}):
        with np.errstate(all="ignore"):
            assert [each for each in kinds(run(kernel, **how)) if each in ("overflow", "first-nan")] == []


# Precision


@SCHEDULES
@pytest.mark.parametrize(
    ("say", "found"),
    [
        (binary("Add", 1.0, -0.9999999), True),
        (binary("Sub", 1.0, 0.99), False),
        (binary("Sub", 1.0, 1.0), False),
        (scalar("Adds", 16777216.0, 1.0), True),
        (scalar("Axpy", 1.0, 1.0, 16777216.0), True),
        (scalar("Axpy", 2.0, 1.0, 16777216.0), False),
    ],
)
def test_lost_precision_is_found_when_asked_for(say: Callable[[Buffers], None], found: bool, schedule: str) -> None:
    def kernel(x: Any, o: Any, *, asc: Any) -> None:
        say(Buffers(asc))

    assert kinds(run(kernel, schedule=schedule)) == []
    assert kinds(run(kernel, schedule=schedule, numerics="precision")) == ["precision-loss"] * found
