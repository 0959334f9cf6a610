"""`asc`'s synchronisation: SetFlag, WaitFlag, PipeBarrier, TQueSync, and the ids of flags (facts 2.2, 2.3).

All of it is said by the scalar unit and carried out on the pipes; a Wait blocks its target pipe and nothing else.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from functools import partial
from operator import index
from types import FrameType
from typing import Any

from pytest_kernbench.simulator.ascend310p.core import Stuck, TooLate
from pytest_kernbench.simulator.ascend310p.effects import Key
from pytest_kernbench.simulator.ascend310p.speech import Rows, Speech
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES, Event, EventID, HardEvent, Pipe

S, V, ALL = Pipe.S, Pipe.V, Pipe.ALL  # an attribute of an Enum is slow to look up
SET, WAIT, BARRIER, BARRIER_ALL = "SetFlag", "WaitFlag", "PipeBarrier", "PipeBarrier<ALL>"


class Sync:
    """`asc.TQueSync(PIPE_S, PIPE_V)`: a flag from the first pipe to the second; ids are those of SetFlag."""

    __slots__ = ("_asc", "_event", "_said")

    def __init__(self, asc: SyncCalls, event: Event, said: dict[int, SaidFlag]) -> None:
        self._asc = asc
        self._event = event
        self._said = said  # what the core knows of the event's flags, by id

    def SetFlag(self, id: int) -> None:
        """Raise the flag when what the first pipe was given has ended."""
        try:
            said = self._said[id] if type(id) is int or type(id) is EventID else NO_FLAG[id]
        except (KeyError, TypeError):
            self._asc.set_flag(self._event, id, sys._getframe(1))
        else:
            self._asc.raise_flag(said, sys._getframe(1))

    def WaitFlag(self, id: int) -> None:
        """Hold the second pipe until the flag is up."""
        try:
            said = self._said[id] if type(id) is int or type(id) is EventID else NO_FLAG[id]
        except (KeyError, TypeError):
            self._asc.wait_flag(self._event, id, sys._getframe(1))
        else:
            self._asc.lower_flag(said, sys._getframe(1))


class SaidFlag:
    """A flag and the rows that the log has for its Sets and Waits."""

    __slots__ = ("flag", "set_rows", "wait_rows")

    def __init__(self, flag: Any, set_rows: Any, wait_rows: Any) -> None:
        self.flag = flag
        self.set_rows = set_rows
        self.wait_rows = wait_rows


V_V = SaidFlag(None, None, None)
NO_FLAG: dict[Any, SaidFlag] = {}  # of what is no id: True and 1.0 would find what 1 left


class SyncCalls(Speech):
    """What puts ops in order."""

    _said: dict[Event, dict[int, SaidFlag]]
    _by_key: dict[Key, SaidFlag]
    ids: dict[Event, list[bool]]  # of each HardEvent, which ids are allocated
    queue_keys: set[Key]  # flags that queues have set and not waited for

    _barriers: list[Rows]  # by pipe

    def prepare_syncs(self) -> None:
        """Rows of what is said most often."""
        self._barriers = [self._barrier_rows(BARRIER, pipe) for pipe in range(len(PIPES))]

    # Barriers

    def PipeBarrier(self, pipe: Any) -> None:
        """What follows on the pipe starts when all before on it has ended; PIPE_ALL: on every pipe, and S waits."""
        if type(pipe) is not Pipe or pipe is ALL or pipe is S:
            self._other_barrier(pipe, sys._getframe(1))
        else:
            self._barrier(pipe, sys._getframe(1))

    def _other_barrier(self, pipe: Any, frame: FrameType) -> None:
        if type(pipe) is not Pipe:
            remedy = "give asc.PIPE_V, PIPE_MTE2, PIPE_MTE3 or PIPE_ALL"
            self.refuse(frame, "bad-parameter", BARRIER, f"pipe is {pipe!r}", remedy)
        if pipe is ALL:
            self._barrier_all(frame)
            return
        fact = "a barrier on the scalar pipe is not supported on 310P"
        self.refuse(frame, "unsupported", BARRIER, fact, "the scalar unit is in order; give another pipe or PIPE_ALL")

    def _barrier(self, pipe: Pipe, frame: FrameType) -> None:
        core = self.core
        descriptor = self._descriptor(self._barriers[pipe], frame)
        try:
            core.barrier(core.pipes[pipe], descriptor)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)

    def _barrier_all(self, frame: FrameType) -> None:
        descriptor = self._descriptor(self._barrier_rows(BARRIER_ALL, 0), frame)
        double = [flag for flag in self.core.flags.values() if flag.outstanding > 1]
        try:
            if double:
                raise Stuck(f"a barrier on all pipes hangs while {double[0].name} is set twice")
            self.core.barrier_all(descriptor)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)

    def _barrier_rows(self, name: str, unit: int) -> Rows:
        found = self._rows.get((name, unit))
        if found is None:
            found = self._rows[name, unit] = Rows(unit, name, occupancy=0)
        return found

    # Flags

    def SetFlag(self, event: Any, id: int) -> None:
        """Raise the flag when what its source pipe was given has ended."""
        try:
            said = self._said[event][id] if type(id) is int or type(id) is EventID else NO_FLAG[id]
        except (KeyError, TypeError):
            self.set_flag(event, id, sys._getframe(1))
        else:
            self.raise_flag(said, sys._getframe(1))

    def WaitFlag(self, event: Any, id: int) -> None:
        """Hold the flag's target pipe until it is up; the n-th Wait of a flag pairs with its n-th Set."""
        try:
            said = self._said[event][id] if type(id) is int or type(id) is EventID else NO_FLAG[id]
        except (KeyError, TypeError):
            self.wait_flag(event, id, sys._getframe(1))
        else:
            self.lower_flag(said, sys._getframe(1))

    def TQueSync(self, source: Any, target: Any) -> Sync:
        """The flag from one pipe to another."""
        frame = sys._getframe(1)
        for each in (source, target):
            if type(each) is not Pipe or each is ALL:
                remedy = "give asc.PIPE_S, PIPE_V, PIPE_MTE2 or PIPE_MTE3"
                self.refuse(frame, "bad-parameter", "TQueSync", f"pipe is {each!r}", remedy)
        if source == target:
            fact = f"both ends are PIPE_{PIPES[source]}"
            self.refuse(frame, "unsupported", "TQueSync", fact, "on one pipe say PipeBarrier")
        event = HardEvent[f"{PIPES[source]}_{PIPES[target]}"]
        return Sync(self, event, self._said.setdefault(event, {}))

    def set_flag(self, event: Any, id: int, frame: FrameType) -> None:
        """SetFlag, said in `frame`."""
        said = self._say_flag(event, id, SET, frame)
        if said is V_V:
            self._barrier(V, frame)
        else:
            self.raise_flag(said, frame)

    def raise_flag(self, said: SaidFlag, frame: FrameType) -> None:
        """A Set, of a queue's or by hand; twice without a Wait between is a finding, judged in the order of issue."""
        flag = said.flag
        flag.outstanding += 1
        descriptor = self._descriptor(said.set_rows, frame)
        flag.last_set = descriptor
        if flag.outstanding > 1:
            fact = f"{flag.name} is set {flag.outstanding} times, and no Wait was said in between"
            self.found(
                frame, "double-flag", SET, fact, "pair every Set with one Wait, or use another id; PIPE_ALL hangs now"
            )
        try:
            self.core.flag_set(flag, descriptor)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)

    def wait_flag(self, event: Any, id: int, frame: FrameType) -> None:
        """WaitFlag, said in `frame`."""
        said = self._say_flag(event, id, WAIT, frame)
        if said is V_V:
            self.counted(frame)
        else:
            self.lower_flag(said, frame)

    def lower_flag(self, said: SaidFlag, frame: FrameType) -> None:
        """A Wait, of a queue's or by hand."""
        said.flag.outstanding -= 1
        descriptor = self._descriptor(said.wait_rows, frame)
        try:
            self.core.flag_wait(said.flag, descriptor, descriptor)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)

    def said_flag(self, key: Key) -> SaidFlag:
        """A flag with the rows of its Sets and Waits."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._new_flag(key)
        return found

    def _new_flag(self, key: Key) -> SaidFlag:
        name = f"{PIPES[key[0]]}_{PIPES[key[1]]}"
        rows = [
            self.shared(
                (what, key), partial(Rows, key[side], f"{what}<{name}>", (key[2],), occupancy=0, waits=what == WAIT)
            )
            for side, what in enumerate((SET, WAIT))
        ]
        return SaidFlag(self.core.flag(key), *rows)

    def _say_flag(self, event: Any, id: Any, call: str, frame: FrameType) -> SaidFlag:
        """The flag that is meant, its id checked; `V_V` for the event that is a barrier."""
        if not isinstance(event, Event):
            remedy = "use asc.HardEvent, such as MTE2_V"
            self.refuse(frame, "unsupported", call, f"event {event!r} is not one of 310P's four pipes", remedy)
        try:
            number = -1 if isinstance(id, bool) else index(id)
        except TypeError:
            number = -1
        if number == -1 and type(id) is not int:
            self.whole(id, 0, self.spec.event_ids - 1, "eventID", call, frame)
        if not 0 <= number < self.spec.event_ids:
            fact = f"eventID {number} must be in [0, {self.spec.event_ids})"
            self.refuse(frame, "event-id", call, fact, "take one from AllocEventID or FetchEventID")
        source, target = event.value
        by_hand = number >= self.spec.hand_event_ids and not isinstance(id, EventID)
        if by_hand and call == SET:
            fact = f"eventID {number} by hand: 6 is the system's, 7 the queues'"
            self.found(frame, "reserved-flag", call, fact, f"use 0..{self.spec.hand_event_ids - 1}, or AllocEventID")
        said = V_V if source == target else self.said_flag((source, target, number))
        if not by_hand and said is not V_V and type(id) is int:
            self._said.setdefault(event, {})[id] = said
        return said

    # Ids

    def AllocEventID(self, event: Any) -> EventID:
        """The lowest free id of the event, marked used until ReleaseEventID."""
        frame = sys._getframe(1)
        self.counted(frame)
        return EventID(self.take_id(event, "AllocEventID", frame))

    def take_id(self, event: Any, call: str, frame: FrameType) -> int:
        """A free id, marked used."""
        free = self._free_id(event, call, frame)
        self.ids[event][free] = True
        return free

    def FetchEventID(self, event: Any) -> EventID:
        """The lowest free id of the event, not marked: the next Fetch gives it again."""
        frame = sys._getframe(1)
        self.counted(frame)
        free = self._free_id(event, "FetchEventID", frame)
        key = (*event.value, free)
        if self.core.flag(key).outstanding > 0:
            fact = f"it gives id {free} of {event.name} again, which is set and not waited for"
            self.found(
                frame, "event-id", "FetchEventID", fact, "say the Wait of the first pair before, or use AllocEventID"
            )
        return EventID(free)

    def ReleaseEventID(self, event: Any, id: int) -> None:
        """The id is free again."""
        frame = sys._getframe(1)
        self.counted(frame)
        self._free_id(event, "ReleaseEventID", frame, needed=False)
        number = self.whole(id, 0, self.spec.event_ids - 1, "eventID", "ReleaseEventID", frame)
        if not self.ids[event][number]:
            fact = f"id {number} of {event.name} was not allocated"
            self.refuse(frame, "event-id", "ReleaseEventID", fact, "release what AllocEventID gave, once")
        self.ids[event][number] = False

    def _free_id(self, event: Any, call: str, frame: FrameType, needed: bool = True) -> int:
        if not isinstance(event, Event):
            self.refuse(
                frame, "unsupported", call, f"event {event!r} is not one of 310P's four pipes", "use asc.HardEvent"
            )
        marks = self.ids.setdefault(event, [False] * self.spec.event_ids)
        if needed and all(marks):
            fact = f"all {len(marks)} ids of {event.name} are taken"
            self.refuse(frame, "event-id", call, fact, "ReleaseEventID, or FreeTensor what queues hold")
        return marks.index(False) if needed else 0
