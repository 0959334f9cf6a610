"""Every time of a run again, from its log and the costs alone: a second engine that shares no code with the first.

What a row waits for is in the log (its kernel's order, `after`, `parent`), what it costs is asked of `timing`. So the
same costs have to give the log's own times; others give those of another run, where no kernel's control depends on
time. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import copy
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pytest_kernbench.simulator.errors import LaunchError, SimError
from pytest_kernbench.simulator.ops.log import AFTER, COLUMNS, END, FREE, ISSUE, NONE, START, Ints, OpLog

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ops.unit import Route

TIMES = [ISSUE, START, FREE, END]
OF_THE_CPU = ("wait", "recv", "recv_async", "drain")
Pipe = tuple[int, int]  # program, unit
Need = int | tuple[Pipe, int]  # the end of a row, or the arrival of the n-th credit that a pipe sends home


class Timing(Protocol):
    """What the costs of a device have to answer; `spec` has its numbers."""

    spec: Any
    stream_depth: int

    def issue_cycles(self, name: str) -> int: ...
    def math_cycles(self, name: str, elements: int) -> int: ...
    def tile_cycles(self, itemsize: int) -> int: ...
    def dot_cycles(self, m: int, n: int, k: int, itemsize: int) -> int: ...
    def epilogue_cycles(self, elements: int) -> int: ...
    def dma(self, kind: str, here: int, there: int, runs: int, charged: int) -> tuple[int, Route]: ...
    def message(self, here: int, there: int, size: int) -> tuple[int, Route]: ...


@dataclass(frozen=True)
class Retimed:
    """The rows of a log with new times; `changed` numbers the rows that are not as they were."""

    log: OpLog
    changed: Ints

    @property
    def table(self) -> Ints:
        """All cells as rows by columns (a copy), with the new times."""
        return self.log.table()

    @property
    def cycles(self) -> int:
        """The run's length under the new costs."""
        return int(self.table[:, TIMES].max(initial=0))


def retime(log: OpLog, timing: Timing) -> Retimed:
    """The log that its run has with the costs of `timing`, under the model's own schedule.

    Raises LaunchError if the rows themselves would be others (a spec with other tiles or slots), and SimError for a log
    whose waits do not come to an end.
    """
    if not isinstance(log, OpLog) or (len(log) and not log.layout):  # a device without a second engine says no layout
        raise LaunchError(f"retime: the log is {log!r}; give run.log of a run on AHBM")
    if not hasattr(type(timing), "issue_cycles"):
        raise LaunchError(f"retime: the timing is {timing!r}; give Timing(spec)")
    for name, value in log.layout.items():
        if getattr(timing.spec, name) != value:
            fact = f"spec field {name} = {getattr(timing.spec, name)}, the run of the log had {value}"
            raise LaunchError(f"retime: {fact}; the rows depend on it, so run the kernel with that spec instead")
    replay = Replay(log, timing)
    replay.run()
    table = log.table()
    table[:, TIMES] = np.array([replay.issue, replay.start, replay.free, replay.end], np.int64).T
    for row, (pipe, number) in replay.credit_waits.items():
        table[row, AFTER] = replay.credits[pipe][number]
    retimed = copy.copy(log)
    retimed.cells = array("i", table.astype(np.int32).tobytes())
    return Retimed(retimed, np.flatnonzero((table != log.table()).any(1)))


@dataclass(slots=True)
class Transfer:
    """A row whose bytes are under way, with `hop` servers behind them; `landed` is when the last byte is there."""

    row: int
    route: Route
    hop: int = 0
    landed: int = NONE


@dataclass(slots=True)
class Lane:
    """An in-order unit so far: when it can take the next op, and its transfers whose end is not known, in order."""

    free: int = 0
    flying: deque[Transfer] = field(default_factory=deque)
    last_end: int = 0


@dataclass(slots=True)
class Composite:
    """What its rows say of a composite: `tile` cycles a sub-tile, and what follows the last of them."""

    row: int
    tile: int
    epilogue: int = NONE
    epilogue_cycles: int = 0
    writeback: int = NONE


