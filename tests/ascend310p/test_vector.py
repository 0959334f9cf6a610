"""What vector instructions compute and which bytes they touch, against numpy said another way."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p import geometry
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ops.semantics import casts, reductions

RNG = np.random.default_rng(0)


def one_op(say: Any, inputs: list[Any], out: Any) -> Any:
    """`say(asc, out, *inputs)` once, on tensors in UB; the target as it is afterwards (it starts as `out`)."""
    arrays = [*inputs, out]
    core = Ascend310pCore()
    tensors = [core.tensor(f"t{at}", array.shape, array.dtype, array) for at, array in enumerate(arrays)]
    result = core.tensor("result", out.shape, out.dtype)

    def kernel(result: Any, *pointers: Any, asc: Any) -> None:
        pipe, buf, views, at = asc.TPipe(), asc.TBuf(), [], 0
        pipe.InitBuffer(buf, sum(-(-array.nbytes // 32) * 32 for array in arrays))
        for array, pointer in zip(arrays, pointers, strict=True):
            kind = pointer.tensor.type
            view, source = buf.GetWithOffset(kind, array.size, at), asc.GlobalTensor(kind)
            source.SetGlobalBuffer(pointer)
            asc.DataCopy(view, source, array.size)
            views.append(view)
            at += -(-array.nbytes // 32) * 32
        asc.PipeBarrier(asc.PIPE_ALL)
        say(asc, views[-1], *views[:-1])
        asc.PipeBarrier(asc.PIPE_ALL)
        target = asc.GlobalTensor(pointers[-1].tensor.type)
        target.SetGlobalBuffer(result)
        asc.DataCopy(target, views[-1], out.size)

    return core.run(kernel, result, *tensors).array(result)


def numbers(dtype: str, n: int = 128) -> Any:
    if dtype.startswith("int"):
        return RNG.integers(-100, 100, n).astype(dtype)
    return RNG.standard_normal(n).astype(dtype)


NUMPY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Div": np.divide}
DTYPES = ["float16", "float32", "int16", "int32"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Max", "Min", "Div"])
def test_two_sources(name: str, dtype: str) -> None:
    if name == "Div" and dtype.startswith("int"):
        return
    a, b = numbers(dtype), numbers(dtype)
    got = one_op(lambda asc, o, x, y: getattr(asc, name)(o, x, y, 128), [a, b], np.zeros_like(a))
    assert np.array_equal(got, NUMPY[name](a, b))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "twin"), [("Adds", "Add"), ("Muls", "Mul"), ("Maxs", "Max"), ("Mins", "Min")])
def test_a_source_and_a_scalar(name: str, twin: str, dtype: str) -> None:
    a, scalar = numbers(dtype), np.dtype(dtype).type(3)
    got = one_op(lambda asc, o, x: getattr(asc, name)(o, x, 3, 128), [a], np.zeros_like(a))
    assert np.array_equal(got, NUMPY[twin](a, scalar))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("name", "twin"),
    [("Exp", np.exp), ("Ln", np.log), ("Sqrt", np.sqrt), ("Abs", np.abs), ("Relu", lambda x: np.maximum(x, 0)),
     ("Reciprocal", lambda x: 1 / x), ("Rsqrt", lambda x: 1 / np.sqrt(x))],
)  # fmt: skip
def test_a_source(name: str, twin: Any, dtype: str) -> None:
    a = np.abs(numbers(dtype)) + np.dtype(dtype).type(0.5)
    got = one_op(lambda asc, o, x: getattr(asc, name)(o, x, 128), [a], np.zeros_like(a))
    assert np.array_equal(got, twin(a.astype(np.float64)).astype(dtype))


@pytest.mark.adr("0310", "1.2")
def test_a_half_scalar_is_rounded_before_it_multiplies() -> None:
    a = np.full(128, 2048.0, np.float16)
    got = one_op(lambda asc, o, x: asc.Muls(o, x, 1.0004, 128), [a], np.zeros_like(a))
    assert (got == 2048).all()  # 1.0004 is 1 in half, 2048.8 would round to 2048 too; 1.0006 is 1.001
    got = one_op(lambda asc, o, x: asc.Muls(o, x, 1.0006, 128), [a], np.zeros_like(a))
    assert (got == 2050).all()


@pytest.mark.adr("0310", "1.2")
@pytest.mark.parametrize(("kind", "source"), [("float32", "float32"), ("float16", "float16"), ("float32", "float16")])
def test_fused_forms_round_once(kind: str, source: str) -> None:
    a, b, c = numbers(source), numbers(source), numbers(kind)
    wide = [each.astype(np.float64) for each in (a, b, c)]
    got = one_op(lambda asc, o, x, y: asc.MulAddDst(o, x, y, 128), [a, b], c)
    assert np.array_equal(got, (wide[0] * wide[1] + wide[2]).astype(kind))
    got = one_op(lambda asc, o, x: asc.Axpy(o, x, 0.3, 128), [a], c)
    scalar = np.float64(np.dtype(source).type(0.3))
    assert np.array_equal(got, (wide[0] * scalar + wide[2]).astype(kind))


def test_a_fused_form_is_not_a_product_and_a_sum() -> None:
    a, c = np.full(64, 1 + 2**-12, np.float32), np.full(64, -1.0, np.float32)
    got = one_op(lambda asc, o, x: asc.MulAddDst(o, x, x, 64), [a], c)
    assert (got != a * a + c).all()


# Masks, repeats, strides


@pytest.mark.adr("0310", "5.4")
@pytest.mark.parametrize("mask", [1, 37, 64, 500, [0b1011, 0], (1 << 63, 0)])
def test_lanes_that_are_masked_off_keep_their_value(mask: Any) -> None:
    a = numbers("float32", 256)
    got = one_op(lambda asc, o, x: asc.Muls(o, x, 2.0, mask, 4), [a], np.zeros_like(a))
    bits = range(min(mask, 64)) if isinstance(mask, int) else [lane for lane in range(64) if mask[0] >> lane & 1]
    expected = np.zeros_like(a).reshape(4, 64)
    expected[:, list(bits)] = 2 * a.reshape(4, 64)[:, list(bits)]
    assert np.array_equal(got, expected.reshape(-1))


def test_strides_count_blocks_of_32_bytes() -> None:
    a = numbers("float32", 512)
    params = {"dstBlkStride": 1, "srcBlkStride": 2, "dstRepStride": 8, "srcRepStride": 16}
    got = one_op(
        lambda asc, o, x: asc.Muls(o, x, 1.0, 64, 4, asc.UnaryRepeatParams(**params)), [a], np.zeros(256, np.float32)
    )
    assert np.array_equal(got, a.reshape(-1, 2, 8)[:, 0].reshape(-1)[:256])


def test_a_source_with_stride_0_is_read_again() -> None:
    a, b = numbers("float32", 256), numbers("float32", 64)
    got = one_op(lambda asc, o, x, y: asc.Mul(o, x, y, 64, 4, asc.BinaryRepeatParams(1, 1, 1, 8, 8, 0)), [a, b], a * 0)
    assert np.array_equal(got, (a.reshape(4, 64) * b).reshape(-1))


@pytest.mark.adr("0310", "5.4")
def test_repeats_pile_up_on_a_target_that_is_src1_one_after_the_other() -> None:
    a = numbers("float32", 256)
    start = numbers("float32", 64)
    got = one_op(lambda asc, o, x: asc.Add(o, x, o, 64, 4, asc.BinaryRepeatParams(1, 1, 1, 0, 8, 0)), [a], start)
    expected = start
    for row in a.reshape(4, 64):
        expected = row + expected
    assert np.array_equal(got, expected)


@settings(max_examples=60, deadline=None)
@given(
    lanes=st.lists(st.integers(0, 63), min_size=1, max_size=64, unique=True).map(sorted), repeats=st.integers(1, 6),
    block=st.integers(0, 4), repeat=st.integers(0, 12),
)  # fmt: skip
def test_an_access_is_its_lanes_and_its_exact_bytes(lanes: Any, repeats: int, block: int, repeat: int) -> None:
    access = geometry.strided(tuple(lanes), repeats, block, repeat, 4)
    touched = [r * repeat * 8 + lane // 8 * block * 8 + lane % 8 for r in range(repeats) for lane in lanes]
    index = list(range(access.total)) if access.elements is None else access.elements.reshape(-1).tolist()
    assert index == touched
    assert access.need == max(touched) + 1
    assert access.repeated == (len(set(touched)) < len(touched))
    bytes_ = {byte for element in touched for byte in range(4 * element, 4 * element + 4)}
    assert bytes_ == {byte for lo, hi in access.ranges for byte in range(lo, hi)}
    assert all(hi < lo for (_, hi), (lo, _) in zip(access.ranges, access.ranges[1:], strict=False))


# Casts


@pytest.mark.adr("0310", "1.2")
@pytest.mark.parametrize(
    ("source", "target", "mode"), [(*pair, mode) for pair, modes in casts.MODES.items() for mode in modes]
)
def test_every_cast_of_the_table(source: str, target: str, mode: str) -> None:
    names = {"half": "float16", "float": "float32", **{f"{n}_t": n for n in ("int8", "uint8", "int16", "int32")}}
    a = np.array([-3.5, -2.5, -1.25, -0.5, 0.0, 0.5, 0.75, 1.5, 2.5, 3.25, 100.0, 127.0] * 16)[:128].astype(
        names[source]
    )

    def say(asc: Any, o: Any, x: Any) -> None:
        asc.SetDeqScale(0.5)
        asc.Cast(o, x, asc.RoundMode[f"CAST_{mode}"], 128)

    got = one_op(say, [a], np.zeros(128, names[target])).astype(np.float64)
    wide = a.astype(np.float64)
    if (source, target) == ("int32_t", "half"):
        wide, mode = wide * 0.5, "exact"
    rounding: dict[str, Any] = {
        "RINT": np.rint, "FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc, "NONE": np.rint,
        "ROUND": lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5),
    }  # fmt: skip
    if np.dtype(names[target]).kind in "iu":
        limits = np.iinfo(names[target])
        wide = np.clip(rounding[mode](wide), limits.min, limits.max)
    assert np.array_equal(got, wide)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-70000, 70000, width=32), min_size=1, max_size=20))
def test_odd_rounding_is_towards_zero_with_the_last_bit_set_if_anything_was_lost(values: list[float]) -> None:
    x = np.array(values, np.float32)
    got = np.zeros(len(x), np.float16)
    with np.errstate(over="ignore"):
        casts.to_odd(x, got)
    exact = got.astype(np.float64) == x
    odd = got.view(np.uint16) & 1 == 1
    near = np.abs(got.astype(np.float64) - x) <= np.maximum(np.abs(x) * 2.0**-10, 2.0**-24)
    assert (exact | odd).all()
    assert (near | (np.abs(x) > 65504)).all()


@pytest.mark.adr("0310", "1.2")
def test_integers_saturate() -> None:
    a = np.array([60000, -60000, np.nan, np.inf] * 16, np.float16)
    got = one_op(lambda asc, o, x: asc.Cast(o, x, asc.RoundMode.CAST_RINT, 64), [a], np.zeros(64, np.int16))
    assert got[:4].tolist() == [32767, -32768, 0, 32767]


# Reductions


def tree(values: Any) -> Any:
    """Adjacent pairs, said recursively."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return tree([values[2 * at] + values[2 * at + 1] for at in range(half)])


