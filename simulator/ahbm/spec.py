"""The numbers of the AHBM chip, each with where it comes from.

Marks: K seen on a public page of the original project, S another public source, D derived by arithmetic, A assumed.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType

from pytest_kernbench.simulator.arguments import number
from pytest_kernbench.simulator.errors import LaunchError


def _number(default: int, mark: str, reason: str) -> int:
    return field(default=default, metadata={"mark": mark, "source": reason})


MOST = 2**31 - 1  # a log column holds 32 bits
MOST_CYCLES = 10**6
MOST_PES = 2**14

ISSUE_COSTS = MappingProxyType(
    {"math": 8, "load": 16, "store": 16, "send": 16, "recv": 16, "release": 0, "dot": 16, "composite": 48, "wait": 0}
)


# Fields that decide which rows a log has and what they move.
DECIDES_ROWS = (
    "mesh_rows", "mesh_cols", "cube_rows", "cube_cols", "burst_bytes", "credit_bytes", "ipcq_slots", "panel_rows",
    "panel_rows_transposed", "tile_m", "tile_k", "tile_n",
)  # fmt: skip
# Fields that decide whether a kernel is refused. The others decide only when things happen.
DECIDES_REFUSALS = ("hbm_slice_bytes", "scratch_bytes", "ipcq_slot_bytes", "dma_align_bytes")


@dataclass(frozen=True)
class AhbmSpec:
    """Frozen hardware numbers. Cycles are of the PE clock; at 1 GHz a cycle is a nanosecond.

    Raises LaunchError for a number that is out of its bounds; costs and latencies may be 0.
    """

    clock_mhz: int = _number(1000, "A", "logic-die range; makes ns equal cycles")
    mesh_rows: int = _number(2, "A", "2x4 has a one-hop three-round tree")
    mesh_cols: int = _number(4, "K", "8 PEs a cube; the shape of their mesh is A")
    cube_rows: int = _number(4, "K", "SIP of 4x4 cubes")
    cube_cols: int = _number(4, "K", "SIP of 4x4 cubes")
    hbm_bytes_per_cycle: int = _number(256, "K", "8 pseudo-channels of 32 GB/s a PE slice")
    hbm_efficiency_percent: int = _number(100, "K", "the original names 80; 100 keeps the lower bounds hard")
    hbm_slice_bytes: int = _number(4 << 30, "A", "a 32 GiB stack over 8 PEs")
    burst_bytes: int = _number(256, "K", "burst and flit")
    hbm_first_byte_cycles: int = _number(40, "A", "tRCD + tCL + controller")
    dma_align_bytes: int = _number(2, "A", "one bf16 element; raise it to model a stricter DMA")
    dma_descriptor_cycles: int = _number(5, "D", "4.7 ns a tile from a published 992 ns run")
    dma_run_cycles: int = _number(1, "A", "a contiguous run; makes strided access visible")
    gemm_macs_per_cycle: int = _number(4096, "D", ">= 3.2k from 992 ns; balances the HBM slice")
    gemm_fill_cycles: int = _number(16, "A", "pipeline fill, once a composite")
    gemm_f32_factor: int = _number(4, "A", "float32 operands take four passes")
    tile_m: int = _number(32, "K", "TILE_M")
    tile_k: int = _number(64, "K", "TILE_K")
    tile_n: int = _number(32, "K", "TILE_N")
    panel_rows_transposed: int = _number(32, "D", "whole rows, one descriptor; design tried in a prototype")
    panel_rows: int = _number(64, "D", "whole rows, one descriptor; design tried in a prototype")
    stream_depth: int = _number(8, "A", "panels in flight a PE")
    math_lanes: int = _number(128, "S", "as the vector engine of NKI")
    math_start_cycles: int = _number(32, "A", "NKI 60-100 at 1.1-1.4 GHz")
    exp_cycles_per_element: int = _number(2, "A", "sweep 1..4")
    scratch_bytes: int = _number(1 << 20, "K", "TCM scratch of a PE")
    link_bytes_per_cycle: int = _number(128, "A", "as the UCIe and SRAM links")
    hop_cycles: int = _number(9, "S", "Tenstorrent Wormhole, router to router")
    injection_cycles: int = _number(5, "S", "Tenstorrent Wormhole, into the network")
    ejection_cycles: int = _number(5, "S", "Tenstorrent Wormhole, out of the network")
    ucie_bytes_per_cycle: int = _number(128, "K", "128 GB/s between cubes")
    ucie_cycles: int = _number(8, "K", "8 ns a transaction between cubes")
    ipcq_slots: int = _number(4, "A", "a direction; must hold m, l, O (3 messages)")
    ipcq_slot_bytes: int = _number(16384, "A", "a slot")
    credit_bytes: int = _number(16, "K", "over the path; the receiver pays")
    issue_costs: MappingProxyType[str, int] = field(
        default_factory=lambda: ISSUE_COSTS, metadata={"mark": "A", "source": "ADR-0064: composite >> primitive"}
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "issue_costs":
                object.__setattr__(self, "issue_costs", _costs(value))
            else:
                whole = number(f"spec field {each.name}", value, _least(each.name), _most(each.name))
                object.__setattr__(self, each.name, whole)
        pes, slots = self.cubes * self.pes_per_cube, self.ipcq_slots * self.ipcq_slot_bytes
        if pes > MOST_PES:
            fact = f"{self.cubes} cubes of {self.pes_per_cube} PEs are {pes} PEs"
            raise LaunchError(f"spec: {fact}, a chip has {MOST_PES} at most")
        if slots > MOST:
            raise LaunchError(f"spec: {self.ipcq_slots} ipcq_slots take {slots} bytes, a direction has {MOST} at most")

    def __reduce__(self) -> tuple[partial[AhbmSpec], tuple[()]]:
        """A spec goes to other processes, which the proxy of its costs cannot."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return partial(type(self), **{**values, "issue_costs": dict(self.issue_costs)}), ()

    @property
    def pes_per_cube(self) -> int:
        """PEs of a cube's mesh."""
        return self.mesh_rows * self.mesh_cols

    @property
    def cubes(self) -> int:
        """Cubes of the chip."""
        return self.cube_rows * self.cube_cols


def _least(name: str) -> int:
    # A transfer has to reach its first server after the cycle in which it starts: ties are broken by what arrives.
    return 0 if name.endswith("_cycles") and name not in ("dma_run_cycles", "injection_cycles") else 1


def _most(name: str) -> int:
    if name == "hbm_efficiency_percent":
        return 100
    if name == "hbm_slice_bytes":
        return 1 << 40
    return MOST_CYCLES if name.endswith("_cycles") else MOST


def _costs(costs: object) -> MappingProxyType[str, int]:
    """The default costs with those of `costs` in their place; an int sets them all."""
    given = costs if isinstance(costs, Mapping) else dict.fromkeys(ISSUE_COSTS, costs)
    unknown = [kind for kind in given if kind not in ISSUE_COSTS]
    if unknown:
        raise LaunchError(f"spec field issue_costs names {unknown}; the kinds are {', '.join(ISSUE_COSTS)}")
    cycles = {kind: number(f"spec field issue_costs, {kind}", cost, 0, MOST_CYCLES) for kind, cost in given.items()}
    return MappingProxyType({**ISSUE_COSTS, **cycles})
