"""Arithmetic that a device's vector unit complains of is a note with the bit, the line and the element, or nothing."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p import effects
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

HALF, FLOAT, INF, NAN = "float16", "float32", np.inf, np.nan
SCHEDULES = [("model", 0), ("jitter", 3), *[("late", seed) for seed in (0, 7, 23)]]


def notes(say: Any, *arrays: Any, **how: Any) -> list[Any]:
    """What is noted of `say(asc, *operands)`, on tensors of UB that start as the arrays."""
    sizes = [-(-each.nbytes // 32) * 32 for each in arrays]

    def kernel(*pointers: Any, asc: Any) -> None:
        pipe, buf, views = asc.TPipe(), asc.TBuf(), []
        pipe.InitBuffer(buf, sum(sizes))
        for number, (array, pointer) in enumerate(zip(arrays, pointers, strict=True)):
            view, source = buf.GetWithOffset(pointer.tensor.type, array.size, sum(sizes[:number])), None
            source = asc.GlobalTensor(pointer.tensor.type)
            source.SetGlobalBuffer(pointer)
            asc.DataCopy(view, source, array.size)
            views.append(view)
        asc.PipeBarrier(asc.PIPE_ALL)
        say(asc, *views)

    core = Ascend310pCore()
    tensors = [core.tensor(f"t{at}", each.shape, each.dtype, each) for at, each in enumerate(arrays)]
    how.setdefault("check", "collect")  # new infinities and NaN are findings as well
    return [note for note in core.run(kernel, *tensors, **how).notes if note.kind == "vector-exception"]


def numbers(*first: float, dtype: str = HALF, n: int = 128) -> Any:
    return np.array([*first, *[1.0] * (n - len(first))], dtype)


OUT = numbers()
CASES: dict[str, tuple[str, str, Any, Any]] = {
    "Ln of 0": ("VEC_NEG_LN, bit 57", "element 1 of dst comes of 0",
                lambda a, o, x: a.Ln(o, x, 128), [OUT, numbers(2, 0, -0.0)]),
    "Ln below 0": ("VEC_NEG_LN, bit 57", "element 2 of dst comes of -3",
                   lambda a, o, x: a.Ln(o, x, 128), [OUT, numbers(2, 1, -3)]),
    "Sqrt below 0": ("VEC_NEG_SQRT, bit 58", "element 2 of dst comes of -0.5",
                     lambda a, o, x: a.Sqrt(o, x, 128), [OUT, numbers(2, 0, -0.5, -1)]),
    "Rsqrt below 0": ("VEC_NEG_SQRT, bit 58", "element 1 of dst comes of -4",
                      lambda a, o, x: a.Rsqrt(o, x, 128), [OUT, numbers(2, -4)]),
    "Rsqrt of 0": ("VEC_DIV0, bit 52", "element 1 of dst comes of 0",
                   lambda a, o, x: a.Rsqrt(o, x, 128), [OUT, numbers(2, 0)]),
    "Reciprocal of 0": ("VEC_DIV0, bit 52", "element 3 of dst comes of 0",
                        lambda a, o, x: a.Reciprocal(o, x, 128), [OUT, numbers(2, 1, 1, 0)]),
    "Div by 0": ("VEC_DIV0, bit 52", "element 1 of dst comes of 3 / 0",
                 lambda a, o, x, y: a.Div(o, x, y, 128), [OUT, numbers(2, 3), numbers(1, 0)]),
    "Div of 0 by 0": ("VEC_DIV0, bit 52", "element 1 of dst comes of 0 / 0",
                      lambda a, o, x, y: a.Div(o, x, y, 128), [OUT, numbers(2, 0), numbers(1, 0)]),
    "Exp": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 12",
            lambda a, o, x: a.Exp(o, x, 128), [OUT, numbers(11, 12)]),
    "Exp beyond float64": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 1000",
                           lambda a, o, x: a.Exp(o, x, 128), [OUT, numbers(11, 1000, 12)]),
    "Exp of float": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 90",
                     lambda a, o, x: a.Exp(o, x, 64), [numbers(dtype=FLOAT), numbers(80, 90, dtype=FLOAT)]),
    "Reciprocal beyond half": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 1.01328e-06",
                               lambda a, o, x: a.Reciprocal(o, x, 128), [OUT, numbers(1, 1e-6)]),
    "Mul": ("VEC_INF_NAN, bit 54", "element 2 of dst is -inf, of 300 and -300",
            lambda a, o, x, y: a.Mul(o, x, y, 128), [OUT, numbers(1, INF, 300), numbers(1, 2, -300)]),
    "Muls": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 60000 and 2",
             lambda a, o, x: a.Muls(o, x, 2.0, 128), [OUT, numbers(30000, 60000)]),
    "Add": ("VEC_INF_NAN, bit 54", "element 0 of dst is inf, of 60000 and 60000",
            lambda a, o, x: a.Add(o, x, x, 128), [OUT, numbers(60000)]),
    "Axpy": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, written over its source",
             lambda a, o, x: a.Axpy(o, x, 100.0, 128), [numbers(0, 60000), numbers(1, 60)]),
    "Axpy with a mask": ("VEC_INF_NAN, bit 54", "element 2 of dst is inf, of 60 and 1000 and 60000",
                         lambda a, o, x: a.Axpy(o, x, 1000.0, [0b101, 0], 1),
                         [numbers(INF, 0, 60000), numbers(1, 60, 60)]),
    "MulAddDst": ("VEC_INF_NAN, bit 54", "element 0 of dst is inf, written over its source",
                  lambda a, o, x: a.MulAddDst(o, x, x, 128), [OUT, numbers(300)]),
    "Cast": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 70000",
             lambda a, o, x: a.Cast(o, x, a.RoundMode.CAST_NONE, 128), [OUT, numbers(65504, 7e4, dtype=FLOAT)]),
    "Cast of int32_t": ("VEC_INF_NAN, bit 54", "element 0 of dst is inf, of 70000",
                        lambda a, o, x: (a.SetDeqScale(1.0), a.Cast(o, x, a.RoundMode.CAST_NONE, 128)),
                        [OUT, numbers(7e4, dtype="int32")]),
    "WholeReduceSum": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf;",
                       lambda a, o, x: a.WholeReduceSum(o, x, 64, 2, 1, 1, 4),
                       [OUT, np.repeat(numbers(1, 2000, n=2), 64)]),
    "ReduceSum": ("VEC_INF_NAN, bit 54", "element 0 of dst is inf;",
                  lambda a, o, x, w: a.ReduceSum(o, x, w, 128), [OUT, np.full(128, 1000, HALF), numbers(n=16)]),
    "with strides": ("VEC_NEG_LN, bit 57", "element 147 of dst comes of 0",
                     lambda a, o, x: a.Ln(o, x, 8, 3, a.UnaryRepeatParams(1, 1, 9, 8)),
                     [numbers(n=512), numbers(*[1] * 131, 0, n=512)]),
    "mask": ("VEC_DIV0, bit 52", "element 5 of dst comes of 0",
             lambda a, o, x: a.Reciprocal(o, x, [0b100000, 0], 1), [OUT, numbers(0, 0, 0, 0, 0, 0)]),
    "repeats that pile up": ("VEC_INF_NAN, bit 54", "element 2 of dst is inf;",
                             lambda a, o, x: a.Add(o, x, o, 128, 3, a.BinaryRepeatParams(1, 1, 1, 0, 8, 0)),
                             [OUT, np.tile(numbers(1, 2, 30000), 3)]),
    "Div over its dividend": ("VEC_DIV0, bit 52", "element 1 of dst is inf, written over its source",
                              lambda a, x, y: a.Div(x, x, y, 128), [numbers(2, 3), numbers(1, 0)]),
    "Div over its divisor": ("VEC_DIV0, bit 52", "element 1 of dst is inf, written over its source",
                             lambda a, x, y: a.Div(y, x, y, 128), [numbers(2, 3), numbers(1, 0)]),
    "Ln in place": ("VEC_NEG_LN, bit 57", "element 1 of dst comes of -3",
                    lambda a, x: a.Ln(x, x, 128), [numbers(NAN, -3)]),
    "Exp in place": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, written over its source",
                     lambda a, x: a.Exp(x, x, 128), [numbers(10, 12)]),
    "Exp in place, beyond float64": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, of 1000",
                                     lambda a, x: a.Exp(x, x, 128), [numbers(10, 1000)]),
    "Mul in place": ("VEC_INF_NAN, bit 54", "element 1 of dst is inf, written over its source",
                     lambda a, x: a.Mul(x, x, x, 128), [numbers(200, 300)]),
}  # fmt: skip


@pytest.mark.adr("0310", "1.6")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("bit", "fact", "say", "arrays"), CASES.values(), ids=CASES)
def test_an_exception_is_noted_once_with_bit_line_and_element(
    bit: str, fact: str, say: Any, arrays: Any, schedule: Any
) -> None:
    (note,) = notes(say, *arrays, schedule=schedule[0], seed=schedule[1])
    assert note.count == 1
    assert re.match(r"\w+ of block0 at test_vector_exceptions\.py:\d+ in <lambda>: ", note.message)
    assert f": {bit} of the device's error word: {fact}" in note.message


POISON = np.full(256, 0xFF, np.uint8).view(HALF)
QUIET: dict[str, tuple[Any, Any]] = {
    "Ln of NaN and Inf": (lambda a, o, x: a.Ln(o, x, 128), [OUT, numbers(NAN, INF, -INF)]),
    "Sqrt of them and -0": (lambda a, o, x: a.Sqrt(o, x, 128), [OUT, numbers(NAN, INF, -INF, -0.0)]),
    "Rsqrt of them": (lambda a, o, x: a.Rsqrt(o, x, 128), [OUT, numbers(NAN, INF, -INF)]),
    "Exp of them and of what vanishes": (lambda a, o, x: a.Exp(o, x, 128), [OUT, numbers(NAN, INF, -INF, -60000)]),
    "Div by them": (lambda a, o, x: a.Div(o, x, x, 128), [OUT, numbers(NAN, INF, -INF)]),
    "Div of them by 0": (lambda a, o, x, y: a.Div(o, x, y, 128), [OUT, numbers(NAN, INF), numbers(0, 0)]),
    "Mul of Inf and 0": (lambda a, o, x, y: a.Mul(o, x, y, 128), [OUT, numbers(INF, INF), numbers(0, 2)]),
    "Sub of Infs": (lambda a, o, x: a.Sub(o, x, x, 128), [OUT, numbers(INF)]),
    "Axpy onto Inf": (lambda a, o, x: a.Axpy(o, x, 2.0, 128), [numbers(INF, -INF), numbers(1, INF)]),
    "a scalar that is Inf": (lambda a, o, x: a.Muls(o, x, 1e9, 128), [OUT, numbers(2)]),
    "Cast of them": (lambda a, o, x: a.Cast(o, x, a.RoundMode.CAST_NONE, 64), [OUT, numbers(NAN, INF, dtype=FLOAT)]),
    "Cast to odd never gives Inf": (lambda a, o, x: a.Cast(o, x, a.RoundMode.CAST_ODD, 64),
                                    [OUT, numbers(7e4, 1e30, dtype=FLOAT)]),
    "integers saturate": (lambda a, o, x: a.Cast(o, x, a.RoundMode.CAST_RINT, 128),
                          [np.zeros(128, np.int16), numbers(60000, NAN, INF)]),
    "integers wrap": (lambda a, x: a.Mul(x, x, x, 128), [np.full(128, 30000, np.int16)]),
    "comparing NaN": (lambda a, o, x: a.Compare(o, x, x, a.CMPMODE.LT, 128), [np.zeros(32, np.uint8), numbers(NAN)]),
    "sums of Inf": (lambda a, o, x: a.WholeReduceSum(o, x, 64, 2, 1, 1, 4), [OUT, numbers(INF, -INF)]),
    "poison": (lambda a, o, x: [f(o, x, 128) for f in (a.Ln, a.Exp, a.Sqrt, a.Rsqrt, a.Reciprocal, a.Abs)],
               [OUT, POISON]),
    "masked lanes": (lambda a, o, x: a.Reciprocal(o, x, 64, 1), [OUT, numbers(*[1] * 64, 0)]),
    "what is only small": (lambda a, o, x: a.Mul(o, x, x, 128), [OUT, numbers(6e-8)]),
}  # fmt: skip


@pytest.mark.adr("0310", "1.6")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("say", "arrays"), QUIET.values(), ids=QUIET)
def test_nothing_is_noted_of_operands_that_were_inf_or_nan_before(say: Any, arrays: Any, late: bool) -> None:
    assert notes(say, *arrays, schedule="late" if late else "model", check="collect") == []


@pytest.mark.adr("0310", "1.6", "2.5")
def test_poison_is_an_uninitialised_read_alone(ub: Any) -> None:
    outcome = ub(lambda asc, t: asc.Ln(t[64], t, 64))
    assert outcome.kinds == ["uninitialised-read"]
    assert not outcome.run.notes


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_calls_of_a_line_are_counted_over_all_blocks(schedule: Any, launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 256)
        t = buf.Get(asc.float32)
        for _ in range(3):
            asc.Duplicate(t, 0.0, 64)
            asc.PipeBarrier(asc.PIPE_V)
            asc.Reciprocal(t, t, 64)
            asc.PipeBarrier(asc.PIPE_V)
            asc.Ln(t, t, 8)  # of Inf
            asc.PipeBarrier(asc.PIPE_V)

    (note,) = launch(kernel, data=True, grid=4, schedule=schedule[0], seed=schedule[1]).run.notes
    assert note.count == 12
    assert "Reciprocal of block0" in note.message


def test_a_later_call_of_the_line_counts_only_for_numbers() -> None:
    def say(asc: Any, o: Any, below: Any, inf: Any) -> None:
        for x in (below, inf, inf):
            asc.Sqrt(o, x, 128)
            asc.PipeBarrier(asc.PIPE_V)

    assert [note.count for note in notes(say, OUT, numbers(-1), numbers(-INF))] == [1]


def test_a_line_with_two_bits_has_two_notes() -> None:
    found = notes(lambda asc, o, x: asc.Rsqrt(o, x, 128), OUT, numbers(0, -1))
    assert sorted(re.findall(r"VEC_\w+", " ".join(note.message for note in found))) == ["VEC_DIV0", "VEC_NEG_SQRT"]


@pytest.mark.parametrize("how", [{"data": False}, {"check": False}])
def test_a_run_without_data_or_checks_notes_nothing(how: Any) -> None:
    assert notes(lambda asc, o, x: asc.Ln(o, x, 128), OUT, numbers(0), **how) == []


@pytest.mark.adr("0310", "1.6")
def test_the_scalar_unit_divides_by_0(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        t.SetValue(0, 0.0)
        zero = t.GetValue(0)
        t.SetValue(1, np.float32(1.0) / zero)
        t.SetValue(2, np.float16(60000) * np.float16(2))  # no division

    (note,) = ub(body).run.notes
    assert "CCU_DIV0, bit 3 of the device's error word" in note.message
    assert re.search(r"scalar arithmetic of block0 at test_vector_exceptions\.py:\d+ in body", note.message)


def test_numpy_is_as_it_was_after_a_run() -> None:
    before = np.geterr()
    notes(lambda asc, o, x: asc.Ln(o, x, 128), OUT, numbers(0))
    assert np.geterr() == before


def test_what_computes_has_its_effect_in_a_local_of_that_name() -> None:
    """Flags are traced back by it, at no cost for calls that raise none."""
    assert len(effects.COMPUTING) == 3
    assert all("effect" in code.co_varnames for code in effects.COMPUTING)


VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.0, 300.0, -60000.0, 12.0, 6e-8, INF, -INF, NAN])
UNARY = {
    "Ln": lambda x: x <= 0, "Sqrt": lambda x: x < 0, "Rsqrt": lambda x: x <= 0, "Reciprocal": lambda x: abs(x) < 1e-5,
    "Exp": lambda x: x >= 12, "Abs": lambda x: False, "Relu": lambda x: False,
}  # fmt: skip


@pytest.mark.adr("0310", "1.6")
@settings(max_examples=50, deadline=None)
@given(
    name=st.sampled_from(list(UNARY)), values=st.lists(VALUES, min_size=1, max_size=8), in_place=st.booleans(),
    late=st.booleans(),
)  # fmt: skip
def test_an_exception_is_noted_if_and_only_if_a_number_makes_one(
    name: str, values: list[float], in_place: bool, late: bool
) -> None:
    """In place too: only which element it was may be another there, one that had Inf before."""
    arrays = [numbers(*values)] if in_place else [OUT, numbers(*values)]
    found = notes(lambda asc, *t: getattr(asc, name)(t[0], t[-1], 128), *arrays, schedule="late" if late else "model")
    at_fault = [at for at, value in enumerate(values) if np.isfinite(value) and UNARY[name](value)]
    assert bool(found) == bool(at_fault)
    named = {int(re.findall(r"element (\d+)", note.message)[0]) for note in found}
    written = any("written over" in note.message for note in found)
    assert written or named <= set(at_fault)
    assert written or not found or min(named) == at_fault[0]
