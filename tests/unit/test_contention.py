"""Links and memory controllers serve one transfer at a time, by (arrival, source PE, operation) (ADR-0003 clause 8)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

X = np.ones((8, 64), np.float32)  # 2 KiB: 16 cycles of a link, 8 of a memory
KERNEL = Callable[..., None]


def by_rank(**programs: Callable[..., Any]) -> KERNEL:
    """`pe0=...` is what rank 0 does; the others do nothing."""

    def kernel(x: Any, *, tl: Any) -> None:
        programs.get(f"pe{tl.program_id(0)}", lambda x, tl: None)(x, tl)

    return kernel


def link(ports: dict[tuple[int, str], tuple[int, str]], here: int, there: int) -> None:
    ports[here, f"to{there}"] = (there, f"from{here}")
    ports[there, f"from{here}"] = (here, f"to{there}")


def send(there: int) -> Callable[..., Any]:
    return lambda x, tl: tl.send(f"to{there}", tl.wait(tl.zeros((8, 64))))


def recv(*senders: int) -> Callable[..., Any]:
    return lambda x, tl: [tl.recv(f"from{here}", (8, 64)) for here in senders]


def sends(launch: Any, pairs: list[tuple[int, int]]) -> dict[int, Any]:
    """The send rows by rank, of messages said in the same cycle."""
    ports: dict[tuple[int, str], tuple[int, str]] = {}
    for pair in pairs:
        link(ports, *pair)
    programs = {f"pe{here}": send(there) for here, there in pairs}
    for there in {there for _, there in pairs}:
        assert f"pe{there}" not in programs
        programs[f"pe{there}"] = recv(*[here for here, to in pairs if to == there])
    outcome = launch(by_rank(**programs), x=X, grid=8, ports=ports, data=False)
    return {row.program: row for row in outcome.rows("send")}


def test_two_messages_through_one_link_follow_each_other(launch: Any) -> None:
    """0 > 2 and 1 > 2 share the link from 1 to 2; that of PE 1 is there first."""
    rows = sends(launch, [(0, 2), (1, 2)])
    assert rows[1].end - rows[1].start == 5 + 9 + 5 + 16
    # The link is taken from 5 to 21; the other head has been there since 14.
    assert rows[0].end - rows[0].start == 21 + 9 + 5 + 16


def test_messages_that_meet_nowhere_do_not_notice_each_other(launch: Any) -> None:
    rows = sends(launch, [(1, 3), (5, 3)])  # 1 > 2 > 3 and 5 > 6 > 7 > 3
    assert rows[1].end - rows[1].start == 5 + 2 * 9 + 5 + 16
    assert rows[5].end - rows[5].start == 5 + 3 * 9 + 5 + 16


def test_ways_there_and_back_are_two_links(launch: Any) -> None:
    def both(x: Any, tl: Any) -> None:
        towards = "W" if tl.program_id(0) else "E"
        tl.send(towards, tl.wait(tl.zeros((8, 64))))
        tl.recv(towards, (8, 64))

    rows = launch(by_rank(pe0=both, pe1=both), x=X, grid=2, data=False).rows("send")
    assert [row.end - row.start for row in rows] == [35, 35]


def test_row_first_then_column(launch: Any) -> None:
    """0 > 5 goes over 1 and not over 4: it meets 1 > 5 on the link from 1 down, and not 4 > 5."""
    meeting, apart = sends(launch, [(0, 5), (1, 5)]), sends(launch, [(0, 5), (4, 5)])
    assert apart[0].end - apart[0].start == 5 + 18 + 5 + 16
    assert apart[4].end - apart[4].start == 5 + 9 + 5 + 16
    assert meeting[0].end - meeting[0].start == 21 + 9 + 5 + 16


# A memory that several read


def loads(launch: Any, ranks: list[int], rows: int = 8, **given: Any) -> dict[int, Any]:
    """The load rows by rank, of loads from PE 0's slice said in the same cycle."""
    load = {f"pe{rank}": lambda x, tl: tl.wait(tl.load(x, (rows, 64))) for rank in ranks}
    outcome = launch(by_rank(**load), x=((rows, 64), "float32", 0), grid=8, data=False, **given)
    return {row.program: row for row in outcome.rows("load")}


