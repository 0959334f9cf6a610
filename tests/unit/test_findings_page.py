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
OF_THE_CORE = (Path(__file__).parents[2] / "docs" / "ascend310p.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([a-z-]+)$(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
ENTRIES = [
    (kind, code) for kind, text in SECTIONS.items() for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]
NOTES = ("redundant-flag", "ignored-mask", "vector-exception", "redundant-transfer", "dead-transfer")
NUMERICS = {"precision-loss": "precision"}
BARRIER = "    asc.PipeBarrier(asc.PIPE_V)\n"
WRITTEN = "    asc.Duplicate(t, 1.0, 64)\n" + BARRIER

# What mends the page's kernel of that name: (what stands there, what has to).
MENDS = {
    "no_barrier": [("    asc.Adds", BARRIER + "    asc.Adds")],
    "loaded_again_too_early": [("1.0, 64)", "1.0, 64)\n    sync(asc, 'V_MTE2')")],
    "row_tails_meet": [("t, 16)\n", "t, 16)\n    asc.PipeBarrier(asc.PIPE_MTE3)\n")],
    "freed_too_early": [
        ("    queue.FreeTensor(t)\n", ""),
        ("    asc.Duplicate(t, 0.0, 64)", "    asc.Duplicate(t, 0.0, 64)\n    queue.FreeTensor(t)"),
    ],
    "never_written": [("    asc.Adds", WRITTEN + "    asc.Adds")],
    "past_the_tail": [("1.0, 512", "1.0, 5 * 64"), ("t, 512)\n", "t, 5 * 64)\n")],
    "a_row_of_nothing": [('float("-inf")', "-3e38")],
    "beyond_half": [("70000.0", "60000.0")],
    "stuck_at_a_power_of_two": [("16777216.0", "1048576.0")],
    "one_element_again": [("    for at", "    first = tensor.GetValue(0)\n    for at"),
                          ("range(8)", "range(1, 8)"), ("tensor.GetValue(0))", "first)")],
    "fetched_for_nothing": [("    asc.DataCopy(local(asc, 64), ", "    t = local(asc, 64)\n    asc.DataCopy(t, "),
                            ("x), 64)", "x), 64)\n    sync(asc, 'MTE2_V')\n    asc.Adds(t, t, 1.0, 64)")],
    "tile_too_long": [("128", "64")],
    "too_much": [("70_000", "60_000")],
    "no_lanes": [("0.0, 0", "0.0, 64")],
    "odd_row": [("t[1]", "t[8]")],
    "no_such_mode": [
        ("FLOOR", "NONE"), ("local(asc, 64)", "local(asc, 128)"), ("    asc.Cast(t.", WRITTEN + "    asc.Cast(t[64]."),
    ],
    "no_set": [("    asc.WaitFlag", "    asc.SetFlag(asc.HardEvent.MTE2_V, 0)\n    asc.WaitFlag")],
    "again_and_again": [("while True", "for _ in range(9)")],
    "in_place_sum": [("local(asc, 64)", "local(asc, 128)"), ("Sum(t, t", "Sum(t[64], t")],
    "narrow_row": [("13", "16")],
    "borrowed_too_long": [("    asc.Adds", WRITTEN.replace("(t", "(v") + "    asc.Adds")],
    "set_twice": [("    for _ in range(2):\n        asc.Wait", "        asc.Wait")],
    "set_and_left": [("asc.SetFlag(asc.HardEvent.V_MTE3, 0)", "sync(asc, 'V_MTE3')")],
    "id_of_the_queues": [("7", "5")],
    "ninth": [("asc.SetFlag(asc.HardEvent.V_MTE3, 9)", "sync(asc, 'V_MTE3')")],
    "nothing_to_order": [
        ("    asc.SetFlag", "    t = local(asc, 64)\n    asc.DataCopy(t, gm(asc, x), 64)\n    asc.SetFlag"),
        ("WaitFlag(asc.HardEvent.MTE2_V, 0)", "WaitFlag(asc.HardEvent.MTE2_V, 0)\n    asc.Adds(t, t, 1.0, 64)"),
    ],
    "half_of_the_lanes": [("32, 1", "64, 1")],
    "log_of_nothing": [("0.0", "2.0")],
    "none_free": [("queue.AllocTensor(asc.float32)", "queue.FreeTensor(queue.AllocTensor(asc.float32))")],
    "never_freed": [("queue.AllocTensor(asc.float32)", "queue.FreeTensor(queue.AllocTensor(asc.float32))")],
    "another_sum": [("float32, 64, 0", "float32, 256, 0")],
    "not_cleaned": [("    asc.SetFlag", "    asc.DataCacheCleanAndInvalid(gm(asc, y))\n    asc.SetFlag")],
}  # fmt: skip


def local(asc, n):
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4 * n)
    return buf.Get(asc.float32)


def gm(asc, x):
    tensor = asc.GlobalTensor(asc.float32)
    tensor.SetGlobalBuffer(x)
    return tensor


def sync(asc, event):
    asc.SetFlag(asc.HardEvent[event], 0)
    asc.WaitFlag(asc.HardEvent[event], 0)


