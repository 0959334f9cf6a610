"""What can go wrong in a run, as data (`Hazard`) and as exceptions (`SimError`). Imports nothing.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = [
    "DeadlockError",
    "Hazard",
    "HazardError",
    "Involved",
    "KernelError",
    "LaunchError",
    "LivelockError",
    "SimError",
    "Site",
]


@dataclass(frozen=True, slots=True)
class Site:
    """A source line of the kernel author's."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Involved:
    """One op of a finding: what it is, where it ran, which bytes it touched, which line said it."""

    row: int
    name: str
    unit: str
    kernel: str
    bytes: str
    site: Site

    def __str__(self) -> str:
        return f"{self.name} on {self.unit} of {self.kernel}, {self.bytes}, at {self.site}"


@dataclass(frozen=True, slots=True)
class Hazard:
    """A finding of a checker: a stable kind, a message with both sides and a remedy, and every op involved."""

    kind: str
    message: str
    ops: tuple[Involved, ...] = ()
    count: int = 1
    replay: str = field(default="", compare=False)

    def __str__(self) -> str:
        folded = f"  (found {self.count} times at these lines)" if self.count > 1 else ""
        replay = f"\n  replay: {self.replay}" if self.replay else ""
        return f"{self.kind}: {self.message}{folded}{replay}"


class SimError(Exception):
    """Anything the simulator refuses or finds."""


class LaunchError(SimError):
    """The host asked for something impossible: a tensor, a spec field, a grid, a placement."""


class LogFileError(SimError):
    """The file of a log could not be written, or is none."""


class KernelError(SimError):
    """A kernel said something the device refuses; the message names the call and the kernel's line."""

    def __init__(self, hazard: Hazard) -> None:
        super().__init__(str(hazard))
        self.hazard = hazard
        self.hazards: tuple[Hazard, ...] = (hazard,)  # a device puts what it found before in front

    @property
    def kind(self) -> str:
        """The kind of what was refused, such as "out-of-bounds"."""
        return self.hazard.kind


class DeadlockError(SimError):
    """Kernels sleep and nothing is left that could wake them."""

    def __init__(self, hazard: Hazard) -> None:
        super().__init__(str(hazard))
        self.hazard = hazard
        self.hazards: tuple[Hazard, ...] = (hazard,)  # a device puts what it found before in front


class LivelockError(DeadlockError):
    """The run passed `max_cycles` or `max_ops` without coming to an end."""


class HazardError(SimError):
    """The run came to its end and the checkers have findings; `hazards` lists them all."""

    def __init__(self, hazards: tuple[Hazard, ...]) -> None:
        kinds = ", ".join(dict.fromkeys(hazard.kind for hazard in hazards))
        lines = [f"{kinds} ({len(hazards)} in all)", *(str(hazard) for hazard in hazards)]
        super().__init__("\n\n".join(lines))
        self.hazards = hazards

    def __reduce__(self) -> tuple[type[HazardError], tuple[tuple[Hazard, ...]]]:
        """Made anew from the findings: unpickling one from its text would break the pool of processes it ran in."""
        return type(self), (self.hazards,)
