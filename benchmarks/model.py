"""Rows 7 and 8: simulated cycles against the bounds of ADR-0060 11.6, and against the older kernel; no clock needed.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from benchmarks.cases import MESH, Decode
from benchmarks.clock import Session
from benchmarks.table import Result, Target, against
from pytest_kernbench.kernels.ahbm.placement import tree
from pytest_kernbench.kernels.reference.bounds import Bounds, latency_bounds
from pytest_kernbench.kernels.reference.bounds import Decode as Work
from pytest_kernbench.simulator.ahbm.spec import ISSUE_COSTS, AhbmSpec

LENGTHS = tuple(1024 << doubling for doubling in range(3, 8))  # 8K..128K
OPS_PER_SCORE, INSTRUCTIONS_PER_TILE = 6, 12  # of `gqa_decode`: lane cycles a score, MATH instructions a tile


def latencies(session: Session) -> Iterator[Result]:
    for tile in (64, 1024):
        for n in (1, 8):
            session.tell(f"latency against bounds, TILE={tile} N={n}")
            yield from latency(tile, n)


def latency(tile: int, n: int) -> Iterator[Result]:
    """Simulated over the busiest unit for every length; inside the bounds, and close to the lower one at the end."""
    cases = [Decode(length, tile, n) for length in LENGTHS]
    cycles = [case.run(check=False).cycles for case in cases]
    limits = [bounds(case) for case in cases]
    inside = [each.lower <= took <= each.upper for took, each in zip(cycles, limits, strict=True)]
    over = tuple(took / each.lower for took, each in zip(cycles, limits, strict=True))
    room = max(took / each.upper for took, each in zip(cycles, limits, strict=True))
    work = f"simulated / busiest unit, decode S=8K..128K TILE={tile} N={n}"
    absolute = f"simulated / sum <= {room:.3f}; inside {sum(inside)} of {len(inside)}"
    yield Result(7, work, over, "x", "max <= simulated <= sum", all(inside), absolute)
    if tile == 1024:
        at_end = f"{cycles[-1]} cycles, max {limits[-1].lower:.0f}, sum {limits[-1].upper:.0f}"
        yield against(7, f"the same at S=128K, N={n}", over[-1:], Target(1.35), at_end)


def bounds(case: Decode) -> Bounds:
    rounds = tree(case.n, MESH).rounds if case.n > 1 else 0
    work = Work(
        s=case.s, tile=case.tile, n=case.n, rounds=rounds,
        ops_per_score=OPS_PER_SCORE, instructions_per_tile=INSTRUCTIONS_PER_TILE,
    )  # fmt: skip
    return latency_bounds(work, AhbmSpec())


def gains(session: Session) -> Iterator[Result]:
    free = AhbmSpec(issue_costs=MappingProxyType(dict.fromkeys(ISSUE_COSTS, 0)))
    for spec, words in ((AhbmSpec(), "default issue costs"), (free, "issue costs 0")):
        for length in (8192, 32_768):
            session.tell(f"gain over the older kernel, S={length}, {words}")
            yield gain(Decode(length, 256, n=8), spec, words)


def gain(case: Decode, spec: AhbmSpec, words: str) -> Result:
    old, new = case.run_baseline(spec=spec).cycles, case.run(spec=spec).cycles
    work = f"attention_mesh_mlo / gqa_decode, simulated cycles, S={case.s} N=8 TILE=256, {words}"
    return Result(8, work, (old / new,), absolute=f"{old} / {new} cycles")
