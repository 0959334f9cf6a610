"""Compare, CompareScalar, Select and ReduceSum with masks, repeats and strides, against lanes said one by one."""

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ascend310p import geometry
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

MODES: dict[str, Callable[[Any, Any], Any]] = {"LT": lt, "GT": gt, "EQ": eq, "LE": le, "GE": ge, "NE": ne}
KINDS = {"float16": "half", "float32": "float32", **{f"{n}": f"{n}_t" for n in ("int8", "uint8", "uint16", "uint32")}}
KINDS["uint64"] = "uint64_t"
FLOATS = ["float16", "float32"]
GUARD = 64


def afterwards(say: Callable[..., None], *arrays: Any, **how: Any) -> tuple[list[Any], Any]:
    """The operands after `say(asc, *operands)`, and the run; no byte between them has changed."""
    starts = np.cumsum([GUARD, *(-(-each.nbytes // 32) * 32 + GUARD for each in arrays)]).tolist()
    image = np.full(starts[-1], 0xA5, np.uint8)
    for start, each in zip(starts, arrays, strict=False):
        image[start : start + each.nbytes] = each.view(np.uint8)

    def kernel(given: Any, left: Any, *, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, len(image))
        whole, source, target = buf.Get(asc.uint8_t), asc.GlobalTensor(asc.uint8_t), asc.GlobalTensor(asc.uint8_t)
        source.SetGlobalBuffer(given)
        target.SetGlobalBuffer(left)
        asc.DataCopy(whole, source, len(image))
        asc.PipeBarrier(asc.PIPE_ALL)
        operands = zip(arrays, starts, strict=False)
        say(asc, *[buf.GetWithOffset(getattr(asc, KINDS[each.dtype.name]), each.size, at) for each, at in operands])
        asc.PipeBarrier(asc.PIPE_ALL)
        asc.DataCopy(target, whole, len(image))

    core = Ascend310pCore()
    run = core.run(kernel, core.tensor("i", len(image), "uint8", image), core.tensor("o", len(image), "uint8"), **how)
    left, results = run.array("o"), []
    for start, each in zip(starts, arrays, strict=False):
        results.append(left[start : start + each.nbytes].copy().view(each.dtype))
        left[start : start + each.nbytes] = image[start : start + each.nbytes]
    assert np.array_equal(left, image), "a guard was written"
    return results, run


def numbers(dtype: str, seed: int, n: int = 1600) -> Any:
    return np.round(2 * np.random.default_rng(seed).standard_normal(n)).astype(dtype)


def bytes_of(seed: int, n: int, dtype: str = "uint8") -> Any:
    return np.random.default_rng(seed).integers(0, 256, n * np.dtype(dtype).itemsize).astype(np.uint8).view(dtype)


def element(repeat: int, lane: int, block: int, step: int, size: int) -> int:
    """Where a lane of a repeat is; strides count 32 bytes."""
    per_block = 32 // size
    return (repeat * step + lane // per_block * block) * per_block + lane % per_block


def bit(values: Any, number: int) -> bool:
    raw = values.view(np.uint8)
    return bool(raw[number // 8] >> number % 8 & 1)


def selected(mask: Any, width: int) -> list[int]:
    if isinstance(mask, int):
        return list(range(min(mask, width)))
    return [lane for lane in range(width) if (mask[0] | mask[1] << 64) >> lane & 1]


def masks(size: int) -> st.SearchStrategy[Any]:
    """A number of lanes, or two words of bits; of neither nothing."""
    low, high = st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1) if size == 2 else st.just(0)
    return st.integers(1, 300) | st.tuples(low, high).filter(any)


strides = st.tuples(st.integers(0, 2), st.integers(0, 9))
dtypes = st.sampled_from(FLOATS)
bit_types = st.sampled_from(["uint8", "uint16", "uint32", "uint64"])


# Compare


def compared(mode: str, a: Any, b: Any, bits: Any, repeats: int, of_a: Any, of_b: Any) -> Any:
    """The target: a bit of every lane of every repeat, without gaps."""
    expected, size, width = bits.copy(), a.itemsize, 256 // a.itemsize
    raw = expected.view(np.uint8)
    for number in range(repeats * width):
        at = [element(*divmod(number, width), *strides, size) for strides in (of_a, of_b)]
        true = MODES[mode](a[at[0]], b if np.ndim(b) == 0 else b[at[1]])
        rest = int(raw[number // 8]) & ~(1 << number % 8)
        raw[number // 8] = rest | int(true) << number % 8
    return expected


@pytest.mark.adr("0310", "1.2", "5.5")
@settings(max_examples=25, deadline=None)
@given(
    dtype=dtypes, mode=st.sampled_from(list(MODES)), repeats=st.integers(1, 4), of_a=strides, of_b=strides,
    of_dst=strides, mask=masks(2), target=st.sampled_from(["uint8", "int8"]),
)  # fmt: skip
def test_compare_takes_every_lane_whatever_the_mask(
    dtype: str, mode: str, repeats: int, of_a: Any, of_b: Any, of_dst: Any, mask: Any, target: str
) -> None:
    a, b, bits = numbers(dtype, 1), numbers(dtype, 2), bytes_of(3, 96).view(target)
    mask = (mask[0] or 1, 0) if isinstance(mask, tuple) and a.itemsize == 4 else mask

    def say(asc: Any, o: Any, x: Any, y: Any) -> None:
        params = asc.BinaryRepeatParams(*[each[at] for at in (0, 1) for each in (of_dst, of_a, of_b)])
        asc.Compare(o, x, y, asc.CMPMODE[mode], mask, repeats, params)

    got, run = afterwards(say, bits, a, b)
    assert np.array_equal(got[0], compared(mode, a, b, bits, repeats, of_a, of_b))
    width = 256 // a.itemsize
    partial = len(selected(mask, width)) < width
    assert [note.kind for note in run.notes] == ["ignored-mask"] * partial


@pytest.mark.adr("0310", "5.5")
@settings(max_examples=20, deadline=None)
@given(dtype=dtypes, mode=st.sampled_from(list(MODES)), repeats=st.integers(1, 4), of_a=strides, counted=st.booleans())
def test_compare_scalar_is_compare_with_a_tensor_of_it(
    dtype: str, mode: str, repeats: int, of_a: Any, counted: bool
) -> None:
    a, bits = numbers(dtype, 1), bytes_of(3, 96)
    scalar, width = np.dtype(dtype).type(0.9999), 256 // a.itemsize
    of_a = (1, 8) if counted else of_a

    def say(asc: Any, o: Any, x: Any) -> None:
        params = asc.UnaryRepeatParams(1, of_a[0], 8, of_a[1])
        how = (repeats * width,) if counted else (width, repeats, params)
        (asc.CompareScalar if mode < "L" else asc.Compares)(o, x, 0.9999, asc.CMPMODE[mode], *how)

    got, run = afterwards(say, bits, a)
    assert np.array_equal(got[0], compared(mode, a, scalar, bits, repeats, of_a, of_a))
    assert not run.notes


def test_an_ignored_mask_is_counted_by_line_and_fails_nothing() -> None:
    def say(asc: Any, o: Any, x: Any, y: Any) -> None:
        for mask in (10, [2**64 - 1, 0], 64):
            asc.Compare(o, x, y, asc.CMPMODE.LT, mask, 2, asc.BinaryRepeatParams())
            asc.PipeBarrier(asc.PIPE_V)

    _, run = afterwards(say, bytes_of(1, 32), numbers("float16", 1), numbers("float16", 2))
    (note,) = run.notes
    assert (note.kind, note.count) == ("ignored-mask", 3)
    assert "all 128 lanes" in note.message
    assert "test_bits.py:" in note.message


def test_an_ignored_mask_of_several_blocks_is_one_note(launch: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 1024)
        t = buf.Get(asc.float32)
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.CompareScalar(t[64].ReinterpretCast(asc.uint8_t), t, 1.0, asc.CMPMODE.EQ, 8, 1)

    assert [note.count for note in launch(kernel, grid=4).run.notes] == [4]


# Select


@pytest.mark.adr("0310", "1.2", "5.4", "5.5")
@settings(max_examples=25, deadline=None)
@given(
    data=st.data(), dtype=dtypes, repeats=st.integers(1, 4), of_a=strides, of_b=strides,
    of_dst=st.tuples(st.integers(1, 2), st.integers(15, 18)), bits_type=bit_types,
    mode=st.sampled_from(["VSEL_CMPMASK_SPR", "VSEL_TENSOR_SCALAR_MODE", "VSEL_TENSOR_TENSOR_MODE"]),
)  # fmt: skip
def test_select_with_mask_repeats_and_strides(
    data: Any, dtype: str, repeats: int, of_a: Any, of_b: Any, of_dst: Any, bits_type: str, mode: str
) -> None:
    """Bits go on from repeat to repeat, masked lanes have theirs too; the register's are the same in each."""
    o, a, b = (numbers(dtype, seed) for seed in range(3))
    size, width = a.itemsize, 256 // a.itemsize
    mask, bits = data.draw(masks(size)), bytes_of(4, 8, "uint64").view(bits_type)
    scalar = mode == "VSEL_TENSOR_SCALAR_MODE"

    def say(asc: Any, o: Any, bits: Any, x: Any, y: Any) -> None:
        params = asc.BinaryRepeatParams(*[each[at] for at in (0, 1) for each in (of_dst, of_a, of_b)])
        asc.Select(o, bits, x, -9.0 if scalar else y, asc.SELMODE[mode], mask, repeats, params)

    got, _ = afterwards(say, o, bits, a, b)
    for repeat in range(repeats):
        for lane in selected(mask, width):
            from_a, from_b = (element(repeat, lane, *strides, size) for strides in (of_a, of_b))
            number = lane if mode == "VSEL_CMPMASK_SPR" else repeat * width + lane
            other = -9.0 if scalar else b[from_b]
            o[element(repeat, lane, *of_dst, size)] = a[from_a] if bit(bits, number) else other
    assert np.array_equal(got[0], o)


@pytest.mark.adr("0310", "5.5")
@settings(max_examples=20, deadline=None)
@given(dtype=dtypes, count=st.integers(1, 400), bits_type=bit_types)
def test_select_of_a_count_by_the_register_takes_the_first_bits_again(dtype: str, count: int, bits_type: str) -> None:
    o, a, b = (numbers(dtype, seed) for seed in range(3))
    bits, width = bytes_of(4, 8, "uint64").view(bits_type), 256 // a.itemsize
    got, _ = afterwards(lambda asc, *t: asc.Select(*t, asc.SELMODE.VSEL_CMPMASK_SPR, count), o, bits, a, b)
    o[:count] = [a[at] if bit(bits, at % width) else b[at] for at in range(count)]
    assert np.array_equal(got[0], o)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 600), min_size=1, unique=True), st.sampled_from([1, 2, 4, 8]))
def test_packed_bits_are_their_exact_bytes(bits: list[int], size: int) -> None:
    access = geometry.packed(np.array(bits), size)
    assert {at for lo, hi in access.ranges for at in range(lo, hi)} == {each // 8 for each in bits}
    assert (access.need - 1) * size <= max(bits) // 8 < access.need * size
    assert all(hi < lo for (_, hi), (lo, _) in zip(access.ranges, access.ranges[1:], strict=False))


@pytest.mark.adr("0310", "2.5")
def test_only_bytes_with_bits_of_selected_lanes_are_read(ub: Any) -> None:
    """8 lanes take one byte of a wide mask: the bytes behind it need not hold anything."""

    def body(lanes: int, asc: Any, t: Any) -> None:
        bits = t.ReinterpretCast(asc.uint8_t)
        bits.SetValue(0, 0x0F)
        asc.Duplicate(t[64], 1.0, 64)
        asc.PipeBarrier(asc.PIPE_ALL)
        wide = t.ReinterpretCast(asc.uint64_t)
        asc.Select(t[128], wide, t[64], 2.0, asc.SELMODE.VSEL_TENSOR_SCALAR_MODE, lanes, 1, asc.BinaryRepeatParams())

    assert ub(lambda asc, t: body(8, asc, t)).kinds == []
    assert ub(lambda asc, t: body(9, asc, t)).kinds == ["uninitialised-read"]


@pytest.mark.adr("0310", "3.5")
@pytest.mark.parametrize("mode", ["VSEL_CMPMASK_SPR", "VSEL_TENSOR_TENSOR_MODE"])
def test_a_select_waits_for_its_compare(mode: str, ub: Any) -> None:
    def body(barrier: bool, asc: Any, t: Any) -> None:
        asc.Duplicate(t[64], 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        bits = t.ReinterpretCast(asc.uint8_t)
        asc.Compare(bits, t[64], t[64], asc.CMPMODE.EQ, 64, 1, asc.BinaryRepeatParams())
        if barrier:
            asc.PipeBarrier(asc.PIPE_V)
        asc.Select(t[128], bits, t[64], t[64], asc.SELMODE[mode], 64, 1, asc.BinaryRepeatParams())

    assert ub(lambda asc, t: body(True, asc, t)).kinds == []
    assert ub(lambda asc, t: body(False, asc, t)).kinds == ["race-raw"]


# ReduceSum


def tree(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    return tree([one + other for one, other in zip(values[::2], values[1::2], strict=True)])


@pytest.mark.adr("0310", "1.2")
@settings(max_examples=25, deadline=None)
@given(data=st.data(), dtype=dtypes, repeats=st.integers(1, 70), step=st.integers(0, 9), shared=st.booleans())
def test_reduce_sum_of_repeats_sums_them_and_then_their_sums(
    data: Any, dtype: str, repeats: int, step: int, shared: bool
) -> None:
    a, work, o = numbers(dtype, 1, 12_000) * np.dtype(dtype).type(0.37), numbers(dtype, 2, 96), numbers(dtype, 3, 16)
    size, width, zero = a.itemsize, 256 // a.itemsize, np.dtype(dtype).type(0)
    mask = data.draw(masks(size))

    def say(asc: Any, o: Any, x: Any, work: Any) -> None:
        asc.ReduceSum(work if shared else o, x, work, mask, repeats, step)
        asc.PipeBarrier(asc.PIPE_V)
        asc.Duplicate(work[32 // size] if shared else work, 0.0, 96 - 32 // size)

    got, _ = afterwards(say, o, a, work, check="collect")
    lanes = set(selected(mask, width))
    left = [
        tree([a[element(repeat, lane, 1, step, size)] if lane in lanes else zero for lane in range(width)])
        for repeat in range(repeats)
    ]
    while len(left) > 1:
        left += [zero] * (-len(left) % width)
        left = [tree(left[first : first + width]) for first in range(0, len(left), width)]
    assert (got[2] if shared else got[0])[0] == left[0]


@pytest.mark.adr("0310", "2.5")
def test_the_sum_may_lie_in_its_own_work_buffer(ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 64)
        asc.PipeBarrier(asc.PIPE_V)
        asc.ReduceSum(t[64], t, t[64], 64, 1, 8)
        asc.PipeBarrier(asc.PIPE_ALL)
        assert t.GetValue(64) == 64

    assert ub(body).kinds == []


@pytest.mark.adr("0310", "5.4")
def test_a_work_buffer_over_the_source_is_an_illegal_overlap(ub: Any) -> None:
    def body(room: int, asc: Any, t: Any) -> None:
        asc.Duplicate(t, 1.0, 128)
        asc.PipeBarrier(asc.PIPE_V)
        asc.ReduceSum(t[256], t, t[room], 128)

    assert ub(lambda asc, t: body(120, asc, t)).kinds == ["illegal-overlap"]
    assert ub(lambda asc, t: body(128, asc, t)).kinds == []


# Refusals

REGISTER, SCALAR = "VSEL_CMPMASK_SPR", "VSEL_TENSOR_SCALAR_MODE"


def compare(asc: Any, *given: Any) -> None:
    asc.Compare(*given[:3], asc.CMPMODE.LT, *given[3:])


def compare_scalar(asc: Any, *given: Any) -> None:
    asc.CompareScalar(*given[:3], asc.CMPMODE.LT, *given[3:])


def select(asc: Any, mode: str, *given: Any) -> None:
    asc.Select(*given[:4], asc.SELMODE[mode], *given[4:])


def of(tensor: Any, kind: str) -> Any:
    return tensor.ReinterpretCast(getattr(tensor.asc, kind))


REFUSED: list[tuple[str, str, Any]] = [
    ("unsupported", "go to a register", lambda a, t, b: a.Compare(t, t, a.CMPMODE.LT, 64, a.BinaryRepeatParams())),
    ("unsupported", "no Compare of half, float", lambda a, t, b: compare(a, of(t, "half"), t, t, 64)),
    ("unsupported", "no CompareScalar of int8_t", lambda a, t, b: compare_scalar(a, of(t, "int8_t"), t, 0, 64)),
    ("unsupported", "no Select of float, int8_t", lambda a, t, b: select(a, REGISTER, t, of(t, "int8_t"), t, t, 64)),
    ("unsupported", "no Select of int32_t",
     lambda a, t, b: select(a, SCALAR, of(t, "int32_t"), b, of(t, "int32_t"), 1, 8)),
    ("unsupported", "mode 2", lambda a, t, b: a.Select(t, b, t, t, 2, 64)),
    ("unsupported", "no And of float", lambda a, t, b: a.And(t, t, t, 64)),
    ("unsupported", "no Not of int32_t", lambda a, t, b: a.Not(of(t, "int32_t"), of(t, "int32_t"), 64)),
    ("bad-parameter", "cmpMode is 0", lambda a, t, b: a.Compare(b, t, t, 0, 64)),
    ("bad-parameter", "whole repeats", lambda a, t, b: compare_scalar(a, b, t, 1.0, 65)),
    ("bad-parameter", "selects no lane", lambda a, t, b: compare(a, b, t, t, 0, 1)),
    ("bad-parameter", "high word", lambda a, t, b: compare(a, b, t, t, [1, 1], 1)),
    ("bad-parameter", "repeatTime is 256", lambda a, t, b: compare(a, b, t, t, 64, 256)),
    ("bad-parameter", "repeatTime is 0", lambda a, t, b: select(a, REGISTER, t, b, t, t, 64, 0)),
    ("bad-parameter", "give asc.UnaryRepeatParams",
     lambda a, t, b: compare_scalar(a, b, t, 1.0, 64, 1, a.BinaryRepeatParams())),
    ("bad-parameter", "give asc.BinaryRepeatParams",
     lambda a, t, b: select(a, SCALAR, t, b, t, 1.0, 64, 1, a.UnaryRepeatParams())),
    ("bad-parameter", "src0RepStride is 256",
     lambda a, t, b: compare(a, b, t, t, 64, 2, a.BinaryRepeatParams(src0RepStride=256))),
    ("bad-parameter", "write the same bytes",
     lambda a, t, b: select(a, REGISTER, t, b, t, t, 64, 2, a.BinaryRepeatParams(dstRepStride=0))),
    ("bad-parameter", "all blocks go to one",
     lambda a, t, b: select(a, REGISTER, t, b, t, t, 64, 2, a.BinaryRepeatParams(0))),
    ("bad-parameter", "the scalar is None", lambda a, t, b: compare_scalar(a, b, t, None, 64)),
    ("bad-parameter", "srcRepStride is 65536", lambda a, t, b: a.ReduceSum(t[64], t, t[128], 64, 2, 65_536)),
    ("out-of-bounds", "src1 has 64 elements, the call takes 65",
     lambda a, t, b: a.ReduceSum(t[8], t, t[1984], 8, 65, 0)),
    ("out-of-bounds", "src0 has 4 elements, the call takes 8",
     lambda a, t, b: select(a, REGISTER, t, b[8188], t, t, 64)),
    ("misaligned", "4 past a multiple of 32", lambda a, t, b: compare(a, b[4], t, t, 64, 1)),
]  # fmt: skip


@pytest.mark.adr("0310", "1.4", "2.7")
@pytest.mark.parametrize(("kind", "words", "say"), REFUSED, ids=[f"{kind}: {words}" for kind, words, _ in REFUSED])
def test_what_the_chip_does_not_take_is_refused_with_numbers(kind: str, words: str, say: Any, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 8192)
        say(asc, buf.Get(asc.float32), buf.Get(asc.uint8_t))

    assert words in refusal(kernel, kind)
