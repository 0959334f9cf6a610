"""An environment with the wheel of this checkout, made once for all workers, and copies of the repositories here."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

collect_ignore = ["swiglu_ring", "padded_rows"]  # they are run by a Python that has the wheel, not by this one

ROOT = Path(__file__).parents[2]
LEG = "KERNBENCH_DOWNSTREAM_PYTHON"  # a Python that has the wheel already: see matrix.py


@pytest.fixture(scope="session")
def environments() -> Any:
    """The module `environments`, which `python -m tests.downstream.matrix` uses too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        return importlib.import_module("tests.downstream.environments")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that xdist's workers have in common."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "downstream"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def built(environments: Any, shared: Path) -> Any:
    """Wheel, sdist, and the wheel that the sdist builds."""
    if not (ROOT / "simulator").is_dir():
        pytest.skip("there is no checkout around these tests to build")
    folder = shared / "built"
    with environments.locked(shared / "build.lock"):
        if not folder.exists():
            _build(environments, shared, folder)
        (wheel,), (sdist,), (again,) = (list((folder / each).iterdir()) for each in ("wheel", "sdist", "again"))
    return environments.Built(wheel, sdist, again)


def _build(environments: Any, shared: Path, folder: Path) -> None:
    try:
        python = environments.builder(shared / "builder")
    except environments.CommandError as error:
        pytest.skip(f"no environment can be made here: {error}")
    part = folder.with_suffix(".part")
    environments.build(python, part)
    part.rename(folder)


@pytest.fixture(scope="session")
def python(environments: Any, shared: Path, request: pytest.FixtureRequest) -> Path:
    """The Python of an environment that has the wheel, what it depends on, xdist and pytest-html, and nothing else."""
    if LEG in os.environ:
        return Path(os.environ[LEG])
    built = request.getfixturevalue("built")
    with environments.locked(shared / "install.lock"):
        done, folder = shared / "python", shared / "user"
        if not done.exists():
            made = environments.new_environment(sys.executable, folder, *environments.requirements(built.wheel))
            done.write_text(str(made), encoding="utf-8")
        return Path(done.read_text(encoding="utf-8"))


@pytest.fixture
def repository(environments: Any, python: Path, tmp_path: Path) -> Callable[[str], Any]:
    """`repository("swiglu_ring")`: a copy of it outside this checkout; `.run(*args)` runs pytest there."""
    return lambda name: environments.copy_of(name, tmp_path, python)
