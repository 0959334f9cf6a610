"""`retime` is a second engine: it has to give the first one's times to the cycle, for other numbers of the spec too.

Kernels run without data and without checkers: only times are looked at.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.scheduler import Scheduler
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import LaunchError, SimError
from pytest_kernbench.simulator.ops.log import AFTER, END, FREE, ISSUE, NAME, PROGRAM, START, UNIT, WIDTH, OpLog
from pytest_kernbench.simulator.ops.retime import retime
from pytest_kernbench.simulator.ops.unit import Server, Unit

D = 64


def launch(kernel: Callable[..., None], spec: AhbmSpec, n: int, *, ports: Any = None, **options: Any) -> Run:
    """Run `kernel(x, far, out)` on `n` PEs: x and out at each, far at the first."""
    chip = AhbmChip(spec, ports=ports)
    x, far = chip.tensor("x", (256, D)), chip.tensor("far", (256, D), place=0)
    out = chip.tensor("out", (256, 256), "float32")
    return chip.run(kernel, x, far, out, **{"grid": n, "check": False, **options})


def decode(spec: AhbmSpec, s: int, n: int, tile: int, **options: Any) -> Run:
    chip, capacity = AhbmChip(spec), -(-max(s, 1) // n)
    q = chip.tensor("Q", (8, D), place="replicate", axes=("row", "d"))
    k, v = (chip.tensor(name, (capacity, D), axes=("token", "d")) for name in "KV")
    o = chip.tensor("O", (8, D), place=n - 1)
    return chip.run(
        gqa_decode, q, k, v, o, s, 0, n, group=8, tile=tile, scale=0.125, grid=n,
        placement=placement(n, (2, 4)), check=False, **options,
    )  # fmt: skip


def differences(one: OpLog, other: OpLog) -> list[str]:
    """Where two logs of the same kernels differ, program by program: who ran ahead of whom is not a difference."""
    pairs = zip(lines(one), lines(other), strict=True)
    return [f"{mine} != {theirs}" for mine, theirs in pairs if mine != theirs]


def lines(log: OpLog) -> list[tuple[Any, ...]]:
    """(program, number in it, name, unit, times, what it waits for) of each row, in program order."""
    table = log.table()
    order = np.argsort(table[:, PROGRAM], kind="stable")
    place = np.empty(len(table), int)
    place[order] = np.arange(len(table))
    return [
        (int(row[PROGRAM]), int(place[number]), log.names.values[row[NAME]], log.units.values[row[UNIT]],
         *row[[ISSUE, START, FREE, END]].tolist(), int(place[row[AFTER]]) if row[AFTER] >= 0 else None)
        for number, row in zip(order, table[order], strict=True)
    ]  # fmt: skip


# Kernels whose control does not look at time


def loads_and_math(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    a, strided = tl.load(x, (32, D)), tl.load(x, (8, 32), strides=(D, 2))
    tl.exp(tl.max(a))
    tl.wait(strided)
    tl.store(out, tl.dot(a, tl.load(far, (40, D)), trans_b=True))
    h = tl.add(a, a)
    tl.wait(tl.store(out, h), tl.store(far, tl.sum(h)))


def crowd(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """Everybody reads and writes the first PE's slice, over links that several routes share."""
    for row in range(4):
        tl.load(far + row * D, (64, D))
    h = tl.zeros((16, D))
    for row in range(3):
        tl.store(far + row * 16 * D, h)
    tl.wait(tl.composite("gemm", tl.load(far, (8, D)), tl.ref(far, (200, D)), trans_b=True))


