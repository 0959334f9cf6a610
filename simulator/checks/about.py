"""How findings name an op and the bytes it touched. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import Any

from pytest_kernbench.simulator.errors import Involved


def about(op: Any, region: Any, log: Any) -> Involved:
    """`op` as one side of a finding; `region` is None if it touched no bytes."""
    where = "no bytes"
    if region is not None:
        allocation, lo, hi = region
        where = f"{allocation.name}[{lo - allocation.base}:{hi - allocation.base}] of {allocation.space.name}"
    return Involved(op.row, op.name, op.unit.name, op.kernel.name, where, log.site(op.site))
