"""What a worker process of xdist tells the process that prints: the links of its tests, or its user's mistake.

Nothing here needs xdist: without workers the one process collects, runs and prints. PYTEST_DONT_REWRITE
"""

from collections.abc import Mapping

import pytest

from pytest_kernbench import marks
from pytest_kernbench.ledger import Ledger

_LINKS, _MISTAKE = "kernbench_links", "kernbench_mistake"


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workeroutput")


def link(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Link tests to clauses, and load the checkers of those that run kernels.

    A worker keeps its user's mistake for the controller and runs nothing.
    """
    try:
        config.stash[marks.LINKS] = marks.link(items, config.stash[marks.DOCUMENTS])
        if any("run_kernel" in getattr(item, "fixturenames", ()) for item in items):
            _load_checkers(config)
    except pytest.UsageError as mistake:
        if not is_worker(config):
            raise
        _output(config)[_MISTAKE] = str(mistake)  # raised here, it would reach the user as an internal error of xdist
        items.clear()


def _load_checkers(config: pytest.Config) -> None:
    """One that cannot be loaded is one mistake, not one a test."""
    from pytest_kernbench.extensions import ExtensionError, entry_point_checkers

    try:
        entry_point_checkers(config)
    except ExtensionError as error:
        raise pytest.UsageError(str(error)) from error


def send_links(config: pytest.Config) -> None:
    if is_worker(config):
        _output(config)[_LINKS] = marks.links(config)


def hear(ledger: Ledger, output: Mapping[str, object]) -> None:
    """Take in what a worker sent before it ended; one that crashed sent nothing."""
    if _MISTAKE in output:
        raise pytest.UsageError(str(output[_MISTAKE]))
    links = output.get(_LINKS)
    ledger.hear_worker(links if isinstance(links, dict) else None)


def _output(config: pytest.Config) -> dict[str, object]:
    output = getattr(config, "workeroutput")  # noqa: B009  (xdist adds the attribute; pytest's class does not have it)
    assert isinstance(output, dict)
    return output
