"""Where PEs are, and what a way costs when it is free: hops, heads and bytes, row first (ADR-0003 clauses 5 to 7)."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.topology import OPPOSITE, Topology, mesh_ports, ring_ports

X = np.ones((8, 64), np.float32)  # 2 KiB
PAIRS = list(permutations(range(8), 2))


def hops(here: int, there: int) -> int:
    """In a mesh of 2 rows and 4 columns."""
    return abs(here // 4 - there // 4) + abs(here % 4 - there % 4)


def test_routers_of_all_cubes_form_one_grid() -> None:
    topology = Topology(AhbmSpec())
    assert [topology.position(pe) for pe in (0, 3, 4, 7)] == [(0, 0), (0, 3), (1, 0), (1, 3)]
    assert [topology.position(8 + pe) for pe in (0, 7)] == [(0, 4), (1, 7)]
    assert topology.position(4 * 8) == (2, 0), "the fifth cube is below the first"
    assert topology.position(127) == (7, 15)
    assert len({topology.position(pe) for pe in range(128)}) == 128


@pytest.mark.parametrize(("rows", "cols"), [(2, 4), (4, 2), (1, 8), (3, 3)])
def test_hops_are_the_distance_in_rows_and_columns(rows: int, cols: int) -> None:
    topology = Topology(AhbmSpec(mesh_rows=rows, mesh_cols=cols))
    for here in range(rows * cols):
        for there in range(rows * cols):
            steps = abs(here // cols - there // cols) + abs(here % cols - there % cols)
            assert topology.hops(here, there) == steps


# A way to oneself does not exist for messages; every other pair of PEs of a cube is tried.


def sending(here: int, there: int) -> tuple[Callable[..., None], dict[tuple[int, str], tuple[int, str]]]:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == here:
            tl.send("to", tl.wait(tl.zeros((8, 64))))
        elif tl.program_id(0) == there:
            tl.recv("from", (8, 64))

    return kernel, {(here, "to"): (there, "from"), (there, "from"): (here, "to")}


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_a_message_takes_its_head_and_its_bytes_once(launch: Any, here: int, there: int) -> None:
    kernel, ports = sending(here, there)
    row = launch(kernel, x=X, grid=8, ports=ports, data=False).row("send")
    assert row.end - row.start == 5 + 9 * hops(here, there) + 5 + 16
    assert row.free - row.start == 16


@pytest.mark.parametrize("there", range(8))
def test_a_load_pays_the_request_the_first_byte_and_the_way_back(launch: Any, there: int) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.load(x, (8, 64)))

    row = launch(kernel, x=((8, 64), "float32", there), grid=8, data=False).row("load")
    way = 5 + 9 * hops(0, there) + 5
    assert row.end - row.start == (6 + 40 + 8 if there == 0 else 6 + way + 40 + way + 16)
    assert row.free - row.start == 6 + (8 if there == 0 else 16), "the link is narrower than the memory"
    assert row.peer == (-1 if there == 0 else there)


@pytest.mark.parametrize("there", range(8))
def test_a_store_pays_the_way_there(launch: Any, there: int) -> None:
    def kernel(o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.store(o, tl.zeros((8, 64))))

    row = launch(kernel, o=((8, 64), "float32", there), grid=8, data=False).row("store")
    way = 5 + 9 * hops(0, there) + 5
    assert row.end - row.start == (6 + 40 + 8 if there == 0 else 6 + way + 40 + 16)


def test_a_streamed_operand_in_another_slice_pays_each_panel_its_way(launch: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.composite("gemm", tl.wait(tl.zeros((8, 64))), tl.ref(x, (96, 64)), trans_b=True))

    first, *others = launch(kernel, x=((96, 64), "float32", 1), grid=8, data=False).rows("panel")
    assert first.end - first.start == 6 + 19 + 40 + 19 + 8192 // 128
    assert [row.start for row in others] == [first.free, first.free + 6 + 64]
    assert first.peer == 1


def test_a_step_between_cubes_is_a_link_of_its_own_kind(launch: Any) -> None:
    """From PE 3 of cube 0 eastwards is PE 0 of cube 1, number 8."""

    def kernel(x: Any, *, tl: Any) -> None:
        if (tl.program_id(1), tl.program_id(0)) == (0, 3):
            tl.send("E", tl.wait(tl.zeros((8, 64))))
        elif (tl.program_id(1), tl.program_id(0)) == (1, 0):
            tl.recv("W", (8, 64))

    given = {"x": X, "grid": (8, 2), "ports": {(3, "E"): (8, "W"), (8, "W"): (3, "E")}, "data": False}
    row = launch(kernel, **given).row("send")
    assert row.end - row.start == 5 + 8 + 5 + 16
    assert row.peer == 8
    row = launch(kernel, **given, spec={"ucie_cycles": 20, "ucie_bytes_per_cycle": 64}).row("send")
    assert row.end - row.start == 5 + 20 + 5 + 32
    assert row.free - row.start == 32


def test_a_way_through_both_kinds_is_as_fast_as_its_slowest_link(launch: Any) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        if (tl.program_id(1), tl.program_id(0)) == (0, 2):
            tl.send("E", tl.wait(tl.zeros((8, 64))))
        elif (tl.program_id(1), tl.program_id(0)) == (1, 4):
            tl.recv("W", (8, 64))

    ports = {(2, "E"): (12, "W"), (12, "W"): (2, "E")}
    spec = {"ucie_bytes_per_cycle": 64}
    row = launch(kernel, x=X, grid=(8, 2), ports=ports, data=False, spec=spec).row("send")
    assert row.end - row.start == 5 + 9 + 8 + 9 + 5 + 32, "east, between the cubes, south"


@pytest.mark.parametrize("field", ["hop_cycles", "injection_cycles", "ejection_cycles", "link_bytes_per_cycle"])
def test_every_number_of_a_way_is_a_field(launch: Any, field: str) -> None:
    kernel, ports = sending(0, 6)
    spec = {"hop_cycles": 9, "injection_cycles": 5, "ejection_cycles": 5, "link_bytes_per_cycle": 128, field: 3}
    row = launch(kernel, x=X, grid=8, ports=ports, spec=spec, data=False).row("send")
    way = spec["injection_cycles"] + 3 * spec["hop_cycles"] + spec["ejection_cycles"]
    assert row.end - row.start == way + -(-2048 // spec["link_bytes_per_cycle"])


# Ports


def test_mesh_ports_lead_to_neighbours_inside_the_cube() -> None:
    ports = mesh_ports(AhbmSpec())
    assert {direction: ports[0, direction][0] for direction in "ES"} == {"E": 1, "S": 4}
    assert {direction for pe, direction in ports if pe == 0} == {"E", "S"}
    assert {direction for pe, direction in ports if pe == 6} == {"N", "E", "W"}
    assert len(ports) == 16 * 2 * 10, "ten edges a cube, both ways"
    assert all(ports[peer, back] == end for end, (peer, back) in ports.items())
    assert all(back == OPPOSITE[direction] for (_, direction), (_, back) in ports.items())
    assert all(Topology(AhbmSpec()).hops(pe, peer) == 1 for (pe, _), (peer, _) in ports.items())
    assert all(pe // 8 == peer // 8 for (pe, _), (peer, _) in ports.items())


def test_a_snake_over_two_rows_closes_with_one_hop_and_rows_do_not() -> None:
    topology = Topology(AhbmSpec())
    snake, rows = (0, 1, 2, 3, 7, 6, 5, 4), tuple(range(8))
    assert [topology.hops(pe, ring_ports(snake)[pe, "E"][0]) for pe in snake] == [1] * 8
    assert [topology.hops(pe, ring_ports(rows)[pe, "E"][0]) for pe in rows] == [1, 1, 1, 4, 1, 1, 1, 4]


def test_rings_of_one_and_two() -> None:
    assert ring_ports((5,)) == {}
    assert ring_ports((0, 1)) == {(0, "E"): (1, "W"), (1, "W"): (0, "E"), (1, "E"): (0, "W"), (0, "W"): (1, "E")}
    assert ring_ports((0, 1), closed=False) == {(0, "E"): (1, "W"), (1, "W"): (0, "E")}
