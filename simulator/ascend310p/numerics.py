"""Bad values on a core, from the processor's own flags: what numpy computes while a run is under way tells of them.

An op that makes no new NaN or infinity costs nothing, but for a copy of a target that is a source too. The flags say
when to look; the values decide. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ascend310p import effects
from pytest_kernbench.simulator.ascend310p.effects import Effect
from pytest_kernbench.simulator.checks.numerics import Numerics, Operand, each_to_each, in_groups
from pytest_kernbench.simulator.errors import Hazard, Involved, Site
from pytest_kernbench.simulator.memory.dtypes import Array

SIMULATOR = str(Path(effects.__file__).parents[1])
SUMS = frozenset({"Add", "Sub", "Adds", "Axpy", "MulAddDst"})


class CoreNumerics:
    """Finds `first-nan`, `overflow` and `precision-loss` in what V and S compute, for all blocks of a run."""

    def __init__(self, about: Callable[[int, int, int], Involved], name: Callable[[int], str], replay: str,
                 precision: bool) -> None:  # fmt: skip
        self.pending: dict[str, Site] = {}  # arithmetic of S that went wrong last, by kind, until its result is used
        self._about = about
        self._name = name  # of a row
        self._numerics = Numerics(replay, precision)
        self._row = -1  # was looked at last: an op of several steps raises more than one flag

    def watched(self, compute: Callable[..., Any], in_place: bool) -> Callable[..., Any]:
        """`compute`, with what a look needs beside it: the old target of an op that reads it, what a sum lost."""
        if self._numerics.precision:
            return Watched(compute, self._closer)
        return Watched(compute) if in_place else compute

    def _closer(self, args: tuple[Any, ...], before: Array, frame: FrameType | None) -> None:
        """What a sum lost: the op is that of the frame."""
        effect = next(filter(None, map(_effect_in, _frames(frame))), None)
        name = "" if effect is None else self._name(effect[2])
        if effect is None or name not in SUMS:
            return
        *sources, result = args
        given = [before if _same(each, result) else each for each in sources]
        with np.errstate(all="ignore"):
            one, other = given[:2]
            if name in ("Axpy", "MulAddDst"):
                one, other = (np.multiply(one, other, dtype=np.float64).astype(result.dtype), before)
            shown = [each_to_each(*pair, result.shape) for pair in zip(("src0", "src1"), (one, other), strict=True)]
            self._numerics.look_closer(one, other, shown, result, lambda: self._who(effect))

    # What numpy tells

    def raised(self, what: str, frame: FrameType) -> None:
        """A floating-point flag, in what `frame` called."""
        before: Array | None = None
        for each in _frames(frame):
            if not each.f_code.co_filename.startswith(SIMULATOR):
                kind = "first-nan" if what.startswith("invalid") else "overflow"
                self.pending[kind] = Site(each.f_code.co_filename, each.f_lineno, each.f_code.co_name)
                return
            if each.f_code is WATCHED:
                before = each.f_locals["before"]
            effect = _effect_in(each)
            if effect is not None:
                if effect[2] != self._row:
                    self._row = effect[2]
                    with np.errstate(all="ignore"):
                        self._look(effect, before)
                return

    def _look(self, effect: Effect, before: Array | None) -> None:
        """The values of an op whose flags were raised, computed once more beside memory."""
        _, _, row, (*sources, target), deed = effect
        plain = deed.compute.compute if isinstance(deed.compute, Watched) else deed.compute
        name = self._name(row)
        if deed.picks is None:
            old = target if before is None else before
            given = [old if _same(each, target) else each for each in sources]
            result = old.copy()
            plain(*given, result)
        else:
            _, where, result = effects.begin((*effect[:4], deed._replace(compute=plain)))
            given = [each if pick is None else each[pick] for each, pick in zip(sources, deed.picks, strict=False)]
            old = target[where]
        if result.dtype.kind != "f":
            return
        if name == "ReduceSum":
            given = given[:1]  # the others are room to work in
        if name in ("Axpy", "MulAddDst"):
            given.append(old)
        operands = operands_of(given, result, deed.folded)
        self._numerics.look(name, operands, result.reshape(-1), lambda: self._who(effect))

    def _who(self, effect: Effect) -> Involved:
        _, _, row, _, deed = effect
        return self._about(row, deed.lo, deed.hi)

    # What S stores or says

    def scalar(self, value: Any, row: int, lo: int, hi: int) -> None:
        """A value of S is stored or used: is it what its arithmetic made?

        Taken to be if it is of that kind: an infinity that is meant, said after arithmetic that made another one and
        threw it away, is taken for that one.
        """
        kind = "first-nan" if np.isnan(value) else "overflow" if np.isinf(value) else ""
        site = self.pending.pop(kind, None)
        if site is not None:
            made = "NaN" if kind == "first-nan" else "an infinity"
            fact = f"has {made} that arithmetic at {site} made of other numbers"
            self._numerics.report("bad", kind, fact, lambda: self._about(row, lo, hi))

    def findings(self) -> list[Hazard]:
        return self._numerics.findings()


class Watched:
    """`compute`, whose frame has what its target held; `closer` looks at every result."""

    __slots__ = ("_closer", "compute")

    def __init__(self, compute: Callable[..., Any], closer: Callable[..., None] | None = None) -> None:
        self.compute = compute
        self._closer = closer

    def __call__(self, *args: Any) -> None:
        before = args[-1].copy()
        self.compute(*args)
        if self._closer is not None:
            self._closer(args, before, sys._getframe(1))


WATCHED = Watched.__call__.__code__


def operands_of(given: list[Any], result: Array, folded: bool) -> list[Operand]:
    """The sources of an op, each with how it reaches the elements of the result in a row."""
    names = ["src"] if len(given) == 1 else [f"src{number}" for number in range(len(given))]
    return [_operand(name, each, result.size, folded) for name, each in zip(names, given, strict=True)]


def _operand(name: str, given: Any, results: int, folded: bool) -> Operand:
    values = np.asarray(given)
    if values.ndim == 0 or values.size == results:
        return each_to_each(name, values.reshape(-1) if values.ndim else values, (results,))
    if values.size % results == 0 and not folded:
        return in_groups(name, values, results, 1)
    return in_groups(name, values, 1, results)  # blocks of masked lanes, piles of repeats: all of it, errs to silence


def _same(one: Any, other: Array) -> bool:
    return isinstance(one, np.ndarray) and one.shape == other.shape and np.shares_memory(one, other)


def _effect_in(frame: FrameType) -> Effect | None:
    """The effect that a function of `effects` carries out: its local of that name."""
    if frame.f_code.co_filename != effects.__file__:
        return None
    found: Effect | None = frame.f_locals.get("effect")
    return found


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost on outwards."""
    while frame is not None:
        yield frame
        frame = frame.f_back
