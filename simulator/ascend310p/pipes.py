"""One pipe's times, and the flags between pipes: everything is known when it is issued, so there is no event loop.

A pipe takes commands in order; its queue has `depth` places, and a command leaves when it starts. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from pytest_kernbench.simulator.ascend310p.effects import NEVER, Key
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES

NO_ROW = -1


class PipeState:
    """`free`: an op may start; `ready`: the newest command has left the queue; `last`: every op so far has ended.

    `parked`: commands behind a Wait whose Set has not been issued, that Wait first; their times are not known yet.
    """

    __slots__ = ("free", "last", "leaves", "name", "number", "parked", "ready")

    def __init__(self, number: int, depth: int) -> None:
        self.number = number
        self.name = PIPES[number]
        self.free = self.ready = self.last = 0
        self.leaves = deque([0] * depth, maxlen=depth)  # when the newest commands leave the queue
        self.parked: deque[Any] = deque()

    def start(self, issue: int, occupancy: int, latency: int) -> tuple[int, int]:
        """Take an op: its start and its end."""
        start = issue
        if self.free > start:
            start = self.free
        if self.ready > start:
            start = self.ready
        self.free = start + occupancy
        self.ready = start
        end = self.free + latency
        if end > self.last:
            self.last = end
        return start, end

    def pass_by(self, cycle: int) -> int:
        """Take a command that only lets the next one go on, from `cycle` on: when it leaves."""
        if cycle > self.ready:
            self.ready = cycle
        return self.ready


class Raised(NamedTuple):
    """A Set: when its flag is up, and its row."""

    cycle: int
    row: int


class Flags:
    """The n-th Set of a key pairs with the n-th Wait. `outstanding`: Sets less Waits, in the order of issue."""

    def __init__(self, bit: bool) -> None:
        self._bit = bit
        self._raised: dict[Key, deque[Raised]] = {}
        self._taken: dict[Key, int] = {}
        self.outstanding: dict[Key, int] = {}
        self.last_set: dict[Key, Any] = {}  # site of the newest Set
        self.lost: dict[Key, int] = {}  # Sets of a flag that was up (flag_model "bit")

    def raise_flag(self, key: Key, cycle: int, row: int) -> bool:
        """The flag goes up; whether it counts."""
        if self._bit and cycle < self._taken.get(key, -1):
            self.lost[key] = self.lost.get(key, 0) + 1
            return False
        queue = self._raised.get(key)
        if queue is None:
            queue = self._raised[key] = deque()
        queue.append(Raised(cycle, row))
        return True

    def take(self, key: Key, arrival: int) -> Raised | None:
        """The Set that a Wait arriving at `arrival` pairs with; None if it has not been issued."""
        queue = self._raised.get(key)
        if not queue:
            return None
        found = queue.popleft()
        if self._bit:
            self._taken[key] = consumed = max(arrival, found.cycle)
            while queue and queue[0].cycle < consumed:
                queue.popleft()
                self.lost[key] = self.lost.get(key, 0) + 1
        return found


class Command(NamedTuple):
    """A parked command: its row, when it was issued, and what its kind needs."""

    kind: str
    issue: int
    row: int
    what: Any


def park(pipe: PipeState, command: Command) -> None:
    pipe.parked.append(command)
    pipe.leaves.append(NEVER)


def unpark(pipe: PipeState) -> list[Command]:
    """Take all parked commands off the pipe; the caller gives them again, in order."""
    commands = list(pipe.parked)
    for _ in range(min(len(commands), len(pipe.leaves))):
        pipe.leaves.pop()
    while len(pipe.leaves) < (pipe.leaves.maxlen or 0):
        pipe.leaves.appendleft(0)
    pipe.parked.clear()
    return commands
