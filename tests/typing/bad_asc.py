"""Mistakes in a 310P kernel, each with what mypy has to say of it."""

import numpy as np

from pytest_kernbench.simulator.ascend310p.asc import Asc, GlobalTensor, LocalTensor, TBuf, TPipe, TQue

Half = np.float16
Float = np.float32


def kernel(
    gm: GlobalTensor[Half], a: LocalTensor[Half], b: LocalTensor[Half], f: LocalTensor[Float], *, asc: Asc
) -> None:
    asc.Addd(a, a, b, 128)  # E: "Asc" has no attribute "Addd"
    asc.DataCopyPad(a, gm, 128)  # E: "Asc" has no attribute "DataCopyPad"
    asc.Add(a, b, 128)  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Add(a, a, b)  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Add(a, a, f, 128)  # E: of "TwoSources"
    asc.Add(gm, a, b, 128)  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Add(a, a, b, (1, 1))  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Add(a, a, b, 128, 1, asc.UnaryRepeatParams())  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Add(a, a, b, 128, repeatTimes=1)  # E: No overload variant of "__call__" of "TwoSources" matches
    asc.Muls(a, b, "2", 128)  # E: No overload variant of "__call__" of "SourceAndScalar" matches
    asc.Cast(f, a, 128)  # E: No overload variant of "__call__" of "Casting" matches
    asc.Cast(f, a, asc.RoundMode.CAST_UP, 128)  # E: "type[RoundMode]" has no attribute "CAST_UP"
    asc.Compare(a, a, b, asc.CMPMODE.LT, 128)  # E: Value of type variable "Bits"
    asc.WholeReduceSum(f, f, 64, 1)  # E: Missing positional arguments "dstRepStride", "srcBlkStride", "srcRepStride"
    asc.DataCopy(gm, gm, 128)  # E: No overload variant of "__call__" of "Copying" matches
    asc.DataCopy(f, gm, 128)  # E: of "Copying"
    asc.SetFlag(asc.HardEvent.MTE1_V, 0)  # E: "HardEvents" has no attribute "MTE1_V"
    asc.SetFlag("MTE2_V", 0)  # E: Argument 1 to "SetFlag" of "Asc" has incompatible type "str"; expected "Event"
    asc.WaitFlag(asc.HardEvent.MTE2_V)  # E: Missing positional argument "id"
    asc.PipeBarrier(asc.HardEvent.V_V)  # E: Argument 1 to "PipeBarrier" of "Asc" has incompatible type "Event"
    a.SetValue(0, "1")  # E: Argument 2 to "SetValue" of "LocalTensor" has incompatible type "str"
    a.GetVal(0)  # E: has no attribute "GetVal"
    a["0"]  # E: Invalid index type "str"


def buffers(pipe: TPipe, queue: TQue, buf: TBuf, *, asc: Asc) -> None:
    asc.TQue("VECIN", 1)  # E: Argument 1 to "TQue" of "Asc" has incompatible type "str"; expected "TPosition"
    asc.TQue(asc.TPosition.A1, 1)  # E: "type[TPosition]" has no attribute "A1"
    pipe.InitBuffer(queue, 2)  # E: No overload variant of "InitBuffer" of "TPipe" matches
    pipe.InitBuffer(buf, 2, 256)  # E: No overload variant of "InitBuffer" of "TPipe" matches
    pipe.Reset()  # E: "TPipe" has no attribute "Reset"
    queue.AllocTensor()  # E: Missing positional argument "type"
    queue.AllocTensor(np.float16)  # E: Argument 1 to "AllocTensor" of "TQue" has incompatible type
    buf.EnQue(queue.DeQue())  # E: "TBuf" has no attribute "EnQue"
    local: LocalTensor[Float] = queue.AllocTensor(asc.half)  # E: incompatible type "ElementType[
