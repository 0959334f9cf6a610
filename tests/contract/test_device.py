"""What every device keeps, on its decode kernel and on random programs: logs, units, memory, determinism.

A device joins with one line in `DEVICES`.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench import simulator
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
from pytest_kernbench.kernels.ascend310p.rms_norm import rms_norm
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.timing import KIND_OF, Timing
from pytest_kernbench.simulator.ascend310p.device import Ascend310pCore
from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.timing import Ascend310pTiming
from pytest_kernbench.simulator.device import Run
from pytest_kernbench.simulator.errors import KernelError
from pytest_kernbench.simulator.ops.log import OpLog, Row
from pytest_kernbench.simulator.ops.semantics import vector
from pytest_kernbench.simulator.ops.semantics.elementwise import ELEMENTWISE, REDUCTIONS

GROUP, D, CAPACITY, RANKS, LENGTH = 8, 64, 64, 4, 150
SIMULATOR = Path(simulator.__file__).parent
GUARD = 4096  # bytes of a tensor that no kernel touches


@dataclass(frozen=True)
class Device:
    """How the contract's programs run on a device."""

    decode: Callable[..., tuple[Run, Any]]
    wander: Callable[..., tuple[Run, Any]]
    fill_a_space: Callable[[], None]
    pipes: tuple[str, ...]  # units that take one op at a time
    untouched: Callable[[Any], Any]  # the bytes that no kernel touched
    name_is_known: Callable[[str], bool]  # it has a cost and a meaning
    bandwidth: str  # the spec field of it
    ends_in_order: bool = True  # on a pipe
    has_composites: bool = True
    occupies: Callable[[Row], bool] = lambda row: True  # rows that take their pipe's time


def decode(spec: Any = None, **given: Any) -> tuple[Run, Any]:
    """GQA decode over four PEs with a ragged last tile; returns the run and a tensor that nobody touches."""
    rng, chip = np.random.default_rng(0), AhbmChip(AhbmSpec(**(spec or {})))
    kv = rng.standard_normal((2, RANKS, CAPACITY, D)).astype(np.float32)
    q = chip.tensor("Q", (GROUP, D), "bfloat16", rng.standard_normal((GROUP, D)), "replicate", axes=("row", "d"))
    k, v = (
        chip.tensor(name, (CAPACITY, D), "bfloat16", data, axes=("token", "d"))
        for name, data in zip("KV", kv, strict=True)
    )
    o = chip.tensor("O", (GROUP, D), "bfloat16", place=RANKS - 1)
    guard = chip.tensor("guard", (GUARD,), "uint8", place=0)
    run = chip.run(
        gqa_decode, q, k, v, o, LENGTH, 0, RANKS, group=GROUP, tile=32, scale=D**-0.5, grid=RANKS,
        placement=placement(RANKS, (2, 4)), **given,
    )  # fmt: skip
    return run, (chip, o, guard)


def wander(walk: int, spec: Any = None, **given: Any) -> tuple[Run, Any]:
    """A random walk through every kind of op; races between its programs are not its concern."""
    chip = AhbmChip(AhbmSpec(**(spec or {})))
    x = chip.tensor("x", (64, 64), "float32", np.random.default_rng(walk).standard_normal((64, 64)), "replicate")
    o = chip.tensor("o", (64, 64), "float32", place=0)
    guard = chip.tensor("guard", (GUARD,), "uint8", place=0)

    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        rng = np.random.default_rng([walk, tl.program_id(0)])
        towards = "W" if tl.program_id(0) else "E"
        acc = tl.zeros((64, 64))
        for _ in range(12):
            with tl.scratch_scope():
                step(int(rng.integers(8)), x, o, acc, tl)
            if rng.integers(2):
                tl.wait(acc)
        sent = tl.send(towards, tl.sum(acc))
        tl.add(acc, tl.recv(towards, (64, 1)), out=acc)
        tl.wait(sent, acc)

    run = chip.run(kernel, x, o, grid=2, check="collect", **given)
    return run, (chip, o, guard)


