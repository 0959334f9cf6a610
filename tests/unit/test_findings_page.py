"""docs/findings.md has an entry for every kind the simulator can report, and each entry's kernel shows its finding."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pytest_kernbench import simulator
from pytest_kernbench.hazards import KINDS
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import DeadlockError, HazardError, KernelError

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([a-z-]+)$(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
ENTRIES = [
    (kind, code) for kind, text in SECTIONS.items() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
NOTES = ("redundant-flag",)


def local(asc, n):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * n)
    return buf.Get(asc.float32)


def gm(asc, x):
    tensor = asc.GlobalTensor(asc.float32)
    tensor.SetGlobalBuffer(x)
    return tensor


def kernel_of(code):
    names = {"local": local, "gm": gm}
    exec(compile(code, "findings.md", "exec"), names)
    (kernel,) = (value for name, value in names.items() if name not in ("local", "gm") and not name.startswith("__"))
    return kernel


def named(entries):
    return [pytest.param(kind, code, id=f"{kind}-{re.search('def ([a-z_]+)', code)[1]}") for kind, code in entries]


@pytest.mark.parametrize(("kind", "code"), named(each for each in ENTRIES if "*, tl)" in each[1]))
def test_the_smallest_kernel_shows_its_finding(kind, code, run_kernel):
    chip = AhbmChip(AhbmSpec(dma_align_bytes=32 if kind == "misaligned" else 2))
    valid = 5 if kind == "past-logical-length" else None
    x = chip.tensor("x", (8, 64), "float32", np.ones((8, 64)), place="replicate", valid=valid)
    y = chip.tensor("y", (8, 64), "float32")

    with pytest.raises((HazardError, KernelError, DeadlockError), match=rf"(?m)^{kind}: ") as caught:
        run_kernel(kernel_of(code), x, y, on=chip, grid=2, max_ops=1000)

    assert re.search(r"findings\.md:\d+|PE\d E> PE\d", str(caught.value))


@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
@pytest.mark.parametrize(("kind", "code"), named(each for each in ENTRIES if "*, asc)" in each[1]))
def test_the_smallest_kernel_of_the_310p_shows_its_finding_once(kind, code, schedule, run_kernel):
    core = Ascend310pCore(Ascend310pSpec(scalar_cache="private" if kind == "stale-cache" else "coherent"))
    valid = 5 if kind == "past-logical-length" else None
    x = core.tensor("x", (8, 64), "float32", np.ones((8, 64)), valid=valid)
    y = core.tensor("y", (8, 64), "float32")
    how = {"on": core, "max_ops": 1000, "schedule": schedule}

    if kind in NOTES:
        found = run_kernel(kernel_of(code), x, y, **how).notes
    else:
        with pytest.raises((HazardError, KernelError, DeadlockError)) as caught:
            run_kernel(kernel_of(code), x, y, **how)
        found = caught.value.hazards

    assert [hazard.kind for hazard in found] == [kind], found
    assert re.search(r"findings\.md:\d+", str(found[0]))


def test_every_kind_that_the_simulator_can_report_is_explained():
    sources = [path.read_text(encoding="utf-8") for path in Path(simulator.__file__).parent.rglob("*.py")]
    reported = {kind for kind in KINDS if any(f'"{kind}"' in source for source in sources)}

    assert len(sources) > 20
    assert reported == set(SECTIONS)
