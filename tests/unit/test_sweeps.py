"""A sweep's rows are in the order of its points, whatever runs them; what raises is named and costs nothing else."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.simulator.errors import Hazard, HazardError
from pytest_kernbench.sweeps import (
    SweepError,
    grid,
    read_csv,
    show_progress,
    sweep,
    write_csv,
)

POINTS = grid(s=(64, 128, 256), n=(1, 2))


def area(s: int, n: int) -> dict[str, int]:
    return {"area": s * n}


def odd_ones_raise(s: int, n: int) -> dict[str, int]:
    if n == 2 and s > 64:
        raise ZeroDivisionError(f"nothing of {s}\nis left")
    return area(s, n)


@pytest.fixture(params=["here", "threads"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "here":
        yield None
        return
    with ThreadPoolExecutor(3) as pool:
        yield pool


# Points


def test_a_grid_is_every_combination_and_the_last_axis_is_the_fastest() -> None:
    assert grid(b=(2, 1), a="xy") == [{"b": 2, "a": "x"}, {"b": 2, "a": "y"}, {"b": 1, "a": "x"}, {"b": 1, "a": "y"}]
    assert list(grid(b=iter((1,)), a=iter((2, 3)))[1].items()) == [("b", 1), ("a", 3)]


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), min_size=1, max_size=4), min_size=1))
def test_a_grid_has_the_product_of_its_axes_lengths(axes: dict[str, list[int]]) -> None:
    points = grid(**axes)

    assert len(points) == np.prod([len(each) for each in axes.values()])
    for name, values in axes.items():
        assert list(dict.fromkeys(point[name] for point in points)) == list(dict.fromkeys(values))


@pytest.mark.parametrize(
    ("axes", "fact"), [({}, "no axes"), ({"n": ()}, "axis 'n' has no values"), ({"a": (1,), "b": []}, "axis 'b'")]
)
def test_a_grid_of_nothing_is_refused(axes: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=f"^grid: {fact}"):
        grid(**axes)


def test_points_of_other_axes_are_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match=r"same axes: \(s=1, n=2\) and \(s=1, m=2\)"):
        sweep(lambda **_: pytest.fail("it ran"), [{"s": 1, "n": 2}, {"s": 1, "m": 2}])


# Rows


def test_a_row_is_the_point_and_its_figures_in_the_order_of_the_points(executor: Executor | None) -> None:
    rows = sweep(area, POINTS, executor=executor)

    assert rows == [{**point, "area": point["s"] * point["n"]} for point in POINTS]
    assert [*rows[0]] == ["s", "n", "area"]
    assert sweep(area, [], executor=executor) == []
    assert "area" not in POINTS[0]


def test_rows_are_in_order_when_points_finish_the_other_way_round() -> None:
    last_began, finished = threading.Event(), []

    def wait_for_the_last(n: int) -> dict[str, int]:
        if n == 2:
            last_began.set()
        else:
            assert last_began.wait(5)
        return {"square": n * n}

    with ThreadPoolExecutor(3) as pool:
        rows = sweep(
            wait_for_the_last, grid(n=range(3)), executor=pool, progress=lambda *told: finished.append(told[2]["n"])
        )

    assert [row["square"] for row in rows] == [0, 1, 4]
    assert sorted(finished) == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.int64(7), 7), (np.float32(0.5), 0.5), (np.float64(0.25), 0.25), (True, 1), (Fraction(1, 4), 0.25),
        (np.str_("x"), "x"), (1 << 70, 1 << 70),
    ],
)  # fmt: skip
def test_figures_become_plain_numbers_and_texts(given: Any, kept: Any) -> None:
    (row,) = sweep(lambda n: {"figure": given}, [{"n": 1}])

    assert row["figure"] == kept
    assert type(row["figure"]) is type(kept)


@pytest.mark.parametrize(
    ("returned", "fact"),
    [
        ({"n": 3}, "ValueError: figure 'n' has the name of an axis"),
        (None, "TypeError: a point gives a mapping of figures, .* not None"),
        (7, "TypeError: a point gives a mapping of figures, .* not 7"),
        ({"cycles": None}, "TypeError: figure 'cycles' is None, a NoneType"),
        ({"cycles": np.zeros(2)}, "TypeError: figure 'cycles' is .*, a ndarray"),
        ({"cycles": 1j}, "TypeError: figure 'cycles' is 1j, a complex"),
    ],
)
def test_what_is_no_figure_is_refused(executor: Executor | None, returned: Any, fact: str) -> None:
    with pytest.raises(SweepError, match=f"n=1: {fact}"):
        sweep(lambda n: returned, [{"n": 1}], executor=executor)


# Points that raise


def test_a_point_that_raises_is_named_and_the_rows_of_the_others_are_there(executor: Executor | None) -> None:
    with pytest.raises(SweepError) as caught:
        sweep(odd_ones_raise, POINTS, executor=executor)

    bad = [{"s": 128, "n": 2}, {"s": 256, "n": 2}]
    assert caught.value.rows == [{**point, **area(**point)} for point in POINTS if point not in bad]
    assert [failure.point for failure in caught.value.failures] == bad
    assert all(isinstance(failure.error, ZeroDivisionError) for failure in caught.value.failures)
    assert caught.value.__cause__ is caught.value.failures[0].error
    assert str(caught.value).split("\n") == [
        "2 of 6 points raised; the rows of the others are in .rows",
        "  s=128, n=2: ZeroDivisionError: nothing of 128",
        "  s=256, n=2: ZeroDivisionError: nothing of 256",
    ]


def test_a_long_list_of_points_that_raise_is_cut() -> None:
    def fail(n: int) -> dict[str, int]:
        raise AssertionError

    with pytest.raises(SweepError, match=r"n=9: AssertionError\n  and 90 more, in \.failures$") as caught:
        sweep(fail, grid(n=range(100)))
    assert len(caught.value.failures) == 100


def test_the_error_of_a_sweep_can_be_pickled() -> None:
    with pytest.raises(SweepError) as caught:
        sweep(odd_ones_raise, POINTS)

    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.rows) == (str(caught.value), caught.value.rows)


class Refusing(Executor):
    """A pool that breaks while points are submitted: it takes one."""

    def __init__(self) -> None:
        self.left = 1

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.left:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.left -= 1
        done: Future[Any] = Future()
        done.set_result(call(*args, **kwargs))
        return done


def test_a_pool_that_takes_no_more_points_fails_those_alone() -> None:
    with pytest.raises(SweepError, match=r"s=64, n=2: RuntimeError: cannot schedule") as caught:
        sweep(area, POINTS, executor=Refusing())
    assert [row["area"] for row in caught.value.rows] == [64]
    assert len(caught.value.failures) == 5


def test_an_error_that_cannot_travel_arrives_as_its_text() -> None:
    class Odd(Exception):
        def __init__(self, one: int, other: int) -> None:
            super().__init__(f"{one} and {other}")

    def fail(n: int) -> dict[str, int]:
        raise Odd(n, n)

    with ThreadPoolExecutor(1) as pool, pytest.raises(SweepError, match="n=1: RuntimeError: Odd: 1 and 1"):
        sweep(fail, [{"n": 1}], executor=pool)


def test_findings_are_found_again_in_the_error_that_travelled() -> None:
    error = HazardError((Hazard("race-raw", "two lines\nof text"), Hazard("leak", "x")))

    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.hazards) == (str(error), error.hazards)


class Lazy(Executor):
    """Runs the first point when it is submitted and none of the others."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.futures:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
        self.futures.append(future)
        return future


