"""Ring all-reduce: everybody ends with the sum of everybody's rows, after 2 (n - 1) messages each (ADR-7001 2.2)."""

from __future__ import annotations

from typing import Any


def all_reduce(total: Any, *, tl: Any) -> None:
    """Add up `total` [rows, width] of all ranks, in place; rows are dealt in equal blocks to the ranks.

    First every block goes round and grows, and is complete at the rank before its owner; then it goes round again to
    be copied. A block is one message, so it has to fit a slot.
    """
    rank, n = tl.program_id(0), tl.num_programs(0)
    count = total.shape[0] // n

    def block(number: int) -> Any:
        return tl.rows(total, number % n * count, count)

    with tl.region("reduce"):
        for step in range(n - 1):
            mine = block(rank - step - 1)
            _pass_on(block(rank - step), mine, lambda other, mine=mine: tl.add(mine, other, out=mine), tl)
    with tl.region("gather"):
        for step in range(n - 1):
            mine = block(rank - step)
            _pass_on(block(rank - step + 1), mine, lambda other, mine=mine: tl.assign(mine, other), tl)


def _pass_on(outgoing: Any, like: Any, take: Any, tl: Any) -> None:
    """Send a block east, and do with the one from the west, of the shape of `like`, what `take` does."""
    with tl.scratch_scope():
        sent = tl.send("E", outgoing)
        taken = take(tl.recv("W", like.shape))
        tl.wait(sent, taken)


def all_reduce_rows(x: Any, y: Any, rows: int, width: int, *, tl: Any) -> None:
    """y = the sum of all ranks' x, float32 [rows, width]; launch with `ring_ports` and ranks placed along the ring."""
    total = tl.load(x, (rows, width))
    all_reduce(total, tl=tl)
    tl.wait(tl.store(y, total))
