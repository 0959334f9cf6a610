"""Every helper says what it promises, what it raises and which clause it serves, and fails at the line of the test."""

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench import signatures
from pytest_kernbench.simulator.ahbm.chip import AhbmChip

HELPERS: list[Callable[..., None]] = [getattr(ka, name) for name in ka.__all__ if name.startswith("assert_")]


def test_all_helpers_are_found() -> None:
    assert len(HELPERS) >= 17
    public = {name for name in vars(ka) if name.startswith("assert_")}
    assert public == {helper.__name__ for helper in HELPERS}


@pytest.mark.parametrize("helper", HELPERS, ids=lambda helper: helper.__name__)
def test_a_helper_documents_promise_failure_and_clause(helper: Callable[..., None]) -> None:
    text = inspect.getdoc(helper) or ""

    assert text.split("\n")[0].endswith((".", ":"))
    assert "Raises AssertionError" in text
    assert "ADR-0" in text
    for name in list(inspect.signature(helper).parameters)[1:]:
        assert f"`{name}`" in text, f"the docstring says nothing about {name}"


@pytest.mark.parametrize("helper", HELPERS, ids=lambda helper: helper.__name__)
def test_a_helper_is_no_part_of_a_traceback(helper: Callable[..., None]) -> None:
    assert "__tracebackhide__" in inspect.unwrap(helper).__code__.co_varnames


def nothing(x: Any, *, tl: Any) -> None:
    tl.wait(tl.load(x, (1, 8)))


def test_a_failure_shows_the_test_and_no_frame_of_ours() -> None:
    """Every frame between the test and the failure hides itself."""
    chip = AhbmChip()
    run = chip.run(nothing, chip.tensor("X", (1, 8)))

    with pytest.raises(AssertionError) as failure:
        ka.assert_composite_offload(run)

    frames = [frame for frame, _ in traceback.walk_tb(failure.value.__traceback__)]
    ours = [frame for frame in frames if frame.f_code.co_filename in (ka.__file__, signatures.__file__)]
    assert len(ours) >= 3
    assert all("__tracebackhide__" in frame.f_locals for frame in ours)
    assert len(ours) == len(frames) - 1
