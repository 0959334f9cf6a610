"""Wrong uses of composite and dot: operands that only happen to fit, dtypes, epilogues, targets (ADR-0014)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.ones((64, 64), np.float32)
Call = Callable[..., Any]


def gemm(tl: Any, a: Any, b: Any, **given: Any) -> Any:
    return tl.composite("gemm", a, b, **{"trans_b": False, **given})


# what is wrong -> (the call, words of the message); a is (4, 8), b (8, 6), s (8, 8) square, all float32
OPERANDS: dict[str, tuple[Call, str]] = {
    "a is a ref": (lambda tl, p, a, b, s: gemm(tl, tl.ref(p, (4, 8)), b), "tl.composite got a Block handle"),
    "a is a number": (lambda tl, p, a, b, s: gemm(tl, 5, b), "tl.composite got a int handle"),
    "a is nothing": (lambda tl, p, a, b, s: gemm(tl, None, b), "tl.composite got a NoneType handle"),
    "b is a pointer": (lambda tl, p, a, b, s: gemm(tl, a, p), "tl.composite b Pointer tl.ref"),
    "b is a number": (lambda tl, p, a, b, s: gemm(tl, a, 5), "tl.composite b int tl.ref"),
    "b is an array": (lambda tl, p, a, b, s: gemm(tl, a, np.ones((8, 6))), "tl.composite b ndarray tl.ref"),
    "a dot of a ref": (lambda tl, p, a, b, s: tl.dot(a, tl.ref(p, (8, 6))), "tl.dot got a Block handle"),
    "a dot of a pointer": (lambda tl, p, a, b, s: tl.dot(a, p), "tl.dot got a Pointer handle"),
    "a dot of a number": (lambda tl, p, a, b, s: tl.dot(2, b), "tl.dot got a int handle"),
    "K differs": (lambda tl, p, a, b, s: gemm(tl, a, tl.ref(p, (7, 6))), "(4, 8) (7, 6) 8 with 7 share K"),
    "K differs in a dot": (lambda tl, p, a, b, s: tl.dot(a, a), "tl.dot (4, 8) 8 with 4 trans_b=True"),
    "b is transposed": (lambda tl, p, a, b, s: gemm(tl, a, tl.ref(p, (6, 8))), "(4, 8) (6, 8) 8 with 6 trans_b=True"),
    "b is not transposed": (lambda tl, p, a, b, s: gemm(tl, a, b, trans_b=True), "(8, 6) 8 with 6 trans_b=False"),
    "a has one axis": (lambda tl, p, a, b, s: gemm(tl, tl.zeros((8,)), b), "(8,) (8, 6) two matrices"),
    "b has one axis": (lambda tl, p, a, b, s: gemm(tl, a, tl.ref(p, (8,))), "(4, 8) (8,) two matrices"),
    "b has three": (lambda tl, p, a, b, s: tl.dot(a, tl.zeros((1, 8, 6))), "tl.dot (4, 8) (1, 8, 6) two matrices"),
    "b is square": (lambda tl, p, a, b, s: tl.composite("gemm", a, s), "square (8, 8) trans_b=True trans_b=False"),
    "a streamed square": (
        lambda tl, p, a, b, s: tl.composite("gemm", a, tl.ref(p, (8, 8))), "square (8, 8) trans_b=True trans_b=False"),
    "a square in a dot": (lambda tl, p, a, b, s: tl.dot(a, s), "tl.dot square (8, 8) trans_b=True"),
    "TILE equals d": (lambda tl, p, a, b, s: tl.composite("gemm", s, s), "square (8, 8) trans_b=True"),
    "a says it in words": (lambda tl, p, a, b, s: gemm(tl, a, b, trans_b="no"), "tl.composite trans_b 'no' True False"),
    "a dot says it in words": (lambda tl, p, a, b, s: tl.dot(a, b, trans_b="no"), "tl.dot trans_b 'no' True False"),
    "b is narrower": (lambda tl, p, a, b, s: gemm(tl, a, tl.cast(b, "bfloat16")), "float32 tl.cast a bfloat16"),
    "a is narrower": (lambda tl, p, a, b, s: gemm(tl, tl.cast(a, "bfloat16"), b), "float32 tl.cast b bfloat16"),
    "two narrow ones": (
        lambda tl, p, a, b, s: tl.dot(tl.cast(a, "float16"), tl.cast(b, "bfloat16")), "float16 bfloat16 tl.cast"),
    "masks": (lambda tl, p, a, b, s: gemm(tl, a > 0, b > 0), "tl.composite uint8"),
    "a dot of masks": (lambda tl, p, a, b, s: tl.dot(a > 0, b > 0), "tl.dot uint8"),
    "out of another shape": (lambda tl, p, a, b, s: gemm(tl, a, b, out=a), "(4, 6) (4, 8) out="),
    "out is a ref": (lambda tl, p, a, b, s: gemm(tl, a, b, out=tl.ref(p, (4, 6))), "out= Block"),
    "out is a number": (lambda tl, p, a, b, s: gemm(tl, a, b, out=5), "out= int"),
    "out is a mask": (lambda tl, p, a, b, s: gemm(tl, a, b, out=tl.empty((4, 6), "uint8")), "uint8 float32"),
}  # fmt: skip

EPILOGUES: dict[str, tuple[Any, str]] = {
    "no list": (5, "epilogue 5"),
    "nothing": (None, "epilogue None"),
    "one step without its tuple": (("scale", 2.0), "epilogue 'scale' scale bias add relu"),
    "a string": ("relu", "epilogue='relu' (\"relu\",)"),
    "a step there is not": ((("exp",),), "epilogue ('exp',) scale bias add relu"),
    "a list for a step": ([["scale", 3.0]], "epilogue ['scale', 3.0] scale bias add relu"),
    "an empty step": (((),), "epilogue () scale bias add relu"),
    "a list for a name": ((([],),), "epilogue scale bias add relu"),
    "a number for a name": (((5, 2.0),), "epilogue (5, 2.0) scale bias add relu"),
    "scale by nothing": ((("scale",),), "epilogue ('scale',) scale"),
    "scale by two": ((("scale", 1, 2),), "epilogue ('scale', 1, 2)"),
    "scale by a string": ((("scale", "2"),), "scale got a str number"),
    "scale by nothing at all": ((("scale", None),), "scale got a NoneType number"),
    "scale by a truth": ((("scale", True),), "scale got a bool number"),
    "scale by too much": ((("scale", 10**400),), "float32"),
    "scale by a handle": (lambda h: (("scale", h),), "scale got a Handle number"),
    "bias by a number": ((("bias", 2.0),), "bias got a float handle"),
    "bias of all rows": (lambda h: (("bias", h),), "bias (4, 6) (1, 6)"),
    "relu of something": (lambda h: (("relu", h),), "epilogue relu"),
    "add of a number": ((("add", 1.0),), "add got a float handle"),
}


def refused(refusal: Any, call: Call, said: str) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        a, b, s = tl.zeros((4, 8)), tl.zeros((8, 6)), tl.zeros((8, 8))
        call(tl, x, a, b, s)

    messages = [refusal(kernel, "bad-parameter", x=X, data=data) for data in (True, False)]
    assert messages[0] == messages[1]
    assert [word for word in said.split() if word not in messages[0]] == []


@pytest.mark.parametrize(("call", "said"), OPERANDS.values(), ids=OPERANDS)
def test_a_wrong_operand_is_refused(refusal: Any, call: Call, said: str) -> None:
    refused(refusal, call, said)


@pytest.mark.parametrize(("steps", "said"), EPILOGUES.values(), ids=EPILOGUES)
def test_a_wrong_epilogue_is_refused(refusal: Any, steps: Any, said: str) -> None:
    def call(tl: Any, p: Any, a: Any, b: Any, s: Any) -> None:
        gemm(tl, a, b, epilogue=steps(tl.zeros((4, 6))) if callable(steps) else steps)

    refused(refusal, call, f"composite {said}")


@pytest.mark.parametrize("kind", ["softmax", "GEMM", "", None, 5, [], np.zeros(3)], ids=repr)
def test_another_kind_of_composite_is_refused_by_name(refusal: Any, kind: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.composite(kind, tl.zeros((4, 8)), tl.ref(x, (8, 6)))

    message = refusal(kernel, "unsupported", x=X)
    assert "tl.composite of PE0" in message
    assert '"gemm"' in message


def test_a_result_that_does_not_fit_the_tensor_behind_out(refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        gemm(tl, tl.zeros((4, 8)), tl.zeros((8, 6)), out=x + (64 * 64 - 10))

    message = refusal(kernel, "out-of-bounds", x=X)
    assert "tl.composite of PE0" in message
    assert "elements 4086..4109 of x, which has 4096" in message


def test_a_result_that_does_not_fit_the_scratch(refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        gemm(tl, tl.zeros((32, 8)), tl.ref(x, (8, 64)))

    message = refusal(kernel, "capacity", x=X, spec={"scratch_bytes": 4096})
    assert "tl.composite of PE0" in message
    assert "holds 4096 bytes, 1024 are taken, 8192 more were asked for ((32, 64) float32)" in message


# Axes that have names (R1)


@pytest.fixture
def chip() -> Any:
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip

    return AhbmChip()


def scores(chip: Any, call: Call, k_axes: tuple[str, ...]) -> Any:
    """Q K^T with as many tokens as channels: only names can tell which axis is which."""
    q = chip.tensor("Q", (8, 16), "float32", np.ones((8, 16)), 0, axes=("row", "d"))
    k = chip.tensor("K", (16, 16), "float32", np.ones((16, 16)), 0, axes=k_axes)

    def kernel(q: Any, k: Any, *, tl: Any) -> None:
        call(tl, tl.load(q, (8, 16)), tl.ref(k, (16, 16)), tl.load(k, (16, 16)))

    return chip.run(kernel, q, k, check="collect")


WRONG_WAY: list[Call] = [
    lambda tl, q, ref, k: tl.composite("gemm", q, ref, trans_b=False),
    lambda tl, q, ref, k: tl.composite("gemm", q, k, trans_b=False),
    lambda tl, q, ref, k: tl.dot(q, k, trans_b=False),
    lambda tl, q, ref, k: tl.dot(q, tl.trans(k), trans_b=True),
]


@pytest.mark.parametrize("call", WRONG_WAY)
def test_names_of_axes_refuse_what_fits_by_size_alone(chip: Any, call: Call) -> None:
    from pytest_kernbench.simulator.errors import KernelError

    with pytest.raises(
        KernelError, match=r"contracts axis 'd' of a \(8, 16\) with axis 'token' of b \(16, 16\)"
    ) as caught:
        scores(chip, call, ("token", "d"))
    assert "test_tl_refusals_gemm.py:" in str(caught.value)
    assert "trans_b=" in str(caught.value)


RIGHT_WAY: list[Call] = [
    lambda tl, q, ref, k: tl.wait(tl.composite("gemm", q, ref, trans_b=True), k),
    lambda tl, q, ref, k: tl.dot(q, k, trans_b=True),
    lambda tl, q, ref, k: tl.dot(q, tl.trans(k), trans_b=False),
    lambda tl, q, ref, k: tl.dot(tl.cast(q, "float32"), k, trans_b=True),
]


@pytest.mark.parametrize("call", RIGHT_WAY)
def test_and_let_the_right_way_through(chip: Any, call: Call) -> None:
    assert scores(chip, call, ("token", "d")).hazards == ()


def test_a_result_is_named_by_what_it_came_from(chip: Any) -> None:
    seen = []

    def call(tl: Any, q: Any, ref: Any, k: Any) -> None:
        seen.append(tl.exp(tl.dot(q, k, trans_b=True)).axes)

    scores(chip, call, ("token", "d"))
    assert seen == [("row", "token")]


def test_an_axis_of_one_that_a_reshape_took_away_and_gave_back_contradicts_no_name(chip: Any) -> None:
    """The scores of one key, seen by head and token for its mask and back again."""
    s = chip.tensor("S", (5, 1), "float32", np.ones((5, 1)), 0, axes=("row", "token"))
    v = chip.tensor("V", (1, 16), "float32", np.ones((1, 16)), 0, axes=("token", "d"))
    o = chip.tensor("O", (5, 16), "float32", place=0)

    def kernel(s: Any, v: Any, o: Any, *, tl: Any) -> None:
        p = tl.reshape(tl.reshape(tl.load(s, (5, 1)), (1, 5, 1)), (5, 1))
        tl.wait(tl.store(o, tl.dot(p, tl.load(v, (1, 16)), trans_b=False)))

    assert (chip.run(kernel, s, v, o).array("O") == 1).all()
