"""Rows 10, 11 and 12: the Ascend core's time an op, an `asc` call, and a layer of the gated delta rule.

The inner loop is that of one chunk of 64 tokens and one value head of 128: its dots, its coefficient passes, its
synchronisation, in the numbers of the seed's kernel. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.clock import Session
from benchmarks.speed import CHECKERS, each, microseconds, ratios
from benchmarks.table import Result, Target, against, figure
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

OPS = 20_000
HEADS = 3  # chunks a run: what is prepared once counts for each of them
TOKENS, D = 64, 128
CHUNKS_OF_A_LAYER = 16 * 32  # T=1024 in chunks of 64, 32 value heads
SECONDS = (160, 300)


def vector_ops(x: Any, count: int, *, asc: Any) -> None:
    """`count` times Add and the barrier behind it."""
    a, b, c, _ = buffers(asc, 4, 128)
    for tensor in (a, b, c):
        asc.Duplicate(tensor, 1.0, 128)
    asc.PipeBarrier(asc.PIPE_V)
    for _ in range(count):
        asc.Add(c, a, b, 128)
        asc.PipeBarrier(asc.PIPE_V)


def buffers(asc: Any, count: int, floats: int) -> list[Any]:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, count * floats * 4)
    return [buf.GetWithOffset(asc.float32, floats, at * floats * 4) for at in range(count)]


def chunk(x: Any, heads: int, *, asc: Any) -> None:
    """`heads` times the chunk's calls: two triangles of dots, three passes a coefficient, four triangular ones."""
    keys, values, scores, out, dot = buffers(asc, 5, TOKENS * D)
    for tensor in (keys, values, scores, out):
        asc.Duplicate(tensor, 0.01, TOKENS * D)
    asc.PipeBarrier(asc.PIPE_ALL)
    for _ in range(heads):
        for row in range(TOKENS):
            for column in range(row + 1):
                for _ in range(2 if column < row else 1):
                    one_dot(asc, keys[row * D], keys[column * D], dot, scores, row * TOKENS + column)
        for row in range(TOKENS):
            for k in range(D):
                add_scaled(asc, out[row * D], values[(k % TOKENS) * D], keys, row * D + k)
        for _ in range(2):
            for row in range(TOKENS):
                for k in range(D):
                    add_scaled(asc, out[row * D], keys[(k % TOKENS) * D], values, row * D + k)
        for _ in range(4):
            for row in range(TOKENS):
                for column in range(row + 1):
                    add_scaled(asc, out[row * D], values[column * D], scores, row * TOKENS + column)


def one_dot(asc: Any, one: Any, other: Any, dot: Any, scores: Any, at: int) -> None:
    asc.Mul(dot, one, other, D)
    asc.PipeBarrier(asc.PIPE_V)
    asc.WholeReduceSum(dot[D], dot, 64, 2, 1, 1, 8)
    asc.SetFlag(asc.HardEvent.V_S, 0)
    asc.WaitFlag(asc.HardEvent.V_S, 0)
    scores.SetValue(at, dot.GetValue(D) + dot.GetValue(D + 1))
    asc.SetFlag(asc.HardEvent.S_V, 1)
    asc.WaitFlag(asc.HardEvent.S_V, 1)


def add_scaled(asc: Any, target: Any, source: Any, coefficients: Any, at: int) -> None:
    coefficient = coefficients.GetValue(at)
    asc.SetFlag(asc.HardEvent.S_V, 0)
    asc.WaitFlag(asc.HardEvent.S_V, 0)
    asc.Axpy(target, source, coefficient, D)
    asc.PipeBarrier(asc.PIPE_V)


def calls_of_a_chunk() -> int:
    dots = TOKENS * (TOKENS + 1) // 2 + TOKENS * (TOKENS - 1) // 2
    return 10 * dots + 5 * (3 * TOKENS * D + 2 * TOKENS * (TOKENS + 1))


def run(kernel: Any, count: int, check: bool, log: bool | str = True) -> Run:
    core = Ascend310pCore()
    x = core.tensor("x", 8, "float32", np.ones(8))
    return core.run(kernel, x, count, check=check, log=log)


def ops(session: Session) -> Iterator[Result]:
    for (check, words), limit in zip(CHECKERS, (6, 12), strict=True):
        session.tell(f"310P vector ops, {words}")
        samples = each(session, partial(run, vector_ops, OPS, check), OPS)
        work = f"310P V op with its PipeBarrier, 128 floats, data on, {words}, both together"
        yield against(10, work, ratios(samples), Target(limit, "T"), microseconds(samples, "an op"))


def calls(session: Session) -> Iterator[Result]:
    for (check, words), limit in zip(CHECKERS, (2.5, 5), strict=True):
        session.tell(f"310P gated delta rule, inner loop, {words}")
        samples = each(session, partial(run, chunk, HEADS, check), HEADS * calls_of_a_chunk())
        work = f"310P gated-delta-rule inner loop, L=64 D=128, data on, {words}, an asc call"
        yield against(11, work, ratios(samples), Target(limit, "T"), microseconds(samples, "a call"))


def layer(session: Session) -> Iterator[Result]:
    for (check, words), limit in zip(CHECKERS, SECONDS, strict=True):
        session.tell(f"310P gated delta rule, one layer projected, {words}")
        samples = each(session, partial(run, chunk, HEADS, check, "data"), HEADS)
        usual = [sample.usual_seconds * CHUNKS_OF_A_LAYER for sample in samples]
        here = figure(CHUNKS_OF_A_LAYER * median(sample.work for sample in samples))
        work = f"310P one layer (T=1024, 32 value heads), log=data, {words}, projected from 3 of 512 chunks"
        absolute = f"{here} s here; {calls_of_a_chunk()} calls a chunk and head"
        yield against(12, work, usual, Target(limit, "s"), absolute)
