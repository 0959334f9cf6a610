"""What an op costs: pure functions over the frozen spec, which touch no bytes (ADR-0064, facts table 1.5).

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from functools import cache

from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.topology import Topology
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.ops.unit import Route

# The kind of issue cost of every name a row can have; the scheduler says a writeback, which costs the kernel nothing.
KIND_OF: dict[str, str | None] = {
    "load": "load", "store": "store", "composite": "composite", "dot": "dot", "send": "send", "recv": "recv",
    "recv_async": "recv", "credit": "release", "wait": "wait", "writeback": None,
}  # fmt: skip


EXPONENTIALS = ("exp", "tanh")  # `exp_cycles_per_element` each; tanh at that price is an assumption, and errs low


class Timing:
    """Cycles of ops. `topology` gives the routes; a new `Timing` has idle links."""

    def __init__(self, spec: AhbmSpec) -> None:
        if not isinstance(spec, AhbmSpec):
            raise LaunchError(f"Timing({spec!r}): wants an AhbmSpec")
        self.spec = spec
        self.topology = Topology(spec)
        self.stream_depth = spec.stream_depth
        self.dma = cache(self._dma)  # a tile costs what the tile before it did
        self.message = cache(self._message)

    def issue_cycles(self, name: str) -> int:
        """Cycles the PE's CPU spends to say an op."""
        kind = KIND_OF.get(name, "math")
        return self.spec.issue_costs[kind] if kind else 0

    def math_cycles(self, name: str, elements: int) -> int:
        """Start-up and one element a lane and cycle; exponentials take longer an element."""
        spec = self.spec
        cycles = spec.exp_cycles_per_element if name in EXPONENTIALS else 1
        return spec.math_start_cycles + -(-elements * cycles // spec.math_lanes)

    def tile_cycles(self, itemsize: int) -> int:
        """One GEMM sub-tile, padded to the full tile in time."""
        spec = self.spec
        cycles = -(-spec.tile_m * spec.tile_k * spec.tile_n // spec.gemm_macs_per_cycle)
        return cycles * (spec.gemm_f32_factor if itemsize == 4 else 1)

    def dot_cycles(self, m: int, n: int, k: int, itemsize: int) -> int:
        """A blocking product: the fill and all its sub-tiles."""
        spec = self.spec
        tiles = -(-m // spec.tile_m) * -(-n // spec.tile_n) * -(-k // spec.tile_k)
        return spec.gemm_fill_cycles + tiles * self.tile_cycles(itemsize)

    def epilogue_cycles(self, elements: int) -> int:
        """Element-wise steps on the output path; counted after the last sub-tile, so it errs towards slow."""
        return -(-elements // self.spec.math_lanes)

    def descriptor_cycles(self, runs: int) -> int:
        return self.spec.dma_descriptor_cycles + runs * self.spec.dma_run_cycles

    def _dma(self, kind: str, here: int, there: int, runs: int, charged: int) -> tuple[int, Route]:
        """Occupancy of the DMA channel and route of `charged` bytes between PE `here` and the HBM slice of `there`."""
        descriptor = self.descriptor_cycles(runs)
        route = self.topology.route(kind, here, there, charged, descriptor)
        return descriptor + route.serial, route

    def _message(self, here: int, there: int, size: int) -> tuple[int, Route]:
        """Occupancy of the IPCQ unit and route of a message of `size` bytes."""
        route = self.topology.route("send", here, there, size, 0)
        return route.serial, route
