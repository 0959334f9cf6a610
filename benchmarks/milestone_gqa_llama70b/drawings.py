"""The figures drawn: how long each kernel takes, and where it stands under the roofs of the chip.

The same rows give the same bytes under the same matplotlib, which is loaded here alone. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.milestone_gqa_llama70b.figures import Row
from benchmarks.milestone_gqa_llama70b.panels import PANELS
from pytest_kernbench.simulator import AhbmSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUP = 8  # query heads of a KV head: the rows of the products of a decode
STYLE: Any = {
    "svg.hashsalt": "pytest-kernbench", "svg.fonttype": "none",  # ids are random otherwise, and letters are paths
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
COLOURS = {
    "gqa_decode": "#0072B2", "gqa_ring, striped": "#0072B2", "gqa_ring, zigzag": "#56B4E9",
    "gqa_ring, striped, 8 slots": "#009E73", "gqa_ring, zigzag, 8 slots": "#CC79A7",
    "gqa_prefill, 1 PE": "#999999", "heads one by one": "#D55E00", "heads together": "#E69F00",
}  # fmt: skip


def draw(rows: Sequence[Row], folder: Path, suffixes: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """latency and roofline in `folder`, each in all formats; returns the paths."""
    drawings = {"latency": latency, "roofline": roofline}
    with matplotlib.rc_context(STYLE):
        # each from anew: saving moves what the layout places
        return [_save(drawings[name](rows), folder / f"{name}{suffix}") for name in drawings for suffix in suffixes]


def _save(drawing: Figure, path: Path) -> Path:
    drawing.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def colour(kernel: str) -> str:
    return COLOURS.get(kernel) or COLOURS[kernel.rpartition(", ")[2]]


# --- latency ----------------------------------------------------------------------------------------------------------


def latency(rows: Sequence[Row]) -> Figure:
    """A panel each: bars of microseconds, each with its ratio to that of the fastest new kernel."""
    drawing = Figure(figsize=(9.6, 5), layout="constrained")
    for axes, panel in zip(drawing.subplots(2, 2).flat, PANELS, strict=True):
        _bars(axes, panel, [row for row in rows if row["panel"] == panel])
    drawing.suptitle("Time of the attention of one layer, and its ratio to the fastest new kernel's", fontsize=10)
    return drawing


def _bars(axes: Axes, panel: str, rows: Sequence[Row]) -> None:
    best = min(row["cycles"] for row in rows if row["role"] == "new")
    names, times = [row["kernel"] for row in rows], [row["cycles"] / 1000 for row in rows]
    bars = axes.barh(names, times, color=[colour(name) for name in names], height=0.65)
    texts = [f"{time:,.1f}  ({1000 * time / best:.1f}x)" for time in times]
    axes.bar_label(bars, texts, padding=4)
    axes.invert_yaxis()
    axes.set_title(panel)
    axes.set_xlim(0, 1.6 * max(times))
    axes.set_xlabel("time (us at 1 GHz)")
    axes.tick_params(axis="y", length=0)


# --- roofline ---------------------------------------------------------------------------------------------------------


def roofline(rows: Sequence[Row]) -> Figure:
    """A panel each: MACs that the attention needs, per cycle and PE, over those per HBM byte."""
    drawing = Figure(figsize=(9.6, 7), layout="constrained")
    for axes, panel in zip(drawing.subplots(2, 2).flat, PANELS, strict=True):
        some = [row for row in rows if row["panel"] == panel]
        _roofs(axes, AhbmSpec(), some)
        for row in some:
            _point(axes, row)
        axes.set(title=panel, xlabel="MACs needed per HBM byte", ylabel="MACs needed per cycle and PE")
    names = dict.fromkeys(row["kernel"] for row in rows)
    drawing.legend(handles=_legend(names), loc="outside lower center", ncols=3, frameon=False)
    return drawing


def intensity(row: Row) -> float:
    return float(row["macs_needed"] / (row["hbm_bytes_read"] + row["hbm_bytes_written"]))


def _per_cycle(row: Row, cycles: float) -> float:
    return float(row["macs_needed"] / row["programs"] / cycles)


def _roofs(axes: Axes, spec: AhbmSpec, rows: Sequence[Row]) -> None:
    """What HBM and GEMM allow a PE, and the GEMM with no more rows than decode has query heads."""
    peak, bandwidth = spec.gemm_macs_per_cycle, spec.hbm_bytes_per_cycle * spec.hbm_efficiency_percent / 100
    seen, lowest = [intensity(row) for row in rows], min(_per_cycle(row, row["cycles"]) for row in rows)
    ridge = peak / bandwidth
    low, high = min(*seen, ridge / 4) / 4, 4 * max(*seen, ridge)
    xs = [low, ridge, high]
    axes.loglog(xs, [min(x * bandwidth, peak) for x in xs], color="black", linewidth=1.2)
    axes.set(xlim=(low, high), ylim=(min(lowest, low * bandwidth) / 2, 3 * peak))
    _say(axes, f"GEMM {peak} MACs/cycle", (high, peak), (-4, 4), "right")
    _say(axes, f"HBM {bandwidth:g} B/cycle", (ridge / 1.6, peak / 1.6), (-5, 2), "right")
    if "decode" in rows[0]["panel"]:
        padded = peak * GROUP / spec.tile_m
        axes.plot([padded / bandwidth, high], [padded, padded], color="black", linewidth=0.8, linestyle="--")
        _say(axes, f"GEMM, {GROUP} of {spec.tile_m} rows", (high, padded), (-4, 4), "right")
    axes.grid(alpha=0.25)
    axes.minorticks_off()


def _say(axes: Axes, text: str, at: tuple[float, float], offset: tuple[int, int], side: str) -> None:
    axes.annotate(text, at, offset, textcoords="offset points", ha=side, fontsize=8)


def _point(axes: Axes, row: Row) -> None:
    """The kernel, and above it the bar up to which its MATH unit would let it come."""
    x, y, shade = intensity(row), _per_cycle(row, row["cycles"]), colour(row["kernel"])
    ceiling = _per_cycle(row, row["math_cycles"])
    axes.plot([x, x], [y, ceiling], color=shade, linewidth=1)
    axes.plot([x], [ceiling], marker="_", color=shade, markersize=12, markeredgewidth=1.8)
    axes.plot([x], [y], marker="o", color=shade, markersize=6.5)


def _legend(names: Iterable[str]) -> list[Line2D]:
    named = [Line2D([], [], marker="o", linestyle="", color=colour(name), label=name) for name in names]
    bound = Line2D([], [], marker="_", markersize=12, linestyle="", color="black", label="what its MATH unit allows")
    return [*named, bound]
