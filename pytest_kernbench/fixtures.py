"""The fixtures a test may ask for; every name in `__all__` becomes one of the plugin's.

Nothing heavy is imported before a fixture is asked for. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_kernbench import marks
from pytest_kernbench.documents import Document, nearest

if TYPE_CHECKING:
    from pytest_kernbench.running import RunKernel
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
    from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
    from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
    from pytest_kernbench.snapshots import OpLogSnapshot

__all__ = [
    "ahbm_chip",
    "ahbm_spec",
    "ascend310p_core",
    "ascend310p_spec",
    "kernbench_specs",
    "oplog_snapshot",
    "run_kernel",
]
Spec = TypeVar("Spec", "AhbmSpec", "Ascend310pSpec")


@pytest.fixture(scope="session")
def kernbench_specs(pytestconfig: pytest.Config) -> dict[str, Document]:
    """Spec documents with the text of their clauses, by id ("0060"): the package's and those of the ini setting."""
    return marks.full_documents(pytestconfig)


@pytest.fixture
def ahbm_spec(request: pytest.FixtureRequest) -> AhbmSpec:
    """Hardware numbers of the AHBM chip, with those of `@pytest.mark.ahbm(**spec_fields)` in their place.

    Override it for numbers of your own; the fields of a test's mark still win on its `ahbm_chip`.
    """
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec

    return _marked(AhbmSpec(), "ahbm", request)


@pytest.fixture
def ahbm_chip(ahbm_spec: AhbmSpec, request: pytest.FixtureRequest) -> AhbmChip:
    """An AHBM chip of the numbers in `ahbm_spec` and in the test's `ahbm` mark, new for every test.

    The hook `pytest_kernbench_make_chip` may put another in its place.
    """
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip

    spec = _marked(ahbm_spec, "ahbm", request)
    made: AhbmChip | None = _made("ahbm_chip", spec, request)
    return AhbmChip(spec) if made is None else made


@pytest.fixture
def ascend310p_spec(request: pytest.FixtureRequest) -> Ascend310pSpec:
    """Hardware numbers of a 310P core, with those of `@pytest.mark.ascend310p(**spec_fields)` in their place.

    Override it for numbers of your own; the fields of a test's mark still win on its `ascend310p_core`.
    """
    from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec

    return _marked(Ascend310pSpec(), "ascend310p", request)


@pytest.fixture
def ascend310p_core(ascend310p_spec: Ascend310pSpec, request: pytest.FixtureRequest) -> Ascend310pCore:
    """A 310P of the numbers in `ascend310p_spec` and in the test's `ascend310p` mark, new for every test.

    The hook `pytest_kernbench_make_chip` may put another in its place.
    """
    from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore

    spec = _marked(ascend310p_spec, "ascend310p", request)
    made: Ascend310pCore | None = _made("ascend310p_core", spec, request)
    return Ascend310pCore(spec) if made is None else made


def _made(name: str, spec: AhbmSpec | Ascend310pSpec, request: pytest.FixtureRequest) -> Any:
    """What a plugin puts in the place of the chip of that name."""
    if not request.node.ihook.pytest_kernbench_make_chip.get_hookimpls():
        return None
    from pytest_kernbench.extensions import ExtensionError, made_chip

    try:
        return made_chip(request, name, spec)
    except ExtensionError as error:
        raise _failed(error) from None


def _failed(error: Exception) -> BaseException:
    """The failure of a test that says what the error says, and nothing more."""
    return pytest.fail.Exception(str(error), pytrace=False)


def _marked(spec: Spec, marker: str, request: pytest.FixtureRequest) -> Spec:
    """`spec` with the fields that the closest mark of that name names."""
    from dataclasses import fields, replace

    from pytest_kernbench.simulator.errors import LaunchError

    mark = request.node.get_closest_marker(marker)
    given = {} if mark is None else mark.kwargs
    known = [field.name for field in fields(spec)]
    if mark is not None and mark.args:
        said, example = ", ".join(map(repr, mark.args)), f"{marker}({known[0]}={getattr(spec, known[0])!r})"
        pytest.fail(f"{marker}({said}): name the fields, as in {example}", pytrace=False)
    for name in given:
        if name not in known:
            guess = ", ".join(nearest(name, known)) or ", ".join(known)
            kind = type(spec).__name__
            pytest.fail(f"{marker}({name}={given[name]!r}): {kind} has no such field; nearest: {guess}", pytrace=False)
    try:
        return replace(spec, **given)
    except LaunchError as error:
        pytest.fail(f"{marker} mark: {error}", pytrace=False)


@pytest.fixture
def oplog_snapshot(request: pytest.FixtureRequest) -> OpLogSnapshot:
    """The goldens of this test: `oplog_snapshot.assert_matches(run)`; `pytest --snapshot-update` renews them."""
    from pytest_kernbench.snapshots import goldens_of

    return goldens_of(request)


@pytest.fixture
def run_kernel(request: pytest.FixtureRequest) -> Iterator[RunKernel]:
    """`run_kernel(kernel, *args, on=device, ...) -> Run`: run a kernel; a finding fails the test.

    `@pytest.mark.allow_hazard("kind", reason="...")` lets findings of that kind pass; if there were none, the test
    fails. See `pytest_kernbench.running.RunKernel` for the arguments.
    """
    from pytest_kernbench.extensions import ExtensionError, added
    from pytest_kernbench.hazards import AllowanceError, allowances
    from pytest_kernbench.running import RunKernel

    try:
        more = added(request)
        allowed = allowances(request.node.iter_markers("allow_hazard"), more.kinds)
    except (AllowanceError, ExtensionError) as error:
        raise _failed(error) from None
    full_trace = request.config.getoption("fulltrace")
    runner = RunKernel(allowed, full_trace=full_trace, checkers=more.checkers, columns=more.columns)
    failed_before = request.session.testsfailed
    yield runner
    stale = runner.stale()
    if stale and request.session.testsfailed == failed_before:  # what failed may not have come as far as the finding
        pytest.fail("\n".join(stale), pytrace=False)
