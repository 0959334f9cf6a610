"""Reductions, hops and queues: each helper accepts a kernel that keeps its promise and refuses one that breaks it.

The kernels sum one row a program over ports that join every pair of PEs, so that any wrong tree can be said.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.messages import chain_steps, link_bytes, reduction_rounds
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import END, NONE, WIDTH

W = 8  # elements a message
PORTS = {(a, f"to{b}"): (b, f"to{a}") for a in range(8) for b in range(8) if a != b}
BINOMIAL = [(0, 1), (2, 3), (4, 5), (6, 7), (1, 3), (5, 7), (3, 7)]
CHAIN = [(i, i + 1) for i in range(7)]
STAR = [(i, 7) for i in range(7)]
ONE_HOP_PLACES = (0, 1, 3, 2, 4, 5, 7, 6)  # of ranks on the 2x4 mesh, for BINOMIAL
Edges = Sequence[tuple[int, int]]


def line_of(kernel: Callable[..., None], text: str) -> str:
    """File, line and function of the line of `kernel` that holds `text`, as messages have them."""
    lines, first = inspect.getsourcelines(kernel)
    at = next(number for number, line in enumerate(lines, first) if text in line)
    return f"test_assertions_messages.py:{at} in {kernel.__name__}"


def run(
    kernel: Callable[..., None], *args: Any, n: int = 8, cubes: int = 1, placement: Sequence[int] | None = None
) -> Run:
    """A run of a kernel of x, one row a program, and o at the last rank."""
    chip = AhbmChip(ports=PORTS if cubes == 1 else None)
    x = chip.tensor("X", (1, W), "float32", np.ones((cubes, n, 1, W)))
    o = chip.tensor("O", (1, W), "float32", place=n - 1)
    return chip.run(kernel, x, o, *args, grid=(n, cubes), placement=placement, check="collect")


def reduce(x: Any, o: Any, edges: Edges, places: Sequence[int] = range(8), *, tl: Any) -> None:
    """Sum over `edges` (child, parent) of ranks at `places`: children in the order of `edges`, then to the parent."""
    me = tl.program_id()
    part = tl.load(x, (1, W))
    for child in [child for child, parent in edges if parent == me]:
        part = part + tl.recv(f"to{places[child]}", (1, W))
    for parent in [parent for child, parent in edges if child == me]:
        tl.send(f"to{places[parent]}", part)
    tl.wait(tl.store(o, part)) if me == tl.num_programs() - 1 else tl.wait(part)


# Rounds


@pytest.mark.parametrize(("edges", "rounds"), [(BINOMIAL, None), (BINOMIAL, 3), (CHAIN, 7), (STAR, 7)])
def test_rounds_are_the_longest_chain_of_merges(edges: Edges, rounds: int | None) -> None:
    some = run(reduce, edges)

    ka.assert_reduction_rounds(some, 8, rounds)
    assert reduction_rounds(some.log) == (rounds or 3)


@pytest.mark.parametrize(("n", "rounds"), [(1, 0), (2, 1), (3, 2), (5, 3), (8, 3)])
def test_rounds_are_the_logarithm_of_any_number_of_programs(n: int, rounds: int) -> None:
    """Relative ranks: the edges among the last n of eight, so that the root stays the last."""
    edges = [(child - 8 + n, parent - 8 + n) for child, parent in BINOMIAL if child >= 8 - n]
    some = run(reduce, edges, n=n)

    ka.assert_reduction_rounds(some, n)
    ka.assert_reduction_rounds(some, n, rounds)


@pytest.mark.parametrize("edges", [CHAIN, STAR])
def test_a_chain_or_a_star_is_refused_with_the_first_receive_past_the_rounds(edges: Edges) -> None:
    slow = run(reduce, edges)
    fourth = {CHAIN[0]: "PE4", STAR[0]: "PE7"}[edges[0]]

    with pytest.raises(AssertionError) as failure:
        ka.assert_reduction_rounds(slow, 8)

    where = re.escape(line_of(reduce, "tl.recv"))
    assert "the reduction of 8 programs takes 7 rounds, expected 3" in str(failure.value)
    assert re.search(rf"first past them: row \d+, recv on CPU of {fourth}, .* at {where}", str(failure.value))


def test_a_tree_whose_root_starts_with_its_slowest_child_is_refused() -> None:
    late_first = [*BINOMIAL[:3], BINOMIAL[4], BINOMIAL[6], BINOMIAL[5], BINOMIAL[3]]

    with pytest.raises(AssertionError, match="takes 5 rounds, expected 3"):
        ka.assert_reduction_rounds(run(reduce, late_first), 8)


def test_fewer_rounds_than_promised_are_a_wrong_promise() -> None:
    with pytest.raises(AssertionError, match=r"takes 3 rounds, expected 4\n  last: row \d+, recv on CPU of PE7"):
        ka.assert_reduction_rounds(run(reduce, BINOMIAL), 8, 4)


def test_every_cube_has_its_own_reduction() -> None:
    pairs = run(to_the_east, n=2, cubes=3)

    ka.assert_reduction_rounds(pairs, 2)
    with pytest.raises(
        AssertionError, match=r"messages join 2 programs \(cube0.PE0, cube0.PE1\), a reduction of 6 joins 6"
    ):
        ka.assert_reduction_rounds(pairs, 6)


@pytest.mark.parametrize(("n", "parts"), [(1, 1), (2, 2), (3, 2), (5, 1)])
def test_an_exchange_along_a_chain_takes_a_step_for_everyone_else(n: int, parts: int) -> None:
    """However many messages a part takes."""
    log = run(everyone_to_everyone, parts, n=n).log

    assert chain_steps(log) == chain_steps(log, end=n - 1) == n - 1


def everyone_to_everyone(x: Any, o: Any, parts: int, *, tl: Any) -> None:
    """Each program's part goes along the chain both ways; its messages all fit the slots."""
    me, last = tl.program_id(), tl.num_programs() - 1
    right = left = [tl.load(x, (1, W))] * parts
    for step in range(1, last + 1):
        sent = [tl.send(f"to{me + 1}", each) for each in right if me < last]
        sent += [tl.send(f"to{me - 1}", each) for each in left if me]
        tl.wait(*sent)
        right = [tl.recv(f"to{me - 1}", (1, W)) for _ in range(parts) if step <= me]
        left = [tl.recv(f"to{me + 1}", (1, W)) for _ in range(parts) if step <= last - me]


