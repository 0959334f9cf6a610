"""Memory of a long run is bounded: with all checkers on it grows by the rows of the log and by nothing else."""

import subprocess
import sys

PROGRAM = """
import resource

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

def kernel(x, y, loops, *, asc):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    t, source, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
    source.SetGlobalBuffer(x)
    target.SetGlobalBuffer(y)
    for at in range(loops):
        asc.DataCopy(t, source[64 * (at % 16)], 64)
        sync(asc, asc.HardEvent.MTE2_V)
        for _ in range(8):
            asc.Adds(t[64], t, 1.0, 64)
            asc.PipeBarrier(asc.PIPE_V)
        sync(asc, asc.HardEvent.V_MTE3)
        asc.DataCopy(target[64 * (at % 16)], t[64], 64)
        sync(asc, asc.HardEvent.MTE3_MTE2)

def sync(asc, event):
    asc.SetFlag(event, 0)
    asc.WaitFlag(event, 0)

for loops in (10_000, 20_000):
    core = Ascend310pCore()
    tensors = [core.tensor(name, 1024, "float32", [1.0] * 1024) for name in "xy"]
    run = core.run(kernel, *tensors, loops, log="data", data=False)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB on Linux
    print(len(run.log), len(run.log.cells) * run.log.cells.itemsize, peak)
"""
SLACK = 2 << 20  # bytes that the allocator may take more


def test_twice_the_loops_take_the_log_more() -> None:
    command = [sys.executable, "-c", PROGRAM]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    (rows, log, peak), (more_rows, longer_log, higher_peak) = (map(int, each.split()) for each in printed.splitlines())

    assert (rows, more_rows) == (100_000, 200_000)
    assert longer_log - log <= 64 * (more_rows - rows)
    assert higher_peak - peak <= longer_log - log + SLACK
