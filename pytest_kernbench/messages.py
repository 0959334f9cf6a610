"""Messages between programs as a log tells them: who sent what to whom, when it was taken, in how many rounds.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_kernbench.readings import causal_order, say
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import NONE, OpLog

__all__ = ["Message", "chain_steps", "link_bytes", "messages", "reduction_rounds"]

Edge = tuple[int, int]  # sender, receiver: programs


@dataclass(frozen=True, slots=True)
class Message:
    """A send, and the row at which its receiver went on with it (-1: never)."""

    send: int
    taken: int
    edge: Edge


def messages(log: OpLog) -> list[Message]:
    """Every message of the run, in the order of their sends."""
    sends = log.where(name="send")
    edges = dict(zip(sends.index.tolist(), zip(sends.program.tolist(), sends.peer.tolist(), strict=True), strict=True))
    waits = log.where(name=("recv", "wait"))
    taken = {
        after: row
        for row, after, program in zip(waits.index.tolist(), waits.after.tolist(), waits.program.tolist(), strict=True)
        if after in edges and edges[after][1] == program  # the sender may wait for it as well
    }
    return [Message(row, taken.get(row, NONE), edge) for row, edge in edges.items()]


def undrained(log: OpLog) -> str | None:
    """The first pair of programs with a message that was not taken, or a slot that did not come home."""
    sent = messages(log)
    sends = Counter(each.edge for each in sent)
    takes = Counter(each.edge for each in sent if each.taken != NONE)
    back = log.where(name="credit")
    home = zip(back.peer.tolist(), back.program.tolist(), back.end.tolist(), strict=True)
    credits = Counter((to, by) for to, by, end in home if end != NONE)
    for edge, count in sends.items():
        if not count == takes[edge] == credits[edge]:
            left = next((each.send for each in sent if each.edge == edge and each.taken == NONE), None)
            last = left if left is not None else next(each.send for each in reversed(sent) if each.edge == edge)
            word = "never received" if left is not None else "whose slot is still away, perhaps"
            return (
                f"the queue {_edge(log, edge)} is not drained: {count} sends, {takes[edge]} received, "
                f"{credits[edge]} slots home\n  {word}: {say(log, last)}"
            )
    return None


def _hops(run: Run, sent: list[Message]) -> dict[Edge, int]:
    """How many links each edge of the messages is long."""
    from pytest_kernbench.simulator.ahbm.topology import Topology  # the device whose messages have hops

    topology, pes = Topology(run.spec), run.log.pes
    return {edge: topology.hops(pes[edge[0]], pes[edge[1]]) for edge in dict.fromkeys(each.edge for each in sent)}


def link_bytes(run: Run) -> int:
    """Bytes that messages put on links: a message counts once for every hop of its way, and credits do not."""
    sent = messages(run.log)
    hops, sizes = _hops(run, sent), run.log.all.bytes
    return sum(int(sizes[each.send]) * hops[each.edge] for each in sent)


def far_hops(run: Run) -> str | None:
    """The first message that does not go to a neighbour, or that there is none in a launch of several programs."""
    log = run.log
    sent = messages(log)
    if not sent and len(log.programs) > 1:
        return f"{len(log.programs)} programs sent no message, so no hop was looked at"
    hops = _hops(run, sent)
    far = [each for each in sent if hops[each.edge] != 1]
    if not far:
        return None
    edge = far[0].edge
    return (
        f"{len(far)} of {len(sent)} messages do not go to a neighbour: {_edge(log, edge)} is PE {log.pes[edge[0]]} to "
        f"PE {log.pes[edge[1]]}, {hops[edge]} hops instead of 1\n  first: {say(log, far[0].send)}"
    )


def reduction(log: OpLog, n: int, rounds: int, most_messages: int | None) -> str | None:
    """What keeps the run's messages from being reductions of `n` programs each, in `rounds` rounds."""
    sent = messages(log)
    counts = Counter(each.edge for each in sent)
    first = {each.edge: each for each in reversed(sent)}
    groups = _groups(counts)
    if n > 1 and not groups:
        return f"no message was sent: a reduction of {n} programs has {n - 1} edges"
    for group in groups:
        wrong = _not_a_tree(log, group, counts, first, n)
        if wrong:
            return wrong
    for edge, count in counts.items():
        if most_messages is not None and count > most_messages:
            extra = [each.send for each in sent if each.edge == edge][most_messages]
            return f"{_edge(log, edge)} takes {count} messages, at most {most_messages} an edge\n  {say(log, extra)}"
    return _late_merge(log, sent) or _wrong_rounds(log, sent, n, rounds)


