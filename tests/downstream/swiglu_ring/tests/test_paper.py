"""Arithmetic of our own, in packages whose names pytest-kernbench has folders of too; needs nothing of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import kernels
import simulator
from simulator.paper import RINGS, Layer, answer

ROOT = Path(__file__).parents[1]


def test_these_packages_are_ours() -> None:
    assert [Path(str(each.__file__)).parent for each in (kernels, simulator)] == [ROOT / "kernels", ROOT / "simulator"]


def test_rings_name_every_pe_once() -> None:
    assert all(sorted(ring) == sorted(set(ring)) and len(ring) == n for n, ring in RINGS.items())


def test_a_message_is_a_share_of_the_result() -> None:
    layer = Layer()
    assert layer.block_bytes * layer.ranks == layer.tokens * layer.width * 4


def test_the_answer_of_one_unit() -> None:
    x, one = np.ones((1, 1)), np.ones((1, 1, 1))
    y, bound = answer(x, 2 * one, 3 * one, 5 * one)
    np.testing.assert_allclose(y, 2 / (1 + np.exp(-2)) * 3 * 5)
    assert 0 < bound < 0.25
