"""The gate of the delta rule: it lets rounding pass and refuses the faults that public gates let pass."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from pytest_kernbench.kernels.reference.delta_rule import Inputs, chunked
from pytest_kernbench.kernels.reference.delta_rule_cases import (
    ACCEPTANCE,
    SUITE,
    Case,
    acceptance,
    acceptance_tapped,
    deviation,
)

Array = npt.NDArray[Any]
Results = tuple[Array, Array]
Fault = Literal["", "decay one short", "cumsum not reset", "first-order inverse", "float16 carry"]
F16 = np.dtype(np.float16)

# That of the facts (section 4, "What these gates miss")
PROBE = Case(name="probe", lengths=(200,), heads=(2, 4), dims=(64, 64), mean_g=-0.016)
SMALL = Case(name="small", lengths=(3,), heads=(1, 2), dims=(2, 2), mean_g=-0.1)


def rounded(results: Results) -> Results:
    return results[0].astype(np.float16), results[1].astype(np.float16)


def float64(results: Results) -> Results:
    return results[0].astype(np.float64), results[1].astype(np.float64)


# --- what passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SUITE, ids=lambda case: case.name)
def test_rounding_once_uses_half_of_the_bound(case: Case) -> None:
    verdict = acceptance(*rounded(case.expected()), case)
    assert max(verdict.out.error / verdict.out.bound, verdict.state.error / verdict.state.bound) <= 0.5


@pytest.mark.parametrize("case", SUITE, ids=lambda case: case.name)
def test_the_chunk_form_in_float32_passes(case: Case) -> None:
    results = chunked(*case.inputs(), scale=case.scale, dtype=np.float32)
    verdict = acceptance(*rounded(results), case)
    assert max(verdict.out.error / verdict.out.bound, verdict.state.error / verdict.state.bound) <= 0.51
    acceptance_tapped(*results, case)


# --- what public gates let pass ---------------------------------------------------------------------------------------


def faulty(x: Inputs, fault: Fault, chunk: int = 64) -> Results:
    """The chunk form of one sequence with one of its faults, in float64."""
    group = x.value.shape[1] // x.key.shape[1]
    q, k = (np.repeat(each, group, axis=1).astype(np.float64).swapaxes(0, 1) for each in (x.query, x.key))
    v, beta, g = (each.astype(np.float64).swapaxes(0, 1) for each in (x.value, x.beta, x.g) if each is not None)
    state, outs, before = x.initial_state[0].astype(np.float64).swapaxes(1, 2), [], np.zeros(())
    for at in range(0, q.shape[1], chunk):
        qc, kc, vc, bc = (each[:, at : at + chunk] for each in (q, k, v, beta[:, :, None]))
        sums: Array = np.cumsum(g[:, at : at + chunk], axis=1)[:, :, None] + before
        before = sums[:, -1:] if fault == "cumsum not reset" else np.zeros(())
        decay = np.tril(np.exp(np.minimum(0, sums - sums.swapaxes(1, 2))))
        a, one = -np.tril((bc * kc) @ kc.swapaxes(1, 2) * decay, -1), np.eye(sums.shape[1])
        inverse = one + a if fault == "first-order inverse" else np.linalg.inv(one - a)
        new = inverse @ (bc * (vc - np.exp(sums) * kc @ state))
        outs.append(np.exp(sums) * qc @ state + (qc @ kc.swapaxes(1, 2) * decay) @ new)
        last = sums[:, -2:-1] if fault == "decay one short" else sums[:, -1:]
        state = np.exp(last) * state + (np.exp(last - sums) * kc).swapaxes(1, 2) @ new
        if fault == "float16 carry":
            state = state.astype(np.float16).astype(np.float64)
    return np.concatenate(outs, axis=1).swapaxes(0, 1), state.swapaxes(1, 2)[None]


def rms_ratio(got: Array, want: Array) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def cosine(got: Array, want: Array) -> float:
    return float((got * want).sum() / np.linalg.norm(got) / np.linalg.norm(want))


def public_gates(results: Results, expected: Results) -> set[str]:
    """Those of the public suites (facts, section 4) that let these results pass."""
    gates: dict[str, Callable[[Array, Array], bool]] = {
        "rms 0.005": lambda got, want: rms_ratio(got, want) < 0.005,
        "1e-2": lambda got, want: np.allclose(got, want, rtol=1e-2, atol=1e-2),
        "3e-3 2e-3": lambda got, want: np.allclose(got, want, rtol=3e-3, atol=2e-3),
        "cosine": lambda got, want: cosine(got, want) >= 0.99,
    }
    pairs = list(zip(float64(results), expected, strict=True))
    return {name for name, gate in gates.items() if all(gate(*pair) for pair in pairs)}


ALL = {"rms 0.005", "1e-2", "3e-3 2e-3", "cosine"}


@pytest.mark.parametrize("mean_g", [-5e-4, -0.016, -0.48])
def test_without_a_fault_every_gate_passes(mean_g: float) -> None:
    case = replace(PROBE, mean_g=mean_g)
    results = rounded(faulty(case.inputs(), ""))
    acceptance(*results, case)
    assert public_gates(results, case.expected()) == ALL


@pytest.mark.parametrize(
    ("fault", "mean_g", "passes"),
    [
        ("decay one short", -0.48, {"cosine"}),  # its state is off by 0.7 of its rms
        ("cumsum not reset", -0.48, {"cosine"}),
        ("first-order inverse", -0.016, {"cosine"}),
        ("decay one short", -5e-4, ALL),
        ("float16 carry", -5e-4, ALL),
        ("float16 carry", -0.016, ALL),
        ("float16 carry", -0.48, ALL),
    ],
)
def test_a_fault_that_public_gates_let_pass_is_refused(fault: Fault, mean_g: float, passes: set[str]) -> None:
    case = replace(PROBE, mean_g=mean_g)
    results = rounded(faulty(case.inputs(), fault))

    assert public_gates(results, case.expected()) == passes
    with pytest.raises(AssertionError, match=r"^probe: not the gated delta rule as float16 allows it\n"):
        acceptance(*results, case)


def test_a_state_scaled_by_a_wrong_last_decay_has_a_cosine_of_one() -> None:
    case = replace(PROBE, mean_g=-0.48)
    _, state = faulty(case.inputs(), "decay one short")
    assert rms_ratio(state, case.expected()[1]) == pytest.approx(0.72, abs=0.05)
    assert cosine(state, case.expected()[1]) > 0.99


# --- the message ------------------------------------------------------------------------------------------------------


def test_the_message_has_the_worst_element_both_numbers_the_ulp_and_the_rms_ratio() -> None:
    out, state = rounded(SMALL.expected())
    want = float(SMALL.expected()[0][2, 1, 0])
    out[2, 1, 0] += 1

    with pytest.raises(AssertionError) as refused:
        acceptance(out, state, SMALL)

    head, line = str(refused.value).splitlines()
    ulp = 2.0 ** (np.floor(np.log2(abs(want))) - 10)
    assert head == "small: not the gated delta rule as float16 allows it"
    assert line.startswith(f"out[2, 1, 0] is {float(out[2, 1, 0]):.9g}, expected {want:.9g}: off by ")
    assert f" float16 ulp of {ulp:.3g}, allowed " in line
    assert line.endswith(", allowed 0.0003")
    assert "rms ratio 0." in line


def test_both_results_are_reported() -> None:
    out, state = rounded(SMALL.expected())
    with pytest.raises(AssertionError, match=r"\nout\[.*\nfinal_state\["):
        acceptance(out + F16.type(1), state + F16.type(1), SMALL)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_single_element_that_is_not_finite_is_refused(poison: float) -> None:
    out, state = rounded(SMALL.expected())
    state[0, 1, 1, 0] = poison
    with pytest.raises(AssertionError, match=rf"final_state\[0, 1, 1, 0\] is {poison}, expected"):
        acceptance(out, state, SMALL)


@pytest.mark.parametrize(("off", "passes"), [(0.0, True), (0.99, True), (1.2, False)])
def test_an_element_may_be_off_by_an_ulp(off: float, passes: bool) -> None:
    want = np.full(1000, 1.5)
    got = want.copy()
    got[7] += off * 2**-10
    assert deviation("out", got, want).passed == passes


def test_many_elements_may_not_be_off_by_an_ulp() -> None:
    want = np.full(1000, 1.0)
    found = deviation("out", want + 0.4 * 2**-10, want)
    assert found.error < found.bound
    assert found.rms_ratio > 3e-4
    assert not found.passed


@pytest.mark.parametrize(
    ("value", "ulp"),
    [(1.0, 2**-10), (1.9999, 2**-10), (-2.0, 2**-9), (2.0**-14, 2**-24), (1e-7, 2**-24), (0.0, 2**-24), (6e4, 32.0)],
)
def test_the_ulp_is_that_of_the_references_binade(value: float, ulp: float) -> None:
    assert deviation("out", np.array([value]), np.array([value])).ulp == ulp


def test_of_a_reference_of_zeros_nothing_may_be_off() -> None:
    assert deviation("out", np.zeros(3), np.zeros(3)).passed
    assert not deviation("out", np.full(3, 2.0**-24), np.zeros(3)).passed


def test_float32_results_are_held_against_their_own_bound() -> None:
    out, state = (each.astype(np.float32) for each in SMALL.expected())
    largest = float(np.abs(out).max())
    acceptance_tapped(out + np.float32(3e-6 * largest), state, SMALL)
    with pytest.raises(
        AssertionError, match=r"^small: out is off by 7\.\d+e-06 of the largest reference, allowed 5e-06"
    ):
        acceptance_tapped(out + np.float32(7e-6 * largest), state, SMALL)
    with pytest.raises(AssertionError, match=r"^small: final_state is off by "):
        acceptance_tapped(out, state * np.float32(1 + 7e-6), SMALL)


def test_results_of_another_kind_are_refused() -> None:
    out, state = rounded(SMALL.expected())
    with pytest.raises(ValueError, match=r"^small: out is float64 \(3, 2, 2\), expected float16 \(3, 2, 2\)"):
        acceptance(out.astype(np.float64), state, SMALL)
    with pytest.raises(
        ValueError, match=r"^small: final_state is float16 \(2, 2, 2\), expected float16 \(1, 2, 2, 2\)"
    ):
        acceptance(out, state[0], SMALL)
    with pytest.raises(ValueError, match=r"^small: out is float16 \(3, 2, 2\), expected float32"):
        acceptance_tapped(out, state, SMALL)


# --- the list ---------------------------------------------------------------------------------------------------------


def test_every_value_that_the_facts_recommend_occurs() -> None:
    single = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130, 194, 500, 1000}
    batches = {(1, 64, 130, 7), (13, 20), (15, 85, 200, 900, 800), (128, 0, 128), (0, 5), (64, 64)}
    assert {case.lengths for case in ACCEPTANCE} == {(t,) for t in single} | batches
    assert {case.heads for case in ACCEPTANCE} == {(1, 1), (2, 4), (2, 8), (16, 32), (16, 48), (3, 3)}
    square = {(each, each) for each in (128, 64, 80, 96, 100, 60)}
    assert {case.dims for case in ACCEPTANCE} == square | {(128, 256), (16, 12), (80, 96)}
    assert {case.mean_g for case in ACCEPTANCE} == {0.0, -5e-4, -0.016, -0.48, -48.0, None}
    assert {case.mask for case in ACCEPTANCE} == {0.0, 0.5}
    assert {case.state for case in ACCEPTANCE} == {"zero", "random"}
    assert {case.scale == 1.0 for case in ACCEPTANCE} == {True, False}
    assert all(case.scale in (1.0, case.dims[0] ** -0.5) for case in ACCEPTANCE)


def test_the_suite_is_a_small_part_that_still_has_every_kind() -> None:
    assert set(SUITE) < set(ACCEPTANCE)
    assert {case.mean_g for case in SUITE} == {case.mean_g for case in ACCEPTANCE}
    assert {case.heads[1] // case.heads[0] for case in SUITE} >= {1, 2, 4}
    assert {case.state for case in SUITE} == {"zero", "random"}
    assert {sum(n % 64 == 0 for n in case.lengths) > 0 for case in SUITE} == {True, False}
    assert any(0 in case.lengths for case in SUITE)
    assert sum(case.state_rows for case in SUITE) < 30_000


def test_names_tell_the_cases_apart() -> None:
    assert len({case.name for case in ACCEPTANCE}) == len(ACCEPTANCE)
    assert ACCEPTANCE[5].name == "16 heads 3:3 dims 16x12 g -0.0005 mask 0.5 S0 zero"
    assert ACCEPTANCE[6].name == "17 heads 2:4 dims 16x12 without g S0 random scaled"


def test_a_case_always_has_the_same_inputs_and_results() -> None:
    first, second = SMALL.inputs(), replace(SMALL, name="again").inputs()
    assert all((a == b).all() for a, b in zip(first, second, strict=True) if a is not None and b is not None)
    assert (replace(SMALL, seed=1).inputs().query != first.query).any()
    assert [each.dtype for each in first[:5]] == [F16] * 5
    with pytest.raises(ValueError, match="read-only"):
        SMALL.expected()[0][:] = 0


@pytest.mark.parametrize("case", [case for case in ACCEPTANCE if case.state_rows < 300_000], ids=lambda case: case.name)
def test_no_case_hides_a_fault(case: Case) -> None:
    """The traps of the facts, section 2."""
    x = case.inputs()
    assert np.abs(x.query - x.key).max(axis=2).min() > 0.05
    assert 0 < x.beta.min() <= x.beta.max() < 1
    assert float((x.key.astype(np.float32) ** 2).sum(axis=2).max()) < 1.01
    corner = x.initial_state[..., :12, :12]
    assert case.state == "zero" or np.abs(corner - corner.swapaxes(-1, -2)).max() > 1
