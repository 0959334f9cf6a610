"""A finding of any kind can be allowed for one test with a reason, on either device; a stale allowance fails.

Parameters are judged one by one, also on workers; notes fail nothing, so they are not allowed either.
"""

import pytest

from pytest_kernbench.hazards import KINDS, NOTES, Allowance, refused
from pytest_kernbench.simulator.errors import Hazard

TESTS = """
import numpy as np
import pytest
from pytest_kernbench.simulator.errors import KernelError

def sub_of_infinities(x, y, *, tl):
    m = tl.full((8, 64), float("-inf"))
    tl.wait(tl.store(y, m - m))

def left_over(x, y, *, tl):
    tl.store(y, tl.zeros((8, 64)))

def refused(x, y, *, tl):
    tl.store(y, tl.zeros((8, 64)))
    s = tl.composite("gemm", tl.load(x, (8, 64)), tl.ref(x, (8, 64)), trans_b=True)
    s + 1.0
    tl.load(x, (9, 64))

def clean(x, y, *, tl):
    tl.wait(tl.store(y, tl.load(x, (8, 64)) + 1.0))

def v_sub(x, y, *, asc):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 1024)
    t = buf.Get(asc.float32)
    asc.Duplicate(t, float("-inf"), 64)
    asc.PipeBarrier(asc.PIPE_V)
    asc.Sub(t[64], t, t, 64)

def v_racy(x, y, *, asc):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 1024)
    t = buf.Get(asc.float32)
    asc.Duplicate(t, 1.0, 64)
    asc.Adds(t[64], t, 1.0, 64)

def v_racy_and_refused(x, y, *, asc):
    v_racy(x, y, asc=asc)
    asc.GetNothing()

@pytest.fixture
def run(run_kernel, ahbm_chip, ascend310p_core):
    def run(kernel, **how):
        device = ascend310p_core if kernel.__name__.startswith("v_") else ahbm_chip
        place = {} if device is ascend310p_core else {"place": "replicate"}
        x = device.tensor("x", (8, 64), "float32", np.ones((8, 64)), **place)
        return run_kernel(kernel, x, device.tensor("y", (8, 64), "float32"), on=device, **how)
    return run
"""
RACY = """
@pytest.mark.allow_hazard("{kind}", reason="issue 7")
@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
@pytest.mark.parametrize("kernel", [{kernel}])
def test_it(run, kernel, schedule): run(kernel, schedule=schedule)
"""


@pytest.mark.parametrize(
    ("kind", "kernel"),
    [
        ("first-nan", "sub_of_infinities"),
        ("op-in-flight-at-exit", "left_over"),
        ("first-nan", "v_sub"),
        ("race-raw", "v_racy"),
    ],
)
def test_an_allowed_finding_passes_under_every_schedule(project: pytest.Pytester, kind: str, kernel: str) -> None:
    project.makepyfile(TESTS + RACY.format(kind=kind, kernel=kernel))

    project.runpytest().assert_outcomes(passed=3)


def test_a_parameter_without_the_finding_is_stale_and_the_others_are_not(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS + RACY.format(kind="first-nan", kernel="sub_of_infinities, clean, v_sub"))

    project.runpytest().assert_outcomes(passed=9, errors=3)


def test_workers_judge_allowances_alike(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    project.makepyfile(TESTS + RACY.format(kind="first-nan", kernel="sub_of_infinities, clean, v_sub"))

    result = project.runpytest_subprocess("-p", "xdist", "-n", "2", timeout=60)

    result.assert_outcomes(passed=9, errors=3)
    result.stdout.fnmatch_lines(['*allow_hazard("first-nan", reason="issue 7") is stale*'])


@pytest.mark.parametrize("kernel", ["refused", "v_racy_and_refused"])
def test_a_finding_before_the_error_that_ends_the_run_uses_its_allowance(project: pytest.Pytester, kernel: str) -> None:
    project.makepyfile(
        f"""{TESTS}
@pytest.mark.allow_hazard("race-raw", reason="issue 7")
def test_it(run):
    with pytest.raises(KernelError) as caught:
        run({kernel})
    assert [each.kind for each in caught.value.hazards][0] == "race-raw"
    assert caught.value.hazards[-1] is caught.value.hazard
"""
    )

    project.runpytest().assert_outcomes(passed=1)


@pytest.mark.parametrize("kind", NOTES)
def test_a_note_cannot_be_allowed(project: pytest.Pytester, kind: str) -> None:
    project.makepyfile(TESTS + RACY.format(kind=kind, kernel="clean"))

    result = project.runpytest()

    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines([f"*{kind} is a note, in run.notes; it fails nothing: remove the mark"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_lets_its_own_findings_pass_and_no_others(kind: str) -> None:
    allowance = Allowance(kind, "issue 7")
    hazards = [Hazard(each, "found") for each in KINDS]

    left = refused(hazards, [allowance])

    assert [hazard.kind for hazard in left] == [each for each in KINDS if each != kind]
    assert allowance.matched == 1
