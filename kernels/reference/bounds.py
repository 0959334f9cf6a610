"""How long an attention kernel takes at least, and at most if it overlaps nothing. PYTEST_DONT_REWRITE

The roofline of ADR-0060 11.6 for one PE, one KV head and one layer: every term is what one unit must do, in cycles. A
simulated time below the largest term is a fault of the simulator; one above the sum is a fault of the kernel (R45).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from pytest_kernbench.kernels.reference.causal import Prefill, Sweep


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


class Work(Protocol):
    """What a launch asks of its busiest PE: the sweeps over keys of `Decode` and of `PrefillWork`."""

    @property
    def sweeps(self) -> tuple[Sweep, ...]: ...
    @property
    def tile(self) -> int: ...
    @property
    def g(self) -> int: ...
    @property
    def d(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def ops_per_output(self) -> int: ...
    @property
    def softmax_ops(self) -> int:
        """Lane cycles of the softmax of all scores, masks included."""

    @property
    def instructions(self) -> int:
        """MATH instructions in all."""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """One decode launch: `s` cached tokens over `n` PEs, `g` query heads of `t_q` rows each on one KV head.

    The kernel's own softmax is told by counts, because the bound is only as hard as they are true: `ops_per_score`,
    lane cycles for each score (4 for max, subtract, exp and sum with a pre-scaled q; 5 with a scale; 6 with a mask or a
    two-cycle exp as well), `instructions_per_tile`, MATH instructions for `tile` tokens, and `ops_per_output`, lane
    cycles for each element of O and tile (2 for a multiply and an add). `rounds` are those of the
    reduction tree, `tree(n, mesh).rounds`; 0 for one PE. `itemsize` is in bytes.
    """

    s: int
    tile: int
    ops_per_score: int
    instructions_per_tile: int
    n: int = 1
    ops_per_output: int = 3
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

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        """A single one over the shard, unmasked."""
        return (Sweep(rows=self.t_q, keys=self.tokens, tiles=self.tiles),)

    @property
    def softmax_ops(self) -> int:
        return self.ops_per_score * self.rows * self.tokens

    @property
    def instructions(self) -> int:
        return self.tiles * self.instructions_per_tile


@dataclass(frozen=True, kw_only=True)
class PrefillWork:
    """One causal prefill launch on one PE (N = 1): `g` query heads on one KV head, query block by query block.

    `ops_per_score`, `ops_per_output` and `instructions_per_tile` are as in `Decode`, of a tile without a mask. A mask,
    on partial tiles only, costs `ops_per_masked_score` lane cycles and `instructions_per_masked_tile` MATH instructions
    more. Each query block has `instructions_per_block` outside of its tiles, such as filling m, l and O and dividing
    by l. Say `ops_per_output` truly: with d = 128 and a tile of 64, O has two elements for each score, and one op too
    many lifts the lower bound above what a kernel can reach. Raises ValueError for a size below 1.
    """

    prefill: Prefill
    ops_per_score: int
    instructions_per_tile: int
    ops_per_output: int = 3
    ops_per_masked_score: int = 1
    instructions_per_masked_tile: int = 1
    instructions_per_block: int = 0
    g: int = 8
    d: int = 128
    itemsize: int = 2

    def __post_init__(self) -> None:
        for name in ("g", "d", "itemsize"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, the least is 1: {self}")

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return self.prefill.sweeps

    @property
    def tile(self) -> int:
        return self.prefill.tile

    @property
    def softmax_ops(self) -> int:
        masked = sum(sweep.rows * sweep.masked_keys for sweep in self.sweeps)
        return self.g * (self.ops_per_score * self.prefill.scores + self.ops_per_masked_score * masked)

    @property
    def instructions(self) -> int:
        tiles = self.prefill.tile_pairs * self.instructions_per_tile
        masks = self.prefill.partial_pairs * self.instructions_per_masked_tile
        return tiles + masks + len(self.sweeps) * self.instructions_per_block


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


def latency_bounds(work: Decode | PrefillWork, hardware: Hardware) -> Bounds:
    """The terms of ADR-0060 11.6 for `work` on `hardware`, in cycles; a prefill on one PE has no tree."""
    return Bounds(
        hbm=hbm_cycles(work, hardware),
        gemm=gemm_cycles(work, hardware),
        vector=vector_cycles(work, hardware),
        issue=issue_cycles(work, hardware),
        latencies=latency_cycles(work, hardware),
        tree=tree_cycles(work, hardware) if isinstance(work, Decode) else 0.0,
    )


def hbm_cycles(work: Work, hardware: Hardware) -> float:
    """K, V and Q read once a sweep, whatever the group size (ADR-0060 11.2, R34)."""
    elements = sum((2 * sweep.keys + work.g * sweep.rows) * work.d for sweep in work.sweeps)
    bandwidth = hardware.hbm_bytes_per_cycle * hardware.hbm_efficiency_percent / 100
    return elements * work.itemsize / bandwidth


def gemm_cycles(work: Work, hardware: Hardware) -> float:
    """Q.K and P.V with the rows padded to whole hardware tiles: 8 rows cost as much as 32 (R31)."""
    padded = sum(ceil(work.g * sweep.rows / hardware.tile_m) * sweep.keys for sweep in work.sweeps)
    return 2 * hardware.tile_m * padded * work.d / hardware.gemm_macs_per_cycle


def vector_cycles(work: Work, hardware: Hardware) -> float:
    """Softmax of every score, for every tile the passes over O, and the start of each instruction."""
    outputs = sum(sweep.tiles * work.g * sweep.rows * work.d for sweep in work.sweeps)
    return (
        work.softmax_ops + work.ops_per_output * outputs
    ) / hardware.math_lanes + work.instructions * hardware.math_start_cycles


def issue_cycles(work: Work, hardware: Hardware) -> float:
    """What the kernel's CPU says: two composites for each tile, and the MATH instructions (R48)."""
    costs = hardware.issue_costs
    return 2 * _tiles(work) * costs["composite"] + work.instructions * costs["math"]