@pytest.mark.adr("0310", "1.2")
@pytest.mark.parametrize(("dtype", "width"), [("float32", 64), ("float16", 128)])
def test_sums_are_trees_over_adjacent_pairs(dtype: str, width: int) -> None:
    a = numbers(dtype, 2 * width)
    got = one_op(lambda asc, o, x: asc.WholeReduceSum(o, x, width, 2, 1, 1, 8), [a], np.zeros(32, dtype))
    assert got[:2].tolist() == [tree(list(a[:width])), tree(list(a[width:]))]
    assert (got[2:] == 0).all()


def test_masked_lanes_count_as_zero_in_a_sum() -> None:
    a = numbers("float32", 64)
    got = one_op(lambda asc, o, x: asc.WholeReduceSum(o, x, 40, 1, 1, 1, 8), [a], np.zeros(8, np.float32))
    assert got[0] == tree([*a[:40], *[np.float32(0)] * 24])


@pytest.mark.parametrize(("name", "find"), [("WholeReduceMax", np.argmax), ("WholeReduceMin", np.argmin)])
@pytest.mark.parametrize("order", ["ORDER_VALUE_INDEX", "ORDER_INDEX_VALUE"])
def test_extremes_come_with_their_first_lane_as_raw_bits(name: str, find: Any, order: str) -> None:
    a = np.round(numbers("float32", 128))
    got = one_op(
        lambda asc, o, x: getattr(asc, name)(o, x, 64, 2, 1, 1, 8, asc.ReduceOrder[order]), [a], np.zeros(8, np.float32)
    )
    lanes = find(a.reshape(2, 64), axis=1)
    pairs = got[:4].reshape(2, 2)
    value, index = (0, 1) if order == "ORDER_VALUE_INDEX" else (1, 0)
    assert pairs[:, value].tolist() == a.reshape(2, 64)[range(2), lanes].tolist()
    assert pairs[:, index].copy().view(np.uint32).tolist() == lanes.tolist()


