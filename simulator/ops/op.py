"""One thing a unit does. An `Op` is its own token: it is set when its target is written. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_kernbench.simulator.engine.loop import Kernel, Token
from pytest_kernbench.simulator.errors import Involved, Site
from pytest_kernbench.simulator.memory.space import Region

NO_REGIONS: tuple[Region, ...] = ()


class Op(Token):
    """An op in flight: issue <= start <= end. `row` is its row of the log, `key` its place among ties."""

    __slots__ = (
        "after", "after_stream", "awaited", "compute", "epoch", "hop", "issue", "kernel", "key", "known", "latency", "name",
        "occupancy", "reads", "result", "route", "row", "site", "sources", "stream", "streamed", "target", "then", "unit",
        "writes",
    )  # fmt: skip

    def __init__(self, name: str, kernel: Kernel, unit: Any, key: int, row: int, site: int, issue: int) -> None:
        self.is_set = False
        self.end = -1
        self._callbacks = None
        self.name = name
        self.kernel = kernel
        self.unit = unit
        self.key = key
        self.row = row
        self.site = site
        self.issue = issue
        self.occupancy = 0
        self.latency = 0
        self.reads = NO_REGIONS
        self.writes = NO_REGIONS
        self.stream: Any = None  # who reads `streamed`: a pipe that is not ordered with the unit
        self.streamed = NO_REGIONS
        self.after: tuple[Op, ...] = ()  # ops known to have ended before the issue, beyond what the kernel knows
        self.awaited = False
        self.route: Any = None
        self.hop = 0
        self.compute: Callable[..., Any] | None = None
        self.sources: tuple[Any, ...] = ()
        self.target: Any = None
        self.result: Any = None
        self.then: Callable[[Op], None] | None = None  # called right after the target is written
        self.after_stream = 0  # these three belong to the race checker
        self.known: Any = None
        self.epoch = 0

    def needs(self) -> Any:
        for op in self.after:
            if not op.is_set:
                return op.needs()
        return self.unit.ready_unit()

    def who(self) -> str:
        return f"{self.name} of {self.kernel.name} on {self.unit.name} would end it"


def involved(op: Op, region: Region | None, site: Site) -> Involved:
    """What a finding says about `op` and the bytes it touched."""
    touched = describe_region(region) if region is not None else "no bytes"
    return Involved(op.row, op.name, op.unit.name, op.kernel.name, touched, site)


def describe_region(region: Region) -> str:
    """Bytes as the author knows them: a tensor's by offset in it, scratch by address."""
    allocation, lo, hi = region
    base = allocation.base
    return f"{allocation.name}[{lo - base}:{hi - base}] of {allocation.space.name}"
