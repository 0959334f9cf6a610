"""What each chunk of a launch issues and moves is its closed form; where the mended kernel differs, it says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule import host
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.faithful import FaithfulChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import LengthsOfTiling
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, Tiling, tiling, tiling_of_step
from pytest_kernbench.kernels.reference import delta_rule_work as forms
from pytest_kernbench.kernels.reference.delta_rule_work import Work
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore


class Marked(LengthsOfTiling):
    """Each chunk of a sequence and head in a region of its own, whose name is where it begins."""

    def ProcessChunk(self, chunk: Chunk, tiles: range) -> None:
        with self.asc.region(f"{chunk.head} {chunk.token} {tiles[0]}"):
            super().ProcessChunk(chunk, tiles)


class MarkedFaithful(Marked, FaithfulChunkGatedDeltaRule):
    """The same of the public version."""


def works(shape: Shape, plan: Tiling, variant: Any, gate: bool = True) -> dict[tuple[int, int, int], Work]:
    """By head, first token and first tile of each chunk, from the log of a run without data."""
    run = host.launch(Ascend310pCore(), shape, tiling=plan, variant=variant, gate=gate).run(check=False)
    log, counted = run.log, dict[tuple[int, int, int], Work]()
    kinds = np.frombuffer(log.cells, np.int32).reshape(len(log), -1)[:, 0]
    for kind, times in enumerate(np.bincount(kinds, minlength=len(log.descriptors)).tolist()):
        row = log.descriptors[kind]
        where = log.regions.values[row.region].partition("/")[0]
        if where:
            head, token, tile = map(int, where.split())
            of_chunk = counted.get((head, token, tile), Work())
            counted[head, token, tile] = of_chunk + work_of(log, row) * times
    return counted


def work_of(log: Any, row: Any) -> Work:
    """What one row counts for. A MAC is an element of Axpy, or of the products of a dot."""
    name, unit = log.names.values[row.name], log.units.values[row.unit]
    if name == "DataCopy":
        return Work(**{"bytes_in" if unit == "MTE2" else "bytes_out": row.bytes}, dma_instructions=1)
    if name.partition("<")[0] in ("SetFlag", "WaitFlag", "PipeBarrier"):
        return Work(flag_pairs=int(name in ("SetFlag<S_V>", "SetFlag<V_S>")))
    if unit == "V":
        count = log.shapes.values[row.shape][0]
        repeats = count if name == "WholeReduceSum" else -(-count // forms.LANES)
        return Work(vector_instructions=1, repeats=repeats, macs=count * (name in ("Axpy", "Mul")))
    if name in ("GetValue", "SetValue"):
        on = log.labels.values[(row.reads or row.writes)[0][0]]
        return Work(scalar_gm=int(on not in ("UB", "lengths")))
    return Work()


def chunks(shape: Shape, plan: Tiling) -> Iterator[tuple[tuple[int, int, int], forms.Chunk]]:
    """Every chunk of the launch, by what `works` has it by; tiles apart if there are more blocks than heads."""
    apart = plan.block_dim > shape.hv
    widths = forms.Chunk(length=1, dk=shape.dk, dv=shape.dv, v_step=plan.v_step).tiles if apart else (shape.dv,)
    for head in range(shape.hv):
        token = 0
        for length in shape.lengths:
            for tile, width in enumerate(widths):
                of_sequence = forms.sequence_chunks(length, (shape.dk, width), plan.v_step)
                for number, chunk in enumerate(of_sequence):
                    yield (head, token + number * forms.CHUNK, tile), chunk
            token += length


def public(chunk: forms.Chunk) -> Work:
    """The closed form. In a narrower last tile the log counts what fills its rows up as well."""
    return replace(chunk.work, macs=replace(chunk, dv=len(chunk.tiles) * chunk.v_step).macs)


def mended(chunk: forms.Chunk) -> Work:
    """No flag behind the numbers of the initial state, and a narrower last tile in rows of its own width."""
    last = chunk.tiles[-1]
    repeats = chunk.work.repeats + repeats_of_a_tile(replace(chunk, v_step=last)) - repeats_of_a_tile(chunk)
    flags = chunk.flag_pairs - len(chunk.tiles) * chunk.first
    return replace(chunk.work, repeats=repeats, flag_pairs=flags)


def repeats_of_a_tile(chunk: forms.Chunk) -> int:
    """Of the last one, whose columns are the chunk's last: what it adds to a tile before it."""
    step, last = chunk.v_step, chunk.tiles[-1]
    two, one = (replace(chunk, dv=columns).work.repeats for columns in (step + last, step))
    return two - one


