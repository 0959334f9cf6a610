"""Plans of what makes and takes one bit an element: Compare, CompareScalar, Select (facts 2.6).

Bits are packed as lanes come, the first in the lowest bit; strides are those of values, never of bits.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ascend310p.geometry import Access, Indices, dense, packed, strided
from pytest_kernbench.simulator.ascend310p.spec import UB_BYTES
from pytest_kernbench.simulator.ascend310p.vector_plans import (
    FLOATS,
    MOST_REPEATS,
    How,
    Types,
    VectorPlan,
    VectorPlans,
    one_axis,
)
from pytest_kernbench.simulator.ascend310p.vocabulary import (
    CMPMODE,
    SELMODE,
    ElementType,
    int8,
    uint8,
    uint16,
    uint32,
    uint64,
)
from pytest_kernbench.simulator.ops.semantics import vector

COMPARING = ("Compare", "CompareScalar")
RESULTS = {"Compare": (uint8, int8), "CompareScalar": (uint8,)}
MASKS = (uint8, uint16, uint32, uint64)


class BitPlans(VectorPlans):
    """Makes the plans of calls with bits, and leaves the others to `VectorPlans`."""

    def _plan(self, name: str, how: How, types: Types, scalar: Any, frame: FrameType) -> VectorPlan:
        if name in COMPARING:
            return self._plan_compare(name, how, types, frame)
        if name == "Select":
            return self._plan_select(how, types, frame)
        return super()._plan(name, how, types, scalar, frame)

    def _plan_compare(self, name: str, how: How, types: Types, frame: FrameType) -> VectorPlan:
        """Whole repeats alone: 310P ignores a mask, and its bits lie without gaps whatever the strides of dst."""
        mask, repeats, params, mode = how
        data = self._data_type(name, types, types[:1], types[1:], RESULTS[name], frame)
        if not isinstance(mode, CMPMODE):
            self.refuse(frame, "bad-parameter", name, f"cmpMode is {mode!r}", "use one of asc.CMPMODE")
        width = 256 // data.size
        if repeats is None:
            count = self.whole(mask, 1, UB_BYTES, "count", name, frame)
            if count % width:
                fact = f"count {count} of {data} is {count * data.size} bytes"
                self.refuse(frame, "bad-parameter", name, fact, f"{name} takes whole repeats of 256 bytes")
            passes, shape = count // width, one_axis(count)
            sources = [dense(count, data.size)] * (len(types) - 1)
        else:
            self._lanes(mask, width, name, frame)
            passes = self.whole(repeats, 1, MOST_REPEATS, "repeatTime", name, frame)
            blocks, steps = self._strides(name, params, name == "Compare", frame)
            all_lanes, shape = tuple(range(width)), (passes, width)
            sources = [
                strided(all_lanes, passes, block, step, data.size)
                for block, step in zip(blocks[1:], steps[1:], strict=True)
            ]
        return VectorPlan(
            name, partial(vector.compare, mode.value), types, tuple(sources), dense(passes * width // 8, 1),
            self.timing.vector(name, data.size, passes), self.log.labels.id("UB"),
            scalar=data if name == "CompareScalar" else None, shape=shape,
        )  # fmt: skip

    def _plan_select(self, how: How, types: Types, frame: FrameType) -> VectorPlan:
        mask, repeats, params, mode = how
        values = (types[0], *types[2:])
        data = self._data_type("Select", types, types[1:2], values, MASKS, frame)
        width = 256 // data.size
        lanes: Indices
        if repeats is None:
            count = self.whole(mask, 1, UB_BYTES, "count", "Select", frame)
            passes, shape = -(-count // width), one_axis(count)
            accesses = [dense(count, data.size)] * len(values)
            lanes = np.arange(count)
        else:
            selected = self._lanes(mask, width, "Select", frame)
            passes = self.whole(repeats, 1, MOST_REPEATS, "repeatTime", "Select", frame)
            accesses, shape = self._strided("Select", params, selected, passes, values, frame), (passes, len(selected))
            lanes = (np.arange(passes)[:, None] * width + np.array(selected)).reshape(-1)
        bits = lanes % width if mode is SELMODE.VSEL_CMPMASK_SPR else lanes
        sources: tuple[Access, ...] = (packed(bits, types[1].size), *accesses[1:])
        return VectorPlan(
            "Select", partial(vector.select, bits), types, sources, accesses[0],
            self.timing.vector("Select", data.size, passes), self.log.labels.id("UB"),
            scalar=data if len(values) == 2 else None, shape=shape,
        )  # fmt: skip

    def _data_type(
        self, name: str, types: Types, bits: Types, values: Types, allowed: Types, frame: FrameType
    ) -> ElementType:
        """The type that all values have; that of the bits is one of `allowed`."""
        if values[0] in FLOATS and len(set(values)) == 1 and bits[0] in allowed:
            return values[0]
        have = ", ".join(map(repr, allowed))
        fact = f"310P has no {name} of {', '.join(map(repr, types))}"
        return self.refuse(frame, "unsupported", name, fact, f"values are half or float, bits {have}")
