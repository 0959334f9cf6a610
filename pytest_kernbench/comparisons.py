"""Results against what they should be: where they differ, by how much, which op wrote them, and a guess why.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.readings import WRITE_UNITS, say
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.ops.log import OpLog, Row

Array = npt.NDArray[Any]
Index = tuple[int, ...]


def mismatch(run: Run, tensor: Any, expected: Any, bound: Any, how: str) -> str | None:
    """How the run's `tensor` differs from `expected` by more than `bound`; None if it does not."""
    tensor = _named(run, tensor)
    got = run.array(tensor)
    wanted = np.asarray(expected)
    limit = _limit(getattr(bound, "bound", bound))
    if got.shape != wanted.shape:
        raise ValueError(f"{tensor.name} is {got.shape}, the reference {wanted.shape}: give them the same shape")
    if not wanted.size:
        raise ValueError(f"the reference for {tensor.name} has no element, so nothing would be compared")
    got64, wanted64 = got.astype(np.float64), wanted.astype(np.float64)
    error = _errors(got64, wanted64)
    beyond = error > limit
    if not beyond.any():
        return None
    at = tuple(int(axis) for axis in np.unravel_index(np.argmax(error), error.shape))
    why = str(bound) if hasattr(bound, "bound") else how
    lines = [
        f"{np.count_nonzero(beyond)} of {error.size} elements of {tensor.name} are off, most at {_at(tensor, at)}",
        f"  got {got64[at]:.9g}, expected {wanted64[at]:.9g}, error {error[at]:.3g}, bound {limit:.3g}",
        *([f"  bound: {why}"] if why else []),
        *([f"  {how}"] if how and how != why else []),
        f"  {wrote(run.log, tensor, got.shape, at)}",
        *_guess(got64, wanted64, at, limit),
    ]
    return "\n".join(lines)


def _limit(bound: object) -> float:
    limit = float(bound) if isinstance(bound, Real) else math.nan
    if not (math.isfinite(limit) and limit >= 0):
        raise ValueError(f"bound {bound!r}: wants a finite number >= 0, such as an error model's")
    return limit


def _named(run: Run, tensor: Any) -> Any:
    """The tensor, if only its name is given. Raises ValueError for a name that the run does not have."""
    if isinstance(tensor, str) and tensor not in run.tensors:
        raise ValueError(f"the run has no tensor {tensor!r}; it has {', '.join(run.tensors) or 'none'}")
    return run.tensors[tensor] if isinstance(tensor, str) else tensor


def name_of(tensor: object) -> str:
    """The name of a tensor, which may be given as such. Raises ValueError for what has none."""
    name = tensor if isinstance(tensor, str) else getattr(tensor, "name", None)
    if not isinstance(name, str):
        raise ValueError(f"{tensor!r} is no tensor of the run, and no name of one")
    return name


def _errors(got: Array, wanted: Array) -> Array:
    """|got - wanted|; infinite where one is not finite and the other is not the same."""
    with np.errstate(all="ignore"):
        error = np.abs(got - wanted)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    finite = np.isfinite(got) & np.isfinite(wanted)
    return np.where(same, 0.0, np.where(finite, error, np.inf))


def _at(tensor: Any, at: Index) -> str:
    return f"{tensor.name}[{', '.join(map(str, at))}]"


def _guess(got: Array, wanted: Array, at: Index, limit: float) -> Iterator[str]:
    """A line if the bad row is much nearer to another row of the reference than to its own."""
    if got.ndim < 2:
        return
    mine, rows = got[at[:-1]], wanted.reshape(-1, wanted.shape[-1])
    distance = _errors(np.broadcast_to(mine, rows.shape), rows).max(axis=1)
    own = int(np.ravel_multi_index(at[:-1], wanted.shape[:-1]))
    best = int(np.argmin(distance))
    if np.isfinite(distance[best]) and distance[best] <= max(limit, distance[own] / 8):
        where = tuple(int(axis) for axis in np.unravel_index(best, wanted.shape[:-1]))
        yield (
            f"  row {_row(at[:-1])} is closest to reference row {_row(where)} (error {distance[best]:.3g}, "
            f"{distance[own]:.3g} to its own): a wrong map of heads or rows?"
        )


