"""The driver's duties at a launch (ADR-0060 2.2): inputs laid out over cubes and PEs, and outputs put together again.

Host code: it takes a chip, makes its tensors, and says with what a kernel is launched. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_kernbench.kernels.ahbm.attention_mesh_kv import attention_mesh_kv
from pytest_kernbench.kernels.ahbm.attention_mesh_mlo import attention_mesh_mlo, chain
from pytest_kernbench.kernels.ahbm.flash_sweep import Layout
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode_batch
from pytest_kernbench.kernels.ahbm.gqa_fixed_split import (
    gqa_decode_fixed_split,
    gqa_decode_fixed_split_batch,
    split_count,
    splits_of,
)
from pytest_kernbench.kernels.ahbm.gqa_prefill import gqa_prefill_batch
from pytest_kernbench.kernels.ahbm.gqa_ring import gqa_ring, gqa_ring_batch
from pytest_kernbench.kernels.ahbm.placement import Mesh, check_fits, placement, token_of, valid_len
from pytest_kernbench.kernels.ahbm.positions import Placement, Span, ring_order, shards, slots
from pytest_kernbench.kernels.ahbm.problem import Array, alike
from pytest_kernbench.kernels.ahbm.problem import Problem as Problem  # also named from here
from pytest_kernbench.kernels.ahbm.requests import Request


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments; `options` are the chip's and the kernel's. `collect` takes the run's O apart."""

    kernel: Callable[..., None]
    args: tuple[Any, ...]
    options: dict[str, Any]
    collect: Callable[[Array], list[Array]]

    def run(self, chip: Any, **options: Any) -> Any:
        """The run of this launch on its chip, with more options of `chip.run` or of the kernel."""
        return chip.run(self.kernel, *self.args, **{**self.options, **options})

    def outputs(self, run: Any) -> list[Array]:
        """O [H_q, t_q, d_v] of each request, whatever the layout on the chip."""
        return self.collect(run.array("O"))