def test_block_sums_and_the_sum_of_all() -> None:
    a = numbers("float32", 200)
    got = one_op(lambda asc, o, x: asc.BlockReduceSum(o, x, 3, 64, 1, 1, 8), [a], np.zeros(24, np.float32))
    assert got.tolist() == [tree(list(block)) for block in a[:192].reshape(-1, 8)]
    work = np.zeros(8, np.float32)
    got = one_op(lambda asc, o, x, w: asc.ReduceSum(o, x, w, 200), [a, work], np.zeros(8, np.float32))
    assert got[0] == reductions.reduce_sum(64, a)[0]
    assert abs(got[0] - a.sum()) < 1e-4


def test_compare_makes_bits_and_select_takes_them() -> None:
    a, b = numbers("float32", 64), numbers("float32", 64)
    bits = one_op(lambda asc, o, x, y: asc.Compare(o, x, y, asc.CMPMODE.LT, 64), [a, b], np.zeros(32, np.uint8))
    assert np.array_equal(np.unpackbits(bits[:8], bitorder="little"), (a < b).astype(np.uint8))
    chosen = one_op(
        lambda asc, o, m, x, y: asc.Select(o, m, x, y, asc.SELMODE.VSEL_TENSOR_TENSOR_MODE, 64), [bits, a, b], a * 0
    )
    assert np.array_equal(chosen, np.minimum(a, b))
    scalar = one_op(
        lambda asc, o, m, x: asc.Select(o, m, x, -9.0, asc.SELMODE.VSEL_TENSOR_SCALAR_MODE, 64), [bits, a], a * 0
    )
    assert np.array_equal(scalar, np.where(a < b, a, np.float32(-9)))


