"""How long a decode-attention kernel takes at least, and at most if it overlaps nothing. PYTEST_DONT_REWRITE

The roofline of ADR-0060 11.6 for one PE, one KV head and one layer: every term is what one unit must do, in cycles. A
simulated time below the largest term is a fault of the simulator; one above the sum is a fault of the kernel (R45).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol


class Hardware(Protocol):
    """The numbers that a bound is made of; any object with these attributes will do, such as a device's spec.

    Cycles are of the PE's clock, costs in cycles. `issue_costs` has the kinds composite, math, send and recv.
    """

    @property
    def hbm_bytes_per_cycle(self) -> float: ...
    @property
    def hbm_efficiency_percent(self) -> float: ...
    @property
    def hbm_first_byte_cycles(self) -> int: ...
    @property
    def dma_descriptor_cycles(self) -> int: ...
    @property
    def dma_run_cycles(self) -> int: ...
    @property
    def panel_rows(self) -> int: ...
    @property
    def panel_rows_transposed(self) -> int: ...
    @property
    def gemm_macs_per_cycle(self) -> int: ...
    @property
    def gemm_fill_cycles(self) -> int: ...
    @property
    def tile_m(self) -> int: ...
    @property
    def math_lanes(self) -> int: ...
    @property
    def math_start_cycles(self) -> int: ...
    @property
    def link_bytes_per_cycle(self) -> float: ...
    @property
    def hop_cycles(self) -> int: ...
    @property
    def injection_cycles(self) -> int: ...
    @property
    def ejection_cycles(self) -> int: ...
    @property
    def issue_costs(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, kw_only=True)
class Decode:
    """One decode launch: `s` cached tokens over `n` PEs, `g` query heads of `t_q` rows each on one KV head.

    The kernel's own softmax is told by two counts, because the bound is only as hard as they are true:
    `ops_per_score`, lane cycles for each score (4 for max, subtract, exp and sum with a pre-scaled q; 5 with a scale; 6
    with a mask or a two-cycle exp as well), and `instructions_per_tile`, MATH instructions for `tile` tokens. `rounds`
    are those of the reduction tree, `tree(n, mesh).rounds`; 0 for one PE. `itemsize` is in bytes.
    """

    s: int
    tile: int
    ops_per_score: int
    instructions_per_tile: int
    n: int = 1
    rounds: int = 0
    hops_per_round: int = 1
    g: int = 8
    t_q: int = 1
    d: int = 128
    itemsize: int = 2

    def __post_init__(self) -> None:
        if self.s < 0 or min(self.n, self.tile, self.g, self.t_q, self.d) < 1:
            raise ValueError(f"s counts from 0, n, tile, g, t_q and d from 1: {self}")
        if (self.n > 1) != (self.rounds > 0):
            raise ValueError(f"{self.n} PEs merge in {self.rounds} rounds: pass rounds=tree(n, mesh).rounds")

    @property
    def tokens(self) -> int:
        """K and V rows of the busiest PE."""
        return ceil(self.s / self.n)

    @property
    def rows(self) -> int:
        """Query rows, folded into the M dimension of both GEMMs (ADR-0060 5.2)."""
        return self.g * self.t_q

    @property
    def tiles(self) -> int:
        """Tiles of the busiest PE."""
        return ceil(self.tokens / self.tile)


@dataclass(frozen=True)
class Bounds:
    """Cycles that each unit of the busiest PE needs for one launch, and what comes to them if nothing overlaps."""

    hbm: float
    gemm: float
    vector: float
    issue: float
    latencies: float
    tree: float

    @property
    def lower(self) -> float:
        """The busiest unit's work. Without the tree, whose cost depends on how the kernel packs its messages."""
        return max(self.hbm, self.gemm, self.vector, self.issue)

    @property
    def upper(self) -> float:
        """All of it one after another. Errs low where time is padded: a ragged last tile."""
        return self.hbm + self.gemm + self.vector + self.issue + self.latencies + self.tree


def latency_bounds(work: Decode, hardware: Hardware) -> Bounds:
    """The terms of ADR-0060 11.6 for `work` on `hardware`, in cycles."""
    return Bounds(
        hbm=hbm_cycles(work, hardware),
        gemm=gemm_cycles(work, hardware),
        vector=vector_cycles(work, hardware),
        issue=issue_cycles(work, hardware),
        latencies=latency_cycles(work, hardware),
        tree=tree_cycles(work, hardware),
    )


def hbm_cycles(work: Decode, hardware: Hardware) -> float:
    """K, V and Q read once, whatever the group size (ADR-0060 11.2, R34)."""
    elements = 2 * work.tokens * work.d + work.rows * work.d
    bandwidth = hardware.hbm_bytes_per_cycle * hardware.hbm_efficiency_percent / 100
    return elements * work.itemsize / bandwidth


def gemm_cycles(work: Decode, hardware: Hardware) -> float:
    """Q.K and P.V with the rows padded to whole hardware tiles: 8 rows cost as much as 32 (R31)."""
    padded = hardware.tile_m * ceil(work.rows / hardware.tile_m)
    return 2 * padded * work.tokens * work.d / hardware.gemm_macs_per_cycle


def vector_cycles(work: Decode, hardware: Hardware) -> float:
    """Softmax of every score, and for every tile three passes over O and the start of each instruction."""
    elements = work.ops_per_score * work.rows * work.tokens + work.tiles * 3 * work.rows * work.d
    starts = work.tiles * work.instructions_per_tile * hardware.math_start_cycles
    return elements / hardware.math_lanes + starts


def issue_cycles(work: Decode, hardware: Hardware) -> float:
    """What the kernel's CPU says in each tile: two composites and the MATH instructions (R48)."""
    costs = hardware.issue_costs
    return work.tiles * (2 * costs["composite"] + work.instructions_per_tile * costs["math"])


def latency_cycles(work: Decode, hardware: Hardware) -> float:
    """First bytes and descriptors of every read and pipeline fills of every composite, which overlap may hide."""
    reads = 2 * work.tiles + 1
    panels = _panels(work, hardware.panel_rows_transposed) + _panels(work, hardware.panel_rows) + 1
    descriptors = panels * (hardware.dma_descriptor_cycles + hardware.dma_run_cycles)
    return reads * hardware.hbm_first_byte_cycles + descriptors + 2 * work.tiles * hardware.gemm_fill_cycles


def _panels(work: Decode, rows: int) -> int:
    """Descriptors for one pass over the PE's K or V; no panel crosses a tile."""
    whole, tail = divmod(work.tokens, work.tile)
    return whole * ceil(work.tile / rows) + ceil(tail / rows)


def tree_cycles(work: Decode, hardware: Hardware) -> float:
    """The rounds one after another: m, l and O in float32 over the link, three messages, a merge of eight MATH ops."""
    outputs = work.rows * work.d
    path = hardware.injection_cycles + work.hops_per_round * hardware.hop_cycles + hardware.ejection_cycles
    link = 4 * (outputs + 2 * work.rows) / hardware.link_bytes_per_cycle
    issue = 3 * (hardware.issue_costs["send"] + hardware.issue_costs["recv"])
    merge = 8 * hardware.math_start_cycles + 3 * outputs / hardware.math_lanes
    return work.rounds * (path + link + issue + merge)