def kernel_of(code):
    names = {"local": local, "gm": gm, "sync": sync}
    exec(compile(code, "findings.md", "exec"), names)
    return names[name_of(code)]


def name_of(code):
    return re.search("def ([a-z_]+)", code)[1]


OF_310P = [each for each in ENTRIES if "*, asc)" in each[1]]


def named(entries):
    return [pytest.param(kind, code, id=f"{kind}-{name_of(code)}") for kind, code in entries]


@pytest.mark.parametrize(("kind", "code"), named(each for each in ENTRIES if "*, tl)" in each[1]))
def test_the_smallest_kernel_shows_its_finding(kind, code, run_kernel):
    chip = AhbmChip(AhbmSpec(dma_align_bytes=32 if kind == "misaligned" else 2))
    valid = 5 if kind == "past-logical-length" else None
    x = chip.tensor("x", (8, 64), "float32", np.ones((8, 64)), place="replicate", valid=valid)
    y = chip.tensor("y", (8, 64), "float32")

    how = {"on": chip, "grid": 2, "max_ops": 1000, "numerics": NUMERICS.get(kind, True)}
    if kind in NOTES:
        notes = run_kernel(kernel_of(code), x, y, **how).notes
        assert [(note.kind, note.count) for note in notes] == [(kind, 2)]
        assert re.search(r"findings\.md:\d+", str(notes[0]))
        return
    with pytest.raises((HazardError, KernelError, DeadlockError), match=rf"(?m)^{kind}: ") as caught:
        run_kernel(kernel_of(code), x, y, **how)

    assert re.search(r"findings\.md:\d+|PE\d E> PE\d", str(caught.value))


def core_for(kind):
    """A core on which a kernel can show `kind`, and its two tensors."""
    core = Ascend310pCore(Ascend310pSpec(scalar_cache="private" if kind == "stale-cache" else "coherent"))
    valid = 5 if kind == "past-logical-length" else None
    x = core.tensor("x", (8, 64), "float32", np.ones((8, 64)), valid=valid)
    return core, x, core.tensor("y", (8, 64), "float32")


@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
@pytest.mark.parametrize(("kind", "code"), named(OF_310P))
def test_the_smallest_kernel_of_the_310p_shows_its_finding_once(kind, code, schedule, run_kernel):
    core, x, y = core_for(kind)
    how = {"on": core, "max_ops": 1000, "schedule": schedule, "numerics": NUMERICS.get(kind, True)}

    if kind in NOTES:
        found = run_kernel(kernel_of(code), x, y, **how).notes
    else:
        with pytest.raises((HazardError, KernelError, DeadlockError)) as caught:
            run_kernel(kernel_of(code), x, y, **how)
        found = caught.value.hazards

    assert [hazard.kind for hazard in found] == [kind], found
    assert re.search(r"findings\.md:\d+", str(found[0]))


@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
@pytest.mark.parametrize(("kind", "code"), named(OF_310P))
def test_the_mended_kernel_of_the_310p_is_clean(kind, code, schedule, run_kernel):
    for broken, right in MENDS[name_of(code)]:
        assert broken in code
        code = code.replace(broken, right)
    core, x, y = core_for(kind)

    run = run_kernel(kernel_of(code), x, y, on=core, max_ops=1000, schedule=schedule, numerics=NUMERICS.get(kind, True))

    assert [note.kind for note in run.notes if note.kind == kind] == []


CHECKS = re.findall(r"^\| (\d+) [^|]*\| ([^|]*) \| ([^|]*) \| `(\w+\.py)::(\w+)` \|$", OF_THE_CORE, re.MULTILINE)


def test_the_28_checks_of_the_310p_have_kinds_that_are_explained_and_tests_that_exist():
    tests = {path.name: path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py")}

    assert [int(number) for number, *_ in CHECKS] == list(range(1, 29))
    for _, kinds, _, file, test in CHECKS:
        assert set(re.findall("`([^`]+)`", kinds)) <= {kind for kind, _ in OF_310P}
        assert f"\ndef {test}(" in tests[file]


@pytest.mark.parametrize(("kind", "code"), named(each for each in OF_310P if f"`{each[0]}`" in str(CHECKS)))
def test_a_check_is_raised_or_collected_as_its_row_says(kind, code):
    core, x, y = core_for(kind)
    said = " ".join(found for _, kinds, found, *_ in CHECKS if f"`{kind}`" in kinds)

    try:
        run = core.run(kernel_of(code), x, y, check="collect")
    except (KernelError, DeadlockError):
        assert "raised" in said
    else:
        assert "collected" in said
        assert [hazard.kind for hazard in run.hazards] == [kind]


def test_every_kind_that_the_simulator_can_report_is_explained():
    sources = [path.read_text(encoding="utf-8") for path in Path(simulator.__file__).parent.rglob("*.py")]
    reported = {kind for kind in KINDS if any(f'"{kind}"' in source for source in sources)}

    assert len(sources) > 20
    assert reported == set(SECTIONS)
