"""Queues, event ids and credits, said one step at a time in any order, against lists that a reader can check."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import getcurrent, greenlet
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_kernbench.simulator.ahbm.ipcq import Arrival, Channel
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import KernelError
from pytest_kernbench.simulator.memory.space import Allocation, Space

STEPS = settings(max_examples=40, stateful_step_count=25, deadline=None)
FLAGS = {"VECIN": ("MTE2_V", "V_MTE2"), "VECOUT": ("V_MTE3", "MTE3_V"), "VECCALC": None}


class InAKernel(RuleBasedStateMachine):
    """A 310P kernel that says what the machine says."""

    def __init__(self) -> None:
        super().__init__()
        machine = getcurrent()

        def kernel(*, asc: Any) -> None:
            machine.switch(asc)

        self.kernel = greenlet(lambda: Ascend310pCore().run(kernel, check="collect", data=False))
        self.asc = self.kernel.switch()

    def teardown(self) -> None:
        self.run = self.kernel.switch()

    def refused(self, kind: str, call: Any, *given: Any) -> None:
        with pytest.raises(KernelError) as caught:
            call(*given)
        assert caught.value.kind == kind


class Queue(InAKernel):
    """A TQue: who is free, in turn; what waits for its DeQue, oldest first; a flag for every hand-over under way."""

    @initialize(position=st.sampled_from(sorted(FLAGS)), buffers=st.integers(1, 3), depth=st.integers(1, 3))
    def queue_of(self, position: str, buffers: int, depth: int) -> None:
        asc = self.asc
        self.queue = asc.TQue(asc.TPosition[position], depth)
        asc.TPipe().InitBuffer(self.queue, buffers, 256)
        self.depth, self.events = depth, FLAGS[position]
        self.free = deque(range(buffers))  # buffer k has bytes [256 k, 256 (k + 1))
        self.turn = 0
        self.held: list[tuple[Any, int, str]] = []  # tensor, buffer, state
        self.waiting: deque[int] = deque()
        self.returned: set[int] = set()  # freed and not allocated again

    def states(self, *wanted: str) -> list[int]:
        return [place for place, each in enumerate(self.held) if each[2] in wanted]

    @rule()
    def allocate(self) -> None:
        if not self.free:
            self.refused("queue-misuse", self.queue.AllocTensor, self.asc.float32)
            return
        count = len(self.free) + len(self.held)
        buffer = min(self.free, key=lambda each: (each - self.turn) % count)
        self.turn = (buffer + 1) % count
        tensor = self.queue.AllocTensor(self.asc.float32)
        assert (tensor.lo, tensor.size) == (256 * buffer, 64)
        self.free.remove(buffer)
        self.returned.discard(buffer)
        self.held.append((tensor, buffer, "OCCUPIED"))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def en_que(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.held) - 1))
        tensor, buffer, state = self.held[place]
        if state == "ENQUE" or len(self.waiting) >= self.depth:
            self.refused("queue-misuse", self.queue.EnQue, tensor)
            return
        self.queue.EnQue(tensor)
        self.held[place] = (tensor, buffer, "ENQUE")
        self.waiting.append(buffer)

    @rule()
    def de_que(self) -> None:
        if not self.waiting:
            self.refused("queue-misuse", self.queue.DeQue)
            return
        buffer, tensor = self.waiting.popleft(), self.queue.DeQue()
        assert tensor.lo == 256 * buffer, "the oldest comes first"
        (place,) = [place for place, each in enumerate(self.held) if each[1] == buffer]
        self.held[place] = (tensor, buffer, "DEQUE")

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.held) - 1))
        tensor, buffer, state = self.held[place]
        if state == "ENQUE":
            self.refused("queue-misuse", self.queue.FreeTensor, tensor)
            return
        self.queue.FreeTensor(tensor)
        del self.held[place]
        self.free.append(buffer)
        self.returned.add(buffer)
        self.refused("queue-misuse", self.queue.FreeTensor, tensor)

    @invariant()
    def queries_tell_what_there_is(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue = self.queue
        assert queue.GetTensorCountInQue() == len(self.waiting)
        assert queue.HasTensorInQue() == bool(self.waiting)
        assert queue.VacantInQue() == (len(self.waiting) < self.depth)
        assert queue.HasIdleBuffer() == bool(self.free)

    @invariant()
    def every_hand_over_has_a_flag_of_its_own(self) -> None:
        if hasattr(self, "queue") and self.events is not None:
            for event, under_way in zip(self.events, (len(self.waiting), len(self.returned)), strict=True):
                assert sum(self.asc.ids.get(self.asc.HardEvent[event], [])) == under_way
            up = [flag.outstanding for flag in self.asc.core.flags.values()]
            assert sum(up) == len(self.waiting) + len(self.returned)
            assert set(up) <= {0, 1}

    def teardown(self) -> None:
        super().teardown()
        left = sum(hazard.count for hazard in self.run.hazards if hazard.kind == "leak")
        assert left == len(getattr(self, "held", ())), "a tensor that is not FREE at the end is a finding"
        assert not [hazard for hazard in self.run.hazards if hazard.kind == "unpaired-flag"]


class EventIds(InAKernel):
    """Ids of one event: Alloc marks the lowest, Fetch only names it, Release gives it back; a Set pairs with a Wait."""

    def __init__(self) -> None:
        super().__init__()
        self.event = self.asc.HardEvent.MTE2_V
        self.taken: set[int] = set()
        self.up: dict[int, int] = {}

    def lowest(self) -> int | None:
        return next((each for each in range(8) if each not in self.taken), None)

    @rule(marks=st.booleans())
    def take(self, marks: bool) -> None:
        call, lowest = (self.asc.AllocEventID if marks else self.asc.FetchEventID), self.lowest()
        if lowest is None:
            self.refused("event-id", call, self.event)
            return
        assert call(self.event) == lowest
        if marks:
            self.taken.add(lowest)

    @rule(number=st.integers(-1, 8))
    def release(self, number: int) -> None:
        if number not in self.taken:
            kind = "event-id" if 0 <= number < 8 else "bad-parameter"
            self.refused(kind, self.asc.ReleaseEventID, self.event, number)
            return
        self.asc.ReleaseEventID(self.event, number)
        self.taken.remove(number)

    @rule(number=st.integers(0, 5))
    def set(self, number: int) -> None:
        self.asc.SetFlag(self.event, number)
        self.up[number] = self.up.get(number, 0) + 1

    @rule(number=st.integers(0, 5))
    def wait(self, number: int) -> None:
        if self.up.get(number):
            self.asc.WaitFlag(self.event, number)
            self.up[number] -= 1

    @invariant()
    def flags_and_marks_are_those_that_were_said(self) -> None:
        marks = self.asc.ids.get(self.event, [False] * 8)
        assert {number for number, marked in enumerate(marks) if marked} == self.taken
        outstanding = {key[2]: flag.outstanding for key, flag in self.asc.core.flags.items() if flag.outstanding}
        assert outstanding == {number: count for number, count in self.up.items() if count}

    def teardown(self) -> None:
        super().teardown()
        left = sum(hazard.count for hazard in self.run.hazards if hazard.kind == "unpaired-flag")
        assert left == sum(self.up.values()), "a flag that is still up at the end is a finding"


class Credits(RuleBasedStateMachine):
    """A channel: n slots, a credit a free one; messages and credits come and are claimed in order, either first."""

    @initialize(count=st.integers(1, 3))
    def channel_of(self, count: int) -> None:
        self.space = Space(0, "slots", 64 * count)
        made = [Allocation(self.space, 64 * each, 64 * each + 64, "slot", 0) for each in range(count)]
        ends = [SimpleNamespace(name=name) for name in ("PE0", "PE1")]
        self.channel = Channel(ends[0], "E", ends[1], "W", SimpleNamespace(), SimpleNamespace(), made)  # type: ignore[arg-type]
        self.count = count
        self.free = deque(made)  # credits at the sender
        self.sending: deque[Arrival] = deque()  # sends that wait for a credit
        self.there: deque[Allocation] = deque()  # messages that nobody has asked for
        self.asking: deque[Arrival] = deque()  # recvs that wait for a message
        self.held: list[Allocation] = []
        self.cycle = 0

    def arrive(self, slot: Allocation) -> None:
        """The message of a send that has its slot."""
        self.channel.deliver_message(slot, SimpleNamespace(), None, self.cycle)  # type: ignore[arg-type]
        if self.asking:
            asked = self.asking.popleft()
            assert asked.is_set and asked.slot is slot, "the first who asked has the first message"
            self.held.append(slot)
        else:
            self.there.append(slot)

    @rule()
    def send(self) -> None:
        arrival = self.channel.claim_credit()
        assert arrival.is_set == bool(self.free)
        if self.free:
            slot = self.free.popleft()
            assert arrival.slot is slot, "the slot that was free first"
            self.arrive(slot)
        else:
            self.sending.append(arrival)

    @rule()
    def recv(self) -> None:
        arrival = self.channel.claim_message()
        assert arrival.is_set == bool(self.there)
        if self.there:
            assert arrival.slot is self.there[0]
            self.held.append(self.there.popleft())
        else:
            self.asking.append(arrival)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """In any order: a slot that was received later may go home first."""
        slot = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.cycle += 1
        self.channel.deliver_credit(slot, SimpleNamespace(), self.cycle)  # type: ignore[arg-type]
        if self.sending:
            first = self.sending.popleft()
            assert first.is_set and first.slot is slot and first.end == self.cycle
            self.arrive(slot)
        else:
            self.free.append(slot)

    @invariant()
    def every_slot_is_somewhere_and_nowhere_twice(self) -> None:
        if hasattr(self, "channel"):
            found = [slot.lo for slot in (*self.free, *self.there, *self.held)]
            assert sorted(found) == [64 * each for each in range(self.count)]
            assert self.channel.credits_out == self.count - len(self.free) + len(self.sending)
            assert len(self.channel.messages.unclaimed()) == len(self.there)
            assert not any(arrival.is_set for arrival in (*self.sending, *self.asking))


TestQueue, TestEventIds, TestCredits = Queue.TestCase, EventIds.TestCase, Credits.TestCase
TestQueue.settings = TestEventIds.settings = TestCredits.settings = STEPS
