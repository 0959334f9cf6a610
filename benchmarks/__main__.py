"""The command: `python -m benchmarks [--quick] [--rows 1,2] [--pallas PYTHON] [--json FILE]`. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.clock import Session

ROWS = range(1, 17)
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    for name in ONE_THREAD:  # has to be said before numpy is imported, for ours and theirs
        os.environ.setdefault(name, "1")
    try:
        from benchmarks.clock import Session
    except ModuleNotFoundError as error:
        if error.name != "simpy":
            raise
        sys.exit("benchmarks: SimPy is the unit of time and is not installed: python -m pip install -e '.[bench]'")
    repetitions, pairs = (2, 5) if options.quick else (5, 31)
    measure(Session(repetitions, pairs, options.pallas), options.rows, options.json)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print ratios and targets.")
    made.add_argument("--quick", action="store_true", help="2 repetitions for 5, to see that it works")
    made.add_argument("--rows", type=chosen, default=list(ROWS), metavar="1,2", help="only these rows")
    made.add_argument("--pallas", type=Path, metavar="PYTHON", help="a Python that has jax, for row 4")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every sample there too")
    return made


def chosen(text: str) -> list[int]:
    rows = sorted({int(part) for part in text.split(",")})
    if not set(rows) <= set(ROWS):
        raise argparse.ArgumentTypeError(f"rows are {ROWS[0]}..{ROWS[-1]}, not {text}")
    return rows


def measure(session: Session, rows: Sequence[int], file: Path | None) -> None:
    from benchmarks import ascend, model, processes, scale, speed
    from benchmarks.table import as_json, spread, table

    measures = {
        1: speed.decode_rows, 2: speed.math_ops, 3: speed.numpy_overhead, 4: processes.pallas, 5: speed.growth,
        6: processes.llama, 7: model.latencies, 8: model.gains, 9: processes.plugin_alone, 10: ascend.ops,
        11: ascend.calls,
        12: ascend.layer, 13: processes.prefills, 14: scale.growth, 15: scale.memory, 16: scale.suite,
    }  # fmt: skip
    session.unit()
    results = [result for row in rows for result in measures[row](session)]
    session.unit()
    machine = about()
    print(", ".join(str(value) for value in machine.values()))
    print(f"T = {spread([1e6 * unit for unit in session.units], 'us')}, one SimPy timeout event, 64 processes\n")
    print(table(results))
    if file:
        file.write_text(json.dumps(as_json(results, {**machine, "units": session.units}), indent=1), encoding="utf-8")


def about() -> dict[str, Any]:
    """What the figures were taken on."""
    packages = {name: f"{name} {version(name)}" for name in ("numpy", "greenlet", "simpy")}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    cores = f"{os.cpu_count()} cores {platform.machine()}"
    return {"commit": commit(), "python": python, **packages, "cores": cores}


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    described = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"commit {described.stdout.strip() or 'unknown'}"


if __name__ == "__main__":
    main()
