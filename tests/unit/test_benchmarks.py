"""The benchmark's table says what was measured, holds the median against the target, and starts without numpy."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.table")


@pytest.mark.parametrize(
    ("samples", "at_most", "met"),
    [
        ((4.0, 5.0, 90.0), True, True),  # the median decides, not the outlier
        ((1.0, 5.1, 5.2), True, False),
        ((5.0, 5.0, 1.0), False, True),
        ((4.9, 4.0, 90.0), False, False),
    ],
)
def test_the_median_is_held_against_the_target(table: Any, samples: Any, at_most: bool, met: bool) -> None:
    assert table.against(1, "work", samples, table.Target(5, "T", at_most)).met is met


def test_a_line_shows_median_range_target_and_verdict(table: Any) -> None:
    kept = table.against(1, "a row", [4.0, 3.456, 12.34], table.Target(5, "T"), "3 us")
    missed = table.against(2, "an op", [70.0], table.Target(100, at_most=False))
    left_out = table.not_run(4, "a peer", table.Target(6, at_most=False), "give --pallas PYTHON")

    assert table.cells(kept) == ("1", "a row", "4.00 T (3.46..12.3)", "<= 5 T", "yes", "3 us")
    assert table.cells(missed) == ("2", "an op", "70.0x", ">= 100x", "NO", "")
    assert table.cells(left_out) == ("4", "a peer", "-", ">= 6x", "-", "not run: give --pallas PYTHON")


def test_columns_line_up(table: Any) -> None:
    results = [table.Result(1, work, (1.0,)) for work in ("short", "a good deal longer")]

    lines = table.table(results).split("\n")
    assert len(lines) == 4
    bars = [[at for at, letter in enumerate(line) if letter == "|"] for line in lines]
    assert bars == [bars[0]] * 4
    assert len(bars[0]) == 7


@pytest.mark.parametrize("power", [1, 1.05, 2])
def test_the_exponent_is_the_power_of_growth(table: Any, power: float) -> None:
    sizes = [4096, 8192, 65536]

    assert table.exponent(sizes, [3e-9 * size**power for size in sizes]) == pytest.approx(power)


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.0123456, "0.0123"), (-9.996, "-10.0"), (1234.5, "1234")])
def test_a_figure_has_three_digits_that_count(table: Any, value: float, text: str) -> None:
    assert table.figure(value) == text


def test_json_has_every_sample_and_their_median(table: Any) -> None:
    made = table.as_json([table.Result(1, "work", (3.0, 1.0, 2.0))], {"commit": "abc"})

    read = json.loads(json.dumps(made))
    assert read["commit"] == "abc"
    assert (read["results"][0]["samples"], read["results"][0]["measured"]) == ([3.0, 1.0, 2.0], 2.0)


def test_a_missing_simpy_is_answered_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    command = importlib.import_module("benchmarks.__main__")
    for name in command.ONE_THREAD:
        monkeypatch.setenv(name, "1")  # so that they are taken back
    monkeypatch.delitem(sys.modules, "benchmarks.clock", raising=False)
    monkeypatch.setitem(sys.modules, "simpy", None)

    with pytest.raises(SystemExit, match=r"SimPy is .* not installed: python -m pip install -e '\.\[bench\]'"):
        command.main(["--quick"])


def test_help_needs_neither_numpy_nor_simpy() -> None:
    code = "import sys, runpy; sys.modules.update(numpy=None, simpy=None); sys.argv[1:] = ['--help']; "
    code += "runpy.run_module('benchmarks', run_name='__main__', alter_sys=True)"

    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"--quick", "--rows", "--json", "--pallas"} <= set(shown.replace(",", " ").split())
