"""The core against a literal event loop: the same bits and the same times, row by row, on random programs.

The oracle has a heap, pipes that look at the head of their queue, and flags that are counters; it knows nothing of
times that follow from one another.
"""

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernbench.kernels.ascend310p.causal_conv1d import causal_conv1d
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.faithful import FaithfulChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import chunk_gated_delta_rule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.improved import OPTIONS, improved
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling
from pytest_kernbench.kernels.ascend310p.pipeline import copy_compute_copy
from pytest_kernbench.kernels.ascend310p.rms_norm import rms_norm
from pytest_kernbench.kernels.ascend310p.softmax import scaled_row_softmax
from pytest_kernbench.kernels.ascend310p.vector_add import vector_add
from pytest_kernbench.kernels.reference.delta_rule import random_delta_rule
from pytest_kernbench.simulator.ascend310p import device
from pytest_kernbench.simulator.ascend310p.core import Stuck
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.effects import begin
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import DeadlockError
from pytest_kernbench.simulator.ops.compact import CELLS

ENDS, RAISES, STARTS = range(3)  # of one cycle, in this order


class LiteralPipe:
    def __init__(self, number: int) -> None:
        self.number, self.queue, self.free, self.in_flight, self.last = number, deque(), 0, 0, 0
        self.name, self.parked = str(number), ()


class LiteralFlag:
    """What the language keeps of a flag."""

    def __init__(self, key: Any) -> None:
        self.key, self.outstanding, self.last_set, self.name = key, 0, -1, str(key)


