"""Operands share their bytes exactly or not at all: the same lanes in the same repeats, and repeats pile up in src1."""

from typing import Any

import pytest


def filled(asc: Any, t: Any) -> None:
    asc.Duplicate(t, 1.0, 4096)
    asc.PipeBarrier(asc.PIPE_V)


@pytest.mark.adr("0310", "5.4")
@pytest.mark.parametrize(
    ("strides", "kinds"),
    [
        ((1, 1, 8, 8), []),
        ((8, 8, 1, 1), []),
        ((1, 8, 8, 1), ["illegal-overlap"]),  # the same bytes, turned round: repeats read what others write
        ((8, 1, 1, 8), ["illegal-overlap"]),
    ],
)
def test_the_same_bytes_in_another_order_are_no_exact_overlap(strides: Any, kinds: list[str], ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        filled(asc, t)
        asc.Muls(t, t, 2.0, 64, 8, asc.UnaryRepeatParams(*strides))

    assert ub(body).kinds == kinds


@pytest.mark.adr("0310", "5.4")
@pytest.mark.parametrize(("src0", "kinds"), [(64, []), (0, ["illegal-overlap"])])
def test_a_pile_takes_its_total_from_src1_alone(src0: int, kinds: list[str], ub: Any) -> None:
    def body(asc: Any, t: Any) -> None:
        filled(asc, t)
        asc.Add(t, t[src0], t, 64, 4, asc.BinaryRepeatParams(1, 1, 1, 0, 8, 0))

    assert ub(body).kinds == kinds


@pytest.mark.adr("0310", "5.4")
@pytest.mark.parametrize(("src1", "stride"), [(64, 1), (0, 2)])
def test_repeats_that_write_one_place_need_it_as_src1(src1: int, stride: int, refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 16384)
        t = buf.Get(asc.float32)
        asc.Add(t, t[1024], t[src1], 64, 4, asc.BinaryRepeatParams(1, 1, stride, 0, 8, 0))

    assert "dstRepStride is 0, dst starts at UB[0]" in refusal(kernel, "bad-parameter")


@pytest.mark.adr("0310", "5.4")
def test_int16_does_not_pile_up(refusal: Any) -> None:
    def kernel(*, asc: Any) -> None:
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 16384)
        t = buf.Get(asc.int16_t)
        asc.Add(t, t[1024], t, 128, 4, asc.BinaryRepeatParams(1, 1, 1, 0, 8, 0))

    assert "lets repeats write the same bytes" in refusal(kernel, "bad-parameter")
