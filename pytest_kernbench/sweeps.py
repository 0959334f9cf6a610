"""Sweeps: figures of a function over points, here or on any executor, as rows in the order of the points.

One point that raises never costs the others. pytest need not run, and nothing heavy is imported before it is needed.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import itertools
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_kernbench.documents import nearest
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.sweep_tables import Figure, Row, plot, read_csv, write_csv

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
    from pytest_kernbench.simulator.device import Run

__all__ = [
    "Failure",
    "SweepError",
    "grid",
    "plot",
    "read_csv",
    "retimed",
    "show_progress",
    "sweep",
    "sweep_spec",
    "write_csv",
]

Point = Mapping[str, Any]
Progress = Callable[[int, int, Row], None]
Figures = Sequence[Mapping[str, Figure]]  # of several points
Job = tuple[list[int], Callable[[], Figures]]  # the numbers of the points, and what gives their figures

MOST_SHOWN = 10  # points in a message


class Failure(NamedTuple):
    """A point, and what it raised."""

    point: Point
    error: Exception


class SweepError(Exception):
    """Points raised: `failures` are they, `rows` those of all the others; both in the order of the points."""

    def __init__(self, rows: list[Row], failures: list[Failure]) -> None:
        super().__init__(rows, failures)
        self.rows = rows
        self.failures = failures

    def __str__(self) -> str:
        total, shown = len(self.rows) + len(self.failures), self.failures[:MOST_SHOWN]
        lines = [f"{len(self.failures)} of {total} points raised; the rows of the others are in .rows"]
        lines += [f"  {_say(each.point)}: {_first_line(each.error)}" for each in shown]
        more = len(self.failures) - len(shown)
        return "\n".join([*lines, *([f"  and {more} more, in .failures"] if more else [])])


def _say(values: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _first_line(error: Exception) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# Points


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, in order, the last axis fastest.

    Raises ValueError for no axis, and for an axis without values.
    """
    values = {name: list(each) for name, each in axes.items()}
    empty = [name for name, each in values.items() if not each]
    if empty or not values:
        raise ValueError(f"grid: axis {empty[0]!r} has no values" if empty else "grid: no axes; say grid(n=(1, 2, 4))")
    return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]


def _checked(points: Iterable[Point]) -> list[Point]:
    """The points, which have to name the same axes: their rows are one table."""
    found = list(points)
    for point in found:
        if point.keys() != found[0].keys():
            raise ValueError(f"every point names the same axes: ({_say(found[0])}) and ({_say(point)}) do not")
    return found


# Running


def sweep(
    function: Callable[..., Mapping[str, Figure]], points: Iterable[Point], *, executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[Row]:  # fmt: skip
    """`function(**point)` of each point, which returns named figures: a row is the point and its figures.

    Rows are in the order of `points`, whatever finishes first. Without an `executor` all run here; any
    `concurrent.futures.Executor` will do, such as `Client.get_executor()` of Dask. One of processes wants a function of
    a module and points that can be pickled. `progress(done, total, row)` hears of every point as it finishes; the row
    of one that raised is the point alone.

    Raises ValueError for points that do not name the same axes, and SweepError, after all have finished, if some
    raised, returned no mapping of int, float or str, or a figure with the name of an axis. What is no `Exception`
    (KeyboardInterrupt) and what `progress` raises ends the sweep at once and cancels what has not begun.
    """
    checked = _checked(points)
    jobs: list[Job] = [([number], partial(_one, function, point)) for number, point in enumerate(checked)]
    return _run(jobs, _Table(checked, progress), executor)


def _one(function: Callable[..., Mapping[str, Figure]], point: Point) -> Figures:
    return [function(**point)]


def _run(jobs: list[Job], table: _Table, executor: Executor | None) -> list[Row]:
    if executor is None:
        for members, call in jobs:
            table.take(members, call)
        return table.finished()
    futures: dict[Future[Figures], list[int]] = {}
    try:
        for members, call in jobs:
            futures[_submit(executor, call)] = members
        for future in as_completed(futures):
            table.take(futures[future], future.result)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return table.finished()


def _submit(executor: Executor, call: Callable[[], Figures]) -> Future[Figures]:
    """A pool that is shut down or broken fails the point, not those that have finished.

    The call has no arguments, since some executors take `key` or `workers` for themselves.
    """
    try:
        return executor.submit(_carry, call)
    except Exception as error:
        refused: Future[Figures] = Future()
        refused.set_exception(error)
        return refused


def _carry(call: Callable[[], Figures]) -> Figures:
    """Call it where it runs. An error that cannot be unpickled would break a pool of processes, so its text goes."""
    try:
        return call()
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(_first_line(error)) from error
        raise


@dataclass
class _Table:
    """What is known of each point so far: its row, or what it raised."""

    points: list[Point]
    progress: Progress | None
    rows: dict[int, Row] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)

    def take(self, numbers: list[int], result: Callable[[], Figures]) -> None:
        """Enter the figures of the points of these numbers, or the error that their `result` raises."""
        try:
            found = [_row(self.points[number], each) for number, each in zip(numbers, result(), strict=True)]
        except Exception as error:
            found = [dict(self.points[number]) for number in numbers]
            self.errors |= dict.fromkeys(numbers, error)
        else:
            self.rows |= zip(numbers, found, strict=True)
        before = len(self.rows) + len(self.errors) - len(numbers)
        for done, row in enumerate(found, before + 1):
            if self.progress is not None:
                self.progress(done, len(self.points), row)

    def finished(self) -> list[Row]:
        rows = [self.rows[number] for number in sorted(self.rows)]
        if not self.errors:
            return rows
        failures = [Failure(self.points[number], self.errors[number]) for number in sorted(self.errors)]
        raise SweepError(rows, failures) from failures[0].error


