"""Bytes that several phases work in: nobody reads a borrower's, and a kernel that does is told so (and bug 23)."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.members import Chunk, Tile
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, tiling_of_step


class ValuesNotLoaded(ChunkGatedDeltaRule):
    """chunkVFp32 has what the staging of K, and the sums of products, left."""

    def LoadVBeta(self, chunk: Chunk, tile: Tile) -> None: ...


class ValuesNotSolved(ChunkGatedDeltaRule):
    """chunkAttnOutFp32 has the staging of V."""

    def ComputeValueNew(self, chunk: Chunk, tile: Tile) -> None: ...


class ValuesByScalarNotSolved(ValuesNotSolved):
    """chunkAttnOutFp32 has the scaled Q."""

    def ValuesByDma(self, tile: Tile) -> bool:
        return False


class KeysNotScaled(ChunkGatedDeltaRule):
    """kCumdecayFp32 has the staging of K, which has no room in a narrow tile of V."""

    def ComputeKBeta(self, chunk: Chunk) -> None: ...


@pytest.mark.adr("0311", "4.1")
@pytest.mark.adr("0310", "4.5")
@pytest.mark.parametrize(
    ("variant", "owner", "borrower"),
    [
        (ValuesNotLoaded, "chunkVFp32", "keyStaging|queryStaging|dotSums"),
        (ValuesNotSolved, "chunkAttnOutFp32", "valueStaging"),
        (ValuesByScalarNotSolved, "chunkAttnOutFp32", "queryCache"),
        (KeysNotScaled, "kCumdecayFp32", "keyStaging"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_what_a_borrower_left_is_not_the_owners(delta: Any, variant: Any, owner: str, borrower: str) -> None:
    dk, dv = (64, 32) if variant is not KeysNotScaled else (64, 16)
    inputs, shape = delta.inputs((3,), dk=dk, dv=dv), Shape((3,), 1, 1, dk, dv)
    plan = tiling_of_step(shape, dv, cores=1)
    found = delta.unchecked(inputs, shape, variant=variant, tiling=plan).run.hazards

    assert any(
        hazard.kind == "live-alias" and f"reads as {owner} what {each}," in hazard.message
        for hazard in found
        for each in borrower.split("|")
    )
    mended = delta.unchecked(inputs, shape, tiling=plan)
    assert not mended.run.hazards
    delta.check(inputs, mended)


@pytest.mark.adr("0311", "4.1")
@pytest.mark.parametrize(("dv", "too_narrow"), [(16, True), (32, False)])
def test_k_is_staged_in_kcumdecay_only_where_a_tile_is_too_narrow(delta: Any, dv: int, too_narrow: bool) -> None:
    """A row of 64 halves just fits in 32 floats of a tile; then nobody has written what `ComputeKBeta` left out."""
    inputs, shape = delta.inputs((2,), dk=64, dv=dv), Shape((2,), 1, 1, 64, dv)
    plan = tiling_of_step(shape, dv, cores=1)
    found = delta.unchecked(inputs, shape, variant=KeysNotScaled, tiling=plan).run.hazards

    assert any("as kCumdecayFp32 what keyStaging" in hazard.message for hazard in found) == too_narrow
    assert found
