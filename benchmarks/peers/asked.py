"""What every worker does, ours and the peers': answer requests, one JSON object a line, with time, memory and error.

Needs numpy only and nothing of ours, since it runs in the peers' environments. PYTEST_DONT_REWRITE
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Answer = dict[str, float]


def serve(answer: Callable[..., Answer]) -> None:
    """Answers a request a line on stdin with an answer a line on stdout, until stdin ends."""
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


def measured(work: Callable[[], Any]) -> tuple[Any, Answer]:
    """The result of `work`, and what it took: seconds on the clock and of processor time, MiB before and at most."""
    before = resident_mib("VmRSS")
    start, processor = time.perf_counter(), time.process_time()
    result = work()
    taken, processor = time.perf_counter() - start, time.process_time() - processor
    return result, {
        "seconds": taken, "processor": processor, "before_mib": before, "peak_mib": resident_mib("VmHWM"),
    }  # fmt: skip


def resident_mib(which: str) -> float:
    """Resident set of this program: VmRSS now, VmHWM at most. `ru_maxrss` would count the parent's, before the exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on a Mac, and at most only
    (line,) = (line for line in status.read_text().splitlines() if line.startswith(which))
    return int(line.split()[1]) / 1024


def attention_error(o: Array, q: Array, k: Array, v: Array, scale: float) -> float:
    """The largest distance of `o` [rows, d] from attention of q [rows, d], k and v [s, d] in float64."""
    q, k, v = (values.astype(np.float64) for values in (q, k, v))
    scores = q @ k.T * scale
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return float(np.abs(o.astype(np.float64) - p @ v / p.sum(axis=1, keepdims=True)).max())
