"""A pipe takes its ops in order: occupancy is serial, latency is pipelined, and ends are in order whatever the way."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ops.log import OpLog, Row

X = np.arange(1024, dtype=np.float32).reshape(32, 32)
PIPES = ("DMA_R", "DMA_W", "GEMM", "MATH", "IPCQ")


def pipes(log: OpLog) -> Iterator[list[Row]]:
    """The rows of each pipe of each program, in the order in which they started."""
    rows: dict[tuple[int, str], list[Row]] = {}
    for row in log:
        if row.unit.startswith(PIPES):
            rows.setdefault((row.program, row.unit), []).append(row)
    return (sorted(each, key=lambda row: (row.start, row.free)) for each in rows.values())


def test_occupancy_is_serial_and_latency_is_pipelined(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        for row in range(4):
            tl.load(x + 32 * row, (1, 32))

    first, *others = launch(kernel, x=X).rows("load")
    # 5 a descriptor, 1 a run, 256 B at 256 B/cycle occupy; 40 cycles to the first byte do not.
    assert (first.issue, first.start, first.free, first.end) == (16, 16, 23, 63)
    assert [(row.issue, row.start, row.free, row.end) for row in others] == [
        (32, 32, 39, 79), (48, 48, 55, 95), (64, 64, 71, 111),
    ]  # fmt: skip


def test_an_op_starts_when_its_unit_is_free_not_when_the_op_before_has_ended(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (32, 32))
        tl.load(x, (32, 32))

    first, second = launch(kernel, x=X).rows("load")
    assert first.free - first.start == 5 + 1 + 16
    assert second.start == first.free < first.end
    assert second.end - first.end == 22


def test_math_has_no_latency_behind_its_occupancy(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.zeros((32, 32)), tl.zeros((32, 32))

    first, second = launch(kernel, x=X).rows("zeros")
    assert first.free == first.end == first.start + 32 + 8
    assert second.start == first.end


def test_ops_of_different_units_overlap(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (32, 32))
        tl.zeros((32, 32))

    outcome = launch(kernel, x=X)
    assert outcome.row("zeros").start < outcome.row("load").end


def test_a_near_store_behind_a_far_one_does_not_end_before_it(launch: Callable[..., Any]) -> None:
    def kernel(far: Any, near: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h = tl.zeros((4, 4))
            tl.store(far, h)
            tl.wait(tl.store(near, h))

    outcome = launch(kernel, far=((4, 4), "float32", 7), near=((4, 4), "float32", 0), grid=8)
    far, near = outcome.rows("store")
    assert (
        far.end == far.start + 6 + (5 + 4 * 9 + 5) + 40 + 2
    )  # four hops, then the controller; 256 B burst at 128 B/cycle
    assert near.end == far.end
    assert outcome.kinds == []


def test_a_near_load_behind_a_far_one_is_there_no_earlier(launch: Callable[..., Any]) -> None:
    def kernel(far: Any, near: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            a, b = tl.load(far, (32, 32)), tl.load(near, (32, 32))
            tl.wait(b)
            tl.wait(tl.store(o, a + b))

    outcome = launch(kernel, far=(X, 7), near=(X, 0), o=((32, 32), "float32"), grid=8, check=True)
    far, near = outcome.rows("load")
    assert far.end == near.end
    assert (outcome["o"] == 2 * X).all()


def test_the_target_is_written_at_the_end_and_not_before(launch: Callable[..., Any]) -> None:
    """An add that starts one cycle before the load's end still reads what was there; at its end it reads the data."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.load(x, (8, 32))  # issue 16, 6 + 4 occupy, 40 later: end 66
        raw = tl.trans(tl.trans(h))
        raw.op = None  # nothing is auto-waited
        y = tl.add(raw, 0.0)
        tl.wait(h)
        tl.wait(tl.store(o, y))

    def seen(cost: int) -> Any:
        return launch(kernel, x=X[:8], o=((8, 32), "float32"), spec={"issue_costs": {"math": cost}})

    early, late = seen(66 - 16 - 1), seen(66 - 16)
    assert early.row("load").end == late.row("load").end == 66
    assert (early.row("add").start, late.row("add").start) == (65, 66)
    assert np.isnan(early["o"]).all()
    assert (late["o"] == X[:8]).all()


def test_sources_are_read_at_the_start(launch: Callable[..., Any]) -> None:
    """What overwrites a source after the start of its reader changes nothing; before the start it does."""

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        h = tl.wait(tl.load(x, (32, 32)))
        first, second = tl.store(o, h), tl.store(o + 1024, h)  # the second starts 22 cycles later
        tl.mul(h, 0.0, out=h)
        tl.wait(first, second)

    outcome = launch(kernel, x=X, o=((2, 32, 32), "float32"), spec={"issue_costs": 0, "math_start_cycles": 0})
    write = outcome.row("mul").end
    first, second = outcome.rows("store")
    assert first.start < write < second.start
    assert (outcome["o"][0] == X).all()
    assert (outcome["o"][1] == 0).all()


@st.composite
def bodies(draw: st.DrawFn) -> list[tuple[str, int]]:
    names = st.sampled_from(["load near", "load far", "store near", "store far", "math", "gemm", "send", "wait"])
    return draw(st.lists(st.tuples(names, st.integers(1, 8)), min_size=1, max_size=20))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies(), st.sampled_from(["model", "jitter", "late"]))
def test_random_programs_keep_every_pipe_in_order(launch: Any, body: list[tuple[str, int]], schedule: str) -> None:
    outcome = launch(
        lambda near, far, *, tl: say(body, near, far, tl), near=((32, 32), "float32", 0), far=((32, 32), "float32", 7),
        grid=8, data=False, schedule=schedule, spec={"ipcq_slots": 20},
    )  # fmt: skip
    for rows in pipes(outcome.log):
        assert all(before.free <= after.start for before, after in pairwise(rows))
        assert all(before.end <= after.end for before, after in pairwise(rows))
        assert all(row.issue <= row.start <= row.free <= row.end for row in rows)


def say(body: list[tuple[str, int]], near: Any, far: Any, tl: Any) -> None:
    sends = [size for name, size in body if name == "send"]
    if tl.program_id(0) == 1:
        for size in sends:
            tl.recv("W", (size, 32))
    if tl.program_id(0) != 0:
        return
    h = tl.zeros((8, 32))
    pending = [h]
    for name, size in body:
        said = {
            "load near": lambda size=size: tl.load(near, (size, 32)),
            "load far": lambda size=size: tl.load(far, (size, 32)),
            "store near": lambda size=size: tl.store(near, tl.zeros((size, 32))),
            "store far": lambda size=size: tl.store(far, tl.zeros((size, 32))),
            "math": lambda size=size: tl.exp(tl.zeros((size, 32))),
            "gemm": lambda size=size: tl.composite("gemm", h, tl.ref(near, (32, 4 * size), (32, 1)), trans_b=False),
            "send": lambda size=size: tl.send("E", tl.zeros((size, 32))),
            "wait": lambda size=size: tl.wait(pending[0]),
        }[name]()
        pending.append(said)
    tl.wait(*pending)


@pytest.mark.parametrize("unit", ["DMA_R", "MATH"])
def test_rows_of_a_unit_start_in_the_order_they_were_said(launch: Callable[..., Any], unit: str) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        for size in (32, 1, 16):
            tl.load(x, (size, 32)), tl.zeros((size, 32))

    rows = list(launch(kernel, x=X).log.where(unit=unit))
    assert [row.start for row in rows] == sorted(row.start for row in rows)
    assert [row.shape[0] for row in rows] == [32, 1, 16]
