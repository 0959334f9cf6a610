"""One program of the 310P against its order: findings, deadlocks, one result under every schedule, the log's text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.effects import PRIORITIES
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.errors import DeadlockError
from pytest_kernbench.simulator.ops.entries import Reading
from pytest_kernbench.simulator.ops.text import parse, structure, timing

from .asc_order import Finding, Machine, Races, between_blocks
from .asc_programs import ELEMENTS, Program

VALUES = np.random.default_rng(3).standard_normal(3 * ELEMENTS).astype(np.float32)
JITTERS = 3


def play(program: Program, *, show: bool, schedule: str = "model", seed: int = 0, auto_sync: bool = False) -> Any:
    """A run, or None if it deadlocks. `show`: with data."""
    names: dict[str, Any] = {}
    exec(compile(program.source(show=show), "program.py", "exec"), names)
    core = Ascend310pCore(Ascend310pSpec(queue_depth=program.depth, auto_sync=auto_sync))
    size = len(VALUES)
    x, y = core.tensor("x", size, "float32", VALUES), core.tensor("y", size, "float32")
    options: dict[str, Any] = {"schedule": schedule, "seed": seed, "data": show, "grid": program.blocks}
    try:
        return core.run(names["kernel"], x, y, check="collect", numerics=False, **options)
    except DeadlockError:
        return None


def races_of(run: Any, *, blocks: bool = False) -> Counter[Finding]:
    """Races within a block, which several blocks have in common, or those between blocks."""
    found: Counter[Finding] = Counter()
    for each in run.hazards:
        if each.kind.startswith("race") and (each.ops[0].kernel != each.ops[1].kernel) == blocks:
            found[each.kind, each.ops[0].site.line, each.ops[1].site.line] += each.count
    return found


def findings_of(run: Any) -> list[tuple[Any, ...]]:
    return sorted((each.kind, each.count, *(op.site.line for op in each.ops)) for each in run.hazards)


def check(program: Program, orders: int = len(PRIORITIES)) -> str:
    """Assert all that a program of the 310P shall hold; what it was: "stuck", "racy" or "clean".

    `orders`: of `late`, how many of its orders of pipes are tried on a clean program.
    """
    machine = Machine(program)
    run = play(program, show=False)
    assert (run is None) == machine.stuck, "a deadlock is reported if and only if the program never ends"
    if run is None:
        return "stuck"
    races, found = Races(machine), races_of(run)
    assert {(first, second) for _, first, second in found} <= races.every, "what is found races by definition"
    assert bool(found) == bool(races.every), "a program with a race has a finding"
    assert found == races.standing, "every pair for which no other stands is found, as often as it happens"
    others = between_blocks(machine, program.blocks, program.shift)
    assert set(races_of(run, blocks=True)) == others, "lines of two blocks that share a byte"
    left_by_a_compiler(program, found)
    assert parse(structure(run.log)) == Reading(run.log).entries(), "the log's text says what the log says"
    assert timing(run.log)
    if max(machine.outstanding.values(), default=0) < 2:
        racy = bool(races.every or others)
        same_everywhere(program, () if racy else ("x", "y"), 3 if racy else orders)
    return "racy" if found or others else "clean"


def left_by_a_compiler(program: Program, found: Counter[Finding]) -> None:
    """What auto-sync leaves are races that were there before, none of V with itself and none of S.

    A flag that it adds may hang: S waits for a pipe that is behind a Wait whose Set S has still to say.
    """
    run = play(program, show=False, auto_sync=True)
    if run is None:
        return
    assert {each[1:] for each in races_of(run)} <= {each[1:] for each in found}
    for each in run.hazards:
        if each.kind.startswith("race") and each.ops[0].kernel == each.ops[1].kernel:
            pipes = {op.unit for op in each.ops}
            assert pipes != {"V"} and "S" not in pipes


def same_everywhere(program: Program, tensors: tuple[str, ...], orders: int) -> None:
    """Under every schedule the findings are the same, and so are the bits of `tensors`."""
    usual = play(program, show=True)
    late = range(0, len(PRIORITIES), len(PRIORITIES) // orders)
    for schedule, seed in [*(("jitter", seed) for seed in range(JITTERS)), *(("late", seed) for seed in late)]:
        run = play(program, show=True, schedule=schedule, seed=seed)
        assert findings_of(run) == findings_of(usual), (schedule, seed)
        for tensor in tensors:
            assert run.array(tensor).tobytes() == usual.array(tensor).tobytes(), (schedule, seed, tensor)
