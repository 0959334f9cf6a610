"""What a run leaves behind: ops nobody waited for, messages nobody read, credits that never came home.

Posted sends and MATH ops drain by themselves and are no finding. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.probes import Observer

AWAITED = frozenset({"load", "store", "composite", "writeback"})


class LeftoverChecker(Observer):
    """Needs the race checker's clocks: an op is known to be over if a later one of its unit is."""

    def __init__(self, replay: str, log: Any) -> None:
        self._replay = replay
        self._log = log
        self._last: dict[tuple[int, str], list[Any]] = {}
        self._findings: list[Hazard] = []

    def issue(self, op: Any) -> None:
        if op.name in AWAITED:
            if op.name == "writeback":  # who waits for a composite into HBM waits for this
                composite = op.after[0]
                self._last[composite.kernel.program, composite.pipe.name].remove(composite)
            self._last.setdefault((op.kernel.program, op.pipe.name), []).append(op)

    def wake(self, kernel: Any, op: Any) -> None:
        """Ops of a unit end in order: what was said before `op` is over too."""
        if op.kernel is kernel:
            ops = self._last.get((kernel.program, op.pipe.name))
            if ops:
                ops[:] = [each for each in ops if each.row > op.row]

    def finish(self, kernel: Any) -> None:
        for (program, _), ops in self._last.items():
            if program == kernel.program:
                left = [op for op in ops if kernel.known.get(op.pipe.clock.number, 0) < op.epoch]
                if left:
                    self._left_in_flight(kernel, left)

    def _left_in_flight(self, kernel: Any, ops: list[Any]) -> None:
        op = ops[0]
        first = about(op, next(iter(op.writes), None), self._log)
        more = f" (and {len(ops) - 1} more)" if len(ops) > 1 else ""
        message = f"{kernel.name} ended while nobody had waited for\n  {first}{more}\n  tl.wait what it returned"
        self._findings.append(Hazard("op-in-flight-at-exit", message, (first,), len(ops), self._replay))

    def end_of_run(self, channels: Any) -> None:
        for channel in channels:
            left = channel.messages.unclaimed()
            for arrival in left:
                sent = about(arrival.op, next(iter(arrival.op.writes), None), self._log)
                message = f"{sent}\n  was sent {channel.name} and never received; receive it or do not send it"
                self._findings.append(Hazard("message-left", message, (sent,), replay=self._replay))
            lost = channel.credits_out - len(left)
            if lost:
                message = (
                    f"{lost} of {len(channel.slots)} slots of {channel.name} did not come home; "
                    f"wait for every recv_async and release what was received"
                )
                self._findings.append(Hazard("credit-lost", message, (), lost, self._replay))

    def findings(self) -> list[Hazard]:
        return self._findings