def step(choice: int, x: Any, o: Any, acc: Any, tl: Any) -> None:
    h = tl.wait(tl.load(x, (64, 64)))
    said = [
        lambda: tl.exp(h, out=acc),
        lambda: tl.add(h, acc, out=acc),
        lambda: tl.store(o, h),
        lambda: tl.composite("gemm", h, tl.ref(x, (64, 64)), trans_b=True, epilogue=(("scale", 0.1), ("relu",))),
        lambda: tl.composite("gemm", h, tl.ref(x, (64, 64)), trans_b=False, out=o),
        lambda: tl.dot(h, tl.trans(h), trans_b=False),
        lambda: tl.softmax(tl.cast(h, "bfloat16")),
        lambda: tl.where(h > 0, tl.broadcast(tl.max(h), (64, 64)), 1.0),
    ][choice]()
    tl.wait(said)


def fill_a_space() -> None:
    chip = AhbmChip(AhbmSpec(scratch_bytes=1000))

    def kernel(x: Any, *, tl: Any) -> None:
        tl.zeros((200,))
        tl.zeros((200,))

    chip.run(kernel, chip.tensor("x", (4,)))


SCHEDULED = {"panel", "gemm", "epilogue", "composite", "dot"}  # the scheduler's and GEMM's
MOVES = {"load", "store", "writeback", "send", "recv", "recv_async", "credit", "wait", "drain"}
FILLS = {"zeros", "full"}


def known_to_ahbm(name: str) -> bool:
    known = set(AhbmSpec().issue_costs)
    if name not in {"panel", "gemm", "epilogue", "drain"}:
        assert KIND_OF.get(name, "math") in known | {None}
        assert Timing(AhbmSpec()).issue_cycles(name) >= 0
    return name in set(ELEMENTWISE) | set(REDUCTIONS) | SCHEDULED | MOVES | FILLS


def untouched_by_ahbm(left: Any) -> Any:
    chip, _, guard = left
    return chip.space((0, 0), "").bytes(guard.offset + GUARD)[guard.offset : guard.offset + GUARD]


# The 310P


def norm(spec: Any = None, **given: Any) -> tuple[Run, Any]:
    """RMSNorm on two blocks; returns the run and a tensor that nobody touches."""
    core, rng = Ascend310pCore(Ascend310pSpec(**(spec or {}))), np.random.default_rng(0)
    x, weight = rng.standard_normal((6, 208)), rng.standard_normal(208)
    tensors = core.tensor("x", x.shape, "float16", x), core.tensor("weight", weight.shape, "float16", weight)
    y, guard = core.tensor("y", x.shape, "float16"), core.tensor("guard", GUARD, "uint8")
    return core.run(rms_norm, *tensors, y, 6, 208, grid=2, **given), guard


def stroll(walk: int, spec: Any = None, **given: Any) -> tuple[Run, Any]:
    """A random walk through every kind of call; races are not its concern."""
    core = Ascend310pCore(Ascend310pSpec(**(spec or {})))
    x = core.tensor("x", 4096, "float32", np.random.default_rng(walk).standard_normal(4096))
    y, guard = core.tensor("y", 4096, "float32"), core.tensor("guard", GUARD, "uint8")

    def kernel(x: Any, y: Any, *, asc: Any) -> None:
        rng = np.random.default_rng([walk, asc.GetBlockIdx()])
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 16384)
        t, source, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32), asc.GlobalTensor(asc.float32)
        source.SetGlobalBuffer(x)
        target.SetGlobalBuffer(y)
        for _ in range(30):
            leap(int(rng.integers(12)), t, source, target, asc)
            event = asc.HardEvent[str(rng.choice(["MTE2_V", "V_MTE3", "S_V", "V_S", "MTE3_MTE2"]))]
            asc.SetFlag(event, 0)
            asc.WaitFlag(event, 0)

    return core.run(kernel, x, y, grid=2, check="collect", **given), guard