def decode(
    chip: Any, requests: Sequence[Problem], n: int, *, tile: int, layout: Layout = "head", lse: bool = False,
    start_pes: Sequence[int] | None = None, mesh: Mesh = (2, 4), **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_decode_batch` of `requests`, each with its keys round robin over `n` PEs from its own start_pe on.

    Without `start_pes` request i begins at PE i mod n (ADR-0060 0, layer 2).
    """
    rules, pes = alike(requests), placement(n, mesh)
    starts = [number % n for number in range(len(requests))] if start_pes is None else start_pes
    if len(starts) != len(requests):
        raise ValueError(f"{len(starts)} start_pes for {len(requests)} requests: give one a request")
    q_rows, kv_rows, batch = 0, 0, []
    for problem, start in zip(requests, starts, strict=True):
        batch.append(Request(problem.kv_len, problem.t_q, start, q_rows, kv_rows, problem.q_start))
        q_rows, kv_rows = q_rows + problem.t_q, kv_rows + -(-problem.kv_len // n)
    k, v = (_split_caches(requests, batch, kv_rows, n, name) for name in ("k", "v"))
    args = _tensors(chip, requests[0], _packed_queries(requests, layout), q_rows, k, v, kv_rows, n - 1, layout)
    extra = _extras(chip, requests[0], q_rows, n - 1, lse)
    return Launch(
        gqa_decode_batch, (*args, batch, n),
        {**rules, **extra, **options, "tile": tile, "layout": layout, "mesh": mesh, "placement": pes,
         "grid": (n, requests[0].heads)},
        lambda o: _taken_apart(o, requests, layout),
    )  # fmt: skip


def decode_fixed_split(
    chip: Any, problem: Problem, n: int, *, tile: int, split: int, layout: Layout = "head", lse: bool = False,
    start_pe: int = 0, mesh: Mesh = (2, 4), **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_decode_fixed_split` of `problem`: splits of `split` tokens go round `n` PEs from `start_pe` on."""
    batch = decode_fixed_split_batch(
        chip, [problem], n, tile=tile, split=split, layout=layout, lse=lse, start_pes=[start_pe], mesh=mesh, **options
    )
    args = (*batch.args[:4], problem.kv_len, start_pe, n)
    return replace(
        batch, kernel=gqa_decode_fixed_split, args=args, options={**batch.options, "q_start": problem.q_start}
    )


def decode_fixed_split_batch(
    chip: Any, requests: Sequence[Problem], n: int, *, tile: int, split: int, layout: Layout = "head",
    lse: bool = False, start_pes: Sequence[int] | None = None, mesh: Mesh = (2, 4), **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_decode_fixed_split_batch` of `requests`, request i from its own start_pe on, or from PE i mod n."""
    rules, pes = alike(requests), placement(n, mesh)
    starts = [number % n for number in range(len(requests))] if start_pes is None else start_pes
    shares = [_split_spans(each.kv_len, start, n, split) for each, start in zip(requests, starts, strict=True)]
    kv_rows = [max(map(len, spans)) * split for spans in shares]
    batch = [
        Request(each.kv_len, each.t_q, starts[at], sum(p.t_q for p in requests[:at]), sum(kv_rows[:at]), each.q_start)
        for at, each in enumerate(requests)
    ]
    q_rows, rows, first = sum(each.t_q for each in requests), max(sum(kv_rows), 1), requests[0]
    k = v = None
    if first.has_data:
        k, v = (
            np.concatenate(
                [_sharded(getattr(requests[at], name), shares[at], rows) for at, rows in enumerate(kv_rows)], -2
            )
            for name in ("k", "v")
        )
        if not sum(kv_rows):
            k, v = (np.full((first.heads, n, 1, width), np.nan) for width in (first.d, first.d_v))
    return Launch(
        gqa_decode_fixed_split_batch,
        (*_tensors(chip, first, _packed_queries(requests, layout), q_rows, k, v, rows, n - 1, layout), batch, n),
        {**rules, **_extras(chip, first, q_rows, n - 1, lse), **options, "tile": tile, "split": split,
         "layout": layout, "mesh": mesh, "placement": pes, "grid": (n, first.heads)},
        lambda o: _taken_apart(o, requests, layout),
    )  # fmt: skip


def _split_spans(kv_len: int, start_pe: int, n: int, split: int) -> list[tuple[Span, ...]]:
    """By rank, the positions of its splits."""
    count = split_count(kv_len, split)
    return [
        tuple(Span(i * split, min(split, kv_len - i * split)) for i in splits_of(rank, start_pe, count, n))
        for rank in range(n)
    ]


def prefill(
    chip: Any, requests: Sequence[Problem], *, tile: int, q_block: int, layout: Layout = "head", lse: bool = False,
    **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_prefill_batch` of `requests`, whose keys lie one after another in one PE of each cube."""
    rules = alike(requests)
    q_rows, kv_rows, batch = 0, 0, []
    for problem in requests:
        batch.append(Request(problem.kv_len, problem.t_q, 0, q_rows, kv_rows, problem.q_start))
        q_rows, kv_rows = q_rows + problem.t_q, kv_rows + problem.kv_len
    k, v = (_split_caches(requests, batch, kv_rows, 1, name) for name in ("k", "v"))
    args = _tensors(chip, requests[0], _packed_queries(requests, layout), q_rows, k, v, kv_rows, 0, layout)
    extra = _extras(chip, requests[0], q_rows, 0, lse)
    return Launch(
        gqa_prefill_batch, (*args, batch),
        {**rules, **extra, **options, "tile": tile, "q_block": q_block, "layout": layout,
         "grid": (1, requests[0].heads)},
        lambda o: _taken_apart(o, requests, layout),
    )  # fmt: skip


def ring(
    chip: Any, problem: Problem, n: int, *, tile: int, q_block: int, sharding: Placement = "zigzag",
    layout: Layout = "head", lse: bool = False, mesh: Mesh = (2, 4), **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_ring` of `problem` on a chip with `ring_ports(n, heads, mesh)`."""
    batch = ring_batch(
        chip, [problem], n, tile=tile, q_block=q_block, sharding=sharding, layout=layout, lse=lse, mesh=mesh, **options
    )
    args = (*batch.args[:4], problem.t_q, problem.kv_len, n)
    return replace(batch, kernel=gqa_ring, args=args, options={**batch.options, "q_start": problem.q_start})


def ring_batch(
    chip: Any, requests: Sequence[Problem], n: int, *, tile: int, q_block: int, sharding: Placement = "zigzag",
    layout: Layout = "head", lse: bool = False, mesh: Mesh = (2, 4), **options: Any,
) -> Launch:  # fmt: skip
    """`gqa_ring_batch` of `requests`, each over all `n` ranks, on a chip with `ring_ports(n, heads, mesh)`."""
    rules = alike(requests)
    queries = [shards(each.t_q, n, sharding, each.first) for each in requests]
    keys = [shards(each.kv_len, n, sharding) for each in requests]
    _check_ring(chip, n, requests[0].heads, mesh)
    batch = [
        Request(each.kv_len, each.t_q, 0, sum(_rows(queries[:at])), sum(_rows(keys[:at])), each.q_start)
        for at, each in enumerate(requests)
    ]
    extra = _extras(chip, requests[0], sum(_rows(queries)), "local", lse)
    return Launch(
        gqa_ring_batch, (*_sharded_tensors(chip, requests, queries, keys, layout), batch, n),
        {**rules, **extra, **options, "tile": tile, "q_block": q_block, "sharding": sharding,
         "layout": layout, "placement": ring_order(n, mesh), "grid": (n, requests[0].heads)},
        lambda o: _unsharded(o, queries, requests, layout),
    )  # fmt: skip


def _check_ring(chip: Any, n: int, cubes: int, mesh: Mesh) -> None:
    for (pe, port), end in ring_ports(n, cubes, mesh).items():
        if chip.ports.get((pe, port)) != end:
            raise ValueError(
                f"port {port} of PE {pe} does not lead to its neighbour in a ring of {n}: make the chip with "
                f"AhbmChip(spec, ports=ring_ports({n}, {cubes}, {mesh}))"
            )


def ring_ports(n: int, cubes: int, mesh: Mesh = (2, 4)) -> dict[tuple[int, str], tuple[int, str]]:
    """Ports of a chip on which E leads from rank to rank of a ring of `n`, and round, in each of `cubes` cubes."""
    size, order = mesh[0] * mesh[1], ring_order(n, mesh)
    ports = {}
    for cube in range(cubes):
        for rank, pe in enumerate(order if n > 1 else ()):
            here, there = cube * size + pe, cube * size + order[(rank + 1) % n]
            ports[here, "E"], ports[there, "W"] = (there, "W"), (here, "E")
    return ports


# --- the kernels that ADR-0060 replaces -------------------------------------------------------------------------------


def baseline_decode(
    chip: Any, problem: Problem, n: int, *, tile: int, heads_together: int = 1, start_pe: int = 0, mesh: Mesh = (2, 4),
    **options: Any,
) -> Launch:  # fmt: skip
    """`attention_mesh_mlo` of `problem`, keys as for `decode`; every rank has O, and that of rank 0 is taken.

    Raises ValueError for a window, a softcap or sinks.
    """
    _check_plain(problem)
    check_fits(n, mesh)
    batch = [Request(problem.kv_len, problem.t_q, start_pe, q_start=problem.q_start)]
    rows = -(-problem.kv_len // n)
    k, v = (_split_caches([problem], batch, rows, n, name) for name in ("k", "v"))
    args = _tensors(chip, problem, problem.q, problem.t_q, k, v, rows, "local", "head")
    return Launch(
        attention_mesh_mlo, (*args, problem.kv_len, start_pe, n),
        {**_plain_rules(problem), **options, "tile": tile, "heads_together": heads_together, "mesh": mesh,
         "placement": chain(n, mesh), "grid": (n, problem.heads)},
        lambda o: [(o if o.ndim == 5 else o[None])[:, 0].reshape(-1, problem.t_q, problem.d_v)],
    )  # fmt: skip


def baseline_prefill(
    chip: Any, problem: Problem, n: int, *, tile: int, q_block: int, heads_together: int = 1, mesh: Mesh = (2, 4),
    **options: Any,
) -> Launch:  # fmt: skip
    """`attention_mesh_kv` of `problem`, on a chip with the ports of its mesh.

    Raises ValueError for a window, a softcap or sinks.
    """
    _check_plain(problem)
    check_fits(n, mesh)
    queries, keys = shards(problem.t_q, n, "contiguous", problem.first), shards(problem.kv_len, n, "contiguous")
    return Launch(
        attention_mesh_kv,
        (*_sharded_tensors(chip, [problem], [queries], [keys], "head"), problem.t_q, problem.kv_len, n),
        {**_plain_rules(problem), **options, "tile": tile, "q_block": q_block, "heads_together": heads_together,
         "mesh": mesh, "placement": chain(n, mesh), "grid": (n, problem.heads)},
        lambda o: _unsharded(o, [queries], [problem], "head"),
    )  # fmt: skip


def _check_plain(problem: Problem) -> None:
    extras = {"window": problem.window, "softcap": problem.softcap, "sinks": problem.sinks}
    given = [name for name, value in extras.items() if value is not None]
    if given:
        raise ValueError(f"a baseline knows no {', '.join(given)}: take decode, prefill or ring, or leave it out")


def _plain_rules(problem: Problem) -> dict[str, Any]:
    return {"group": problem.group, "scale": problem.rules["scale"], "q_start": problem.q_start}


# --- one place for every number ---------------------------------------------------------------------------------------


def _axes(layout: Layout) -> tuple[str, str]:
    return ("head", "token") if layout == "head" else ("token", "head")


def _sizes(heads: int, tokens: int, layout: Layout) -> tuple[int, int]:
    return (heads, tokens) if layout == "head" else (tokens, heads)


def _tensors(
    chip: Any, problem: Problem, q: Array | None, q_rows: int, k: Array | None, v: Array | None, kv_rows: int,
    place: int | str, layout: Layout,
) -> tuple[Any, ...]:  # fmt: skip
    """Q in every PE, K and V in their PEs, O at the root or in every PE."""
    h_q, name = problem.heads * problem.group, problem.dtype
    cache = {"dtype": name, "axes": ("token", "d")}
    rows = max(kv_rows, 1)
    return (
        chip.tensor("Q", (*_sizes(h_q, q_rows, layout), problem.d), name, q, "replicate", axes=(*_axes(layout), "d")),
        chip.tensor("K", (rows, problem.d), data=k, **cache),
        chip.tensor("V", (rows, problem.d_v), data=v, **cache),
        chip.tensor("O", (*_sizes(problem.group, q_rows, layout), problem.d_v), name, place=place),
    )


Shards = Sequence[tuple[Span, ...]]


def _rows(shards_of: Sequence[Shards]) -> list[int]:
    """For each request, the rows that its largest shard takes in every rank."""
    return [max(map(slots, shards)) for shards in shards_of]


def _sharded_tensors(
    chip: Any, requests: Sequence[Problem], queries: Sequence[Shards], keys: Sequence[Shards], layout: Layout
) -> tuple[Any, ...]:
    """Q, K, V and O of ranks that own queries and keys, each a shard of both of every request."""
    first = requests[0]
    q_rows, kv_rows = sum(_rows(queries)), max(sum(_rows(keys)), 1)
    q = k = v = None
    if first.has_data:
        q = _behind([_by_cube(each.q, each) for each in requests], queries, [each.first for each in requests])
        k, v = (_behind([getattr(each, name) for each in requests], keys, [0] * len(keys)) for name in ("k", "v"))
        q = q if layout == "head" else np.swapaxes(q, -3, -2)
        if not sum(_rows(keys)):
            k, v = (np.full((first.heads, len(keys[0]), 1, width), np.nan) for width in (first.d, first.d_v))
    sizes, name = _sizes(first.group, q_rows, layout), first.dtype
    cache: dict[str, Any] = {"dtype": name, "axes": ("token", "d")}
    if len(requests) == 1:  # a batch has holes behind every request, which NaN marks if there is data
        cache["valid"] = np.array([slots(shard) for shard in keys[0]])
    return (
        chip.tensor("Q", (*sizes, first.d), name, q, axes=(*_axes(layout), "d")),
        chip.tensor("K", (kv_rows, first.d), data=k, **cache),
        chip.tensor("V", (kv_rows, first.d_v), data=v, **cache),
        chip.tensor("O", (*sizes, first.d_v), name),
    )


def _behind(values: Sequence[Array], spans: Sequence[Shards], firsts: Sequence[int]) -> Array:
    """The shards of every request, [cubes, ranks, ..., rows, width], one behind the other."""
    rows = _rows(spans)
    return np.concatenate(list(map(_sharded, values, spans, rows, firsts)), axis=-2)


def _extras(chip: Any, problem: Problem, q_rows: int, place: int | str, lse: bool) -> dict[str, Any]:
    """Sinks in every PE, and where the log-sum-exp goes."""
    found = {}
    if problem.sinks is not None:
        sinks = np.asarray(problem.sinks, np.float32)
        found["sinks"] = chip.tensor("sinks", sinks.shape, "float32", sinks if problem.has_data else None, "replicate")
    if lse:
        found["lse"] = chip.tensor("lse", (problem.group, q_rows), "float32", place=place)
    return found


def _packed_queries(requests: Sequence[Problem], layout: Layout) -> Array | None:
    """Q of all requests, token behind token."""
    if not requests[0].has_data:
        return None
    packed = np.concatenate([problem.q for problem in requests if problem.q is not None], axis=1)
    return packed if layout == "head" else np.swapaxes(packed, 0, 1)


def _split_caches(requests: Sequence[Problem], batch: Sequence[Request], rows: int, n: int, name: str) -> Array | None:
    """[heads, n, rows, width]: token i of a request on its rank (start_pe + i) mod n (2.1); NaN where nobody wrote."""
    if not requests[0].has_data:
        return None
    first: Array = getattr(requests[0], name)
    parts = np.full((first.shape[0], n, max(rows, 1), first.shape[2]), np.nan, first.dtype)
    for problem, request in zip(requests, batch, strict=True):
        cache: Array = getattr(problem, name)
        for rank in range(n):
            length = valid_len(request.kv_len, request.start_pe, rank, n)
            tokens = [token_of(slot, rank, request.start_pe, n) for slot in range(length)]
            parts[:, rank, request.kv_row : request.kv_row + length] = cache[:, tokens]
    return parts


def _taken_apart(o: Array, requests: Sequence[Problem], layout: Layout) -> list[Array]:
    """O of each request, [H_q, t_q, d_v], out of the root's rows."""
    by_cube = o if o.ndim == 4 else o[None]
    in_order = by_cube if layout == "head" else np.swapaxes(by_cube, 1, 2)
    heads = in_order.reshape(-1, *in_order.shape[2:])
    ends = np.cumsum([problem.t_q for problem in requests])[:-1]
    return list(np.split(heads, ends, axis=1))


def _by_cube(q: Array | None, problem: Problem) -> Array:
    """Q as [cubes, group, t_q, d]."""
    assert q is not None
    return q.reshape(problem.heads, problem.group, *q.shape[1:])


def _sharded(values: Array | None, spans: Sequence[tuple[Span, ...]], rows: int, first: int = 0) -> Array:
    """[cubes, ..., tokens, width] as [cubes, ranks, ..., rows, width]; NaN behind a rank's own."""
    assert values is not None
    parts = np.full((values.shape[0], len(spans), *values.shape[1:-2], rows, values.shape[-1]), np.nan, values.dtype)
    for rank, shard in enumerate(spans):
        tokens = [position - first for span in shard for position in span.positions]
        parts[:, rank, ..., : len(tokens), :] = values[..., tokens, :]
    return parts


def _unsharded(o: Array, spans: Sequence[Shards], requests: Sequence[Problem], layout: Layout) -> list[Array]:
    """O [H_q, t_q, d_v] of each request out of what each rank stored."""
    by_rank = o if o.ndim == 5 else o[None]
    in_order = by_rank if layout == "head" else np.swapaxes(by_rank, 2, 3)
    found, row = [], 0
    for problem, shards_of, rows in zip(requests, spans, _rows(spans), strict=True):
        whole = np.empty((problem.heads, problem.group, problem.t_q, problem.d_v), o.dtype)
        for rank, shard in enumerate(shards_of):
            tokens = [position - problem.first for span in shard for position in span.positions]
            whole[:, :, tokens] = in_order[:, rank, :, row : row + len(tokens)]
        found.append(whole.reshape(-1, problem.t_q, problem.d_v))
        row += rows
    return found
