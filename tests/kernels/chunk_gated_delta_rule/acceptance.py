"""The command: `python -m tests.kernels.chunk_gated_delta_rule.acceptance [--workers N] [--only TEXT] [--key-heads N]`.

Runs the kernel on every acceptance case with every checker on, tells how far it is, and prints the table of
`docs/delta_rule.md`. A long case is called once a key head, with the value heads that read it: heads are independent,
and nothing of the case is left out unless `--key-heads` says so. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs, chunk_gated_delta_rule
from pytest_kernbench.kernels.reference.delta_rule_cases import ACCEPTANCE, Case, Deviation, deviation
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

Array = npt.NDArray[Any]
ROWS_OF_A_CALL = 12_000  # more state rows than these, and each key head is a call of its own


class Part(NamedTuple):
    """Results of a call: `out` [T, heads, Dv], `state` [B, heads, Dv, Dk] of the value heads from `first` on."""

    first: int
    out: Array
    state: Array
    seconds: float


class Row(NamedTuple):
    """A line of the table; `heads` are the value heads that ran."""

    case: Case
    heads: int
    calls: int
    seconds: float
    out: Deviation
    state: Deviation

    @property
    def passed(self) -> bool:
        """Whether both outputs are within the gate."""
        return self.out.passed and self.state.passed

    def __str__(self) -> str:
        rms = max(self.out.rms_ratio, self.state.rms_ratio)
        ulp = max(each.error / each.ulp for each in (self.out, self.state))
        heads = f"{self.heads} of {self.case.heads[1]}" if self.heads < self.case.heads[1] else "all"
        verdict = "yes" if self.passed else "NO"
        return f"| {self.case.name} | {heads} | {self.calls} | {rms:.2e} | {ulp:.2f} | {self.seconds:.0f} | {verdict} |"


HEAD = "| case | value heads | calls | rms ratio | worst, float16 ulp | seconds | passed |\n" + "| --- " * 7 + "|"


def inputs_of(case: Case, key_heads: range) -> Inputs:
    """The case's own inputs for these key heads and the value heads that read them."""
    given, (hk, hv) = case.inputs(), case.heads
    keys = slice(key_heads.start, key_heads.stop)
    values = slice(keys.start * hv // hk, keys.stop * hv // hk)
    return Inputs(
        given.query[:, keys],
        given.key[:, keys],
        given.value[:, values],
        given.beta[:, values],
        given.initial_state[:, values],
        tuple(map(int, given.lengths)),
        None if given.g is None else given.g[:, values],
    )


def call(case: Case, key_heads: range) -> Part:
    """One call of the operator on a new core; a finding raises HazardError."""
    began, inputs = time.perf_counter(), inputs_of(case, key_heads)
    done = chunk_gated_delta_rule(
        Ascend310pCore(), **inputs.arrays(), lengths=inputs.lengths, scale=case.scale, log="data"
    )
    first = key_heads.start * case.heads[1] // case.heads[0]
    return Part(first, done.out, done.final_state, time.perf_counter() - began)


def row_of(case: Case, parts: Iterable[Part]) -> Row:
    """What the parts, one behind the other in heads, are off by against the recurrence in float64."""
    parts = sorted(parts, key=lambda part: part.first)
    out, state = (np.concatenate([part[at] for part in parts], axis=1) for at in (1, 2))
    heads = slice(parts[0].first, parts[0].first + out.shape[1])
    wanted_out, wanted_state = case.expected()
    return Row(
        case, out.shape[1], len(parts), sum(part.seconds for part in parts),
        deviation("out", out, wanted_out[:, heads]), deviation("final_state", state, wanted_state[:, heads]),
    )  # fmt: skip


def calls_of(case: Case, most: int | None = None) -> list[range]:
    """The key heads of each call: all of them at once, or one by one; no more than the first `most` of a long case."""
    hk = case.heads[0]
    if case.state_rows <= ROWS_OF_A_CALL:
        return [range(hk)]
    return [range(head, head + 1) for head in range(min(hk, most or hk))]


def run(cases: Sequence[Case], pool: Executor, most: int | None = None) -> Iterator[Row]:
    """Each case when its last call is done; the longest begin first, so that no worker is left with one at the end."""
    longest = sorted(cases, key=lambda case: -case.state_rows // len(calls_of(case)))
    calls: dict[Future[Part], Case] = {
        pool.submit(call, case, heads): case for case in longest for heads in calls_of(case, most)
    }
    parts: dict[Case, list[Part]] = {case: [] for case in cases}
    for done, future in enumerate(as_completed(calls), 1):
        case = calls[future]
        parts[case].append(future.result())
        tell(done, len(calls), case, future.result().seconds)
        if len(parts[case]) == len(calls_of(case, most)):
            yield row_of(case, parts.pop(case))


def tell(done: int, total: int, case: Case, seconds: float) -> None:
    sys.stderr.write(f"{done}/{total} calls, {seconds:.0f} s: {case.name}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a case failed, or none has that name."""
    options = parser().parse_args(arguments)
    cases, failed = [case for case in ACCEPTANCE if options.only in case.name], []
    print(HEAD)
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        for row in run(cases, pool, options.key_heads):
            print(row, flush=True)
            failed += [] if row.passed else [row]
    for row in failed:
        print(f"\n{row.case.name}\n{row.out}\n{row.state}")
    print(f"\n{len(cases) - len(failed)} of {len(cases)} cases passed")
    return 1 if failed or not cases else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.kernels.chunk_gated_delta_rule.acceptance")
    made.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes, one call each")
    made.add_argument("--only", default="", metavar="TEXT", help="the cases whose name has it")
    made.add_argument("--key-heads", type=int, metavar="N", help="of a long case, only the first N key heads")
    return made


if __name__ == "__main__":
    sys.exit(main())
