"""The hooks that other plugins and `conftest.py` files may implement; pluggy calls none of these bodies.

Those that take `request` are asked once a test, so a `conftest.py` speaks for the tests below it alone.
PYTEST_DONT_REWRITE
"""

# mypy: disable-error-code=empty-body

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_kernbench.checkers import Checker
    from pytest_kernbench.extensions import LogColumn, MatrixColumn
    from pytest_kernbench.running import Device
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
    from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec


def pytest_kernbench_spec_paths(config: pytest.Config) -> Iterable[str | Path]:
    """Folders with spec documents, beside those of the ini setting; relative ones begin at the root folder.

    Asked at start-up, so of plugins and of the `conftest.py` files that pytest reads before it collects.
    """


@pytest.hookspec(firstresult=True)
def pytest_kernbench_make_chip(
    request: pytest.FixtureRequest, name: str, spec: AhbmSpec | Ascend310pSpec
) -> Device | None:
    """What the fixture `name`, "ahbm_chip" or "ascend310p_core", gives the test; the first that is not None.

    `spec` has the fields of the test's mark. What is given has `tensor` and `run`, as the device it stands for.
    """


def pytest_kernbench_checkers(request: pytest.FixtureRequest) -> Iterable[Checker]:
    """Checkers of the test's runs by `run_kernel`, beside those of the entry points `kernbench.checkers`."""


def pytest_kernbench_log_columns(request: pytest.FixtureRequest) -> Mapping[str, LogColumn]:
    """Columns of `run.log` after `run_kernel`: by name, a function of the log that gives a number for every row."""


def pytest_kernbench_matrix_columns(config: pytest.Config) -> Mapping[str, MatrixColumn]:
    """Columns of the table of clauses: by heading, a function of the document and the clause that gives a cell.

    Asked in the process that prints, so of plugins and of the `conftest.py` files that pytest reads before it collects.
    """
