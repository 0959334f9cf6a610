"""Wrong uses of MATH calls: refused at the kernel's own line, naming the call, both sides and a remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.ones((4, 4), np.float32)
NAN = float("nan")
HUGE = 10**400
Call = Callable[..., Any]

# what is wrong -> (the call, kind, words of the message)
OPERANDS: dict[str, tuple[Call, str]] = {
    "a string": (lambda tl, p, h: tl.maximum(h, "2"), "tl.maximum got a str handle number"),
    "nothing": (lambda tl, p, h: h + None, "tl.add got a NoneType handle number"),
    "a string on the left": (lambda tl, p, h: "2" * h, "tl.mul got a str handle number"),
    "a list": (lambda tl, p, h: tl.minimum([1.0], h), "tl.minimum got a list"),
    "a numpy array": (lambda tl, p, h: h - np.ones((4, 4)), "tl.sub got a ndarray"),
    "a numpy array on the left": (lambda tl, p, h: np.ones((4, 4)) - h, "tl.sub got a ndarray"),
    "a complex number": (lambda tl, p, h: h / 1j, "tl.div got a complex"),
    "a truth": (lambda tl, p, h: h * True, "tl.mul got a bool"),
    "a pointer": (lambda tl, p, h: h + p, "tl.add got a Pointer"),
    "a ref": (lambda tl, p, h: tl.maximum(h, tl.ref(p, (4, 4))), "tl.maximum got a Block"),
    "a number beyond float32": (lambda tl, p, h: tl.add(h, HUGE), "tl.add float32"),
    "two numbers": (lambda tl, p, h: tl.maximum(5, 6), "tl.maximum handle"),
    "exp of a number": (lambda tl, p, h: tl.exp(5), "tl.exp handle"),
    "exp of a pointer": (lambda tl, p, h: tl.exp(p), "tl.exp got a Pointer"),
    "log of nothing": (lambda tl, p, h: tl.log(None), "tl.log got a NoneType"),
    "where without a handle": (lambda tl, p, h: tl.where(1, 2, 3), "tl.where handle"),
    "where of a string": (lambda tl, p, h: tl.where(h, "a", 0), "tl.where got a str"),
    "a cast of a number": (lambda tl, p, h: tl.cast(1.0, "bfloat16"), "tl.cast got a float handle"),
    "a cast to float64": (
        lambda tl, p, h: tl.cast(h, "float64"),
        "tl.cast 'float64' bfloat16, float16, float32, uint8",
    ),
    "a cast to nothing": (lambda tl, p, h: tl.cast(h, None), "tl.cast None bfloat16"),
    "a cast to nonsense": (lambda tl, p, h: tl.cast(h, "f4,,"), "tl.cast 'f4,,' bfloat16"),
    "a cast to what no dtype is": (lambda tl, p, h: tl.cast(h, (np.void, -1)), "tl.cast bfloat16"),
    "max of a number": (lambda tl, p, h: tl.max(5), "tl.max got a int handle"),
    "sum of a ref": (lambda tl, p, h: tl.sum(tl.ref(p, (4, 4))), "tl.sum got a Block handle"),
    "an axis too many": (lambda tl, p, h: tl.max(h, axis=2), "tl.max axis 2 2 axes"),
    "an axis too few": (lambda tl, p, h: tl.sum(h, -3), "tl.sum axis -3 2 axes"),
    "all axes at once": (lambda tl, p, h: tl.sum(h, None), "tl.sum axis None 2 axes"),
    "half an axis": (lambda tl, p, h: tl.max(h, 0.5), "tl.max axis 0.5 2 axes"),
    "an axis by name": (lambda tl, p, h: tl.max(h, "row"), "tl.max axis 'row' 2 axes"),
    "softmax of a number": (lambda tl, p, h: tl.softmax(5), "tl.softmax got a int"),
    "softmax along axis 3": (lambda tl, p, h: tl.softmax(h, axis=3), "tl.softmax axis 3 2 axes"),
    "softmax of a pointer": (lambda tl, p, h: tl.softmax(p), "tl.softmax got a Pointer"),
    "iota of no axis it has": (lambda tl, p, h: tl.iota((4, 4), 2), "tl.iota axis 2 (4, 4)"),
    "iota along half an axis": (lambda tl, p, h: tl.iota((4, 4), 0.5), "tl.iota axis 0.5"),
    "iota from a string": (lambda tl, p, h: tl.iota((4, 4), 0, "a"), "tl.iota got a str"),
    "iota beyond what float32 counts": (
        lambda tl, p, h: tl.iota((4, 4), 0, 2**24 - 2),
        "tl.iota 1.67772e+07 exact up to 16777216",
    ),
    "iota of nan": (lambda tl, p, h: tl.iota((4,), 0, float("nan")), "tl.iota nan exact up to"),
    "reshape to fewer": (lambda tl, p, h: tl.reshape(h, (3, 5)), "tl.reshape 15 elements as many"),
    "reshape of a number": (lambda tl, p, h: tl.reshape(5, (5,)), "tl.reshape got 5 handle"),
    "reshape to no shape": (lambda tl, p, h: tl.reshape(h, (-1,)), "tl.reshape (-1,)"),
    "reshape of a transposed": (
        lambda tl, p, h: tl.reshape(tl.trans(h), h.shape),
        "tl.reshape transposed not in order reshape first",
    ),
    "rows past the end": (lambda tl, p, h: tl.rows(h, 3, 2), "tl.rows 3 2 (4, 4)"),
    "rows before the start": (lambda tl, p, h: tl.rows(h, -1, 2), "tl.rows -1 2 (4, 4)"),
    "no rows": (lambda tl, p, h: tl.rows(h, 0, 0), "tl.rows 0 0 at least one"),
    "rows of a number": (lambda tl, p, h: tl.rows(5, 0, 1), "tl.rows got 5 handle"),
    "half a row": (lambda tl, p, h: tl.rows(h, 0.5, 1), "tl.rows 0.5 1 (4, 4)"),
    "rows of a transposed": (lambda tl, p, h: tl.rows(tl.trans(h), 0, 1), "tl.rows transposed tl.trans"),
    "trans of one axis": (lambda tl, p, h: tl.trans(tl.zeros((4,))), "tl.trans (4,) two axes"),
    "trans of three axes": (lambda tl, p, h: tl.trans(tl.zeros((2, 2, 2))), "tl.trans (2, 2, 2) two axes"),
    "trans of a number": (lambda tl, p, h: tl.trans(5), "tl.trans 5 two axes"),
    "a truth of a handle": (lambda tl, p, h: bool(h > 2), "tl.where"),
    "an if of a handle": (lambda tl, p, h: 1 if h > 2 else 0, "tl.where"),
    "a handle compared for equality": (lambda tl, p, h: h == 2, "=="),
    "a handle compared for difference": (lambda tl, p, h: h != 2, "!="),
}

SHAPES: dict[str, tuple[Call, str]] = {
    "an axis is missing": (lambda tl, p, h: h + tl.zeros((4,)), "tl.add (4, 4) (4,) same number of axes"),
    "an axis too many": (lambda tl, p, h: h * tl.zeros((1, 4, 4)), "tl.mul (4, 4) (1, 4, 4) same number of axes"),
    "sizes differ": (lambda tl, p, h: tl.maximum(h, tl.zeros((3, 4))), "tl.maximum (4, 4) (3, 4) write a 1"),
    "sizes differ by a factor": (lambda tl, p, h: h - tl.zeros((2, 4)), "tl.sub (4, 4) (2, 4) write a 1"),
    "where": (lambda tl, p, h: tl.where(h, tl.zeros((4, 3)), 0), "tl.where (4, 4) (4, 3)"),
    "broadcast of what is no 1": (lambda tl, p, h: tl.broadcast(h, (4, 8)), "tl.broadcast (4, 4) (4, 8)"),
    "broadcast to fewer": (lambda tl, p, h: tl.broadcast(h, (1, 4)), "tl.broadcast (4, 4) (1, 4)"),
    "broadcast to another rank": (lambda tl, p, h: tl.broadcast(h, (1, 4, 4)), "tl.broadcast (4, 4) (1, 4, 4)"),
    "broadcast of a number": (lambda tl, p, h: tl.broadcast(5, (4, 4)), "tl.broadcast got a int"),
    "broadcast to a string": (lambda tl, p, h: tl.broadcast(h, "44"), "tl.broadcast '44' whole numbers"),
    "out= of another shape": (lambda tl, p, h: tl.exp(h, out=tl.zeros((4, 1))), "tl.exp (4, 4) (4, 1) out="),
    "out= larger than the result": (lambda tl, p, h: tl.max(h, out=h), "tl.max (4, 1) (4, 4) out="),
    "out= that would be broadcast to": (
        lambda tl, p, h: tl.add(tl.zeros((1, 4)), 1, out=h), "tl.add (1, 4) (4, 4) out="),
    "out= is a number": (lambda tl, p, h: tl.add(h, h, out=5), "tl.add out= int handle"),
    "out= is a pointer": (lambda tl, p, h: tl.add(h, h, out=p), "tl.add out= Pointer handle"),
    "assign to another shape": (lambda tl, p, h: tl.assign(h, tl.zeros((4, 1))), "tl.assign (4, 1) (4, 4)"),
    "assign to nothing": (lambda tl, p, h: tl.assign(None, h), "tl.assign NoneType handle"),
    "assign to a pointer": (lambda tl, p, h: tl.assign(p, h), "tl.assign Pointer handle"),
    "assign of a number": (lambda tl, p, h: tl.assign(h, 5), "tl.assign got a int handle"),
    "zeros of nothing": (lambda tl, p, h: tl.zeros(None), "tl.zeros None whole numbers"),
    "zeros of no elements": (lambda tl, p, h: tl.zeros((4, 0)), "tl.zeros (4, 0) whole numbers > 0"),
    "zeros of less": (lambda tl, p, h: tl.zeros(-1), "tl.zeros -1 whole numbers > 0"),
    "zeros of half a row": (lambda tl, p, h: tl.zeros((0.5, 4)), "tl.zeros (0.5, 4) whole numbers > 0"),
    "zeros of not a number": (lambda tl, p, h: tl.zeros((NAN,)), "tl.zeros (nan,) whole numbers > 0"),
    "zeros of a dtype there is not": (lambda tl, p, h: tl.zeros((4,), "int3"), "tl.zeros 'int3' bfloat16"),
    "full of a string": (lambda tl, p, h: tl.full((4,), "1"), "tl.full got a str"),
    "full of a handle": (lambda tl, p, h: tl.full((4,), h), "tl.full got a Handle number"),
    "full of nothing": (lambda tl, p, h: tl.full((4,), None), "tl.full got a NoneType"),
    "full beyond float32": (lambda tl, p, h: tl.full((4,), HUGE), "tl.full float32"),
    "full of what no byte holds": (lambda tl, p, h: tl.full((4,), 300, "uint8"), "tl.full 300 uint8"),
    "full of less than a byte": (lambda tl, p, h: tl.full((4,), -1, "uint8"), "tl.full -1 uint8"),
    "full of no byte": (lambda tl, p, h: tl.full((4,), NAN, "uint8"), "tl.full nan uint8"),
    "empty of nothing": (lambda tl, p, h: tl.empty(()), "tl.empty () whole numbers > 0"),
    "empty of a dtype there is not": (lambda tl, p, h: tl.empty((4,), "x"), "tl.empty 'x' bfloat16"),
}  # fmt: skip

OTHERS: dict[str, tuple[Call, str]] = {
    "axis 2 of the grid": (lambda tl, p, h: tl.program_id(2), "tl.program_id axis 2"),
    "axis 2 of the sizes": (lambda tl, p, h: tl.num_programs(2), "tl.num_programs axis 2"),
    "half an axis of the grid": (lambda tl, p, h: tl.program_id(0.5), "tl.program_id axis 0.5"),
    "one axis as a float": (lambda tl, p, h: tl.program_id(1.0), "tl.program_id axis 1.0"),
    "an axis by name": (lambda tl, p, h: tl.num_programs("pe"), "tl.num_programs axis 'pe'"),
    "an axis in a list": (lambda tl, p, h: tl.num_programs([0]), "tl.num_programs axis [0]"),
    "a wait for a number": (lambda tl, p, h: tl.wait(5), "tl.wait got a int"),
    "a wait for a list": (lambda tl, p, h: tl.wait([h]), "tl.wait got a list"),
    "a wait for a pointer": (lambda tl, p, h: tl.wait(p), "tl.wait got a Pointer"),
    "a wait for nothing": (lambda tl, p, h: tl.wait(None), "tl.wait got a NoneType"),
    "a region without a name": (lambda tl, p, h: tl.region(None), "tl.region None"),
    "a region with a list": (lambda tl, p, h: tl.region([]), "tl.region []"),
    "a region with a number": (lambda tl, p, h: tl.region(5), "tl.region 5"),
}


@pytest.mark.parametrize(("call", "said"), OPERANDS.values(), ids=OPERANDS)
def test_a_wrong_operand_is_refused(refusal: Any, call: Call, said: str) -> None:
    check(refusal, call, said)


@pytest.mark.parametrize(("call", "said"), SHAPES.values(), ids=SHAPES)
def test_a_wrong_shape_is_refused(refusal: Any, call: Call, said: str) -> None:
    check(refusal, call, said)


@pytest.mark.parametrize(("call", "said"), OTHERS.values(), ids=OTHERS)
def test_a_wrong_word_is_refused(refusal: Any, call: Call, said: str) -> None:
    check(refusal, call, said)


def check(refusal: Any, call: Call, said: str) -> None:
    """Refused with and without data, as the same, and without a word from inside."""

    def kernel(x: Any, *, tl: Any) -> None:
        call(tl, x, tl.wait(tl.load(x, (4, 4))))

    messages = [refusal(kernel, "bad-parameter", x=X, data=data) for data in (True, False)]
    assert messages[0] == messages[1]
    assert [word for word in said.split() if word not in messages[0]] == []


def test_a_column_where_it_would_match_silently(refusal: Any, launch: Any) -> None:
    """ADR-0061: with as many rows as columns, a maximum of shape (M,) would go along the wrong axis."""

    def wrong(x: Any, *, tl: Any) -> None:
        h = tl.load(x, (4, 4))
        h - tl.zeros((4,))

    def right(x: Any, *, tl: Any) -> None:
        h = tl.load(x, (4, 4))
        h - tl.max(h)

    assert launch(right, x=X, check=True).kinds == []
    assert "shapes (4, 4) and (4,) do not broadcast" in refusal(wrong, "bad-parameter", x=X)


@pytest.mark.parametrize("size", [(1 << 20, 1), (1 << 70,)])
def test_scratch_that_is_full_says_how_full(refusal: Any, size: tuple[int, ...]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.zeros((16,))
        tl.full(size, 1.0)

    message = refusal(kernel, "capacity", x=X)
    asked = 4 * int(np.prod([int(n) for n in size], dtype=object))
    assert "tl.full of PE0 at" in message
    assert f"scratch of PE0 holds 1048576 bytes, 64 are taken, {asked} more were asked for ({size} float32)" in message


@pytest.mark.parametrize("sizes", [(np.int64(4), np.int32(4)), [4, 4], np.array([4, 4]).tolist()], ids=repr)
def test_sizes_may_be_any_whole_numbers(launch: Any, sizes: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        h = tl.load(x, sizes)
        z = tl.zeros(sizes)
        assert h.shape == z.shape == (4, 4)
        h + z + np.float32(1) + np.int64(2)
        np.float64(2) * h

    assert launch(kernel, x=X, check=True).kinds == []
