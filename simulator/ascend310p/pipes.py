"""One pipe's times, and the flags between pipes: everything is known when it is issued, so there is no event loop.

A pipe takes commands in order; its queue has `depth` places, and a command leaves when it starts. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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


class Flag:
    """The n-th Set pairs with the n-th Wait. `outstanding`: Sets less Waits, in the order of issue."""

    __slots__ = ("dropped", "key", "last_set", "lost", "outstanding", "raised", "source", "taken", "target")

    def __init__(self, key: Key, pipes: Sequence[PipeState]) -> None:
        self.key = key
        self.source = pipes[key[0]]
        self.target = pipes[key[1]]
        self.raised: deque[tuple[int, int]] = deque()  # when it is up, and the row of its Set
        self.outstanding = 0
        self.last_set = NO_ROW  # descriptor of the newest Set
        self.taken = -1
        self.dropped = 0  # of them, those that the newest Wait took along
        self.lost = 0  # Sets of a flag that was up (flag_model "bit")

    @property
    def name(self) -> str:
        """In the vendor's words."""
        return f"{self.source.name}_{self.target.name} id {self.key[2]}"

    def take(self, arrival: int, bit: bool) -> tuple[int, int] | None:
        """The Set that a Wait arriving at `arrival` pairs with; None if it has not been issued."""
        raised = self.raised
        if not raised:
            return None
        found = raised.popleft()
        if bit:
            self.taken = consumed = max(arrival, found[0])
            while raised and raised[0][0] < consumed:
                raised.popleft()
                self.lost += 1
                self.dropped += 1
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
