"""When bytes move: at the start and end that the core computed (`Timed`), or as late as the order allows (`Starved`).

Sources are read at `start`, the target is written at `end`; what ends in a cycle is seen by what starts in it.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import chain, permutations
from operator import itemgetter
from types import FrameType
from typing import Any, NamedTuple, Protocol

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import Array

NEVER = 2**62
Key = tuple[int, int, int]  # source pipe, target pipe, id
MOST_STORES = 256
LINE, WIDEST = 6, 8  # bits of the bytes by which stores are found; bytes of the widest element
SYNCS = ("set", "wait", "barrier")
PRIORITIES = tuple(permutations(range(4)))  # of S's stores and the three pipes


class Deed(NamedTuple):
    """What an op does to memory, whenever it is: `compute(*args)` writes its last argument in place.

    What it writes lies in [lo, hi) of the core's addresses. `picks`: for each argument the elements it is about, None
    for all of it; None if that is so for every argument. `folded`: all repeats write the elements of the first one,
    one by one.
    """

    lo: int
    hi: int
    compute: Callable[..., Any]
    picks: tuple[Any, ...] | None = None
    folded: bool = False


# One time it is done: start, end, number in the order of issue, arguments. A plain tuple: one is made for every op.
Effect = tuple[int, int, int, tuple[Any, ...], Deed]


def perform(effect: Effect) -> None:
    """Read, compute, write."""
    _, _, _, args, deed = effect
    if deed.picks is None:
        deed.compute(*args)
    else:
        target, where, result = begin(effect)
        target[where] = result


def begin(effect: Effect) -> tuple[Array, Any, Array]:
    """Read and compute: the target, which elements of it, and their values."""
    _, _, _, (*sources, target), (_, _, compute, index, folded) = effect
    if index is None:
        result = target.copy()
        compute(*sources, result)
        return target, ..., result
    *picks, where = index
    sources = [each if pick is None else each[pick] for each, pick in zip(sources, picks, strict=True)]
    if folded:
        return target, where[0], _fold(compute, sources[0], target[where[0]])
    where = ... if where is None else where
    result = target[where].copy()
    compute(*sources, result)
    return target, where, result


def _fold(compute: Callable[..., Any], values: Array, total: Array) -> Array:
    """Every repeat of the first source onto the total (facts 2.6: dst overlaps src1, its repeat stride is 0)."""
    for each in values.reshape(-1, len(total)):
        compute(each, total, total)
    return total


# A SetValue under way: the cycle at which it lands, number in the order of issue, target, element, value, lo, hi.
Store = tuple[int, int, Array, int, Any, int, int]


class Effects(Protocol):
    """What the core tells of its commands, in the order of issue, and asks of memory."""

    needs_syncs: bool  # whether it wants to hear of flags and barriers

    def op(self, pipe: int, effect: Effect) -> None:
        """A pipe's op whose times are known."""

    def store(self, store: Store, now: int) -> None:
        """A SetValue that is posted at `now`."""

    def load(self, now: int, target: Array, index: int, lo: int, hi: int) -> Any:
        """The element that S sees at `now`."""

    def flag_set(self, key: Key) -> None: ...

    def flag_wait(self, key: Key) -> None: ...

    def barrier(self, pipe: int) -> None: ...

    def drain(self) -> None:
        """Everything that was said is over."""


def overlay(value: Any, lo: int, hi: int, stores: Iterable[Store]) -> Any:
    """`value` of bytes [lo, hi) as S sees it, which has issued `stores` that have not landed."""
    over = [each for each in stores if each[5] < hi and lo < each[6]]
    if not over:
        return value
    raw = bytearray(np.asarray(value).tobytes())
    for _, _, target, _, stored, low, high in over:
        new = np.asarray(stored, target.dtype).tobytes()
        first, last = max(lo, low), min(hi, high)
        raw[first - lo : last - lo] = new[first - low : last - low]
    return np.frombuffer(bytes(raw), value.dtype)[0]


