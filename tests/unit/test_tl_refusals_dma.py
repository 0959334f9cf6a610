"""Wrong uses of pointers, load, store and ref: refused at the kernel's own line, with what was given and a remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.ones((16, 16), np.float32)
NAN = float("nan")

# what is wrong -> (the call, kind, what the message says)
WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "a handle for a pointer": (lambda tl, p, h: tl.load(h, (4, 4)), "bad-parameter", "tl.load of PE0 got a Handle"),
    "a string for a pointer": (lambda tl, p, h: tl.load("x", (4, 4)), "bad-parameter", "tl.load got a str pointer"),
    "nothing for a pointer": (lambda tl, p, h: tl.load(None, (4, 4)), "bad-parameter", "tl.load got a NoneType"),
    "a ref of a handle": (lambda tl, p, h: tl.ref(h, (4, 4)), "bad-parameter", "tl.ref got a Handle pointer"),
    "a store to a handle": (lambda tl, p, h: tl.store(h, h), "bad-parameter", "tl.store got a Handle pointer"),
    "a store of a pointer": (lambda tl, p, h: tl.store(p, p), "bad-parameter", "tl.store got a Pointer handle tl.load"),
    "a store of a ref": (lambda tl, p, h: tl.store(p, tl.ref(p, (4, 4))), "bad-parameter", "tl.store got a Block"),
    "a store of a number": (lambda tl, p, h: tl.store(p, 0.5), "bad-parameter", "tl.store got a float handle"),
    "a store of nothing": (lambda tl, p, h: tl.store(p, None), "bad-parameter", "tl.store got a NoneType handle"),
    "a size of zero": (lambda tl, p, h: tl.load(p, (0, 4)), "bad-parameter", "tl.load (0, 4) whole numbers > 0"),
    "a negative size": (lambda tl, p, h: tl.ref(p, (4, -1)), "bad-parameter", "tl.ref (4, -1) whole numbers > 0"),
    "a size that is no whole number": (lambda tl, p, h: tl.load(p, (2.0, 4)), "bad-parameter", "(2.0, 4) whole"),
    "a size that is no number": (lambda tl, p, h: tl.load(p, (NAN, 4)), "bad-parameter", "(nan, 4) whole numbers"),
    "a size that is a truth": (lambda tl, p, h: tl.load(p, (True, 4)), "bad-parameter", "(True, 4) whole numbers"),
    "a string for a shape": (lambda tl, p, h: tl.load(p, "44"), "bad-parameter", "'44' whole numbers"),
    "no shape": (lambda tl, p, h: tl.load(p, None), "bad-parameter", "None whole numbers"),
    "no axis": (lambda tl, p, h: tl.load(p, ()), "bad-parameter", "() whole numbers"),
    "too many strides": (lambda tl, p, h: tl.load(p, (4, 4), (16, 4, 1)), "bad-parameter", "(16, 4, 1) (4, 4)"),
    "too few strides": (lambda tl, p, h: tl.ref(p, (4, 4), (16,)), "bad-parameter", "tl.ref (16,) (4, 4) elements"),
    "a number for strides": (lambda tl, p, h: tl.load(p, (4, 4), 16), "bad-parameter", "16 (4, 4) elements"),
    "strides of a store": (lambda tl, p, h: tl.store(p, h, strides=5), "bad-parameter", "tl.store 5 (4, 4) elements"),
    "a string for strides": (lambda tl, p, h: tl.load(p, (4, 4), "16"), "bad-parameter", "'16' (4, 4) elements"),
    "a negative stride": (lambda tl, p, h: tl.load(p, (4, 4), (-16, 1)), "bad-parameter", "(-16, 1) (4, 4)"),
    "half a stride": (lambda tl, p, h: tl.load(p, (4, 4), (1.5, 1)), "bad-parameter", "(1.5, 1) (4, 4)"),
    "out= of another shape": (
        lambda tl, p, h: tl.load(p, (2, 8), out=h), "bad-parameter", "tl.load (2, 8) out= is (4, 4)",
    ),
    "out= of another dtype": (
        lambda tl, p, h: tl.load(p, (4, 4), out=tl.empty((4, 4), "bfloat16")), "bad-parameter",
        "tl.load float32 out= is bfloat16 as they are",
    ),
    "out= seen transposed": (lambda tl, p, h: tl.load(p, (4, 4), out=tl.trans(h)), "bad-parameter", "out= transposed"),
    "a pointer for out=": (lambda tl, p, h: tl.load(p, (4, 4), out=p), "bad-parameter", "tl.load out= is a Pointer"),
    "past the end": (lambda tl, p, h: tl.load(p + 250, (4, 4)), "out-of-bounds", "tl.load 250..265 x 256 elements"),
    "one too far": (lambda tl, p, h: tl.load(p + 241, (4, 4)), "out-of-bounds", "241..256 x 256"),
    "past the end by strides": (lambda tl, p, h: tl.ref(p, (16, 16), (17, 1)), "out-of-bounds", "tl.ref 0..270 x 256"),
    "before the start": (lambda tl, p, h: tl.load(p + (-1), (4, 4)), "out-of-bounds", "-1..14 x 256"),
    "far away": (lambda tl, p, h: tl.load(p + 2**60, (4, 4)), "out-of-bounds", f"{2**60} x 256"),
    "a huge block": (lambda tl, p, h: tl.load(p, (1 << 40, 1 << 40)), "out-of-bounds", f"0..{2**80 - 1} x 256"),
    "a store past the end": (lambda tl, p, h: tl.store(p + 250, h), "out-of-bounds", "tl.store 250..265 x 256"),
    "half an element": (lambda tl, p, h: tl.load(p + 1.5, (4, 4)), "bad-parameter", "1.5 whole elements"),
    "a pointer and a string": (lambda tl, p, h: tl.load(p + "a", (4, 4)), "bad-parameter", "'a' whole elements"),
    "a pointer and nothing": (lambda tl, p, h: tl.load(p + None, (4, 4)), "bad-parameter", "None whole elements"),
    "a pointer and not a number": (lambda tl, p, h: tl.load(p + NAN, (4, 4)), "bad-parameter", "nan whole elements"),
    "a pointer and a handle": (lambda tl, p, h: tl.load(p + h, (4, 4)), "bad-parameter", "handle whole elements"),
    "a pointer and a truth": (lambda tl, p, h: tl.load(p + True, (4, 4)), "bad-parameter", "True whole elements"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("data", [True, False], ids=["data", "structure"])
def test_it_is_refused(refusal: Any, call: Callable[..., Any], kind: str, said: str, data: bool) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        call(tl, x, tl.wait(tl.load(x, (4, 4))))

    message = refusal(kernel, kind, x=X, data=data)
    assert [word for word in said.split() if word not in message] == []


def test_an_address_that_the_dma_cannot_start_at(refusal: Any, launch: Any) -> None:
    def kernel(offset: int) -> Callable[..., None]:
        return lambda x, *, tl: tl.wait(tl.load(x + offset, (1, 8)))

    assert launch(kernel(16), x=X, spec={"dma_align_bytes": 64}).kinds == []
    message = refusal(kernel(8), "misaligned", x=X, spec={"dma_align_bytes": 64})
    assert "tl.load of PE0 at" in message
    assert "byte 32 of x is not a multiple of 64" in message
    assert "pad the rows" in message


def test_a_load_that_does_not_fit_the_scratch(refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (4, 16))
        tl.load(x, (16, 16))

    message = refusal(kernel, "capacity", x=X, spec={"scratch_bytes": 1024})
    assert "tl.load of PE0" in message
    assert "holds 1024 bytes, 256 are taken, 1024 more were asked for ((16, 16) float32)" in message


def test_a_pointer_of_an_earlier_run(refusal: Any, launch: Any) -> None:
    kept: list[Any] = []

    def keep(x: Any, *, tl: Any) -> None:
        kept.append(x)

    def use(x: Any, *, tl: Any) -> None:
        tl.load(kept[0], (4, 4))

    launch(keep, x=X)
    assert "tl.load of PE0" in refusal(use, "bad-parameter", x=X)


def test_a_handle_of_another_pe(refusal: Any) -> None:
    kept: list[Any] = []

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            kept.append(tl.zeros((4, 4)))
        else:
            tl.store(o, kept[0])

    message = refusal(kernel, "bad-parameter", x=X, o=((4, 4), "float32"), grid=2)
    assert "tl.store of PE1" in message
    assert "send it" in message