class LiteralCore:
    """The interface of `Core`, by events. S is whoever calls: it lets events happen up to its own time."""

    def __init__(self, spec: Any, log: Any, effects: Any, order: Any, *, start: int, syncs: bool, extra: Any) -> None:
        assert order is None and extra is None and syncs
        self.spec, self.log, self.now, self.time = spec, log, start, start
        self.pipes = [LiteralPipe(number) for number in range(4)]
        self.vector = self.pipes[1]
        self.flags: dict[Any, Any] = {}
        self.up: Counter[Any] = Counter()
        self.raisers: dict[Any, deque[int]] = {}
        self.heap: list[Any] = []
        self.ticket = count()
        self.landed, self.pending = start, []
        self.effects = SimpleNamespace(drain=self.drain)

    # Events

    def at(self, time: int, kind: int, number: int, what: Callable[..., None], *args: Any) -> None:
        heappush(self.heap, (time, kind, number, next(self.ticket), what, args))

    def happen(self, until: int) -> None:
        while self.heap and self.heap[0][0] <= until:
            self.time, _, _, _, what, args = heappop(self.heap)
            what(*args)
        self.time = until

    def until(self, done: Callable[[], bool]) -> bool:
        self.happen(self.now)
        while not done():
            if not self.heap:
                return False
            self.happen(self.heap[0][0])
        self.now = max(self.now, self.time)
        return True

    def drain(self) -> None:
        while self.heap:
            self.happen(self.heap[0][0])

    def look(self, pipe: LiteralPipe) -> None:
        self.at(self.time, STARTS, 0, self.advance, pipe)

    def advance(self, pipe: LiteralPipe) -> None:
        while pipe.queue:
            kind, row, what = pipe.queue[0]
            if kind == "op":
                if pipe.free > self.time:
                    self.at(pipe.free, STARTS, 0, self.advance, pipe)
                    return
                self.begin(pipe, row, *what)
            elif kind == "barrier":
                self.arrive(row)
                if pipe.in_flight:
                    return
                self.cell(row, 3, self.time)
            elif kind == "set":
                self.arrive(row)
                self.at(max(self.time, pipe.last), RAISES, row, self.raise_flag, what, row)
            else:
                self.arrive(row)
                if not self.up[what]:
                    return
                self.up[what] -= 1
                self.cell(row, 3, self.time)
                self.cell(row, 4, self.raisers[what].popleft())
            pipe.queue.popleft()

    def arrive(self, row: int) -> None:
        if self.log.cells[row * CELLS + 2] < 0:
            self.cell(row, 2, self.time)

    def begin(self, pipe: LiteralPipe, row: int, occupancy: int, latency: int, args: Any, deed: Any) -> None:
        pipe.free = self.time + occupancy
        end = pipe.free + latency
        pipe.in_flight += 1
        pipe.last = max(pipe.last, end)
        self.cell(row, 2, self.time)
        self.cell(row, 3, end)
        self.at(end, ENDS, row, self.finish, pipe, begin((self.time, end, row, args, deed)))

    def finish(self, pipe: LiteralPipe, written: Any) -> None:
        target, where, values = written
        target[where] = values
        pipe.in_flight -= 1
        self.look(pipe)

    def raise_flag(self, key: Any, row: int) -> None:
        self.up[key] += 1
        self.raisers.setdefault(key, deque()).append(row)
        self.cell(row, 3, self.time)
        self.look(self.pipes[key[1]])

    def cell(self, row: int, column: int, value: int) -> None:
        self.log.cells[row * CELLS + column] = value

    # What S says

    def submit(
        self, pipe: LiteralPipe, descriptor: int, kind: str, what: Any, offsets: tuple[int, ...] = (0, 0, 0, 0)
    ) -> int:
        if not self.until(lambda: len(pipe.queue) < self.spec.queue_depth):
            raise Stuck("full")
        row = self.log.open((descriptor, self.now, -1, -1, *offsets))
        pipe.queue.append((kind, row, what))
        self.look(pipe)
        self.happen(self.now)
        self.now += 1
        return row

    def op(
        self, pipe: Any, descriptor: int, occupancy: int, latency: int, offsets: Any, args: Any, deed: Any, *_: Any
    ) -> int:
        return self.submit(pipe, descriptor, "op", (occupancy, latency, args, deed), offsets)

    def barrier(self, pipe: Any, descriptor: int) -> None:
        self.submit(pipe, descriptor, "barrier", None)

    def flag(self, key: Any) -> LiteralFlag:
        return self.flags.setdefault(key, LiteralFlag(key))

    def flag_set(self, flag: Any, descriptor: int) -> None:
        key = flag.key
        if key[0]:
            self.submit(self.pipes[key[0]], descriptor, "set", key)
            return
        row = self.log.open((descriptor, self.now, self.now, -1, 0, 0, 0, 0))
        self.at(max(self.now, self.landed), RAISES, row, self.raise_flag, key, row)
        self.now += 1

    def flag_wait(self, flag: Any, descriptor: int, site: int) -> None:
        key = flag.key
        if key[1]:
            self.submit(self.pipes[key[1]], descriptor, "wait", key)
            return
        issue = self.now
        if not self.until(lambda: self.up[key] > 0):
            raise Stuck("S waits")
        self.up[key] -= 1
        self.log.open((descriptor, issue, issue, self.now, self.raisers[key].popleft(), 0, 0, 0))
        self.now += 1

    def barrier_all(self, descriptor: int) -> None:
        for pipe in self.pipes[1:]:
            if not self.until(lambda pipe=pipe: len(pipe.queue) < self.spec.queue_depth):
                raise Stuck("full")
        issue = self.now
        idle = lambda: not any(pipe.queue or pipe.in_flight for pipe in self.pipes) and self.time >= self.landed  # noqa: E731
        if not self.until(idle):
            raise Stuck("all")
        while self.heap and self.heap[0][1] == RAISES:
            self.happen(self.heap[0][0])
        self.log.open((descriptor, issue, issue, self.now, 0, 0, 0, 0))
        self.now += 1

    def load(self, descriptor: int, cycles: int, offset: int, target: Any, index: int, lo: int, hi: int) -> Any:
        self.happen(self.now)
        self.log.open((descriptor, self.now, self.now, self.now + cycles, offset, 0, 0, 0))
        value = target[index]
        for land, at, stored in self.pending:
            if land > self.now and at == lo:
                value = stored
        self.now += cycles
        return value

    def store(
        self, descriptor: int, cycles: int, offset: int, target: Any, index: int, value: Any, lo: int, hi: int
    ) -> int:
        self.landed = max(self.landed, self.now + cycles)
        row = self.log.open((descriptor, self.now, self.now, self.landed, offset, 0, 0, 0))
        self.at(self.landed, ENDS, row, target.__setitem__, index, value)
        self.pending.append((self.landed, lo, value))
        self.now += 1
        return row

    @property
    def end(self) -> int:
        cells = np.frombuffer(self.log.cells, np.int32).reshape(-1, CELLS)
        return max(self.landed, int(cells[:, 3].max(initial=0)))

    def fail_if_parked(self) -> None:
        self.drain()
        if any(pipe.queue for pipe in self.pipes):
            raise Stuck("at the end")


