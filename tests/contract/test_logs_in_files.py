"""A run whose log goes to a file needs no more memory the longer it is, and is judged as ever, on both devices."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

TESTS = Path(__file__).parents[1]

PROGRAM = """
import resource
import sys

from pytest_kernbench.simulator import AhbmChip, Ascend310pCore

def tiles(x, o, rounds, *, tl):
    for _ in range(rounds):
        with tl.scratch_scope():
            tl.wait(tl.store(o, tl.load(x, (8, 128)) * 2.0))

def adds(x, o, rounds, *, asc):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    t = buf.Get(asc.float32)
    asc.Duplicate(t, 1.0, 64)
    for _ in range(rounds):
        asc.PipeBarrier(asc.PIPE_V)
        asc.Adds(t, t, 1.0, 64)

RUNS = {"ahbm": (AhbmChip, tiles, (5_000, 25_000)), "ascend310p": (Ascend310pCore, adds, (50_000, 250_000))}
device, kernel, rounds = RUNS[sys.argv[1]]
for count in rounds:
    made = device()
    run = made.run(kernel, *[made.tensor(name, (8, 128), "float32") for name in "xo"], count, spill=sys.argv[2])
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB on Linux
    print(len(run.log), peak)
"""
SLACK = 5 << 20  # bytes that the allocators may take more; in memory the rows below take 10 MiB and more


@pytest.mark.parametrize(("device", "row"), [("ahbm", 110), ("ascend310p", 32)])
def test_five_times_the_rounds_take_no_more_memory(device: str, row: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, device, f"{tmp_path}/run.parquet"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    (rows, peak), (more_rows, higher_peak) = (map(int, each.split()) for each in printed.splitlines())

    assert (more_rows - rows) * row > 2 * SLACK
    assert higher_peak - peak < SLACK


FAULTS = ("ascend310p/test_faults.py", "unit/test_races.py")


def test_seeded_faults_are_found_as_ever_with_every_log_in_a_file() -> None:
    """Their own tests, which name every finding and both its lines; `.ci/run` does so for every file of faults."""
    files = [str(TESTS / file) for file in FAULTS]
    command = [sys.executable, "-m", "pytest", "-q", "--spill", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=TESTS.parent)

    assert ended.returncode == 0, ended.stdout
    assert " passed" in ended.stdout
