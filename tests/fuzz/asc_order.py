"""What orders the commands of a 310P program, from its text and ADR-0310's clause 3: no times, no clocks.

`Machine` says the program once, without time: which commands go to which pipe, which buffers queues give, which Waits
take which Sets, and whether it ever ends. `Order` is reachability between the moments of all commands.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import combinations, permutations, product

from .asc_programs import ELEMENTS, MTE2, MTE3, QUEUES, TILE, Program, S, Step, V
from .order import Reach, Span, holds, pieces

Key = tuple[int, int, int]
Finding = tuple[str, int, int]  # kind, lines
RANKS = ["race-war", "race-waw", "race-raw"]


@dataclass
class Command:
    """One command: `number` in the order of issue."""

    number: int
    line: int
    what: str
    pipe: int
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    key: Key | None = None
    partner: Command | None = None  # of a Wait: its Set


class Deadlock(Exception):
    """The program never ends."""


@dataclass
class QueueModel:
    """A queue's buffers: who is free, in turn, and what is full, oldest first."""

    kind: str
    base: int
    states: list[str]
    next: int = 0
    full: deque[int] = field(default_factory=deque)
    returned: dict[int, Key] = field(default_factory=dict)  # flags of buffers that were given back
    sent: dict[int, Key] = field(default_factory=dict)  # flags of buffers that were handed over


class Machine:
    """Says a program and keeps what became of it."""

    def __init__(self, program: Program) -> None:
        self.depth = program.depth
        self.commands: list[Command] = []
        self.done: list[Command] = []  # in the order in which the pipes could take them
        self.up: dict[Key, deque[Command]] = {}
        self.outstanding: Counter[Key] = Counter()
        self.parked: list[deque[Command]] = [deque() for _ in range(4)]
        self.taken: set[Key] = set()  # ids of queues' flags
        self.names: dict[str, tuple[str, int]] = {"t": ("UB", 0), "g": ("GM", 0)}
        self.buffers: dict[str, int] = {}
        self.queues: list[QueueModel] = []
        top = 4 * ELEMENTS
        for queue in program.queues:
            self.queues.append(QueueModel(queue.kind, top, ["FREE"] * queue.buffers))
            top += 4 * TILE * queue.buffers
        self.stuck = self._says(program)

    def _says(self, program: Program) -> bool:
        everything = 0, 4 * ELEMENTS
        self._issue(Command(0, len(program.head), "op", MTE2, (("GM", *everything),), (("UB", *everything),)))
        self._issue(Command(0, len(program.head), "all", S))
        try:
            for line, step in program.unrolled():
                self._say(line, step)
        except Deadlock:
            return True
        return any(self.parked)

    def _say(self, line: int, step: Step) -> None:
        if step.what in ("AllocTensor", "EnQue", "DeQue", "FreeTensor"):
            getattr(self, f"_{step.what}")(line, self.queues[int(step.key[0])], str(step.key[1]))
            return
        reads, writes = (tuple(map(self._span, places)) for places in (step.reads, step.writes))
        key = step.key if step.what in ("Set", "Wai") else None
        self._issue(Command(0, line, step.what, step.pipe, reads, writes, key))  # type: ignore[arg-type]

    def _span(self, place: tuple[str, int, int]) -> Span:
        name, lo, hi = place
        memory, base = self.names[name]
        return memory, base + lo, base + hi

    # Queues

    def _AllocTensor(self, line: int, queue: QueueModel, name: str) -> None:
        turns = [(queue.next + step) % len(queue.states) for step in range(len(queue.states))]
        number = next(each for each in turns if queue.states[each] == "FREE")
        queue.next = (number + 1) % len(queue.states)
        queue.states[number] = "OCCUPIED"
        self._take_over(line, queue.returned.pop(number, None))
        self._name(queue, number, name)

    def _EnQue(self, line: int, queue: QueueModel, name: str) -> None:
        queue.states[self.buffers[name]] = "ENQUE"
        queue.full.append(self.buffers[name])
        self._hand_over(line, queue, queue.sent, self.buffers[name], 0)

    def _DeQue(self, line: int, queue: QueueModel, name: str) -> None:
        number = queue.full.popleft()
        queue.states[number] = "DEQUE"
        self._take_over(line, queue.sent.pop(number, None))
        self._name(queue, number, name)

    def _FreeTensor(self, line: int, queue: QueueModel, name: str) -> None:
        queue.states[self.buffers[name]] = "FREE"
        self._hand_over(line, queue, queue.returned, self.buffers[name], 1)

    def _name(self, queue: QueueModel, number: int, name: str) -> None:
        self.buffers[name] = number
        self.names[name] = ("UB", queue.base + 4 * TILE * number)

    def _hand_over(self, line: int, queue: QueueModel, kept: dict[int, Key], number: int, back: int) -> None:
        ends = QUEUES[queue.kind]
        if ends is None:
            return
        source, target = ends[back], ends[1 - back]
        free = next(id for id in range(8) if (source, target, id) not in self.taken)
        kept[number] = (source, target, free)
        self.taken.add(kept[number])
        self._issue(Command(0, line, "Set", source, key=kept[number]))

    def _take_over(self, line: int, key: Key | None) -> None:
        if key is not None:
            self._issue(Command(0, line, "Wai", key[1], key=key))
            self.taken.discard(key)

    # Pipes

    def _issue(self, command: Command) -> None:
        command.number = len(self.commands)
        self.commands.append(command)
        if command.key is not None:
            self.outstanding[command.key] += 1 if command.what == "Set" else -1
        if command.what == "all":
            if any(self.parked) or max(self.outstanding.values(), default=0) > 1:
                raise Deadlock
            self.done.append(command)
        elif command.pipe == S:
            if not self._take(command):
                raise Deadlock
        elif self.parked[command.pipe] or not self._take(command):
            if len(self.parked[command.pipe]) >= self.depth:
                raise Deadlock
            self.parked[command.pipe].append(command)

    def _take(self, command: Command) -> bool:
        """Whether the pipe can take it; a Wait only with its Set."""
        if command.what == "Wai":
            sets = self.up.get(command.key)  # type: ignore[arg-type]
            if not sets:
                return False
            command.partner = sets.popleft()
        self.done.append(command)
        if command.what == "Set":
            assert command.key is not None
            self.up.setdefault(command.key, deque()).append(command)
            self._go_on(command.key[1])
        return True

    def _go_on(self, pipe: int) -> None:
        parked = self.parked[pipe]
        while parked:
            first = parked[0]
            if first.what == "Wai" and not self.up.get(first.key):  # type: ignore[arg-type]
                return
            parked.popleft()
            self._take(first)