# Random programs

EVENTS = ("MTE2_V", "V_MTE2", "V_MTE3", "MTE3_V", "S_V", "V_S", "S_MTE2", "MTE2_S", "S_MTE3", "MTE3_MTE2")
WIDTHS = (8, 64, 200)
LAST = [(what, event, 5) for event in ("V_MTE3", "MTE2_MTE3", "S_MTE3") for what in ("Set", "Wait")]
SHOW = [*LAST, *(("out", at, 256) for at in range(4))]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Straight lines; every Wait has its Set, before it or after it (never for S)."""
    slot, width = st.integers(0, 3), st.sampled_from(WIDTHS)
    action = st.one_of(
        st.tuples(st.just("Add"), slot, slot, slot, width),
        st.tuples(st.just("Axpy"), slot, slot, st.just(0.5), width),
        st.tuples(st.just("sum"), slot, slot),
        st.tuples(st.just("in"), slot, width), st.tuples(st.just("out"), slot, width),
        st.tuples(st.just("barrier"), st.integers(1, 4)),
        st.tuples(st.just("flag"), st.sampled_from(EVENTS), st.integers(0, 1)),
        st.tuples(st.just("get"), slot, st.integers(0, 7)), st.tuples(st.just("put"), slot, st.integers(0, 7)),
    )  # fmt: skip
    lines: list[tuple[Any, ...]] = []
    owed: list[tuple[int, tuple[Any, ...]]] = []  # commands to say after so many more
    for each in draw(st.lists(action, min_size=8, max_size=30)):
        said = [each]
        if each[0] == "flag":
            early = draw(st.booleans()) and not each[1].endswith("_S")
            pair = [("Set", *each[1:]), ("Wait", *each[1:])]
            said, later = [pair[early]], pair[not early]
            owed.append((len(lines) + draw(st.integers(1, 6)), later))
        lines += said
        lines += [command for due, command in owed if due <= len(lines)]
        owed = [(due, command) for due, command in owed if command not in lines or due > len(lines)]
    return [*(("in", at, 200) for at in range(4)), *lines, *(command for _, command in owed), *SHOW]


def kernel(x: Any, o: Any, program: Any, *, asc: Any) -> None:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * 1024)
    slots = [buf.GetWithOffset(asc.float32, 256, 1024 * at) for at in range(4)]
    source, target = asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
    source.SetGlobalBuffer(x)
    target.SetGlobalBuffer(o)
    seen = 1.0
    for what, *args in program:
        if what == "Add":
            asc.Add(*(slots[each] for each in args[:3]), args[3])
        elif what == "Axpy":
            asc.Axpy(slots[args[0]], slots[args[1]], args[2] * seen, args[3])
        elif what == "sum":
            asc.WholeReduceSum(slots[args[0]], slots[args[1]], 64, 2, 1, 1, 8)
        elif what == "in":
            asc.DataCopy(slots[args[0]], source[args[0] * 8], args[1])
        elif what == "out":
            asc.DataCopy(target[args[0] * 256], slots[args[0]], args[1])
        elif what == "barrier":
            asc.PipeBarrier((None, asc.PIPE_V, asc.PIPE_MTE2, asc.PIPE_MTE3, asc.PIPE_ALL)[args[0]])
        elif what == "Set":
            asc.SetFlag(asc.HardEvent[args[0]], args[1])
        elif what == "Wait":
            asc.WaitFlag(asc.HardEvent[args[0]], args[1])
        elif what == "get":
            value = slots[args[0]].GetValue(args[1])
            seen = float(value) if np.isfinite(value) and abs(value) < 4 else 1.0
        else:
            slots[args[0]].SetValue(args[1], seen)


def outcome(program: Any, depth: int) -> Any:
    """Cycles, rows and bits of a run; or that it is stuck."""
    core = Ascend310pCore(Ascend310pSpec(queue_depth=depth))
    x = core.tensor("x", 1024, "float32", np.random.default_rng(0).standard_normal(1024))
    o = core.tensor("o", 1024, "float32")
    try:
        run = core.run(kernel, x, o, program, check=False)
    except DeadlockError:
        return "stuck"
    return run.cycles, run.log.table().tolist(), run.array("o").tobytes()


@pytest.mark.adr("0310", "3.1")
@pytest.mark.parametrize("depth", [2, 32])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_the_core_is_the_event_loop(program: Any, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = outcome(program, depth)
    with monkeypatch.context() as patch:
        patch.setattr(device, "Core", LiteralCore)
        theirs = outcome(program, depth)
    if ours == "stuck" or theirs == "stuck":
        assert ours == theirs
        return
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert mine == other
    assert ours[0] == theirs[0]
    assert ours[2] == theirs[2]


def rows_of(name: str, kernel: Callable[..., None], sizes: dict[str, Any]) -> Any:
    core, rng = Ascend310pCore(), np.random.default_rng(0)
    dtype = "float32" if name == "pipeline" else "float16"
    inputs = {"add": ("x", "y"), "norm": ("x", "weight"), "conv": ("x", "weight")}.get(name, ("x",))
    tensors = [core.tensor(each, 2048, dtype, rng.standard_normal(2048)) for each in inputs]
    out = core.tensor("out", 2048, dtype)
    run = core.run(kernel, *tensors, out, **sizes, check=False, grid=2 if name in ("add", "norm") else 1)
    return run.cycles, run.log.table().tolist(), run.array(out).tobytes()


KERNELS: dict[str, Any] = {
    "add": (vector_add, {"length": 2048, "tile": 256}),
    "norm": (rms_norm, {"rows": 4, "width": 208}),
    "softmax": (scaled_row_softmax, {"rows": 4, "width": 128, "scale": 0.5}),
    "conv": (causal_conv1d, {"tokens": 8, "channels": 48}),
    "pipeline": (copy_compute_copy, {"length": 2048, "tile": 256, "buffer_num": 2}),
}


@pytest.mark.adr("0310", "3.1")
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_the_same_in_the_event_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = rows_of(name, *KERNELS[name])
    monkeypatch.setattr(device, "Core", LiteralCore)
    assert rows_of(name, *KERNELS[name]) == ours


def delta_rule(variant: Any, tiling: Any) -> Any:
    inputs = random_delta_rule(3, (11, 0, 3), (1, 2), (16, 20))
    done = chunk_gated_delta_rule(Ascend310pCore(), *inputs, variant=variant, tiling=tiling, check=False)
    return done.run.cycles, done.run.log.table().tolist(), done.out.tobytes(), done.final_state.tobytes()


SHAPE = Shape((11, 0, 3), 1, 2, 16, 20)
VARIANTS: dict[str, Any] = {
    "mended": (ChunkGatedDeltaRule, tiling(SHAPE, chunk=8)),
    "faithful": (FaithfulChunkGatedDeltaRule, tiling(SHAPE, chunk=8)),
    "improved": tuple(improved(SHAPE, *OPTIONS, chunk=8)),
}


@pytest.mark.adr("0310", "3.1")
@pytest.mark.parametrize("name", VARIANTS)
def test_the_delta_rule_is_the_same_in_the_event_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = delta_rule(*VARIANTS[name])
    monkeypatch.setattr(device, "Core", LiteralCore)
    assert delta_rule(*VARIANTS[name]) == ours
