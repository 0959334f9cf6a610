"""The fixtures of a user's project: a chip of its own numbers, and `run_kernel`, where a finding fails the test.

The kernels have a race that no assertion asks about: only the checkers can fail these tests.
"""

import re
from collections.abc import Callable

import pytest

Outcome = Callable[..., pytest.RunResult]

KERNELS = """
import pytest

SHAPE = (32, 64)

def clean(q, k, *, tl):
    tl.exp(tl.wait(tl.composite("gemm", tl.load(q, SHAPE), tl.ref(k, SHAPE), trans_b=True)))

def racy(q, k, *, tl):
    scores = tl.composite("gemm", tl.load(q, SHAPE), tl.ref(k, SHAPE), trans_b=True)
    tl.exp(scores)  # the race
    tl.wait(scores)

def refused(q, k, *, tl):
    tl.load(q, (64, 64))  # the refusal

def stuck(q, k, *, tl):
    tl.recv("E" if tl.program_id() == 0 else "W", (1, 8))

@pytest.fixture
def run(run_kernel, ahbm_chip):
    q, k = ahbm_chip.tensor("Q", SHAPE), ahbm_chip.tensor("K", SHAPE)
    return lambda kernel, **how: run_kernel(kernel, q, k, on=ahbm_chip, **how)
"""


@pytest.fixture
def outcome(project: pytest.Pytester) -> Outcome:
    """`outcome(source)`: run a test file that begins with `KERNELS`."""

    def outcome(source: str, *args: str) -> pytest.RunResult:
        project.makepyfile(KERNELS + source)
        return project.runpytest(*args)

    return outcome


# Findings


def test_a_finding_fails_the_test_though_nothing_was_asserted(outcome: Outcome) -> None:
    result = outcome("def test_it(run): run(racy)")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*HazardError: race-raw (1 in all)", "*race-raw: exp on MATH of PE0, *", "*; wait for *"]
    )
    assert f"nothing_was_asserted.py:{line('# the race')} in racy" in result.stdout.str()


def test_a_clean_run_passes_and_returns_what_it_did(outcome: Outcome) -> None:
    result = outcome("""
def test_it(run):
    run_ = run(clean, schedule="jitter", seed=4)
    assert (run_.schedule, run_.seed, run_.hazards) == ("jitter", 4, ())
    assert run_.log.where(name="composite").program.tolist() == [0]
    assert run(clean, grid=2, placement=(1, 0)).log.pes == [1, 0]
    assert run_.checked and not run(clean, check=False).checked
""")

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(("check", "findings"), [('"collect"', 1), ("False", 0)])
def test_findings_are_only_listed_or_not_looked_for(outcome: Outcome, check: str, findings: int) -> None:
    result = outcome(f"""
def test_it(run):
    assert [each.kind for each in run(racy, check={check}).hazards] == ["race-raw"] * {findings}
""")

    result.assert_outcomes(passed=1)


def test_findings_can_be_expected_as_an_error(outcome: Outcome) -> None:
    result = outcome("""
from pytest_kernbench.simulator.errors import HazardError

def test_it(run):
    with pytest.raises(HazardError) as caught:
        run(racy)
    assert [each.kind for each in caught.value.hazards] == ["race-raw"]
""")

    result.assert_outcomes(passed=1)


# Allowances


def test_an_allowed_finding_does_not_fail_the_test_and_stays_visible(outcome: Outcome) -> None:
    result = outcome("""
@pytest.mark.allow_hazard("race-raw", reason="issue 7")
def test_it(run):
    assert [each.kind for each in run(racy).hazards] == ["race-raw"]
    run(clean)
""")

    result.assert_outcomes(passed=1)


def test_an_allowance_of_another_kind_lets_nothing_pass(outcome: Outcome) -> None:
    result = outcome("""
@pytest.mark.allow_hazard("race-war", reason="issue 7")
def test_it(run): run(racy)
""")

    result.assert_outcomes(failed=1)  # and no error beside it: the run ended before it could prove the mark stale
    result.stdout.fnmatch_lines(["*race-raw: *"])


def test_a_stale_allowance_fails_at_teardown_with_its_kind_and_reason(outcome: Outcome) -> None:
    result = outcome("""
@pytest.mark.allow_hazard("race-raw", reason="issue 7")
def test_it(run): run(clean)
""")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ['allow_hazard("race-raw", reason="issue 7") is stale: no run of this test had a race-raw; remove the mark']
    )


def test_an_allowance_is_judged_by_the_whole_test_and_by_each_parameter(outcome: Outcome) -> None:
    result = outcome("""
@pytest.mark.allow_hazard("race-raw", reason="issue 7")
@pytest.mark.parametrize("kernels", [(clean, racy), (clean, clean)], ids=["one", "none"])
def test_it(run, kernels):
    for kernel in kernels:
        run(kernel)
""")

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_it?none?*"])


@pytest.mark.parametrize("check", ["'collect'", "True"])
def test_a_finding_that_is_collected_or_ends_the_run_uses_its_allowance(outcome: Outcome, check: str) -> None:
    result = outcome(f"""
from pytest_kernbench.simulator.errors import KernelError

@pytest.mark.allow_hazard("race-raw", reason="issue 7")
@pytest.mark.allow_hazard("out-of-bounds", reason="issue 8")
def test_it(run):
    run(racy, check={check})
    with pytest.raises(KernelError):
        run(refused)
""")

    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('"race-raw"', "allow_hazard('race-raw') gives no reason: say why*"),
        ('"race-rwa", reason="issue 7"', "*there is no such kind; nearest: race-*"),
        ('"race-rwa", reason="issue 7"', "kinds: race-raw, race-war, race-waw, use-after-recycle, *"),
        ('reason="issue 7"', "allow_hazard(reason='issue 7') is not allow_hazard*"),
    ],
)
def test_a_mark_that_says_it_wrong_is_an_error_before_the_test_runs(outcome: Outcome, said: str, message: str) -> None:
    result = outcome(f"""
@pytest.mark.allow_hazard({said})
def test_it(run): run(racy)
""")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*fixtures.py*")