def leap(choice: int, t: Any, source: Any, target: Any, asc: Any) -> None:
    h, i = t[1024].ReinterpretCast(asc.half), t[512].ReinterpretCast(asc.int32_t)
    said = [
        lambda: asc.DataCopy(t, source, 512),
        lambda: asc.DataCopy(target, t, asc.DataCopyParams(4, 8, 1, 1)),
        lambda: asc.Add(t[64], t, t[128], 64),
        lambda: asc.Axpy(t[64], t, 0.5, 200),
        lambda: asc.WholeReduceSum(t[256], t, 64, 3, 1, 1, 8),
        lambda: asc.Cast(h, t, asc.RoundMode.CAST_NONE, 128),
        lambda: asc.Cast(i, t, asc.RoundMode.CAST_RINT, 64),
        lambda: asc.Exp(t, t, 37, 2),
        lambda: asc.Duplicate(t, 1.0, 4096),
        lambda: t.SetValue(5, 1.0),
        lambda: (t.GetValue(6), source.GetValue(7), target.SetValue(8, 2.0)),
        lambda: asc.PipeBarrier(asc.PIPE_ALL),
    ][choice]
    said()


def fill_ub() -> None:
    def kernel(*, asc: Any) -> None:
        asc.TPipe().InitBuffer(asc.TBuf(), 2000)

    Ascend310pCore(Ascend310pSpec(ub_usable=1024)).run(kernel)


SYNCS = ("SetFlag", "WaitFlag", "PipeBarrier")
MOVED = {"DataCopy", "GetValue", "SetValue"}


def known_to_310p(name: str) -> bool:
    if name in MOVED or name.startswith(SYNCS):
        return True
    timing = Ascend310pTiming(Ascend310pSpec())
    assert sum(timing.reduction(4, 1) if name == "ReduceSum" else timing.vector(name, 4, 1)) > 0
    others = {"Duplicate", "Cast", "WholeReduceSum", "ReduceSum"}
    return name in {*vector.BINARY, *vector.SCALAR, *vector.UNARY, *others}


DEVICES = {
    "ahbm": Device(
        decode, wander, fill_a_space, ("DMA_R", "DMA_W", "GEMM", "MATH", "IPCQ"), untouched_by_ahbm, known_to_ahbm,
        "hbm_bytes_per_cycle",
    ),
    "ascend310p": Device(
        norm, stroll, fill_ub, ("S", "V", "MTE2", "MTE3"), lambda guard: guard.bytes, known_to_310p,
        "gm_bytes_per_cycle", ends_in_order=False, has_composites=False,
        occupies=lambda row: not row.name.startswith(SYNCS),
    ),
}  # fmt: skip
WALKS = range(4)