def to_the_east(x: Any, o: Any, *, tl: Any) -> None:
    part = tl.load(x, (1, W))
    if tl.program_id() == 0:
        tl.send("E", part)
    else:
        tl.wait(tl.store(o, part + tl.recv("W", (1, W))))


# What is no reduction


def test_a_program_that_takes_no_part_is_missed() -> None:
    with pytest.raises(AssertionError, match=r"messages join 7 programs \(PE1, PE2, .*\), a reduction of 8 joins 8"):
        ka.assert_reduction_rounds(run(reduce, BINOMIAL[1:]), 8)


def test_a_reduction_without_messages_is_none() -> None:
    with pytest.raises(AssertionError, match="no message was sent: a reduction of 8 programs has 7 edges"):
        ka.assert_reduction_rounds(run(reduce, []), 8)


def test_a_part_that_is_counted_twice_is_refused_with_both_sends() -> None:
    with pytest.raises(AssertionError) as failure:
        ka.assert_reduction_rounds(run(reduce, [*BINOMIAL, (0, 7)]), 8)

    send = rf"row \d+, send on IPCQ.to\d of PE0, .* at {re.escape(line_of(reduce, 'tl.send'))}"
    assert "8 edges join PE0, PE1" in str(failure.value)
    assert re.search(rf"a reduction of 8 has 7: a part goes to two\n  {send}\n  {send}", str(failure.value))


def test_a_ring_has_no_root() -> None:
    with pytest.raises(
        AssertionError, match=r"4 edges join PE0, PE1, PE2, PE3, a reduction of 4 has 3: there is no root"
    ):
        ka.assert_reduction_rounds(run(ring, n=4), 4)


def ring(x: Any, o: Any, *, tl: Any) -> None:
    me, n = tl.program_id(), tl.num_programs()
    tl.send(f"to{(me + 1) % n}", tl.load(x, (1, W)))
    tl.wait(tl.recv(f"to{(me - 1) % n}", (1, W)) + 0)


def test_a_part_that_comes_after_the_sum_was_sent_on_is_refused() -> None:
    """Edges and rounds of a chain, but each sends before it receives: the root gets one part."""
    with pytest.raises(AssertionError) as failure:
        ka.assert_reduction_rounds(run(send_first, n=3), 3)

    sent, then = line_of(send_first, "tl.send"), line_of(send_first, "tl.recv")
    rows = rf"sent: row \d+, send .* at {sent}\n  then: row \d+, recv .* at {then}"
    assert re.search(f"a part is taken in after the sum was sent on\n  {rows}", str(failure.value))


def send_first(x: Any, o: Any, *, tl: Any) -> None:
    me, n = tl.program_id(), tl.num_programs()
    part = tl.load(x, (1, W))
    if me < n - 1:
        tl.send(f"to{me + 1}", part)
    if me > 0:
        tl.wait(tl.store(o, part + tl.recv(f"to{me - 1}", (1, W))))


def in_three_messages(x: Any, o: Any, edges: Edges, asynchronous: bool, *, tl: Any) -> None:
    """As `reduce`, with three messages an edge, received one by one or asked for together."""
    me = tl.program_id()
    parts = [tl.load(x, (1, W)) for _ in range(3)]
    for child in [child for child, parent in edges if parent == me]:
        taken = [(tl.recv_async if asynchronous else tl.recv)(f"to{child}", (1, W)) for _ in parts]
        taken = [tl.wait(each) if asynchronous else each for each in taken]
        parts = [mine + theirs for mine, theirs in zip(parts, taken, strict=True)]
    for parent in [parent for child, parent in edges if child == me]:
        for part in parts:
            tl.send(f"to{parent}", part)
    tl.wait(*parts)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_all_messages_of_an_edge_are_one_merge(asynchronous: bool) -> None:
    some = run(in_three_messages, BINOMIAL, asynchronous)

    ka.assert_reduction_rounds(some, 8)
    ka.assert_reduction_rounds(some, 8, max_messages=3)
    with pytest.raises(
        AssertionError, match=r"PE0 > PE1 takes 3 messages, at most 2 an edge\n  row \d+, send on IPCQ.to1"
    ):
        ka.assert_reduction_rounds(some, 8, max_messages=2)


