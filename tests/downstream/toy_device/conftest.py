"""Our device, its checker, its column and our design documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vcop import Vcop

    from pytest_kernbench.checkers import Checker


@pytest.fixture
def vcop() -> Vcop:
    """A coprocessor, new for every test."""
    from vcop import Vcop

    return Vcop()


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_spec_paths() -> list[str]:
    return ["design"]


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_checkers() -> list[Checker]:
    from vcop.checks import BANK_CONFLICTS

    return [BANK_CONFLICTS]


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_log_columns() -> dict[str, Callable[..., Any]]:
    from vcop.checks import conflict_column

    return {"conflicts": conflict_column}
