"""What a tuning item is: its points, what is run and read at each, and how the rows are drawn.

A point is run once, whatever it is asked about: other costs are the same log with other times. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_kernbench import sweeps
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import DeadlockError, KernelError
from pytest_kernbench.simulator.ops.retime import retime
from pytest_kernbench.sweep_tables import Figure, Row

Point = Mapping[str, Any]
Figures = Mapping[str, Figure]
Rows = list[Row]

RAN = "ran"
LIMITS = ("capacity", "deadlock")  # refusals that are a result of a sweep: what does not fit, and what hangs


@dataclass(frozen=True)
class Cost:
    """Other costs for a run that is there: `label` names them in the rows, `changes` are fields of AhbmSpec."""

    label: Point
    changes: Point


AS_RUN = (Cost({}, {}),)


def same(rows: Rows) -> Rows:
    return rows


@dataclass(frozen=True)
class View:
    """A picture: those of the rows that `prepare` makes which have the values of `only`, as `sweeps.plot` draws them.

    `xlabel` and `ylabel` say units.
    """

    name: str
    title: str
    x: str
    y: str
    by: str
    xlabel: str
    ylabel: str
    only: Point = field(default_factory=dict)
    prepare: Callable[[Rows], Rows] = same
    log_x: bool = True

    def chosen(self, rows: Rows) -> Rows:
        """The rows to draw; none if a quick sweep leaves them out."""
        ran = self.prepare([row for row in rows if row["outcome"] == RAN])
        return [row for row in ran if all(row[name] == value for name, value in self.only.items())]

    def draw(self, rows: Rows, path: Path) -> None:
        """Raises as `sweeps.plot` does, and so for no rows."""
        sweeps.plot(
            self.chosen(rows), self.x, self.y, by=self.by, path=path, title=self.title, xlabel=self.xlabel,
            ylabel=self.ylabel, log_x=self.log_x,
        )  # fmt: skip


@dataclass(frozen=True)
class Item:
    """A clause of ADR-0060 9: `run_at(**point)` of every point, and `figures` of that run and point under
    each of `costs`.

    Both are functions of a module, for other processes. `points(quick)` and `costs(quick)` are few if `quick`, and
    among those that there are otherwise.
    """

    name: str
    clause: str
    question: str
    points: Callable[[bool], Sequence[Point]]
    run_at: Callable[..., Run]
    figures: Callable[[Run, Point], Figures]
    views: tuple[View, ...]
    costs: Callable[[bool], Sequence[Cost]] = lambda quick: AS_RUN

    def measure(self, quick: bool = False, executor: Executor | None = None, tell: bool = False) -> Rows:
        """A row a point and cost: the point, the label of the cost, `outcome`, and the figures if it ran.

        `outcome` is `RAN`, or one of `LIMITS`. `tell` shows the progress on stderr. Raises SweepError as `sweep` does.
        """
        points, costs = self.points(quick), self.costs(quick)
        function = partial(figures_at, self.run_at, self.figures, costs)
        wide = sweeps.sweep(function, points, executor=executor, progress=self._tell if tell else None)
        return [
            _row_at(number, cost, point, row)
            for point, row in zip(points, wide, strict=True)
            for number, cost in enumerate(costs)
        ]

    def _tell(self, done: int, total: int, row: Row) -> None:
        axes = {name: value for name, value in row.items() if " " not in name}
        sweeps.show_progress(done, total, {"item": self.name, **axes})

    def write(self, rows: Rows, folder: Path, suffixes: Sequence[str]) -> list[Path]:
        """The rows as a CSV and the views with those suffixes: the files written, all named after the item."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{self.name}.csv"]
        sweeps.write_csv(rows, files[0])
        for view in self.views:
            for suffix in suffixes if view.chosen(rows) else ():
                files.append(folder / f"{self.name}-{view.name}{suffix}")
                view.draw(rows, files[-1])
        return files


def figures_at(
    run_at: Callable[..., Run], figures: Callable[[Run, Point], Figures], costs: Sequence[Cost], /, **point: Any
) -> Figures:
    """One run, and its figures under each of `costs`; those of cost i have names that end in " i"."""
    try:
        run = run_at(**point)
    except (KernelError, DeadlockError) as error:
        if error.hazard.kind not in LIMITS:
            raise
        return {"outcome": error.hazard.kind}
    found: dict[str, Figure] = {"outcome": RAN}
    for number, cost in enumerate(costs):
        found |= {f"{name} {number}": value for name, value in figures(at_cost(run, cost), point).items()}
    return found


def at_cost(run: Run, cost: Cost) -> Run:
    """`run` as it is with other costs, by `retime`: exact if no kernel decides by time, as none here does."""
    if not cost.changes:
        return run
    spec = replace(run.spec, **cost.changes)
    retimed = retime(run.log, Timing(spec))
    return replace(run, log=retimed.log, cycles=retimed.cycles, spec=spec)


def _row_at(number: int, cost: Cost, point: Point, row: Row) -> Row:
    ends = f" {number}"
    figures = {name.removesuffix(ends): value for name, value in row.items() if name.endswith(ends)}
    return {**point, **cost.label, "outcome": row["outcome"], **figures}


def as_table(rows: Rows) -> str:
    """The rows as lines of text, each column as wide as its widest cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([str(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.rjust, line, widths)).rstrip() for line in cells)
