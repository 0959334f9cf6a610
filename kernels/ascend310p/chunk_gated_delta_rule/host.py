"""Host of `chunk_gated_delta_rule`: what a call asks is checked, laid out in GM and launched; outputs are taken apart.

It takes a core, as the kernels take `asc`, and imports no device. What a launch cannot mean is refused before the first
operation, with both numbers. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import kernel as kernels
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule, LengthsOfTiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import FP32_BYTES, Shape, Tiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import tiling as tiling_of

Array = npt.NDArray[Any]
MOST = float(np.finfo(np.float32).max)
AXES = {
    "query": "T, Hk, Dk", "key": "T, Hk, Dk", "value": "T, Hv, Dv", "beta": "T, Hv",
    "initial_state": "B, Hv, Dv, Dk", "g": "T, Hv",
}  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """Arrays of a call: halves, but for `g` in float32 or none; `lengths` are the tokens of each sequence."""

    query: Array
    key: Array
    value: Array
    beta: Array
    initial_state: Array
    lengths: tuple[int, ...]
    g: Array | None = None

    def arrays(self) -> dict[str, Array]:
        """Those that there are, by name, in the order of the kernel's arguments."""
        return {name: getattr(self, name) for name in AXES if getattr(self, name) is not None}


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, which `run` runs; `options` are the core's and the kernel's."""

    core: Any
    args: tuple[Any, ...]
    options: dict[str, Any]
    tokens: int

    def run(self, run: Callable[..., Any] | None = None, **options: Any) -> Any:
        """The run on this launch's core; `run` may be a function such as the fixture `run_kernel`, given `on=core`."""
        given = {**self.options, **options}
        if run is not None:
            return run(kernels.chunk_gated_delta_rule, *self.args, on=self.core, **given)
        return self.core.run(kernels.chunk_gated_delta_rule, *self.args, **given)

    def outputs(self, run: Any) -> tuple[Array, Array]:
        """out [T, Hv, Dv] and final_state [B, Hv, Dv, Dk], halves."""
        return run.array("out")[: self.tokens], run.array("final_state")


@dataclass(frozen=True)
class Outcome:
    """out [T, Hv, Dv] and final_state [B, Hv, Dv, Dk], halves, and the run that made them."""

    out: Array
    final_state: Array
    run: Any


def chunk_gated_delta_rule(
    core: Any, query: Array, key: Array, value: Array, beta: Array, initial_state: Array, lengths: Sequence[int],
    g: Array | None = None, *, scale: float = 1.0, tiling: Tiling | None = None,
    variant: type[ChunkGatedDeltaRule] = ChunkGatedDeltaRule, run: Callable[..., Any] | None = None, **options: Any,
) -> Outcome:  # fmt: skip
    """The gated delta rule over sequences of `lengths` tokens that lie one behind the other (facts 1 and 2).

    query and key [T, Hk, Dk], value [T, Hv, Dv], beta [T, Hv], initial_state [B, Hv, Dv, Dk], float16; g [T, Hv]
    float32, the logarithm of the decay. Value heads Hv/Hk in a row share a key head. `tiling`: another one than the
    host's own; `run`, `options`: as `Launch.run` has them. Raises ValueError as `checked` does, and for a tiling of
    another shape.
    """
    inputs = Inputs(query, key, value, beta, initial_state, tuple(lengths), g)
    shape = checked(inputs, scale)
    if tiling is not None and tiling.shape != shape:
        raise ValueError(f"the tiling is for {tiling.shape}, the call has {shape}: make it of the call's shape")
    launched = launch(core, shape, inputs, scale=scale, tiling=tiling, variant=variant)
    done = launched.run(run, **options)
    return Outcome(*launched.outputs(done), done)


