"""Random kernels: `retime` gives the times of their runs, with the run's own numbers and with others."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import ISSUE_COSTS, AhbmSpec
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.ops.log import END, FREE, ISSUE, PROGRAM, START, OpLog
from pytest_kernbench.simulator.ops.retime import retime

D = 64
Step = tuple[Any, ...]


class Author:
    """Says steps to `tl`, with operands out of what it said before; `a` and `b` choose among them."""

    def __init__(self, tl: Any, x: Any, far: Any, out: Any) -> None:
        self.tl, self.sources, self.out = tl, (x, far), out
        self.tiles, self.values, self.pending = [tl.load(x, (32, D))], [tl.zeros((4, D))], list[Any]()

    def load(self, a: int, b: int) -> None:
        self.tiles.append(self.tl.load(self.sources[a % 2] + b * D, (1 + b, D)))

    def strided(self, a: int, b: int) -> None:
        self.tl.load(self.sources[a % 2] + b, (1 + a, 32), strides=(D, 2))

    def exp(self, a: int, b: int) -> None:
        self.values.append(self.tl.exp(self.values[a % len(self.values)]))

    def reduce(self, a: int, b: int) -> None:
        self.tl.sum(self.tiles[a % len(self.tiles)])

    def dot(self, a: int, b: int) -> None:
        self.tl.dot(self.tiles[a % len(self.tiles)], self.tiles[b % len(self.tiles)], trans_b=True)

    def streamed(self, a: int, b: int) -> None:
        shape = (8 + 3 * b, D) if a % 2 else (D, 8 + 3 * b)
        epilogue = (("scale", 2.0), ("relu",))[: a % 3]
        out = self.out if b % 2 else None
        tile, source = self.tl.ref(self.sources[b % 2], shape), self.tiles[a % len(self.tiles)]
        self.pending.append(self.tl.composite("gemm", source, tile, trans_b=bool(a % 2), epilogue=epilogue, out=out))

    def resident(self, a: int, b: int) -> None:
        one, other = self.tiles[a % len(self.tiles)], self.tiles[b % len(self.tiles)]
        self.pending.append(self.tl.composite("gemm", one, other, trans_b=True))

    def store(self, a: int, b: int) -> None:
        self.pending.append(self.tl.store(self.out + b, self.values[a % len(self.values)]))

    def wait(self, a: int, b: int) -> None:
        if self.pending:
            self.tl.wait(self.pending.pop(a % len(self.pending)))

    def send(self, a: int, b: int) -> None:
        self.pending.append(self.tl.send("EW"[a % 2], self.values[b % len(self.values)]))

    def receive(self, a: int, b: int) -> None:
        tl, direction = self.tl, "WE"[a % 2]
        if b % 3 == 0:
            tl.release(tl.recv(direction, (4, D)))
            return
        if b % 3 == 1:
            message = tl.recv_async(direction, (4, D))
            tl.exp(tl.wait(message))
            tl.release(message)
            return
        with tl.scratch_scope():
            message = tl.recv(direction, (4, D))
            self.pending.append(tl.store(self.out, message))
            tl.exp(message)


def straight_line(x: Any, far: Any, out: Any, programs: list[list[Step]], *, tl: Any) -> None:
    author = Author(tl, x, far, out)
    for name, a, b in programs[tl.program_id(0)]:
        getattr(author, name)(a, b)


KINDS = ["load", "strided", "exp", "reduce", "dot", "streamed", "resident", "store", "wait", "message", "message"]
said_steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 7), st.integers(0, 60)), max_size=40
)
specs = st.builds(
    AhbmSpec, hbm_bytes_per_cycle=st.sampled_from([32, 256]), hbm_first_byte_cycles=st.sampled_from([0, 40]),
    dma_descriptor_cycles=st.integers(0, 9), gemm_macs_per_cycle=st.sampled_from([300, 4096]),
    gemm_fill_cycles=st.sampled_from([0, 16]), math_lanes=st.sampled_from([1, 128]),
    link_bytes_per_cycle=st.sampled_from([16, 128]), hop_cycles=st.integers(0, 9),
    stream_depth=st.sampled_from([1, 2, 8]), issue_costs=st.sampled_from([0, 1, dict(ISSUE_COSTS)]),
)  # fmt: skip


def programs_of(n: int, said: list[tuple[str, int, int, int]]) -> list[list[Step]]:
    """The steps of each of `n` programs; a message is a send here and a receive there, so that no wait is for ever."""
    programs: list[list[Step]] = [[] for _ in range(n)]
    for kind, program, a, b in said:
        if kind != "message":
            programs[program % n].append((kind, a, b))
        elif n > 1:
            programs[program % n].append(("send", a, b))
            programs[(program + (-1 if a % 2 else 1)) % n].append(("receive", a, b))
    return programs


def run(spec: AhbmSpec, programs: list[list[Step]], pes: tuple[int, ...]) -> OpLog:
    """Run the programs on PEs in a ring; no data and no checkers, since only times are looked at."""
    chip = AhbmChip(spec, ports=ring_ports(pes))
    x, far = chip.tensor("x", (256, D)), chip.tensor("far", (256, D), place=0)
    out = chip.tensor("out", (256, 256), "float32")
    return chip.run(straight_line, x, far, out, programs, grid=len(pes), placement=pes, check=False).log


def times(log: OpLog) -> list[list[int]]:
    """Of each row, in program order: who ran ahead of whom differs from run to run."""
    table = log.table()
    return table[np.argsort(table[:, PROGRAM], kind="stable")][:, [PROGRAM, ISSUE, START, FREE, END]].tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), said_steps, st.permutations(range(8)), st.integers(1, 3), specs, specs)
def test_random_kernels_have_the_times_of_their_runs(
    n: int, said: list[tuple[str, int, int, int]], order: list[int], slots: int, one: AhbmSpec, other: AhbmSpec
) -> None:
    pes, programs = tuple(order[:n]), programs_of(n, said)
    one, other = replace(one, ipcq_slots=slots), replace(other, ipcq_slots=slots)

    log = run(one, programs, pes)

    assert retime(log, Timing(one)).changed.size == 0
    assert times(retime(log, Timing(other)).log) == times(run(other, programs, pes))
