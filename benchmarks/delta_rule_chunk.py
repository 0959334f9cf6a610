"""What a chunk in the middle of a sequence costs, unit by unit: `python -m benchmarks.delta_rule_chunk [--out DIR]`.

A third chunk makes a run of one head longer by exactly this, as every chunk between the first and the last takes the
same time: what is said is the run of three chunks less that of two. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import delta_rule
from benchmarks.delta_rule import ALL, SYNC, named, pairs, scalars, share
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import CHUNK
from pytest_kernbench.simulator.ascend310p.usage import usage
from pytest_kernbench.simulator.device import Run

SETS = (*delta_rule.SETS, ALL)
TAIL = 2  # tokens behind the third chunk: 194 of chunks of 64
COLOURS = {"v_busy": "#009E73", "v_barrier": "#E69F00", "v_issue": "#0072B2", "v_flag": "#CC79A7"}


class Row(NamedTuple):
    """A set of options on a middle chunk of `tokens` tokens and one head of `width` by `width`; times in cycles.

    `whole` is a sequence of three chunks and `TAIL` tokens. S stands still for a flag or a full queue, and V for a
    barrier, for S, which has issued nothing yet, or for a flag: these and its work are all the time of V.
    """

    width: int
    tokens: int
    options: str
    v_step: int
    cycles: int
    faster: float  # how many times
    whole: int
    flag_pairs: int
    scalar_gm: int
    dmas: int
    dma_bytes: int
    s_busy: int
    s_flag: int
    s_queue: int
    v_busy: int
    v_barrier: int
    v_issue: int
    v_flag: int
    mte2_busy: int
    mte3_busy: int


COSTS = ("width", "options", "v_step", "cycles", "faster", "flag_pairs", "scalar_gm", "dmas", "dma_bytes")
TITLES = {  # of columns that the table of whole launches has too
    "v_step": "vStep", "flag_pairs": "S-V flags", "scalar_gm": "scalar GM", "dmas": "DMAs", "dma_bytes": "DMA bytes",
}  # fmt: skip
UNITS = ("s_busy", "s_flag", "s_queue", "v_busy", "v_barrier", "v_issue", "v_flag", "mte2_busy", "mte3_busy")


def measure(width: int, chunk: int = CHUNK, sync: int = SYNC) -> Iterator[Row]:
    """Every set of options; `chunk`: tokens of a chunk; `sync`: as `share` has it."""
    plain = 0
    for options in SETS:
        tiling, whole = share(width, 3 * chunk + TAIL, options, chunk=chunk, sync=sync)
        two, three = (counted(share(width, count * chunk, options, chunk=chunk, sync=sync)[1]) for count in (2, 3))
        middle = {name: three[name] - two[name] for name in three}
        plain = plain or middle["cycles"]
        yield Row(
            width=width, tokens=chunk, options=named(options), v_step=tiling.v_step, whole=whole.cycles,
            faster=plain / middle["cycles"], **middle,
        )  # fmt: skip


def counted(run: Run) -> dict[str, int]:
    """Counts of a run, and the time of its units by cause."""
    copies = run.log.where(name="DataCopy")
    times = causes(run)
    return {
        "cycles": run.cycles, "flag_pairs": pairs(run.log), "scalar_gm": scalars(run), "dmas": len(copies),
        "dma_bytes": int(copies.bytes.sum()), **{name: times[name] for name in UNITS},
    }  # fmt: skip


def causes(run: Run) -> Counter[str]:
    """`v_busy`, `v_barrier`, `s_queue`: unit and the first word of the cause."""
    times: Counter[str] = Counter()
    for use in usage(run):
        unit = use.unit.lower()
        times[f"{unit}_busy"] += use.busy
        for cause, cycles in use.stalls.items():
            times[f"{unit}_{cause.split()[0]}"] += cycles
    return times


def table(rows: Sequence[Row], columns: Sequence[str] = Row._fields) -> str:
    """In Markdown."""
    lines = [
        f"| {' | '.join(TITLES.get(name, name.replace('_', ' ')) for name in columns)} |",
        "| --- " * len(columns) + "|",
    ]
    lines += [f"| {' | '.join(cell(getattr(row, name)) for name in columns)} |" for row in rows]
    return "\n".join(lines)


def cell(value: str | int | float) -> str:
    """A ratio with two digits, all else as it is."""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def draw(rows: Sequence[Row], path: Path) -> None:
    """What V does with the time of a chunk, a bar a set of options, a panel a width. Needs the extra `bench`."""
    import matplotlib
    from matplotlib.figure import Figure

    widths = list(dict.fromkeys(row.width for row in rows))
    with matplotlib.rc_context({"svg.hashsalt": "pytest-kernbench", "svg.fonttype": "none", "font.size": 8}):
        drawing = Figure(figsize=(10, 2.8 * len(widths)), layout="constrained")
        panels = drawing.subplots(len(widths), 1, squeeze=False)[:, 0]
        for axes, width in zip(panels, widths, strict=True):
            these = [row for row in rows if row.width == width][::-1]
            labels = [f"{row.options} ({row.v_step})" for row in these]
            left = [0] * len(these)
            for name, colour in COLOURS.items():
                times = [getattr(row, name) for row in these]
                axes.barh(labels, times, left=left, color=colour, label=name[2:])
                left = [sum(pair) for pair in zip(left, times, strict=True)]
            axes.set(title=f"{width} by {width}: V in a chunk of {these[0].tokens} tokens", xlabel="cycles")
        drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(COLOURS))
        drawing.savefig(path, metadata={"Date": None})


def main(arguments: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(prog="python -m benchmarks.delta_rule_chunk", description=__doc__)
    made.add_argument("--widths", type=int, nargs="+", default=[128, 64])
    made.add_argument("--chunk", type=int, default=CHUNK, help="tokens of a chunk")
    made.add_argument("--sync", type=int, default=SYNC, metavar="CYCLES", help="to say anything to a pipe")
    made.add_argument("--out", type=Path, metavar="DIR", help="where rows go as CSV, and the drawing as SVG")
    options = made.parse_args(arguments)
    rows = []
    for width in options.widths:
        for row in measure(width, options.chunk, options.sync):
            print(f"{row.width}: {row.options}: {row.cycles} cycles", file=sys.stderr, flush=True)
            rows.append(row)
    print(table(rows, COSTS), table(rows), sep="\n\n")
    if options.out is not None:
        write(rows, options.out)


def write(rows: Sequence[Row], folder: Path) -> None:
    """middle_chunk.csv and middle_chunk.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "middle_chunk.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)
    draw(rows, folder / "middle_chunk.svg")


if __name__ == "__main__":
    main()