def _row(at: Index) -> str:
    return str(at[0]) if len(at) == 1 else str(at)


# Who wrote it


def wrote(log: OpLog, tensor: Any, shape: Index, at: Index) -> str:
    """The op that wrote the bytes of element `at` last; `shape` is that of the whole array that a run returns."""
    lead = len(shape) - len(tensor.shape)
    home = _home(log, tensor, shape[:lead], at[:lead])
    byte = tensor.layout.element(at[lead:], tensor.shape) * tensor.dtype.itemsize
    rows = log.where(unit=WRITE_UNITS, writes=tensor.name)
    writers = [row for row in rows if _writes(row, home, tensor.name, byte)]
    if not writers:
        whose = "" if home is None else f" of {log.programs[home]}"
        return f"nothing in the run wrote byte {byte} of {tensor.name}{whose}"
    return f"written last by {say(log, max(writers, key=lambda row: (row.end, row.index)))}"


def _home(log: OpLog, tensor: Any, lead: Index, at: Index) -> int | None:
    """The program in whose memory the part of `tensor` lies that the leading axes `at` of `lead` name; None: of all."""
    if tensor.place == "shared":
        return None
    if tensor.place == "local":
        return int(np.ravel_multi_index(at, lead)) if lead else 0
    cubes = lead[0] if lead else 1
    rank = tensor.place if isinstance(tensor.place, int) else 0
    return (at[0] if at else 0) * (len(log.programs) // cubes) + rank


def _writes(row: Row, home: int | None, tensor: str, byte: int) -> bool:
    there = row.peer if row.peer >= 0 else row.program
    spans = ((each.offset, each.offset + each.size) for each in row.operands if each.written and each.tensor == tensor)
    return home in (there, None) and any(lo <= byte < hi for lo, hi in spans)


# Runs against each other


def first_difference(log: OpLog, other: OpLog) -> str | None:
    """The first row in which two logs differ, or whatever else does; None if they are the same, byte for byte."""
    for index in range(min(len(log), len(other))):
        if _key(log[index]) != _key(other[index]):
            mine, theirs = _key(log[index]), _key(other[index])
            parts = [name for name in mine if mine[name] != theirs[name]]
            values = "; ".join(f"{name} {mine[name]} against {theirs[name]}" for name in parts)
            return f"{values}\n  one:   {say(log, index)}\n  other: {say(other, index)}"
    if len(log) != len(other):
        longer = log if len(log) > len(other) else other
        extra = say(longer, min(len(log), len(other)))
        return f"{len(log)} rows against {len(other)}\n  first extra: {extra}"
    if log.cells.tobytes() != other.cells.tobytes() or log.operand_cells.tobytes() != other.operand_cells.tobytes():
        return f"the same {len(log)} rows, but names, shapes or labels are numbered in another order"
    return None


def _key(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__slots__}


def changed_bits(run: Run, name: str, usual: Array) -> str | None:
    """The first element of the tensor `name` that has other bits than in `usual`; None if there is none."""
    tensor = _named(run, name)
    got = run.array(tensor)
    if got.shape != usual.shape or got.dtype != usual.dtype:
        return f"{tensor.name} is {got.shape} {got.dtype}, and {usual.shape} {usual.dtype} under the model's schedule"
    bits = [np.ascontiguousarray(each).view(np.uint8).reshape(*got.shape, -1) for each in (got, usual)]
    differs = (bits[0] != bits[1]).any(axis=-1)
    if not differs.any():
        return None
    at = tuple(int(axis) for axis in np.argwhere(differs)[0])
    return (
        f"{np.count_nonzero(differs)} of {differs.size} elements of {tensor.name} change, first {_at(tensor, at)}: "
        f"{float(got[at]):.9g}, and {float(usual[at]):.9g} under the model's schedule\n"
        f"  {wrote(run.log, tensor, got.shape, at)}"
    )