@pytest.fixture(params=DEVICES.values(), ids=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    found: Device = request.param
    return found


@cache
def programs(device: Device) -> tuple[Run, ...]:
    """One run of each program, computed once."""
    return (device.decode()[0], *(device.wander(walk)[0] for walk in WALKS))


def pipes(device: Device, log: OpLog) -> Iterator[list[Row]]:
    """The rows of each pipe in the order of their starts. Rows that stand for others (a composite) are no pipe's."""
    rows: dict[tuple[int, str], list[Row]] = {}
    for row in log:
        if row.unit.startswith(device.pipes) and device.occupies(row):
            rows.setdefault((row.program, row.unit), []).append(row)
    return (sorted(each, key=lambda row: (row.start, row.free)) for each in rows.values())


# Log


def test_the_programs_use_every_unit(device: Device) -> None:
    """A contract that is tried on nothing holds."""
    seen = {row.unit.split(".")[0] for run in programs(device) for row in run.log}
    assert seen >= set(device.pipes)


def test_moments_are_in_order_and_none_is_left_open(device: Device) -> None:
    for run in programs(device):
        table = run.log.all
        assert table.issue.min() >= 0
        assert (table.issue <= table.start).all()
        assert (table.start <= table.end).all()
        assert table.end.max() == run.cycles


def test_ops_of_a_pipe_never_overlap_and_end_in_order(device: Device) -> None:
    for run in programs(device):
        for rows in pipes(device, run.log):
            assert all(row.start <= row.free <= row.end for row in rows)
            assert all(before.free <= after.start for before, after in pairwise(rows))
            if device.ends_in_order:
                assert all(before.end <= after.end for before, after in pairwise(rows))


def test_rows_of_a_program_are_in_the_order_said(device: Device) -> None:
    for run in programs(device):
        for program in {row.program for row in run.log}:
            own = [row for row in run.log if row.program == program and row.parent < 0]
            assert [row.issue for row in own] == sorted(row.issue for row in own)


def test_what_a_row_waited_for_ended_before_it_went_on(device: Device) -> None:
    for run in programs(device):
        waits = [row for row in run.log if row.after >= 0]
        assert waits
        assert all(run.log[row.after].end <= row.end for row in waits)


def test_every_row_has_a_line_of_the_kernels(device: Device) -> None:
    for run in programs(device):
        assert not [row for row in run.log if Path(row.site.file).is_relative_to(SIMULATOR)]
        assert all(row.site.line > 0 for row in run.log)


def test_children_lie_inside_their_parent(device: Device) -> None:
    children = [(run.log[row.parent], row) for run in programs(device) for row in run.log if row.parent >= 0]
    assert bool(children) is device.has_composites
    for parent, row in children:
        assert parent.start <= row.start
        assert row.name == "writeback" or row.end <= parent.end


# Names: an op has a cost and a meaning


def test_every_op_name_in_a_log_has_a_cost_and_a_meaning(device: Device) -> None:
    names = {row.name for run in programs(device) for row in run.log}
    assert len(names) > 15
    assert [name for name in names if not device.name_is_known(name)] == []


# Determinism


def digest(run: Run) -> str:
    return hashlib.sha256(run.log.cells.tobytes() + run.log.operand_cells.tobytes()).hexdigest()


@pytest.mark.parametrize("schedule", ["model", "jitter", "late"])
def test_two_runs_are_one_log(device: Device, schedule: str) -> None:
    assert len({digest(device.decode(schedule=schedule, seed=3)[0]) for _ in range(2)}) == 1
    assert len({digest(device.wander(1, schedule=schedule, seed=3)[0]) for _ in range(2)}) == 1


def test_checks_change_nothing(device: Device) -> None:
    assert digest(device.decode(check=False)[0]) == digest(device.decode(check=True)[0])


def test_a_run_without_data_has_the_log_of_the_run_with_data(device: Device) -> None:
    assert digest(device.decode(data=False)[0]) == digest(programs(device)[0])
    for walk, run in zip(WALKS, programs(device)[1:], strict=True):
        structure = device.wander(walk, data=False)[0]
        assert digest(structure) == digest(run)
        assert structure.hazards == run.hazards


def test_another_process_with_another_hash_seed_has_the_same_log(device: Device) -> None:
    code = (
        f"import runpy; module = runpy.run_path({__file__!r}); print(module['digest'](module['DEVICES']"
        f"[{next(name for name, each in DEVICES.items() if each is device)!r}].decode()[0]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == digest(programs(device)[0])


# Memory


def test_what_nobody_wrote_is_poison_to_the_end(device: Device) -> None:
    for _, left in (device.decode(), device.wander(0)):
        assert (device.untouched(left) == 255).all()


def test_a_full_space_is_refused(device: Device) -> None:
    with pytest.raises(KernelError, match=r"^capacity"):
        device.fill_a_space()


# Time


@pytest.mark.parametrize("program", ["decode", *WALKS], ids=str)
def test_more_bandwidth_never_makes_a_run_slower(device: Device, program: Any) -> None:
    def cycles(width: int) -> int:
        spec = {device.bandwidth: width}
        run, _ = device.decode(spec, data=False) if program == "decode" else device.wander(program, spec, data=False)
        return run.cycles

    found = [cycles(width) for width in (4, 64, 128, 256, 512)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_issue_costs_of_zero_change_times_and_nothing_else() -> None:
    """ADR-0064 clause 4."""
    costly, free = decode(data=False)[0], decode({"issue_costs": 0}, data=False)[0]
    assert free.cycles < costly.cycles

    def said(run: Run) -> list[tuple[Any, ...]]:
        return [(row.name, row.unit, row.program, row.shape, row.operands, row.bytes, row.work) for row in run.log]

    by_program = [[row for row in said(run) if row[2] == program] for run in (costly, free) for program in range(RANKS)]
    assert by_program[:RANKS] == by_program[RANKS:]
