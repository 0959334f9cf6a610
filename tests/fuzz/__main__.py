"""The long run, from the root folder: `python -m tests.fuzz --programs 10000 [--of ahbm|ascend310p|messages]`.

Prints how many programs were stuck, racy and clean; a program that breaks a promise is shrunk and shown, exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from . import asc_check, asc_programs, messages, tl_check, tl_programs

PROGRAMS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "ahbm": (tl_programs.programs, tl_check.check),
    "ascend310p": (asc_programs.programs, asc_check.check),
    "messages": (messages.programs, messages.check),
}


def fuzz(kind: str, programs: int, first: int, most: int) -> Counter[str]:
    """Draw so many programs of about `most` steps and check each; what they were."""
    strategy, check = PROGRAMS[kind]
    found: Counter[str] = Counter()

    @settings(
        max_examples=programs, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @seed(first)
    @given(program=strategy(most))
    def every_promise_holds(program: Any) -> None:
        found[check(program)] += 1

    every_promise_holds()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="of each kind")
    parser.add_argument("--of", choices=sorted(PROGRAMS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=14, help="the most steps that a program has outside loops")
    options = parser.parse_args()
    for kind in options.of or sorted(PROGRAMS):
        started = time.monotonic()
        found = fuzz(kind, options.programs, options.seed, options.steps)
        took = time.monotonic() - started
        said = ", ".join(f"{count} {what}" for what, count in sorted(found.items()))
        print(f"{kind}: {found.total()} programs in {took:.0f} s, seed {options.seed}: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
