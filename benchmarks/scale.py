"""Rows 14, 15 and 16: time and memory of long runs on both devices, with the log in memory and in a file; two cores.

`python -m benchmarks.scale WORK ROUNDS [FILE]` is one long run; it says what it took. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.ascend import vector_ops
from benchmarks.client import ROOT
from benchmarks.clock import Sample, Session, seconds
from benchmarks.peers.asked import resident_mib
from benchmarks.speed import ratios
from benchmarks.table import Result, Target, against, exponent, figure, not_run
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

PES = 8
TIMES = (1, 4, 16)  # of the shortest run
SHORTEST = {"ahbm": 250, "ascend310p": 8000}  # rounds: 18 and 16 thousand rows
WHERE = {False: "log in memory", True: "log in a file"}
NEEDS = "give it pyarrow: python -m pip install 'pytest-kernbench[parquet]'"
SUITE = ("tests/kernels", "-q", "-p", "no:cacheprovider")


def tiles(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
    """Loads, two ops and a store a round, over the same bytes, so that only the run grows."""
    for _ in range(rounds):
        with tl.scratch_scope():
            y = tl.load(x, (8, 128)) * 2.0 + tl.load(x + 1024, (8, 128))
            tl.wait(tl.store(o, y))


def on_ahbm(rounds: int, **how: Any) -> Run:
    chip = AhbmChip()
    tensors = chip.tensor("x", (16, 128), "float32"), chip.tensor("o", (8, 128), "float32")
    return chip.run(tiles, *tensors, rounds, grid=PES, **how)


def on_ascend(rounds: int, **how: Any) -> Run:
    core = Ascend310pCore()
    return core.run(vector_ops, core.tensor("x", 8, "float32"), rounds, data=False, **how)


LONG = {"ahbm": on_ahbm, "ascend310p": on_ascend}


# --- row 14: time -----------------------------------------------------------------------------------------------------


def growth(session: Session) -> Iterator[Result]:
    """The exponent of time over 16 times the ops, checkers on."""
    for device in LONG:
        for in_file, where in WHERE.items():
            work = f"growth of time over 16x ops, {device}, checkers on, {where}: exponent"
            if in_file and find_spec("pyarrow") is None:
                yield not_run(14, work, Target(1.05, ""), NEEDS)
                continue
            session.tell(work)
            by_size = [grown(session, device, in_file) for _ in range(session.repetitions + 1)][1:]  # one warms up
            slopes = [exponent(TIMES, ratios(samples)) for samples in by_size]
            first, last = (figure(median(samples[at].work for samples in by_size)) for at in (0, -1))
            yield against(14, work, slopes, Target(1.05, ""), f"{first} s and {last} s")


def grown(session: Session, device: str, in_file: bool) -> list[Sample]:
    """A run of each size, beside T."""
    samples, before = [], session.unit()
    with tempfile.TemporaryDirectory() as folder:
        how = {"spill": Path(folder) / "run.parquet"} if in_file else {}
        for times in TIMES:
            worked = seconds(partial(LONG[device], SHORTEST[device] * times, **how))
            after = session.unit()
            samples.append(Sample(worked, (before + after) / 2))
            before = after
    return samples


# --- row 15: memory ---------------------------------------------------------------------------------------------------


def memory(session: Session) -> Iterator[Result]:
    """What 16 times the ops add to the peak, each run in a new process."""
    for device in LONG:
        for in_file, where in WHERE.items():
            target = Target(8, "MiB") if in_file else Target(128, "bytes")
            work = f"peak resident set over 16x ops, {device}, checkers on, {where}: " + (
                "more in all" if in_file else "more a row"
            )
            if in_file and find_spec("pyarrow") is None:
                yield not_run(15, work, target, NEEDS)
                continue
            session.tell(work)
            short, long = (alone(device, SHORTEST[device] * times, in_file) for times in (TIMES[0], TIMES[-1]))
            more = long["peak_mib"] - short["peak_mib"]
            each = more * 2**20 / (long["rows"] - short["rows"])
            absolute = f"{figure(short['peak_mib'])} and {figure(long['peak_mib'])} MiB, {long['rows']} rows"
            yield against(15, work, [more if in_file else each], target, absolute)


def alone(device: str, rounds: int, in_file: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.scale", device, str(rounds)]
        command += [str(Path(folder) / "run.parquet")] if in_file else []
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


# --- row 16: two cores ------------------------------------------------------------------------------------------------


def suite(session: Session) -> Iterator[Result]:
    """A suite of this repository by one process and by two workers, in turns."""
    work, target = f"pytest {SUITE[0]}: without xdist / -n 2", Target(1.7, at_most=False)
    if find_spec("xdist") is None:
        yield not_run(16, work, target, "give it pytest-xdist")
        return
    session.tell(work)
    took = [(suite_seconds("-p", "no:xdist"), suite_seconds("-n", "2")) for _ in range((session.repetitions + 1) // 3)]
    one, two = (figure(median(each)) for each in zip(*took, strict=True))
    yield against(16, work, [alone / shared for alone, shared in took], target, f"{one} s / {two} s")


def suite_seconds(*options: str) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", *SUITE, *options]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(arguments: Sequence[str]) -> None:
    device, rounds, *file = arguments
    start = time.perf_counter()
    run = LONG[device](int(rounds), **({"spill": file[0]} if file else {}))
    print(json.dumps({"seconds": time.perf_counter() - start, "rows": len(run.log), "peak_mib": resident_mib("VmHWM")}))


if __name__ == "__main__":
    main(sys.argv[1:])
