"""What every `asc` call shares: the author's line, refusals, findings, rows' descriptors, and running the core.

A call is about the author's frame, or about the place that `at` names: another front end says where it is.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import index
from types import FrameType
from typing import Any, NoReturn, TypeVar

import numpy as np

from pytest_kernbench.simulator.ascend310p.core import LAST_CYCLE, Core, Stuck, TooLate, lost_sets
from pytest_kernbench.simulator.ascend310p.numerics import CoreNumerics
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.timing import Ascend310pTiming
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES, TYPES, ElementType
from pytest_kernbench.simulator.checks.blocks import Footprint
from pytest_kernbench.simulator.checks.pipes import PipeRaceChecker
from pytest_kernbench.simulator.checks.shadow import Memory, Shadow
from pytest_kernbench.simulator.checks.transfers import BlockTransfers
from pytest_kernbench.simulator.errors import DeadlockError, Hazard, KernelError, LivelockError, Site
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.compact import CompactLog, Descriptor

Spans = tuple[tuple[int, int], ...]
T = TypeVar("T")
CALLS_BETWEEN_LOOKS = 1024
ADDRESS_BITS = 57  # of an object
NO_REAL = (str, bytes, complex, np.complexfloating)  # numpy would read a number from them


class Judges:
    """The checkers of a block; with checks off there are none."""

    def __init__(
        self, races: PipeRaceChecker, shadow: Shadow, ub: Memory, memories: dict[int, Memory],
        numerics: CoreNumerics | None, transfers: BlockTransfers,
    ) -> None:  # fmt: skip
        self.races = races
        self.numerics = numerics  # None: values are not judged
        self.shadow = shadow
        self.ub = ub
        self.memories = memories  # by number of the host's tensor
        self.transfers = transfers
        self.footprint = Footprint()


class Rows:
    """What the rows of one kind of call have in common, and the descriptors that the log has for its lines."""

    __slots__ = ("by_place", "name", "number", "shape", "sizes", "unit")

    def __init__(self, unit: int, name: str, shape: tuple[int, ...] = (), **sizes: Any) -> None:
        self.unit = unit
        self.name = name
        self.shape = shape
        self.sizes = sizes
        self.by_place: dict[Any, int] = {}  # by line, as `_descriptor` adds it up


class Speech:
    """One running block's side of the core."""

    def __init__(
        self, spec: Ascend310pSpec, core: Core, log: CompactLog, judges: Judges | None, ub: Array | None, *, block: int,
        blocks: int, replay: str, max_ops: int, max_cycles: int, rows: dict[Any, Any],
    ) -> None:  # fmt: skip
        self.spec = spec
        self.core = core
        self.log = log
        self.ub = ub
        self.timing = Ascend310pTiming(spec)
        self.findings: list[Hazard] = []
        self.notes: list[Hazard] = []
        self.raised: list[Hazard] = []  # by errors, which end the run unless the kernel catches them
        self._judges = judges
        self._block = block
        self._blocks = blocks
        self._replay = replay
        self._most_calls = max_ops
        self._countdown = 0  # to the next look at the limits
        self.calls = 0  # counted when the limits were looked at
        self._max_cycles = max_cycles
        self._region = 0
        self._given_place: int | None = None
        self._region_key = 0  # what a region adds to a place, and a given place in full
        self._given_key: tuple[int, int] | None = None
        self._rows = rows  # shared by the blocks of a run: kinds of calls by whatever tells them apart
        self._folded: dict[tuple[str, int], int] = {}

    # Where

    def at(self, site: Site | None) -> None:
        """What follows is said at `site`; None: at the caller's own line again."""
        if site is not None and not isinstance(site, Site):
            self.refuse(sys._getframe(1), "bad-parameter", "at", f"site is {site!r}", "give a Site, or None")
        self._given_place = None if site is None else self.log.places.id(site)
        self._enter(self._region)

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Label the ops of a block of lines, for logs."""
        outer = self._region
        label = self.log.regions.values[outer]
        self._enter(self.log.regions.id(f"{label}/{name}" if label else name))
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, region: int) -> None:
        self._region = region
        self._region_key = region << ADDRESS_BITS
        self._given_key = None if self._given_place is None else (self._given_place, region)

    def _place(self, frame: FrameType) -> int:
        """The id of the author's line."""
        if self._given_place is not None:
            return self._given_place
        return self.log.site_id(frame.f_code, frame.f_lasti)

    def _descriptor(self, rows: Rows, frame: FrameType) -> int:
        """The descriptor of a row of this kind, said in `frame`; every call with a row passes here once."""
        self._countdown -= 1
        if self._countdown < 0:
            self._check_limits(frame)
        # The log keeps the code object, whose bytes start behind its address: no two of them share a sum.
        place = self._given_key or id(frame.f_code) + frame.f_lasti + self._region_key
        found = rows.by_place.get(place)
        if found is None:
            found = rows.by_place[place] = self._describe(rows, frame)
        return found

    def counted(self, frame: FrameType) -> None:
        """A call without a row of its own counts too: a loop of nothing else has to end."""
        self._countdown -= 1
        if self._countdown < 0:
            self._check_limits(frame)

    def _describe(self, rows: Rows, frame: FrameType) -> int:
        log = self.log
        shape = log.shapes.id(rows.shape) if rows.shape else -1
        name, unit = log.names.id(rows.name), log.units.id(PIPES[rows.unit])
        return log.describe(Descriptor(name, unit, self._place(frame), self._region, shape, **rows.sizes))

    # Refusals and findings

    def refuse(self, frame: FrameType, kind: str, call: str, fact: str, remedy: str) -> NoReturn:
        """End the run with what was said, where, the fact with both numbers, and what to do."""
        where = self.log.site(self._place(frame))
        message = f"{call} of {self.name} at {where}: {fact}; {remedy}"
        self._stop(KernelError(Hazard(kind, message, replay=self._replay)))

    def found(self, frame: FrameType, kind: str, call: str, fact: str, remedy: str) -> None:
        """Note a finding and go on; the same at the same line is counted."""
        if self._judges is None:
            return
        place = self._place(frame)
        key = (kind, place)
        if key in self._folded:
            at = self._folded[key]
            self.findings[at] = replace(self.findings[at], count=self.findings[at].count + 1)
            return
        self._folded[key] = len(self.findings)
        message = f"{call} of {self.name} at {self.log.site(place)}: {fact}; {remedy}"
        self.findings.append(Hazard(kind, message, replay=self._replay))

    def stale(self, buffer: Any, who: str, call: str, frame: FrameType) -> None:
        """An operand of a buffer that was given back: whoever allocates it next writes where this is read."""
        if buffer.freed is not None:
            fact = f"{who} is used after FreeTensor at {self.log.site(buffer.freed)}"
            self.found(frame, "use-after-recycle", call, fact, "say FreeTensor after the last use of the tensor")

    def note(self, kind: str, message: str) -> None:
        """Something worth knowing that fails nothing."""
        self.notes.append(Hazard(kind, message, replay=self._replay))

    @property
    def name(self) -> str:
        return f"block{self._block}"

    def _check_limits(self, frame: FrameType) -> None:
        """Every so many calls: has the kernel said more, or run longer, than it may?"""
        if self.calls >= self._most_calls or self.core.now > self._max_cycles:
            where = self.log.site(self._place(frame))
            limits = f"max_ops {self._most_calls} calls, max_cycles {self._max_cycles}"
            fact = f"{self.name} is at cycle {self.core.now} at {where}: {limits}"
            self._stop(
                LivelockError(Hazard("livelock", f"{fact}; mend the loop, or raise the limit", replay=self._replay))
            )
        more = min(CALLS_BETWEEN_LOOKS, self._most_calls - self.calls)
        self.calls += more
        self._countdown = more - 1

    def stuck(self, reason: Stuck | TooLate, frame: FrameType | None = None) -> NoReturn:
        """The core cannot go on: which pipes wait for which flags, since which line; or its clock is at its end."""
        if frame is not None and isinstance(reason, TooLate):
            self._too_late(frame)
        where = "at its end" if frame is None else f"at {self.log.site(self._place(frame))}"
        lines = [f"{self.name} cannot go on {where}: {reason}"]
        for pipe in self.core.pipes:
            if pipe.parked:
                flag, _, descriptor = pipe.parked[0].what
                since = self.log.site(self.log.descriptors[descriptor].site)
                lines.append(
                    f"  {pipe.name} waits for {flag.name} since {since}, "
                    f"{len(pipe.parked) - 1} commands behind it{lost_sets(flag)}"
                )
        double = [flag for flag in self.core.flags.values() if flag.outstanding > 1]
        lines += [f"  {flag.name} is set {flag.outstanding} times" for flag in double]
        lines.append("  set every flag that is waited for, once, before the Wait")
        self._stop(DeadlockError(Hazard("deadlock", "\n".join(lines), replay=self._replay)))

    def _too_late(self, frame: FrameType) -> NoReturn:
        where = self.log.site(self._place(frame))
        fact = f"{self.name} is at cycle {self.core.now} at {where}, and this call ends after {LAST_CYCLE}"
        remedy = f"the log holds no later cycle (max_cycles {self._max_cycles}); mend the loop, or split the run"
        self._stop(LivelockError(Hazard("livelock", f"{fact}; {remedy}", replay=self._replay)))

    def _stop(self, error: KernelError | DeadlockError) -> NoReturn:
        """Raise what ends the run, and remember it: a kernel that catches it is not clean."""
        self.raised.append(error.hazard)
        raise error

    # Arguments

    def element_type(self, given: Any, call: str, frame: FrameType) -> ElementType:
        if isinstance(given, ElementType):
            return given
        return self.refuse(
            frame, "bad-parameter", call, f"{given!r} is no element type", f"name one of {', '.join(map(repr, TYPES))}"
        )

    def whole(self, given: Any, least: int, most: int, what: str, call: str, frame: FrameType) -> int:
        """`given` as a whole number of [least, most]."""
        number = given
        if type(given) is not int:
            try:
                number = None if isinstance(given, bool) else index(given)
            except TypeError:
                number = None
        if number is None or not least <= number <= most:
            self.refuse(frame, "bad-parameter", call, f"{what} is {given!r}", f"give a whole number {least}..{most}")
        return int(number)

    def number(self, kind: ElementType, given: Any, what: str, call: str, frame: FrameType) -> Any:
        """`given`, one number, as a scalar of the element type."""
        if given is not None and not isinstance(given, NO_REAL):
            try:
                found = kind.numpy.type(given)
            except (TypeError, ValueError, OverflowError):
                found = None
            if type(found) is kind.numpy.type:
                return found
        return self.refuse(frame, "bad-parameter", call, f"{what} is {given!r}", f"give a number that {kind} holds")

    def shared(self, key: Any, make: Callable[[], T]) -> T:
        """What the blocks of a run make once."""
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = make()
        return found
