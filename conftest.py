"""Shared set-up of this repository's tests: one BLAS thread; without hypothesis, its tests are left out and named."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

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
