"""The calls of a kernel on the 310P, found from the language itself, with arguments that are right."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from pytest_kernbench.simulator import Ascend310pCore
from pytest_kernbench.simulator.ascend310p import language_queue, language_sync, tensors
from pytest_kernbench.simulator.ascend310p.language import Asc

from .calls import Call, parameters_of, said

SAME = ("And", "Or", "Not")  # of int16_t
TYPE = {"And": "int16_t", "Or": "int16_t", "Not": "int16_t"}
REPEATED = ("repeatTime", "repeatParams", "dstBlockStride", "dstRepeatStride", "srcRepStride")


class Bench:
    """A kernel's first lines: a pipe, a queue, buffers and a view of x; `good` finds arguments by their names."""

    def __init__(self, asc: Any, x: Any) -> None:
        self.asc, self.x = asc, x
        self.pipe, self.buf, self.que = asc.TPipe(), asc.TBuf(), asc.TQue(asc.TPosition.VECIN, 1)
        self.pipe.InitBuffer(self.buf, 16384)
        self.pipe.InitBuffer(self.que, 1, 512)
        self.gm = asc.GlobalTensor(asc.float32)
        self.gm.SetGlobalBuffer(x)

    def local(self, number: int, kind: str = "float32") -> Any:
        return self.buf.GetWithOffset(getattr(self.asc, kind), 64, 1024 * number)

    def good(self, call: str, parameters: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name, value in self.known(call).items() if name in parameters}

    def known(self, call: str) -> dict[str, Any]:
        """What fits each parameter's name, for this call."""
        asc, kind = self.asc, TYPE.get(call, "float32")
        whole = call.startswith(("WholeReduce", "BlockReduce"))
        found = {
            "dst": self.local(0, kind), "src": self.local(1, kind), "src0": self.local(1, kind),
            "src1": self.local(2, kind),
            "mask": 64, "scalarValue": 2.0, "src1Scalar": 2.0, "roundMode": asc.RoundMode.CAST_NONE,
            "selMask": self.local(3, "uint8_t"),
            "cmpMode": asc.CMPMODE.LT, "selMode": asc.SELMODE.VSEL_TENSOR_TENSOR_MODE, "sharedTmpBuffer": self.local(3),
            "scale": 1.0, "type": asc.float32, "position": asc.TPosition.VECCALC, "depth": 1, "count": 64,
            "pipe": asc.PIPE_ALL,
            "event": asc.HardEvent.S_V, "id": 0, "source": asc.PIPE_S, "target": asc.PIPE_V, "tensor": self.gm,
            "offset": 0, "index": 0, "value": 1.0, "buffer": self.x, "size": 64, "bufOffset": 0, "len": 64,
        }  # fmt: skip
        if whole:
            found.update(repeatTime=1, dstRepStride=1, srcBlkStride=1, srcRepStride=8)
        if call in ("Compare", "CompareScalar", "Compares"):
            found["dst"] = self.local(0, "uint8_t")
        if call in ("Axpy", "MulAddDst", "Cast"):
            found.update(src=self.local(1, "half"), src0=self.local(1, "half"), src1=self.local(2, "half"))
        if call == "DataCopy":
            found["src"] = self.gm
        if call == "KERNEL_TASK_TYPE_DEFAULT":
            found["type"] = asc.KERNEL_TYPE_AIV_ONLY
        if call in ("TQue", "TQueBind"):
            found.update(position=asc.TPosition.VECIN, src=asc.TPosition.VECIN, dst=asc.TPosition.VECOUT)
        return found


def launch(body: Any) -> None:
    def kernel(x: Any, *, asc: Any) -> None:
        body(asc, x)

    core = Ascend310pCore()
    x = core.tensor("x", (4096,), "float32", np.ones(4096, np.float32))
    core.run(kernel, x, check="collect", max_ops=1000)


def spoken(owner: type) -> list[str]:
    """The language's own names are those with a capital."""
    return [name for name in dir(owner) if name[0].isupper() and inspect.isfunction(getattr(owner, name))]


def asc_calls() -> list[Call]:
    """Every call of `asc`, then of its objects; repeats are tried beside counts."""
    return [*[asc_call(name, form) for name in spoken(Asc) for form in forms(name)], *object_calls(), *values()]