def test_a_memory_serves_one_after_the_other(launch: Any) -> None:
    rows = loads(launch, [0, 1], rows=256)  # 64 KiB: 256 cycles of the memory, 512 of the link
    assert rows[0].end - rows[0].start == 6 + 256 + 40
    # The request of PE 1 is there at 6 + 19, the memory free at 6 + 256.
    assert rows[1].end - rows[1].start == 262 + 40 + 5 + 9 + 5 + 512


def test_requests_of_one_cycle_are_served_by_source(launch: Any) -> None:
    """PE 1 and PE 4 are one hop from PE 0, in different directions: only the memory is shared."""
    alone = loads(launch, [4])[4]
    rows = loads(launch, [1, 4])
    assert rows[1].end - rows[1].start == alone.end - alone.start
    assert rows[4].end - rows[4].start == alone.end - alone.start + 8


def test_ties_are_by_the_pe_and_not_by_the_program(launch: Any) -> None:
    """Ranks 1 and 4 change places: PE 1 runs rank 4 now, and is still served first."""
    rows = loads(launch, [1, 4], placement=(0, 4, 2, 3, 1, 5, 6, 7))
    assert rows[4].end < rows[1].end


def test_loads_of_one_pe_are_served_in_the_order_said(launch: Any) -> None:
    def two(x: Any, tl: Any) -> None:
        tl.wait(tl.load(x, (8, 64)), tl.load(x, (1, 64)))

    first, second = launch(by_rank(pe1=two), x=((8, 64), "float32", 0), grid=8, data=False).rows("load")
    assert second.start == first.free
    assert second.end >= first.end


@pytest.mark.parametrize("ranks", [[0], [0, 1], [1, 4], list(range(8))])
def test_a_slice_never_delivers_more_than_its_bandwidth(launch: Any, ranks: list[int]) -> None:
    rows = loads(launch, ranks, rows=64).values()  # 16 KiB each
    begin = min(row.start for row in rows) + 6
    delivered = max(row.end for row in rows) - 40 - begin
    assert sum(row.bytes for row in rows) <= delivered * 256


def test_reads_and_writes_of_one_slice_share_its_controller(launch: Any) -> None:
    def both(x: Any, tl: Any) -> None:
        z = tl.wait(tl.zeros((64, 64)))
        tl.wait(tl.load(x, (64, 64)), tl.store(x + 4096, z))

    outcome = launch(by_rank(pe0=both), x=((128, 64), "float32", 0), data=False, spec={"issue_costs": 0})
    load, store = outcome.row("load"), outcome.row("store")
    assert load.start == store.start
    assert load.end - load.start == 6 + 64 + 40
    assert store.end - store.start == 6 + 64 + 64 + 40


def test_other_slices_are_not_disturbed(launch: Any) -> None:
    def mine(x: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (64, 64)))

    rows = launch(mine, x=((64, 64), "float32", "local"), grid=8, data=False).rows("load")
    assert [row.end - row.start for row in rows] == [6 + 64 + 40] * 8


def test_messages_and_streams_share_a_link_only_where_they_meet(launch: Any) -> None:
    """PE 1 loads from PE 0 while PE 0 sends to PE 1: both pass the link from 0 to 1."""

    def sender(x: Any, tl: Any) -> None:
        tl.wait(tl.zeros((128, 64)))  # by then the load has the link
        tl.send("E", tl.wait(tl.zeros((8, 64))))

    def reader(x: Any, tl: Any) -> None:
        tl.wait(tl.load(x, (256, 64)))
        tl.recv("W", (8, 64))

    outcome = launch(by_rank(pe0=sender, pe1=reader), x=((256, 64), "float32", 0), grid=2, data=False)
    load, send = outcome.row("load"), outcome.row("send")
    assert load.end - load.start == 6 + 19 + 40 + 19 + 512
    link_free = load.end - 14
    assert send.end == link_free + 9 + 5 + 16


def test_more_bandwidth_is_never_slower(launch: Any) -> None:
    ends = [max(row.end for row in loads(launch, list(range(8)), spec={"hbm_bytes_per_cycle": width}).values())
            for width in (32, 64, 128, 256, 512)]  # fmt: skip
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > ends[-1]