class Timed:
    """Effects in order of time. Ops that overlap with nothing are done whole, which is nearly all of them."""

    needs_syncs = False  # the times say it all

    def __init__(self) -> None:
        self._queues: tuple[deque[Effect], ...] = (deque(), deque(), deque())
        self._flying: list[tuple[int, int, Array, Any, Any, int, int]] = []  # as a Store, of ops too
        self._stores: deque[Store] = deque()
        self._due = NEVER  # nothing happens before
        self._room = MOST_STORES  # for stores, before those that have landed are dropped
        self._low, self._high = NEVER, 0  # nothing is written outside

    def op(self, pipe: int, effect: Effect) -> None:
        queue = self._queues[pipe - 1]
        queue.append(effect)
        if effect[0] < self._due:
            self._due = effect[0]
        lo, hi, _, _, _ = effect[4]
        if lo < self._low:
            self._low = lo
        if hi > self._high:
            self._high = hi
        if len(queue) > 96:
            self.reach(queue[48][0])  # of a queue of 32 places, at most 32 have not started yet

    def store(self, store: Store, now: int) -> None:
        land, _, _, _, _, lo, hi = store
        heappush(self._flying, store)
        stores = self._stores
        stores.append(store)
        if lo < self._low:
            self._low = lo
        if hi > self._high:
            self._high = hi
        if land < self._due:
            self._due = land
        if len(stores) > self._room:
            self.reach(now)
            while stores and stores[0][0] <= now:
                stores.popleft()
            self._room = max(MOST_STORES, 2 * len(stores))

    def load(self, now: int, target: Array, index: int, lo: int, hi: int) -> Any:
        if self._due <= now and lo < self._high and self._low < hi:
            self.reach(now)
        value = target[index]
        stores = self._stores
        if not stores:
            return value
        while stores and stores[0][0] <= now:
            stores.popleft()
        return overlay(value, lo, hi, stores) if stores else value

    def flag_set(self, key: Key) -> None:
        """Not needed."""

    flag_wait = flag_set

    def barrier(self, pipe: int) -> None:
        """Not needed."""

    def drain(self) -> None:
        self.reach(NEVER - 1)

    def reach(self, now: int) -> None:
        """Let everything happen up to and including cycle `now`."""
        self._happen(now)
        self._low, self._high = NEVER, 0
        for _, _, _, _, (lo, hi, _, _, _) in chain(*self._queues):
            self._low, self._high = min(lo, self._low), max(hi, self._high)
        for *_, lo, hi in self._flying:
            self._low, self._high = min(lo, self._low), max(hi, self._high)

    def _happen(self, now: int) -> None:
        queues, flying = self._queues, self._flying
        while True:
            queue, start, other = queues[0], NEVER, NEVER
            for each in queues:
                if each:
                    begins = each[0][0]
                    if begins < start:
                        queue, start, other = each, begins, start
                    elif begins < other:
                        other = begins
            lands = flying[0][0] if flying else NEVER
            if lands <= start:
                if lands > now:
                    break
                _, _, target, where, value, _, _ = heappop(flying)
                target[where] = value
            elif start > now:
                break
            else:
                self._run(queue, min(now, other, lands - 1))
        self._due = min(start, lands)

    def _run(self, queue: deque[Effect], until: int) -> None:
        """Ops of one queue, while nothing else happens; the last one may be left half done."""
        while queue:
            effect = queue[0]
            start, end, number, args, deed = effect
            if start > until:
                return
            queue.popleft()
            if end > until or (queue and queue[0][0] < end):
                heappush(self._flying, (end, number, *begin(effect), deed[0], deed[1]))
                return
            if deed[3] is None:
                deed[2](*args)
            else:
                perform(effect)


class Starved:
    """`late`: commands run only when S needs them, the pipe of the highest priority first and as far as it goes.

    Ops that nothing orders end in the reverse of their issue, when a barrier, a flag or S needs their end. S's stores
    are a pipe of their own here, in order.
    """

    needs_syncs = True

    def __init__(self, seed: int, depth: int) -> None:
        self._order = PRIORITIES[seed % len(PRIORITIES)]
        self._depth = depth
        self._queues: list[deque[Any]] = [deque() for _ in range(4)]
        self._begun: list[list[Any]] = [[] for _ in range(4)]  # unordered ops that have not ended
        self._stores: defaultdict[int, deque[Store]] = defaultdict(deque)  # that have not, by line
        self._up: Counter[Key] = Counter()

    def op(self, pipe: int, effect: Effect) -> None:
        self._queues[pipe].append(effect)
        while len(self._queues[pipe]) > self._depth and self._step():
            pass

    def store(self, store: Store, now: int) -> None:
        self._queues[0].append(store)
        self._stores[store[5] >> LINE].append(store)

    def load(self, now: int, target: Array, index: int, lo: int, hi: int) -> Any:
        first, last = (lo - WIDEST + 1) >> LINE, (hi - 1) >> LINE
        stores: Iterable[Store] = self._stores.get(last, ())
        if first != last:
            stores = sorted((*self._stores.get(first, ()), *stores), key=itemgetter(1))
        return overlay(target[index], lo, hi, stores) if stores else target[index]

    def flag_set(self, key: Key) -> None:
        self._queues[key[0]].append(("set", key))

    def flag_wait(self, key: Key) -> None:
        if key[1]:
            self._queues[key[1]].append(("wait", key))
            return
        while not self._up[key] and self._step():
            pass
        self._up[key] -= 1

    def barrier(self, pipe: int) -> None:
        self._queues[pipe].append(("barrier", pipe))

    def drain(self) -> None:
        while self._step():
            pass
        for pipe in self._order:
            self._end(pipe)

    def _step(self) -> bool:
        """One command of the first pipe that can go on."""
        return any(self._advance(pipe) for pipe in self._order)

    def _advance(self, pipe: int) -> bool:
        queue = self._queues[pipe]
        if not queue:
            return False
        command = queue[0]
        if command[0] not in SYNCS:
            self._begun[pipe].append(command)
        elif command[0] == "wait":
            if not self._up[command[1]]:
                return False
            self._up[command[1]] -= 1
        else:
            self._end(pipe)
            if command[0] == "set":
                self._up[command[1]] += 1
        queue.popleft()
        return True

    def _end(self, pipe: int) -> None:
        if pipe == 0:
            for _, _, target, at, value, lo, _ in self._begun[0]:
                target[at] = value
                self._stores[lo >> LINE].popleft()
        else:
            for effect in reversed(self._begun[pipe]):
                perform(effect)
        self._begun[pipe].clear()


# What computes, each with the effect in a local `effect`: where numpy's flags are traced back to.
COMPUTING = frozenset(function.__code__ for function in (perform, begin, Timed._run))


def under_way(frame: FrameType | None) -> tuple[Effect | None, bool]:
    """The effect that what runs in `frame` computes, None if it does not, and whether it computes apart from memory."""
    while frame is not None:
        if frame.f_code in COMPUTING:
            return frame.f_locals["effect"], frame.f_code is begin.__code__
        frame = frame.f_back
    return None, False
