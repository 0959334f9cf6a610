"""Launches in a process of their own: one request a line on stdin, one answer a line. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.cases import Decode, Prefill
from benchmarks.peers.asked import Answer, measured, serve


@cache
def case(**request: Any) -> Decode | Prefill:
    """The same case for the same request, so that its inputs are made once; one with queries is prefill."""
    return Prefill(**request) if "t_q" in request else Decode(**request)


def answer(check: bool = True, **request: Any) -> Answer:
    """What one launch with a new chip takes, until its result is there; the inputs are there before."""
    work = case(**request)
    if work.data:
        work.inputs  # noqa: B018
    (run, o), took = measured(lambda: launch(work, check))
    return {**took, "rows": len(run.log), "error": work.error(o) if work.data else 0.0}


def launch(work: Decode | Prefill, check: bool) -> tuple[Any, Any]:
    run = work.run(check=check)
    return run, run.array("O") if work.data else None


if __name__ == "__main__":
    serve(answer)
