"""Our core, our documents, energy in every log, and a hook of our own: lengths that tests of tails run at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_kernbench.simulator import Ascend310pSpec, OpLog


class Hooks:
    """Hooks that a conftest.py further down may implement."""

    def pytest_padded_rows_lengths(self, config: pytest.Config) -> list[int]:  # type: ignore[empty-body]
        """More lengths for the tests that take a `length`."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(Hooks)


def pytest_padded_rows_lengths() -> list[int]:
    return [1, 16, 250, 1000]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "length" in metafunc.fixturenames:
        lists = metafunc.config.hook.pytest_padded_rows_lengths(config=metafunc.config)
        metafunc.parametrize("length", sorted({length for lengths in lists for length in lengths}))


# --- hooks of pytest-kernbench; optional, so that `-p no:kernbench` can do without them -------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_spec_paths() -> list[str]:
    """Instead of the ini line `kernbench_spec_paths`, which pytest does not know when the plugin is off."""
    return ["specs"]


@pytest.hookimpl(optionalhook=True)
def pytest_kernbench_log_columns() -> dict[str, Callable[[OpLog], Any]]:
    """`run.log.all.energy`, in picojoules: a byte of a copy takes 20, an element of a vector instruction 2."""
    return {"energy": lambda log: 20 * log.all.bytes + 2 * log.all.work}


@pytest.fixture
def ascend310p_spec() -> Ascend310pSpec:
    """What a firmware of ours leaves to kernels: less UB and four cores, on slower memory."""
    from pytest_kernbench.simulator import Ascend310pSpec

    return Ascend310pSpec(ub_usable=192 * 1024, cores=4, gm_bytes_per_cycle=12)