def latency_cycles(work: Work, hardware: Hardware) -> float:
    """First bytes and descriptors of every read and pipeline fills of every composite, which overlap may hide."""
    tiles, sweeps = _tiles(work), len(work.sweeps)
    panels = _panels(work, hardware.panel_rows_transposed) + _panels(work, hardware.panel_rows) + sweeps
    descriptors = panels * (hardware.dma_descriptor_cycles + hardware.dma_run_cycles)
    return (2 * tiles + sweeps) * hardware.hbm_first_byte_cycles + descriptors + 2 * tiles * hardware.gemm_fill_cycles


def _tiles(work: Work) -> int:
    return sum(sweep.tiles for sweep in work.sweeps)


def _panels(work: Work, rows: int) -> int:
    """Descriptors for reading the K or V of every sweep; no panel crosses a tile."""
    splits = [divmod(sweep.keys, work.tile) for sweep in work.sweeps]
    return sum(whole * ceil(work.tile / rows) + ceil(tail / rows) for whole, tail in splits)


def tree_cycles(work: Decode, hardware: Hardware) -> float:
    """The rounds one after another: m, l and O in float32 over the link, three messages, a merge of eight MATH ops."""
    outputs = work.rows * work.d
    path = hardware.injection_cycles + work.hops_per_round * hardware.hop_cycles + hardware.ejection_cycles
    link = 4 * (outputs + 2 * work.rows) / hardware.link_bytes_per_cycle
    issue = 3 * (hardware.issue_costs["send"] + hardware.issue_costs["recv"])
    merge = 8 * hardware.math_start_cycles + 3 * outputs / hardware.math_lanes
    return work.rounds * (path + link + issue + merge)