class Order:
    """Reachability between (command, "issue" | "start" | "end") of all commands of a program."""

    def __init__(self, machine: Machine) -> None:
        self.commands = machine.commands
        self._reach = Reach()
        for command in self.commands:
            self._moments(command)
            self._edges(command)
        assert self._reach.close(), "a program that ends has no moment before itself"

    def before(self, one: Command, other: Command) -> bool:
        """What one did is over before the other begins."""
        return self._reach.before((one.number, "end"), (other.number, "start"))

    def _moments(self, command: Command) -> None:
        number = command.number
        self._reach.edge((number, "issue"), (number, "start"))
        self._reach.edge((number, "start"), (number, "end"))
        if number:
            self._reach.edge((number - 1, "issue"), (number, "issue"))
        earlier = [each.number for each in self.commands[:number] if each.pipe == command.pipe]
        if earlier:
            self._reach.edge((earlier[-1], "start"), (number, "start"))

    def _edges(self, command: Command) -> None:
        edge, number = self._reach.edge, command.number
        earlier, later = self.commands[:number], self.commands[number + 1 :]
        if later and (command.what in ("get", "all") or (command.what == "Wai" and command.pipe == S)):
            edge((number, "end"), (later[0].number, "issue"))
        if command.what == "Wai":
            assert command.partner is not None
            edge((command.partner.number, "end"), (number, "start"))
        for each in earlier:
            if command.what == "all":
                edge((each.number, "end"), (number, "start"))
            elif each.pipe == command.pipe and command.what in ("Set", "barrier"):
                edge((each.number, "end"), (number, "end" if command.what == "Set" else "start"))
        if command.what in ("barrier", "Wai") and V <= command.pipe <= MTE3:
            for each in later:
                if each.pipe == command.pipe:
                    edge((number, "end"), (each.number, "start"))