def _row(point: Point, figures: object) -> Row:
    if not isinstance(figures, Mapping):
        raise TypeError(f"a point gives a mapping of figures, as in {{'cycles': 864}}, and not {figures!r}")
    taken = [name for name in figures if name in point]
    if taken:
        raise ValueError(f"figure {taken[0]!r} has the name of an axis: rename one of them")
    return {**point, **{name: _figure(name, value) for name, value in figures.items()}}


def _figure(name: object, value: object) -> Figure:
    """The value as Python's own int, float or str, so that the same figures are the same bytes."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"figure {name!r} is {value!r}, a {type(value).__name__}: give an int, a float or a str")


def show_progress(done: int, total: int, row: Row) -> None:
    """Write how far the sweep is to stderr: one line that changes on a terminal, a line a point elsewhere."""
    text = f"{done}/{total}  {_say(row)}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}" + ("\n" if done == total else ""))
    else:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


# Sweeps of a spec's fields


def retimed(run: Run, points: Iterable[Point], *, progress: Progress | None = None) -> list[Row]:
    """The `cycles` of `run` with other costs, without running it again: a point names AhbmSpec fields and their values.

    They are those of the model's schedule, and exact if no kernel decides by time (`retime`). Raises ValueError, before
    anything is retimed, for a field that does not exist or a value it cannot have, and for one that decides more
    than costs, for which the kernel has to be run again.
    """
    checked = _checked(points)
    for point in checked:
        _refuse_other_runs(run, point)

    def cycles(**point: Any) -> dict[str, Figure]:
        return {"cycles": _cycles(run, _spec_at(run.spec, point))}

    return sweep(cycles, checked, progress=progress)


def _refuse_other_runs(run: Run, point: Point) -> None:
    spec = _spec_at(run.spec, point)
    for name, decides in _deciding_fields().items():
        had, has = getattr(run.spec, name), getattr(spec, name)
        if had != has:
            fact = f"spec field {name} = {has}, the run had {had}, and it decides {decides}"
            raise ValueError(f"retimed, point {_say(point)}: {fact}; run the kernel again (sweep_spec does)")


def _deciding_fields() -> dict[str, str]:
    """The fields of the spec with which a kernel has to be run again, and what they decide."""
    from pytest_kernbench.simulator.ahbm.spec import DECIDES_REFUSALS, DECIDES_ROWS

    refusals = "whether the kernel is refused"
    return {**dict.fromkeys(DECIDES_ROWS, "the rows of the log"), **dict.fromkeys(DECIDES_REFUSALS, refusals)}


def _spec_at(spec: AhbmSpec, point: Point) -> AhbmSpec:
    known = [each.name for each in fields(spec)]
    for name in point:
        if name not in known:
            guess = ", ".join(nearest(name, known)) or ", ".join(known)
            raise ValueError(f"point {_say(point)}: AhbmSpec has no field {name!r}; nearest: {guess}")
    try:
        return replace(spec, **point)
    except LaunchError as error:
        raise ValueError(f"point {_say(point)}: {error}") from None


def _cycles(run: Run, spec: AhbmSpec) -> int:
    from pytest_kernbench.simulator.ahbm.timing import Timing
    from pytest_kernbench.simulator.ops.retime import retime

    return retime(run.log, Timing(spec)).cycles


def sweep_spec(
    run_at: Callable[[AhbmSpec], Run], points: Iterable[Point], *, spec: AhbmSpec | None = None,
    executor: Executor | None = None, progress: Progress | None = None,
) -> list[Row]:  # fmt: skip
    """The `cycles` of `run_at(spec)` at points of AhbmSpec fields, running the kernel only where it has to be.

    `run_at` runs the kernel on a new chip of the spec it is given, under the model's schedule, and may use the
    spec for nothing else. Points that differ only in costs share one run, and the others of them are retimed. Fields
    that no point names are those of `spec`. A `run_at` that raises fails all points that would have shared its run.

    Raises ValueError for points as `retimed` does, and SweepError as `sweep` does.
    """
    from pytest_kernbench.simulator.ahbm.spec import AhbmSpec

    checked, base, deciding = _checked(points), spec or AhbmSpec(), _deciding_fields()
    specs = [_spec_at(base, point) for point in checked]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, each in enumerate(specs):
        groups.setdefault(tuple(getattr(each, name) for name in deciding), []).append(number)
    jobs: list[Job] = [
        (members, partial(_run_once, run_at, [specs[number] for number in members])) for members in groups.values()
    ]
    return _run(jobs, _Table(checked, progress), executor)


def _run_once(run_at: Callable[[AhbmSpec], Run], specs: list[AhbmSpec]) -> Figures:
    """Cycles under each of `specs`, which decide the same rows: the first is run."""
    run = run_at(specs[0])
    if run.spec != specs[0]:
        raise ValueError("run_at(spec) returned a run of another spec: run the kernel on AhbmChip(spec)")
    if run.schedule != "model":
        raise ValueError(f"run_at(spec) returned a run under {run.schedule!r}: only schedule='model' can be retimed")
    return [{"cycles": run.cycles}, *({"cycles": _cycles(run, spec)} for spec in specs[1:])]
