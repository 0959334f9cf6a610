"""The first value that is bad although nothing it was made of was: NaN, infinity, or lost digits.

An infinity that an op is given is an input, as a mask is; NaN of two infinities is new. The logarithm of 0 is minus
infinity exactly, and no fault. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from pytest_kernbench.simulator.checks.about import about
from pytest_kernbench.simulator.errors import Hazard, Involved
from pytest_kernbench.simulator.probes import Observer

Array = np.ndarray[Any, np.dtype[Any]]
Index = tuple[int, ...]
BITS = {"float32": 24, "float16": 11, "bfloat16": 8}  # of a significand, the leading one included
LEFT = 3  # a difference with fewer significant bits than this has lost its precision
NEGLIGIBLE = 8  # an addend below this part of a unit in the last place may vanish
REMEDY = {
    "first-nan": "keep such operands out of it: a finite maximum to subtract, a divisor that is not 0",
    "overflow": "scale the operands, or keep the result in a wider dtype",
    "precision-loss": "work in a wider dtype, or rearrange the sum",
}


class Operand(NamedTuple):
    """What an op read; `spread` takes a mask of its elements to the elements of the result that depend on them.

    `pick` gives the elements on which one of the result's depends.
    """

    name: str
    values: Array
    spread: Callable[[Array], Array]
    pick: Callable[[Index], Array]


def each_to_each(name: str, values: Any, shape: Index) -> Operand:
    """An operand of an element-wise op, which broadcasts to `shape`."""
    array = np.asarray(values)
    return Operand(name, array, lambda mask: np.broadcast_to(mask, shape), lambda at: np.broadcast_to(array, shape)[at])


def along(name: str, values: Array, axis: int) -> Operand:
    """The operand of a reduction along `axis`, which stays with size 1."""

    def pick(at: Index) -> Array:
        which: tuple[Any, ...] = (*at[:axis], slice(None), *at[axis + 1 :])
        found: Array = values[which]
        return found

    return Operand(name, values, lambda mask: _any(mask, axis), pick)


def in_groups(name: str, values: Array, groups: int, results: int) -> Operand:
    """`groups` runs of elements, each of which makes `results` results."""
    rows = values.reshape(groups, -1)
    return Operand(
        name, values, lambda mask: _any(mask.reshape(groups, -1), 1)[:, 0].repeat(results),
        lambda at: rows[at[0] // results],
    )  # fmt: skip


def left_factor(values: Array) -> Operand:
    """`a` [M, K] of a product."""
    return Operand("a", values, lambda mask: _any(mask, 1), lambda at: values[at[0]])


def right_factor(values: Array) -> Operand:
    """`b` [K, N] of a product."""
    return Operand("b", values, lambda mask: _any(mask, 0), lambda at: values[:, at[1]])


def _any(mask: Array, axis: int) -> Array:
    return np.logical_or.reduce(mask, axis=axis, keepdims=True)


class Fault(NamedTuple):
    """Elements of a result that are bad while their operands are not, and in which way."""

    kind: str
    makes: str
    where: Array


def new_bad_values(name: str, operands: Sequence[Operand], result: Array, strict: bool) -> Fault | None:
    """NaN or infinities of the op `name` that `operands` do not explain.

    NaN is new where no operand has one; `strict`: where no operand is infinite either, which may be an earlier fault's.
    """
    nan = np.isnan(result)
    if nan.any():
        fresh = nan & ~_from(operands, _unlike_numbers if strict else np.isnan, result)
        if fresh.any():
            return Fault("first-nan", "NaN", fresh)
    infinite = np.isinf(result)
    if name not in POLES and infinite.any():
        fresh = infinite & ~_from(operands, _unlike_numbers, result)
        if fresh.any():
            return Fault("overflow", "an infinity", fresh)
    return None


def _unlike_numbers(values: Array) -> Array:
    mask: Array = ~np.isfinite(values)
    return mask


def _from(operands: Sequence[Operand], bad: Callable[[Array], Array], result: Array) -> Array:
    """The elements of the result that depend on a bad one."""
    reached = np.zeros(result.shape, bool)
    for operand in operands:
        if operand.values.dtype.kind not in "iub":
            mask = bad(operand.values)
            if mask.any():
                reached |= operand.spread(mask)
    return reached


def lost_digits(one: Any, other: Any, result: Array, bits: int, kept: int) -> Fault | None:
    """Where `result`, a sum or difference, lost its precision; operands have `bits` bits, the result `kept`.

    Cancellation is judged as if the operands had been rounded: exact ones lose nothing, and are reported all the same.
    A result of exactly 0 is not. Absorption is exact: the smaller operand is an eighth of a unit in the last place or
    more, and leaves no trace.
    """
    a, b, total = (np.abs(np.asarray(each, np.float64)) for each in (one, other, result))
    large, small = np.maximum(a, b), np.minimum(a, b)
    usable = np.isfinite(large) & (total > 0)
    cancelled = usable & (total < large * 2.0 ** (LEFT - bits))
    if cancelled.any():
        return Fault("precision-loss", f"a difference with fewer than {LEFT} of {bits} bits left", cancelled)
    _, exponent = np.frexp(large)
    unit = np.ldexp(1.0, exponent - kept)
    absorbed = usable & (total == large) & (small * NEGLIGIBLE >= unit) & (small < unit)
    if absorbed.any():
        return Fault("precision-loss", "a sum that is its larger operand, and the smaller one vanishes", absorbed)
    return None


def bits_of(*operands: Any) -> int:
    """The significant bits of the narrowest array among `operands`; numbers are as exact as need be."""
    known = [BITS.get(str(each.dtype), BITS["float32"]) for each in operands if isinstance(each, np.ndarray)]
    return min(known, default=BITS["float32"])


class Numerics:
    """The first fault of a run is a finding; later ones whose operands are all finite are counted.

    What an earlier infinity leads to is not counted. `precision-loss` is looked for if `precision` is set.
    """

    def __init__(self, replay: str, precision: bool) -> None:
        self.precision = precision
        self._replay = replay
        self._first: dict[str, Hazard] = {}  # "bad" and "lost": the finding
        self._later: dict[str, int] = {}

    @property
    def found(self) -> bool:
        """Whether a bad value was found."""
        return "bad" in self._first

    def look(self, name: str, operands: Sequence[Operand], result: Array, who: Callable[[], Involved]) -> None:
        """Judge the values that an op is about to write."""
        fault = new_bad_values(name, operands, result, strict=self.found)
        if fault is not None:
            self.note("bad", fault, operands, result, who)

    def look_closer(self, one: Any, other: Any, operands: Sequence[Operand], result: Array, who: Any) -> None:
        """Judge what a sum lost."""
        fault = lost_digits(one, other, result, bits_of(one, other), bits_of(result))
        if fault is not None:
            self.note("lost", fault, operands, result, who)

    def note(
        self, which: str, fault: Fault, operands: Sequence[Operand], result: Array, who: Callable[[], Involved]
    ) -> None:
        """A fault of which "bad" or "lost"; only the first is described."""
        if which in self._first:
            self._later[which] = self._later.get(which, 0) + 1
            return
        at = tuple(map(int, np.argwhere(fault.where)[0]))
        count = int(fault.where.sum())
        more = f" (one of {count})" if count > 1 else ""
        seen = "; ".join(f"{each.name} {_said(each.pick(at))}, in all {_range(each.values)}" for each in operands)
        fact = f"makes {fault.makes} at element {list(at)} of {result.shape} {result.dtype}{more}: {seen}"
        self.report(which, fault.kind, fact, who)

    def report(self, which: str, kind: str, fact: str, who: Callable[[], Involved]) -> None:
        """A finding if it is the first of which "bad" or "lost", else one more to count."""
        if which in self._first:
            self._later[which] = self._later.get(which, 0) + 1
            return
        op = who()
        self._first[which] = Hazard(kind, f"{op}\n  {fact}; {REMEDY[kind]}", (op,), replay=self._replay)

    def findings(self) -> list[Hazard]:
        return [self._counted(which, hazard) for which, hazard in self._first.items()]

    def _counted(self, which: str, hazard: Hazard) -> Hazard:
        later = self._later.get(which, 0)
        if not later:
            return hazard
        return replace(hazard, message=f"{hazard.message}\n  {later} later ops do the like, from finite operands")


def _said(values: Array) -> str:
    """A number, or how many and from where to where."""
    values = np.asarray(values)
    return f"= {_number(values)}" if values.ndim == 0 else f"{values.size} elements {_range(values)}"


def _range(values: Array) -> str:
    """From the least to the greatest; NaN is said apart."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[~np.isnan(numbers)]
    nan = " and NaN" if numbers.size < np.size(values) else ""
    return f"{_number(numbers.min())}..{_number(numbers.max())}{nan}" if numbers.size else "NaN"


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


