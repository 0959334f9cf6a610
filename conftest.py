"""Shared set-up of this repository's tests: one BLAS thread; without hypothesis, its tests are left out and named.

`--spill` writes the log of every run to a file in small groups: what a test says of a run holds all the same.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin on small products, ten times slower beside -n 2

HAS_HYPOTHESIS = importlib.util.find_spec("hypothesis") is not None

if HAS_HYPOTHESIS:
    from hypothesis import settings

    settings.register_profile("kernbench", deadline=None)  # time of an example is the machine's load, not a fault
    settings.load_profile("kernbench")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out repositories of others, and files that need hypothesis where the `test` extra is not installed."""
    if collection_path.is_dir():
        return True if (collection_path / "pytest.ini").is_file() else None
    if HAS_HYPOTHESIS or collection_path.suffix != ".py":
        return None
    return True if "from hypothesis" in collection_path.read_text(encoding="utf-8") else None


def pytest_report_header() -> str | None:
    if HAS_HYPOTHESIS:
        return None
    return "property tests are left out: pip install -e '.[test]' brings hypothesis"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spill", action="store_true", help="write the log of every run to a file, in small groups")


@pytest.fixture(autouse=True)
def spilled(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With `--spill`: runs that do not say otherwise have a file."""
    if not request.config.getoption("--spill"):
        return
    from pytest_kernbench.simulator import AhbmChip, Ascend310pCore
    from pytest_kernbench.simulator.ops import spill

    monkeypatch.setattr(spill, "GROUP", 32)
    monkeypatch.setattr(spill, "KEPT", 4)
    numbers, directory = itertools.count(), tmp_path_factory.mktemp("logs")
    for device in (AhbmChip, Ascend310pCore):
        usual = device.run

        @functools.wraps(usual)
        def run(*args: Any, usual: Any = usual, **kwargs: Any) -> Any:
            return usual(*args, **{"spill": directory / f"{next(numbers)}.parquet", **kwargs})

        monkeypatch.setattr(device, "run", run)
