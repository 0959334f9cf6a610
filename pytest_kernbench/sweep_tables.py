"""Tables of a sweep: rows to CSV and back, and drawn as lines.

The same rows give the same bytes. Drawing alone needs matplotlib, and loads it. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figure = int | float | str
Row = dict[str, Any]  # a point and its figures
Path = str | os.PathLike[str]

MOST_TICKS = 12


def columns(rows: Sequence[Row]) -> list[str]:
    """The names in order of first appearance, which are the axes and then the figures."""
    return list(dict.fromkeys(name for row in rows for name in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write the rows with a line of names above them: axes, then figures in order of first appearance.

    A figure that a row does not have is an empty cell. Raises ValueError for no rows.
    """
    if not rows:
        raise ValueError(f"write_csv: no rows for {os.fspath(path)}")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns(rows), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[Row]:
    """The rows of a file of `write_csv`: a cell that reads as a number is one, an empty cell is left out."""
    with open(path, encoding="utf-8", newline="") as file:
        return [
            {name: _number(cell) for name, cell in row.items() if cell != ""}
            for row in csv.DictReader(file, strict=True)
        ]


def _number(cell: str) -> Figure:
    for kind in (int, float):
        try:
            return kind(cell.replace("_", "x"))  # Python reads 1_000 as a number
        except ValueError:
            continue
    return cell


# Plots


def plot(
    rows: Sequence[Row], x: str, y: str, *, path: Path, by: str | None = None, title: str = "", xlabel: str = "",
    ylabel: str = "", log_x: bool = False,
) -> None:  # fmt: skip
    """Draw column `y` over column `x` into a .png or .svg file, a line a value of `by`.

    Labels say units, as in `ylabel="time (cycles)"`; without, an axis has its column's name. Bytes of an SVG are the
    same under the same matplotlib. Raises ImportError without the extra `plots`, and ValueError for another suffix, a
    column that some row does not have, a `y` (or an `x` for `log_x`) that cannot be drawn, and a line with two values
    at one `x`.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in (".png", ".svg"):
        raise ValueError(f"plot: {os.fspath(path)} ends in {suffix!r}: draw a .png or an .svg")
    lines = _lines(rows, x, y, by)
    if log_x:
        _need_numbers("log_x", rows, x, least=0)
    try:
        import matplotlib
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'pytest-kernbench[plots]'") from error
    with matplotlib.rc_context({"svg.hashsalt": "pytest-kernbench"}):  # its ids are random otherwise
        drawing = Drawing(figsize=(7, 4.5), layout="constrained")
        axes = drawing.add_subplot()
        _draw(axes, lines, by, log_x)
        axes.set(title=title, xlabel=xlabel or x, ylabel=ylabel or y)
        drawing.savefig(path, dpi=150, metadata={"Date": None} if suffix == ".svg" else None)


def _lines(rows: Sequence[Row], x: str, y: str, by: str | None) -> dict[Any, dict[Any, Any]]:
    """For each value of `by` (None: all rows are one line) y by x, both in order of first appearance."""
    for name in [x, y, *([] if by is None else [by])]:
        if not rows or any(name not in row for row in rows):
            raise ValueError(
                f"plot: not every row has a column {name!r}; there are {', '.join(columns(rows)) or 'none'}"
            )
    _need_numbers("y", rows, y)
    lines: dict[Any, dict[Any, Any]] = {}
    for row in rows:
        line = lines.setdefault(None if by is None else row[by], {})
        if row[x] in line:
            where = f"{x}={row[x]}" if by is None else f"{x}={row[x]}, {by}={row[by]}"
            raise ValueError(
                f"plot: two rows have {where}: choose rows, or give the axis that tells them apart as `by`"
            )
        line[row[x]] = row[y]
    return lines


def _need_numbers(what: str, rows: Sequence[Row], name: str, least: float = float("-inf")) -> None:
    for row in rows:
        value = row[name]
        if not isinstance(value, Real) or value <= least:
            wants = "a number" if least < 0 else f"a number above {least}"
            raise ValueError(f"plot: {what} wants {wants}, and {name} is {value!r}")


def _draw(axes: Axes, lines: Mapping[Any, Mapping[Any, Any]], by: str | None, log_x: bool) -> None:
    every = dict.fromkeys(value for line in lines.values() for value in line)
    numeric = all(isinstance(value, Real) for value in every)
    for value, line in lines.items():
        along = sorted(line) if numeric else list(line)
        places = along if numeric else [str(each) for each in along]
        axes.plot(places, [line[each] for each in along], marker="o", label=str(value))
    if log_x:
        axes.set_xscale("log", base=2)
        if len(every) <= MOST_TICKS:  # where the points are, and not as powers
            axes.set_xticks(list(every), [f"{each:g}" if isinstance(each, float) else str(each) for each in every])
            axes.minorticks_off()
    axes.grid(alpha=0.3)
    if by is not None:
        axes.legend(title=by)
