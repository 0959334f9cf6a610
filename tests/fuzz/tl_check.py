"""One program of the AHBM against its order: findings, one result under every schedule, the log's text and times."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_kernbench.simulator import Timing, retime
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ops.entries import Reading
from pytest_kernbench.simulator.ops.text import parse, structure, timing

from .tl_order import Finding, Races, Story
from .tl_programs import ROWS, Program

VALUES = np.random.default_rng(6).standard_normal((ROWS, 4)).astype(np.float32)
SCHEDULES = [*(("jitter", seed) for seed in range(3)), ("late", 0)]
ORDER = ("race-raw", "race-war", "race-waw", "recycle-in-flight")


def play(program: Program, *, data: bool, schedule: str = "model", seed: int = 0) -> Any:
    names: dict[str, Any] = {}
    exec(compile(program.source(), "program.py", "exec"), names)
    chip = AhbmChip(AhbmSpec(ipcq_slots=program.slots))
    t = chip.tensor("t", (ROWS, 4), "float32", VALUES, place=0)
    o = chip.tensor("o", (3, 4, 4), "float32")
    options: dict[str, Any] = {"schedule": schedule, "seed": seed, "data": data}
    return chip.run(names["kernel"], t, o, grid=program.pes, check="collect", numerics=False, **options)


def races_of(run: Any) -> set[Finding]:
    lines = [(each.kind, [op.site.line for op in each.ops]) for each in run.hazards if each.kind in ORDER]
    return {(kind, at[0], at[1] if len(at) > 1 else 0) for kind, at in lines}


def across(finding: Finding) -> tuple[str, frozenset[int]]:
    """Without which of two kernels' ops came first, which is the schedule's."""
    kind, first, second = finding
    return "race" if kind in ("race-raw", "race-war") else kind, frozenset((first, second))


def check(program: Program) -> str:
    """Assert all that a program of the AHBM shall hold; what it was: "racy" or "clean"."""
    races, run = Races(Story(program)), play(program, data=False)
    found = races_of(run)
    if program.pes == 1:
        assert found == races.latest, "the pairs with the last accesses to a byte, and no others"
    assert set(map(across, found)) <= set(map(across, races.every)), "what is found races by definition"
    assert bool(found) == bool(races.every), "a program with a race has a finding"
    lines = {frozenset(each[1:]) for each in found}
    for touching in races.by_byte:
        assert any(frozenset(pair) in lines for pair in touching), "a byte with a race has a finding"
    assert parse(structure(run.log)) == Reading(run.log).entries(), "the log's text says what the log says"
    assert timing(run.log)
    assert retime(run.log, Timing(run.spec)).changed.size == 0, "the log's dependencies give its times"
    same_everywhere(program, clean=not races.every)
    return "racy" if found else "clean"


def same_everywhere(program: Program, *, clean: bool) -> None:
    """A clean program is clean and has one result under every schedule; one with races has races under every one."""
    usual = play(program, data=True)
    for schedule, seed in SCHEDULES:
        run = play(program, data=True, schedule=schedule, seed=seed)
        assert bool(races_of(run)) == bool(races_of(usual)), (schedule, seed)
        if program.pes == 1:
            assert races_of(run) == races_of(usual), (schedule, seed)
        for tensor in ("t", "o") if clean else ():
            assert run.array(tensor).tobytes() == usual.array(tensor).tobytes(), (schedule, seed, tensor)
