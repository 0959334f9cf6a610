"""The numbers of the coprocessor, and what each command costs of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pytest_kernbench.simulator import LaunchError

MOVES = ("load", "store")
MATH = ("add", "mul", "scale")


@dataclass(frozen=True)
class VcopSpec:
    """Cycles are of the one clock; raises LaunchError for a number below 1."""

    clock_mhz: int = 800
    cores: int = 4
    local_bytes: int = 4096  # a core's
    bytes_per_cycle: int = 32  # between a core and the shared memory
    first_byte_cycles: int = 20
    lanes: int = 16
    start_cycles: int = 6
    issue_cycles: int = 2  # of the host, for any command

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int) or value < 1:
                raise LaunchError(f"spec field {each.name} = {value!r}: wants a whole number >= 1")

    def cycles(self, name: str, elements: int) -> int:
        """Cycles that a command takes the queue. Raises KeyError for a name that is no command's."""
        if name in MOVES:
            return self.first_byte_cycles + -(-4 * elements // self.bytes_per_cycle)
        return dict.fromkeys(MATH, self.start_cycles + -(-elements // self.lanes))[name]
