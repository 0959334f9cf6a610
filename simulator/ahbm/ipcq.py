"""PE-to-PE queues: slots at the receiver, credits at the sender, headers with every message (ADR-0023, ADR-0025).

The n-th send of a channel takes the n-th slot that was free, the n-th recv the n-th message: first in, first out.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_kernbench.simulator.engine.loop import Kernel, Token
from pytest_kernbench.simulator.memory.dtypes import DType
from pytest_kernbench.simulator.memory.space import Allocation
from pytest_kernbench.simulator.ops.op import Op
from pytest_kernbench.simulator.ops.unit import Unit


@dataclass(frozen=True, slots=True)
class Header:
    """What travels with a message: shape and dtype of its data."""

    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


class Arrival(Token):
    """A message at its receiver, or a credit at its sender: `op` brought it, `slot` is where it is or what is free."""

    def __init__(self, setter: Kernel, units: tuple[Unit, ...], who_says: str) -> None:
        self.setter = setter  # the kernel that could bring it
        self._units = units
        self.who_says = who_says
        self.op: Op | None = None
        self.slot: Allocation | None = None
        self.header: Header | None = None

    def needs(self) -> Any:
        return next((unit for unit in self._units if unit.has_work()), None)

    def who(self) -> str:
        return self.who_says


class Mailbox:
    """Things that arrive in order and are claimed in order; either may come first."""

    def __init__(self) -> None:
        self.claimed = 0
        self.delivered = 0
        self._open: dict[int, Arrival] = {}

    def claim(self, arrival: Arrival) -> Arrival:
        """The next thing, arrived or not; `arrival` stands for it if it has not."""
        number, self.claimed = self.claimed, self.claimed + 1
        if number < self.delivered:
            return self._open.pop(number)
        self._open[number] = arrival
        return arrival

    def deliver(self, arrival: Arrival, cycle: int) -> None:
        number, self.delivered = self.delivered, self.delivered + 1
        claimed = self._open.pop(number, None)
        if claimed is None:
            self._open[number] = claimed = arrival
        claimed.op, claimed.slot, claimed.header = arrival.op, arrival.slot, arrival.header
        claimed.set(cycle)

    def unclaimed(self) -> list[Arrival]:
        return [self._open[number] for number in sorted(self._open) if number < self.delivered]


class Channel:
    """One direction from one PE to a neighbour."""

    def __init__(
        self, sender: Kernel, direction: str, receiver: Kernel, back: str, unit: Unit, credit_unit: Unit,
        slots: list[Allocation],
    ) -> None:  # fmt: skip
        self.name = f"{sender.name} {direction}> {receiver.name}"
        self.sender = sender
        self.receiver = receiver
        self.direction = direction  # the sender's word for it; `back` is the receiver's
        self.back = back
        self.unit = unit
        self.credit_unit = credit_unit
        self.slots = slots
        self.messages = Mailbox()
        self.credits = Mailbox()
        for slot in slots:
            self.deliver_credit(slot, None, 0)

    def claim_credit(self) -> Arrival:
        slots = f"{len(self.slots)} slot{'' if len(self.slots) == 1 else 's'}"
        who = f"{self.receiver.name} would end it by releasing one of its {slots} of {self.name}, or more ipcq_slots"
        return self.credits.claim(Arrival(self.receiver, (self.credit_unit,), who))

    def claim_message(self) -> Arrival:
        who = f"{self.sender.name} would end it by sending {self.direction}"
        return self.messages.claim(Arrival(self.sender, (self.unit,), who))

    def deliver_credit(self, slot: Allocation, op: Op | None, cycle: int) -> None:
        self.credits.deliver(self._arrival(slot, op, None), cycle)

    def deliver_message(self, slot: Allocation, op: Op, header: Header, cycle: int) -> None:
        self.messages.deliver(self._arrival(slot, op, header), cycle)

    def _arrival(self, slot: Allocation, op: Op | None, header: Header | None) -> Arrival:
        arrival = Arrival(self.sender, (), "")
        arrival.slot, arrival.op, arrival.header = slot, op, header
        return arrival

    @property
    def credits_out(self) -> int:
        """Slots that are not free at the sender: taken by a send, and no credit has come home."""
        return len(self.slots) - (self.credits.delivered - self.credits.claimed)
