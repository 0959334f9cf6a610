"""Two runs are told apart by their logs, findings and bits, and not by the lines their ops stand in."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.mutation.watching import described
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.device import Run

AHBM = """
def kernel(x, y, *, tl):
    h = tl.load(x, (8, 64))
    a = tl.exp(h)
    tl.wait(tl.store(y, a))
"""
ASC = """
def kernel(x, y, *, asc):
    x_gm, y_gm, q = asc.GlobalTensor(asc.half), asc.GlobalTensor(asc.half), asc.TQue(asc.TPosition.VECIN, 1)
    x_gm.SetGlobalBuffer(x, 64)
    y_gm.SetGlobalBuffer(y, 64)
    pipe, out = asc.TPipe(), asc.TQue(asc.TPosition.VECOUT, 1)
    pipe.InitBuffer(q, 1, 128)
    pipe.InitBuffer(out, 1, 128)
    h = q.AllocTensor(asc.half)
    asc.DataCopy(h, x_gm, 64)
    q.EnQue(h)
    h, a = q.DeQue(), out.AllocTensor(asc.half)
    asc.Exp(a, h, 64)
    q.FreeTensor(h)
    out.EnQue(a)
    a = out.DeQue()
    asc.DataCopy(y_gm, a, 64)
    out.FreeTensor(a)
"""


def kernel_of(source: str) -> Callable[..., None]:
    scope: dict[str, Any] = {}
    exec(compile(source, "kernels.py", "exec"), scope)
    return scope["kernel"]  # type: ignore[no-any-return]


def on_ahbm(source: str = AHBM, value: float = 1.0, **how: Any) -> Run:
    chip = AhbmChip()
    x, y = chip.tensor("x", (8, 64), data=np.full((1, 8, 64), value)), chip.tensor("y", (8, 64))
    return chip.run(kernel_of(source), x, y, check="collect", **how)


def on_310p(source: str = ASC, value: float = 1.0, **how: Any) -> Run:
    core = Ascend310pCore()
    x, y = core.tensor("x", 64, "float16", np.full(64, value)), core.tensor("y", 64, "float16")
    return core.run(kernel_of(source), x, y, check="collect", **how)


DEVICES = pytest.mark.parametrize(("run", "source"), [(on_ahbm, AHBM), (on_310p, ASC)], ids=["ahbm", "310p"])


@DEVICES
def test_the_same_run_is_described_the_same(run: Callable[..., Run], source: str) -> None:
    assert described(run(source)) == described(run(source))
    assert described(run(source, data=False)) == described(run(source, data=False))


@DEVICES
def test_lines_make_no_difference(run: Callable[..., Run], source: str) -> None:
    apart = source.replace("\n    a", "\n\n\n    a")

    assert described(run(apart)) == described(run(source))


@DEVICES
def test_other_bits_ops_order_or_times_do(run: Callable[..., Run], source: str) -> None:
    others = [run(source, value=2.0), run(source, data=False), run(source, schedule="jitter", seed=1)]
    if run is on_ahbm:
        others += [run(source.replace("exp", "tanh")), run(source.replace("tl.wait(tl.store(y, a))", "tl.store(y, a)"))]
    else:
        others += [run(source.replace("Exp", "Abs")), run(source.replace("    q.FreeTensor(h)\n", ""))]

    texts = [tuple(described(each)) for each in (run(source), *others)]
    assert len(set(texts)) == len(texts)


def test_what_a_foreign_device_returns_is_described_by_its_text() -> None:
    assert described({"cycles": 3}) == [b"{'cycles': 3}"]
