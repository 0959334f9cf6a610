"""What a kernel of the Ascend 310P can say, as types: annotate `asc: Asc`, and editors and checkers know every call.

Declarations alone: `language` does it, and tests/typing holds the one against the other. A tensor has the numpy type of
its elements as a parameter, `LocalTensor[np.float16]`, so that operands of two types are an error before the kernel
runs; `DeQue()` without a type gives `LocalTensor[Any]`. PYTEST_DONT_REWRITE
"""

from pytest_kernbench.simulator.ascend310p.asc.calls import Asc
from pytest_kernbench.simulator.ascend310p.asc.forms import Mask
from pytest_kernbench.simulator.ascend310p.asc.objects import (
    ElementType,
    GlobalTensor,
    HardEvents,
    LocalTensor,
    Pointer,
    Scalar,
    TBuf,
    TPipe,
    TQue,
    TQueSync,
)
from pytest_kernbench.simulator.ascend310p.vocabulary import (
    CMPMODE,
    SELMODE,
    BinaryRepeatParams,
    DataCopyParams,
    Event,
    EventID,
    Pipe,
    ReduceOrder,
    RoundMode,
    TPosition,
    UnaryRepeatParams,
)

__all__ = [
    "CMPMODE",
    "SELMODE",
    "Asc",
    "BinaryRepeatParams",
    "DataCopyParams",
    "ElementType",
    "Event",
    "EventID",
    "GlobalTensor",
    "HardEvents",
    "LocalTensor",
    "Mask",
    "Pipe",
    "Pointer",
    "ReduceOrder",
    "RoundMode",
    "Scalar",
    "TBuf",
    "TPipe",
    "TPosition",
    "TQue",
    "TQueSync",
    "UnaryRepeatParams",
]
