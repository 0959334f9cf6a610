"""The other end of workers, ours and the peers': requests and answers, each result held against float64.

No clock and no simulator here. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = (sys.executable, "-m", "benchmarks.worker")
CLOSE = 0.01  # a result of standard normal values that is off by more is no result


class Worker(AbstractContextManager["Worker"]):
    """A process that answers requests, one JSON object a line."""

    def __init__(self, command: Sequence[str], extra: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **(extra or {})}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, float]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}; see above")
        answer: dict[str, float] = json.loads(line)
        if not answer["error"] < CLOSE:
            raise ArithmeticError(f"{self._process.args!r} is off by {answer['error']:g} for {request}")
        return answer

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