# Refusals


REFUSED: list[tuple[str, str, Any]] = [
    ("bad-parameter", "count is 0", lambda asc, t: asc.Duplicate(t, 1.0, 0)),
    ("bad-parameter", "selects no lane", lambda asc, t: asc.Duplicate(t, 1.0, 0, 1)),
    ("bad-parameter", "selects no lane", lambda asc, t: asc.Adds(t, t, 1.0, [0, 0], 1)),
    ("bad-parameter", "high word", lambda asc, t: asc.Adds(t, t, 1.0, [1, 1], 1)),
    ("bad-parameter", "repeatTime is 256", lambda asc, t: asc.Adds(t, t, 1.0, 64, 256)),
    ("bad-parameter", "repeatTime is 0", lambda asc, t: asc.Adds(t, t, 1.0, 64, 0)),
    ("bad-parameter", "all blocks go to one", lambda asc, t: asc.Adds(t, t, 1.0, 64, 1, asc.UnaryRepeatParams(0))),
    ("bad-parameter", "write the same bytes", lambda asc, t: asc.Exp(t, t, 64, 2, asc.UnaryRepeatParams(1, 1, 4, 8))),
    ("bad-parameter", "dstRepStride is 256", lambda asc, t: asc.Exp(t, t, 64, 2, asc.UnaryRepeatParams(1, 1, 256, 8))),
    ("bad-parameter", "repeatParams is", lambda asc, t: asc.Add(t, t, t, 64, 2, asc.UnaryRepeatParams())),
    ("bad-parameter", "the scalar is 'two'", lambda asc, t: asc.Adds(t, t, "two", 64)),
    ("bad-parameter", "an operand is a list", lambda asc, t: asc.Adds(t, [1.0], 1.0, 64)),
    ("bad-parameter", "whole repeats",
     lambda asc, t: asc.Compare(t.ReinterpretCast(asc.uint8_t), t, t, asc.CMPMODE.LT, 10)),
    ("bad-parameter", "register that is not set",
     lambda asc, t: asc.Cast(t.ReinterpretCast(asc.half), t.ReinterpretCast(asc.int32_t), asc.RoundMode.CAST_NONE, 8)),
    ("out-of-bounds", "has 4096 elements, the call takes 4097", lambda asc, t: asc.Adds(t, t, 1.0, 4097)),
    ("misaligned", "4 past a multiple of 32", lambda asc, t: asc.Adds(t[1], t, 1.0, 8)),
    ("unsupported", "no Add of int64_t", lambda asc, t: asc.Add(*[t.ReinterpretCast(asc.int64_t)] * 3, 8)),
    ("unsupported", "no Exp of int32_t", lambda asc, t: asc.Exp(*[t.ReinterpretCast(asc.int32_t)] * 2, 8)),
    ("unsupported", "CAST_RINT is not supported",
     lambda asc, t: asc.Cast(t.ReinterpretCast(asc.half), t, asc.RoundMode.CAST_RINT, 8)),
    ("unsupported", "Duplicate of int64_t", lambda asc, t: asc.Duplicate(t.ReinterpretCast(asc.int64_t), 0, 8)),
]  # fmt: skip


@pytest.mark.adr("0310", "1.4")
@pytest.mark.parametrize(("kind", "words", "say"), REFUSED, ids=[f"{kind}: {words}" for kind, words, _ in REFUSED])
def test_what_the_chip_does_not_take_is_refused_with_numbers(kind: str, words: str, say: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 4 * 4096)
        say(asc, buf.Get(asc.float32))

    assert words in refusal(kernel, kind)
