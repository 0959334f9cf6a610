"""A launch in parts, as processes share it: each part has its cores' blocks, and together they have all of them."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.vector_add import vector_add
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.errors import LaunchError

N, BLOCKS = 4096, 16
X, Y = (np.random.default_rng(seed).standard_normal(N).astype(np.float16) for seed in (1, 2))


def add(**how: Any) -> Any:
    core = Ascend310pCore()
    x, y = core.tensor("x", N, "float16", X), core.tensor("y", N, "float16", Y)
    z = core.tensor("z", N, "float16")
    run = core.run(vector_add, x, y, z, N, tile=128, grid=BLOCKS, **how)
    return run, run.array(z)


def blocks_of(run: Any) -> set[str]:
    return set(run.log.programs)


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_every_block_is_in_one_part_with_the_others_of_its_core(parts: int) -> None:
    shares = [blocks_of(add(part=(which, parts))[0]) for which in range(parts)]
    assert sorted(name for share in shares for name in share) == sorted(f"block{block}" for block in range(BLOCKS))
    for share in shares:
        cores = {int(name[5:]) % 8 for name in share}
        assert share == {f"block{block}" for block in range(BLOCKS) if block % 8 in cores}


@pytest.mark.parametrize("schedule", ["model", "late"])
def test_a_block_does_the_same_in_a_part_as_in_the_whole(schedule: str) -> None:
    whole, result = add(schedule=schedule)
    assert np.array_equal(result, X + Y)
    runs = [add(part=(which, 3), schedule=schedule) for which in range(3)]
    assert max(run.cycles for run, _ in runs) == whole.cycles
    untouched = add(data=False)[1].view(np.uint16)
    written = [array.view(np.uint16) != untouched for _, array in runs]
    assert (np.sum(written, axis=0) == 1).all()
    for (_, array), there in zip(runs, written, strict=True):
        assert np.array_equal(array[there], result[there])


@pytest.mark.parametrize(("part", "says"), [
    ((2, 2), "which = 2"), ((-1, 2), "which = -1"), ((0, 0), "of how many = 0"), ((0, 1.5), "of how many = 1.5"),
    (3, "part 3 is no pair"), ((0, 1, 2), "no pair"), ("ab", "of how many = 'b'"),
])  # fmt: skip
def test_a_part_that_is_none_is_refused(part: Any, says: str) -> None:
    with pytest.raises(LaunchError, match=says):
        add(part=part)
