"""ADR-0060 9.2: which PE has which rank of the reduction tree, and what a bad choice costs.

Ports of the mesh join neighbours alone, so here every edge of a tree has a port of its own: a message to a PE that is
no neighbour goes through the routers between them, hop by hop. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.tuning.item import Cost, Item, Point, Rows, View
from benchmarks.tuning.launches import GROUP, D
from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.attention_mesh_mlo import chain
from pytest_kernbench.kernels.ahbm.driver import Problem
from pytest_kernbench.kernels.ahbm.flash_rows import load_rows, store_result
from pytest_kernbench.kernels.ahbm.flash_state import State, empty_state
from pytest_kernbench.kernels.ahbm.flash_sweep import INTERLEAVED, Block, Rules, Sweep, resident_tiles
from pytest_kernbench.kernels.ahbm.gqa_decode import merge_received
from pytest_kernbench.kernels.ahbm.placement import Mesh, Tree, hops, tree, valid_len
from pytest_kernbench.kernels.ahbm.positions import Span
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import grid

S, TILE = 8192, 1024
MESHES: dict[str, Mesh] = {"2x4": (2, 4), "4x2": (4, 2), "1x8": (1, 8), "4x4": (4, 4)}
MAPPINGS = ("shipped", "row-major", "snake", "far")


def tree_of(mapping: str, mesh: Mesh) -> Tree:
    """The tree over all PEs of `mesh`: the kernels' own, or the binomial one with its ranks laid down otherwise.

    "row-major": rank r in PE r. "snake": every other row backwards, so that rank r and r + 1 are neighbours. "far":
    from both ends inwards, so that rank 0 and 1 are as far apart as the mesh allows.
    """
    n = mesh[0] * mesh[1]
    if mapping == "shipped":
        return tree(n, mesh)
    ends = [pe for pair in zip(range(n), reversed(range(n)), strict=True) for pe in pair][:n]
    pes = {"row-major": tuple(range(n)), "snake": chain(n, mesh), "far": tuple(ends)}[mapping]
    return replace(tree(n, (4, n // 4)), mesh=mesh, placement=pes)


def edge_hops(shape: Tree) -> list[int]:
    """The hops of every edge."""
    pes = shape.placement
    return [hops(pes[rank], pes[up], shape.mesh) for rank, up in enumerate(shape.parent) if up is not None]


def ports(shape: Tree) -> dict[tuple[int, str], tuple[int, str]]:
    """A port for each edge, named "up" at the child and after the child's rank at the parent."""
    found = {}
    for rank, up in enumerate(shape.parent):
        if up is not None:
            child, parent = (shape.placement[rank], "up"), (shape.placement[up], _down(rank))
            found[child], found[parent] = parent, child
    return found


def _down(child: int) -> str:
    return f"rank {child}"


def decode_over(q: Any, k: Any, v: Any, o: Any, kv_len: int, shape: Tree, *, scale: float, tl: Any) -> None:
    """`gqa_decode` of one token, ended by any tree over the `ports` of its edges."""
    rank, n, block = tl.program_id(0), len(shape.parent), Block(Span(kv_len - 1, 1), GROUP)
    rules, keys = Rules(scale), Span(rank, valid_len(kv_len, 0, rank, n), n)
    with tl.scratch_scope():
        state = empty_state(block.rows, v.row, tl)
        q_rows = load_rows(q, 0, 0, block, tl)
        tiles = list(resident_tiles(k, v, keys, TILE, block, rules, tl))
        widths = [each.width for each in tiles]
        state = Sweep(q_rows, block, state, widths, v.dtype, rules, INTERLEAVED, tl).fold(tiles)
        reduce_over(shape, rank, state, tl)
        if rank == shape.root:
            store_result(state, o, None, None, 0, 0, 0, block, tl)


def reduce_over(shape: Tree, rank: int, state: State, tl: Any) -> None:
    """Log-sum-exp tree (ADR-0060 4) over the ports of its edges."""
    with tl.region("tree"):
        for child in shape.children[rank]:
            with tl.scratch_scope():
                merge_received(state, _down(child), GROUP, tl)
        if shape.parent[rank] is not None:
            tl.wait(*[tl.send("up", part) for part in state])


def points(quick: bool) -> Sequence[Point]:
    return grid(mesh=("2x4", "1x8") if quick else MESHES, mapping=MAPPINGS)


def costs(quick: bool) -> Sequence[Cost]:
    cycles = (9, 100) if quick else (0, 9, 25, 50, 75, 100, 150)
    return [Cost({"hop_cycles": each}, {"hop_cycles": each}) for each in cycles]


def run_at(mesh: str, mapping: str) -> Run:
    """The decode on one cube of that mesh."""
    rows, cols = MESHES[mesh]
    n, shape = rows * cols, tree_of(mapping, (rows, cols))
    chip = AhbmChip(AhbmSpec(mesh_rows=rows, mesh_cols=cols), ports=ports(shape))
    q, k, v, o = driver.decode(chip, [Problem(kv_len=S)], n, tile=TILE, mesh=(rows, cols)).args[:4]
    return chip.run(
        decode_over, q, k, v, o, S, shape, scale=D**-0.5, grid=n, placement=shape.placement, check=False
    )  # fmt: skip


def figures(run: Run, point: Point) -> dict[str, int | float]:
    """`tree_cycles`: from the last sweep's end to the root's last merge; `cycles`: of the whole decode."""
    shape = tree_of(point["mapping"], MESHES[point["mesh"]])
    each = edge_hops(shape)
    rows = run.log.where(region="tree")
    begins = max(int(rows.where(program=program).issue.min()) for program in np.unique(rows.program))
    return {
        "rounds": shape.rounds, "hops": sum(each), "longest_edge": max(each),
        "tree_cycles": int(rows.end.max()) - begins, "cycles": run.cycles,
    }  # fmt: skip


def _of_a_row(rows: Rows) -> Rows:
    """On a single row the snake is row-major."""
    return [row for row in rows if row["mapping"] != "snake"]


TREE_TIME = "time of the tree (cycles)"
VIEWS = (
    View("meshes", "Reduction tree of a decode over the whole mesh, 9 cycles a hop", "mesh", "tree_cycles", "mapping",
         "mesh (rows x columns of PEs)", TREE_TIME, {"hop_cycles": 9}, log_x=False),
    View("row", "Reduction tree of a decode on a single row of 8 PEs", "hop_cycles", "tree_cycles", "mapping",
         "hop_cycles (cycles a hop)", TREE_TIME, {"mesh": "1x8"}, _of_a_row, log_x=False),
)  # fmt: skip

ITEM = Item("mapping", "9.2", "which PE has which rank of the tree", points, run_at, figures, VIEWS, costs)
