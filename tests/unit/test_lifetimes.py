"""Scratch scopes (ADR-0063): what a handle is worth after its scope, and what may be in flight when one is left."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.arange(1024, dtype=np.float32).reshape(32, 32)
OUT = ((32, 32), "float32")


def line(kernel: Callable[..., None], mark: str) -> int:
    source, first = inspect.getsourcelines(kernel)
    return first + next(at for at, text in enumerate(source) if text.rstrip().endswith(mark))


USES: dict[str, Callable[..., Any]] = {
    "add": lambda tl, o, h: h + 1.0,
    "sum": lambda tl, o, h: tl.sum(h),
    "assign": lambda tl, o, h: tl.assign(h, tl.zeros((32, 32))),
    "exp": lambda tl, o, h: tl.exp(tl.zeros((32, 32)), out=h),
    "trans": lambda tl, o, h: tl.trans(h),
    "store": lambda tl, o, h: tl.store(o, h),
    "send": lambda tl, o, h: tl.send("E", h),
    "dot": lambda tl, o, h: tl.dot(tl.zeros((32, 32)), h, trans_b=True),
    "composite": lambda tl, o, h: tl.composite("gemm", h, tl.ref(o, (32, 32)), trans_b=True),
    "wait": lambda tl, o, h: tl.wait(h),
}


@pytest.mark.parametrize(("call", "use"), USES.items(), ids=USES)
def test_a_handle_is_dead_after_its_scope_in_every_call(refusal: Any, call: str, use: Callable[..., Any]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0):
            return
        with tl.scratch_scope():  # the exit
            h = tl.wait(tl.load(x, (32, 32)))  # made
        use(tl, o, h)

    message = refusal(kernel, "use-after-recycle", x=X, o=OUT, grid=2)
    assert f"tl.{call} of PE0" in message
    assert "a handle (32, 32) float32" in message
    assert f"test_lifetimes.py:{line(kernel, '# made')} in kernel" in message, "where it was made"
    assert f"test_lifetimes.py:{line(kernel, '# the exit')} in kernel" in message, "where its scope ended"
    assert "tl.assign or out=" in message


def test_it_is_dead_before_anyone_else_owns_its_bytes(refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        with tl.scratch_scope():
            h = tl.zeros((32, 32))
        h + 1.0

    refusal(kernel, "use-after-recycle", x=X)


def test_a_transposed_view_dies_with_what_it_shows(refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        with tl.scratch_scope():
            seen = tl.trans(tl.zeros((32, 32)))
        seen + 1.0

    refusal(kernel, "use-after-recycle", x=X)


def test_an_inner_scope_ends_only_what_is_its_own(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        outer = tl.zeros((32, 32))
        with tl.scratch_scope():
            middle = tl.load(x, (32, 32))
            with tl.scratch_scope():
                inner = middle * 2.0
                tl.add(inner, 1.0, out=outer)
            tl.add(outer, middle, out=outer)
        tl.wait(tl.store(o, outer))

    outcome = launch(kernel, x=X, o=OUT, check=True)
    assert (outcome["o"] == 3 * X + 1).all()


def test_an_exit_by_exception_releases_too(launch: Any, refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        for _ in range(3):
            try:
                with tl.scratch_scope():
                    h = tl.zeros((32, 32))
                    raise ValueError
            except ValueError:
                pass
        if not x.offset:
            h + 1.0

    refusal(kernel, "use-after-recycle", x=X)
    assert launch(lambda x, *, tl: kernel(x + 1, tl=tl), x=X).run.scratch_high_water == 4096


def test_an_exit_waits_for_nothing_and_costs_nothing(launch: Any) -> None:
    seen = []

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (32, 32))
        with tl.scratch_scope():
            tl.exp(h)
            before = tl._kernel.now
        seen.append((before, tl._kernel.now))

    launch(kernel, x=X, o=OUT)
    ((before, after),) = seen
    assert before == after


# In flight at the exit


def left_with_a_load(x: Any, o: Any, tl: Any, waits: bool) -> None:
    with tl.scratch_scope():
        h = tl.load(x, (32, 32))  # in flight
        if waits:
            tl.wait(h)


def left_with_a_composite(x: Any, o: Any, tl: Any, waits: bool) -> None:
    a = tl.load(x, (32, 32))
    with tl.scratch_scope():
        c = tl.composite("gemm", a, tl.ref(x, (32, 32)), trans_b=True)  # in flight
        if waits:
            tl.wait(c)


def left_with_a_recv_async(x: Any, o: Any, tl: Any, waits: bool) -> None:
    if tl.program_id(0) == 0:
        tl.wait(tl.send("E", tl.load(x, (32, 32))))
        return
    with tl.scratch_scope():
        h = tl.recv_async("W", (32, 32))  # in flight
        if waits:
            tl.wait(h)


IN_FLIGHT = [left_with_a_load, left_with_a_composite, left_with_a_recv_async]


def with_waits(kernel: Callable[..., None], waits: bool) -> Callable[..., None]:
    def either(x: Any, o: Any, *, tl: Any) -> None:
        kernel(x, o, tl, waits)

    return either


@pytest.mark.parametrize("kernel", IN_FLIGHT)
@pytest.mark.parametrize("schedule", ["model", "late"])
def test_an_exit_with_something_in_flight_is_found_at_both_lines(launch: Any, kernel: Any, schedule: str) -> None:
    outcome = launch(with_waits(kernel, False), x=X, o=OUT, grid=2, schedule=schedule)
    (found,) = [hazard for hazard in outcome.run.hazards if hazard.kind == "recycle-in-flight"]
    assert f"test_lifetimes.py:{line(kernel, '# in flight')} in {kernel.__name__}" in str(found)
    assert f"test_lifetimes.py:{line(kernel, 'scratch_scope():')} in {kernel.__name__}" in str(found)


@pytest.mark.parametrize("kernel", IN_FLIGHT)
@pytest.mark.parametrize("schedule", ["model", "late"])
def test_waited_for_inside_it_is_no_finding(launch: Any, kernel: Any, schedule: str) -> None:
    launch(with_waits(kernel, True), x=X, o=OUT, grid=2, schedule=schedule, check=True)


def test_a_math_op_in_flight_at_the_exit_is_no_finding_for_the_next_math_op(launch: Any) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        for _ in range(3):
            with tl.scratch_scope():
                tl.exp(tl.zeros((32, 32)))

    launch(kernel, x=X, o=OUT, check=True)


# The second form: a later owner of the bytes


def store_then_reuse(x: Any, o: Any, tl: Any, waits: bool) -> None:
    with tl.scratch_scope():
        h = tl.load(x, (32, 32))
        stored = tl.store(o, tl.add(h, 1.0))  # first
        if waits:
            tl.wait(stored)
    with tl.scratch_scope():
        tl.wait(tl.zeros((32, 32)))
        tl.wait(tl.zeros((32, 32)))  # second
    tl.wait(stored)


def math_then_load(x: Any, o: Any, tl: Any, waits: bool) -> None:
    y = tl.zeros((32, 32))
    with tl.scratch_scope():
        h = tl.wait(tl.load(x, (32, 32)))
        read = tl.add(h, 1.0, out=y)  # first
        if waits:
            tl.wait(read)
    with tl.scratch_scope():
        again = tl.load(x, (32, 32))  # second
        tl.wait(again)
    tl.wait(tl.store(o, y))


def composite_operand_then_reuse(x: Any, o: Any, tl: Any, waits: bool) -> None:
    out = tl.empty((32, 32))
    with tl.scratch_scope():
        a = tl.add(tl.load(x, (32, 32)), 1.0)
        c = tl.composite("gemm", a, tl.ref(x, (32, 32)), trans_b=True, out=out)  # first
        if waits:
            tl.wait(c)
    with tl.scratch_scope():
        tl.empty((32, 32))
        tl.zeros((32, 32))  # second
    tl.wait(c)
    tl.wait(tl.store(o, c))


REUSED = [store_then_reuse, math_then_load, composite_operand_then_reuse]


@pytest.mark.parametrize("kernel", REUSED)
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_bytes_with_a_new_owner_before_the_old_access_is_over(launch: Any, kernel: Any, schedule: str) -> None:
    outcome = launch(with_waits(kernel, False), x=X, o=OUT, schedule=schedule)
    assert outcome.kinds == ["recycle-in-flight"]
    (hazard,) = outcome.run.hazards
    assert [op.site.line for op in hazard.ops] == [line(kernel, "# first"), line(kernel, "# second")]
    assert "wait inside the scope" in hazard.message


@pytest.mark.parametrize("kernel", REUSED)
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_waited_for_before_the_exit_the_bytes_are_free(launch: Any, kernel: Any, schedule: str) -> None:
    launch(with_waits(kernel, True), x=X, o=OUT, schedule=schedule, check=True)


def test_high_water_does_not_depend_on_the_number_of_tiles(launch: Any) -> None:
    def kernel(tiles: int) -> Callable[..., None]:
        def tiled(x: Any, o: Any, *, tl: Any) -> None:
            acc = tl.zeros((32, 32))
            for _ in range(tiles):
                with tl.scratch_scope():
                    tl.add(acc, tl.load(x, (32, 32)), out=acc)
            tl.wait(acc)

        return tiled

    assert {launch(kernel(tiles), x=X, o=OUT).run.scratch_high_water for tiles in (1, 2, 9)} == {2 * 4096}


def test_without_a_scope_it_does_and_ends_in_capacity(launch: Any, refusal: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        while True:
            tl.zeros((32, 32))

    message = refusal(kernel, "capacity", x=X, spec={"scratch_bytes": 10_000})
    assert "scratch of PE0 holds 10000 bytes, 8192 are taken, 4096 more were asked for ((32, 32) float32)" in message
    assert "tl.scratch_scope()" in message
