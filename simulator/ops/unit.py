"""Asynchronous hardware: pipes that take ops in order, and shared servers that bytes pass through.

Sources are read when an op starts and its target is written when it ends, here and nowhere else. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pytest_kernbench.simulator.engine.loop import Simulation
from pytest_kernbench.simulator.ops.log import END, FREE, START, WIDTH, OpLog
from pytest_kernbench.simulator.ops.op import Op


class Server:
    """A link or a memory controller: serves `percent` of `bytes_per_cycle`, first come first served."""

    __slots__ = ("_percent", "bytes_per_cycle", "free_at", "name")

    def __init__(self, name: str, bytes_per_cycle: int, percent: int = 100) -> None:
        self.name = name
        self.bytes_per_cycle = bytes_per_cycle
        self.free_at = 0
        self._percent = percent

    def cycles(self, size: int) -> int:
        """Cycles to serve `size` bytes, rounded up once."""
        return -(-size * 100 // (self.bytes_per_cycle * self._percent))

    def serve(self, now: int, size: int) -> int:
        """Take `size` bytes that arrive now; return the cycle at which their service starts."""
        start = max(now, self.free_at)
        self.free_at = start + self.cycles(size)
        return start


class Route:
    """The servers a transfer passes, the cycles before each, and the cycles from the last byte's service to its target.

    Cut-through: the head pays every delay, the bytes pay the slowest server once.
    """

    __slots__ = ("bytes", "delays", "serial", "servers", "tail")

    def __init__(self, servers: tuple[Server, ...], delays: tuple[int, ...], tail: int, size: int) -> None:
        self.servers = servers
        self.delays = delays
        self.tail = tail
        self.bytes = size
        self.serial = max(server.cycles(size) for server in servers)


class Unit:
    """An in-order pipe: ops start in the order they arrive and end in that order.

    It is busy with an op for the op's occupancy; the target is written at the end of that, or when the op's route has
    been traversed.
    """

    __slots__ = (
        "_busy", "_cells", "_computed", "_extra", "_flying", "_lazy", "_queue", "_sim", "clock", "kind", "name",
    )  # fmt: skip

    def __init__(self, sim: Simulation, log: OpLog, name: str, kind: int) -> None:
        self.name = name
        self.kind = kind  # id of the kind of unit in the log
        self.clock: Any = None  # belongs to the race checker
        self._sim = sim
        self._cells = log.cells
        self._queue: deque[Op] = deque()
        self._flying: deque[Op] = deque()  # transfers on their way, oldest first
        self._busy = False
        self._lazy = sim.schedule.lazy
        self._extra = sim.schedule.extra
        self._computed = sim.probes.computed
        sim.schedule.register(self)

    def submit(self, op: Op) -> None:
        """Take `op` now."""
        if self._busy or self._lazy:
            self._queue.append(op)
        else:
            self._start(op)

    def post(self, op: Op) -> None:
        """Take `op` now, to start at its issue or later: for a pipe whose ops come from one kernel, in its order."""
        self._queue.append(op)
        if not (self._busy or self._lazy):
            self.step()

    def step(self) -> None:
        """Start the oldest op when it has been issued."""
        op = self._queue.popleft()
        if op.issue <= self._sim.now:
            self._start(op)
        else:
            self._busy = True
            self._sim.at(op.issue, op.key, self._start, op)

    def has_work(self) -> bool:
        return bool(self._queue) and not self._busy

    def oldest(self) -> int:
        return self._queue[0].row

    def ready_unit(self) -> Unit:
        return self

    def _start(self, op: Op) -> None:
        self._busy = True
        sim = self._sim
        now = sim.now
        op.start = now
        if op.compute is not None:
            op.result = op.compute(*op.sources)
            for look in self._computed:
                look(op)
        extra = self._extra(op.occupancy) if self._extra is not None else 0
        self._cells[op.row * WIDTH + START] = now
        route = op.route
        if route is not None:
            self._flying.append(op)
            sim.at(now + extra + route.delays[0], op.key, self._arrive, op)
        sim.at(now + extra + op.occupancy, op.key, self._free, op)

    def _arrive(self, op: Op) -> None:
        """The head of a transfer is at its next server."""
        route = op.route
        start = route.servers[op.hop].serve(self._sim.now, route.bytes)
        op.hop += 1
        if op.hop < len(route.servers):
            self._sim.at(start + route.delays[op.hop], op.key, self._arrive, op)
        else:
            self._sim.at(start + route.serial + route.tail, op.key, self._land, op)

    def _land(self, op: Op) -> None:
        """The last byte of a transfer is there; it ends now, or with the transfer before it."""
        op.landed = True
        flying = self._flying
        while flying and flying[0].landed:
            self._finish(flying.popleft())

    def _free(self, op: Op) -> None:
        self._cells[op.row * WIDTH + FREE] = self._sim.now
        if op.route is None:
            self._finish(op)
        self._busy = False
        if self._queue and not self._lazy:
            self.step()

    def _finish(self, op: Op) -> None:
        if op.target is not None:
            op.target[...] = op.result
            op.result = op.target = op.compute = None
        op.end = now = self._sim.now
        op.is_set = True
        self._cells[op.row * WIDTH + END] = now
        if op._callbacks is not None:
            op.call_back()
        if op.then is not None:
            then, op.then = op.then, None
            then(op)
