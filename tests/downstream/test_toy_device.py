"""A device that the package has never heard of: its repository's tests pass, and a fault in it fails the contract.

`toy_device` is copied out of the checkout and run there.
"""

import shutil
from pathlib import Path

import pytest

import pytest_kernbench.contract
import pytest_kernbench.simulator.checks
import pytest_kernbench.simulator.ops.difference
from pytest_kernbench import simulator
from pytest_kernbench.contract import DeviceContract

TOY = Path(__file__).parent / "toy_device"


@pytest.fixture
def repository(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A copy of the repository, in which only kernbench and syrupy are loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p kernbench -p syrupy -p no:cacheprovider")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)  # the run in it is nobody's worker
    shutil.copytree(TOY, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return pytester


def test_its_tests_pass_with_the_contract_among_them(repository: pytest.Pytester) -> None:
    result = repository.runpytest_inprocess()

    contract = [name for name in vars(DeviceContract) if name.startswith("test_")]
    assert result.ret == 0
    assert len(contract) >= 18
    assert result.parseoutcomes()["passed"] > len(contract)
    result.stdout.fnmatch_lines(["ADR-7003: 3 of 3 normative clauses verified"])


def test_its_documents_select_its_tests_on_workers_too(repository: pytest.Pytester) -> None:
    pytest.importorskip("xdist")

    result = repository.runpytest_subprocess("-p", "xdist", "-n", "2", "-m", "adr7003.3")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["3 *normative *2 *passed *Banks"])


def test_its_goldens_are_compared(repository: pytest.Pytester) -> None:
    change(repository, "kernels/saxpy.py", "    vc.fence()\n", "    vc.fence()\n    vc.fence()\n")

    result = repository.runpytest_inprocess("tests/test_saxpy.py", "-k", "golden")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*structure: *", "*timing: *", "*conflicts 0*"])


def test_the_package_has_never_heard_of_it() -> None:
    folders = [Path(module.__file__ or "").parent for module in (simulator, pytest_kernbench)]
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")]

    assert len(texts) > 80
    assert not [text for text in texts if "vcop" in text.lower() or "saxpy" in text.lower()]


FAULTS = {
    "time goes backwards": (
        "language.py", "kernel.now += launch.spec.issue_cycles", "kernel.now -= launch.spec.issue_cycles",
        "moments_are_in_order",
    ),
    "a run is longer than its ops": (
        "device.py", "return max([self.sim.now", "return 1 + max([self.sim.now", "moments_are_in_order",
    ),
    "commands are said out of order": (
        "language.py", "kernel.now += launch.spec.issue_cycles", "kernel.now = 100 - self._said", "in_the_order_said",
    ),
    "a fence does not wait": ("language.py", 'kernel.wait(last, "its commands")', "pass", "waited_for_ended_before"),
    "a row has the device's own line": ("language.py", "startswith(FOLDER)", 'startswith("no")', "line_of_the_kernels"),
    "a name has no cost": ("language.py", 'self._open("wait"', 'self._open("fence"', "has_a_cost_and_a_meaning"),
    "the seed is forgotten": ("device.py", "schedule, launch.seed,", "schedule, 0,", "says_how_it_was_run"),
    "anything is a way to check": (
        "device.py", 'if check not in (True, False, "collect")', "if False", "makes_no_sense",
    ),
    "time depends on the hash seed": (
        "language.py", "launch.spec.cycles(name, out.size)", "launch.spec.cycles(name, out.size) + hash(name) % 97",
        "another_hash_seed",
    ),
    "time depends on the checkers": (
        "language.py", "launch.spec.cycles(name, out.size)",
        "launch.spec.cycles(name, out.size) + len(launch.sim.probes.issue)", "checks_change_nothing",
    ),
    "time depends on the data": (
        "language.py", "launch.spec.cycles(name, out.size)", "launch.spec.cycles(name, out.size) + launch.data",
        "without_data",
    ),
    "two runs differ": (
        "language.py", "launch.spec.cycles(name, out.size)", "launch.spec.cycles(name, out.size) + id(op) // 16 % 7",
        "two_runs",
    ),
    "memory begins as zeros": (
        "device.py", "        if data is not None:\n            values", "        self.elements(tensor)[...] = 0\n"
        "        if data is not None:\n            values", "poison",
    ),
    "a full memory is no capacity": ("language.py", '"capacity", "vc.vector"', '"leak", "vc.vector"', "full_space"),
    "bandwidth does nothing": ("spec.py", "-(-4 * elements // self.bytes_per_cycle)", "elements", "more_bandwidth"),
    "more bandwidth is slower": (
        "spec.py", "-(-4 * elements // self.bytes_per_cycle)", "elements * self.bytes_per_cycle", "more_bandwidth",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "good", "bad", "test"), FAULTS.values(), ids=FAULTS)
def test_a_fault_in_it_fails_the_contract(
    repository: pytest.Pytester, file: str, good: str, bad: str, test: str
) -> None:
    change(repository, f"vcop/{file}", good, bad)

    result = repository.runpytest_inprocess("tests/test_contract.py", "-k", test)

    assert result.parseoutcomes().get("failed", 0) >= 1


def change(repository: pytest.Pytester, file: str, good: str, bad: str) -> None:
    path = repository.path / file
    text = path.read_text(encoding="utf-8")
    assert text.count(good) == 1
    path.write_text(text.replace(good, bad), encoding="utf-8")