def checked(inputs: Inputs, scale: float = 1.0) -> Shape:
    """The shape of the inputs.

    Raises ValueError for wrong ranks, types or sizes, lengths that are negative or not T together, value heads that are
    no multiple of key heads, and gates or a scale that are not finite.
    """
    for name, array in inputs.arrays().items():
        _check_array(name, array)
    (tokens, hk, dk), (_, hv, dv) = inputs.query.shape, inputs.value.shape
    _check_lengths(inputs.lengths, tokens)
    shape = Shape(tuple(map(int, inputs.lengths)), hk, hv, dk, dv)
    if hv % hk:
        raise ValueError(f"{hv} value heads for {hk} key heads: {hv} / {hk} is not whole")
    sizes = {"T": tokens, "Hk": hk, "Hv": hv, "Dk": dk, "Dv": dv, "B": shape.batch}
    for name, array in inputs.arrays().items():
        wanted = tuple(sizes[axis] for axis in AXES[name].split(", "))
        if array.shape != wanted:
            raise ValueError(f"{name} has shape {array.shape}, these inputs want {wanted} [{AXES[name]}]")
    if inputs.g is not None and not np.abs(inputs.g).sum(axis=0, dtype=np.float64).max(initial=0) <= MOST:
        raise ValueError("g, or its sum over the tokens of a head, is not finite: a decay of 0 is g = -100")
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}: give a finite number, such as Dk ** -0.5")
    return shape


def _check_array(name: str, array: Array) -> None:
    wanted = np.dtype(np.float32 if name == "g" else np.float16)
    if array.ndim != len(AXES[name].split(", ")):
        raise ValueError(f"{name} has {array.ndim} axes {array.shape}, it wants [{AXES[name]}]")
    if array.dtype != wanted:
        raise ValueError(f"{name} is {array.dtype}, the kernel takes {wanted}: convert it")


def _check_lengths(lengths: tuple[int, ...], tokens: int) -> None:
    for number, length in enumerate(lengths):
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise ValueError(f"lengths[{number}] is {length!r}: a sequence has a whole number of tokens")
        if length < 0:
            raise ValueError(f"lengths[{number}] is {length}: a sequence has 0 tokens or more")
    if sum(lengths) != tokens:
        raise ValueError(f"lengths add up to {sum(lengths)} tokens, query has {tokens}; they are no running sums")


def launch(
    core: Any, shape: Shape, inputs: Inputs | None = None, *, gate: bool = True, scale: float = 1.0,
    tiling: Tiling | None = None, variant: type[ChunkGatedDeltaRule] | None = None,
) -> Launch:  # fmt: skip
    """The launch of `inputs` of `shape`, unchecked; without inputs it is structure only, with `g` if `gate`.

    `tiling`: if not given, that for the core's UB and number of cores. Raises ValueError if it does not fit.
    """
    plan = tiling or tiling_of(shape, ub=core.spec.ub_usable, cores=core.spec.cores)
    given = {} if inputs is None else inputs.arrays()
    sizes = sizes_of(shape)
    tensors: dict[str, Any] = {}
    for name in AXES:
        absent = name == "g" and (inputs.g is None if inputs is not None else not gate)
        tensors[name] = None if absent else _tensor(core, name, sizes[name], given.get(name))
    lengths = core.tensor("lengths", shape.batch, "int32", None if inputs is None else np.array(shape.lengths))
    gate_tensor = tensors.pop("g")
    outs = [core.tensor(name, sizes[name], "float16") for name in ("out", "final_state")]
    workspace = core.tensor("workspace", plan.state_bytes // FP32_BYTES, "float32")  # no more than what is used
    default = ChunkGatedDeltaRule if inputs is not None else LengthsOfTiling
    options = {"scale": scale, "variant": variant or default, "grid": plan.block_dim}
    return Launch(core, (*tensors.values(), lengths, gate_tensor, *outs, workspace, plan), options, shape.tokens)


def sizes_of(shape: Shape) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor; GM holds one token even if no sequence has any."""
    sizes = {"T": max(shape.tokens, 1), "Hk": shape.hk, "Hv": shape.hv, "Dk": shape.dk, "Dv": shape.dv}
    sizes["B"] = shape.batch
    axes = {**AXES, "out": AXES["value"], "final_state": AXES["initial_state"]}
    return {name: tuple(sizes[axis] for axis in each.split(", ")) for name, each in axes.items()}


def _tensor(core: Any, name: str, size: tuple[int, ...], data: Array | None) -> Any:
    """A tensor in GM: of its data's size, and one of zeros for no token at all."""
    if data is not None and data.size == 0:
        data = np.zeros(size, data.dtype)
    return core.tensor(name, size if data is None else data.shape, "float32" if name == "g" else "float16", data)
