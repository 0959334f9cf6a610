"""What the options of the gated delta rule are worth on the model: `python -m benchmarks.delta_rule [--out DIR]`.

Simulated cycles, not wall time: a sequence of three chunks of 64 tokens, one or more heads of Dk = Dv, without data, so
that the numbers are the same everywhere. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.improved import OPTIONS, improved
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import CHUNK, Shape, Tiling
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.device import Run

CHUNKS = 3
SYNC = Ascend310pSpec().sync_cycles
TOGETHER = ("flag-per-row", "state-by-one-dma", "cheap-rewrites")
ALL = tuple(OPTIONS)
SETS: tuple[tuple[str, ...], ...] = ((), *((name,) for name in OPTIONS), TOGETHER, (*TOGETHER, "resident-state"))


class Row(NamedTuple):
    """A set of options on one head of `width` by `width`."""

    width: int
    options: str
    v_step: int
    cycles: int
    faster: float  # how many times
    flag_pairs: int
    scalar_gm: int
    dmas: int
    dma_bytes: int


def measure(width: int, tokens: int = CHUNKS * CHUNK, heads: int = 8) -> Iterator[Row]:
    """Every set of options on `heads` value heads of one core's share: one, of as many cores."""
    plain = 0
    for options in SETS:
        tiling, run = share(width, tokens, options, heads=heads)
        plain = plain or run.cycles
        log = run.log
        copies = log.where(name="DataCopy")
        yield Row(
            width, named(options), tiling.v_step, run.cycles, plain / run.cycles,
            pairs(log), scalars(run), len(copies), int(copies.bytes.sum()),
        )  # fmt: skip


def share(
    width: int, tokens: int, options: Sequence[str], *, heads: int = 8, chunk: int = CHUNK, sync: int = SYNC
) -> tuple[Tiling, Run]:
    """The tiling, and the run of the first of eight cores on `heads` value heads of `width` by `width`.

    `sync`: cycles to say anything to a pipe, a flag or a barrier.
    """
    shape = Shape((tokens,), heads, heads, width, width)
    plan = improved(shape, *options, chunk=chunk, data=False)
    core = Ascend310pCore(Ascend310pSpec(sync_cycles=sync))
    launched = host.launch(core, shape, tiling=plan.tiling, variant=plan.variant)
    return plan.tiling, launched.run(check=False, part=(0, 8))


def named(options: Sequence[str]) -> str:
    """A set of options as the tables call it."""
    return "all" if tuple(options) == ALL else " + ".join(options) or "mended"


def pairs(log: Any) -> int:
    """Flags between S and V."""
    return sum(len(log.where(name=f"SetFlag<{event}>")) for event in ("S_V", "V_S"))


def scalars(run: Any) -> int:
    """Accesses of S to GM."""
    return sum(len(run.log.where(unit="S", tensor=name)) for name in run.tensors)


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    head = "| width | options | vStep | cycles | faster | S-V flags | scalar GM | DMAs | DMA bytes |"
    lines = [head, "| --- " * 9 + "|"]
    lines += [
        f"| {row.width} | {row.options} | {row.v_step} | {row.cycles} | {row.faster:.2f} | {row.flag_pairs} | "
        f"{row.scalar_gm} | {row.dmas} | {row.dma_bytes} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(prog="python -m benchmarks.delta_rule", description=__doc__)
    made.add_argument("--widths", type=int, nargs="+", default=[128, 64])
    made.add_argument("--tokens", type=int, default=CHUNKS * CHUNK)
    made.add_argument("--out", type=Path, metavar="DIR", help="where the rows go, as CSV")
    options = made.parse_args(arguments)
    rows = []
    for width in options.widths:
        for row in measure(width, options.tokens):
            print(f"{row.width}: {row.options}: {row.cycles} cycles", file=sys.stderr, flush=True)
            rows.append(row)
    print(table(rows))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        with (options.out / "improvements.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(Row._fields)
            writer.writerows(rows)


if __name__ == "__main__":
    main()
