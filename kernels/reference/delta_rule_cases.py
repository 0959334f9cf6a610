"""Which inputs a kernel of the gated delta rule is accepted on, and what it may be off by. PYTEST_DONT_REWRITE

The gate is as narrow as float16 outputs allow: a kernel that computes in float32 and rounds once passes, faults that
the gates of public suites let through do not (facts of the gated delta rule, sections 3 and 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.kernels.reference.delta_rule import Inputs, State, random_delta_rule, recurrent

Array = npt.NDArray[Any]

RMS_RATIO = 3e-4
"""The largest rms(error) / rms(reference); rounding to float16 alone makes 2.1e-4."""

OF_LARGEST = 2e-6
"""Of the largest reference: what float32 arithmetic may add to an error of one float16 ulp."""

TAPPED = 5e-6
"""The largest error of a float32 result before its rounding, in units of the largest reference."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of the operator: `lengths` of its sequences, `heads` (Hk, Hv), `dims` (Dk, Dv).

    `mean_g` is the mean log decay, None for a call without g; a share `mask` of g is exactly 0. Hashable, and the same
    case always has the same inputs.
    """

    name: str
    lengths: tuple[int, ...]
    heads: tuple[int, int]
    dims: tuple[int, int]
    mean_g: float | None
    mask: float = 0.0
    state: State = "random"
    scale: float = 1.0
    seed: int = 0

    def inputs(self) -> Inputs:
        """In float16, g in float32, of the kind that hides no fault (`random_delta_rule`)."""
        return random_delta_rule(
            self.seed, self.lengths, self.heads, self.dims, mean_g=self.mean_g, mask=self.mask, state=self.state
        )

    def expected(self) -> tuple[Array, Array]:
        """`out` and `final_state` of the recurrence in float64 on the same float16 inputs; read-only."""
        return _expected(self)

    @property
    def state_rows(self) -> int:
        """Rows of Dv numbers that a kernel reads and writes for all its tokens: its time goes with them."""
        return sum(self.lengths) * self.heads[1] * self.dims[0]


@lru_cache(maxsize=4)
def _expected(case: Case) -> tuple[Array, Array]:
    out, state = recurrent(*case.inputs(), scale=case.scale)
    out.flags.writeable = state.flags.writeable = False
    return out, state


# --- the gate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deviation:
    """How far one result is from its reference: at the element that uses most of its bound, and altogether.

    `ulp` is that of float16 at the reference there, `bound` what an error may be there, `rms_ratio`
    rms(error) / rms(reference) and `largest_ratio` the largest error in units of the largest reference.
    """

    what: str
    index: tuple[int, ...]
    got: float
    want: float
    ulp: float
    bound: float
    rms_ratio: float
    largest_ratio: float

    @property
    def error(self) -> float:
        return abs(self.got - self.want)

    @property
    def passed(self) -> bool:
        """False for NaN as well."""
        return self.error <= self.bound and self.rms_ratio <= RMS_RATIO

    def __str__(self) -> str:
        return (
            f"{self.what}{list(self.index)} is {self.got:.9g}, expected {self.want:.9g}: off by {self.error:.3g}, "
            f"{self.error / self.ulp:.2f} float16 ulp of {self.ulp:.3g}, allowed {self.bound:.3g}; "
            f"rms ratio {self.rms_ratio:.3g}, allowed {RMS_RATIO:g}"
        )


@dataclass(frozen=True)
class Verdict:
    """What the gate measured on a case that it let pass."""

    out: Deviation
    state: Deviation

    def __str__(self) -> str:
        return f"{self.out}\n{self.state}"


def acceptance(out: Array, state: Array, case: Case) -> Verdict:
    """Hold a kernel's float16 results against the float64 recurrence on the same inputs, `out` and `state` alike.

    Every element within one float16 ulp of the reference + 2e-6 of the largest reference, and the rms ratio at most
    3e-4. Raises AssertionError with the worst element, and ValueError for results that are not float16 of the case's
    shapes: out [T, Hv, Dv], state [B, Hv, Dv, Dk].
    """
    verdict = _measured(out, state, case, np.float16)
    failed = [str(each) for each in (verdict.out, verdict.state) if not each.passed]
    if failed:
        raise AssertionError("\n".join([f"{case.name}: not the gated delta rule as float16 allows it", *failed]))
    return verdict


def acceptance_tapped(out: Array, state: Array, case: Case) -> Verdict:
    """The same for float32 results as they are before their rounding: at most 5e-6 of the largest reference off."""
    verdict = _measured(out, state, case, np.float32)
    for each in (verdict.out, verdict.state):
        if not each.largest_ratio <= TAPPED:
            raise AssertionError(
                f"{case.name}: {each.what} is off by {each.largest_ratio:.3g} of the largest reference, allowed "
                f"{TAPPED:g} in float32; {each}"
            )
    return verdict


def _measured(out: Array, state: Array, case: Case, dtype: npt.DTypeLike) -> Verdict:
    results, wanted = {"out": out, "final_state": state}, case.expected()
    for (what, got), want in zip(results.items(), wanted, strict=True):
        if got.shape != want.shape or got.dtype != dtype:
            raise ValueError(
                f"{case.name}: {what} is {got.dtype} {got.shape}, expected {np.dtype(dtype)} {want.shape}: pass it in "
                "the operator's own layout"
            )
    return Verdict(*(deviation(what, got, want) for (what, got), want in zip(results.items(), wanted, strict=True)))


def deviation(what: str, got: Array, want: Array) -> Deviation:
    """Measure `got` of any float dtype against the float64 `want` of the same shape, which has an element at least."""
    exact = got.astype(np.float64)
    error, largest = np.abs(exact - want), float(np.abs(want).max())
    bound = _float16_ulp(want) + OF_LARGEST * largest
    worst = int((error / bound).argmax())  # which takes NaN for the largest
    at = np.unravel_index(worst, want.shape)
    return Deviation(
        what=what,
        index=tuple(int(each) for each in at),
        got=float(exact[at]),
        want=float(want[at]),
        ulp=float(_float16_ulp(want)[at]),
        bound=float(bound[at]),
        rms_ratio=_ratio(float(np.linalg.norm(error)), float(np.linalg.norm(want))),
        largest_ratio=_ratio(float(error.max()), largest),
    )


def _float16_ulp(values: Array) -> Array:
    """The spacing of float16 in the binade of each value, 2**-24 below the normal numbers."""
    _, exponent = np.frexp(np.where(values == 0, 2.0**-24, values))
    ulp: Array = np.ldexp(1.0, np.maximum(exponent - 11, -24))
    return ulp


def _ratio(part: float, whole: float) -> float:
    """0 of nothing is 0."""
    if not whole:
        return 0.0 if not part else float("inf")
    return part / whole


# --- the cases --------------------------------------------------------------------------------------------------------

_Row = tuple[tuple[int, ...], tuple[int, int], tuple[int, int], float | None, float, State, bool]

# lengths, (Hk, Hv), (Dk, Dv), mean g, mask, state, whether the scale is Dk**-0.5 or 1
_ROWS: tuple[_Row, ...] = (
    ((1,), (2, 4), (16, 12), -0.48, 0.0, "random", False),
    ((1,), (16, 48), (128, 128), -0.016, 0.0, "random", True),
    ((2,), (2, 8), (16, 12), -48.0, 0.0, "random", True),
    ((15,), (1, 1), (60, 60), 0.0, 0.0, "random", False),
    ((15,), (16, 32), (128, 128), -0.48, 0.0, "random", True),
    ((16,), (3, 3), (16, 12), -5e-4, 0.5, "zero", False),
    ((17,), (2, 4), (16, 12), None, 0.0, "random", True),
    ((17,), (1, 1), (80, 96), -0.016, 0.0, "zero", False),
    ((63,), (1, 1), (16, 12), -0.016, 0.0, "random", False),
    ((63,), (2, 4), (128, 256), -0.48, 0.5, "random", True),
    ((64,), (1, 1), (16, 12), -5e-4, 0.0, "random", True),
    ((64,), (2, 4), (64, 64), None, 0.0, "random", False),
    ((64,), (16, 48), (16, 12), -0.016, 0.5, "zero", True),
    ((65,), (1, 1), (16, 12), 0.0, 0.0, "random", False),
    ((65,), (2, 8), (100, 100), -0.016, 0.0, "random", True),
    ((127,), (3, 3), (80, 80), -0.48, 0.0, "zero", False),
    ((128,), (2, 4), (96, 96), -0.016, 0.5, "random", True),
    ((129,), (1, 1), (16, 12), -0.016, 0.5, "random", False),
    ((129,), (2, 4), (80, 96), -48.0, 0.5, "random", False),
    ((130,), (2, 4), (128, 128), -5e-4, 0.0, "random", True),
    ((194,), (2, 4), (64, 64), -0.016, 0.0, "random", False),
    ((500,), (3, 3), (60, 60), -5e-4, 0.5, "random", True),
    ((1000,), (2, 8), (64, 64), -0.016, 0.0, "random", False),
    ((1000,), (1, 1), (128, 128), 0.0, 0.0, "zero", True),
    ((1, 64, 130, 7), (1, 1), (16, 12), -0.016, 0.0, "random", True),
    ((1, 64, 130, 7), (2, 4), (128, 128), -0.48, 0.5, "random", False),
    ((13, 20), (2, 4), (16, 12), -0.016, 0.0, "random", False),
    ((13, 20), (16, 48), (128, 128), -5e-4, 0.0, "random", True),
    ((15, 85, 200, 900, 800), (2, 4), (100, 100), -0.016, 0.5, "random", True),
    ((128, 0, 128), (1, 1), (16, 12), -0.016, 0.0, "random", False),
    ((128, 0, 128), (2, 8), (60, 60), 0.0, 0.0, "random", True),
    ((0, 5), (2, 4), (16, 12), -5e-4, 0.0, "random", False),
    ((0, 5), (1, 1), (128, 256), None, 0.0, "random", True),
    ((64, 64), (1, 1), (16, 12), -0.48, 0.0, "random", True),
    ((64, 64), (16, 32), (64, 64), -0.016, 0.0, "zero", False),
)


def _case(row: _Row) -> Case:
    lengths, (hk, hv), (dk, dv), mean_g, mask, state, scaled = row
    gates = "without g" if mean_g is None else f"g {mean_g:g}" + f" mask {mask:g}" * (mask > 0)
    name = f"{'+'.join(map(str, lengths))} heads {hk}:{hv} dims {dk}x{dv} {gates} S0 {state}" + " scaled" * scaled
    return Case(
        name=name,
        lengths=lengths,
        heads=(hk, hv),
        dims=(dk, dv),
        mean_g=mean_g,
        mask=mask,
        state=state,
        scale=dk**-0.5 if scaled else 1.0,
    )


ACCEPTANCE = tuple(_case(row) for row in _ROWS)
"""Every length, batch, head ratio, width, decay, state and scale of the facts' recommendation (section 4)."""

SUITE = tuple(case for case in ACCEPTANCE if case.state_rows <= 4096)
"""Those that are small enough to simulate in a test suite."""
