"""Golden op logs of small rings: what moves, in which order, and how long it takes on this model.

A reader of `__snapshots__` sees in the closed ring of two how each rank sends on before it folds, and asks for the next
piece before that; in the open chain of four that rank 0 receives nothing and rank 3 sends nothing.
"""

from __future__ import annotations

import pytest

from pytest_kernbench.simulator.ops.text import structure

SMALL = {"group": 2, "d": 32, "d_v": 32, "structure": True}


@pytest.mark.adr("0060", "5.5", "B.7")
def test_two_ranks_striped(ring, case, oplog_snapshot):
    """Two pieces a rank, one block of queries."""
    each = case(kv_len=32, t_q=32, **SMALL)

    oplog_snapshot.assert_matches(ring(each, 2, tile=8, q_block=16, sharding="striped").run)


@pytest.mark.adr("0060", "5.5", "10")
def test_four_ranks_contiguous(ring, case, oplog_snapshot):
    """One piece a rank: the open chain."""
    each = case(kv_len=32, t_q=32, **SMALL)

    oplog_snapshot.assert_matches(ring(each, 4, tile=8, q_block=8, sharding="contiguous").run)


@pytest.mark.adr("0060", "5.5")
def test_two_ranks_zigzag(ring, case, oplog_snapshot):
    """Two blocks of queries a rank, an early and a late one, that share what comes by."""
    each = case(kv_len=32, t_q=32, **SMALL)

    oplog_snapshot.assert_matches(ring(each, 2, tile=8, q_block=16, sharding="zigzag").run)


@pytest.mark.adr("0060", "5.5", "11.8")
@pytest.mark.parametrize("schedule", ["jitter", "late"])
@pytest.mark.parametrize("sharding", ["contiguous", "striped", "zigzag"])
def test_they_say_the_same_under_other_schedules(ring, case, sharding, schedule):
    each, sizes = case(kv_len=32, t_q=32, **SMALL), {"tile": 8, "q_block": 8, "sharding": sharding}

    other = ring(each, 4, **sizes, run={"schedule": schedule, "seed": 7})

    assert structure(other.log) == structure(ring(each, 4, **sizes).log)
