"""The command: `python -m benchmarks.milestone_gqa_llama70b [--context 8192] [--prompt 2048] [--users 4] [--out DIR]`.

Progress on stderr, tables on stdout, the rows and two drawings in DIR. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.milestone_gqa_llama70b.panels import Sizes

FULL = {"context": 8192, "prompt": 2048, "users": 4}
QUICK = {"context": 1024, "prompt": 256, "users": 2}


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    try:
        from benchmarks.milestone_gqa_llama70b.drawings import draw
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        sys.exit("milestone-gqa-llama70b: the drawings need matplotlib: python -m pip install -e '.[bench]'")
    from benchmarks.__main__ import commit
    from benchmarks.milestone_gqa_llama70b.panels import Sizes
    from benchmarks.milestone_gqa_llama70b.tables import report
    from pytest_kernbench.sweeps import write_csv

    sizes = Sizes(**sizes_of(options), cubes=options.cubes)
    rows = run(sizes, options.workers)
    options.out.mkdir(parents=True, exist_ok=True)
    write_csv(rows, options.out / "milestone.csv")
    paths = draw(rows, options.out)
    print(f"milestone-gqa-llama70b, {commit()}\n\n{report(rows, sizes)}")
    print(f"\nwritten: {', '.join(str(path) for path in [options.out / 'milestone.csv', *paths])}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.milestone_gqa_llama70b",
        description="The attention kernels against those that they replace: single and multi user, decode and prefill.",
    )
    made.add_argument("--context", type=int, help="keys of a decode (8192)")
    made.add_argument("--prompt", type=int, help="tokens of a prefill (2048)")
    made.add_argument("--users", type=int, help="requests of the multi-user panels (4)")
    made.add_argument("--cubes", type=int, default=1, help="KV heads to simulate, one a cube, of 8 (1: all are alike)")
    made.add_argument("--out", type=Path, default=Path("milestone-gqa-llama70b"), metavar="DIR", help="CSV and plots")
    made.add_argument("--quick", action="store_true", help="small sizes, where none are given: to see that it works")
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    return made


def sizes_of(options: argparse.Namespace) -> dict[str, int]:
    defaults = QUICK if options.quick else FULL
    given = {name: getattr(options, name) for name in defaults}
    return {name: defaults[name] if value is None else value for name, value in given.items()}


def run(sizes: Sizes, workers: int = 1) -> list[dict[str, Any]]:
    """The rows of all panels, a finding being an error; progress goes to stderr."""
    from benchmarks.milestone_gqa_llama70b.figures import measure, points, with_gains
    from pytest_kernbench.sweeps import sweep

    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as executor:
        return with_gains(sweep(partial(measure, sizes), points(), executor=executor, progress=progress))


def progress(done: int, total: int, row: dict[str, Any]) -> None:
    """The sweep's own, of the figures that fit a line."""
    from pytest_kernbench.sweeps import show_progress

    show_progress(done, total, {name: row[name] for name in ("panel", "kernel", "cycles") if name in row})


if __name__ == "__main__":
    main()
