"""Columns that a user adds to a log: asked for as ours, never in its structure, and under no name that is taken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator import AhbmChip, OpLog, Timing, retime
from pytest_kernbench.simulator.ops.log import COLUMNS
from pytest_kernbench.simulator.ops.text import structure, timing


def double(x: Any, y: Any, *, tl: Any) -> None:
    tl.wait(tl.store(y, tl.load(x, (8, 64)) * 2.0))


@pytest.fixture
def log() -> OpLog:
    chip = AhbmChip()
    found: OpLog = chip.run(double, chip.tensor("x", (8, 64)), chip.tensor("y", (8, 64))).log
    return found


def test_a_column_is_a_column_of_every_selection(log: OpLog) -> None:
    log.add_column("energy", lambda log: log.all.bytes * 2)

    assert log.all.energy.tolist() == (log.all.bytes * 2).tolist()
    assert log.where(unit="DMA").energy.tolist() == (log.where(unit="DMA").bytes * 2).tolist()
    assert len(log.where(energy=(2048, 7))) == len(log.where(unit="DMA")) == 2


def test_a_log_in_a_file_is_asked_for_it_alike(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    chip = AhbmChip()
    log = chip.run(double, chip.tensor("x", (8, 64)), chip.tensor("y", (8, 64)), spill=tmp_path / "run.parquet").log
    log.add_column("energy", lambda log: log.all.bytes * 2)

    assert [row.name for row in log.where(unit="DMA", energy=2048)] == ["load", "store"]
    assert len(log.where(energy=(2048, 7))) == 2
    assert timing(log, ["energy"]).count("energy 2048") == 2


def test_one_column_needs_no_list(log: OpLog) -> None:
    log.add_column("energy", lambda log: log.all.bytes)

    assert timing(log, "energy") == timing(log, ["energy"])


@pytest.mark.parametrize(
    ("value", "text"), [(3, "share 3"), (0.25, "share 0.25"), (True, "share 1"), (1e12, "share 1e+12")]
)
def test_timing_adds_it_up_for_each_unit_and_structure_has_none(log: OpLog, value: float, text: str) -> None:
    before = structure(log), timing(log)
    log.add_column("share", lambda log: [value] * len(log))

    (line,) = (each for each in timing(log, ["share"]).splitlines() if each.startswith("MATH "))
    assert line.endswith(f"  {text}")
    assert (structure(log), timing(log)) == before


def test_it_survives_other_costs(log: OpLog) -> None:
    log.add_column("late", lambda log: log.all.end)
    spec = AhbmChip().spec

    assert retime(log, Timing(spec)).log.all.late.tolist() == log.all.end.tolist()


@pytest.mark.parametrize("name", [*COLUMNS, "tensor", "where", "index", "log", "_table", "two words", "", "7"])
def test_a_name_that_is_taken_or_is_none_is_refused(log: OpLog, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name!r} cannot name a column of a log"):
        log.add_column(name, lambda log: np.zeros(len(log)))


def test_a_column_that_is_not_there_is_named_beside_those_that_are(log: OpLog) -> None:
    log.add_column("energy", lambda log: log.all.bytes)

    with pytest.raises(AttributeError, match=r"has no column 'energi'; it has name, .*, runs, energy$"):
        _ = log.all.energi
    with pytest.raises(ValueError, match="has no column 'energi'; added are energy"):
        timing(log, ["energi"])