SHAPES = {
    "one chunk": (Shape((5,), 1, 1, 16, 16), None),
    "dots by repeats": (Shape((3,), 1, 1, 128, 128), None),
    "dots with a rest": (Shape((3,), 1, 1, 80, 80), None),
    "sequences and heads": (Shape((2, 0, 5), 1, 2, 16, 32), None),
    "tiles in turn": (Shape((4,), 1, 2, 64, 64), 32),
    "a narrow last tile": (Shape((3,), 1, 1, 16, 144), 128),
    "narrow tiles dealt out": (Shape((3,), 1, 1, 16, 272), None),
    "Q by number": (Shape((5,), 1, 1, 208, 16), None),
}


def case_of(name: str) -> tuple[Shape, Tiling]:
    """The shape with the host's tiling, or tiles of that many columns, all of a head in turn."""
    shape, v_step = SHAPES[name]
    return shape, tiling(shape) if v_step is None else tiling_of_step(shape, v_step, cores=1)


@pytest.mark.adr("0311", "9.1")
@pytest.mark.parametrize("name", SHAPES)
def test_each_chunk_of_the_public_version_is_its_closed_form(name: str) -> None:
    shape, plan = case_of(name)

    assert works(shape, plan, MarkedFaithful) == {where: public(chunk) for where, chunk in chunks(shape, plan)}


@pytest.mark.adr("0311", "9.1")
def test_first_middle_and_last_chunk_of_one_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of 8, which the forms count as well; a middle one of 64 is in test_counts."""
    monkeypatch.setattr(forms, "CHUNK", 8)
    shape = Shape((17,), 1, 1, 16, 16)
    plan = tiling(shape, chunk=8)
    found = works(shape, plan, MarkedFaithful)

    assert found == {where: chunk.work for where, chunk in chunks(shape, plan)}
    assert len(set(found.values())) == 3
    assert sum(found.values(), Work()) == forms.operator_work((17,), 1, (16, 16), 16)


@pytest.mark.adr("0311", "9.1")
def test_a_gate_that_is_not_given_is_not_read() -> None:
    shape = Shape((5,), 1, 1, 16, 16)
    (with_gate,), (without,) = (works(shape, tiling(shape), MarkedFaithful, gate).values() for gate in (True, False))

    assert without == replace(with_gate, scalar_gm=with_gate.scalar_gm - 5)


@pytest.mark.adr("0311", "9.2")
@pytest.mark.parametrize("name", SHAPES)
def test_each_chunk_of_the_mended_kernel_differs_as_it_says(name: str) -> None:
    shape, plan = case_of(name)

    assert works(shape, plan, Marked) == {where: mended(chunk) for where, chunk in chunks(shape, plan)}


# The page's table of differences: whole launches of one head, every number measured again


PAGE = Path(__file__).parents[3] / "docs/delta_rule.md"
COUNTED = ("flag pairs", "repeats", "scalar accesses", "barriers of V")
DIFFERENCES = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in PAGE.read_text(encoding="utf-8").split("\n")
    if line.startswith("|") and any(f"| {each} |" in line for each in COUNTED)
]


class UnmarkedFaithful(LengthsOfTiling, FaithfulChunkGatedDeltaRule):
    """The public version on lengths of its tiling."""


def in_all(shape: Shape, v_step: int, counted: str, variant: Any) -> int:
    run = host.launch(Ascend310pCore(), shape, tiling=tiling_of_step(shape, v_step, cores=1), variant=variant).run(
        check=False
    )
    if counted == "barriers of V":
        return len(run.log.where(name="PipeBarrier", unit="V").index)
    kinds = np.frombuffer(run.log.cells, np.int32).reshape(len(run.log), -1)[:, 0]
    times = np.bincount(kinds, minlength=len(run.log.descriptors)).tolist()
    rows = zip(run.log.descriptors, times, strict=True)
    total = sum((work_of(run.log, row) * number for row, number in rows), Work())
    return {"flag pairs": total.flag_pairs, "repeats": total.repeats, "scalar accesses": total.scalar_gm}[counted]


def test_the_page_has_a_difference_of_each_kind() -> None:
    assert {row[3] for row in DIFFERENCES} == set(COUNTED)


@pytest.mark.adr("0311", "9.2")
@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: " ".join(row[:4]))
def test_the_pages_differences_are_those_of_a_run(row: list[str]) -> None:
    tokens, dims, v_step, counted, public_number, mended_number, _ = row
    dk, dv = map(int, dims.split("/"))
    shape = Shape((int(tokens),), 1, 1, dk, dv)

    found = [in_all(shape, int(v_step), counted, each) for each in (UnmarkedFaithful, LengthsOfTiling)]

    assert [f"{number:_}".replace("_", " ") for number in found] == [public_number, mended_number]
    assert public_number != mended_number
