"""`python -m tests.faults` prints the fault matrix; `--seeds 50` runs every launch under so many seeds instead.

From the root folder. The first makes each fault and variant, and fails where the page says something else. The second
runs each launch without a fault under the model's times and so many seeds of jitter and of late, and counts what is
found: exit code 1 if that is anything.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from pytest_kernbench.simulator.errors import SimError

from .launches import LAUNCHES, Launcher


def schedules(seeds: int) -> Iterator[tuple[str, int]]:
    """The model's times, then jitter and late by turns."""
    yield "model", 0
    for seed in range(seeds):
        yield "jitter", seed
        yield "late", seed


def found_in(launch: Launcher, schedule: str, seed: int) -> str | None:
    """What a run raised or found, or None."""
    try:
        with redirect_stdout(io.StringIO()):  # kernels announce their budgets
            run = launch(schedule, seed)
    except SimError as error:
        return f"{type(error).__name__}: {error}"
    return str(run.hazards) if run.hazards else None


def no_finding(seeds: int) -> int:
    """Run every launch under every schedule; how many runs had a finding."""
    runs = bad = 0
    started = time.monotonic()
    for name, launch in LAUNCHES.items():
        for schedule, seed in schedules(seeds):
            found = found_in(launch, schedule, seed)
            runs += 1
            if found is not None:
                bad += 1
                print(f"{name}, {schedule}, seed {seed}: {found}")
        print(f"{name}: {runs} runs so far, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"{len(LAUNCHES)} launches, {runs} runs, findings={bad}")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, help="of jitter, and of late, for each launch")
    options = parser.parse_args()
    if options.seeds is not None:
        return min(no_finding(options.seeds), 1)
    quiet = ("--no-header", "-o", "verbosity_test_cases=0", "-p", "no:cacheprovider")
    return int(pytest.main([str(Path(__file__).parent), "-v", *quiet]))


if __name__ == "__main__":
    sys.exit(main())