def composites(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """Longer than the stream is deep, from near and far, to scratch and to HBM."""
    a, bias = tl.load(x, (40, D)), tl.zeros((1, 200))
    first = tl.composite("gemm", a, tl.ref(x, (200, D)), trans_b=True, epilogue=(("scale", 2.0), ("bias", bias)))
    tl.load(far, (8, D))
    second = tl.composite("gemm", a, tl.ref(far, (D, 70)), trans_b=False, out=out, epilogue=(("relu",),))
    third = tl.composite("gemm", a, tl.ref(x, (250, D), strides=(D, 1)), trans_b=True, out=out)
    tl.wait(first, second, third)


def products_of_all_kinds(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """Streamed ones, and between them those that need no panel: of scratch in several runs, and a dot."""
    a, b = tl.load(x, (40, D)), tl.load(x, (100, D))
    tl.wait(a, b)
    tl.composite("gemm", a, b, trans_b=True)
    tl.composite("gemm", a, tl.ref(far, (70, D)), trans_b=True)
    tl.composite("gemm", a, b, trans_b=True)
    tl.composite("gemm", a, tl.ref(x, (200, D)), trans_b=True)
    tl.dot(a, b, trans_b=True)
    tl.wait(tl.composite("gemm", a, tl.ref(x, (7, D)), trans_b=True))


def float32_products(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    a = tl.load(out, (40, D), strides=(256, 1))
    tl.dot(a, a, trans_b=True)
    tl.wait(tl.composite("gemm", a, tl.ref(out, (96, D), strides=(256, 1)), trans_b=True))


def messages(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """Ten messages E, each answered W; slots go home by release, at scope ends and at the kernel's end."""
    h = tl.zeros((4, D))
    for number in range(10):
        if tl.program_id(0) == tl.program_id(1) == 0:
            tl.send("E", h)
            answer = tl.recv_async("E", (4, D))
            tl.exp(h)
            tl.release(tl.wait(answer))
            continue
        with tl.scratch_scope():
            m = tl.recv("W", (4, D))
            stored = tl.store(out, m) if number % 3 == 0 else None
            tl.send("W", tl.exp(m) if number % 2 else m)
            if stored is not None and number % 2:
                tl.wait(stored)


def left_at_the_end(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """The receiver still holds a slot that MATH, DMA and GEMM read when it returns; nobody waits for them."""
    if tl.program_id(0) == 0:
        for _ in range(2):
            tl.send("E", tl.zeros((8, D)))
        tl.wait(tl.send("E", tl.load(x, (8, D))))
        return
    for _ in range(2):
        tl.release(tl.recv("W", (8, D)))
    m = tl.recv("W", (8, D), "bfloat16")
    tl.exp(m)
    tl.store(far, m)
    tl.composite("gemm", m, tl.ref(x, (64, D)), trans_b=True)


def overtaking_credits(x: Any, far: Any, out: Any, *, tl: Any) -> None:
    """The slot of the second message goes home before the first's if MATH is faster than the load, else behind it."""
    if tl.program_id(0) == 0:
        h = tl.zeros((4, D))
        for _ in range(4):
            tl.send("E", h)
        return
    first, big, copy = tl.recv("W", (4, D)), tl.zeros((64, D)), tl.empty((4, D))
    with tl.scratch_scope():
        second = tl.recv("W", (4, D))
        tl.exp(big)
        tl.assign(copy, second)
    tl.wait(tl.load(x, (64, D)))
    tl.release(first)
    for _ in range(2):
        tl.release(tl.recv("W", (4, D)))


RUNS: dict[str, Callable[[AhbmSpec], Run]] = {
    "decode on 8 PEs, ragged": lambda spec: decode(spec, 1003, 8, 40),
    "decode on 1 PE": lambda spec: decode(spec, 300, 1, 128),
    "decode on 5 PEs, one-shot": lambda spec: decode(spec, 333, 5, 333),
    "decode of nothing": lambda spec: decode(spec, 0, 8, 64),
    "loads and MATH": lambda spec: launch(loads_and_math, spec, 2),
    "crowd": lambda spec: launch(crowd, spec, 6, placement=(5, 0, 3, 7, 2, 4)),
    "crowd of two cubes": lambda spec: launch(crowd, spec, 4, grid=(4, 2)),
    "composites": lambda spec: launch(composites, spec, 2),
    "products of all kinds": lambda spec: launch(products_of_all_kinds, spec, 2),
    "float32 products": lambda spec: launch(float32_products, spec, 1),
    "messages": lambda spec: launch(messages, spec, 2),
    "messages, one slot": lambda spec: launch(messages, replace(spec, ipcq_slots=1), 2),
    "messages between cubes": lambda spec: launch(
        messages, spec, 1, grid=(1, 2), ports=ring_ports((0, 8), closed=False)
    ),
    "left at the end": lambda spec: launch(left_at_the_end, spec, 2),
    "overtaking credits": lambda spec: launch(overtaking_credits, replace(spec, ipcq_slots=2), 2),
}

# Numbers of the spec that decide only when: every one is swept
CHANGES: list[dict[str, Any]] = [
    {"hbm_bytes_per_cycle": 64}, {"hbm_efficiency_percent": 80}, {"hbm_first_byte_cycles": 0},
    {"dma_descriptor_cycles": 50}, {"dma_run_cycles": 9}, {"gemm_macs_per_cycle": 300}, {"gemm_fill_cycles": 0},
    {"gemm_f32_factor": 1}, {"stream_depth": 1}, {"math_lanes": 7}, {"math_start_cycles": 0},
    {"exp_cycles_per_element": 4}, {"link_bytes_per_cycle": 16}, {"hop_cycles": 100}, {"injection_cycles": 1},
    {"ejection_cycles": 0}, {"ucie_bytes_per_cycle": 8}, {"ucie_cycles": 0}, {"issue_costs": 0}, {"issue_costs": 100},
    {"issue_costs": {"release": 30, "wait": 5}},
]  # fmt: skip


@functools.cache
def finished(name: str) -> Run:
    return RUNS[name](AhbmSpec())


@pytest.mark.parametrize("name", RUNS)
def test_the_same_costs_give_the_times_of_the_log(name: str) -> None:
    run = finished(name)

    retimed = retime(run.log, Timing(run.spec))

    assert differences(run.log, retimed.log) == []
    assert retimed.changed.size == 0
    assert (retimed.table == run.log.table()).all()
    assert retimed.cycles == run.cycles


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("name", RUNS)
def test_other_costs_give_the_times_of_a_run_with_them(name: str, change: dict[str, Any]) -> None:
    run, fresh = finished(name), RUNS[name](AhbmSpec(**change))

    retimed = retime(run.log, Timing(fresh.spec))

    assert differences(fresh.log, retimed.log) == []
    assert retimed.cycles == fresh.cycles


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_number_swept_changes_the_times_of_some_kernel(change: dict[str, Any]) -> None:
    runs = [finished(name) for name in RUNS]

    assert any(retime(run.log, Timing(replace(run.spec, **change))).changed.size for run in runs)


def test_the_log_that_is_retimed_stays_as_it_was() -> None:
    log = decode(AhbmSpec(), 100, 2, 64).log
    before = log.cells[:]

    retimed = retime(log, Timing(AhbmSpec(issue_costs=0)))

    assert log.cells == before
    assert retimed.log.cells != before


def test_a_wait_for_a_slot_goes_on_with_the_credit_that_comes_first() -> None:
    run = finished("overtaking credits")

    late = retime(run.log, Timing(replace(run.spec, hbm_bytes_per_cycle=16)))

    second_message, first_message, third_message, _ = run.log.where(name="credit").index
    assert credits_waited_for(run.log) == [first_message, third_message]
    assert credits_waited_for(late.log) == [second_message, first_message]


def credits_waited_for(log: OpLog) -> list[int]:
    return [row.after for row in log.where(name="wait") if log[row.after].name == "credit"]


@pytest.mark.parametrize(("schedule", "seed"), [("jitter", 1), ("jitter", 2), ("late", 0)])
def test_a_log_of_another_schedule_gives_the_times_of_the_model(schedule: str, seed: int) -> None:
    model, other = (decode(AhbmSpec(), 500, 4, 64, schedule=name, seed=seed) for name in ("model", schedule))

    assert other.cycles > model.cycles
    assert differences(model.log, retime(other.log, Timing(AhbmSpec())).log) == []


# A wrong engine is caught

FAULTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "MATH takes a cycle more": (Timing, "math_cycles", lambda was: lambda *op: was(*op) + 1),
    "saying an op takes a cycle more": (Timing, "issue_cycles", lambda was: lambda *op: was(*op) + 1),
    "a sub-tile takes a cycle more": (Timing, "tile_cycles", lambda was: lambda *op: was(*op) + 1),
    "an epilogue takes a cycle more": (Timing, "epilogue_cycles", lambda was: lambda *op: was(*op) + 1),
    "a descriptor takes a cycle more": (Timing, "descriptor_cycles", lambda was: lambda *op: was(*op) + 1),
    "links and controllers never queue": (Server, "serve", lambda was: lambda server, now, size: now),
    "a unit takes an op while it is busy": (Unit, "submit", lambda was: lambda unit, op: unit._start(op)),
    "a transfer ends before the one in front of it": (Unit, "_land", lambda was: lambda unit, op: unit._finish(op)),
    "a scheduler is told a cycle late": (
        Scheduler, "submit", lambda was: lambda it, product: it._sim.at(it._sim.now + 1, 0, partial(was, it), product)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_engine_is_caught(fault: str) -> None:
    owner, name, wrong = FAULTS[fault]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrong(getattr(owner, name)))
        runs = [RUNS[each](AhbmSpec()) for each in ("crowd", "composites", "messages", "loads and MATH")]

    assert any(retime(run.log, Timing(run.spec)).changed.size for run in runs)


@pytest.mark.parametrize("column", [ISSUE, START, FREE, END])
def test_one_time_that_is_a_cycle_off_is_found_whichever_row_has_it(column: int) -> None:
    log = launch(left_at_the_end, AhbmSpec(), 2).log
    for row in range(len(log)):
        log.cells[row * WIDTH + column] += 1
        assert retime(log, Timing(AhbmSpec())).changed.tolist() == [row]
        log.cells[row * WIDTH + column] -= 1


# What cannot be retimed


@pytest.mark.parametrize("field", ["tile_m", "panel_rows", "ipcq_slots", "burst_bytes", "mesh_cols"])
def test_a_number_that_decides_which_rows_there_are_is_refused(field: str) -> None:
    run = finished("messages")
    had = getattr(run.spec, field)

    fact = f"spec field {field} = {had * 2}, the run of the log had {had}; .* run the kernel"
    with pytest.raises(LaunchError, match=fact):
        retime(run.log, Timing(replace(run.spec, **{field: had * 2})))


def test_a_log_whose_wait_cannot_end_is_refused_and_the_row_named() -> None:
    log = launch(loads_and_math, AhbmSpec(), 1).log
    wait = int(log.where(name="wait").index[0])
    log.cells[wait * WIDTH + AFTER] = len(log) - 1

    fact = f"wait of test_retime.py:.* in row {wait}, after row {len(log) - 1}, is the first of {len(log) - wait} that"
    with pytest.raises(SimError, match=fact):
        retime(log, Timing(AhbmSpec()))


def test_an_empty_log_has_no_cycles() -> None:
    retimed = retime(OpLog(), Timing(AhbmSpec()))

    assert (retimed.cycles, retimed.changed.size, len(retimed.log)) == (0, 0, 0)


def test_a_long_log_is_retimed_whole() -> None:
    run = decode(AhbmSpec(), 65536, 8, 1024)
    begin = time.perf_counter()

    retimed = retime(run.log, Timing(AhbmSpec()))

    print(f"{len(run.log)} rows retimed in {time.perf_counter() - begin:.2f} s")
    assert retimed.changed.size == 0


def test_a_log_of_the_310p_is_refused_since_it_has_no_second_engine() -> None:
    def kernel(*, asc: Any) -> None:
        asc.PipeBarrier(asc.PIPE_ALL)

    with pytest.raises(LaunchError, match=r"give run\.log of a run on AHBM"):
        retime(Ascend310pCore().run(kernel).log, Timing(AhbmSpec()))
