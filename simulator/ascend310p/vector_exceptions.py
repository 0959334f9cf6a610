"""The vector unit's arithmetic exceptions as notes: which device bit, which call and line, which element (facts 2.10).

numpy's own floating-point flags tell that something happened: a run in which nothing does pays nothing. What happened
is exact; which element it was is not, if the call has written over its sources by then. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pytest_kernbench.simulator.ascend310p.effects import Effect, begin, under_way
from pytest_kernbench.simulator.ascend310p.vector_plans import IN_PLACE
from pytest_kernbench.simulator.errors import Hazard
from pytest_kernbench.simulator.memory.dtypes import Array
from pytest_kernbench.simulator.ops.compact import CompactLog


class Bit(NamedTuple):
    """A bit of the device's error word, and what to do about it."""

    name: str
    number: int
    remedy: str


CCU_DIV0 = Bit("CCU_DIV0", 3, "test the divisor before")
VEC_DIV0 = Bit("VEC_DIV0", 52, "keep the divisor from 0, by Maxs or Adds before")
VEC_INF_NAN = Bit("VEC_INF_NAN", 54, "scale the operands, or compute in float")
VEC_NEG_LN = Bit("VEC_NEG_LN", 57, "keep the source above 0, by Maxs before")
VEC_NEG_SQRT = Bit("VEC_NEG_SQRT", 58, "keep the source from below 0, by Relu or Maxs before")

ZERO, INVALID = "divide by zero", "invalid value"  # as numpy says it; the third that it is asked for is an overflow
BITS = {
    ("Ln", ZERO): VEC_NEG_LN, ("Ln", INVALID): VEC_NEG_LN, ("Sqrt", INVALID): VEC_NEG_SQRT,
    ("Rsqrt", INVALID): VEC_NEG_SQRT, ("Rsqrt", ZERO): VEC_DIV0, ("Reciprocal", ZERO): VEC_DIV0,
    ("Div", ZERO): VEC_DIV0, ("Div", INVALID): VEC_DIV0,
}  # fmt: skip
# Of the sources that made the flag: those that are at fault. numpy raises it before the target is written.
AT_FAULT: dict[tuple[str, str], Callable[[Array], Array]] = {
    ("Ln", ZERO): lambda x: x <= 0, ("Ln", INVALID): lambda x: x <= 0, ("Sqrt", INVALID): lambda x: x < 0,
    ("Rsqrt", INVALID): lambda x: x < 0, ("Rsqrt", ZERO): lambda x: x == 0, ("Reciprocal", ZERO): lambda x: x == 0,
}  # fmt: skip


class Offender(NamedTuple):
    """An element of the target, in the order in which the call takes them, and what is known of it."""

    element: int
    facts: str


class VectorExceptions:
    """Those of a run: one note a bit and line, with the first element of the first call and how many calls had it."""

    def __init__(self, log: CompactLog, replay: str) -> None:
        self._log = log
        self._replay = replay
        self._notes: dict[tuple[Bit, int], Hazard] = {}
        self._effect: Effect | None = None  # the last that had any, with its bits: one call raises several flags
        self._bits: set[Bit] = set()

    def notes(self) -> list[Hazard]:
        return list(self._notes.values())

    def seen(self, kind: str, frame: FrameType) -> None:
        """numpy has raised a flag in what `frame` called."""
        effect, apart = under_way(frame)
        if effect is None:
            self._seen_by_scalar(kind, frame)
            return
        descriptor = self._log.descriptor_of(effect[2])
        name = self._log.names.values[descriptor.name]
        bit = BITS.get((name, kind)) if kind in (ZERO, INVALID) else VEC_INF_NAN
        if bit is None or (effect is self._effect and bit in self._bits):
            return
        key, offender = (bit, descriptor.site), None
        if key not in self._notes or kind == INVALID:  # which operands that are Inf raise too
            with np.errstate(all="ignore"):
                offender = _offender(name, kind, effect, apart)
            if offender is None:
                return
        if effect is not self._effect:
            self._effect, self._bits = effect, set()
        self._bits.add(bit)
        self._note(key, name, self._log.programs[self._log.program_of(effect[2])], offender)

    def _seen_by_scalar(self, kind: str, frame: FrameType | None) -> None:
        """The kernel's own arithmetic on what GetValue gave; a division 0 / 0 raises no flag of its own."""
        while frame is not None and frame.f_globals.get("__name__", "").startswith("numpy."):
            frame = frame.f_back
        if kind == ZERO and frame is not None:
            place = self._log.site_id(frame.f_code, frame.f_lasti)
            self._note((CCU_DIV0, place), "scalar arithmetic", self._log.programs[-1], None)

    def _note(self, key: tuple[Bit, int], call: str, program: str, offender: Offender | None) -> None:
        known = self._notes.get(key)
        if known is not None:
            self._notes[key] = replace(known, count=known.count + 1)
            return
        bit, place = key
        fact = "" if offender is None else f": element {offender.element} of dst {offender.facts}"
        where = f"{call} of {program} at {self._log.site(place)}"
        said = f"{where}: {bit.name}, bit {bit.number} of the device's error word{fact}; {bit.remedy}"
        self._notes[key] = Hazard("vector-exception", said, replay=self._replay)


