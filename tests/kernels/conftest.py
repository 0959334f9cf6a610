"""A decode problem of any shape, laid out over the PEs as the driver would, and its float64 answer."""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka
from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.attention_mesh_mlo import attention_mesh_mlo, chain
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring
from pytest_kernbench.kernels.ahbm.placement import placement, token_of, valid_len
from pytest_kernbench.kernels.reference.attention import ErrorModel, attention, error_model, random_attention
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.device import Run

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """`heads` KV heads, one a cube, each with `group` query heads; `s` tokens over `n` PEs from `start_pe` on."""

    s: int
    n: int = 1
    tile: int = 64
    group: int = 8
    d: int = 128
    heads: int = 1
    start_pe: int = 0
    dtype: str = "bfloat16"
    seed: int = 0
    sd: float = 2.0
    spare: int = 3  # rows of capacity behind the longest valid length, poisoned
    data: bool = True

    @property
    def scale(self) -> float:
        return float(self.d**-0.5)

    @cached_property
    def inputs(self) -> tuple[Array, Array, Array]:
        """q [H_q, d], k and v [H_kv, s, d], random and different for each head and token."""
        q, k, v = random_attention(
            self.seed, self.heads * self.group, self.heads, max(self.s, 1), self.d, np.dtype(self.dtype), sd=self.sd
        )
        return q[:, 0], k[:, : self.s], v[:, : self.s]

    @property
    def lengths(self) -> list[int]:
        return [valid_len(self.s, self.start_pe, rank, self.n) for rank in range(self.n)]

    @property
    def capacity(self) -> int:
        return max(self.lengths) + self.spare

    def shard(self, cache: Array) -> Array:
        """[heads, s, d] as [heads, n, capacity, d]: token i on rank (start_pe + i) mod n (ADR-0060 2.1)."""
        parts = np.full((self.heads, self.n, self.capacity, self.d), np.nan, cache.dtype)
        for rank, length in enumerate(self.lengths):
            tokens = [token_of(slot, rank, self.start_pe, self.n) for slot in range(length)]
            parts[:, rank, :length] = cache[:, tokens]
        return parts

    def tensors(self, chip: AhbmChip, *, everywhere: bool = False) -> tuple[Any, ...]:
        """Q, K, V, O on the chip; O at the root, or in every PE."""
        q, k, v = self.inputs if self.data else (None, None, None)
        heads = self.heads * self.group
        cache: dict[str, Any] = {"dtype": self.dtype, "axes": ("token", "d"), "valid": np.array(self.lengths)}
        rows = (self.capacity, self.d)
        return (
            chip.tensor("Q", (heads, self.d), self.dtype, q, "replicate", axes=("row", "d")),
            chip.tensor("K", rows, data=None if k is None else self.shard(k), **cache),
            chip.tensor("V", rows, data=None if v is None else self.shard(v), **cache),
            chip.tensor("O", (self.group, self.d), self.dtype, place="local" if everywhere else self.n - 1),
        )

    def arguments(self, chip: AhbmChip, *, everywhere: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a decode kernel is launched with."""
        args = (*self.tensors(chip, everywhere=everywhere), self.s, self.start_pe, self.n)
        mesh = (chip.spec.mesh_rows, chip.spec.mesh_cols)
        shape = {"group": self.group, "tile": self.tile, "scale": self.scale, "mesh": mesh}
        return args, {**shape, "grid": (self.n, self.heads)}

    @cached_property
    def expected(self) -> Array:
        """O [H_q, d] of the float64 oracle on the rounded inputs."""
        q, k, v = self.inputs
        return attention(q[:, None], k, v, scale=self.scale)[0][:, 0]

    @cached_property
    def error(self) -> ErrorModel:
        q, k, v = self.inputs
        return error_model(q[:, None], k, v, np.dtype(self.dtype), scale=self.scale)

    def by_cube(self) -> Array:
        """The oracle's O as `run.array("O")` has it."""
        parts = self.expected.reshape(self.heads, self.group, self.d)
        return parts if self.heads > 1 else parts[0]


Decode = Callable[..., Run]


@pytest.fixture
def decode(run_kernel: Any, ahbm_chip: AhbmChip) -> Decode:
    """`decode(problem, kernel=gqa_decode, **options) -> Run` on this test's chip."""

    def run(problem: Problem, kernel: Any = gqa_decode, *, on: AhbmChip | None = None, **options: Any) -> Run:
        chip = on or ahbm_chip
        args, launch = problem.arguments(chip)
        mesh = launch["mesh"]
        return run_kernel(kernel, *args, on=chip, placement=placement(problem.n, mesh), **{**launch, **options})

    return run


@pytest.fixture
def baseline(run_kernel: Any, ahbm_chip: AhbmChip) -> Decode:
    """`baseline(problem, **options) -> Run` of the kernel that the ADR replaces; O in every PE, heads folded into M."""

    def run(problem: Problem, kernel: Any = attention_mesh_mlo, **options: Any) -> Run:
        args, launch = problem.arguments(ahbm_chip, everywhere=True)
        pes = chain(problem.n, launch["mesh"])
        launch["heads_together"] = problem.group
        return run_kernel(kernel, *args, on=ahbm_chip, placement=pes, **{**launch, **options})

    return run


@pytest.fixture(scope="session")
def problem() -> type[Problem]:
    """The class of decode problems: `problem(s=1000, n=8)`."""
    return Problem


# --- requests of any kind: what the driver lays out ------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A request with random inputs, different for each head and token, and its float64 answer."""

    problem: driver.Problem

    @property
    def _variants(self) -> dict[str, Any]:
        each = self.problem
        return {
            "scale": each.rules["scale"], "causal": True, "q_start": each.first, "window": each.window,
            "softcap": each.softcap, "sinks": each.sinks,
        }  # fmt: skip

    @cached_property
    def answer(self) -> tuple[Array, Array]:
        """O [H_q, t_q, d_v] and the log-sum-exp [H_q, t_q]."""
        each = self.problem
        return attention(each.q, each.k, each.v, **self._variants)

    @cached_property
    def error(self) -> ErrorModel:
        each = self.problem
        return error_model(each.q, each.k, each.v, np.dtype(each.dtype), **self._variants)

    def part(self, first: int, count: int) -> Case:
        """The chunk of these positions, as it is when nothing behind it is cached yet."""
        each, end = self.problem, first + count
        rows = slice(first - each.first, end - each.first)
        assert each.q is not None and each.k is not None and each.v is not None
        cached = {"q": each.q[:, rows], "k": each.k[:, :end], "v": each.v[:, :end]}
        return Case(replace(each, t_q=count, kv_len=end, **cached))

    def without_keys(self) -> Case:
        """The same queries when nothing is cached at all."""
        each = self.problem
        assert each.k is not None and each.v is not None
        return Case(replace(each, kv_len=0, k=each.k[:, :0], v=each.v[:, :0]))

    def check_lse(self, lse: Array) -> None:
        """Fail unless `lse` [H_q, t_q], float32, is that of the answer, minus infinity included."""
        np.testing.assert_allclose(lse, self.answer[1], rtol=1e-6, atol=1e-5)

    def check(self, o: Array) -> None:
        """Fail unless `o` [H_q, t_q, d_v] is within the error model and finite where the answer is."""
        off = np.abs(o.astype(float) - self.answer[0])
        assert off.max() <= self.error.bound, f"off by {off.max()}; {self.error}"  # NaN is not within it either


@pytest.fixture(scope="session")
def case() -> Callable[..., Case]:
    """`case(kv_len=100, t_q=5, ...)`: a `driver.Problem` with data; `structure=True` leaves the data out."""

    def make(*, seed: int = 0, sd: float = 2.0, structure: bool = False, **sizes: Any) -> Case:
        shape = driver.Problem(**sizes)
        if structure:
            return Case(shape)
        q, k, v = random_attention(
            seed, shape.heads * shape.group, shape.heads, shape.kv_len, shape.d, np.dtype(shape.dtype),
            t_q=shape.t_q, d_v=shape.d_v, sd=sd,
        )  # fmt: skip
        return Case(replace(shape, q=q, k=k, v=v))

    return make


@dataclass(frozen=True)
class Outcome:
    """A run and O of each request, [H_q, t_q, d_v]; without data there are none."""

    run: Run
    outputs: list[Array]

    @property
    def log(self) -> Any:
        return self.run.log


Attend = Callable[..., Outcome]


@pytest.fixture
def attend(run_kernel: Any) -> Attend:
    """`attend(chip, launch, kernel=None, **options) -> Outcome`: what `driver` made, run with every checker on."""

    def run(chip: AhbmChip, launch: driver.Launch, kernel: Any = None, **options: Any) -> Outcome:
        done = run_kernel(kernel or launch.kernel, *launch.args, on=chip, **{**launch.options, **options})
        if kernel is None and done.checked:
            ka.assert_no_dead_transfers(done)
            if launch.kernel is not gqa_ring:  # whose two buffers take its own piece by turns
                ka.assert_no_redundant_transfers(done)
        return Outcome(done, launch.outputs(done) if done.tensors["Q"].data is not None else [])

    return run


@pytest.fixture
def split(attend: Attend, ahbm_spec: AhbmSpec) -> Attend:
    """`split([case, ...], n, tile=64, **options)`: decode, or queries against keys split over n PEs and a tree."""

    def run(
        cases: Sequence[Case], n: int, *, tile: int = 64, kernel: Any = None, run: Any = None, **options: Any
    ) -> Outcome:
        chip = AhbmChip(ahbm_spec)
        mesh = (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols)
        launch = driver.decode(chip, [each.problem for each in cases], n, tile=tile, mesh=mesh, **options)
        return attend(chip, launch, kernel, **(run or {}))

    return run


@pytest.fixture
def prefill(attend: Attend, ahbm_spec: AhbmSpec) -> Attend:
    """`prefill([case, ...], tile=64, q_block=16, **options)`: all keys in one PE of each cube."""

    def run(
        cases: Sequence[Case], *, tile: int = 64, q_block: int = 16, kernel: Any = None, run: Any = None, **options: Any
    ) -> Outcome:
        chip = AhbmChip(ahbm_spec)
        launch = driver.prefill(chip, [each.problem for each in cases], tile=tile, q_block=q_block, **options)
        return attend(chip, launch, kernel, **(run or {}))

    return run


@pytest.fixture
def ring(attend: Attend, ahbm_spec: AhbmSpec) -> Attend:
    """`ring(case, n, tile=64, q_block=16, sharding="zigzag", **options)`: keys and queries over n PEs."""

    def run(
        each: Case, n: int, *, tile: int = 64, q_block: int = 16, kernel: Any = None, run: Any = None, **options: Any
    ) -> Outcome:
        mesh = (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols)
        chip = AhbmChip(ahbm_spec, ports=driver.ring_ports(n, each.problem.heads, mesh))
        launch = driver.ring(chip, each.problem, n, tile=tile, q_block=q_block, mesh=mesh, **options)
        return attend(chip, launch, kernel, **(run or {}))

    return run


@pytest.fixture
def ring_batch(attend: Attend, ahbm_spec: AhbmSpec) -> Attend:
    """`ring_batch([case, ...], n, tile=64, q_block=16, **options)`: each request over all ranks of one ring."""

    def run(
        cases: Sequence[Case], n: int, *, tile: int = 64, q_block: int = 16, run: Any = None, **options: Any
    ) -> Outcome:
        mesh = (ahbm_spec.mesh_rows, ahbm_spec.mesh_cols)
        chip = AhbmChip(ahbm_spec, ports=driver.ring_ports(n, cases[0].problem.heads, mesh))
        problems = [each.problem for each in cases]
        launch = driver.ring_batch(chip, problems, n, tile=tile, q_block=q_block, mesh=mesh, **options)
        return attend(chip, launch, **(run or {}))

    return run


# --- kernels with a mistake ------------------------------------------------------------------------------------------

COPIES = itertools.count()


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`broken(kernel, {old: new, ...})`: the kernel from a copy of its package with those edits, each made once."""

    def edit(kernel: Callable[..., None], edits: dict[str, str]) -> Any:
        package, _, module = kernel.__module__.rpartition(".")
        name = next(free for n in COPIES if (free := f"broken{n}") not in sys.modules)  # this file may be loaded twice
        (tmp_path / name).mkdir()
        paths = sorted(Path(inspect.getsourcefile(kernel) or "").parent.glob("*.py"))
        sources = {path.name: path.read_text(encoding="utf-8").replace(package, name) for path in paths}
        for old, new in edits.items():
            made = [each for each, source in sources.items() for _ in range(source.count(old))]
            assert len(made) == 1, f"{old!r} occurs in {made}"
            sources[made[0]] = sources[made[0]].replace(old, new)
        for each, source in sources.items():
            (tmp_path / name / each).write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        return getattr(importlib.import_module(f"{name}.{module}"), kernel.__name__)

    return edit


@pytest.fixture
def line_of(tmp_path: Path) -> Callable[[str], str]:
    """`line_of("text")`: "gqa_decode.py:71" for the one line of the broken copies that has that text."""

    def find(text: str) -> str:
        lines = [
            f"{path.name}:{number}"
            for path in sorted(tmp_path.glob("*/*.py"))
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
            if text in line
        ]
        assert len(lines) == 1, f"{text!r} is in {lines}"
        return lines[0]

    return find
