"""The figures as text: a table a panel, a kernel a column. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.milestone_gqa_llama70b.figures import Row
from benchmarks.milestone_gqa_llama70b.panels import PANELS, N, Sizes, entry
from benchmarks.table import aligned

KV_HEADS = 8


def _share(row: Row, unit: str) -> str:
    return f"{100 * row[unit + '_busy']:.0f} %"


LINES: dict[str, Callable[[Row], Any]] = {
    "cycles (= ns)": lambda row: f"{row['cycles']:,}",
    "times faster than heads one by one": lambda row: f"{row['gain_over_heads_one_by_one']:.2f}",
    "times faster than heads together": lambda row: f"{row['gain_over_heads_together']:.2f}",
    "roofline (cycles), its unit": lambda row: f"{row['roofline']:,.0f} {row['bound']}",
    "position: cycles / roofline": lambda row: f"{row['position']:.2f}",
    "GEMM / MATH / DMA busy": lambda row: " / ".join(_share(row, unit) for unit in ("gemm", "math", "dma")),
    "MACs done / needed": lambda row: f"{row['macs_done'] / row['macs_needed']:.2f}",
    "HBM bytes read": lambda row: f"{row['hbm_bytes_read']:,}",
    "HBM bytes written": lambda row: f"{row['hbm_bytes_written']:,}",
    "bytes on links": lambda row: f"{row['link_bytes']:,}",
    "messages": lambda row: f"{row['messages']:,}",
    "reductions x rounds": lambda row: f"{row['reductions']} x {row['rounds']}" if row["rounds"] else "0",
    "composites / dots": lambda row: f"{row['composites']:,} / {row['dots']:,}",
    "scratch high water (bytes)": lambda row: f"{row['scratch_high_water']:,}",
    "launches": lambda row: str(row["launches"]),
}


def report(rows: Iterable[Row], sizes: Sizes) -> str:
    """What was simulated, and the table of every panel that has rows."""
    rows = list(rows)
    by_panel = {panel: [row for row in rows if row["panel"] == panel] for panel in PANELS}
    return "\n\n".join([about(sizes), *(_panel(panel, each, sizes) for panel, each in by_panel.items() if each)])


def about(sizes: Sizes) -> str:
    """What was simulated, and what the figures are of."""
    said = f"Llama3-70B, one layer: {KV_HEADS} KV heads of 8 query heads of 128 each, each on a cube of {N} PEs."
    if sizes.cubes == KV_HEADS:
        return f"{said}\nAll {KV_HEADS} cubes are simulated; bytes, messages and products are of all of them."
    some = f"{sizes.cubes} of {KV_HEADS} cubes simulated, which are alike and share nothing"
    return f"{said}\n{some}: cycles are those of all, bytes, messages and products of {sizes.cubes}."


def title(panel: str, sizes: Sizes) -> str:
    """The panel, and the lengths of its requests."""
    lengths = [problem.kv_len for problem in sizes.requests(panel)]
    some = ", ".join(map(str, lengths))
    if "decode" in panel:
        return f"{panel}: one query against {some} keys"
    return f"{panel}: {some} tokens"


def _panel(panel: str, rows: Sequence[Row], sizes: Sizes) -> str:
    names = ["", *(row["kernel"] for row in rows)]
    lines = [[label, *(str(value(row)) for row in rows)] for label, value in LINES.items()]
    notes = [f"- {row['kernel']} ({row['role']}): {entry(panel, row['kernel']).note}" for row in rows]
    return "\n".join([f"### {title(panel, sizes)}", "", aligned([names, *lines]), "", *notes])
