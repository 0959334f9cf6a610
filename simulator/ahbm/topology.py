"""Where PEs are and how bytes travel between them: XY over one grid of routers, cut-through (ADR-0003).

The routers of all cubes form one grid; an edge between two cubes is a UCIe link. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.arguments import is_name, whole, wholes
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.ops.unit import Route, Server

Position = tuple[int, int]
STEPS = {"N": (-1, 0), "S": (1, 0), "W": (0, -1), "E": (0, 1)}
OPPOSITE = {"N": "S", "S": "N", "W": "E", "E": "W"}
Ports = dict[tuple[int, str], tuple[int, str]]  # (PE, direction) -> (peer PE, direction at the peer)


class Topology:
    """PEs by number: `cube * pes_per_cube + row * mesh_cols + column`. Links and controllers are made at first use."""

    def __init__(self, spec: AhbmSpec) -> None:
        self.spec = spec
        self._controllers: dict[int, Server] = {}
        self._links: dict[tuple[Position, Position], Server] = {}
        self._paths: dict[tuple[str, int, int], tuple[tuple[Server, ...], tuple[int, ...], int]] = {}

    def position(self, pe: int) -> Position:
        """Row and column of the PE's router in the chip's grid."""
        spec = self.spec
        cube, local = divmod(pe, spec.pes_per_cube)
        row, col = divmod(local, spec.mesh_cols)
        return cube // spec.cube_cols * spec.mesh_rows + row, cube % spec.cube_cols * spec.mesh_cols + col

    def hops(self, here: int, there: int) -> int:
        """Router-to-router steps between two PEs."""
        (row, col), (to_row, to_col) = self.position(here), self.position(there)
        return abs(row - to_row) + abs(col - to_col)

    def route(self, kind: str, here: int, there: int, size: int, first: int) -> Route:
        """A "read" or "write" by PE `here` in the slice of `there`, or a "send"; its head leaves `first` cycles on."""
        path = self._paths.get((kind, here, there))
        if path is None:
            path = self._paths[kind, here, there] = getattr(self, f"_{kind}_path")(here, there)
        servers, delays, tail = path
        return Route(servers, (delays[0] + first, *delays[1:]), tail, size)

    def _read_path(self, here: int, there: int) -> tuple[tuple[Server, ...], tuple[int, ...], int]:
        first_byte = self.spec.hbm_first_byte_cycles
        if here == there:
            return (self._controller(here),), (0,), first_byte
        request = sum(self._send_path(here, there)[1]) + self._send_path(here, there)[2]
        links, delays, tail = self._send_path(there, here)
        return (self._controller(there), *links), (request, first_byte + delays[0], *delays[1:]), tail

    def _write_path(self, here: int, there: int) -> tuple[tuple[Server, ...], tuple[int, ...], int]:
        first_byte = self.spec.hbm_first_byte_cycles
        if here == there:
            return (self._controller(here),), (0,), first_byte
        links, delays, tail = self._send_path(here, there)
        return (*links, self._controller(there)), (*delays, tail), first_byte

    def _send_path(self, here: int, there: int) -> tuple[tuple[Server, ...], tuple[int, ...], int]:
        steps = list(self._xy(self.position(here), self.position(there)))
        cycles = [self._step_cycles(*step) for step in steps]
        delays = (self.spec.injection_cycles, *cycles[:-1])
        return tuple(self._link(*step) for step in steps), delays, cycles[-1] + self.spec.ejection_cycles

    def _xy(self, at: Position, to: Position) -> list[tuple[Position, Position]]:
        """Along the row first, then along the column."""
        steps = []
        while at != to:
            row, col = at
            across = (to[1] > col) - (to[1] < col)
            down = 0 if across else (to[0] > row) - (to[0] < row)
            after = (row + down, col + across)
            steps.append((at, after))
            at = after
        return steps

    def _crosses(self, at: Position, after: Position) -> bool:
        """Whether a step goes from one cube to another."""
        rows, cols = self.spec.mesh_rows, self.spec.mesh_cols
        return (at[0] // rows, at[1] // cols) != (after[0] // rows, after[1] // cols)

    def _step_cycles(self, at: Position, after: Position) -> int:
        return self.spec.ucie_cycles if self._crosses(at, after) else self.spec.hop_cycles

    def _link(self, at: Position, after: Position) -> Server:
        link = self._links.get((at, after))
        if link is None:
            ucie = self._crosses(at, after)
            width = self.spec.ucie_bytes_per_cycle if ucie else self.spec.link_bytes_per_cycle
            link = self._links[at, after] = Server(f"link {at}>{after}", width)
        return link

    def _controller(self, pe: int) -> Server:
        found = self._controllers.get(pe)
        if found is None:
            spec = self.spec
            server = Server(f"hbm {pe}", spec.hbm_bytes_per_cycle, spec.hbm_efficiency_percent)
            found = self._controllers[pe] = server
        return found


def mesh_ports(spec: AhbmSpec) -> Ports:
    """The four neighbours of every PE inside its cube (ADR-0023 D3)."""
    ports: Ports = {}
    for pe in range(spec.cubes * spec.pes_per_cube):
        cube, local = divmod(pe, spec.pes_per_cube)
        row, col = divmod(local, spec.mesh_cols)
        for direction, (down, right) in STEPS.items():
            if 0 <= row + down < spec.mesh_rows and 0 <= col + right < spec.mesh_cols:
                peer = cube * spec.pes_per_cube + (row + down) * spec.mesh_cols + col + right
                ports[pe, direction] = (peer, OPPOSITE[direction])
    return ports


def ring_ports(order: Sequence[int], *, closed: bool = True) -> Ports:
    """E and W along `order` of PEs; the last one's E is the first one's W if the ring is closed."""
    pes = wholes(order)
    if pes is None:
        raise LaunchError(f"ring of {order!r}: wants a sequence of PE numbers")
    if not isinstance(closed, bool):
        raise LaunchError(f"ring_ports: closed {closed!r} is none of True, False")
    pairs = list(itertools.pairwise(pes)) + ([(pes[-1], pes[0])] if closed and len(pes) > 1 else [])
    ports: Ports = {}
    for pe, peer in pairs:
        ports[pe, "E"] = (peer, "W")
        ports[peer, "W"] = (pe, "E")
    return ports


def checked_ports(ports: Ports, pes: int) -> Ports:
    """`ports` if every port's peer names it back. Raises LaunchError otherwise (ADR-0025)."""
    if not isinstance(ports, Mapping):
        raise LaunchError(f"ports {ports!r}: wants a mapping of (PE, direction) to (peer PE, direction at the peer)")
    ports = {_port(end): _port(other) for end, other in ports.items()}
    for (pe, direction), (peer, back) in ports.items():
        if not (0 <= pe < pes and 0 <= peer < pes and pe != peer):
            raise LaunchError(f"port ({pe}, {direction!r}) leads to PE {peer}: PEs are 0..{pes - 1}, and never itself")
        if ports.get((peer, back)) != (pe, direction):
            raise LaunchError(
                f"port ({pe}, {direction!r}) leads to ({peer}, {back!r}), which leads to {ports.get((peer, back))}: "
                "a pair of ports must name each other"
            )
    return ports


def _port(end: object) -> tuple[int, str]:
    pe, direction = end if isinstance(end, (tuple, list)) and len(end) == 2 else (None, None)
    number = whole(pe)
    if number is None or not isinstance(direction, str) or not is_name(direction):
        raise LaunchError(f"port {end!r}: wants (PE, direction), a whole number and a string")
    return number, direction
