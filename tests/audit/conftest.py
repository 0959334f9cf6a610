"""The source files that audits read. An audit that finds nothing to read must fail, not pass."""

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"simulator": "pytest_kernbench.simulator", "kernels": "pytest_kernbench.kernels"}
FOLDERS |= {"pytest_kernbench": "pytest_kernbench", "specs": "pytest_kernbench.specs"}


def _modules() -> Iterator[tuple[str, Path]]:
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def modules() -> dict[str, Path]:
    """Every module of the distribution, by the name it is imported under."""
    found = dict(_modules())
    assert {name.split(".")[1] for name in found if "." in name} >= {"simulator", "kernels", "specs", "plugin"}
    return found
