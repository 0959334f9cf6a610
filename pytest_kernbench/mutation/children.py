"""Forked processes that run some tests each and say how they went, a line of JSON at a time, under a time limit.

A child starts from what the parent has collected, and whatever it does to kernels ends with it. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]
Work = Callable[["Say"], None]
Say = Callable[[Message], None]

PATIENCE = 0.5  # seconds between looks at the clock


@dataclass(frozen=True)
class Task:
    """Work for a child. `hear` is told each message; `limit` gives the seconds until the next one is overdue.

    `over` is called at the end, with True if the child was killed for being late; `given_up` instead of it if the time
    was up, or the run was interrupted, before that.
    """

    work: Work
    hear: Callable[[Message], None]
    limit: Callable[[], float]
    over: Callable[[bool], None]
    given_up: Callable[[], None] = lambda: None


@dataclass
class Child:
    """A running process: its task, its pid, the pipe it writes to, and when it has taken too long over what it does."""

    task: Task
    pid: int
    pipe: int
    folder: str
    deadline: float
    pending: bytes = b""

    def messages(self) -> Iterator[Message] | None:
        """What has arrived; None at the end."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            return None
        *lines, self.pending = (self.pending + data).split(b"\n")
        return (json.loads(line) for line in lines)

    def end(self) -> None:
        """Kill what still runs of it and clean up behind it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)


class Pool:
    """Runs tasks in at most `size` children at a time."""

    def __init__(self, size: int, stop_at: float) -> None:
        self.size, self.stop_at = size, stop_at
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}

    def run(self, more: Callable[[], Task | None], tick: Callable[[], None]) -> bool:
        """Do what `more` gives until it gives None with no child left; whether that was before `stop_at`.

        Tasks that are under way then are given up.
        """
        try:
            while True:
                while len(self._children) < self.size and (task := more()) is not None:
                    self._start(task)
                if not self._children:
                    return True
                if time.monotonic() >= self.stop_at:
                    return False
                self._listen()
                tick()
        finally:
            for child in list(self._children.values()):
                self._end(child)
                child.task.given_up()

    def _start(self, task: Task) -> None:
        pipe, child_end = os.pipe()
        folder = tempfile.mkdtemp(prefix="kernbench-mutate-")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of a BLAS do not come along, nor are needed
            pid = os.fork()
        if pid == 0:
            os.close(pipe)
            _be_child(task.work, child_end, folder)
        os.close(child_end)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # the child does it as well: whoever comes first
        self._children[pipe] = Child(task, pid, pipe, folder, time.monotonic() + task.limit())
        self._selector.register(pipe, selectors.EVENT_READ)

    def _listen(self) -> None:
        for key, _ in self._selector.select(PATIENCE):
            child = self._children[key.fd]
            messages = child.messages()
            if messages is None:
                self._end(child)
                child.task.over(False)
                continue
            for message in messages:
                child.task.hear(message)
            child.deadline = time.monotonic() + child.task.limit()
        now = time.monotonic()
        for child in [each for each in self._children.values() if now > each.deadline]:
            self._end(child)
            child.task.over(True)

    def _end(self, child: Child) -> None:
        del self._children[child.pipe]
        self._selector.unregister(child.pipe)
        child.end()


def _be_child(work: Work, pipe: int, folder: str) -> None:
    """Do the work and leave, past every exit handler of the parent's."""
    status = 1
    try:
        os.setpgid(0, 0)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder  # tmp_path of this child, removed with it
        tempfile.tempdir = folder
        work(lambda message: _write(pipe, json.dumps(message, default=str).encode() + b"\n"))
        status = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            _write(pipe, json.dumps({"broke": f"{type(error).__name__}: {error}"}).encode() + b"\n")
    finally:
        os._exit(status)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]