def test_a_reduction_of_nobody_is_a_wrong_use() -> None:
    with pytest.raises(ValueError, match="a reduction of 0 programs"):
        ka.assert_reduction_rounds(run(reduce, [], n=1), 0)


# Hops


def test_neighbours_are_one_physical_hop_apart() -> None:
    ka.assert_neighbour_only_hops(run(reduce, BINOMIAL, ONE_HOP_PLACES, placement=ONE_HOP_PLACES))


def test_ranks_that_lie_two_hops_apart_are_refused_with_their_places() -> None:
    """Ranks in the order of the mesh: 1 > 3 and 5 > 7 jump over a PE."""
    with pytest.raises(AssertionError) as failure:
        ka.assert_neighbour_only_hops(run(reduce, BINOMIAL))

    text = str(failure.value)
    assert "2 of 7 messages do not go to a neighbour: PE1 > PE3 is PE 1 to PE 3, 2 hops instead of 1" in text
    assert re.search(rf"first: row \d+, send on IPCQ.to3 of PE1, .* at {re.escape(line_of(reduce, 'tl.send'))}", text)


def test_hops_are_those_of_the_places_and_not_of_the_ranks() -> None:
    with pytest.raises(AssertionError, match="PE0 > PE1 is PE 0 to PE 7, 4 hops instead of 1"):
        ka.assert_neighbour_only_hops(run(by_place, n=2, placement=(0, 7)))


def test_bytes_on_links_count_once_for_every_hop() -> None:
    assert link_bytes(run(reduce, BINOMIAL, ONE_HOP_PLACES, placement=ONE_HOP_PLACES)) == 7 * 4 * W
    assert link_bytes(run(reduce, BINOMIAL)) == (5 + 2 * 2) * 4 * W
    assert link_bytes(run(by_place, n=2, placement=(0, 7))) == 4 * 4 * W
    assert link_bytes(run(reduce, [], n=1)) == 0


def by_place(x: Any, o: Any, *, tl: Any) -> None:
    """Rank 0 on PE 0 sends to rank 1 on PE 7."""
    part = tl.load(x, (1, W))
    tl.wait(tl.send("to7", part) if tl.program_id() == 0 else tl.store(o, tl.recv("to0", (1, W))))


def test_programs_that_send_nothing_have_no_hops_to_judge() -> None:
    ka.assert_neighbour_only_hops(run(reduce, [], n=1))
    with pytest.raises(AssertionError, match="8 programs sent no message"):
        ka.assert_neighbour_only_hops(run(reduce, []))


# Queues


@pytest.mark.parametrize("kernel", [reduce, in_three_messages])
def test_a_finished_reduction_leaves_no_queue_undrained(kernel: Callable[..., None]) -> None:
    extra = [True] if kernel is in_three_messages else []

    ka.assert_queues_drained(run(kernel, BINOMIAL, *extra))


def sends(x: Any, o: Any, sent: int, received: int, awaited: int, *, tl: Any) -> None:
    part = tl.load(x, (1, W))
    if tl.program_id() == 0:
        for _ in range(sent):
            tl.wait(tl.send("to1", part))  # the sender's wait is no receive
    else:
        taken = [tl.recv_async("to0", (1, W)) for _ in range(received)]
        for each in taken[:awaited]:
            tl.wait(each)


def test_a_message_left_behind_is_refused_with_its_numbers_and_its_send() -> None:
    left = run(sends, 3, 2, 2, n=2)

    with pytest.raises(AssertionError) as failure:
        ka.assert_queues_drained(left)

    third = left.log.where(name="send").index[2]
    assert "the queue PE0 > PE1 is not drained: 3 sends, 2 received, 2 slots home" in str(failure.value)
    where = re.escape(line_of(sends, "tl.send"))
    assert re.search(rf"never received: row {third}, send .* at {where}", str(failure.value))


def test_a_message_that_nobody_waited_for_is_not_received() -> None:
    with pytest.raises(AssertionError, match="2 sends, 1 received, 1 slots home"):
        ka.assert_queues_drained(run(sends, 2, 2, 1, n=2))


def test_a_slot_that_stays_away_is_refused() -> None:
    """A fault of the simulator, made by hand: the log loses the last credit."""
    lost = run(sends, 2, 2, 2, n=2)
    credit = lost.log.where(name="credit").index[-1]
    lost.log.cells[credit * WIDTH + END] = NONE

    with pytest.raises(AssertionError, match="2 sends, 2 received, 1 slots home"):
        ka.assert_queues_drained(lost)