# What a kernel raises


def test_an_error_of_a_kernel_shows_the_test_and_the_kernel_but_not_the_simulator(outcome: Outcome) -> None:
    result = outcome("def test_it(run): run(refused)", "--tb=short")

    result.assert_outcomes(failed=1)
    places = re.findall(r"^(\S+\.py):(\d+): in (\w+|<lambda>)$", result.stdout.str(), re.MULTILINE)
    assert [function for _, _, function in places] == ["test_it", "<lambda>", "refused"]
    assert int(places[-1][1]) == line("# the refusal")
    result.stdout.fnmatch_lines(["E   *KernelError: out-of-bounds: tl.load of PE0 at *: elements 0..4095 of Q*"])


def test_a_deadlock_shows_the_test_alone(outcome: Outcome) -> None:
    result = outcome("def test_it(run): run(stuck, grid=2)", "--tb=short")

    result.assert_outcomes(failed=1)
    places = re.findall(r"^\S+\.py:\d+: in (\w+|<lambda>)$", result.stdout.str(), re.MULTILINE)
    assert places == ["test_it", "<lambda>"]
    result.stdout.fnmatch_lines(["E   *DeadlockError: deadlock: *"])


@pytest.mark.parametrize(("option", "files"), [("--full-trace", True), ("--tb=long", False)])
def test_a_full_trace_has_the_simulator_too(outcome: Outcome, option: str, files: bool) -> None:
    result = outcome(
        f"""
from pytest_kernbench.simulator.errors import KernelError

def test_it(run):
    with pytest.raises(KernelError) as caught:
        run(refused)
    assert ("chip.py" in [entry.path.name for entry in caught.traceback]) == {files}
""",
        option,
    )

    result.assert_outcomes(passed=1)


def test_a_kernel_is_run_on_something(outcome: Outcome) -> None:
    result = outcome("def test_it(run_kernel): run_kernel(clean)")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TypeError: *missing 1 required keyword-only argument: 'on'"])


# The chip


def test_a_mark_sets_numbers_of_the_chip_for_one_test(outcome: Outcome) -> None:
    result = outcome("""
@pytest.mark.ahbm(mesh_rows=1, mesh_cols=2, issue_costs=0)
def test_marked(ahbm_chip, ahbm_spec):
    assert ahbm_chip.spec == ahbm_spec
    assert (ahbm_spec.pes_per_cube, ahbm_spec.issue_costs["math"]) == (2, 0)

def test_plain(ahbm_spec):
    assert (ahbm_spec.pes_per_cube, ahbm_spec.issue_costs["math"]) == (8, 8)

@pytest.mark.ahbm(mesh_rows=1)
class TestClosest:
    @pytest.mark.ahbm(mesh_cols=2)
    def test_it(self, ahbm_spec): assert (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols) == (2, 2)
""")

    result.assert_outcomes(passed=3)


def test_a_test_starts_with_a_chip_that_nobody_has_used(outcome: Outcome) -> None:
    result = outcome("""
chips = []

@pytest.mark.parametrize("number", range(2))
def test_it(ahbm_chip, number):
    assert ahbm_chip not in chips
    chips.append(ahbm_chip)
    assert ahbm_chip.tensor("Q", (1, 1)).offset == 0
""")

    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("mesh_row=2", "ahbm(mesh_row=2): AhbmSpec has no such field; nearest: mesh_rows*"),
        ("zzz=2", "ahbm(zzz=2): AhbmSpec has no such field; nearest: clock_mhz, mesh_rows, *"),
        ("mesh_rows=0", "ahbm mark: spec field mesh_rows = 0: wants a whole number *"),
        ("2, 4", "ahbm(2, 4): name the fields*"),
    ],
)
def test_a_wrong_field_is_an_error_with_a_remedy(outcome: Outcome, said: str, message: str) -> None:
    result = outcome(f"""
@pytest.mark.ahbm({said})
def test_it(ahbm_chip): pass
""")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*fixtures.py*")


def test_a_conftest_overrides_the_spec_and_marks_still_count(outcome: Outcome, project: pytest.Pytester) -> None:
    project.makeconftest("""
import dataclasses
import pytest

@pytest.fixture
def ahbm_spec(ahbm_spec):
    return dataclasses.replace(ahbm_spec, scratch_bytes=4096)
""")

    result = outcome("""
def test_plain(ahbm_chip):
    assert (ahbm_chip.spec.scratch_bytes, ahbm_chip.spec.mesh_rows) == (4096, 2)

@pytest.mark.ahbm(mesh_rows=1)
def test_marked(ahbm_chip):
    assert (ahbm_chip.spec.scratch_bytes, ahbm_chip.spec.mesh_rows) == (4096, 1)
""")

    result.assert_outcomes(passed=2)


def line(text: str) -> int:
    """The line of a test file that begins with `KERNELS` on which `text` stands."""
    return next(number for number, each in enumerate(KERNELS.strip().splitlines(), 1) if text in each)


def test_what_is_no_device_and_what_is_no_run_are_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_no_device(run_kernel):
            with pytest.raises(ValueError, match="on is None: wants a device, such as the fixture ahbm_chip"):
                run_kernel(lambda *, tl: None, on=None)

        def test_no_run(oplog_snapshot):
            with pytest.raises(ValueError, match="run is 3: wants what run_kernel returned"):
                oplog_snapshot.assert_matches(3)
        """
    )

    pytester.runpytest().assert_outcomes(passed=2)
