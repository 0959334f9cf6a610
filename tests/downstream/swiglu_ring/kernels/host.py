"""The host's side: inputs, tensors on a chip, and the launch along a ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytest_kernbench.simulator import AhbmChip, AhbmSpec, Run
from pytest_kernbench.simulator.ahbm.topology import ring_ports

from kernels.swiglu import swiglu
from simulator.paper import RINGS, Array, Layer, answer


@dataclass(frozen=True)
class Problem:
    """A layer with inputs that are exact in bfloat16."""

    layer: Layer
    x: Array
    weights: tuple[Array, Array, Array]  # gate, up and down, each [ranks, hidden, width]

    def tensors(self, chip: AhbmChip) -> list[Any]:
        """x everywhere, a part of each weight and a y in every rank."""
        part = (self.layer.hidden, self.layer.width)
        x = chip.tensor("x", self.x.shape, data=self.x, place="replicate")
        named = zip(("gate", "up", "down"), self.weights, strict=True)
        return [x, *(chip.tensor(name, part, data=weight) for name, weight in named), chip.tensor("y", self.x.shape)]

    def expected(self) -> tuple[Array, float]:
        """The answer of every rank, the same, and its bound."""
        y, bound = answer(self.x, *self.weights)
        return np.broadcast_to(y, (self.layer.ranks, *y.shape)), bound


def random_problem(layer: Layer) -> Problem:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Array:
        return rng.integers(-8, 9, shape).astype(np.float32) / 32

    part = (layer.ranks, layer.hidden, layer.width)
    return Problem(layer, draw(layer.tokens, layer.width) * 4, (draw(*part), draw(*part), draw(*part)))


def on_device(kernel: Callable[..., None], *args: Any, on: AhbmChip, **how: Any) -> Run:
    """What the fixture `run_kernel` does, where there is none."""
    return on.run(kernel, *args, **how)


def launch(problem: Problem, spec: AhbmSpec, runner: Callable[..., Run] = on_device, **how: Any) -> Run:
    """Run the layer on a new chip with `runner`, such as `run_kernel`."""
    size, order = problem.layer, RINGS[problem.layer.ranks]
    chip = AhbmChip(spec, ports=ring_ports(order))
    sizes = (size.tokens, size.width, size.hidden)
    where = {"grid": size.ranks, "placement": order, "tile": size.tile}
    return runner(swiglu, *problem.tensors(chip), *sizes, on=chip, **where, **how)
