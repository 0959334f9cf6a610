"""Random senders and receivers of the AHBM that nothing pairs: who hangs, what arrives, and what is left behind.

The oracle has counters and no time: each PE goes on as far as slots and messages let it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.errors import DeadlockError

SCHEDULES = (("model", 0), ("jitter", 0), ("jitter", 1), ("late", 0))
SHAPE = (4,)
Action = tuple[str, str]  # what, and the direction


@dataclass(frozen=True)
class Program:
    """Of each PE in a row: send, recv, ask (recv_async), take (wait for the oldest asked), release (of the oldest)."""

    slots: int
    actions: tuple[tuple[Action, ...], ...]


@st.composite
def programs(draw: st.DrawFn, most: int = 8) -> Program:
    """Cut from one sequence of messages, of which now and then one is not sent, not received, or not given back."""
    pes = draw(st.integers(2, 3))
    author = Author(draw, [[] for _ in range(pes)], [0] * pes, [0] * pes)
    for _ in range(draw(st.integers(1, most))):
        author.message()
    for pe in range(pes):
        if not author.chance(4):
            author.settle(pe, all_of_it=True)
    return Program(draw(st.integers(1, 4)), tuple(map(tuple, author.lines)))


@dataclass
class Author:
    draw: st.DrawFn
    lines: list[list[Action]]
    held: list[int]
    asked: list[int]

    def chance(self, of: int) -> bool:
        return not self.draw(st.integers(0, of - 1))

    def message(self) -> None:
        last = len(self.lines) - 1
        pe, right = self.draw(st.integers(0, last)), self.draw(st.booleans())
        right = pe == 0 or (pe < last and right)
        peer, out, back = (pe + 1, "E", "W") if right else (pe - 1, "W", "E")
        if not self.chance(20):
            self.lines[pe].append(("send", out))
        if not self.chance(20):
            what = self.draw(st.sampled_from(["recv", "ask"]))
            self.lines[peer].append((what, back))
            self.held[peer] += what == "recv"
            self.asked[peer] += what == "ask"
        if not self.chance(4):
            self.settle(peer, all_of_it=False)

    def settle(self, pe: int, *, all_of_it: bool) -> None:
        """Take what was asked for and give back what is held, all or one."""
        while self.asked[pe] or self.held[pe]:
            what = "take" if self.asked[pe] else "release"
            self.lines[pe].append((what, ""))
            self.asked[pe] -= what == "take"
            self.held[pe] += 1 if what == "take" else -1
            if not all_of_it and self.chance(2):
                return


def kernel(o: Any, actions: tuple[tuple[Action, ...], ...], *, tl: Any) -> None:
    pe = tl.program_id(0)
    total = tl.zeros(SHAPE)
    held: list[Any] = []
    asked: list[Any] = []
    for number, (what, direction) in enumerate(actions[pe]):
        if what == "send":
            tl.send(direction, tl.full(SHAPE, 10 * pe + number))
        elif what == "ask":
            asked.append(tl.recv_async(direction, SHAPE))
        elif what == "release":
            tl.release(held.pop(0))
        else:
            held.append(tl.recv(direction, SHAPE) if what == "recv" else tl.wait(asked.pop(0)))
            total = tl.wait(total * 0.5 + held[-1])
    tl.wait(tl.store(o, total))


@dataclass
class Channel:
    free: int
    sent: list[int] = field(default_factory=list)  # what each message holds
    claimed: int = 0


class Network:
    """What becomes of a program: `hangs`, the totals of its PEs, and its findings."""

    def __init__(self, program: Program) -> None:
        self.actions = program.actions
        pes = len(program.actions)
        self.channels = {(pe, to): Channel(program.slots) for pe in range(pes) for to in (pe - 1, pe + 1)}
        self.totals = [np.float32(0)] * pes
        self.at = [0] * pes
        self.held: list[list[Channel]] = [[] for _ in range(pes)]
        self.asked: list[list[tuple[Channel, int]]] = [[] for _ in range(pes)]
        self.waits: list[tuple[Channel, int] | None] = [None] * pes  # the message that a recv has claimed
        while sum(self._step(pe) for pe in range(pes)):
            pass
        self.hangs = any(at <= len(line) for at, line in zip(self.at, self.actions, strict=True))

    def _step(self, pe: int) -> bool:
        """One action of a PE, or its end; whether it could."""
        if self.at[pe] > len(self.actions[pe]):
            return False
        done = self._end(pe) if self.at[pe] == len(self.actions[pe]) else self._act(pe, *self.actions[pe][self.at[pe]])
        self.at[pe] += done
        return done

    def _act(self, pe: int, what: str, direction: str) -> bool:
        if what == "take":
            return self._receive(pe, what, *self.asked[pe][0])
        if what == "release":
            self.held[pe].pop(0).free += 1
            return True
        peer = pe + (1 if direction == "E" else -1)
        if what == "send":
            return self._send(pe, self.channels[pe, peer])
        into = self.channels[peer, pe]
        if what == "ask":
            self.asked[pe].append(self._claim(into))
            return True
        claim = self.waits[pe] = self.waits[pe] or self._claim(into)
        return self._receive(pe, what, *claim)

    def _send(self, pe: int, channel: Channel) -> bool:
        if not channel.free:
            return False
        channel.free -= 1
        channel.sent.append(10 * pe + self.at[pe])
        return True

    def _claim(self, channel: Channel) -> tuple[Channel, int]:
        channel.claimed += 1
        return channel, channel.claimed - 1

    def _receive(self, pe: int, what: str, channel: Channel, number: int) -> bool:
        if number >= len(channel.sent):
            return False
        self.totals[pe] = self.totals[pe] * np.float32(0.5) + np.float32(channel.sent[number])
        self.held[pe].append(channel)
        if what == "recv":
            self.waits[pe] = None
        else:
            self.asked[pe].pop(0)
        return True

    def _end(self, pe: int) -> bool:
        for channel in self.held[pe]:
            channel.free += 1
        self.held[pe].clear()
        return True

    @property
    def findings(self) -> Counter[str]:
        """Messages that nobody asked for, slots that nobody gave back, and recv_asyncs that nobody waited for."""
        open_ = [claim for asked in self.asked for claim in asked]
        left = sum(max(0, len(channel.sent) - channel.claimed) for channel in self.channels.values())
        lost = sum(number < len(channel.sent) for channel, number in open_)
        found = {"message-left": left, "credit-lost": lost, "op-in-flight-at-exit": len(open_)}
        return Counter({kind: count for kind, count in found.items() if count})


def check(program: Program) -> str:
    """Assert that a run ends as the network does, under every schedule; "stuck", "left" or "clean"."""
    network = Network(program)
    for schedule, seed in SCHEDULES:
        chip = AhbmChip(AhbmSpec(ipcq_slots=program.slots))
        o = chip.tensor("o", SHAPE, "float32")
        try:
            options: dict[str, Any] = {"schedule": schedule, "seed": seed, "check": "collect", "data": True}
            run = chip.run(kernel, o, program.actions, grid=len(program.actions), **options)
        except DeadlockError:
            assert network.hangs, schedule
            continue
        assert not network.hangs, schedule
        found: Counter[str] = Counter()
        for hazard in run.hazards:
            found[hazard.kind] += hazard.count
        assert found == network.findings, schedule
        assert run.array("o")[:, 0].tolist() == network.totals, schedule
    return "stuck" if network.hangs else "left" if network.findings else "clean"
