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
from pytest_kernbench.simulator.errors import DeadlockError, HazardError, KernelError

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^## ([a-z-]+)$.*?```python\n(.*?)```", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("kind", ENTRIES)
def test_the_smallest_kernel_shows_its_finding(kind, run_kernel):
    names = {}
    exec(compile(ENTRIES[kind], "findings.md", "exec"), names)
    (kernel,) = (value for name, value in names.items() if not name.startswith("__"))
    chip = AhbmChip(AhbmSpec(dma_align_bytes=32 if kind == "misaligned" else 2))
    valid = 5 if kind == "past-logical-length" else None
    x = chip.tensor("x", (8, 64), "float32", np.ones((8, 64)), place="replicate", valid=valid)
    y = chip.tensor("y", (8, 64), "float32")

    with pytest.raises((HazardError, KernelError, DeadlockError), match=rf"(?m)^{kind}: ") as caught:
        run_kernel(kernel, x, y, on=chip, grid=2, max_ops=1000)

    assert re.search(r"findings\.md:\d+|PE\d E> PE\d", str(caught.value))


def test_every_kind_that_the_simulator_can_report_is_explained():
    sources = [path.read_text(encoding="utf-8") for path in Path(simulator.__file__).parent.rglob("*.py")]
    reported = {kind for kind in KINDS if any(f'"{kind}"' in source for source in sources)}

    assert len(sources) > 20
    assert reported == set(ENTRIES)
