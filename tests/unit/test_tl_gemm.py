"""composite and dot: products, dtypes, epilogues, targets, and what may be done before and after the wait."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(4)
Call = Callable[..., Any]


def arrays(m: int, n: int, k: int, trans_b: bool, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((n, k) if trans_b else (k, n)).astype(dtype)
    right = b.astype(np.float32)
    return a, b, a.astype(np.float32) @ (right.T if trans_b else right)


# Each form of the product takes its operands as (pointer, shape).


def streamed(tl: Any, a: Any, b: Any, o: Any, trans_b: bool) -> None:
    done = tl.wait(tl.composite("gemm", tl.load(*a), tl.ref(*b), trans_b=trans_b))
    tl.wait(tl.store(o, done))


def in_scratch(tl: Any, a: Any, b: Any, o: Any, trans_b: bool) -> None:
    done = tl.wait(tl.composite("gemm", tl.load(*a), tl.load(*b), trans_b=trans_b))
    tl.wait(tl.store(o, done))


def blocking(tl: Any, a: Any, b: Any, o: Any, trans_b: bool) -> None:
    tl.wait(tl.store(o, tl.dot(tl.load(*a), tl.load(*b), trans_b=trans_b)))


def written_back(tl: Any, a: Any, b: Any, o: Any, trans_b: bool) -> None:
    tl.wait(tl.composite("gemm", tl.load(*a), tl.ref(*b), trans_b=trans_b, out=o))


FORMS = [streamed, in_scratch, blocking, written_back]
SIZES = [(1, 1, 1), (32, 32, 64), (33, 31, 65), (8, 128, 128), (64, 100, 70), (5, 200, 3)]


def product(launch: Any, form: Call, m: int, n: int, k: int, trans_b: bool, dtype: Any, out: str = "float32") -> Any:
    left, right, expected = arrays(m, n, k, trans_b, dtype)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        form(tl, (a, left.shape), (b, right.shape), o, trans_b)

    return launch(kernel, a=left, b=right, o=((m, n), out), check=True), expected


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_products_are_numpys(launch: Any, form: Call, trans_b: bool, m: int, n: int, k: int) -> None:
    outcome, expected = product(launch, form, m, n, k, trans_b, np.float32)
    np.testing.assert_allclose(outcome["o"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
def test_narrow_operands_are_exact_and_accumulate_in_float32(launch: Any, form: Call, dtype: Any) -> None:
    outcome, expected = product(launch, form, 8, 40, 500, True, dtype)
    np.testing.assert_allclose(outcome["o"], expected, rtol=1e-4, atol=1e-4)


def test_a_writeback_is_rounded_to_the_tensors_dtype(launch: Any) -> None:
    outcome, expected = product(launch, written_back, 8, 40, 50, True, ml_dtypes.bfloat16, "bfloat16")
    np.testing.assert_allclose(outcome["o"].astype(np.float32), expected, rtol=2**-8)
    assert outcome.row("writeback").bytes == 8 * 40 * 2


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FORMS), st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_random_sizes(launch: Any, form: Call, m: int, n: int, k: int, trans_b: bool) -> None:
    outcome, expected = product(launch, form, m, n, k, trans_b, np.float32)
    np.testing.assert_allclose(outcome["o"], expected, rtol=1e-3, atol=1e-4)


def test_the_result_is_float32_and_at_once_a_completion_handle(launch: Any) -> None:
    a, b, _ = arrays(8, 16, 32, True, ml_dtypes.bfloat16)

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        h = tl.wait(tl.load(a, (8, 32)))
        before = tl._kernel.now
        c = tl.composite("gemm", h, tl.ref(b, (16, 32)), trans_b=True)
        assert tl._kernel.now == before + 48
        assert (c.dtype, c.shape) == (np.float32, (8, 16))
        tl.wait(c)

    launch(kernel, a=a, b=b, check=True)


def test_a_streamed_slice_of_a_wider_tensor(launch: Any) -> None:
    a, b, _ = arrays(4, 96, 40, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        part = tl.ref(b + 10, (40, 20), (96, 1))
        tl.wait(tl.store(o, tl.wait(tl.composite("gemm", tl.load(a, (4, 40)), part))))

    outcome = launch(kernel, a=a, b=b, o=((4, 20), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], a @ b[:, 10:30], rtol=1e-4, atol=1e-5)
    assert [(row.bytes, row.runs) for row in outcome.rows("panel")] == [(40 * 20 * 4, 40)]


@pytest.mark.parametrize("which", ["a", "b", "both"])
def test_transposed_handles_are_read_as_they_are_seen(launch: Any, which: str) -> None:
    a, b, _ = arrays(40, 8, 40, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        ha, hb = tl.load(a, (40, 40)), tl.load(b, (40, 8))
        ha = tl.trans(ha) if which != "b" else ha
        given, trans_b = (tl.trans(hb), True) if which != "a" else (hb, False)
        tl.wait(tl.store(o, tl.dot(ha, given, trans_b=trans_b)))

    outcome = launch(kernel, a=a, b=b, o=((40, 8), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], (a.T if which != "b" else a) @ b, rtol=1e-4, atol=1e-4)


# out=


def test_out_in_scratch_is_written_and_shared_by_handle_and_region(launch: Any) -> None:
    a, b, expected = arrays(8, 16, 32, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        out = tl.empty((8, 16))
        tl.wait(tl.composite("gemm", tl.load(a, (8, 32)), tl.ref(b, (32, 16)), out=out))
        tl.wait(tl.store(o, out))

    outcome = launch(kernel, a=a, b=b, o=((8, 16), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], expected, rtol=1e-4, atol=1e-4)


def test_out_through_a_transposed_handle(launch: Any) -> None:
    a, b, expected = arrays(8, 16, 32, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        out = tl.empty((16, 8))
        tl.wait(tl.composite("gemm", tl.load(a, (8, 32)), tl.ref(b, (32, 16)), out=tl.trans(out)))
        tl.wait(tl.store(o, out))

    outcome = launch(kernel, a=a, b=b, o=((16, 8), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], expected.T, rtol=1e-4, atol=1e-4)


def test_in_place_a_tensor_may_be_streamed_and_written_back_to(launch: Any) -> None:
    a, b, expected = arrays(32, 32, 32, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (32, 32))
        tl.wait(tl.composite("gemm", h, tl.ref(b, (32, 32)), trans_b=False, out=b))
        tl.wait(tl.store(o, tl.load(b, (32, 32))))

    outcome = launch(kernel, a=a, b=b, o=((32, 32), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], expected, rtol=1e-4, atol=1e-4)


# epilogue


BIAS, OTHER = RNG.standard_normal((1, 16)).astype(np.float32), RNG.standard_normal((8, 16)).astype(np.float32)
EPILOGUES: dict[str, tuple[Call, Call]] = {
    "scale": (lambda bias, other: (("scale", 0.125),), lambda c: c * np.float32(0.125)),
    "bias": (lambda bias, other: (("bias", bias),), lambda c: c + BIAS),
    "relu": (lambda bias, other: (("relu",),), lambda c: np.maximum(c, 0)),
    "add": (lambda bias, other: (("add", other),), lambda c: c + OTHER),
    "all, in order": (
        lambda bias, other: (("scale", 2), ("bias", bias), ("relu",), ("add", other)),
        lambda c: np.maximum(2 * c + BIAS, 0) + OTHER,
    ),
    "another order": (lambda bias, other: (("relu",), ("scale", -1)), lambda c: -np.maximum(c, 0)),
    "a list": (lambda bias, other: [("scale", 3.0), ("relu",)], lambda c: np.maximum(3 * c, 0)),
    "twice": (lambda bias, other: (("add", other), ("add", other)), lambda c: c + OTHER + OTHER),
    "none": (lambda bias, other: (), lambda c: c),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "oracle"), EPILOGUES.values(), ids=EPILOGUES)
def test_epilogue_steps_apply_in_the_order_written(launch: Any, steps: Call, oracle: Call) -> None:
    a, b, c = arrays(8, 16, 32, False)

    def kernel(a: Any, b: Any, bias: Any, other: Any, o: Any, *, tl: Any) -> None:
        operands = tl.wait(tl.load(bias, (1, 16)), tl.load(other, (8, 16)))
        h = tl.load(a, (8, 32))
        done = tl.wait(tl.composite("gemm", h, tl.ref(b, (32, 16)), epilogue=steps(*operands)))
        tl.wait(tl.store(o, done))

    outcome = launch(kernel, a=a, b=b, bias=BIAS, other=OTHER, o=((8, 16), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], oracle(c), rtol=1e-4, atol=1e-4)


def test_each_step_costs_its_elements_over_the_lanes_behind_the_products(launch: Any) -> None:
    def kernel(steps: Any) -> Call:
        def run(a: Any, b: Any, *, tl: Any) -> None:
            h = tl.load(a, (8, 32))
            tl.wait(tl.composite("gemm", h, tl.ref(b, (32, 16)), trans_b=False, epilogue=steps))

        return run

    a, b, _ = arrays(8, 16, 32, False)
    plain, two = (launch(kernel(steps), a=a, b=b) for steps in ((), (("scale", 2.0), ("relu",))))
    row = two.row("epilogue")
    assert row.end - row.start == 2 * (8 * 16 // 128)
    assert (row.unit, row.work, row.parent) == ("GEMM", 2 * 8 * 16, two.row("composite").index)
    assert row.start == two.rows("gemm")[-1].end
    assert two.row("composite").end == plain.row("composite").end + 2


# dot


def test_a_dot_blocks_until_the_product_is_there(launch: Any) -> None:
    a, b, _ = arrays(8, 16, 32, False)

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        tl.dot(*tl.wait(tl.load(a, (8, 32)), tl.load(b, (32, 16))))
        tl.zeros((1, 1))

    outcome = launch(kernel, a=a, b=b)
    dot = outcome.row("dot")
    assert outcome.row("zeros").issue == dot.end + 8
    assert dot.issue == outcome.rows("wait")[1].end + 16
    assert dot.free - dot.start == 16 + 4 * 16  # the fill and one sub-tile of float32
    assert dot.work == 8 * 16 * 32
    assert dot.shape == (8, 16, 32)


@pytest.mark.parametrize(("dtype", "cycles"), [(np.float32, 64), (np.float16, 16), (ml_dtypes.bfloat16, 16)])
@pytest.mark.parametrize(("m", "n", "k", "tiles"), [(1, 1, 1, 1), (32, 32, 64, 1), (33, 33, 65, 8), (8, 100, 128, 8)])
def test_a_dot_takes_its_sub_tiles_rounded_up(
    launch: Any, dtype: Any, cycles: int, m: int, n: int, k: int, tiles: int
) -> None:
    a, b, _ = arrays(m, n, k, True, dtype)

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        tl.dot(tl.load(a, (m, k)), tl.load(b, (n, k)), trans_b=True)

    row = launch(kernel, a=a, b=b).row("dot")
    assert row.free - row.start == 16 + tiles * cycles


# Order among products


def chain(a: Any, b: Any, c: Any, o: Any, tl: Any, second: str) -> None:
    """A streamed composite, and right behind it a product that needs nothing from HBM."""
    h, hc = tl.wait(tl.load(a, (8, 64)), tl.load(c, (64, 64)))
    first = tl.composite("gemm", h, tl.ref(b, (64, 64)), trans_b=False)
    products = {
        "dot": lambda: tl.dot(h, hc, trans_b=False),
        "composite": lambda: tl.wait(tl.composite("gemm", h, hc, trans_b=False)),
    }
    behind = products[second]()
    tl.wait(tl.store(o, first + behind))


@pytest.mark.parametrize("second", ["dot", "composite"])
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_products_are_served_in_the_order_they_were_issued(launch: Any, second: str, schedule: str) -> None:
    """So whoever has waited for the later one has the earlier one too."""
    a, b, ab = arrays(8, 64, 64, False)
    c = RNG.standard_normal((64, 64)).astype(np.float32)

    def kernel(a: Any, b: Any, c: Any, o: Any, *, tl: Any) -> None:
        chain(a, b, c, o, tl, second)

    outcome = launch(kernel, a=a, b=b, c=c, o=((8, 64), "float32"), schedule=schedule)
    np.testing.assert_allclose(outcome["o"], ab + a @ c, rtol=1e-4, atol=1e-4)
    products = [row for row in outcome.log if row.name in ("gemm", "dot")]
    assert [row.start for row in products] == sorted(row.start for row in products)


def test_a_product_of_a_product_needs_no_wait_in_between(launch: Any) -> None:
    a, b, ab = arrays(8, 64, 64, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        h, hb = tl.wait(tl.load(a, (8, 64)), tl.load(b, (64, 64)))
        first = tl.composite("gemm", h, tl.ref(b, (64, 64)), trans_b=False)
        tl.wait(tl.store(o, tl.wait(tl.composite("gemm", first, hb, trans_b=False))))

    outcome = launch(kernel, a=a, b=b, o=((8, 64), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], ab @ b, rtol=1e-3, atol=1e-3)


def test_waiting_for_a_later_product_covers_the_streams_of_the_earlier(launch: Any) -> None:
    """Its panels were read before its product could end: overwriting what it streamed is no race."""
    a, b, _ = arrays(8, 64, 64, False)

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        h, hb = tl.wait(tl.load(a, (8, 64)), tl.load(b, (64, 64)))
        tl.composite("gemm", h, tl.ref(b, (64, 64)), trans_b=False)
        tl.wait(tl.composite("gemm", h, hb, trans_b=False))
        tl.wait(tl.store(b, hb))

    assert launch(kernel, a=a, b=b, check=True).kinds == []


def test_a_writeback_is_not_over_when_a_later_product_is(launch: Any) -> None:
    a, b, _ = arrays(8, 64, 64, False)

    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        first = tl.composite("gemm", h, tl.ref(b, (64, 64)), trans_b=False, out=o)
        tl.wait(tl.composite("gemm", h, tl.ref(b, (64, 64)), trans_b=False))
        tl.wait(tl.load(o, (8, 64)))
        tl.wait(first)

    assert launch(kernel, a=a, b=b, o=((8, 64), "float32")).kinds == ["race-raw"]


@pytest.mark.parametrize("schedule", ["model", "late"])
def test_nothing_waits_for_a_composite_by_itself_through_no_view_of_it(launch: Any, schedule: str) -> None:
    a, b, _ = arrays(8, 64, 64, False)

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        c = tl.composite("gemm", tl.load(a, (8, 64)), tl.ref(b, (64, 64)), trans_b=False)
        tl.exp(tl.trans(c))
        tl.wait(c)

    assert launch(kernel, a=a, b=b, schedule=schedule).kinds == ["race-raw"]
