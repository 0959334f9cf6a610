"""One thing a unit does. An `Op` is its own token: it is set when its target is written. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_kernbench.simulator.engine.loop import Kernel, Token
from pytest_kernbench.simulator.errors import Involved, Site
from pytest_kernbench.simulator.memory.space import Region, describe

NO_REGIONS: tuple[Region, ...] = ()


class Op(Token):
    """An op in flight: issue <= start <= end. `row` is its row of the log, `key` its place among ties."""

    start = -1
    occupancy = 0
    reads = NO_REGIONS
    writes = NO_REGIONS
    stream: Any = None  # who reads `streamed`: a pipe that is not ordered with the unit
    streamed = NO_REGIONS
    after: tuple[Op, ...] = ()  # ops known to have ended before the issue, beyond what the kernel knows
    awaited = False
    route: Any = None
    hop = 0
    landed = False
    compute: Callable[..., Any] | None = None
    sources: tuple[Any, ...] = ()
    target: Any = None
    result: Any = None
    then: Callable[[Op], None] | None = None  # called right after the target is written
    known: Any = None  # these two belong to the race checker
    epoch = 0

    def __init__(self, name: str, kernel: Kernel, unit: Any, key: int, row: int, site: int, issue: int) -> None:
        self.name = name
        self.kernel = kernel
        self.unit = unit
        self.pipe: Any = unit  # whose ops it is in order with; None: with nobody's
        self.key = key
        self.row = row
        self.site = site
        self.issue = issue

    def needs(self) -> Any:
        for op in self.after:
            if not op.is_set:
                return op.needs()
        return self.unit.ready_unit()

    def who(self) -> str:
        return f"{self.name} of {self.kernel.name} on {self.unit.name} would end it"


def involved(op: Op, region: Region | None, site: Site) -> Involved:
    """What a finding says about `op` and the bytes it touched."""
    touched = describe(region) if region is not None else "no bytes"
    return Involved(op.row, op.name, op.unit.name, op.kernel.name, touched, site)
