"""Every tuning item of ADR-0060 9 runs anywhere, its findings hold in direction, and what is retimed is what runs."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.driver import Problem
from pytest_kernbench.simulator import AhbmChip, AhbmSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import Hazard, KernelError
from pytest_kernbench.sweeps import read_csv, write_csv

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures" / "tuning"
NAMES = ("depth", "mapping", "tile", "ring", "one-shot", "issue-cost")
TIMES = {"cycles", "busiest_cycles", "over_busiest", "scratch_bytes"}
COLUMNS = {
    "depth": {"kernel", "tile", "ahead", "in_flight", "stream_depth", "outcome", *TIMES},
    "mapping": {"mesh", "mapping", "hop_cycles", "outcome", "rounds", "hops", "longest_edge", "tree_cycles", "cycles"},
    "tile": {"kernel", "s", "tile", "in_flight", "q_block", "outcome", "hbm_cycles", "dma_cycles", "over_hbm", *TIMES},
    "ring": {
        "s", "sharding", "interleave", "slot_bytes", "ahead", "in_flight", "tile", "slots", "recv_ahead", "outcome",
        *TIMES,
        "wait for message", "wait for free slot", "wait for own send", "wait for product", "wait for softmax",
        "wait for memory",
    },
    "one-shot": {"s_pe", "tile", "in_flight", "outcome", "cycles", "hbm_cycles", "beyond_hbm", "scratch_bytes"},
    "issue-cost": {"kernel", "tile", "kind", "issue", "outcome", *TIMES},
}  # fmt: skip


@pytest.fixture(scope="module")
def command() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT)])  # last: other processes have to find an installed package
        yield importlib.import_module("benchmarks.tuning.__main__")


@pytest.fixture(scope="module")
def items(command: Any) -> dict[str, Any]:
    found: dict[str, Any] = command.ITEMS
    return found


class Measured(dict[str, list[dict[str, Any]]]):
    """The rows of a quick sweep of each item, measured when first asked for."""

    def __init__(self, items: dict[str, Any]) -> None:
        super().__init__()
        self.items_by_name = items

    def __missing__(self, name: str) -> list[dict[str, Any]]:
        self[name] = rows = self.items_by_name[name].measure(quick=True)
        return rows

    def cycles(self, item: str, figure: str = "cycles", **where: Any) -> int:
        """The figure of the one row with these values."""
        (row,) = [row for row in self[item] if all(row[name] == value for name, value in where.items())]
        found: int = row[figure]
        return found


@pytest.fixture(scope="module")
def quick(items: dict[str, Any]) -> Measured:
    return Measured(items)


# --- the sweeps -------------------------------------------------------------------------------------------------------


def test_there_is_an_item_for_every_clause(items: dict[str, Any]) -> None:
    assert tuple(items) == NAMES
    assert [item.clause for item in items.values()] == ["9.1", "9.2", "9.3", "9.4", "9.5", "9.6"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_the_columns_of_the_item(quick: Measured, name: str) -> None:
    rows = quick[name]

    assert set().union(*rows) == COLUMNS[name]
    assert all(set(row) == COLUMNS[name] for row in rows if row["outcome"] == "ran")
    assert {row["outcome"] for row in rows} <= {"ran", "capacity", "deadlock"}


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_sweep_is_part_of_the_whole_one(items: dict[str, Any], name: str) -> None:
    item = items[name]

    assert all(point in item.points(False) for point in item.points(True))
    assert all(cost in item.costs(False) for cost in item.costs(True))


@pytest.mark.parametrize("name", NAMES)
def test_figures_in_the_documents_are_those_of_today(quick: Measured, name: str, tmp_path: Path) -> None:
    """After a change of a kernel or the model: python -m benchmarks.tuning all --out docs/figures/tuning."""
    write_csv(quick[name], tmp_path / "now.csv")

    written = read_csv(FIGURES / f"{name}.csv")
    assert [row for row in read_csv(tmp_path / "now.csv") if row not in written] == []


@pytest.mark.adr("0060", "9.1")
def test_composites_said_ahead_and_panels_in_flight_save_time(quick: Measured) -> None:
    at = {"ahead": 1, "in_flight": 1}

    assert quick.cycles("depth", **at, stream_depth=8) < quick.cycles("depth", **at, stream_depth=1)
    assert quick.cycles("depth", **at, stream_depth=8) < quick.cycles("depth", ahead=0, in_flight=1, stream_depth=8)
    assert quick.cycles("depth", ahead=1, in_flight=2, stream_depth=8) < quick.cycles("depth", **at, stream_depth=8)


@pytest.mark.adr("0060", "9.2")
def test_one_hop_edges_are_the_fastest_at_equal_rounds(quick: Measured) -> None:
    for hop_cycles in (9, 100):
        times = {
            row["mapping"]: row["tree_cycles"]
            for row in quick["mapping"]
            if (row["mesh"], row["hop_cycles"]) == ("2x4", hop_cycles)
        }
        assert min(times, key=lambda each: times[each]) == "shipped"


@pytest.mark.adr("0060", "9.2")
def test_a_round_less_beats_one_hop_edges_where_hops_are_cheap(quick: Measured) -> None:
    def tree(mapping: str, hop_cycles: int) -> int:
        return quick.cycles("mapping", "tree_cycles", mesh="1x8", mapping=mapping, hop_cycles=hop_cycles)

    assert tree("row-major", 9) < tree("shipped", 9)
    assert tree("row-major", 100) > tree("shipped", 100)


@pytest.mark.adr("0060", "9.3")
def test_a_small_tile_is_slow_and_a_large_one_takes_scratch(quick: Measured) -> None:
    def tile(size: int, figure: str) -> int:
        return quick.cycles("tile", figure, kernel="decode", tile=size)

    assert tile(64, "cycles") > 2 * tile(1024, "cycles")
    assert tile(64, "scratch_bytes") < tile(1024, "scratch_bytes") < tile(4096, "scratch_bytes")
    assert [row["outcome"] for row in quick["tile"] if row["kernel"] == "prefill"] == ["capacity"]


@pytest.mark.adr("0060", "9.4")
def test_slots_that_are_too_few_hang_and_more_save_waiting_for_them(quick: Measured) -> None:
    one_by_one = [row for row in quick["ring"] if not row["interleave"]]
    outcomes = {(row["in_flight"], row["slots"]): row["outcome"] for row in one_by_one}
    assert outcomes == {
        (1, 3): "deadlock", (1, 4): "ran", (1, 6): "ran", (2, 3): "deadlock", (2, 4): "deadlock", (2, 6): "ran",
    }  # fmt: skip

    def waits(slots: int) -> int:
        return quick.cycles("ring", "wait for free slot", interleave=False, in_flight=1, slots=slots, recv_ahead=1)

    assert waits(6) < waits(4)


@pytest.mark.adr("0060", "9.4")
def test_how_far_ahead_messages_are_asked_for_does_not_matter(quick: Measured) -> None:
    cycles = [
        quick.cycles("ring", "cycles", interleave=False, in_flight=1, slots=4, recv_ahead=recv_ahead)
        for recv_ahead in (0, 1, 2)
    ]

    assert max(cycles) < 1.02 * min(cycles)


@pytest.mark.adr("0060", "9.4")
def test_pieces_by_twos_wait_for_no_message_and_crawl_without_slots_of_their_own(quick: Measured) -> None:
    def ring(interleave: bool, slots: int, figure: str = "cycles") -> int:
        return quick.cycles("ring", figure, interleave=interleave, in_flight=1, slots=slots, recv_ahead=1)

    assert ring(True, 6) < ring(False, 6)
    assert ring(True, 6, "wait for message") == 0 < ring(False, 6, "wait for message")
    assert ring(True, 4) > 4 * ring(True, 6)


@pytest.mark.adr("0060", "9.5")
def test_tiles_win_from_some_length_on_and_one_tile_has_a_limit(quick: Measured) -> None:
    one_shot, rows = importlib.import_module("benchmarks.tuning.one_shot"), quick["one-shot"]

    assert one_shot.crossover(rows, 1024, 1) == one_shot.crossover(rows, 1024, 2) == 8192
    assert [row["s_pe"] for row in rows if row["outcome"] == "capacity"] == [one_shot.MOST + 1]


def test_the_crossover_is_where_tiles_begin_to_win_for_good(command: Any) -> None:
    one_shot = importlib.import_module("benchmarks.tuning.one_shot")

    def rows(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {"s_pe": 2**number, "tile": tile, "in_flight": 1, "cycles": cycles, "outcome": "ran"}
            for number, pair in enumerate(pairs)
            for tile, cycles in zip(("all keys", 1), pair, strict=True)
        ]

    assert one_shot.crossover(rows((5, 9), (6, 6), (9, 8), (9, 7)), 1, 1) == 4
    assert one_shot.crossover(rows((5, 4), (5, 6), (9, 8)), 1, 1) == 4  # not 1, where they win once
    assert one_shot.crossover(rows((5, 4), (5, 6)), 1, 1) is None
    assert one_shot.crossover(rows((5, 4)), 1, 2) is None


@pytest.mark.adr("0060", "9.6")
def test_dearer_issue_is_never_faster_and_the_gain_grows_with_it(quick: Measured) -> None:
    def cycles(kernel: str, kind: str, issue: int | str) -> int:
        return quick.cycles("issue-cost", kernel=kernel, kind=kind, issue=issue)

    for kernel in ("hybrid", "baseline"):
        for kind in ("composite", "all"):
            assert cycles(kernel, kind, 0) <= cycles(kernel, "all", "default") <= cycles(kernel, kind, 200)
    gain = [cycles("baseline", "all", cost) / cycles("hybrid", "all", cost) for cost in (0, "default", 200)]
    assert 1 < gain[0] < gain[1] < gain[2]


# --- what the sweeps rest on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", [{"composite": 200}, {"math": 0}, {"wait": 200}, {"dot": 200, "load": 0}, 0, 200])
@pytest.mark.parametrize("launch", ["run", "run_baseline"])
def test_issue_costs_retimed_are_issue_costs_run(command: Any, cost: Any, launch: str) -> None:
    case = importlib.import_module("benchmarks.cases").Decode(4096, 256, 8)
    item = importlib.import_module("benchmarks.tuning.item")

    retimed = item.at_cost(getattr(case, launch)(check=False), item.Cost({}, {"issue_costs": cost}))

    rerun = getattr(case, launch)(check=False, spec=AhbmSpec(issue_costs=cost))
    assert retimed.cycles == rerun.cycles
    assert (times_by_program(retimed) == times_by_program(rerun)).all()


def times_by_program(run: Run) -> Any:
    """Program, issue, start, free and end of every row, program by program: their rows lie in the order of time."""
    rows = run.log.all
    times = np.array([rows.program, rows.issue, rows.start, rows.free, rows.end]).T
    return times[np.argsort(rows.program, kind="stable")]


def test_panels_and_hops_retimed_are_those_run(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    item = importlib.import_module("benchmarks.tuning.item")
    for name, module, point, change in (
        ("depth", "launches", {"kernel": "decode", "tile": 1024, "ahead": 1, "in_flight": 1}, {"stream_depth": 1}),
        ("mapping", "mapping", {"mesh": "2x4", "mapping": "far"}, {"hop_cycles": 100}),
    ):
        run_at = command.ITEMS[name].run_at
        retimed = item.at_cost(run_at(**point), item.Cost({}, change))
        with monkeypatch.context() as patch:
            chip = lambda spec=None, change=change, **more: AhbmChip(replace(spec or AhbmSpec(), **change), **more)  # noqa: E731
            patch.setattr(importlib.import_module(f"benchmarks.tuning.{module}"), "AhbmChip", chip)
            assert retimed.cycles == run_at(**point).cycles


def test_checkers_change_no_time(command: Any) -> None:
    case = importlib.import_module("benchmarks.cases").Decode(4096, 256, 8)

    assert case.run(check=False).cycles == case.run(check=True).cycles


@pytest.mark.parametrize("mesh", ["2x4", "1x8"])
def test_the_shipped_tree_over_ports_of_its_own_takes_what_the_shipped_kernel_takes(command: Any, mesh: str) -> None:
    mapping = importlib.import_module("benchmarks.tuning.mapping")
    rows, cols = mapping.MESHES[mesh]
    chip = AhbmChip(AhbmSpec(mesh_rows=rows, mesh_cols=cols))

    launch = driver.decode(chip, [Problem(kv_len=mapping.S)], 8, tile=mapping.TILE, mesh=(rows, cols))

    assert mapping.run_at(mesh, "shipped").cycles == launch.run(chip, check=False).cycles


def test_mappings_differ_in_hops_and_rounds_alone(command: Any) -> None:
    mapping = importlib.import_module("benchmarks.tuning.mapping")

    def facts(name: str, mesh: tuple[int, int]) -> tuple[int, int, int]:
        shape = mapping.tree_of(name, mesh)
        assert sorted(shape.placement) == list(range(mesh[0] * mesh[1]))
        return shape.rounds, sum(mapping.edge_hops(shape)), max(mapping.edge_hops(shape))

    assert facts("shipped", (2, 4)) == (3, 7, 1)
    assert facts("row-major", (2, 4)) == (3, 9, 2)
    assert facts("shipped", (1, 8)) == (4, 7, 1)
    assert facts("row-major", (1, 8)) == (3, 12, 4)
    assert facts("far", (1, 8)) == (3, 20, 7)


def test_every_cycle_of_waiting_has_one_cause(command: Any) -> None:
    ring = importlib.import_module("benchmarks.tuning.ring")

    run = ring.run_at(**ring.points(True)[1])

    rows = run.log.where(name=("wait", "recv"))
    mean = int((rows.end - rows.start).sum()) / len(run.log.programs)
    assert sum(ring.waits(run).values()) == pytest.approx(mean, abs=len(ring.WAITS))


def test_what_does_not_fit_is_a_row_and_any_other_refusal_an_error(command: Any) -> None:
    item = importlib.import_module("benchmarks.tuning.item")

    def refused(kind: str) -> None:
        raise KernelError(Hazard(kind, "no"))

    assert item.figures_at(refused, dict, item.AS_RUN, kind="capacity") == {"outcome": "capacity"}
    with pytest.raises(KernelError, match="out-of-bounds"):
        item.figures_at(refused, dict, item.AS_RUN, kind="out-of-bounds")


# --- where they run ---------------------------------------------------------------------------------------------------


def test_processes_give_the_same_rows(quick: Measured, items: dict[str, Any]) -> None:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for name in ("mapping", "one-shot"):  # one is retimed, one has a point that does not fit
            assert items[name].measure(quick=True, executor=pool) == quick[name]


def test_a_dask_cluster_gives_the_same_rows(
    quick: Measured, items: dict[str, Any], command: Any, tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed", reason="pip install -e '.[distributed]'")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
    )
    with cluster, command.pool(None, cluster.scheduler_address) as executor:
        assert items["issue-cost"].measure(quick=True, executor=executor) == quick["issue-cost"]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_tables_and_writes_files(
    command: Any, quick: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pip install -e '.[plots]'")

    command.main(["mapping", "mapping", "--quick", "--out", str(tmp_path / "new")])

    said = capsys.readouterr()
    assert said.out.count("9.2 mapping: ") == 1
    assert "mesh    mapping  hop_cycles" in said.out
    assert "4/8  item=mapping, mesh=2x4, mapping=far, outcome=ran" in said.err
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert written == {
        "mapping.csv",
        *(f"mapping-{view}.{kind}" for view in ("meshes", "row") for kind in ("png", "svg")),
    }
    assert read_csv(tmp_path / "new" / "mapping.csv") == quick["mapping"]


def test_an_unknown_item_is_answered_with_all_there_are(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["tiles"])

    assert (
        "no item 'tiles'; items are depth, mapping, tile, ring, one-shot, issue-cost, or all" in capsys.readouterr().err
    )


# --- the findings -----------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    parts = re.split(r"^## (9\.\d) .*$", (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_has_its_command_and_pictures_that_are_there(items: dict[str, Any], name: str) -> None:
    item, text = items[name], sections()[items[name].clause]

    assert f"python -m benchmarks.tuning {name} --out docs/figures/tuning" in text
    pictures = re.findall(r"!\[.+\]\(figures/tuning/(\S+)\)", text)
    assert pictures
    assert set(pictures) <= {f"{name}-{view.name}.svg" for view in item.views}
    assert all((FIGURES / picture).is_file() for picture in pictures)


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_a_finding_are_cells_of_its_table(items: dict[str, Any], name: str) -> None:
    """Numbers of four digits and more, which no sentence can derive in its head."""
    cells = {str(value) for row in read_csv(FIGURES / f"{name}.csv") for value in row.values()}

    said = set(re.findall(r"(?<![\w.])\d{4,}(?![\w.]*\d)", sections()[items[name].clause]))

    assert said
    assert said - cells == set()
