"""MATH ops: what they compute, in which dtype and shape, how long they take, and what they leave in the log."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(2)
A, B = RNG.standard_normal((2, 8, 64)).astype(np.float32)
ROW, COL = A[:1], A[:, :1]
CALLS = Callable[..., Any]

ELEMENTWISE: dict[str, tuple[CALLS, CALLS]] = {
    "a + b": (lambda tl, a, b: a + b, lambda a, b: a + b),
    "a - b": (lambda tl, a, b: a - b, lambda a, b: a - b),
    "a * b": (lambda tl, a, b: a * b, lambda a, b: a * b),
    "a / b": (lambda tl, a, b: a / b, lambda a, b: a / b),
    "a + 2": (lambda tl, a, b: a + 2, lambda a, b: a + 2),
    "2 + a": (lambda tl, a, b: 2 + a, lambda a, b: 2 + a),
    "a - 2.5": (lambda tl, a, b: a - 2.5, lambda a, b: a - np.float32(2.5)),
    "2.5 - a": (lambda tl, a, b: 2.5 - a, lambda a, b: np.float32(2.5) - a),
    "3 * a": (lambda tl, a, b: 3 * a, lambda a, b: 3 * a),
    "a / 3": (lambda tl, a, b: a / 3, lambda a, b: a / np.float32(3)),
    "3 / a": (lambda tl, a, b: 3 / a, lambda a, b: np.float32(3) / a),
    "a < b": (lambda tl, a, b: a < b, lambda a, b: a < b),
    "a <= b": (lambda tl, a, b: a <= b, lambda a, b: a <= b),
    "a > b": (lambda tl, a, b: a > b, lambda a, b: a > b),
    "a >= b": (lambda tl, a, b: a >= b, lambda a, b: a >= b),
    "0.5 < a": (lambda tl, a, b: 0.5 < a, lambda a, b: a > 0.5),  # noqa: SIM300
    "add": (lambda tl, a, b: tl.add(a, b), lambda a, b: a + b),
    "sub": (lambda tl, a, b: tl.sub(a, b), lambda a, b: a - b),
    "sub number": (lambda tl, a, b: tl.sub(1, b), lambda a, b: 1 - b),
    "mul": (lambda tl, a, b: tl.mul(a, b), lambda a, b: a * b),
    "div": (lambda tl, a, b: tl.div(a, b), lambda a, b: a / b),
    "maximum": (lambda tl, a, b: tl.maximum(a, b), np.maximum),
    "maximum number": (lambda tl, a, b: tl.maximum(0.25, b), lambda a, b: np.maximum(b, np.float32(0.25))),
    "minimum": (lambda tl, a, b: tl.minimum(a, b), np.minimum),
    "exp": (lambda tl, a, b: tl.exp(a), lambda a, b: np.exp(a)),
    "tanh": (lambda tl, a, b: tl.tanh(a), lambda a, b: np.tanh(a)),
    "log": (lambda tl, a, b: tl.log(a * a), lambda a, b: np.log(a * a)),
    "where": (lambda tl, a, b: tl.where(a < b, a, b), lambda a, b: np.where(a < b, a, b)),
    "where numbers": (lambda tl, a, b: tl.where(a < b, 1, float("-inf")), lambda a, b: np.where(a < b, 1, -np.inf)),
    "where of floats": (lambda tl, a, b: tl.where(tl.maximum(a, 0), a, b), lambda a, b: np.where(a > 0, a, b)),
    "max": (lambda tl, a, b: tl.max(a), lambda a, b: a.max(axis=1, keepdims=True)),
    "max over rows": (lambda tl, a, b: tl.max(a, axis=0), lambda a, b: a.max(axis=0, keepdims=True)),
    "max of the second last": (lambda tl, a, b: tl.max(a, -2), lambda a, b: a.max(axis=0, keepdims=True)),
    "sum": (lambda tl, a, b: tl.sum(a), lambda a, b: a.sum(axis=1, keepdims=True)),
    "sum over rows": (lambda tl, a, b: tl.sum(a, 0), lambda a, b: a.sum(axis=0, keepdims=True)),
    "transposed": (lambda tl, a, b: tl.trans(a) + 0.0, lambda a, b: a.T),
    "sum of a transposed": (lambda tl, a, b: tl.sum(tl.trans(a)), lambda a, b: a.T.sum(axis=1, keepdims=True)),
    "softmax": (lambda tl, a, b: tl.softmax(a), lambda a, b: softmax(a, 1)),
    "softmax over rows": (lambda tl, a, b: tl.softmax(a, axis=0), lambda a, b: softmax(a, 0)),
    "column": (lambda tl, a, b: a - tl.max(a), lambda a, b: a - a.max(axis=1, keepdims=True)),
    "row": (lambda tl, a, b: tl.sum(b, 0) * a, lambda a, b: b.sum(axis=0, keepdims=True) * a),
    "row by column": (lambda tl, a, b: tl.max(a) + tl.max(b, 0), lambda a, b: a.max(1, keepdims=True) + b.max(0)),
    "broadcast": (lambda tl, a, b: tl.broadcast(tl.max(a), (8, 64)), lambda a, b: np.tile(a.max(1), (64, 1)).T),
    "iota over rows": (lambda tl, a, b: tl.iota((8, 1), 0) + a, lambda a, b: np.arange(8)[:, None] + a),
    "iota": (lambda tl, a, b: tl.iota((8, 64), -1, 5, -2), lambda a, b: np.tile(5 - 2 * np.arange(64), (8, 1))),
    "mask by position": (
        lambda tl, a, b: tl.where(tl.iota((1, 64), 1) <= tl.iota((8, 1), 0, 40, 2), a, 0),
        lambda a, b: np.where(np.arange(64) <= 40 + 2 * np.arange(8)[:, None], a, 0),
    ),
    "reshape": (
        lambda tl, a, b: tl.reshape(tl.reshape(a, (4, 2, 64)) + tl.reshape(tl.sum(b), (4, 2, 1)), (8, 64)),
        lambda a, b: a + b.sum(axis=1, keepdims=True),
    ),
    "rows": (lambda tl, a, b: tl.rows(a, 2, 1) + b, lambda a, b: a[2:3] + b),
    "rows of rows": (lambda tl, a, b: tl.rows(tl.rows(a, 2, 5), 1, 1) + b, lambda a, b: a[3:4] + b),
    "written by rows": (
        lambda tl, a, b: written(tl, a, b),
        lambda a, b: np.vstack([a[:3] + b[:3], a[3:]]),
    ),
    "reshape is no transpose": (lambda tl, a, b: tl.reshape(a, (64, 8)) + 0.0, lambda a, b: a.reshape(64, 8)),
    "zeros": (lambda tl, a, b: tl.zeros((8, 64)), lambda a, b: np.zeros((8, 64))),
    "full": (lambda tl, a, b: tl.full((8, 64), -1.25), lambda a, b: np.full((8, 64), -1.25)),
    "minus infinity": (lambda tl, a, b: tl.full((8, 1), float("-inf")), lambda a, b: np.full((8, 1), -np.inf)),
    "assign": (lambda tl, a, b: tl.assign(tl.empty((8, 64)), a), lambda a, b: a),
}


def written(tl: Any, a: Any, b: Any) -> Any:
    """`a` with `b` added to its first rows: only a part of the handle is written."""
    whole = tl.assign(tl.empty((8, 64)), a)
    tl.wait(tl.add(tl.rows(a, 0, 3), tl.rows(b, 0, 3), out=tl.rows(whole, 0, 3)))
    return whole


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def stored(dtype: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(dtype) for array in arrays]


def computing(call: CALLS) -> Callable[..., None]:
    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        both = tl.wait(tl.load(a, (8, 64)), tl.load(b, (8, 64)))
        tl.wait(tl.store(o, call(tl, *both)))

    return kernel


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize(("call", "oracle"), ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_values_are_numpys_in_float32_of_what_is_stored(launch: Any, call: CALLS, oracle: CALLS, dtype: Any) -> None:
    a, b = stored(dtype, A, B)
    expected = oracle(a.astype(np.float32), b.astype(np.float32)).astype(np.float32)
    outcome = launch(computing(call), a=a, b=b, o=(expected.shape, "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("call", [lambda tl, a, b: a * b, lambda tl, a, b: tl.sum(a), lambda tl, a, b: tl.exp(a)])
def test_results_are_float32_whatever_is_stored(launch: Any, call: CALLS) -> None:
    seen = []

    def kernel(a: Any, b: Any, *, tl: Any) -> None:
        seen.append(call(tl, tl.load(a, (8, 64)), tl.load(b, (8, 64))).dtype)

    launch(kernel, a=A.astype(np.float16), b=B.astype(np.float16))
    assert seen == [np.float32]


def test_comparisons_are_masks_of_one_byte(launch: Any) -> None:
    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        mask = tl.load(a, (8, 64)) < tl.load(b, (8, 64))
        assert mask.dtype == np.uint8
        tl.wait(tl.store(o, mask))

    outcome = launch(kernel, a=A, b=B, o=((8, 64), "uint8"), check=True)
    assert (outcome["o"] == (A < B)).all()
    assert outcome.row("store").bytes == 8 * 64


def test_nan_is_carried_on(launch: Any) -> None:
    with_nan = A.copy()
    with_nan[3, 5] = np.nan

    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        tl.wait(tl.store(o, tl.minimum(tl.maximum(tl.max(h), -1e30), 1e30)))

    seen = launch(kernel, a=with_nan, o=((8, 1), "float32"))["o"]
    assert np.isnan(seen[3, 0])
    assert np.isfinite(np.delete(seen, 3)).all()


def test_a_sum_adds_in_float32(launch: Any) -> None:
    ones = np.full((8, 64), 1 / 3, ml_dtypes.bfloat16)

    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.sum(tl.load(a, (8, 64)))))

    third = np.float32(ones[0, 0])
    assert launch(kernel, a=ones, o=((8, 1), "float32"))["o"][0, 0] == pytest.approx(64 * third, rel=1e-7)


# cast


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_cast_rounds_to_nearest_even_and_keeps_the_shape(launch: Any, dtype: str) -> None:
    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        h = tl.cast(tl.load(a, (8, 64)), dtype)
        assert (h.dtype.name, h.shape) == (dtype, (8, 64))
        tl.wait(tl.store(o, h))

    seen = launch(kernel, a=A, o=((8, 64), dtype), check=True)["o"]
    assert (seen == A.astype(seen.dtype)).all()


def test_a_store_casts_to_the_tensors_dtype(launch: Any) -> None:
    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.store(o, tl.load(a, (8, 64))))

    assert (launch(kernel, a=A, o=((8, 64), "bfloat16"))["o"] == A.astype(ml_dtypes.bfloat16)).all()


# out=, assign


OUT: dict[str, tuple[CALLS, CALLS]] = {
    "add": (lambda tl, a, b, o: tl.add(a, b, out=o), lambda a, b: a + b),
    "sub": (lambda tl, a, b, o: tl.sub(a, b, out=o), lambda a, b: a - b),
    "mul": (lambda tl, a, b, o: tl.mul(a, b, out=o), lambda a, b: a * b),
    "div": (lambda tl, a, b, o: tl.div(a, b, out=o), lambda a, b: a / b),
    "maximum": (lambda tl, a, b, o: tl.maximum(a, b, out=o), np.maximum),
    "minimum": (lambda tl, a, b, o: tl.minimum(a, b, out=o), np.minimum),
    "exp": (lambda tl, a, b, o: tl.exp(a, out=o), lambda a, b: np.exp(a)),
    "tanh": (lambda tl, a, b, o: tl.tanh(a, out=o), lambda a, b: np.tanh(a)),
    "through a reshape": (
        lambda tl, a, b, o: tl.add(a, b, out=tl.reshape(tl.reshape(o, (512,)), (8, 64))),
        lambda a, b: a + b,
    ),
    "log": (lambda tl, a, b, o: tl.log(a * a, out=o), lambda a, b: np.log(a * a)),
    "where": (lambda tl, a, b, o: tl.where(a > 0, a, b, out=o), lambda a, b: np.where(a > 0, a, b)),
    "cast": (lambda tl, a, b, o: tl.cast(a, "float32", out=o), lambda a, b: a),
    "broadcast": (
        lambda tl, a, b, o: tl.broadcast(tl.max(a), (8, 64), out=o),
        lambda a, b: np.tile(a.max(1), (64, 1)).T,
    ),
    "assign": (lambda tl, a, b, o: tl.assign(o, a), lambda a, b: a),
}


@pytest.mark.parametrize(("call", "oracle"), OUT.values(), ids=OUT)
def test_out_is_written_and_returned_and_nothing_is_allocated(launch: Any, call: CALLS, oracle: CALLS) -> None:
    def kernel(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        ha, hb = tl.wait(tl.load(a, (8, 64)), tl.load(b, (8, 64)))
        out = tl.empty((8, 64))
        with tl.scratch_scope():
            result = call(tl, ha, hb, out)
        tl.wait(tl.store(o, result))

    outcome = launch(kernel, a=A, b=B, o=((8, 64), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], oracle(A, B), rtol=2e-6)


def test_out_casts_to_its_own_dtype(launch: Any) -> None:
    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        tl.wait(tl.store(o, tl.mul(h, 3.0, out=tl.empty((8, 64), "bfloat16"))))

    assert (launch(kernel, a=A, o=((8, 64), "bfloat16"))["o"] == (3 * A).astype(ml_dtypes.bfloat16)).all()


def test_out_may_be_an_operand_and_a_transposed_view(launch: Any) -> None:
    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        tl.wait(h)
        tl.add(h, h, out=h)
        t = tl.empty((64, 8))
        tl.mul(h, 2.0, out=tl.trans(t))
        tl.wait(tl.store(o, t + 0.0))

    assert (launch(kernel, a=A, o=((64, 8), "float32"), check=True)["o"] == 4 * A.T).all()


def test_state_written_inside_a_scope_outlives_it(launch: Any) -> None:
    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        acc = tl.zeros((1, 64))
        for row in range(8):
            with tl.scratch_scope():
                tl.wait(tl.add(acc, tl.load(a + 64 * row, (1, 64)), out=acc))
        tl.wait(tl.store(o, acc))

    np.testing.assert_allclose(launch(kernel, a=A, o=((1, 64), "float32"), check=True)["o"], A.sum(0)[None], rtol=1e-6)


# Time and the log


TIMED: dict[str, tuple[CALLS, int, int, int]] = {  # call, element times an element, elements, elements written
    "add": (lambda tl, h: h + h, 1, 512, 512),
    "exp": (lambda tl, h: tl.exp(h), 2, 512, 512),
    "tanh": (lambda tl, h: tl.tanh(h), 2, 512, 512),
    "iota": (lambda tl, h: tl.iota((8, 64), 1), 1, 512, 512),
    "max": (lambda tl, h: tl.max(h), 1, 512, 8),
    "sum": (lambda tl, h: tl.sum(h, 0), 1, 512, 64),
    "broadcast": (lambda tl, h: tl.broadcast(tl.zeros((8, 1)), (8, 64)), 1, 512, 512),
    "cast": (lambda tl, h: tl.cast(h, "bfloat16"), 1, 512, 512),
    "where": (lambda tl, h: tl.where(h, h, 0), 1, 512, 512),
    "zeros": (lambda tl, h: tl.zeros((3, 43)), 1, 129, 129),
    "full": (lambda tl, h: tl.full((1, 1), 2), 1, 1, 1),
    "assign": (lambda tl, h: tl.assign(tl.empty((8, 64)), h), 1, 512, 512),
}


@pytest.mark.parametrize(("name", "timed"), TIMED.items(), ids=TIMED)
@pytest.mark.parametrize("spec", [{}, {"math_lanes": 96, "math_start_cycles": 7, "exp_cycles_per_element": 3}])
def test_an_op_takes_its_start_up_and_its_elements_over_the_lanes(
    launch: Any, name: str, timed: tuple[CALLS, int, int, int], spec: dict[str, int]
) -> None:
    call, times, elements, _ = timed

    def kernel(a: Any, *, tl: Any) -> None:
        call(tl, tl.wait(tl.load(a, (8, 64))))

    row = launch(kernel, a=A, spec=spec).rows(name)[-1]
    times = spec.get("exp_cycles_per_element", 2) if name in ("exp", "tanh") else times
    lanes, start_up = spec.get("math_lanes", 128), spec.get("math_start_cycles", 32)
    assert row.free - row.start == start_up + -(-elements * times // lanes)
    assert row.end == row.free
    assert row.work == elements


def test_each_call_costs_the_cpu_its_issue(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        z = tl.zeros((1, 1))
        z + 1.0
        tl.program_id(0), tl.num_programs(1), tl.empty((4,)), tl.trans(z)
        tl.assign(z, z)

    outcome = launch(kernel, a=A)
    assert [row.issue for row in outcome.log] == [8, 16, 24]
    assert [row.issue for row in launch(kernel, a=A, spec={"issue_costs": {"math": 3}}).log] == [3, 6, 9]
    assert [row.issue for row in launch(kernel, a=A, spec={"issue_costs": 0}).log] == [0, 0, 0]


def test_a_row_says_unit_shape_operands_and_line(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        x, y = tl.zeros((8, 64)), tl.full((8, 1), 1.0)
        with tl.region("softmax"), tl.region("shift"):
            x - y

    row = launch(kernel, a=A).row("sub")
    assert (row.unit, row.program, row.shape, row.region) == ("MATH", 0, (8, 64), "softmax/shift")
    assert [(each.tensor, each.offset, each.size, each.written) for each in row.operands] == [
        ("scratch", 0, 2048, False), ("scratch", 2048, 32, False), ("scratch", 2112, 2048, True),
    ]  # fmt: skip
    assert (row.bytes, row.after, row.peer, row.parent) == (0, -1, -1, -1)
    assert (row.site.line, row.site.function) == (kernel.__code__.co_firstlineno + 3, "kernel")
    assert row.site.file == __file__


def test_softmax_is_logged_as_its_five_ops_at_one_line(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        tl.softmax(tl.wait(tl.load(a, (8, 64))))

    rows = list(launch(kernel, a=A).log.where(unit="MATH"))
    assert [row.name for row in rows] == ["max", "sub", "exp", "sum", "div"]
    assert {row.site.line for row in rows} == {kernel.__code__.co_firstlineno + 1}


def test_a_region_changes_nothing_but_the_label(launch: Any) -> None:
    def kernel(label: bool) -> Callable[..., None]:
        def plain(a: Any, *, tl: Any) -> None:
            tl.exp(tl.load(a, (8, 64)))

        def labelled(a: Any, *, tl: Any) -> None:
            with tl.region("r"):
                tl.exp(tl.load(a, (8, 64)))

        return labelled if label else plain

    rows = [
        [(row.name, row.issue, row.start, row.end) for row in launch(kernel(label), a=A).log] for label in (True, False)
    ]
    assert rows[0] == rows[1]


# Waits


def test_a_load_is_waited_for_at_its_first_use_only(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        h + 1.0
        h + 2.0

    outcome = launch(kernel, a=A)
    wait = outcome.row("wait")
    assert wait.after == outcome.row("load").index
    assert wait.end == outcome.row("load").end
    assert wait.site.line == kernel.__code__.co_firstlineno + 2
    assert outcome.rows("add")[0].issue == wait.end + 8


def test_math_behind_math_waits_for_nothing(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        tl.exp(tl.exp(tl.zeros((8, 64))))

    outcome = launch(kernel, a=A)
    assert outcome.rows("wait") == []
    assert [row.start for row in outcome.log] == [8, 8 + 36, 8 + 36 + 40]


def test_a_result_written_with_out_is_waited_for_like_any_other(launch: Any) -> None:
    """Also where the region was a composite's before, which is never waited for by itself."""

    def kernel(a: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        c = tl.wait(tl.composite("gemm", h, tl.ref(a, (8, 64)), trans_b=True))
        tl.wait(tl.store(o, tl.mul(c, 2.0, out=c)))

    outcome = launch(kernel, a=A, o=((8, 8), "float32"), check=True)
    np.testing.assert_allclose(outcome["o"], 2 * (A @ A.T), rtol=1e-5, atol=1e-4)


def test_waiting_again_costs_nothing(launch: Any) -> None:
    def kernel(a: Any, *, tl: Any) -> None:
        h = tl.load(a, (8, 64))
        assert tl.wait(h) is h
        assert tl.wait(h, h) == (h, h)
        assert tl.wait() == ()

    first, *again = launch(kernel, a=A).rows("wait")
    assert first.end > first.issue
    assert [row.end - row.issue for row in again] == [0, 0]
