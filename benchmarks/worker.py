"""Launches in a process of their own: one request a line on stdin, one answer a line. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import resource
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.cases import Decode, Prefill


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(case(**json.loads(line)))), flush=True)


@cache
def case(**request: Any) -> Decode | Prefill:
    """The same case for the same request, so that its inputs are made once; one with queries is prefill."""
    return Prefill(**request) if "t_q" in request else Decode(**request)


def answer(work: Decode | Prefill) -> dict[str, float]:
    """Seconds of one launch with a new chip, checkers on, and of processor time; the inputs are there before."""
    if work.data:
        work.inputs  # noqa: B018
    start, processor = time.perf_counter(), time.process_time()
    run = work.run()
    o = run.array("O") if work.data else None
    taken, processor = time.perf_counter() - start, time.process_time() - processor
    error = 0.0 if o is None else work.error(o)
    return {"seconds": taken, "processor": processor, "rows": len(run.log), "error": error, "peak_mib": peak_mib()}


def peak_mib() -> float:
    """Peak resident set of this program. `ru_maxrss` would count the parent's, from before the exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on a Mac
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