class Races:
    """The pairs of a program that share a byte in no order, and those that the checker's rule leaves standing."""

    def __init__(self, machine: Machine) -> None:
        self.order = Order(machine)
        touching = [each for each in machine.done if each.reads or each.writes]
        spans = [span for each in touching for span in each.reads + each.writes]
        at = {byte: [each for each in touching if holds(each.reads + each.writes, byte)] for byte in pieces(spans)}
        self.every: set[tuple[int, int]] = set()  # lines
        self.standing: Counter[Finding] = Counter()
        kinds: dict[tuple[int, int], set[str]] = {}
        for byte, there in at.items():
            for one, other in combinations(range(len(there)), 2):
                for kind in self._kinds(there, one, other, byte):
                    pair = tuple(sorted((there[one].number, there[other].number)))
                    kinds.setdefault(pair, set()).add(kind)  # type: ignore[arg-type]
        for (first, second), found in kinds.items():
            kind = max(found, key=RANKS.index)
            self.standing[kind, machine.commands[first].line, machine.commands[second].line] += 1

    def _kinds(self, there: list[Command], one: int, other: int, byte: tuple[object, int]) -> list[str]:
        """How two accesses of a byte race: every way for which no later access stands."""
        first, second = there[one], there[other]
        if self.order.before(first, second) or self.order.before(second, first) or first.pipe == second.pipe == S:
            return []
        found = []
        for kind, writes, overwrites in (("race-war", 0, 1), ("race-waw", 1, 1), ("race-raw", 1, 0)):
            sides = (first.reads, first.writes)[writes], (second.reads, second.writes)[overwrites]
            if all(holds(side, byte) for side in sides):
                self.every.add(_lines(first, second))
                if not self._stood_for(there[one + 1 : other], first, (writes, overwrites), byte):
                    swapped = {"race-war": "race-raw", "race-raw": "race-war"}
                    found.append(kind if first.number < second.number else swapped.get(kind, kind))
        return found

    def _stood_for(
        self, between: list[Command], first: Command, kind: tuple[int, int], byte: tuple[object, int]
    ) -> bool:
        """A later one of its pipe and kind covers it, or a later conflicting one is ordered after it."""
        for each in between:
            same = each.pipe == first.pipe and holds(each.writes if kind[0] else each.reads, byte)
            if same and (each.pipe != S or kind[0]):
                return True
            conflicts = each.writes + each.reads if all(kind) else each.writes
            if holds(conflicts, byte) and self.order.before(first, each):
                return True
        return False


def _lines(first: Command, second: Command) -> tuple[int, int]:
    one, other = sorted((first, second), key=lambda each: each.number)
    return one.line, other.line


def between_blocks(machine: Machine, blocks: int, shift: int) -> set[Finding]:
    """Lines of two blocks that share a byte of GM, one writing: nothing orders blocks."""
    found: set[Finding] = set()
    for one, other in product(machine.commands, repeat=2):
        for first, second in permutations(range(blocks), 2):
            if first < second and _meet(one.writes, other.writes, 4 * shift * (second - first)):
                found.add(("race-waw", one.line, other.line))
            if _meet(one.writes, other.reads, 4 * shift * (second - first)):
                found.add(("race-raw", one.line, other.line))
    return found


def _meet(ours: tuple[Span, ...], theirs: tuple[Span, ...], moved: int) -> bool:
    """Whether spans of GM share a byte if theirs are so many bytes further."""
    mine, others = ([(lo, hi) for memory, lo, hi in each if memory == "GM"] for each in (ours, theirs))
    return any(lo < high + moved and low + moved < hi for lo, hi in mine for low, high in others)
