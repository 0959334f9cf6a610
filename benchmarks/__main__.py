"""The command: `python -m benchmarks [--quick] [--rows 1,2] [--pallas PYTHON] [--json FILE] [--save | --compare]`.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import compare
from benchmarks.table import Result, as_json, spread, table

if TYPE_CHECKING:
    from benchmarks.clock import Session

ROWS = range(1, 17)
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser()
    options = made.parse_args(arguments)
    if options.save and (options.quick or options.rows or options.compare):
        made.error("--save keeps every row of one full run: leave --quick, --rows and --compare out")
    for name in ONE_THREAD:  # has to be said before numpy is imported, for ours and theirs
        os.environ.setdefault(name, "1")
    try:
        from benchmarks.clock import Session
    except ModuleNotFoundError as error:
        if error.name != "simpy":
            raise
        sys.exit("benchmarks: SimPy is the unit of time and is not installed: python -m pip install -e '.[bench]'")
    repetitions, pairs = (2, 5) if options.quick else (3, 5) if options.compare else (5, 31)
    session = Session(repetitions, pairs, options.pallas)
    if options.compare:
        sys.exit(compared(session, options.rows or compare.ROWS, options.margin))
    report(session, options)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print ratios and targets.")
    made.add_argument("--quick", action="store_true", help="2 repetitions for 5, to see that it works")
    made.add_argument("--rows", type=chosen, metavar="1,2", help="only these rows")
    made.add_argument("--pallas", type=Path, metavar="PYTHON", help="a Python that has jax, for row 4")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every sample there too")
    made.add_argument("--save", action="store_true", help=f"keep the figures in {compare.FIGURES.name}")
    made.add_argument(
        "--compare", action="store_true", help="hold some rows against the kept figures; status 1 if worse"
    )
    made.add_argument("--margin", type=float, default=compare.MARGIN, help="how many times worse is the same")
    return made


def chosen(text: str) -> list[int]:
    rows = sorted({int(part) for part in text.split(",")})
    if not set(rows) <= set(ROWS):
        raise argparse.ArgumentTypeError(f"rows are {ROWS[0]}..{ROWS[-1]}, not {text}")
    return rows


def report(session: Session, options: argparse.Namespace) -> None:
    """Measures and prints; writes what it is asked to write."""
    session.unit()
    results = list(measured(session, options.rows or ROWS))
    session.unit()
    machine = about()
    print(described(machine))
    print(f"{unit(session)}, one SimPy timeout event, 64 processes\n")
    print(table(results))
    if options.json:
        every = as_json(results, {**machine, "units": session.units})
        options.json.write_text(json.dumps(every, indent=1), encoding="utf-8")
    if options.save:
        compare.save(compare.FIGURES, results, {**machine, "unit": unit(session)})


def compared(session: Session, rows: Sequence[int], margin: float) -> int:
    """Prints figures beside the kept ones; 1 if one is worse."""
    then, kept = compare.load(compare.FIGURES)
    each = compare.compare(kept, partial(measured, session), rows, margin=margin)
    print(f"kept: {described(then)}\nnow:  {described({**about(), 'unit': unit(session)})}\n")
    print(compare.table(each))
    wrong = [one for one in each if one.verdict != compare.SAME]
    print("\n" + "\n".join(map(str, wrong)) if wrong else f"\nnothing is worse by more than {margin:g} times")
    return int(bool(wrong))


def measured(session: Session, rows: Sequence[int]) -> Iterator[Result]:
    from benchmarks import ascend, model, processes, scale, speed

    measures = {
        1: speed.decode_rows, 2: speed.math_ops, 3: speed.numpy_overhead, 4: processes.pallas, 5: speed.growth,
        6: processes.llama, 7: model.latencies, 8: model.gains, 9: processes.plugin_alone, 10: ascend.ops,
        11: ascend.calls, 12: ascend.layer, 13: processes.prefills, 14: scale.growth, 15: scale.memory, 16: scale.suite,
    }  # fmt: skip
    for row in rows:
        yield from measures[row](session)


def unit(session: Session) -> str:
    return f"T = {spread([1e6 * each for each in session.units], 'us')}"


def about() -> dict[str, str]:
    """What the figures were taken on."""
    packages = {name: f"{name} {version(name)}" for name in ("numpy", "greenlet", "simpy")}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    cores = f"{os.cpu_count()} cores {platform.machine()}"
    return {"commit": commit(), "python": python, **packages, "processor": processor(), "cores": cores}


def described(machine: Mapping[str, str]) -> str:
    return ", ".join(machine.values())


def processor() -> str:
    """The model, where the system tells."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"commit {described.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    main()
