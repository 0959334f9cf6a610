"""The vendor's words in the vendor's spelling: element types, pipes, positions, events, modes, repeat parameters.

Values only; nothing here knows a core. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import NamedTuple

import numpy as np

from pytest_kernbench.simulator.memory.dtypes import DType


class ElementType:
    """An element type of the core; there is one object of each, and its identity is its meaning."""

    __slots__ = ("name", "numpy", "size")

    def __init__(self, name: str, numpy: str) -> None:
        self.name = name
        self.numpy: DType = np.dtype(numpy)
        self.size = self.numpy.itemsize

    def __repr__(self) -> str:
        return self.name


half = ElementType("half", "float16")
float32 = ElementType("float", "float32")
double = ElementType("double", "float64")
int8, uint8, int16, uint16, int32, uint32, int64, uint64 = (
    ElementType(f"{name}_t", name)
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
)
TYPES = (half, float32, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64)
BY_NUMPY = {each.numpy: each for each in TYPES}


class Pipe(IntEnum):
    """The units of the core; `PIPE_ALL` is all of them."""

    S = 0
    V = 1
    MTE2 = 2
    MTE3 = 3
    ALL = 4


PIPES = ("S", "V", "MTE2", "MTE3")


class TPosition(Enum):
    """Where a buffer is for; the three here lie in UB."""

    VECIN = "VECIN"
    VECOUT = "VECOUT"
    VECCALC = "VECCALC"


class KernelType(Enum):
    """Which units a kernel has."""

    KERNEL_TYPE_AIV_ONLY = "AIV_ONLY"


class Event:
    """An ordered pair of pipes; there is one object of each."""

    __slots__ = ("name", "value")

    def __init__(self, source: int, target: int) -> None:
        self.name = f"{PIPES[source]}_{PIPES[target]}"
        self.value = (source, target)

    def __repr__(self) -> str:
        return f"HardEvent.{self.name}"


class HardEvents:
    """`HardEvent.MTE2_V`, or by name `HardEvent["MTE2_V"]`; V_V is a barrier in disguise."""

    def __init__(self) -> None:
        pairs = [(a, b) for a in range(len(PIPES)) for b in range(len(PIPES)) if a != b or PIPES[a] == "V"]
        self._events = {event.name: event for event in (Event(*pair) for pair in pairs)}

    def __getattr__(self, name: str) -> Event:
        try:
            return self._events[name]
        except KeyError:
            raise AttributeError(f"310P has no event {name}; it has {', '.join(self._events)}") from None

    def __getitem__(self, name: str) -> Event:
        return self._events[name]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events.values())


HardEvent = HardEvents()


class RoundMode(Enum):
    """How `Cast` rounds."""

    CAST_NONE = "NONE"
    CAST_RINT = "RINT"
    CAST_FLOOR = "FLOOR"
    CAST_CEIL = "CEIL"
    CAST_ROUND = "ROUND"
    CAST_TRUNC = "TRUNC"
    CAST_ODD = "ODD"


class CMPMODE(Enum):
    """What `Compare` compares."""

    LT = "LT"
    GT = "GT"
    EQ = "EQ"
    LE = "LE"
    GE = "GE"
    NE = "NE"


class SELMODE(Enum):
    """What `Select` takes where its mask has 0; CMPMASK_SPR: another tensor too, by the same bits in every repeat."""

    VSEL_CMPMASK_SPR = "CMPMASK_SPR"
    VSEL_TENSOR_TENSOR_MODE = "TENSOR_TENSOR"
    VSEL_TENSOR_SCALAR_MODE = "TENSOR_SCALAR"


class ReduceOrder(Enum):
    """In which order `WholeReduceMax` and `WholeReduceMin` write value and index."""

    ORDER_VALUE_INDEX = "VALUE_INDEX"
    ORDER_INDEX_VALUE = "INDEX_VALUE"


class EventID(int):
    """An id that AllocEventID or FetchEventID gave."""


class UnaryRepeatParams(NamedTuple):
    """Strides in blocks of 32 bytes: between blocks of a repeat, between repeats."""

    dstBlkStride: int = 1
    srcBlkStride: int = 1
    dstRepStride: int = 8
    srcRepStride: int = 8


class BinaryRepeatParams(NamedTuple):
    """Strides in blocks of 32 bytes: between blocks of a repeat, between repeats."""

    dstBlkStride: int = 1
    src0BlkStride: int = 1
    src1BlkStride: int = 1
    dstRepStride: int = 8
    src0RepStride: int = 8
    src1RepStride: int = 8


class DataCopyParams(NamedTuple):
    """`blockCount` blocks of `blockLen` x 32 bytes; gaps, in 32 bytes, lie between the end of one and the next."""

    blockCount: int = 1
    blockLen: int = 0
    srcGap: int = 0
    dstGap: int = 0