def stop(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("function", "progress"), [(stop, None), (area, stop)], ids=["in a point", "in progress"])
def test_stopping_a_sweep_cancels_what_has_not_begun(function: Any, progress: Any) -> None:
    pool = Lazy()

    with pytest.raises(KeyboardInterrupt):
        sweep(function, POINTS, executor=pool, progress=progress)
    assert [future.cancelled() for future in pool.futures] == [False] + [True] * 5


def test_a_point_that_raises_cancels_nothing() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(SweepError) as caught:
        sweep(lambda n: {"inverse": 1 // n}, grid(n=range(20)), executor=pool)
    assert len(caught.value.rows) == 19


# Progress


def test_progress_hears_of_every_point_once(executor: Executor | None) -> None:
    told: list[Any] = []

    with pytest.raises(SweepError) as caught:
        sweep(odd_ones_raise, POINTS, executor=executor, progress=lambda *each: told.append(each))

    assert [each[:2] for each in told] == [(done, 6) for done in range(1, 7)]
    rows = [each[2] for each in told]
    assert [row for row in caught.value.rows if row not in rows] == []
    assert [failure.point for failure in caught.value.failures if failure.point not in rows] == []


def test_progress_is_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(area, POINTS[:2], progress=show_progress)

    assert capsys.readouterr() == ("", "1/2  s=64, n=1, area=64\n2/2  s=64, n=2, area=128\n")


def test_progress_is_one_line_on_a_terminal_and_no_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "16")

    sweep(area, POINTS[:2], progress=show_progress)

    assert terminal.getvalue() == "\r\x1b[K1/2  s=64, n=1,\r\x1b[K2/2  s=64, n=2,\n"


# Tables


def test_columns_are_axes_and_then_figures_by_first_appearance(tmp_path: Path) -> None:
    rows = [{"s": 64, "n": 1, "cycles": 10}, {"s": 64, "n": 2, "note": 'a,"b"', "cycles": 0.1}]

    write_csv(rows, tmp_path / "a.csv")

    assert (tmp_path / "a.csv").read_bytes() == b's,n,cycles,note\n64,1,10,\n64,2,0.1,"a,""b"""\n'
    assert read_csv(tmp_path / "a.csv") == rows


FIGURES = st.integers() | st.floats(allow_nan=False) | st.sampled_from(["a b", "1_000", "x,y", 'say "x"', "two\nlines"])


@given(st.lists(st.fixed_dictionaries({"s": st.integers(), "a b": FIGURES, "c,d": FIGURES}), min_size=1))
def test_rows_come_back_from_a_file_as_they_were(tmp_path_factory: Any, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.csv"

    write_csv(rows, str(path))

    assert [exactly(row) for row in read_csv(path)] == [exactly(row) for row in rows]


def exactly(row: dict[str, Any]) -> set[str]:
    """1 is not 1.0, and 0.0 not -0.0."""
    return {f"{name}={value!r}" for name, value in row.items()}


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no rows for .*empty"):
        write_csv([], tmp_path / "empty.csv")
    assert not (tmp_path / "empty.csv").exists()


# Imports


def test_sweeping_loads_nothing_heavy() -> None:
    heavy = ("numpy", "greenlet", "matplotlib", "dask", "distributed", "pandas")
    code = f"import pytest_kernbench.sweeps, sys; sys.exit(' '.join(m for m in {heavy} if m in sys.modules) or None)"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