float32 = np.dtype(np.float32)
vdot = np.vdot
MOVES = frozenset({"load", "send", "panel", "less", "less_equal", "greater", "greater_equal"})  # make no number
CHOOSES = frozenset({"maximum", "minimum", "max", "where", "broadcast", "assign", "cast", "store", "writeback"})
SUMS = frozenset({"add", "sub"})
POLES = frozenset({"log", "Ln"})  # an infinity of theirs is exact
# A float32 result whose sum of squares is less has no element that its target's dtype makes infinite.
SMALL = {float32: np.inf, np.dtype(ml_dtypes.bfloat16): np.inf, np.dtype(np.float16): 65000.0**2}


class NumericsChecker(Observer):
    """Finds `first-nan`, `overflow` and `precision-loss` in what an op is about to write."""

    def __init__(self, replay: str, log: Any, precision: bool) -> None:
        self._log = log
        self._numerics = Numerics(replay, precision)

    def computed(self, op: Any) -> None:
        if op.name in MOVES or not op.sources or op.result is None:
            return
        result, dtype = op.result, op.target.dtype
        if op.name in CHOOSES and dtype is float32:
            return
        first = op.sources[0] if op.name in ("store", "writeback") else result
        clean = first.dtype is float32 and vdot(first, first) < SMALL.get(dtype, 0)
        if clean and not (self._numerics.precision and op.name in SUMS):
            return
        with np.errstate(all="ignore"):
            self._look(op, result.astype(dtype, copy=False), clean)

    def _look(self, op: Any, result: Array, clean: bool) -> None:
        operands = operands_of(op.name, op.sources, result.shape)
        if not clean:
            self._numerics.look(op.name, operands, result, lambda: self._who(op))
        if self._numerics.precision and op.name in SUMS:
            one, other = op.sources
            self._numerics.look_closer(one, other, operands, result, lambda: self._who(op))

    def _who(self, op: Any) -> Involved:
        return about(op, next(iter(op.writes), None), self._log)

    def findings(self) -> list[Hazard]:
        return self._numerics.findings()


def operands_of(name: str, sources: Sequence[Any], shape: Index) -> list[Operand]:
    """The operands of an op; a product's are its factors and those of its epilogue."""
    if name in ("gemm", "dot"):
        steps = [each_to_each(f"epilogue {number}", each, shape) for number, each in enumerate(sources[2:], 1)]
        return [left_factor(sources[0]), right_factor(sources[1]), *steps]
    if name in ("sum", "max"):
        (values,) = sources
        axis = next((at for at, size in enumerate(values.shape) if size != shape[at]), 0)
        return [along("x", values, axis)]
    return [each_to_each(letter, each, shape) for letter, each in zip("abc", sources, strict=False)]
