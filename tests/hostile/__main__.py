"""The whole sweep, from the root: `python -m tests.hostile [--one-of N] [--accepted]`; exit code 1 if one is raw."""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter

from .sweep import attempt, inputs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--one-of", type=int, default=1, help="try one input of so many")
    parser.add_argument("--accepted", action="store_true", help="list what was accepted")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    ended = [attempt(*each) for each in inputs(given.one_of)]
    for each in ended:
        if each.how == "raw" or (given.accepted and each.how == "accepted"):
            print(f"{each.how}: {each.call}({each.parameter}={each.value!a}) {each.fact!a}")
    counts = Counter(each.how for each in ended)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{len(ended)} inputs: {dict(counts)}; at most {memory} MiB")
    return counts["raw"] > 0


if __name__ == "__main__":
    sys.exit(main())
