"""Composites as a log tells them: their panels and sub-tiles, and how early they are issued. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from pytest_kernbench.readings import Ints, reads_of, say
from pytest_kernbench.simulator.ops.log import OpLog, Selection


def not_offloaded(log: OpLog, streamed: Collection[str]) -> str | None:
    """The first product that is not a composite, or composite that its sub-tiles do not make up."""
    composites, dots = log.where(name="composite"), log.where(name="dot")
    if len(dots):
        first = say(log, next(iter(dots)))
        return f"{len(dots)} blocking dots beside {len(composites)} composites, expected 0\n  first: {first}"
    if not len(composites):
        return f"no composite among {len(log)} rows, expected at least 1"
    done = _of_parents(log, "gemm")
    for index, work in zip(composites.index.tolist(), composites.work.tolist(), strict=True):
        if done[index] != work:
            return (
                f"the sub-tiles of a composite do {done[index]} MACs, the composite wants {work}\n  {say(log, index)}"
            )
    wrong = (_not_streamed(log, tensor) for tensor in streamed)
    return next(filter(None, wrong), None)


def _of_parents(log: OpLog, name: str) -> Ints:
    """For each row, the work of its children of that name."""
    children = log.where(name=name)
    below = children.parent >= 0
    return np.bincount(children.parent[below], children.work[below], minlength=len(log)).astype(np.int64)


def _not_streamed(log: OpLog, tensor: str) -> str | None:
    """How `tensor` comes on chip, if not as panels of composites alone."""
    reads = reads_of(log, tensor)
    panels = reads.where(name="panel")
    if len(panels) and len(panels) == len(reads):
        return None
    others = [row for row in reads if row.name != "panel"]
    first = f"\n  first other read: {say(log, others[0])}" if others else ""
    return (
        f"{len(panels)} of {len(reads)} reads of {tensor} are panels of composites, expected all of at least 1{first}"
    )


def not_ahead(log: OpLog, depth: int, region: str | None) -> str | None:
    """What is wrong with the claim that composites of a label are issued `depth` ahead; None if nothing is."""
    labels = _labels(log)
    if region is not None and region not in labels:
        return f"no composite is labelled {region!r}; labels: {', '.join(map(repr, labels)) or 'none'}"
    complaints = [_label_not_ahead(log, depth, label) for label in (labels if region is None else [region])]
    if not complaints:
        return f"no composite among {len(log)} rows"
    return None if None in complaints else "\n".join(map(str, complaints))


def _labels(log: OpLog) -> list[str]:
    rows = log.where(name="composite").region.tolist()
    return [log.regions.values[id] for id in dict.fromkeys(rows)]


def _label_not_ahead(log: OpLog, depth: int, label: str) -> str | None:
    """The first composite of a label that was awaited too early; a wait for a later one of the label counts as well."""
    composites = log.where(name="composite", region=label)
    awaited = _awaited(log)
    looked_at = 0
    for program in range(len(log.programs)):
        rows = composites.index[composites.program == program].tolist()
        for number, (row, ahead) in enumerate(zip(rows, rows[depth:], strict=False)):
            looked_at += 1
            wait = next((awaited[each] for each in rows[number : number + depth] if each in awaited), None)
            if wait is not None and wait < ahead:
                return (
                    f"composite {number + depth} labelled {label!r} is issued after composite {number} was awaited, "
                    f"expected {depth} ahead\n  {number}: {say(log, row)}\n  awaited: {say(log, wait)}\n"
                    f"  {number + depth}: {say(log, ahead)}"
                )
    most = f"at most {depth} composites a program are labelled {label!r}: none can be {depth} ahead"
    return None if looked_at else most


def _awaited(log: OpLog) -> dict[int, int]:
    """For each op that somebody waited for, the first row that did."""
    waits = log.where(name="wait")
    pairs = zip(waits.after.tolist(), waits.index.tolist(), strict=True)
    return {after: row for after, row in reversed(list(pairs)) if after >= 0}


def counted(log: OpLog, of: str, region: str | None) -> Selection:
    """The rows that `assert_gemm_count` counts."""
    names = {"product": ("composite", "dot"), "tile": ("gemm",)}.get(of)
    if names is None:
        raise ValueError(f"of={of!r} is none of 'product', 'tile'")
    rows = log.where(name=names)
    return rows if region is None else rows.where(region=region)