def forms(name: str) -> tuple[str, ...]:
    return ("", " of repeats") if "repeatTime" in parameters_of(getattr(Asc, name)) else ("",)


def asc_call(name: str, form: str) -> Call:
    parameters = parameters_of(getattr(Asc, name))

    def say(parameter: str, value: Any) -> None:
        def body(asc: Any, x: Any) -> None:
            good = Bench(asc, x).good(name, parameters)
            if form:
                good["repeatTime"] = 1
            if name == "WaitFlag":
                asc.SetFlag(asc.HardEvent.S_V, 0)
            if name == "ReleaseEventID":
                good["id"] = asc.AllocEventID(asc.HardEvent.S_V)
            said(getattr(asc, name), good, parameter, value)

        launch(body)

    return Call(f"asc.{name}{form}", parameters, say)


OBJECTS: dict[type, Any] = {
    tensors.GlobalTensor: lambda bench: bench.gm,
    tensors.LocalTensor: lambda bench: bench.local(0),
    language_queue.TQue: lambda bench: bench.que,
    language_queue.TBuf: lambda bench: bench.buf,
    language_sync.Sync: lambda bench: bench.asc.TQueSync(bench.asc.PIPE_S, bench.asc.PIPE_V),
}


def object_calls() -> list[Call]:
    return [object_call(owner, name) for owner in OBJECTS for name in spoken(owner)]


def object_call(owner: type, name: str) -> Call:
    parameters = parameters_of(getattr(owner, name))

    def say(parameter: str, value: Any) -> None:
        def body(asc: Any, x: Any) -> None:
            bench = Bench(asc, x)
            what = OBJECTS[owner](bench)
            good = bench.good(name, parameters)
            if name in ("EnQue", "FreeTensor"):
                good["tensor"] = bench.que.AllocTensor(asc.float32)
            if name == "DeQue":
                bench.que.EnQue(bench.que.AllocTensor(asc.float32))
            if name == "WaitFlag":
                what.SetFlag(0)
            said(getattr(what, name), good, parameter, value)

        launch(body)

    return Call(f"{owner.__name__}.{name}", parameters, say)


VALUED: dict[str, Any] = {
    "TPipe.InitBuffer what": lambda b, v: b.pipe.InitBuffer(v, 512),
    "TPipe.InitBuffer size": lambda b, v: b.pipe.InitBuffer(b.asc.TBuf(), v),
    "TPipe.InitBuffer count": lambda b, v: b.pipe.InitBuffer(b.asc.TQue(b.asc.TPosition.VECIN, 1), v, 64),
    "local[n]": lambda b, v: b.local(0)[v],
    "global[n]": lambda b, v: b.gm[v],
    "pointer + n": lambda b, v: b.x + v,
    "n + pointer": lambda b, v: v + b.x,
    "mask word": lambda b, v: b.asc.Duplicate(b.local(0), 1.0, [v, 0], 1),
    **{f"DataCopyParams {name}": (lambda b, v, at=at: b.asc.DataCopy(b.local(0), b.gm, b.asc.DataCopyParams(
        *[v if at == each else good for each, good in enumerate((1, 8, 0, 0))])))
       for at, name in enumerate(("blockCount", "blockLen", "srcGap", "dstGap"))},
    **{f"UnaryRepeatParams {at}": (lambda b, v, at=at: b.asc.Exp(b.local(0), b.local(1), 64, 1, b.asc.UnaryRepeatParams(
        *[v if at == each else good for each, good in enumerate((1, 1, 8, 8))]))) for at in range(4)},
    **{f"BinaryRepeatParams {at}": (lambda b, v, at=at: b.asc.Add(
        b.local(0), b.local(1), b.local(2), 64, 1, b.asc.BinaryRepeatParams(
            *[v if at == each else good for each, good in enumerate((1, 1, 1, 8, 8, 8))]))) for at in range(6)},
}  # fmt: skip


def values() -> list[Call]:
    """What is said without a call's parameter: sizes, indices, fields of parameters."""
    return [valued(name, say) for name, say in VALUED.items()]


def valued(name: str, say: Any) -> Call:
    def one(parameter: str, value: Any) -> None:
        if parameter:
            launch(lambda asc, x: say(Bench(asc, x), value))

    return Call(name, ("value",), one)
