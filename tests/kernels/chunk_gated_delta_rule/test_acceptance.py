"""The kernel is within the gate: cases of the acceptance list, those that are long with some of their heads."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from pytest_kernbench.kernels.reference.delta_rule_cases import ACCEPTANCE, Case

ROOT = Path(__file__).parents[3]
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


@pytest.mark.adr("0311", "1.3", "5.2", "8.1")
def test_a_prompt_of_a_real_model(command: Any) -> None:
    """Qwen3-Next: 16 key and 32 value heads of 128, here the last key head and the two value heads that read it."""
    prompt = Case(name="Qwen3-Next", lengths=(130,), heads=(16, 32), dims=(128, 128), mean_g=-0.016, scale=128**-0.5)
    row = judged(command, prompt, range(15, 16))

    assert row.passed, f"{row.out}\n{row.state}"
    assert row.heads == 2
