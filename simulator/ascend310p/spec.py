"""The numbers of one Ascend 310P AI core, each with where it comes from.

Marks: S the seed document, I the vendor's platform table, P a public document of the vendor's, D derived, A assumed.
No microbenchmark of this chip is public: every latency is A, good for comparisons within a run and for nothing else.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from pytest_kernbench.simulator.errors import LaunchError


def _number(default: int, mark: str, reason: str, least: int = 1) -> int:
    return field(default=default, metadata={"mark": mark, "source": reason, "least": least})


def _choice(default: str, choices: tuple[str, ...], mark: str, reason: str) -> str:
    return field(default=default, metadata={"mark": mark, "source": reason, "choices": choices})


MOST = 2**31 - 1  # a log column holds 32 bits
MOST_CYCLES = 10**6
UB_BYTES = 262_144

# name: (latency, cycles a repeat of 256 bytes). Two names of one op differ by element size.
COSTS = MappingProxyType(
    {
        **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "And", "Or"), (24, 2)),
        **dict.fromkeys(("Adds", "Muls", "Maxs", "Mins", "Duplicate", "UbCopy"), (24, 1)),
        **dict.fromkeys(("Sqrt", "Rsqrt", "Reciprocal", "Abs", "Relu", "Not"), (24, 1)),
        **dict.fromkeys(("Exp", "Ln"), (31, 2)),
        "Div": (31, 4),
        **dict.fromkeys(("Axpy", "Cast", "Compare", "CompareScalar", "Select", "MulAddDst"), (26, 2)),
        "WholeReduce.2": (46, 7),
        "WholeReduce.4": (46, 3),
        "BlockReduceSum": (38, 1),
    }
)


@dataclass(frozen=True)
class Ascend310pSpec:
    """Frozen hardware numbers; cycles are of the AI core's clock. Raises LaunchError for a number out of bounds."""

    clock_mhz: int = _number(1060, "I", "cube_freq of Ascend310P3")
    cores: int = _number(8, "I", "AI cores of a chip")
    ub_usable: int = _number(UB_BYTES, "I", "256 KiB; above 248 KiB some library calls keep scratch: a note")
    ub_noted: int = _number(253_952, "P", "248 KiB that the vendor's own library leaves to vectors")
    block_bytes: int = _number(32, "P", "ubblock; what a DMA moves at least")
    repeat_bytes: int = _number(256, "P", "8 blocks, one repeat of a vector instruction")
    event_ids: int = _number(8, "P", "a HardEvent; 0..7")
    hand_event_ids: int = _number(6, "P", "0..5 by hand; 6 is the system's, 7 the queues'", least=0)
    live_tensors: int = _number(8, "P", "that queues of one TPosition hold at most")
    pipe_buffers: int = _number(64, "P", "of all queues and TBufs of a TPipe")
    queue_depth: int = _number(32, "A", "commands that wait at a pipe; syncs take places too")
    gm_bytes_per_cycle: int = _number(17, "I", "a core, all cores at work")
    dma_latency_cycles: int = _number(130, "A", "fit of a published size sweep of a related chip", least=0)
    dma_block_cycles: int = _number(4, "A", "every block of a copy but the first", least=0)
    sync_cycles: int = _number(1, "A", "to say anything to a pipe")
    scalar_ub_cycles: int = _number(12, "A", "GetValue and SetValue in UB")
    scalar_gm_miss_cycles: int = _number(150, "A", "GetValue and SetValue in GM")
    scalar_gm_hit_cycles: int = _number(12, "A", "in a line of the scalar unit's data cache")
    cache_line_bytes: int = _number(64, "P", "line of the scalar unit's data cache")
    cache_lines: int = _number(256, "A", "16 KiB")
    alignment: str = _choice("strict", ("strict", "relaxed"), "P", "UB operands: 32 bytes, or one element")
    flag_model: str = _choice("count", ("count", "bit"), "A", "whether a flag that is up can be set once more")
    scalar_cache: str = _choice("coherent", ("coherent", "private"), "A", "private: GM stores stay in the cache")
    auto_sync: bool = field(
        default=False,
        metadata={
            "mark": "A",
            "source": "the compiler's switch; what it inserts is a related chip's table",
        },
    )
    costs: Mapping[str, tuple[int, int]] = field(
        default_factory=lambda: COSTS, metadata={"mark": "A", "source": "measured on a related chip, or set by analogy"}
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "costs":
                object.__setattr__(self, "costs", _costs(value))
            elif each.name == "auto_sync":
                _check_switch(each.name, value)
            elif "choices" in each.metadata:
                _check_choice(each.name, value, each.metadata["choices"])
            else:
                _check_number(each.name, value, each.metadata["least"])
        if self.ub_usable > UB_BYTES:
            raise LaunchError(f"spec field ub_usable = {self.ub_usable}: the core has {UB_BYTES} bytes of UB")
        if (self.block_bytes, self.repeat_bytes) != (32, 256):
            raise LaunchError("spec fields block_bytes, repeat_bytes: 32 and 256 are the instruction set's")


def _check_number(name: str, value: object, least: int) -> None:
    most = MOST_CYCLES if name.endswith("_cycles") else MOST
    if type(value) is not int or not least <= value <= most:
        raise LaunchError(f"spec field {name} = {value!r}: wants a whole number from {least} to {most}")


def _check_switch(name: str, value: object) -> None:
    if type(value) is not bool:
        raise LaunchError(f"spec field {name} = {value!r}: wants True or False")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise LaunchError(f"spec field {name} = {value!r}: wants one of {', '.join(choices)}")


def _costs(given: object) -> Mapping[str, tuple[int, int]]:
    """The default costs with those of `given` in their place."""
    if not isinstance(given, Mapping):
        raise LaunchError(f"spec field costs = {given!r}: wants name: (latency, cycles a repeat)")
    for name, cost in given.items():
        if name not in COSTS:
            raise LaunchError(f"spec field costs names {name!r}; the names are {', '.join(COSTS)}")
        pair = isinstance(cost, tuple) and len(cost) == 2 and all(type(each) is int for each in cost)
        if not pair or not (0 <= cost[0] <= MOST_CYCLES and 1 <= cost[1] <= MOST_CYCLES):
            raise LaunchError(f"spec field costs, {name}: {cost!r} wants (latency >= 0, cycles a repeat >= 1)")
    return MappingProxyType({**COSTS, **given})
