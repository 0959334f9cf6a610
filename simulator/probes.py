"""What can be observed of a run. Imports nothing, so every layer may import it. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Observer:
    """Override the events you want to see; an event nobody overrides costs one truth test.

    An observer may look and may raise. It may keep its own notes in `op.known` and `kernel.known`, which nobody else
    reads. It must not change memory, tokens or time.
    """

    def host_write(self, allocation: Any, lo: int, hi: int) -> None:
        """The host put valid bytes [lo, hi) into `allocation` before the launch."""

    def spawn(self, kernel: Any) -> None:
        """A kernel is about to run."""

    def finish(self, kernel: Any) -> None:
        """A kernel returned; what it left behind is left behind now."""

    def issue(self, op: Any) -> None:
        """A kernel said `op`; `op.reads` and `op.writes` are its accesses. In the kernel's program order."""

    def computed(self, op: Any) -> None:
        """`op` starts: `op.sources` are as it reads them, `op.result` is what it will write to `op.target`."""

    def wake(self, kernel: Any, op: Any) -> None:
        """`kernel` went on knowing that `op` has ended. The only event that orders anything."""

    def recycle(self, kernel: Any, op: Any, site: Any) -> None:
        """A scope with the target of `op` in it was left at `site`, an id of the log's."""

    def end_of_run(self, channels: Any) -> None:
        """Every kernel has returned and every unit is idle; `channels`: the message queues, by first use."""


class Probes:
    """For each event of `Observer`, the list of methods to call, in the order of attachment."""

    EVENTS = tuple(name for name in vars(Observer) if not name.startswith("_"))
    __slots__ = EVENTS

    host_write: list[Callable[[Any, int, int], None]]
    spawn: list[Callable[[Any], None]]
    finish: list[Callable[[Any], None]]
    issue: list[Callable[[Any], None]]
    computed: list[Callable[[Any], None]]
    wake: list[Callable[[Any, Any], None]]
    recycle: list[Callable[[Any, Any, Any], None]]
    end_of_run: list[Callable[[Any], None]]

    def __init__(self) -> None:
        for event in self.EVENTS:
            setattr(self, event, [])

    def attach(self, observer: Observer) -> None:
        """File `observer` under the events it overrides."""
        for event in self.EVENTS:
            if getattr(type(observer), event) is not getattr(Observer, event):
                getattr(self, event).append(getattr(observer, event))
