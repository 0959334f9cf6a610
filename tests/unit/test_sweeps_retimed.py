"""A sweep of costs is retimed and agrees with a new run to the cycle; what decides more than costs is run again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import DECIDES_REFUSALS, DECIDES_ROWS, AhbmSpec
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.sweeps import SweepError, grid, retimed, sweep, sweep_spec

D, N, S = 64, 4, 640
COSTS = grid(stream_depth=(1, 2, 8), issue_costs=(0, 8, {"composite": 200, "wait": 3}))


def decode(spec: AhbmSpec, **options: Any) -> Run:
    chip = AhbmChip(spec)
    q = chip.tensor("Q", (8, D), place="replicate", axes=("row", "d"))
    k, v = (chip.tensor(name, (-(-S // N), D), axes=("token", "d")) for name in "KV")
    o = chip.tensor("O", (8, D), place=N - 1)
    return chip.run(
        gqa_decode, q, k, v, o, S, 0, N, group=8, tile=160, scale=0.125, grid=N, placement=placement(N, (2, 4)),
        check=False, **options,
    )  # fmt: skip


def run_again(**point: Any) -> dict[str, int]:
    return {"cycles": decode(AhbmSpec(**point)).cycles}


@cache
def finished() -> Run:
    return decode(AhbmSpec())


class Counted:
    """`decode`, and the specs it was asked to run."""

    def __init__(self) -> None:
        self.specs: list[AhbmSpec] = []

    def __call__(self, spec: AhbmSpec) -> Run:
        self.specs.append(spec)
        return decode(spec)


def test_retimed_and_run_again_agree_to_the_cycle() -> None:
    again = sweep(run_again, COSTS)

    assert retimed(finished(), COSTS) == again
    assert len({row["cycles"] for row in again}) == len(COSTS)  # the sweep is not about nothing


def test_points_of_costs_alone_share_one_run() -> None:
    run_at = Counted()

    assert sweep_spec(run_at, COSTS) == sweep(run_again, COSTS)
    assert len(run_at.specs) == 1


def test_points_that_decide_rows_are_run_again() -> None:
    run_at, points = Counted(), grid(stream_depth=(1, 4), panel_rows=(32, 64))

    assert sweep_spec(run_at, points) == sweep(run_again, points)
    assert [(spec.stream_depth, spec.panel_rows) for spec in run_at.specs] == [(1, 32), (1, 64)]


def test_the_fields_that_no_point_names_are_those_of_the_spec_given() -> None:
    slow, point = AhbmSpec(hop_cycles=100), {"stream_depth": 2}

    assert sweep_spec(decode, [point], spec=slow) == [{**point, "cycles": decode(replace(slow, **point)).cycles}]


def test_a_sweep_of_a_spec_runs_on_an_executor_and_tells_of_every_point() -> None:
    points, told = grid(panel_rows=(32, 64), stream_depth=(1, 4)), list[Any]()

    with ThreadPoolExecutor(2) as pool:
        rows = sweep_spec(decode, points, executor=pool, progress=lambda *each: told.append(each))

    assert rows == sweep_spec(decode, points)
    assert [each[:2] for each in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert sorted(map(str, (each[2] for each in told))) == sorted(map(str, rows))


# What cannot be retimed


@pytest.mark.parametrize("name", [*DECIDES_ROWS, *DECIDES_REFUSALS])
def test_a_field_that_decides_more_than_costs_is_refused_by_name(name: str) -> None:
    had = getattr(AhbmSpec(), name)
    points: list[dict[str, Any]] = [{name: had, "stream_depth": 1}, {name: had * 2, "stream_depth": 1}]

    fact = (
        f"^retimed, point {name}={had * 2}, stream_depth=1: spec field {name} = {had * 2}, the run had {had}, .* again"
    )
    with pytest.raises(ValueError, match=fact):
        retimed(finished(), points)


def test_a_scratch_too_small_is_found_since_the_kernel_is_run_again() -> None:
    points = grid(scratch_bytes=(1 << 20, 1 << 11), stream_depth=(1, 2))

    with pytest.raises(SweepError, match="scratch_bytes=2048, stream_depth=1: KernelError: capacity") as caught:
        sweep_spec(decode, points)
    assert [failure.point for failure in caught.value.failures] == points[2:]
    assert caught.value.rows == sweep(run_again, points[:2])


@pytest.mark.parametrize("how", [lambda points: retimed(finished(), points), lambda points: sweep_spec(stop, points)])
def test_a_point_that_no_spec_has_is_refused_before_anything_runs(how: Any) -> None:
    with pytest.raises(
        ValueError, match=r"point stream_depht=2: AhbmSpec has no field 'stream_depht'; nearest: stream_d"
    ):
        how([{"stream_depht": 2}])
    with pytest.raises(ValueError, match=r"point stream_depth=0: spec field stream_depth = 0: wants a whole number"):
        how([{"stream_depth": 8}, {"stream_depth": 0}])


def stop(spec: AhbmSpec) -> Run:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("run_at", "fact"),
    [
        (lambda spec: finished(), "a run of another spec: run the kernel on AhbmChip"),
        (lambda spec: decode(spec, schedule="jitter", seed=1), "a run under 'jitter': only schedule='model'"),
    ],
    ids=["another spec", "another schedule"],
)
def test_a_run_that_cannot_stand_for_its_point_is_refused(run_at: Any, fact: str) -> None:
    with pytest.raises(SweepError, match=fact):
        sweep_spec(run_at, [{"stream_depth": 2}])


def test_every_field_that_decides_is_one_of_the_spec_and_in_one_list() -> None:
    deciding = [*DECIDES_ROWS, *DECIDES_REFUSALS]

    assert len(deciding) == len(set(deciding))
    assert set(deciding) < {field.name for field in fields(AhbmSpec)}
