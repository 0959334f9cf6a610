"""What a launch cannot mean is refused before the first operation, with both numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling


def wrong(inputs: Any, **arrays: Any) -> Any:
    """The inputs with each of `arrays` made from the one that was there."""
    return replace(inputs, **{name: make(getattr(inputs, name)) for name, make in arrays.items()})


@pytest.mark.adr("0311", "10.1")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": lambda _: (2, 2)}, "lengths add up to 4 tokens, query has 5"),
        ({"lengths": lambda _: (2, 5)}, "lengths add up to 7 tokens, query has 5"),
        ({"lengths": lambda _: (7, -2)}, r"lengths\[1\] is -2: a sequence has 0 tokens or more"),
        ({"lengths": lambda _: (2.0, 3)}, r"lengths\[0\] is 2.0: a sequence has a whole number"),
        ({"lengths": lambda _: (True, 4)}, r"lengths\[0\] is True"),
        ({"lengths": lambda _: (5,)}, r"initial_state has shape \(2, 4, 8, 4\), these inputs want \(1, 4, 8, 4\)"),
        ({"initial_state": lambda s: s[0]}, r"initial_state has 3 axes \(4, 8, 4\), it wants \[B, Hv, Dv, Dk\]"),
        ({"initial_state": lambda s: s.astype(np.float32)}, "initial_state is float32, the kernel takes float16"),
        ({"initial_state": lambda s: s.swapaxes(2, 3)}, r"has shape \(2, 4, 4, 8\), these inputs want \(2, 4, 8, 4\)"),
        ({"query": lambda q: q.astype(np.float64)}, "query is float64, the kernel takes float16"),
        ({"key": lambda k: k[:4]}, r"key has shape \(4, 2, 4\), these inputs want \(5, 2, 4\)"),
        ({"key": lambda k: k[:, :1]}, r"key has shape \(5, 1, 4\), these inputs want \(5, 2, 4\)"),
        ({"beta": lambda b: b[..., None]}, r"beta has 3 axes \(5, 4, 1\), it wants \[T, Hv\]"),
        ({"g": lambda g: g.astype(np.float16)}, "g is float16, the kernel takes float32"),
        ({"g": lambda g: g[:, :2]}, r"g has shape \(5, 2\), these inputs want \(5, 4\)"),
        ({"g": lambda g: np.full_like(g, -np.inf)}, "g, or its sum over the tokens of a head, is not finite"),
        ({"g": lambda g: np.full_like(g, -3e38)}, "g, or its sum over the tokens of a head, is not finite"),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, str) else "",
)
def test_inputs_that_do_not_fit_are_refused(delta: Any, change: dict[str, Any], message: str) -> None:
    inputs = wrong(delta.inputs((2, 3), hk=2, hv=4, dk=4, dv=8), **change)

    with pytest.raises(ValueError, match=message):
        host.checked(inputs)


@pytest.mark.adr("0311", "10.1", "10.2")
@pytest.mark.parametrize(
    ("change", "options", "numbers"),
    [
        ({"value": lambda v: v[:, :3]}, {}, "3 value heads for 2 key heads"),
        ({"lengths": lambda _: (2, 2)}, {}, "4 tokens, query has 5"),
        ({"lengths": lambda _: (6, -1)}, {}, r"lengths\[1\] is -1: .* 0 tokens or more"),
        ({"initial_state": lambda s: s[0]}, {}, r"3 axes \(4, 8, 4\), it wants \[B, Hv, Dv, Dk\]"),
        ({"initial_state": lambda s: s.astype(np.float32)}, {}, "float32, the kernel takes float16"),
        ({}, {"tiling": tiling(Shape((5,), 2, 4, 4, 8))}, r"lengths=\(5,\).*lengths=\(2, 3\)"),
        ({}, {"scale": float("inf")}, "scale is inf"),
    ],
    ids=["head ratio", "sum of lengths", "negative length", "rank", "dtype", "tiling", "scale"],
)
def test_what_is_refused_never_runs(delta: Any, change: dict[str, Any], options: dict[str, Any], numbers: str) -> None:
    def run(*_: Any, **__: Any) -> None:
        pytest.fail("the kernel was launched")

    with pytest.raises(ValueError, match=numbers):
        delta.call(wrong(delta.inputs((2, 3), hk=2, hv=4, dk=4, dv=8), **change), run=run, **options)


@pytest.mark.adr("0311", "10.1")
@pytest.mark.parametrize(("hk", "hv"), [(2, 5), (2, 1), (3, 4)])
def test_value_heads_are_a_multiple_of_key_heads(delta: Any, hk: int, hv: int) -> None:
    inputs = delta.inputs((3,), hk=hk, hv=hv, dk=4, dv=4)

    with pytest.raises(ValueError, match=f"{hv} value heads for {hk} key heads: {hv} / {hk} is not whole"):
        delta.call(inputs)
    with pytest.raises(ValueError, match=f"{hv} value heads for {hk} key heads"):  # the kernel looks as well
        delta.unchecked(inputs, Shape((3,), hk, hv, 4, 4))


@pytest.mark.adr("0311", "10.1")
@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_a_scale_is_finite(delta: Any, scale: float) -> None:
    with pytest.raises(ValueError, match="give a finite number"):
        delta.call(delta.inputs((1,), dk=4, dv=4), scale=scale)


def test_what_fits_is_not_refused(delta: Any) -> None:
    inputs = delta.inputs((2, 3), hk=2, hv=4, dk=4, dv=8)

    assert host.checked(inputs) == Shape((2, 3), 2, 4, 4, 8)
    assert host.checked(replace(inputs, lengths=tuple(np.array([2, 3])), g=None)) == Shape((2, 3), 2, 4, 4, 8)


SHAPE = Shape((3,), 1, 2, 4, 8)


@pytest.mark.adr("0311", "10.2")
@pytest.mark.parametrize(
    ("other", "numbers"),
    [
        (replace(SHAPE, lengths=(4,)), "16 elements of query .* the tensor has 12"),
        (replace(SHAPE, dv=16), "96 elements of value .* the tensor has 48"),
        (replace(SHAPE, hv=4), "96 elements of value .* the tensor has 48"),
        (replace(SHAPE, lengths=(1, 2)), "128 elements of initial_state .* the tensor has 64"),
    ],
    ids=["T", "Dv", "Hv", "B"],
)
def test_the_tiling_of_another_shape_is_refused(delta: Any, other: Shape, numbers: str) -> None:
    """By the host, by its name; and by the kernel itself before its first operation."""
    inputs = delta.inputs((3,), hv=2, dk=4, dv=8)
    plan = tiling(other)

    with pytest.raises(ValueError, match=f"the tiling is for {re.escape(str(other))}, the call has"):
        delta.call(inputs, tiling=plan)
    with pytest.raises(ValueError, match=f"the tiling is for {numbers}") as refused:
        delta.unchecked(inputs, SHAPE, tiling=plan)
    assert refused.traceback[-1].name == "CheckTiling"


@pytest.mark.adr("0311", "10.2")
def test_the_grid_is_that_of_the_tiling(delta: Any) -> None:
    with pytest.raises(ValueError, match="the tiling is for 2 blocks, the grid has 1"):
        delta.unchecked(delta.inputs((3,), hv=2, dk=4, dv=8), SHAPE, grid=1)


@pytest.mark.parametrize("chunk", [0, 7, 72])
def test_a_chunk_is_whole_blocks(chunk: int) -> None:
    with pytest.raises(ValueError, match=f"chunk is {chunk}"):
        tiling(SHAPE, chunk=chunk)


@pytest.mark.parametrize(("cores", "buffers"), [(0, 1), (8, 0)])
def test_cores_and_buffers_count_from_1(cores: int, buffers: int) -> None:
    with pytest.raises(ValueError, match=f"cores is {cores}, buffer_num is {buffers}"):
        tiling(SHAPE, cores=cores, buffer_num=buffers)
