"""A plot draws every row, a line a value of `by`, the same bytes each time; what cannot be drawn is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_kernbench.sweeps import grid, plot, sweep

pytest.importorskip("matplotlib", reason="pip install -e '.[plots]'")

ROWS = sweep(lambda n, s: {"cycles": s // n, "note": f"{n} of {s}"}, grid(n=(1, 2), s=(256, 64, 128)))


def labels(path: Path) -> list[str]:
    """The texts of an SVG, which matplotlib writes as comments above their outlines."""
    lines = path.read_text().splitlines()
    return [
        line.strip().removeprefix("<!-- ").removesuffix(" -->") for line in lines if line.strip().startswith("<!-- ")
    ]


def lines(path: Path) -> list[list[tuple[float, float]]]:
    """The corners of every line of data, in order; what is drawn with two corners is the grid behind them."""
    paths = (line.split() for line in re.findall(r'<path d="([^"]*)" clip-path', path.read_text()))
    corners = [[float(word) for word in line if word not in ("M", "L")] for line in paths]
    return [list(zip(each[::2], each[1::2], strict=True)) for each in corners if len(each) > 4]


def test_every_value_of_by_is_a_line_through_its_points(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"

    plot(ROWS, "s", "cycles", by="n", path=path, title="Decode", xlabel="length (tokens)", ylabel="time (cycles)")

    drawn = lines(path)
    assert [len(line) for line in drawn] == [3, 3]
    assert all(line == sorted(line) for line in drawn)  # along x, whatever the order of rows
    assert drawn[0][0][1] == drawn[1][1][1]  # 64 tokens on 1 and 128 on 2 take 64 cycles
    assert {"Decode", "length (tokens)", "time (cycles)", "n", "1", "2"} <= set(labels(path))


def test_one_line_has_no_legend_and_an_axis_the_name_of_its_column(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"

    plot(ROWS[:3], "s", "cycles", path=str(path))

    assert {"s", "cycles"} <= set(labels(path))
    assert 'id="legend' not in path.read_text()
    assert 'id="legend' in svg(tmp_path, ROWS, by="n")


def svg(folder: Path, rows: list[dict[str, Any]], **how: Any) -> str:
    plot(rows, "s", "cycles", path=folder / "other.svg", **how)
    return (folder / "other.svg").read_text()


def test_a_logarithmic_axis_is_labelled_at_its_points(tmp_path: Path) -> None:
    plot(ROWS, "s", "cycles", by="n", path=tmp_path / "log.svg", log_x=True)

    (x64, _), (x128, _), (x256, _) = lines(tmp_path / "log.svg")[0]
    assert x128 - x64 == pytest.approx(x256 - x128)
    assert {"64", "128", "256"} <= set(labels(tmp_path / "log.svg"))


def test_many_points_of_a_logarithmic_axis_are_labelled_in_powers_of_two(tmp_path: Path) -> None:
    plot([{"s": 2**n, "cycles": n} for n in range(14)], "s", "cycles", path=tmp_path / "many.svg", log_x=True)

    powers = [int(power) for power in re.findall(r"2\^\{(\d+)\}", " ".join(labels(tmp_path / "many.svg")))]
    assert powers[0] <= 1 and powers[-1] >= 12  # matplotlib chooses which


def test_texts_along_x_stay_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = [{"kernel": name, "cycles": number} for number, name in enumerate(("ring", "all", "mesh"))]

    plot(rows, "kernel", "cycles", path=tmp_path / "a.svg")

    assert [each for each in labels(tmp_path / "a.svg") if each in ("ring", "all", "mesh")] == ["ring", "all", "mesh"]


DRAW = """
from pytest_kernbench.sweeps import plot
plot([{"n": n, "cycles": n * n} for n in range(4)], "n", "cycles", by="n", path="a.svg", title="same")
"""


def test_the_same_rows_are_the_same_bytes_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(DRAW, {})
    here = (tmp_path / "a.svg").read_bytes()
    (tmp_path / "a.svg").unlink()

    subprocess.run([sys.executable, "-c", DRAW], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})

    assert (tmp_path / "a.svg").read_bytes() == here
    assert b"dc:date" not in here


def test_a_png_is_one(tmp_path: Path) -> None:
    plot(ROWS, "s", "cycles", by="n", path=tmp_path / "a.png")

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("rows", "how", "fact"),
    [
        (ROWS, {"y": "cycle"}, "not every row has a column 'cycle'; there are n, s, cycles, note"),
        (ROWS, {"by": "m"}, "not every row has a column 'm'"),
        ([], {}, "not every row has a column 's'; there are none"),
        ([*ROWS, {"n": 3, "s": 1}], {"by": "n"}, "not every row has a column 'cycles'"),
        (ROWS, {"y": "note"}, "y wants a number, and note is '1 of 256'"),
        (ROWS, {}, "two rows have s=256: choose rows, or give the axis that tells them apart as `by`"),
        ([*ROWS, ROWS[4]], {"by": "n"}, "two rows have s=64, n=2:"),
        ([{"s": 0, "cycles": 1}], {"log_x": True}, "log_x wants a number above 0, and s is 0"),
        (ROWS, {"x": "note", "log_x": True}, "log_x wants a number above 0, and note is '1 of 256'"),
        (ROWS, {"by": "n", "path": "a.pdf"}, "a.pdf ends in '.pdf': draw a .png or an .svg"),
        (ROWS, {"by": "n", "path": "svg"}, "svg ends in '': draw a .png or an .svg"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(
    rows: Any, how: dict[str, Any], fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"x": "s", "y": "cycles", "path": "a.svg", **how}
    with pytest.raises(ValueError, match=r"^plot: ") as caught:
        plot(rows, **arguments)
    assert fact in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(ImportError, match=r"plot needs matplotlib: pip install 'pytest-kernbench\[plots\]'"):
        plot(ROWS, "s", "cycles", by="n", path=tmp_path / "a.svg")
