"""Arithmetic of our own, in packages whose names pytest-kernbench has folders of too; needs nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernels
import simulator
from simulator.tiling import GeluTiling, RowTiling, whole_blocks

ROOT = Path(__file__).parents[1]


def test_these_packages_are_ours() -> None:
    assert [Path(str(each.__file__)).parent for each in (kernels, simulator)] == [ROOT / "kernels", ROOT / "simulator"]


@pytest.mark.parametrize(("count", "whole"), [(0, 0), (1, 16), (16, 16), (17, 32)])
def test_counts_are_rounded_up_to_blocks(count: int, whole: int) -> None:
    assert whole_blocks(count) == whole


def test_two_buffers_take_more_of_ub() -> None:
    assert GeluTiling(9, 64, 2).ub_bytes - GeluTiling(9, 64, 1).ub_bytes == 2 * 64 * 2
    assert RowTiling(1, 17).ub_bytes == 2 * 2 * 32 * 2 + 5 * 32 * 4 + 32
