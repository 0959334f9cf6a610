"""However a run ends, its kernels end with it, and the next run knows nothing of it."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from greenlet import getcurrent, greenlet

from pytest_kernbench.simulator.errors import DeadlockError, KernelError, LivelockError

X = np.arange(16, dtype=np.float32).reshape(4, 4)


def alive() -> int:
    """Kernels that are suspended somewhere."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, greenlet)]
    return len([each for each in found if each and not each.dead and each is not getcurrent()])


def sound(x: Any, o: Any, *, tl: Any) -> None:
    tl.wait(tl.store(o, tl.exp(tl.load(x, (4, 4)))))


def break_off(kind: str) -> Callable[..., None]:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (4, 4)))
        if tl.program_id(0) == 0:
            tl.recv("E", (4, 4))  # sleeps while the other one ends the run
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "error":
            raise ZeroDivisionError("of the kernel author's")
        if kind == "refusal":
            tl.load(x, (0,))
        while kind == "endless":
            tl.zeros((4,))

    return kernel


ENDS = {
    "interrupt": KeyboardInterrupt,
    "error": ZeroDivisionError,
    "refusal": KernelError,
    "endless": LivelockError,
    "deadlock": DeadlockError,
}


@pytest.mark.parametrize(("kind", "error"), ENDS.items(), ids=ENDS)
def test_no_kernel_survives_and_the_next_run_is_as_if_nothing_had_been(
    launch: Callable[..., Any], kind: str, error: type[BaseException]
) -> None:
    before, first = alive(), launch(sound, x=X, o=((4, 4), "float32"))

    with pytest.raises(error):
        launch(break_off(kind), x=X, o=((4, 4), "float32"), grid=2, max_ops=100)

    assert alive() == before
    second = launch(sound, x=X, o=((4, 4), "float32"))
    assert second.log.cells == first.log.cells
    assert (second["o"] == first["o"]).all()


def test_an_error_of_the_kernel_arrives_with_the_kernels_line(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (4, 4))
        raise ZeroDivisionError("of the kernel author's")

    with pytest.raises(ZeroDivisionError, match=r"^of the kernel author's$") as caught:
        launch(kernel, x=X)
    assert caught.traceback[-1].lineno == kernel.__code__.co_firstlineno + 1


def test_finally_blocks_of_a_sleeping_kernel_run_before_the_error_is_raised(launch: Callable[..., Any]) -> None:
    seen: list[int] = []

    def kernel(x: Any, *, tl: Any) -> None:
        try:
            tl.recv("W" if tl.program_id(0) else "E", (4, 4))
        finally:
            seen.append(tl.program_id(0))

    with pytest.raises(DeadlockError):
        launch(kernel, x=X, grid=2)
    assert seen == [0, 1]


def test_a_finally_block_that_waits_again_does_not_keep_its_kernel_alive(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        try:
            tl.recv("W" if tl.program_id(0) else "E", (4, 4))
        finally:
            tl.wait(tl.load(x, (4, 4)))

    before = alive()
    with pytest.raises(DeadlockError):
        launch(kernel, x=X, grid=2)
    assert alive() == before


def test_an_exception_that_the_kernel_handles_is_its_own_business(launch: Callable[..., Any]) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        try:
            raise ValueError
        except ValueError:
            sound(x, o, tl=tl)

    outcome = launch(kernel, x=X, o=((4, 4), "float32"))
    assert outcome.kinds == []
    assert (outcome["o"] == np.exp(X)).all()
