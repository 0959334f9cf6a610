"""`tl`'s messages between PEs: send, recv, recv_async, release (ADR-0023, ADR-0025).

A sender waits for a free slot, a receiver for a message; both learn what the other knew. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from typing import Any

from pytest_kernbench.simulator.ahbm.handles import Handle
from pytest_kernbench.simulator.ahbm.ipcq import Channel, Header
from pytest_kernbench.simulator.ahbm.speech import OWN_FILES, Shape, Speech
from pytest_kernbench.simulator.memory.dtypes import DType
from pytest_kernbench.simulator.memory.space import Allocation, row_major
from pytest_kernbench.simulator.ops.log import END, START, WIDTH
from pytest_kernbench.simulator.ops.op import Op
from pytest_kernbench.simulator.ops.semantics.elementwise import copy

OWN_FILES.add(__file__)


class QueueOps(Speech):
    """What the IPCQ units do."""

    def send(self, direction: str, h: Handle) -> Op:
        """Send `h` to the neighbour in `direction`. Blocks until it has a free slot there, then is asynchronous.

        Wait for what it returns before the source is overwritten.
        """
        site = self._site()
        channel = self._channel("send", direction, site, outgoing=True)
        self._use(h, channel.unit, "send", site)
        size = h.size * h.dtype.itemsize
        self._fits_slot("send", h.shape, h.dtype, size, site)
        slot = self._free_slot(channel, site)
        message = Allocation(slot.space, slot.lo, slot.lo + size, "slot", slot.label)
        op = self._op(
            "send", channel.unit, site, h.regions, ((message, message.lo, message.hi),), size=size, charged=size,
            shape=self._log.shapes.id(h.shape), peer=channel.receiver.program, message=channel.credits.claimed - 1,
        )  # fmt: skip
        op.occupancy, op.route = self._timing.message(self._pe.number, self._launch.pe_of(channel.receiver), size)
        header = Header(h.shape, h.dtype)
        op.then = lambda op: channel.deliver_message(message, op, header, op.end)
        if self._data:
            view = message.space.view(message.lo, h.shape, row_major(h.shape, h.dtype.itemsize), h.dtype)
            op.compute, op.sources, op.target = copy, (h.array(),), view
        self._post(op)
        if h.readers is not None:
            h.readers.append(op)
        return op

    def recv(self, direction: str, shape: Shape, dtype: object = "float32") -> Handle:
        """Wait for the next message from `direction`; return it in its slot, without a copy.

        Its header has to say `shape` and `dtype`. The slot is given back by `tl.release`, or at the exit of the
        enclosing scope or kernel.
        """
        site = self._site()
        handle, channel = self._expect("recv", direction, shape, dtype, site)
        self._pay("recv")
        size = handle.size * handle.dtype.itemsize
        row = self._open(
            "recv", self._cpu, site, size=size, shape=self._log.shapes.id(handle.shape), peer=channel.sender.program,
            message=channel.messages.claimed, start=self._kernel.now,
        )  # fmt: skip
        handle.message = channel.claim_message()
        self._receive(handle, row, "recv", site)
        return handle

    def recv_async(self, direction: str, shape: Shape, dtype: object = "float32") -> Handle:
        """Ask for the next message from `direction`; `tl.wait` the handle before it is used."""
        site = self._site()
        handle, channel = self._expect("recv_async", direction, shape, dtype, site)
        self._pay("recv_async")
        self._open(
            "recv_async", self._cpu, site, size=handle.size * handle.dtype.itemsize,
            shape=self._log.shapes.id(handle.shape), peer=channel.sender.program, message=channel.messages.claimed,
            start=self._kernel.now, end=self._kernel.now,
        )  # fmt: skip
        handle.message = channel.claim_message()
        handle.completion = True
        self._pe.awaiting.append((handle, site))
        if self._pe.scoped:
            self._pe.scoped[-1].append(handle)
        return handle

    def release(self, h: Handle) -> None:
        """Give the slot of a received message back, now.

        Ops that read it have to have ended: releasing what another unit still reads is `race-war`.
        """
        site = self._site()
        if not isinstance(h, Handle) or h.channel is None:
            self._refuse(
                site, "bad-parameter", "release", "the handle is not a received message", "release what recv returned"
            )
        self._here(h, "release", site)
        self._give_back(h, site, ())

    # How it is done

    def _channel(self, call: str, direction: str, site: int, *, outgoing: bool) -> Channel:
        if not isinstance(direction, str):
            remedy = "name a direction, such as 'E', then what is sent or its shape"
            self._refuse(site, "bad-parameter", call, f"direction {direction!r}", remedy)
        found = self._launch.channel(self._kernel, direction, outgoing)
        if not isinstance(found, Channel):
            self._refuse(
                site, "bad-parameter", call, found, "use a link of the mesh between launched programs, or launch more"
            )
        return found

    def _expect(self, call: str, direction: str, shape: Any, dtype: object, site: int) -> tuple[Handle, Channel]:
        channel = self._channel(call, direction, site, outgoing=False)
        shape, kind = self._shape(site, call, shape), self._dtype(site, call, dtype)
        self._fits_slot(call, shape, kind, math.prod(shape) * kind.itemsize, site)
        handle = Handle(self, shape, kind)  # type: ignore[arg-type]
        handle.channel = channel
        handle.number = channel.messages.claimed
        return handle, channel

    def _fits_slot(self, call: str, shape: Shape, dtype: DType, size: int, site: int) -> None:
        capacity = self._timing.spec.ipcq_slot_bytes
        if size > capacity:
            fact = f"a message {shape} {dtype} has {size} bytes, a slot holds {capacity}"
            self._refuse(site, "capacity", call, fact, "send it in pieces or launch with a larger ipcq_slot_bytes")

    def _free_slot(self, channel: Channel, site: int) -> Allocation:
        """The next free slot of the receiver's; the wait for its credit is a row of the log."""
        arrival = channel.claim_credit()
        if arrival.is_set and arrival.op is None:  # never used before
            assert arrival.slot is not None
            return arrival.slot
        self._pay("wait")
        row = self._open("wait", self._cpu, site, start=self._kernel.now, peer=channel.receiver.program)
        self._wait_arrival(arrival, row, f"a free slot of {channel.name}")
        assert arrival.slot is not None
        return arrival.slot

    def _receive(self, handle: Handle, row: int, call: str, site: int) -> None:
        """Wait for the handle's message, check its header, and give the handle its bytes."""
        arrival, channel = handle.message, handle.channel
        assert arrival is not None and channel is not None
        op = self._wait_arrival(arrival, row, f"a message of {channel.name}")
        assert arrival.slot is not None and op is not None
        if arrival.header != Header(handle.shape, handle.dtype):
            said = f"the message says {arrival.header}, sent at {self._log.site(op.site)}"
            fact = f"the kernel expects {handle.shape} {handle.dtype}, {said}"
            self._refuse(
                site, "message-mismatch", call, fact, "receive in the order and with the shapes they are sent", (op,)
            )
        handle.message = None
        handle.readers = []
        handle.place(arrival.slot)
        self._pe.held.append((handle, len(self._pe.scoped)))

    def _give_back(self, h: Handle, site: int, after: tuple[Op, ...]) -> None:
        """Send the credit of the slot of `h` home, once the ops `after` have ended."""
        channel = h.channel
        assert channel is not None
        for reader in after:
            row = self._open("drain", self._cpu, site, after=reader.row, start=self._kernel.now)
            reader.when_set(lambda row=row, reader=reader: self._drained(row, reader))  # type: ignore[misc]
        size = self._timing.spec.credit_bytes
        sender = channel.sender
        op = self._op(
            "credit", channel.credit_unit, site, (), h.regions, size=size, charged=size, peer=sender.program,
            message=h.number,
        )  # fmt: skip
        op.after, op.pipe = after, None
        op.occupancy, op.route = self._timing.message(self._pe.number, self._launch.pe_of(sender), size)
        slot = h.allocation
        op.then = lambda op: channel.deliver_credit(slot, op, op.end)
        self._announce(op)
        self._post_after(op, list(after))
        slot.alive = False
        slot.ended = site
        self._pe.held = [(held, depth) for held, depth in self._pe.held if held.allocation is not slot]

    def _drained(self, row: int, reader: Op) -> None:
        self._log.cells[row * WIDTH + END] = max(reader.end, self._log.cells[row * WIDTH + START])

    def _post_after(self, op: Op, after: list[Op]) -> None:
        """Post `op` when each of `after` has ended, at its issue or later."""
        for reader in after:
            if not reader.is_set:
                reader.when_set(lambda: self._post_after(op, after))
                return
        self._sim.at(max(self._sim.now, op.issue), op.key, op.unit.submit, op)

    def _last_readers(self, h: Handle) -> tuple[Op, ...]:
        """The last reader on each unit: units are in order."""
        last = {reader.unit.name: reader for reader in h.readers or ()}
        return tuple(last.values())
