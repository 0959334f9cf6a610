"""Real pools of processes and a real Dask cluster give the rows that a sweep without them gives, and lose none."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any

import pytest

from pytest_kernbench.sweeps import SweepError, grid, sweep, sweep_spec

# A user's module: the other processes import it.
MODULE = '''
import os

from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
from pytest_kernbench.simulator import AhbmChip, AhbmSpec, Hazard, HazardError


def decode(spec, s=96, n=4, tile=16):
    chip = AhbmChip(spec)
    q, o = chip.tensor("Q", (8, 64), place="replicate"), chip.tensor("O", (8, 64), place=n - 1)
    k, v = chip.tensor("K", (s // n, 64)), chip.tensor("V", (s // n, 64))
    return chip.run(
        gqa_decode, q, k, v, o, s, 0, n, group=8, tile=tile, scale=0.125, grid=n, placement=placement(n, (2, 4))
    )


def cycles(key, workers):
    """Its axes are the tile and the number of PEs, under names that pools have for their own."""
    run = decode(AhbmSpec(), n=workers, tile=key)
    return {"cycles": run.cycles, "K bytes": run.log.where(tensor="K").bytes.sum()}


def process(n):
    return {"pid": os.getpid()}


def findings(n):
    if n == 1:
        raise HazardError((Hazard("leak", "a slot"),))
    return {"n squared": n * n}


def crash(n):
    if n == 1:
        os._exit(3)
    return {"n squared": n * n}
'''
POINTS = grid(key=(8, 16), workers=(1, 2, 4))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "my_sweeps.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("my_sweeps")
    del sys.modules["my_sweeps"]


@pytest.fixture(scope="module")
def processes(module: Any) -> Iterator[Executor]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="module")
def dask(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed", reason="pip install -e '.[distributed]'")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
        local_directory=str(tmp_path_factory.mktemp("dask")),
    )  # fmt: skip
    with cluster, distributed.Client(cluster) as client:
        yield client.get_executor()


@pytest.fixture(params=["processes", "dask"])
def pool(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_points_run_in_other_processes(pool: Executor, module: Any) -> None:
    (here,) = sweep(module.process, [{"n": 1}])

    assert here["pid"] not in {row["pid"] for row in sweep(module.process, grid(n=range(4)), executor=pool)}


def test_rows_are_those_of_a_sweep_without_an_executor(pool: Executor, module: Any) -> None:
    told = []

    rows = sweep(module.cycles, POINTS, executor=pool, progress=lambda *each: told.append(each[:2]))

    assert rows == sweep(module.cycles, POINTS)
    assert told == [(done, 6) for done in range(1, 7)]


def test_a_sweep_of_a_spec_is_the_same_too(pool: Executor, module: Any) -> None:
    points = grid(panel_rows=(32, 64), issue_costs=(0, {"composite": 100}))

    assert sweep_spec(module.decode, points, executor=pool) == sweep_spec(module.decode, points)


def test_findings_of_one_point_come_back_whole_and_cost_no_other(pool: Executor, module: Any) -> None:
    with pytest.raises(SweepError, match=r"1 of 4 points raised.*\n  n=1: HazardError: leak \(1 in all\)") as caught:
        sweep(module.findings, grid(n=range(4)), executor=pool)

    assert [row["n squared"] for row in caught.value.rows] == [0, 4, 9]
    ((_, error),) = caught.value.failures
    assert [hazard.message for hazard in error.hazards] == ["a slot"]  # type: ignore[attr-defined]


def test_a_process_that_dies_fails_the_points_it_took_with_it(module: Any) -> None:
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(SweepError, match="n=1: BrokenProcessPool") as caught,
    ):
        sweep(module.crash, grid(n=range(8)), executor=pool)
    assert [row["n"] for row in caught.value.rows] in ([], [0])


def test_a_function_that_other_processes_cannot_find_fails_its_points(processes: Executor) -> None:
    with pytest.raises(SweepError, match=r"2 of 2 points raised.*\n  n=1: \w+: .*lambda"):
        sweep(lambda n: {"n squared": n * n}, grid(n=(1, 2)), executor=processes)