def _offender(name: str, kind: str, effect: Effect, apart: bool) -> Offender | None:
    """The first element that made the flag; None if no operand of numbers did. `apart`: nothing is written yet."""
    *sources, target = effect[3]
    lost = [not apart and _over(each, target) for each in sources]
    if (name, kind) in AT_FAULT:
        return _first(effect, _taken(effect, 0), AT_FAULT[name, kind])
    if name == "Div" and kind in (ZERO, INVALID):
        return _divided(effect, kind, lost)
    in_place = name in IN_PLACE
    if any(lost) or (in_place and not apart):
        found = _overwritten(effect, np.isinf(target))
        if found is not None or name != "Exp":  # whose power may be beyond float64, before anything is written
            return found
    return _recomputed(effect, in_place)


def _over(source: Any, target: Array) -> bool:
    return isinstance(source, np.ndarray) and np.may_share_memory(source, target)


def _taken(effect: Effect, number: int) -> Any:
    """What the call takes of a source: its elements in order, or a scalar."""
    source, picks = effect[3][number], effect[4].picks
    if picks is None or picks[number] is None or not isinstance(source, np.ndarray):
        return source
    return source[picks[number]]


def _first(effect: Effect, source: Array, at_fault: Callable[[Array], Array]) -> Offender | None:
    hits = np.flatnonzero(at_fault(source) & np.isfinite(source))
    return None if not hits.size else Offender(_element(effect, hits[0]), f"comes of {source[hits[0]]:g}")


def _divided(effect: Effect, kind: str, lost: Sequence[bool]) -> Offender | None:
    """Of Div: numpy has written the quotients, maybe over a source."""
    one, other = (_taken(effect, number) for number in (0, 1))
    if not any(lost):
        hits = np.flatnonzero((other == 0) & np.isfinite(one))
        values = None if not hits.size else f"comes of {one[hits[0]]:g} / {other[hits[0]]:g}"
        return None if values is None else Offender(_element(effect, hits[0]), values)
    quotients = effect[3][-1]
    if lost[1]:
        return None if kind == INVALID else _overwritten(effect, np.isinf(quotients))
    return _overwritten(effect, (other == 0) & (np.isnan if kind == INVALID else np.isinf)(quotients))


def _overwritten(effect: Effect, hit: Array) -> Offender | None:
    """By the target alone, which lies over a source."""
    hits = np.flatnonzero(hit)
    if not hits.size:
        return None
    return Offender(_element(effect, hits[0]), f"is {effect[3][-1][hits[0]]:g}, written over its source")


def _recomputed(effect: Effect, in_place: bool) -> Offender | None:
    """Of an overflow whose sources are as they were: what is Inf, and comes of numbers where lanes are told apart."""
    _, _, result = begin(effect)
    result = result.reshape(-1)
    taken = [_taken(effect, number) for number in range(len(effect[3]) - (not in_place))]
    by_lane = all(np.size(each) in (1, result.size) for each in taken)
    hit = np.isinf(result)
    for each in taken if by_lane else ():
        hit = hit & np.isfinite(each)
    hits = np.flatnonzero(hit)
    if not hits.size:
        return None
    at = hits[0]
    values = [f"{np.ravel(each)[at if np.size(each) > 1 else 0]:g}" for each in taken] if by_lane else []
    return Offender(_element(effect, at), f"is {result[at]:g}" + (f", of {' and '.join(values)}" if values else ""))


def _element(effect: Effect, number: Any) -> int:
    """Of the target: the element that comes as the `number`-th."""
    _, _, _, _, deed = effect
    where = None if deed.picks is None else deed.picks[-1]
    if where is None:
        return int(number)
    return int((where[0] if deed.folded else where.reshape(-1))[number])
