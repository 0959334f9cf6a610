"""The kernel is within the gate: cases of the acceptance list, those that are long with some of their heads."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.reference.delta_rule_cases import ACCEPTANCE, RMS_RATIO, Case

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/delta_rule.md"
COMMAND = "tests.kernels.chunk_gated_delta_rule.acceptance"
BY_NAME = {case.name: case for case in ACCEPTANCE}

# Short enough for every run of the suite; the command runs them all. With the key heads that are taken.
SPREAD = {
    "1 heads 2:4 dims 16x12 g -0.48 S0 random": range(2),
    "2 heads 2:8 dims 16x12 g -48 S0 random scaled": range(2),
    "16 heads 3:3 dims 16x12 g -0.0005 mask 0.5 S0 zero": range(3),
    "17 heads 2:4 dims 16x12 without g S0 random scaled": range(1, 2),
    "15 heads 1:1 dims 60x60 g 0 S0 random": range(1),
    "65 heads 1:1 dims 16x12 g 0 S0 random": range(1),
    "13+20 heads 2:4 dims 16x12 g -0.016 S0 random": range(1, 2),
    "0+5 heads 2:4 dims 16x12 g -0.0005 S0 random": range(2),
}


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module(COMMAND)


def judged(command: Any, case: Case, key_heads: range) -> Any:
    """The row of the case with these key heads alone, and the value heads that read them."""
    return command.row_of(case, [command.call(case, key_heads)])


@pytest.mark.adr("0311", "8.1", "8.2")
@pytest.mark.parametrize("name", SPREAD)
def test_a_case_is_within_the_gate(command: Any, name: str) -> None:
    row = judged(command, BY_NAME[name], SPREAD[name])

    assert row.passed, f"{row.out}\n{row.state}"


# Qwen3-Next has 16 key and 32 value heads of 128: here one key head, alone or with both value heads that read it


def of_a_real_model(tokens: int, value_heads: int) -> Case:
    return Case(
        name="Qwen3-Next", lengths=(tokens,), heads=(1, value_heads), dims=(128, 128), mean_g=-0.016, scale=128**-0.5
    )


@pytest.mark.adr("0311", "5.2", "8.1")
def test_a_prompt_of_a_real_model(command: Any) -> None:
    """Three chunks."""
    row = judged(command, of_a_real_model(130, 1), range(1))

    assert row.passed, f"{row.out}\n{row.state}"


@pytest.mark.adr("0311", "1.3", "8.1")
def test_both_value_heads_of_a_real_model(command: Any) -> None:
    row = judged(command, of_a_real_model(1, 2), range(1))

    assert row.passed, f"{row.out}\n{row.state}"
    assert row.heads == 2


# The command, and its table in the docs


def test_a_long_case_is_called_a_key_head_at_a_time(command: Any) -> None:
    long, short = BY_NAME["13+20 heads 16:48 dims 128x128 g -0.0005 S0 random scaled"], ACCEPTANCE[0]

    assert command.calls_of(short) == [range(2)]
    assert command.calls_of(long) == [range(head, head + 1) for head in range(16)]
    assert command.calls_of(long, 2) == [range(1), range(1, 2)]
    whole = short.inputs()
    parts = [command.inputs_of(short, heads) for heads in (range(1), range(1, 2))]
    for name, axis in (("query", 1), ("value", 1), ("beta", 1), ("initial_state", 1), ("g", 1)):
        together = np.concatenate([getattr(each, name) for each in parts], axis=axis)
        assert np.array_equal(together, getattr(whole, name))


def test_a_result_that_is_off_is_told(command: Any) -> None:
    case = ACCEPTANCE[0]
    part = command.call(case, range(2))
    wrong = part._replace(state=part.state + np.float16(0.01))

    assert command.row_of(case, [part]).passed
    assert "| NO |" in str(command.row_of(case, [wrong]))
    assert command.row_of(case, [wrong]).out.passed


def test_no_such_case_is_a_failure(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "no case is called so", "--workers", "1"]) == 1
    assert "0 of 0 cases passed" in capsys.readouterr().out


@pytest.mark.adr("0311", "8.2")
def test_the_page_has_every_case_and_all_passed() -> None:
    lines = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").split("\n")]
    rows = {cells[0]: cells for cells in lines if cells[0] in BY_NAME}

    assert set(rows) == set(BY_NAME)
    for _, _, _, rms, ulp, _, passed in rows.values():
        assert float(rms) <= RMS_RATIO
        assert float(ulp) <= 1.05
        assert passed == "yes"
