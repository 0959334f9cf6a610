"""What an op costs, as (occupancy, latency): pure functions over the frozen spec, which touch no bytes (facts 5.6).

Occupancy keeps the pipe from its next op; latency after it only delays the end. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec

Cost = tuple[int, int]


class Ascend310pTiming:
    """Cycles of ops on the numbers of a spec."""

    def __init__(self, spec: Ascend310pSpec) -> None:
        self.spec = spec

    def vector(self, name: str, itemsize: int, repeats: int) -> Cost:
        """`repeats` of 256 bytes through the vector unit."""
        if name.startswith("WholeReduce"):
            name = f"WholeReduce.{itemsize}"
        latency, each = self.spec.costs[name]
        return each * repeats, latency

    def reduction(self, itemsize: int, repeats: int) -> Cost:
        """`ReduceSum`: whole repeats, then the repeats of their sums, until one is left."""
        occupancy = latency = 0
        while repeats > 1 or not latency:
            one_pass = self.vector("WholeReduce", itemsize, repeats)
            occupancy, latency = occupancy + sum(one_pass), one_pass[1]
            repeats = -(-repeats * itemsize // self.spec.repeat_bytes) if repeats > 1 else 1
        return occupancy - latency, latency

    def copy(self, size: int, blocks: int) -> Cost:
        """A DMA of `size` bytes in `blocks` pieces between GM and UB."""
        spec = self.spec
        return -(-size // spec.gm_bytes_per_cycle) + spec.dma_block_cycles * (blocks - 1), spec.dma_latency_cycles

    def ub_copy(self, size: int) -> Cost:
        return self.vector("UbCopy", 1, -(-size // self.spec.repeat_bytes))