@dataclass(slots=True)
class Run:
    """Sub-tiles that GEMM does in one go, once their panel is there (NONE: the operand is in scratch)."""

    composite: Composite
    panel: int
    tiles: list[int] = field(default_factory=list)
    first: bool = False
    last: bool = False


@dataclass(slots=True)
class Scheduler:
    """What waits at a PE's scheduler in issue order, runs and rows of `dot`, and what it has begun."""

    queue: deque[Run | int] = field(default_factory=deque)
    in_flight: int = 0
    panels: int = 0  # of these, on their way to the GEMM


class Replay:
    """One replay: callbacks in order of (cycle, PE, row), of which no two are the same.

    An end is known as soon as nothing can change it any more, which may be long before its cycle.
    """

    def __init__(self, log: OpLog, timing: Timing) -> None:
        self.log, self.timing = log, timing
        self.rows: dict[str, list[int]] = dict(zip(COLUMNS, log.table().T.tolist(), strict=True))
        self.names: list[str] = [log.names.values[name] for name in self.rows["name"]]
        self.issue, self.start, self.free, self.end = ([NONE] * len(log) for _ in TIMES)
        self.said: list[list[int]] = [[] for _ in log.programs]
        self.children: dict[int, list[int]] = defaultdict(list)
        for row, parent in enumerate(self.rows["parent"]):
            (self.said[self.rows["program"][row]] if parent == NONE else self.children[parent]).append(row)
        self.credits: dict[Pipe, list[int]] = defaultdict(list)  # those that came home, in order
        self.credit_waits = self._credit_waits()
        self.now = 0
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []
        self._known: dict[Need, int] = {}
        self._waiting: dict[Need, list[Callable[[], None]]] = defaultdict(list)
        self._lanes: dict[Pipe, Lane] = defaultdict(Lane)
        self._served: dict[str, int] = defaultdict(int)  # link or controller -> when it can serve the next
        self._schedulers: dict[int, Scheduler] = defaultdict(Scheduler)  # by program
        self._cost, self._dma, self._message = cache(timing.issue_cycles), cache(timing.dma), cache(timing.message)

    def run(self) -> None:
        for program in range(len(self.said)):
            self._go_on(self._kernel(program))
        while self._heap:
            self.now, _, _, callback, argument = heappop(self._heap)
            callback(argument)
        if NONE in self.end:
            raise SimError(self._stuck(self.end.index(NONE)))
        for row, name in enumerate(self.names):
            if name == "drain":
                self.end[row] = max(self.issue[row], self._known[self.rows["after"][row]])

    def _stuck(self, row: int) -> str:
        first = f"{self.names[row]} of {self.log[row].site} in row {row}, after row {self.rows['after'][row]},"
        return f"retime: {first} is the first of {self.end.count(NONE)} that never end: give the log of a finished run"

    def _at(self, cycle: int, row: int, callback: Callable[[Any], None], argument: Any) -> None:
        heappush(self._heap, (cycle, self.log.pes[self.rows["program"][row]], row, callback, argument))

    def _know(self, need: Need, end: int) -> None:
        self._known[need] = end
        for callback in self._waiting.pop(need, ()):
            callback()

    # Kernels

    def _go_on(self, kernel: Iterator[Need]) -> None:
        need = next(kernel, None)
        if need is not None:
            self._waiting[need].append(partial(self._go_on, kernel))

    def _kernel(self, program: int) -> Iterator[Need]:
        """Say the program's rows; yield what has to be known before it can go on."""
        now, readers = 0, list[int]()
        for row in self.said[program]:
            name, after = self.names[row], self.rows["after"][row]
            now += 0 if name == "drain" else self._cost(name)
            self.issue[row] = now
            if name not in OF_THE_CPU:
                self._post(row, readers)
                readers = []
                continue
            if name == "drain":  # the credit behind it waits, the kernel does not
                readers.append(after)
            elif after != NONE:
                need = self.credit_waits.get(row, after)
                if need not in self._known:
                    yield need
                now = max(now, self._known[need])
            self.start[row], self.free[row], self.end[row] = self.issue[row], self.issue[row], now

    def _post(self, row: int, readers: list[int]) -> None:
        """Give the row to its unit at its issue, or when the last of `readers` has ended."""
        for reader in readers:
            if reader not in self._known:
                self._waiting[reader].append(partial(self._post, row, readers))
                return
        cycle = max([self.issue[row], *(self._known[reader] for reader in readers)])
        name = self.names[row]
        if name in ("load", "store", "send", "credit"):
            self._at(cycle, row, self._transfer, row)
        elif name in ("composite", "dot"):
            self._at(cycle, row, self._schedule, row)
        else:  # MATH, which nobody else feeds
            self._compute(row, cycle, self.timing.math_cycles(name, self.rows["work"][row]))

    def _credit_waits(self) -> dict[int, tuple[Pipe, int]]:
        """Waits for a free slot: the n-th of a channel goes on with the n-th credit, whichever slot that frees."""
        waits: dict[int, tuple[Pipe, int]] = {}
        counts: Counter[Pipe] = Counter()
        for row, after in enumerate(self.rows["after"]):
            if after != NONE and self.names[row] == "wait" and self.names[after] == "credit":
                pipe = self._pipe(after)
                waits[row] = pipe, counts[pipe]
                counts[pipe] += 1
        return waits

    # Units

    def _pipe(self, row: int) -> Pipe:
        return self.rows["program"][row], self.rows["unit"][row]

    def _occupy(self, row: int, now: int, cycles: int) -> int:
        """When the row's unit, asked now, begins `cycles` of work."""
        lane = self._lanes[self._pipe(row)]
        start = max(now, lane.free)
        lane.free = start + cycles
        return start

    def _compute(self, row: int, now: int, cycles: int) -> None:
        self.start[row] = self._occupy(row, now, cycles)
        self.free[row] = self.end[row] = self.start[row] + cycles
        self._know(row, self.end[row])

    def _product(self, row: int) -> tuple[int, int, int, int]:
        """Sizes of a product, and bytes of an element: its first operand says how many."""
        m, n, k = self.log.shapes.values[self.rows["shape"][row]]
        size = self.log.operand_cells[3 * self.rows["operands"][row] + 2]
        return m, n, k, size // (m * k)

    # Transfers

    def _transfer(self, row: int) -> None:
        occupancy, route = self._way(row)
        self.start[row] = self._occupy(row, self.now, occupancy)
        self.free[row] = self.start[row] + occupancy
        transfer = Transfer(row, route)
        self._lanes[self._pipe(row)].flying.append(transfer)
        self._at(self.start[row] + route.delays[0], row, self._arrive, transfer)

    def _way(self, row: int) -> tuple[int, Route]:
        """Occupancy and route between the PE of the row's program and that of its peer's."""
        name, peer, charged = self.names[row], self.rows["peer"][row], self.rows["charged"][row]
        here = self.log.pes[self.rows["program"][row]]
        there = here if peer == NONE else self.log.pes[peer]
        if name in ("send", "credit"):
            return self._message(here, there, charged)
        kind = "read" if name in ("load", "panel") else "write"
        return self._dma(kind, here, there, self.rows["runs"][row], charged)

    def _arrive(self, transfer: Transfer) -> None:
        """The head of a transfer is at its next server: first come, first served."""
        route = transfer.route
        server = route.servers[transfer.hop]
        start = max(self.now, self._served[server.name])
        self._served[server.name] = start + server.cycles(route.bytes)
        transfer.hop += 1
        if transfer.hop < len(route.servers):
            self._at(start + route.delays[transfer.hop], transfer.row, self._arrive, transfer)
        else:
            transfer.landed = start + route.serial + route.tail
            self._land(self._lanes[self._pipe(transfer.row)])

    def _land(self, lane: Lane) -> None:
        """A transfer ends when its last byte is there, but never before the one in front of it."""
        while lane.flying and lane.flying[0].landed != NONE:
            transfer = lane.flying.popleft()
            lane.last_end = max(lane.last_end, transfer.landed)
            self._end(transfer.row, lane.last_end)

    def _end(self, row: int, end: int) -> None:
        self.end[row] = end
        self._know(row, end)
        if self.names[row] == "credit":
            home = self.credits[self._pipe(row)]
            home.append(row)
            self._know((self._pipe(row), len(home) - 1), end)

    # Products

    def _schedule(self, row: int) -> None:
        """A composite or a dot is at its scheduler, behind those before it."""
        program = self.rows["program"][row]
        self._schedulers[program].queue.extend([row] if self.names[row] == "dot" else self._runs(row))
        self._pump(program)

    def _runs(self, row: int) -> list[Run]:
        composite = Composite(row, self.timing.tile_cycles(self._product(row)[3]))
        runs: list[Run] = []
        for child in self.children[row]:
            self.issue[child] = self.issue[row]
            if self.names[child] == "epilogue":
                m, n = self.log.shapes.values[self.rows["shape"][child]]
                steps = self.rows["work"][child] // (m * n)
                composite.epilogue, composite.epilogue_cycles = child, steps * self.timing.epilogue_cycles(m * n)
            elif self.names[child] == "writeback":
                composite.writeback = child
            else:
                self._add_to_run(runs, composite, child)
        runs[0].first = runs[-1].last = True
        return runs

    def _add_to_run(self, runs: list[Run], composite: Composite, row: int) -> None:
        """`message` of panels and sub-tiles is the number of their run in the composite."""
        panel = self.names[row] == "panel"
        if self.rows["message"][row] == len(runs):
            runs.append(Run(composite, row if panel else NONE))
        if not panel:
            runs[-1].tiles.append(row)

    def _pump(self, program: int) -> None:
        """Begin what has room in the stream. What needs no panel comes after all panels before it are at the GEMM."""
        scheduler = self._schedulers[program]
        while scheduler.queue and scheduler.in_flight < self.timing.stream_depth:
            product = scheduler.queue[0]
            if scheduler.panels and (isinstance(product, int) or product.panel == NONE):
                return
            scheduler.queue.popleft()
            if isinstance(product, int):
                self._compute(product, self.now, self.timing.dot_cycles(*self._product(product)))
                continue
            scheduler.in_flight += 1
            if product.panel == NONE:
                self._multiply(product)
            else:
                scheduler.panels += 1
                self._fetch(product)

    def _fetch(self, run: Run) -> None:
        self.issue[run.panel] = self.now
        self._waiting[run.panel].append(lambda: self._at(self.end[run.panel], run.panel, self._feed, run))
        self._transfer(run.panel)

    def _feed(self, run: Run) -> None:
        program = self.rows["program"][run.panel]
        self._schedulers[program].panels -= 1
        self._multiply(run)
        self._pump(program)

    def _multiply(self, run: Run) -> None:
        """GEMM takes the run's sub-tiles: the pipeline fills before the first, the epilogue follows the last."""
        composite = run.composite
        fill = self.timing.spec.gemm_fill_cycles if run.first else 0
        epilogue = composite.epilogue_cycles if run.last else 0
        cycle = self._occupy(run.tiles[0], self.now, fill + composite.tile * len(run.tiles) + epilogue)
        for row in run.tiles:
            self.start[row] = cycle
            cycle += composite.tile + fill
            self.free[row] = self.end[row] = cycle
            fill = 0
        self._at(cycle + epilogue, composite.row, self._end_run, run)

    def _end_run(self, run: Run) -> None:
        program = self.rows["program"][run.composite.row]
        self._schedulers[program].in_flight -= 1
        if run.last:
            self._end_composite(run.composite)
        self._pump(program)

    def _end_composite(self, composite: Composite) -> None:
        """The result is in scratch; if it goes to HBM, its way begins."""
        row, epilogue = composite.row, composite.epilogue
        self.start[row] = self.start[self.children[row][0]]
        self.free[row] = self.now
        self._end(row, self.now)
        if epilogue != NONE:
            self.start[epilogue] = self.now - composite.epilogue_cycles
            self.free[epilogue] = self.end[epilogue] = self.now
        if composite.writeback != NONE:
            self._transfer(composite.writeback)
