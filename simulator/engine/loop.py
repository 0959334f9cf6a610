"""Simulated time: one heap of callbacks, and kernels that sleep between them.

Ties within a cycle are broken by the op's key (kernel, number in the kernel), never by the order of scheduling, so that
the log does not depend on how far a kernel ran ahead. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any, NoReturn

from greenlet import GreenletExit, getcurrent, greenlet

from pytest_kernbench.simulator.engine.report import describe_sleepers
from pytest_kernbench.simulator.engine.schedule import Schedule
from pytest_kernbench.simulator.errors import DeadlockError, Hazard, LivelockError, Site
from pytest_kernbench.simulator.probes import Probes

MAX_CYCLES = 2**31 - 2**24  # a log column holds 32 bits; the last op may end a little later


class Token:
    """Set once, at a cycle. A kernel that needs it earlier sleeps until then.

    Defaults stand in the class: one is made per op, and most ops keep most of them.
    """

    is_set = False
    end = -1
    _callbacks: list[Callable[[], None]] | None = None

    def set(self, cycle: int) -> None:
        self.is_set = True
        self.end = cycle
        self.call_back()

    def call_back(self) -> None:
        """Tell those who asked to be told."""
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the token is set, or now if it is."""
        if self.is_set:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def needs(self) -> Any:
        """The unit that has to step for this token to be set; None if only a kernel can set it."""
        return None

    def who(self) -> str:
        """Who could set this token, for a deadlock report."""
        return "nobody"


class Simulation:
    """Runs callbacks in order of (cycle, key). The only code that moves time."""

    def __init__(self, schedule: Schedule, *, max_cycles: int = MAX_CYCLES, max_ops: int = 50_000_000) -> None:
        self.now = 0
        self.probes = Probes()
        self.schedule = schedule
        self.max_cycles = min(max_cycles, MAX_CYCLES)
        self.calls_left = self.max_ops = max_ops
        self.kernels: list[Kernel] = []
        self.sleeping: dict[Kernel, tuple[Token, str]] = {}
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []
        self._pushed = itertools.count().__next__
        self._loop: greenlet = getcurrent()
        self._closing = False

    def at(self, cycle: int, key: int, callback: Callable[[Any], None], argument: Any) -> None:
        heapq.heappush(self._heap, (cycle, key, self._pushed(), callback, argument))

    def spawn(self, function: Callable[[], None], name: str, program: int, place: int | None = None) -> Kernel:
        """A kernel that starts at cycle 0. Ties go to the lower `place`, which is its program if not given."""
        kernel = Kernel(self, function, name, program, program if place is None else place)
        self.kernels.append(kernel)
        for observe in self.probes.spawn:
            observe(kernel)
        self.at(0, kernel.key, Kernel.resume, kernel)
        return kernel

    def run(self) -> None:
        """Run until nothing is left to happen. Raises DeadlockError if kernels still sleep then."""
        self._loop = getcurrent()
        heap, pop, limit = self._heap, heapq.heappop, self.max_cycles
        try:
            while True:
                while heap:
                    self.now, _, _, callback, argument = pop(heap)
                    if self.now > limit:
                        raise LivelockError(self._stuck("livelock", f"passed max_cycles = {limit}"))
                    callback(argument)
                unit = self.schedule.next_unit(self)
                if unit is None:
                    break
                unit.step()
            if self.sleeping:
                raise DeadlockError(self._stuck("deadlock", "nothing is left to happen"))
        except BaseException as error:
            for note in self._end_kernels():
                error.add_note(note)
            raise

    def stop_endless(self, kernel: Kernel, site: Site) -> NoReturn:
        """`kernel` has said more, or gone further, than the run may."""
        bound = f"max_cycles = {self.max_cycles}" if self.calls_left >= 0 else f"max_ops = {self.max_ops} tl calls"
        fact = f"{kernel.name} passed {bound} at {site}: does a loop of it never end?"
        raise LivelockError(self._stuck("livelock", fact))

    def sleep(self, kernel: Kernel, token: Token, why: str) -> None:
        """Put `kernel` to sleep until `token` is set. Called from inside the kernel."""
        if self._closing:
            raise GreenletExit  # a kernel that is being ended wants to wait once more
        self.sleeping[kernel] = (token, why)
        token.when_set(lambda: self.at(self.now, kernel.key, Kernel.resume, kernel))
        self._loop.switch()
        del self.sleeping[kernel]

    def _stuck(self, kind: str, fact: str) -> Hazard:
        return Hazard(kind, f"at cycle {self.now} {fact}\n" + describe_sleepers(self.sleeping, self.kernels))

    def _end_kernels(self) -> list[str]:
        """End what still runs; return what there is to say about it."""
        self._closing = True
        failed: list[Exception] = []
        # In spawn order and now, so that `finally` blocks of a kernel do not run at garbage collection.
        for kernel in self.kernels:
            try:
                kernel.kill()
            except Exception as error:  # whatever the author's `finally` raised; it must not hide why the run ended
                failed.append(error)
        self.sleeping.clear()
        self._heap.clear()
        return [f"while {len(failed)} kernels were ended, the first of them raised {error!r}" for error in failed[:1]]


class Kernel:
    """A plain Python function that the simulation can put to sleep.

    `now` is the kernel's own clock. It runs ahead of the loop by the issue costs of what the kernel said; every effect
    is posted to the loop at the cycle it was said, so the loop never sees it early.
    """

    def __init__(self, sim: Simulation, function: Callable[[], None], name: str, program: int, place: int) -> None:
        self.sim = sim
        self.name = name
        self.program = program
        self.key = place << 40
        self.now = 0
        self.known: Any = None  # belongs to the race checker
        self._greenlet = greenlet(function)

    def resume(self) -> None:
        self._greenlet.switch()

    def wait(self, token: Token, why: str) -> None:
        """Go on when `token` is set; `why` is for the deadlock report."""
        if not token.is_set:
            self.sim.sleep(self, token, why)
        if token.end > self.now:
            self.now = token.end

    @property
    def finished(self) -> bool:
        return bool(self._greenlet.dead)

    def frame(self) -> Any:
        """The innermost frame of the sleeping kernel."""
        return self._greenlet.gr_frame

    def kill(self) -> None:
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.throw(GreenletExit)
