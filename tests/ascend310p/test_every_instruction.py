"""Every vector instruction by name, in every form and type it has, against numpy; no other byte of UB changes.

A run copies an image into UB, says one instruction and copies the image out again: operands lie between guards, so that
what a mask, a count or a stride leaves out is seen to keep its poison.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import KernelError

GUARD = 64
TYPES = {
    "float16": "half", "float32": "float32", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t",
    "uint16": "uint16_t", "int32": "int32_t", "uint32": "uint32_t",
}  # fmt: skip
FLOATS = ("float16", "float32")
ARITHMETIC = (*FLOATS, "int16", "int32")


def afterwards(say: Callable[..., None], *arrays: Any) -> list[Any]:
    """The operands after `say(asc, *operands)`; what lies between them has to be as it was."""
    starts, end = [], GUARD
    for array in arrays:
        starts.append(end)
        end += -(-array.nbytes // 32) * 32 + GUARD
    image = np.full(end, 0xA5, np.uint8)
    for start, array in zip(starts, arrays, strict=True):
        image[start : start + array.nbytes] = array.view(np.uint8)

    def kernel(given: Any, left: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, end)
        whole = buf.Get(asc.uint8_t)
        sides = [asc.GlobalTensor(asc.uint8_t) for _ in range(2)]
        for side, pointer in zip(sides, (given, left), strict=True):
            side.SetGlobalBuffer(pointer)
        asc.DataCopy(whole, sides[0], end)
        asc.PipeBarrier(asc.PIPE_ALL)
        say(asc, *[buf.GetWithOffset(kind_of(asc, array), array.size, at)
                   for at, array in zip(starts, arrays, strict=True)])  # fmt: skip
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.DataCopy(sides[1], whole, end)

    core = Ascend310pCore()
    left = core.run(kernel, core.tensor("given", end, "uint8", image), core.tensor("left", end, "uint8")).array("left")
    results = []
    for start, array in zip(starts, arrays, strict=True):
        results.append(left[start : start + array.nbytes].copy().view(array.dtype))
        left[start : start + array.nbytes] = image[start : start + array.nbytes]
    assert np.array_equal(left, image), "a guard was written"
    return results


def kind_of(asc: Any, array: Any) -> Any:
    return getattr(asc, TYPES[array.dtype.name])


@dataclass(frozen=True)
class Form:
    """How an instruction is told its elements: a count, or a mask with repeats; strides of target and two sources."""

    mask: Any
    repeats: int | None = None
    blocks: tuple[int, int, int] = (1, 1, 1)
    steps: tuple[int, int, int] | None = None

    def elements(self, operand: int, sizes: Sequence[int]) -> list[int]:
        """Those of an operand, in the order in which they are taken."""
        if self.repeats is None:
            return list(range(self.mask))
        width, per_block = 256 // max(sizes), 32 // sizes[operand]
        block, step = self.blocks[operand], self.step(operand, sizes)
        return [
            repeat * step * per_block + lane // per_block * block * per_block + lane % per_block
            for repeat in range(self.repeats)
            for lane in selected(self.mask, width)
        ]

    def step(self, operand: int, sizes: Sequence[int]) -> int:
        """Blocks from repeat to repeat: dense, if the form does not say."""
        return 8 * sizes[operand] // max(sizes) if self.steps is None else self.steps[operand]

    def words(self, asc: Any, sizes: Sequence[int]) -> list[Any]:
        """What stands behind the operands of a call."""
        if self.repeats is None:
            return [self.mask]
        many = range(len(sizes))
        strides = [*[self.blocks[each] for each in many], *[self.step(each, sizes) for each in many]]
        params = asc.BinaryRepeatParams if len(sizes) == 3 else asc.UnaryRepeatParams
        return [self.mask, self.repeats, params(*strides)]


def selected(mask: Any, width: int) -> list[int]:
    if isinstance(mask, int):
        return list(range(min(mask, width)))
    return [lane for lane in range(width) if mask[lane // 64] >> lane % 64 & 1]


FORMS = {
    "count": Form(77),
    "counter mask": Form(37, 3),
    "mask beyond the lanes": Form(500, 2),
    "bitwise mask": Form([0x8001_F0F0_0000_0F01, 0], 3),
    "strides": Form(64, 2, (2, 1, 3), (17, 9, 25)),
    "a source again": Form(50, 3, (1, 0, 1), (8, 0, 8)),
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
N = 832


def numbers(dtype: str, seed: int, *, positive: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    values = rng.integers(-100, 100, N) if np.dtype(dtype).kind in "iu" else rng.standard_normal(N)
    return (np.abs(values) + 0.25 if positive else values).astype(dtype)


def with_results(target: Any, at: Sequence[int], values: Any) -> Any:
    """The target with `values` at the elements `at`, rounded once."""
    expected = target.copy()
    expected[list(at)] = np.asarray(values).astype(target.dtype)
    return expected


TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Div": lambda a, b: a / b,
    "Max": lambda a, b: np.where(a > b, a, b), "Min": lambda a, b: np.where(a < b, a, b),
    "And": lambda a, b: a.astype(int) & b.astype(int), "Or": lambda a, b: a.astype(int) | b.astype(int),
}  # fmt: skip
SCALAR = {"Adds": "Add", "Muls": "Mul", "Maxs": "Max", "Mins": "Min"}
ONE: dict[str, Callable[[Any], Any]] = {
    "Exp": np.exp, "Ln": np.log, "Sqrt": np.sqrt, "Rsqrt": lambda a: 1 / np.sqrt(a), "Reciprocal": lambda a: 1 / a,
    "Abs": np.abs, "Relu": lambda a: np.where(a > 0, a, 0), "Not": lambda a: -1 - a,
}  # fmt: skip
POSITIVE = ("Ln", "Sqrt", "Rsqrt", "Reciprocal")
BITWISE = ("int16", "uint16")
TYPES_OF = {"Div": FLOATS, **dict.fromkeys(("And", "Or", "Not"), BITWISE)}
TYPED_TWO = [(name, dtype) for name in TWO for dtype in TYPES_OF.get(name, ARITHMETIC)]
TYPED_ONE = [(name, dtype) for name in ONE for dtype in TYPES_OF.get(name, FLOATS)]


@forms
@pytest.mark.parametrize(("name", "dtype"), TYPED_TWO)
def test_two_sources(name: str, dtype: str, form: Form) -> None:
    o, a, b = numbers(dtype, 0), numbers(dtype, 1), numbers(dtype, 2, positive=name == "Div")
    sizes = [o.itemsize] * 3
    got = afterwards(lambda asc, *t: getattr(asc, name)(*t, *form.words(asc, sizes)), o, a, b)
    at, *of = (form.elements(each, sizes) for each in range(3))
    wide = [each[taken].astype(np.float64) for each, taken in zip((a, b), of, strict=True)]
    assert np.array_equal(got[0], with_results(o, at, TWO[name](*wide)))
    assert np.array_equal(got[1], a)
    assert np.array_equal(got[2], b)


@forms
@pytest.mark.parametrize("dtype", ARITHMETIC)
@pytest.mark.parametrize("name", SCALAR)
def test_a_source_and_a_scalar(name: str, dtype: str, form: Form) -> None:
    o, a, scalar = numbers(dtype, 0), numbers(dtype, 1), 3 if dtype.startswith("int") else 0.3
    sizes = [o.itemsize] * 2
    got = afterwards(lambda asc, o, x: getattr(asc, name)(o, x, scalar, *form.words(asc, sizes)), o, a)
    at, of = (form.elements(each, sizes) for each in range(2))
    rounded = np.dtype(dtype).type(scalar).astype(np.float64)
    assert np.array_equal(got[0], with_results(o, at, TWO[SCALAR[name]](a[of].astype(np.float64), rounded)))
    assert np.array_equal(got[1], a)


@forms
@pytest.mark.parametrize(("name", "dtype"), TYPED_ONE)
def test_one_source(name: str, dtype: str, form: Form) -> None:
    o, a = numbers(dtype, 0), numbers(dtype, 1, positive=name in POSITIVE)
    sizes = [o.itemsize] * 2
    got = afterwards(lambda asc, *t: getattr(asc, name)(*t, *form.words(asc, sizes)), o, a)
    at, of = (form.elements(each, sizes) for each in range(2))
    exact = ONE[name](a[of].astype(int if name == "Not" else np.float64))
    assert np.array_equal(got[0], with_results(o, at, exact))
    assert np.array_equal(got[1], a)


@pytest.mark.parametrize("form", [each for name, each in FORMS.items() if name != "a source again"], ids=str)
@pytest.mark.parametrize("dtype", [*ARITHMETIC, "uint16", "uint32"])
def test_duplicate(dtype: str, form: Form) -> None:
    o, scalar = numbers(dtype, 0), 7 if "int" in dtype else 0.3
    sizes = [o.itemsize]

    def say(asc: Any, t: Any) -> None:
        strides = [] if form.repeats is None else [form.repeats, form.blocks[0], form.step(0, sizes)]
        asc.Duplicate(t, scalar, form.mask, *strides)

    (got,) = afterwards(say, o)
    assert np.array_equal(got, with_results(o, form.elements(0, sizes), scalar))


MIXED = [("float16", "float16"), ("float32", "float32"), ("float32", "float16")]


@forms
@pytest.mark.parametrize(("target", "source"), MIXED)
@pytest.mark.parametrize("name", ["Axpy", "MulAddDst"])
def test_products_onto_the_target(name: str, target: str, source: str, form: Form) -> None:
    """Rounded once; a float target of half sources takes 64 lanes a repeat."""
    o, sources = numbers(target, 0), [numbers(source, seed) for seed in ((1,) if name == "Axpy" else (1, 2))]
    sizes = [o.itemsize, *[each.itemsize for each in sources]]
    scalar = [0.3] if name == "Axpy" else []
    got = afterwards(lambda asc, *t: getattr(asc, name)(*t, *scalar, *form.words(asc, sizes)), o, *sources)
    at, *of = (form.elements(each, sizes) for each in range(len(sizes)))
    factors = [each[taken].astype(np.float64) for each, taken in zip(sources, of, strict=True)]
    factors += [np.dtype(source).type(each).astype(np.float64) for each in scalar]
    assert np.array_equal(got[0], with_results(o, at, factors[0] * factors[1] + o[at].astype(np.float64)))
    assert all(np.array_equal(*pair) for pair in zip(got[1:], sources, strict=True))


# Cast: the table of facts 2.6, said once more

TO_INTEGER = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC")
CASTS = {
    ("int8", "float16"): ("NONE",), ("uint8", "float16"): ("NONE",), ("int16", "float16"): ("NONE",),
    ("float16", "int8"): ("FLOOR", "CEIL", "ROUND", "TRUNC", "NONE"),
    ("float16", "uint8"): ("FLOOR", "CEIL", "ROUND", "TRUNC", "NONE"),
    ("float16", "int16"): ("RINT",), ("float16", "int32"): TO_INTEGER, ("float16", "float32"): ("NONE",),
    ("float32", "float16"): ("NONE", "ODD"), ("float32", "int32"): TO_INTEGER, ("int32", "float32"): ("NONE",),
    ("int32", "int16"): ("NONE",), ("int32", "float16"): ("NONE", *TO_INTEGER),
}  # fmt: skip
MODES = ("NONE", *TO_INTEGER, "ODD")
AT_TIES = [-3.5, -2.5, -1.25, -0.5, 0.0, 0.5, 0.75, 1.5, 2.5, 3.25, 100.0, 127.0, 128.5, -129.0, 300.0, -40000.0, 1e-3]
DEQ_SCALE = 0.375


def cast_of(value: Any, target: str, mode: str) -> Any:
    """One element, by the definition of its mode."""
    exact = float(value) * (DEQ_SCALE if value.dtype.name == "int32" and target == "float16" else 1.0)
    if target in FLOATS:
        return odd(exact) if mode == "ODD" else np.dtype(target).type(exact)
    whole = {
        "NONE": round, "RINT": round, "FLOOR": math.floor, "CEIL": math.ceil, "TRUNC": math.trunc,
        "ROUND": lambda v: int(math.copysign(math.floor(abs(v) + 0.5), v)),
    }[mode](exact)  # fmt: skip
    limits = np.iinfo(target)
    return min(max(whole, limits.min), limits.max)


def odd(exact: float) -> Any:
    """The value itself, or of its two neighbours in half the one whose last bit is set."""
    near = np.float16(exact)
    if float(near) == exact:
        return near
    other = np.nextafter(near, np.float16(math.copysign(math.inf, exact - float(near))))
    return near if near.view(np.uint16) & 1 else other


def to_cast(dtype: str) -> Any:
    return np.resize(np.array(AT_TIES) if dtype in FLOATS else np.trunc(AT_TIES), N).astype(np.float64).astype(dtype)


CAST_FORMS = {name: form for name, form in FORMS.items() if name != "a source again"}


@pytest.mark.adr("0310", "1.2")
@pytest.mark.parametrize("form", CAST_FORMS.values(), ids=CAST_FORMS)
@pytest.mark.parametrize(("source", "target", "mode"), [(*pair, mode) for pair, all_ in CASTS.items() for mode in all_])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_cast(source: str, target: str, mode: str, form: Form) -> None:
    """Lanes of a repeat are those of the wider type: 64 of half to int32_t."""
    o, a = numbers(target, 0), to_cast(source)
    sizes = [o.itemsize, a.itemsize]

    def say(asc: Any, o: Any, x: Any) -> None:
        asc.SetDeqScale(DEQ_SCALE)
        asc.Cast(o, x, asc.RoundMode[f"CAST_{mode}"], *form.words(asc, sizes))

    got = afterwards(say, o, a)
    at, of = (form.elements(each, sizes) for each in range(2))
    assert np.array_equal(got[0], with_results(o, at, [cast_of(each, target, mode) for each in a[of]]))
    assert np.array_equal(got[1], a)


@pytest.mark.adr("0310", "1.4")
@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_no_other_cast_is_taken(source: str, target: str) -> None:
    core = Ascend310pCore()

    def kernel(mode: str, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 2048)
        asc.SetDeqScale(1.0)
        types = [getattr(asc, TYPES[each]) for each in (target, source)]
        to, given = (buf.GetWithOffset(kind, 128, at) for kind, at in zip(types, (0, 1024), strict=True))
        asc.Cast(to, given, asc.RoundMode[f"CAST_{mode}"], 128)

    for mode in set(MODES) - set(CASTS.get((source, target), ())):
        with pytest.raises(KernelError, match=rf"(?m)^unsupported: .*Cast(.|\n)*CAST_{mode} is not supported on 310P"):
            core.run(kernel, mode)


# Compare and Select: count forms, bits low lane first

COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "LT": np.less, "GT": np.greater, "EQ": np.equal, "LE": np.less_equal, "GE": np.greater_equal, "NE": np.not_equal,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", COMPARED)
def test_compare(mode: str, dtype: str) -> None:
    a, b = (np.round(numbers(dtype, seed)) for seed in (1, 2))
    bits = np.full(128, 0xA5, np.uint8)
    got = afterwards(lambda asc, *t: asc.Compare(*t, asc.CMPMODE[mode], 384), bits, a, b)
    packed = [sum(int(COMPARED[mode](a[8 * at + bit], b[8 * at + bit])) << bit for bit in range(8)) for at in range(48)]
    assert got[0].tolist() == packed + [0xA5] * 80


@pytest.mark.parametrize("count", [77, 384])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["VSEL_TENSOR_TENSOR_MODE", "VSEL_TENSOR_SCALAR_MODE"])
def test_select(mode: str, dtype: str, count: int) -> None:
    o, a, b = (numbers(dtype, seed) for seed in range(3))
    bits = np.random.default_rng(3).integers(0, 256, 64).astype(np.uint8)

    def say(asc: Any, o: Any, bits: Any, a: Any, b: Any) -> None:
        asc.Select(o, bits, a, b if mode == "VSEL_TENSOR_TENSOR_MODE" else -9.3, asc.SELMODE[mode], count)

    got = afterwards(say, o, bits, a, b)
    other = b if mode == "VSEL_TENSOR_TENSOR_MODE" else np.full(N, -9.3, dtype)
    chosen = [a[at] if bits[at // 8] >> at % 8 & 1 else other[at] for at in range(count)]
    assert np.array_equal(got[0], with_results(o, range(count), chosen))


# Reductions

REDUCED = {
    "all lanes": (Form(128, 3), 1), "counter mask": (Form(37, 3), 1), "results apart": (Form(64, 3), 5),
    "bitwise mask": (Form([0x8001_F0F0_0000_0F01, 0], 3), 1), "strides": (Form(64, 2, (1, 3, 1), (8, 25, 8)), 2),
}  # fmt: skip
reduced = pytest.mark.parametrize(("form", "apart"), REDUCED.values(), ids=REDUCED)


def tree(values: Sequence[Any]) -> Any:
    """Adjacent pairs, each sum rounded."""
    if len(values) == 1:
        return values[0]
    return tree([values[at] + values[at + 1] for at in range(0, len(values), 2)])


def repeats_of(form: Form, a: Any) -> list[Any]:
    """Of every repeat, the lanes and the elements in them."""
    lanes = selected(form.mask, 256 // a.itemsize)
    taken = np.array(form.elements(1, [a.itemsize] * 2)).reshape(form.repeats or 1, len(lanes))
    return [(lanes, a[row]) for row in taken]


def spread(lanes: Sequence[int], values: Any, width: int) -> list[Any]:
    """All lanes of a repeat; masked ones are 0."""
    whole = np.zeros(width, values.dtype)
    whole[list(lanes)] = values
    return list(whole)


def reduced_by(asc: Any, name: str, o: Any, x: Any, form: Form, apart: int, size: int, *more: Any) -> None:
    strides = (apart, form.blocks[1], form.step(1, [size] * 2))
    order = (form.repeats, form.mask) if name == "BlockReduceSum" else (form.mask, form.repeats)
    getattr(asc, name)(o, x, *order, *strides, *more)


@pytest.mark.adr("0310", "1.2")
@reduced
@pytest.mark.parametrize("dtype", FLOATS)
def test_whole_reduce_sum(dtype: str, form: Form, apart: int) -> None:
    o, a = numbers(dtype, 0), numbers(dtype, 1)
    got = afterwards(lambda asc, o, x: reduced_by(asc, "WholeReduceSum", o, x, form, apart, a.itemsize), o, a)
    sums = [tree(spread(*each, 256 // a.itemsize)) for each in repeats_of(form, a)]
    assert np.array_equal(got[0], with_results(o, [apart * at for at in range(len(sums))], sums))


@reduced
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("order", ["ORDER_VALUE_INDEX", "ORDER_INDEX_VALUE"])
@pytest.mark.parametrize(("name", "best"), [("WholeReduceMax", max), ("WholeReduceMin", min)])
def test_whole_reduce_extremes(name: str, best: Any, order: str, dtype: str, form: Form, apart: int) -> None:
    """The value and its first lane, whose number lies there as raw bits."""
    o, a = numbers(dtype, 0), np.round(numbers(dtype, 1))
    got = afterwards(
        lambda asc, o, x: reduced_by(asc, name, o, x, form, apart, a.itemsize, asc.ReduceOrder[order]), o, a
    )
    expected, raw = o.copy(), f"uint{8 * a.itemsize}"
    for at, (lanes, values) in enumerate(repeats_of(form, a)):
        lane, value = next(pair for pair in zip(lanes, values, strict=True) if pair[1] == best(values))
        pair = [value, np.array([lane], raw).view(dtype)[0]]
        expected[2 * apart * at : 2 * apart * at + 2] = pair if order == "ORDER_VALUE_INDEX" else pair[::-1]
    assert np.array_equal(got[0].view(raw), expected.view(raw))


@reduced
@pytest.mark.parametrize("dtype", FLOATS)
def test_block_reduce_sum(dtype: str, form: Form, apart: int) -> None:
    o, a = numbers(dtype, 0), numbers(dtype, 1)
    got = afterwards(lambda asc, o, x: reduced_by(asc, "BlockReduceSum", o, x, form, apart, a.itemsize), o, a)
    expected, per_block = o.copy(), 32 // a.itemsize
    for at, (lanes, values) in enumerate(repeats_of(form, a)):
        whole = spread(lanes, values, 256 // a.itemsize)
        sums = [tree(whole[first : first + per_block]) for first in range(0, len(whole), per_block)]
        expected[8 * apart * at : 8 * apart * at + 8] = sums
    assert np.array_equal(got[0], expected)


@pytest.mark.parametrize("count", [1, 64, 77, 800])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_sum(dtype: str, count: int) -> None:
    """Repeats first, then their sums in the same way; what is left in the work buffer means nothing."""
    o, a, work = numbers(dtype, 0)[:16], numbers(dtype, 1), np.zeros(32, dtype)

    def say(asc: Any, o: Any, x: Any, work: Any) -> None:
        asc.ReduceSum(o, x, work, count)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Duplicate(work, 0.0, 32)

    got = afterwards(say, o, a, work)
    left, width = list(a[:count]), 256 // a.itemsize
    while True:
        rows = [left[first : first + width] for first in range(0, len(left), width)]
        left = [tree(row + [a.dtype.type(0)] * (width - len(row))) for row in rows]
        if len(left) == 1:
            break
    assert np.array_equal(got[0], with_results(o, [0], left))
    assert np.array_equal(got[1], a)
