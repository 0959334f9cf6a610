"""The milestone bench runs all its panels, computes the right attention in each, and says what each kernel took."""

import csv
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm.budget import Budget, Sizes
from pytest_kernbench.kernels.ahbm.driver import Launch
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth, Rules
from pytest_kernbench.kernels.ahbm.requests import Request
from pytest_kernbench.kernels.reference.attention import attention, error_model, random_attention
from pytest_kernbench.simulator import AhbmChip, AhbmSpec
from pytest_kernbench.simulator.errors import SimError
from pytest_kernbench.sweeps import read_csv

ROOT = Path(__file__).parents[2]
PACKAGE = "benchmarks.milestone_gqa_llama70b"
DECODES = {"gqa_decode", "mesh_mlo, heads one by one", "mesh_mlo, heads together"}
RINGS = {
    "gqa_ring, striped", "gqa_ring, zigzag", "mesh_kv, heads one by one", "mesh_kv, heads together",
    "gqa_ring, striped, 8 slots", "gqa_ring, zigzag, 8 slots",
}  # fmt: skip
KERNELS = {
    "single-user decode": DECODES, "multi-user decode": DECODES,
    "single-user prefill": RINGS | {"gqa_prefill, 1 PE"}, "multi-user prefill": RINGS,
}  # fmt: skip
COLUMNS = {
    "panel", "kernel", "role", "cycles", "gain_over_heads_one_by_one", "gain_over_heads_together", "roofline", "bound",
    "position", "gemm_busy", "math_busy", "dma_busy", "macs_done", "macs_needed", "hbm_bytes_read",
    "hbm_bytes_written", "link_bytes", "messages", "reductions", "rounds", "composites", "dots", "scratch_high_water",
    "launches",
}  # fmt: skip
EACH = [(panel, kernel) for panel, kernels in KERNELS.items() for kernel in sorted(kernels)]


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """`bench("figures")`: a module of the bench, which lies in the checkout and not in the wheel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")


@pytest.fixture(scope="module")
def quick(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `--quick` prints, and the folder that it writes."""
    out = tmp_path_factory.mktemp("milestone") / "new"
    command = [sys.executable, "-m", PACKAGE, "--quick", "--workers", "2", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done, out


@pytest.fixture(scope="module")
def rows(quick: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of `--quick` by panel and kernel."""
    return {(row["panel"], row["kernel"]): row for row in read_csv(quick[1] / "milestone.csv")}


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.adr("0054", "2", "6", "9")
def test_every_panel_has_its_kernels_and_every_row_its_columns(quick: Any, rows: Any) -> None:
    assert sorted(rows) == sorted(EACH)
    with (quick[1] / "milestone.csv").open() as file:
        assert all(set(row) >= COLUMNS and "" not in row.values() for row in csv.DictReader(file))


@pytest.mark.adr("0054", "3", "9")
def test_the_command_prints_progress_and_a_table_a_panel(quick: Any) -> None:
    done, _ = quick

    assert [line.partition("  ")[0] for line in done.stderr.splitlines() if "panel=" in line] == [
        f"{number}/{len(EACH)}" for number in range(1, len(EACH) + 1)
    ]
    assert "1 of 8 cubes simulated" in done.stdout
    assert "### multi-user decode: one query against 1024, 512 keys" in done.stdout
    assert "### single-user prefill: 256 tokens" in done.stdout
    for line in ("cycles (= ns)", "position: cycles / roofline", "bytes on links", "reductions x rounds"):
        assert done.stdout.count(f"| {line} ") == len(KERNELS)


@pytest.mark.adr("0054", "9")
def test_the_drawings_are_written_and_the_same_rows_give_the_same_svg(bench: Any, quick: Any, tmp_path: Path) -> None:
    names = ["latency.png", "latency.svg", "roofline.png", "roofline.svg"]
    assert sorted(path.name for path in quick[1].iterdir()) == [*names[:2], "milestone.csv", *names[2:]]
    assert all((quick[1] / name).stat().st_size > 10_000 for name in names)

    again = bench("drawings").draw(read_csv(quick[1] / "milestone.csv"), tmp_path, suffixes=(".svg",))
    assert [path.name for path in again] == ["latency.svg", "roofline.svg"]
    for path in again:
        assert path.read_bytes() == (quick[1] / path.name).read_bytes()


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.adr("0054", "7")
def test_no_run_is_shorter_than_its_roofline(rows: Any) -> None:
    for row in rows.values():
        assert row["position"] == pytest.approx(row["cycles"] / row["roofline"])
        assert row["position"] >= 1
        assert all(0 < row[f"{unit}_busy"] <= 1 for unit in ("gemm", "math", "dma"))


@pytest.mark.adr("0054", "8")
def test_every_new_kernel_is_faster_than_both_baselines(rows: Any) -> None:
    for panel in KERNELS:
        of_panel = [row for (each, _), row in rows.items() if each == panel]
        slowest = max(row["cycles"] for row in of_panel if row["role"] == "new")
        assert slowest < min(row["cycles"] for row in of_panel if row["role"] == "baseline")
        for row in of_panel:
            original = next(each for each in of_panel if "one by one" in each["kernel"])
            assert row["gain_over_heads_one_by_one"] == pytest.approx(original["cycles"] / row["cycles"])


@pytest.mark.adr("0054", "6")
def test_decode_reads_every_key_once_and_reduces_in_three_rounds(rows: Any) -> None:
    """1024 keys of 512 bytes (K and V), eight copies of Q; partial results of 4160 bytes over 7 or 8 * 7 edges."""
    new, original, folded = (rows["single-user decode", kernel] for kernel in sorted(DECODES))

    assert new["hbm_bytes_read"] == folded["hbm_bytes_read"] == 1024 * 512 + 8 * 2048
    assert original["hbm_bytes_read"] == 8 * (1024 * 512) + 8 * 2048
    assert (new["reductions"], new["rounds"]) == (1, 3)
    assert (original["reductions"], original["rounds"]) == (8, 7)
    assert (folded["reductions"], folded["rounds"]) == (1, 7)
    assert folded["link_bytes"] == original["link_bytes"] == 8 * new["link_bytes"] == 8 * 7 * 4160
    assert new["dots"] == folded["composites"] == 0


@pytest.mark.adr("0054", "6")
def test_the_baseline_of_prefill_does_twice_the_products_that_are_needed(rows: Any) -> None:
    needed = 8 * (256 * 257 // 2) * 256

    for (panel, kernel), row in rows.items():
        if panel == "single-user prefill":
            assert (row["macs_needed"], row["rounds"], row["reductions"]) == (needed, 0, 0)
            assert row["macs_done"] >= needed
            assert "mesh_kv" not in kernel or row["macs_done"] == 8 * 256 * 256 * 256
    striped, zigzag = (rows["single-user prefill", f"gqa_ring, {name}"] for name in ("striped", "zigzag"))
    assert striped["macs_done"] > 1.5 * zigzag["macs_done"]  # 32 keys of a rank reach over the whole prompt


@pytest.mark.adr("0054", "2")
def test_users_have_different_lengths_and_launches_are_added_up(bench: Any, rows: Any) -> None:
    sizes = bench("panels").Sizes(context=8192, prompt=2048, users=4)

    assert [each.kv_len for each in sizes.requests("multi-user decode")] == [8192, 6144, 4096, 2048]
    assert [each.t_q for each in sizes.requests("multi-user decode")] == [1] * 4
    assert [each.t_q for each in sizes.requests("multi-user prefill")] == [2048, 1536, 1024, 512]
    for panel in ("multi-user decode", "multi-user prefill"):
        for kernel in KERNELS[panel]:
            assert rows[panel, kernel]["launches"] == (2 if "mesh" in kernel else 1)


@pytest.mark.adr("0054", "2")
def test_rings_with_more_slots_are_shown_beside_and_are_faster(rows: Any) -> None:
    """One product ahead for both, and pieces of both spans of zigzag by twos."""
    for panel in ("single-user prefill", "multi-user prefill"):
        for sharding in ("striped", "zigzag"):
            shipped, more = rows[panel, f"gqa_ring, {sharding}"], rows[panel, f"gqa_ring, {sharding}, 8 slots"]
            assert (shipped["role"], more["role"]) == ("new", "reference")
            assert more["cycles"] < shipped["cycles"]


@pytest.mark.adr("0054", "2")
def test_a_trip_has_the_most_positions_that_fit(bench: Any) -> None:
    """By the ring's own budget; with a product ahead there is room for fewer, and striped goes by halves of a piece."""
    panels = bench("panels")
    (problem,) = panels.Sizes().requests("single-user prefill")

    def trip(sharding: str, ahead: int) -> int:
        found: int = panels.trip([problem], sharding, Depth(ahead))
        return found

    def budget(q_block: int, ahead: int) -> int:
        sizes = Sizes(8, 128, 128, 2, 64, Rules(1.0), Depth(ahead))
        return Budget.of_ring([Request(2048, 2048)], 8, "zigzag", q_block, sizes).total

    assert [trip("zigzag", ahead) for ahead in (0, 1)] == [64, 56]
    assert [trip("striped", ahead) for ahead in (0, 1)] == [32, 32]
    for ahead in (0, 1):
        assert (
            budget(trip("zigzag", ahead), ahead) <= AhbmSpec().scratch_bytes < budget(trip("zigzag", ahead) + 8, ahead)
        )


@pytest.mark.adr("0054", "3")
@pytest.mark.parametrize("kernel", ["gqa_decode", "mesh_mlo, heads together"])
def test_cubes_are_alike_and_share_nothing(bench: Any, kernel: str) -> None:
    sizes = bench("panels").Sizes(context=64, prompt=64, users=1)

    one, three = (
        bench("figures").measure(replace(sizes, cubes=cubes), "single-user decode", kernel) for cubes in (1, 3)
    )

    for column in ("hbm_bytes_read", "hbm_bytes_written", "link_bytes", "messages", "macs_done", "macs_needed"):
        assert three[column] == 3 * one[column]
    for column in ("cycles", "roofline", "reductions", "rounds", "gemm_busy", "scratch_high_water"):
        assert three[column] == one[column]


# --- what it computes -------------------------------------------------------------------------------------------------


@pytest.mark.adr("0054", "2")
def test_one_user_and_several_are_given_to_the_same_kernels(bench: Any) -> None:
    kernels = bench("panels").PANELS

    assert kernels["single-user decode"] == kernels["multi-user decode"]
    assert kernels["single-user prefill"] == (*kernels["multi-user prefill"], bench("panels").ONE_PE)


@pytest.mark.adr("0054", "5")
@pytest.mark.parametrize(
    ("panel", "kernel"), [each for each in EACH if "multi" in each[0] or each[1] == "gqa_prefill, 1 PE"]
)
def test_every_kernel_gives_the_attention_of_the_reference(bench: Any, panel: str, kernel: str) -> None:
    panels = bench("panels")
    sizes = panels.Sizes(context=40, prompt=24, users=2)
    problems = [with_data(seed, each) for seed, each in enumerate(sizes.requests(panel))]

    outputs = []
    for chip, launch in panels.entry(panel, kernel).launches(problems):
        outputs += launch.outputs(launch.run(chip))

    assert len(outputs) == len(problems)
    for o, problem in zip(outputs, problems, strict=True):
        expected, _ = attention(problem.q, problem.k, problem.v, causal=True)
        bound = error_model(problem.q, problem.k, problem.v, np.dtype(problem.dtype), causal=True).bound
        assert np.abs(o.astype(np.float64) - expected).max() <= bound


def with_data(seed: int, problem: Any) -> Any:
    """The request with data, and two query heads of its eight: enough to tell one by one from together."""
    q, k, v = random_attention(seed, 2, 1, problem.kv_len, problem.d, t_q=problem.t_q)
    return replace(problem, group=2, q=q, k=k, v=v)


@pytest.mark.adr("0054", "4")
def test_a_finding_fails_the_bench(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(y: Any, *, tl: Any) -> None:
        tl.store(y, tl.zeros((8, 64)))

    def launches(problems: Any) -> Iterator[Any]:
        chip = AhbmChip()
        yield chip, Launch(forgets, (chip.tensor("y", (8, 64)),), {}, list)

    panels = bench("panels")
    monkeypatch.setitem(panels.PANELS, "single-user decode", (panels.Entry("forgets", "new", launches, "no wait"),))

    with pytest.raises(SimError, match="op-in-flight-at-exit"):
        bench("figures").measure(panels.Sizes(users=1), "single-user decode", "forgets")


# --- wrong uses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"users": 0}, {"cubes": 9}, {"cubes": 0}, {"prompt": 3}, {"context": 0}], ids=str)
def test_sizes_that_cannot_be_are_refused(bench: Any, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        bench("panels").Sizes(**wrong)


def test_missing_matplotlib_is_answered_before_anything_runs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    command = bench("__main__")
    monkeypatch.delitem(sys.modules, f"{PACKAGE}.drawings", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(SystemExit, match=r"need matplotlib: python -m pip install -e '\.\[bench\]'"):
        command.main(["--quick"])


@pytest.mark.parametrize(("given", "sizes"), [
    ([], (8192, 2048, 4)), (["--quick"], (1024, 256, 2)), (["--quick", "--prompt", "64"], (1024, 64, 2)),
])  # fmt: skip
def test_quick_is_for_sizes_that_are_not_given(bench: Any, given: list[str], sizes: tuple[int, ...]) -> None:
    command = bench("__main__")

    assert tuple(command.sizes_of(command.parser().parse_args(given)).values()) == sizes
