"""Our devices keep the contract of `pytest_kernbench.contract`, on a kernel each and on random programs.

A device joins with one line in `DEVICES`.
"""

from typing import Any

import numpy as np
import pytest

from pytest_kernbench.contract import Device, DeviceContract
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
from pytest_kernbench.simulator.ops.semantics import vector
from pytest_kernbench.simulator.ops.semantics.elementwise import ELEMENTWISE, REDUCTIONS

GROUP, D, CAPACITY, RANKS, LENGTH = 8, 64, 64, 4, 150
GUARD = 4096  # bytes of a tensor that no kernel touches


def decode(spec: Any = None, /, **given: Any) -> tuple[Run, Any]:
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


def wander(walk: int, spec: Any = None, /, **given: Any) -> tuple[Run, Any]:
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


def norm(spec: Any = None, /, **given: Any) -> tuple[Run, Any]:
    """RMSNorm on two blocks; returns the run and a tensor that nobody touches."""
    core, rng = Ascend310pCore(Ascend310pSpec(**(spec or {}))), np.random.default_rng(0)
    x, weight = rng.standard_normal((6, 208)), rng.standard_normal(208)
    tensors = core.tensor("x", x.shape, "float16", x), core.tensor("weight", weight.shape, "float16", weight)
    y, guard = core.tensor("y", x.shape, "float16"), core.tensor("guard", GUARD, "uint8")
    return core.run(rms_norm, *tensors, y, 6, 208, grid=2, **given), guard


def stroll(walk: int, spec: Any = None, /, **given: Any) -> tuple[Run, Any]:
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
        "hbm_bytes_per_cycle", least_names=16, has_composites=True,
    ),
    "ascend310p": Device(
        norm, stroll, fill_ub, ("S", "V", "MTE2", "MTE3"), lambda guard: guard.bytes, known_to_310p,
        "gm_bytes_per_cycle", least_names=16, ends_in_order=False,
        occupies=lambda row: not row.name.startswith(SYNCS),
    ),
}  # fmt: skip


class TestDevices(DeviceContract):
    @pytest.fixture(params=DEVICES.values(), ids=DEVICES)
    def device(self, request: pytest.FixtureRequest) -> Device:
        found: Device = request.param
        return found


def test_issue_costs_of_zero_change_times_and_nothing_else() -> None:
    """ADR-0064 clause 4."""
    costly, free = decode(data=False)[0], decode({"issue_costs": 0}, data=False)[0]
    assert free.cycles < costly.cycles

    def said(run: Run) -> list[tuple[Any, ...]]:
        return [(row.name, row.unit, row.program, row.shape, row.operands, row.bytes, row.work) for row in run.log]

    by_program = [[row for row in said(run) if row[2] == program] for run in (costly, free) for program in range(RANKS)]
    assert by_program[:RANKS] == by_program[RANKS:]
