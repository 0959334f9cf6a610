"""Strategies for users: what they draw is legal and free of the traps, and failures shrink to what one tries first."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench import strategies as kst
from pytest_kernbench.simulator import AhbmSpec
from pytest_kernbench.simulator.engine.schedule import schedule_named

QUICK = settings(max_examples=50, deadline=None)
FRESH = settings(max_examples=2000, database=None)  # in it, every `find` would begin with examples of the others


def find(strategy: st.SearchStrategy[Any], condition: Callable[[Any], bool]) -> Any:
    """The smallest example, whatever earlier runs have found."""
    return hypothesis.find(strategy, condition, settings=FRESH)


# What is drawn


@QUICK
@given(kst.schedules())
def test_every_schedule_is_one_of_the_devices(schedule: kst.Schedule) -> None:
    assert schedule_named(*schedule).name == schedule.schedule


@QUICK
@given(st.integers(1, 40), st.integers(1, 90), st.data())
def test_lengths_stay_within_and_come_to_the_edges(tile: int, most: int, data: st.DataObject) -> None:
    assert 1 <= data.draw(kst.lengths_around(tile, most)) <= most


@pytest.mark.parametrize("length", [63, 64, 65, 127, 128, 129])
def test_every_edge_of_a_tile_is_found_soon(length: int) -> None:
    assert find(kst.lengths_around(64, 1000), lambda each: each == length) == length


@QUICK
@given(kst.varlen(most=70))
def test_batches_have_sequences(lengths: tuple[int, ...]) -> None:
    assert 1 <= len(lengths) <= 5 and all(0 <= each <= 70 for each in lengths)


@QUICK
@given(kst.meshes(most=8))
def test_meshes_are_those_of_a_chip(mesh: kst.Mesh) -> None:
    assert mesh.size <= 8
    AhbmSpec(mesh_rows=mesh.rows, mesh_cols=mesh.cols)


@QUICK
@given(st.integers(1, 9).flatmap(lambda size: st.tuples(st.just(size), kst.orders(size))))
def test_an_order_has_every_rank_once(drawn: tuple[int, tuple[int, ...]]) -> None:
    size, order = drawn
    assert sorted(order) == list(range(size))


@QUICK
@given(kst.attention(queries=9, most=150))
def test_attention_is_legal_and_its_heads_tell_a_map_from_another(sizes: kst.Attention) -> None:
    assert 1 <= sizes.t_q <= min(9, sizes.kv_len) and sizes.q_start + sizes.t_q == sizes.kv_len
    assert sizes.heads != sizes.group or sizes.heads == 1


@QUICK
@given(kst.delta_rule())
def test_inputs_of_the_delta_rule_have_none_of_the_traps(inputs: kst.DeltaRule) -> None:
    tokens, hk, dk = inputs.key.shape
    _, hv, dv = inputs.value.shape
    assert tokens == sum(inputs.lengths) and hv % hk == 0
    assert inputs.initial_state.shape == (len(inputs.lengths), hv, dv, dk)
    if not tokens:
        return
    norms = np.linalg.norm(inputs.key.astype(np.float64), axis=-1)
    assert np.abs(norms - 1).max() < 2e-3
    assert not np.array_equal(inputs.query, inputs.key)
    assert inputs.beta.min() > 0 and inputs.beta.max() < 1
    assert inputs.g is None or inputs.g.max() <= 0
    if dk == dv:
        assert not np.array_equal(inputs.initial_state, inputs.initial_state.swapaxes(2, 3))


# What they shrink to


def test_a_failure_shrinks_to_what_one_tries_first() -> None:
    assert find(kst.schedules(), lambda _: True) == ("model", 0)
    assert find(kst.lengths_around(64, 500), lambda length: length > 70) == 71
    assert find(kst.varlen(), lambda lengths: sum(lengths) > 0) == (1,)
    assert find(kst.meshes(), lambda mesh: mesh.size > 1) == (1, 2)
    assert find(kst.orders(4), lambda _: True) == (0, 1, 2, 3)
    assert find(kst.placements(), lambda _: True) == "contiguous"
    assert find(kst.attention(), lambda _: True) == (1, 1, 1, 1, 64, 64, 0)
    smallest = find(kst.delta_rule(), lambda inputs: inputs.value.size > 0)
    assert (smallest.lengths, smallest.query.shape, smallest.value.shape) == ((1,), (1, 1, 16), (1, 1, 16))


# Wrong uses


@pytest.mark.parametrize(("tile", "most", "least"), [(0, 5, 1), (4, 0, 1), (4, 5, 6), (4, 5, -1)])
def test_lengths_that_are_none_are_refused(tile: int, most: int, least: int) -> None:
    with pytest.raises(ValueError, match=rf"tile is {tile}, lengths are {least}\.\.{most}"):
        kst.lengths_around(tile, most, least=least)


def test_without_hypothesis_the_extra_is_named() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import pytest_kernbench.strategies"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pytest-kernbench[hypothesis]" in done.stderr