def _groups(edges: Counter[Edge]) -> list[list[int]]:
    """Programs that messages join, in order."""
    group_of: dict[int, list[int]] = {}
    for one, other in edges:
        mine, theirs = group_of.setdefault(one, [one]), group_of.setdefault(other, [other])
        if mine is not theirs:
            mine += theirs
            group_of.update(dict.fromkeys(theirs, mine))
    return [sorted(group) for program, group in sorted(group_of.items()) if program == min(group)]


def _not_a_tree(log: OpLog, group: list[int], counts: Counter[Edge], first: dict[Edge, Message], n: int) -> str | None:
    """Why the messages within `group` do not bring `n` parts to one root."""
    edges = [edge for edge in counts if edge[0] in group]
    names = ", ".join(log.programs[program] for program in group)
    if len(group) != n:
        example = say(log, first[edges[0]].send)
        return f"messages join {len(group)} programs ({names}), a reduction of {n} joins {n}\n  first: {example}"
    parents: dict[int, Edge] = {}
    for edge in edges:
        earlier = parents.setdefault(edge[0], edge)
        if earlier is not edge:
            both = "\n  ".join(say(log, first[each].send) for each in (earlier, edge))
            return f"{len(edges)} edges join {names}, a reduction of {n} has {n - 1}: a part goes to two\n  {both}"
    if len(edges) != n - 1:
        example = say(log, first[edges[-1]].send)
        return f"{len(edges)} edges join {names}, a reduction of {n} has {n - 1}: there is no root\n  last: {example}"
    return None


def _late_merge(log: OpLog, sent: list[Message]) -> str | None:
    """The first part that is taken in by a program that has given its own away."""
    last_send = {each.edge[0]: each.send for each in sent}
    for message in sent:
        given = last_send.get(message.edge[1], NONE)
        if given != NONE and message.taken > given:
            rows = f"\n  sent: {say(log, given)}\n  then: {say(log, message.taken)}"
            return f"a part is taken in after the sum was sent on{rows}"
    return None


def reduction_rounds(log: OpLog) -> int:
    """Merges that a reduction's root has to wait for one after another; a program does one a round. 0 without messages.

    Several reductions along the same edges, as of a batch, count as one.
    """
    return max((level for _, level in _levels(log, messages(log))), default=0)


def chain_steps(log: OpLog, end: int = 0) -> int:
    """Steps in which everyone's parts reach everyone along a chain with program `end` at one end. 0 without messages.

    The end passes nothing on: it sends its own part once, and takes one of somebody else in each step.
    """
    sent = messages(log)
    own = sum(each.edge[0] == end for each in sent)
    return sum(each.edge[1] == end for each in sent) // own if own else 0


def _wrong_rounds(log: OpLog, sent: list[Message], n: int, rounds: int) -> str | None:
    levels = list(_levels(log, sent))
    worst = max((level for _, level in levels), default=0)
    if worst == rounds:
        return None
    row = next((taken for taken, level in levels if level > min(rounds, worst - 1)), None)
    where = "" if row is None else f"\n  {'first past them' if worst > rounds else 'last'}: {say(log, row)}"
    return f"the reduction of {n} programs takes {worst} rounds, expected {rounds}{where}"


def _levels(log: OpLog, sent: list[Message]) -> Iterator[tuple[int, int]]:
    """For each receive, the merges that must have been done one after another by then; a program does one a round."""
    by_send = {each.send: each for each in sent}
    by_taken = {each.taken: each for each in sent}
    level = [0] * len(log.programs)
    level_sent: dict[int, int] = {}
    merged: set[Edge] = set()  # m, l and O of one edge are one merge
    for row in causal_order(log):
        if row in by_send:
            level_sent[row] = level[by_send[row].edge[0]]
        elif row in by_taken:
            edge = by_taken[row].edge
            own = level[edge[1]] + (edge not in merged)
            merged.add(edge)
            level[edge[1]] = max(own, level_sent[by_taken[row].send] + 1)
            yield row, level[edge[1]]


def _edge(log: OpLog, edge: Edge) -> str:
    return f"{log.programs[edge[0]]} > {log.programs[edge[1]]}"
