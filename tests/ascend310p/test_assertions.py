"""The helpers for cores of pipes: each accepts a kernel that keeps its promise and refuses one that breaks it."""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench import assertions as ka

ONES = np.ones(256, np.float32)


def copies(x: Any, y: Any, *, scalars: int = 0, at: int = 0, count: int = 64, unpaired: bool = False, asc: Any) -> None:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 1024)
    t, source, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
    source.SetGlobalBuffer(x)
    target.SetGlobalBuffer(y)
    for each in range(scalars):
        source.GetValue(each)
    asc.DataCopy(t, source[at], count)
    asc.SetFlag(asc.HardEvent.MTE2_MTE3, 0)
    asc.WaitFlag(asc.HardEvent.MTE2_MTE3, 0)
    if unpaired:
        asc.SetFlag(asc.HardEvent.MTE2_MTE3, 1)
    asc.DataCopy(target, t, 8)


@pytest.fixture
def run_of(launch: Any) -> Any:
    return lambda **given: launch(copies, x=ONES, y=(256, "float32"), **given).run


@pytest.mark.adr("0310", "3.3")
def test_flags_balanced(run_of: Any) -> None:
    ka.assert_flags_balanced(run_of())

    with pytest.raises(
        AssertionError, match=r"MTE2_MTE3 id 1 of block0 is set 1 times and waited for 0 times\n  last:"
    ):
        ka.assert_flags_balanced(run_of(unpaired=True))
    with pytest.raises(ValueError, match="log=True"):
        ka.assert_flags_balanced(run_of(log="data"))


@pytest.mark.adr("0310", "2.4")
def test_ub_budget(run_of: Any) -> None:
    ka.assert_ub_budget(run_of(), 1024)

    with pytest.raises(AssertionError, match="takes 1024 bytes of UB, the host planned 1056: 32 less"):
        ka.assert_ub_budget(run_of(), 1056)


@pytest.mark.adr("0310", "2.2")
def test_scalar_accesses_to_memory(run_of: Any) -> None:
    ka.assert_scalar_gm_accesses(run_of(scalars=3), 3)
    ka.assert_scalar_gm_accesses(run_of(scalars=3), 0, ["y"])

    with pytest.raises(AssertionError, match=r"3 scalar accesses of x, expected 2\n  first past them: .*GetValue on S"):
        ka.assert_scalar_gm_accesses(run_of(scalars=3), 2, ["x"])
    with pytest.raises(AssertionError, match="there is none"):
        ka.assert_scalar_gm_accesses(run_of(), 1)
    with pytest.raises(ValueError, match="no tensor z; it has x, y"):
        ka.assert_scalar_gm_accesses(run_of(), 1, ["z"])


@pytest.mark.adr("0310", "5.1")
def test_alignment_in_memory(run_of: Any) -> None:
    ka.assert_dma_aligned(run_of(at=8))
    ka.assert_dma_aligned(run_of(at=3), tensors=["y"])

    with pytest.raises(
        AssertionError, match=r"starts 12 bytes past a multiple of 32 in x\n  first: .*DataCopy on MTE2"
    ):
        ka.assert_dma_aligned(run_of(at=3))


@pytest.mark.adr("0310", "5.2")
def test_no_truncated_copy(run_of: Any) -> None:
    ka.assert_no_truncated_copy(run_of())

    with pytest.raises(AssertionError, match="5 elements are not copied"):
        ka.assert_no_truncated_copy(run_of(count=61))
    with pytest.raises(ValueError, match="nobody looked"):
        ka.assert_no_truncated_copy(run_of(check=False))


@pytest.mark.adr("0310", "3.5")
def test_no_races_and_overlap_serve_this_device_too(run_of: Any) -> None:
    ka.assert_no_races(run_of())
    with pytest.raises(AssertionError, match="MTE2 and MTE3 overlap for 0 cycles"):
        ka.assert_overlap(run_of(), "MTE2", "MTE3", at_least=0.1)


@pytest.mark.ascend310p(queue_depth=4)
def test_the_mark_changes_the_fixtures_core(ascend310p_core: Any, ascend310p_spec: Any, run_kernel: Any) -> None:
    assert ascend310p_core.spec == ascend310p_spec
    assert ascend310p_spec.queue_depth == 4
    x, y = ascend310p_core.tensor("x", 256, "float32", ONES), ascend310p_core.tensor("y", 256, "float32")
    assert run_kernel(copies, x, y, on=ascend310p_core).cycles > 0
