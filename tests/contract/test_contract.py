"""The importable contract itself: what it says of a program it cannot take to another process, and of a broken log."""

from typing import Any

import pytest

from pytest_kernbench.contract import Device, DeviceContract, digest, digest_elsewhere, told
from pytest_kernbench.simulator import AhbmChip, Run


def double(x: Any, y: Any, *, tl: Any) -> None:
    tl.wait(tl.store(y, tl.load(x, (8, 64)) * 2.0))


def program(spec: Any = None, /, **how: Any) -> tuple[Run, Any]:
    chip = AhbmChip()
    return chip.run(double, chip.tensor("x", (8, 64)), chip.tensor("y", (8, 64)), **how), None


def test_a_function_of_a_module_is_carried_to_another_process() -> None:
    assert digest_elsewhere(program, PYTHONHASHSEED="7") == digest(program()[0])


@pytest.mark.parametrize("kind", ["nested", "lambda"])
def test_what_only_this_process_has_is_refused(kind: str) -> None:
    def nested(spec: Any = None, /, **how: Any) -> tuple[Run, Any]:
        return program(spec, **how)

    given: Any = nested if kind == "nested" else lambda spec=None, **how: program(spec, **how)
    with pytest.raises(ValueError, match=r"^Device.program is .*<.*give a function of a module$"):
        digest_elsewhere(given)


def fails(spec: Any = None, /, **how: Any) -> tuple[Run, Any]:
    raise RuntimeError("no device here")


def test_what_fails_in_the_other_process_is_shown() -> None:
    with pytest.raises(AssertionError, match="RuntimeError: no device here"):
        digest_elsewhere(fails)


def test_a_failure_names_rows_with_their_lines() -> None:
    log = program()[0].log

    (said, *_) = told(log, log.all.unit == log.units.id("DMA_R"))

    assert said.startswith("row 0: load on DMA_R, issue 16 start 16 free ")
    assert said.endswith("at test_contract.py:12 in double")
    assert told(log, log.all.issue < 0) == []


def test_a_program_that_is_tried_on_nothing_does_not_pass() -> None:
    device = Device(program, lambda walk, spec=None, **how: program(spec, **how), lambda: None, ("DMA_R", "GEMM"),
                    lambda left: left, lambda name: True, "hbm_bytes_per_cycle", least_names=5)  # fmt: skip
    contract = DeviceContract()

    with pytest.raises(AssertionError, match="GEMM"):
        contract.test_the_programs_use_every_unit(device)
    with pytest.raises(AssertionError, match="least_names"):
        contract.test_every_op_name_in_a_log_has_a_cost_and_a_meaning(device)
