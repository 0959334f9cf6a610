"""A layer of the gated delta rule on the 310P: `python -m benchmarks.delta_rule_layer [--workers 2] [--no-checks]`.

Qwen3-Next's 16 key and 32 value heads of 128, on 8 cores; a core at a time, each a part of the same launch, dealt to
processes. Progress on stderr; the result is held against the float64 recurrence. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import chunk_gated_delta_rule
from pytest_kernbench.kernels.reference.delta_rule import Inputs, random_delta_rule, recurrent
from pytest_kernbench.kernels.reference.delta_rule_cases import deviation
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

CORES, D = 8, 128
SCALE = D**-0.5


class Part(NamedTuple):
    """What one core did: its outputs where it wrote any, and what that took."""

    core: int
    out: Any
    state: Any
    cycles: int
    rows: int
    seconds: float


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    inputs = random_delta_rule(options.seed, (options.tokens,), (options.heads // 2, options.heads), (D, D))
    start = time.perf_counter()
    parts = list(told(run(inputs, options.workers, options.checks), start))
    took = time.perf_counter() - start
    print(report(options, parts, took))
    print(verdict(inputs, parts))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.delta_rule_layer", description=__doc__)
    made.add_argument("--tokens", type=int, default=1024)
    made.add_argument("--heads", type=int, default=32, help="value heads; half as many key heads")
    made.add_argument("--workers", type=int, default=1, help="processes")
    made.add_argument("--no-checks", dest="checks", action="store_false", help="without the checkers")
    made.add_argument("--seed", type=int, default=0)
    return made


def run(inputs: Inputs, workers: int, checks: bool) -> Iterator[Part]:
    """The parts, in order."""
    one = partial(core_of, inputs, checks)
    if workers == 1:
        yield from map(one, range(CORES))
    else:
        with ProcessPoolExecutor(workers) as pool:
            yield from pool.map(one, range(CORES))


def core_of(inputs: Inputs, checks: bool, core: int) -> Part:
    """One core's share of the launch, checked within itself."""
    start = time.perf_counter()
    chip = Ascend310pCore()
    done = chunk_gated_delta_rule(chip, *inputs, scale=SCALE, check=checks, log="data", part=(core, CORES))
    return Part(core, done.out, done.final_state, done.run.cycles, len(done.run.log), time.perf_counter() - start)


def told(parts: Iterator[Part], start: float) -> Iterator[Part]:
    """The parts, with a line of progress for each."""
    for number, part in enumerate(parts, 1):
        since = time.perf_counter() - start
        left = since / number * (CORES - number)
        line = f"core {part.core}: {part.seconds:.0f} s, {part.rows} rows; {number} of {CORES}"
        print(f"{line} after {since:.0f} s, {left:.0f} s to go", file=sys.stderr, flush=True)
        yield part


def report(options: argparse.Namespace, parts: Sequence[Part], took: float) -> str:
    """Figures of the whole."""
    peak = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN)) / 1024
    checks = "on" if options.checks else "off"
    return (
        f"{options.tokens} tokens, {options.heads} value heads, checkers {checks}, {options.workers} processes: "
        f"{took:.0f} s, {peak:.0f} MiB at most in one; {max(each.cycles for each in parts)} cycles on the last core, "
        f"{sum(each.rows for each in parts)} rows of log"
    )


def verdict(inputs: Inputs, parts: Sequence[Part]) -> str:
    """How far the layer is from the float64 recurrence. AssertionError if an element was written twice or never."""
    said = []
    for name, got, want in zip(("out", "state"), whole(parts), recurrent(*inputs, scale=SCALE), strict=True):
        said.append(str(deviation(name, got, want)))
    return "; ".join(said)


def whole(parts: Sequence[Part]) -> Iterator[Any]:
    """Outputs put together: each element is one part's, and poison in the others."""
    for arrays in ([each.out for each in parts], [each.state for each in parts]):
        stacked = np.stack(arrays)
        written = ~np.isnan(stacked)
        assert (written.sum(axis=0) == 1).all(), "elements that not exactly one core wrote"
        yield np.where(written, stacked, 0).sum(axis=0, dtype=np.float16)


if __name__ == "__main__":
    main()
