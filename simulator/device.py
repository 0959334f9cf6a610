"""What a run of any device returns. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.log import OpLog

__all__ = ["HostTensor", "Run"]


class HostTensor(Protocol):
    """A tensor that a device's `tensor` made: an argument of kernels, and a key to what is in it after a run."""

    @property
    def name(self) -> str:
        """Its name, in the log and for `run.array`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one part."""

    @property
    def nbytes(self) -> int:
        """Bytes of one part."""


@dataclass(frozen=True)
class Run:
    """A finished run: its log, its length, what the checkers found, and the tensors afterwards."""

    log: OpLog
    cycles: int
    clock_mhz: int
    hazards: tuple[Hazard, ...]
    scratch_high_water: int
    schedule: str
    seed: int
    spec: Any = field(repr=False)  # the device's own: AhbmSpec, Ascend310pSpec
    tensors: Mapping[str, HostTensor] = field(repr=False)  # the kernel's tensor arguments by name
    checked: bool  # whether the checkers ran: without them `hazards` is empty whatever happened
    _array: Callable[[Any], Array] = field(repr=False)
    notes: tuple[Hazard, ...] = ()  # worth knowing, and no reason to fail
    late_orders: int = 1  # how many orders the schedule "late" can take, one a seed

    @property
    def time_ns(self) -> float:
        """The run's cycles at the device's clock, in nanoseconds."""
        return self.cycles * 1000 / self.clock_mhz

    def array(self, tensor: HostTensor | str) -> Array:
        """The elements of `tensor`, or of the tensor of that name, as they are now (a copy); NaN where nobody wrote."""
        return self._array(tensor)


def about_run(spec: Any, cycles: int, schedule: str, seed: int, hazards: Sequence[Hazard]) -> dict[str, object]:
    """What the file of a log says of its run: the device's numbers, how long it took, what was found."""
    return {
        "spec": {each.name: getattr(spec, each.name) for each in fields(spec)},
        "cycles": cycles,
        "schedule": schedule,
        "seed": seed,
        "findings": [{"kind": each.kind, "count": each.count, "message": each.message} for each in hazards],
    }
