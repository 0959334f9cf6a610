"""Random inputs of the gated delta rule, the recurrence in float64, and a launch on a new core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec

Array = Any
RMS = 3e-4  # facts 4: of the rounding of the outputs to half


def recurrence(inputs: Inputs, scale: float) -> tuple[Array, Array]:
    """out and final state, token by token."""
    out, states = np.zeros(inputs.value.shape), inputs.initial_state.astype(np.float64)
    q, k, v, beta = (each.astype(np.float64) for each in (inputs.query, inputs.key, inputs.value, inputs.beta))
    sequence = np.repeat(np.arange(len(inputs.lengths)), inputs.lengths)
    shared = v.shape[1] // k.shape[1]
    for token, head in np.ndindex(*beta.shape):
        state = states[sequence[token], head]
        state *= 1.0 if inputs.g is None else np.exp(float(inputs.g[token, head]))
        key = k[token, head // shared]
        state += np.outer(beta[token, head] * (v[token, head] - state @ key), key)
        out[token, head] = state @ (scale * q[token, head // shared])
    return out, states


def random_inputs(
    lengths: tuple[int, ...], hk: int = 1, hv: int = 1, dk: int = 16, dv: int = 16, *, decay: float = 0.1,
    gate: bool = True, seed: int = 0,
) -> Inputs:  # fmt: skip
    """Normalised keys and queries that differ, beta in (0, 1), g in (-2 decay, 0), a state that is not symmetric."""
    draw, tokens = np.random.default_rng(seed), sum(lengths)
    q, k = (draw.standard_normal((tokens, hk, dk)) for _ in range(2))
    return Inputs(
        *((each / np.linalg.norm(each, axis=-1, keepdims=True)).astype(np.float16) for each in (q, k)),
        draw.standard_normal((tokens, hv, dv)).astype(np.float16),
        draw.uniform(0.05, 0.95, (tokens, hv)).astype(np.float16),
        draw.standard_normal((len(lengths), hv, dv, dk)).astype(np.float16),
        lengths,
        (-2 * decay * draw.random((tokens, hv))).astype(np.float32) if gate else None,
    )


class Delta:
    """The kernel under test: random inputs, launches, and what they should give."""

    inputs = staticmethod(random_inputs)

    def call(self, inputs: Inputs, *, spec: dict[str, Any] | None = None, **options: Any) -> host.Outcome:
        """The call on a new core, every checker on."""
        core = Ascend310pCore(Ascend310pSpec(**(spec or {})))
        arrays = inputs.arrays()
        return host.chunk_gated_delta_rule(core, **arrays, lengths=inputs.lengths, **options)

    def unchecked(
        self, inputs: Inputs, shape: Any, *, spec: dict[str, Any] | None = None, check: Any = "collect",
        variant: Any = None, tiling: Any = None, scale: float = 1.0, **options: Any,
    ) -> host.Outcome:  # fmt: skip
        """The launch that a host without checks makes; findings are only listed."""
        core = Ascend310pCore(Ascend310pSpec(**(spec or {})))
        launched = host.launch(core, shape, inputs, scale=scale, tiling=tiling, variant=variant)
        run = launched.run(check=check, **options)
        return host.Outcome(*launched.outputs(run), run)

    def check(self, inputs: Inputs, outcome: host.Outcome, scale: float = 1.0) -> None:
        """Fail unless both outputs are the recurrence's, but for one rounding to half (facts 4)."""
        names = ("out", "final_state")
        for name, found, wanted in zip(
            names, (outcome.out, outcome.final_state), recurrence(inputs, scale), strict=True
        ):
            error = found.astype(np.float64) - wanted
            ulp = np.abs(np.spacing(np.abs(wanted).astype(np.float16)).astype(np.float64))
            largest = np.abs(wanted).max(initial=0.0)
            assert np.all(np.abs(error) <= ulp + 2e-6 * largest), f"{name} is off by {np.abs(error).max()}"
            if wanted.size > 500:  # of a few values the mean says nothing
                assert np.sqrt((error**2).mean() / (wanted**2).mean()) <= RMS, name


@pytest.fixture(scope="session")
def delta() -> Delta:
    """`delta.call(delta.inputs((5, 0, 9), hk=2, hv=4))` and `delta.check(inputs, outcome)`."""
    return Delta()
