"""`asc`: the vendor's language, name by name, as a kernel has it.

What the chip lacks has a name here too, and is refused with what to use instead. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any, ClassVar, NoReturn

from pytest_kernbench.simulator.ascend310p import language_queue, tensors, vocabulary
from pytest_kernbench.simulator.ascend310p.cache import ScalarCache
from pytest_kernbench.simulator.ascend310p.core import Stuck
from pytest_kernbench.simulator.ascend310p.effects import Key
from pytest_kernbench.simulator.ascend310p.language_copy import CopyCalls
from pytest_kernbench.simulator.ascend310p.language_queue import FREE
from pytest_kernbench.simulator.ascend310p.language_scalar import ScalarCalls
from pytest_kernbench.simulator.ascend310p.language_sync import SyncCalls
from pytest_kernbench.simulator.ascend310p.vocabulary import PIPES, ElementType, HardEvent, Pipe
from pytest_kernbench.simulator.errors import Hazard, Site

CUBE = "the Cube is not modelled: KERNEL_TYPE_AIV_ONLY; loop vector instructions (Axpy a row)"
LACKS: dict[str, str] = {
    "DataCopyPad": "310P has no DataCopyPad: copy whole blocks of 32 bytes and treat the tail by GetValue/SetValue",
    "bfloat16_t": "310P has no bfloat16: use half or float32",
    "bfloat16": "310P has no bfloat16: use half or float32",
    "int4b_t": "int4 is not modelled: use int8_t",
    "Fixpipe": "310P has no FIXPIPE: results of the Cube pass through the vector unit",
    "SetFixPipeConfig": "310P has no FIXPIPE",
    "SyncAll": "310P has no synchronisation between cores: give each block its own bytes, or use two launches",
    "IBSet": "310P has no synchronisation between cores: give each block its own bytes, or use two launches",
    "IBWait": "310P has no synchronisation between cores: give each block its own bytes, or use two launches",
    "CrossCoreSetFlag": "310P has no flags between cores: give each block its own bytes, or use two launches",
    "CrossCoreWaitFlag": "310P has no flags between cores: give each block its own bytes, or use two launches",
    "DataSyncBarrier": "310P has no DataSyncBarrier: use DataCacheCleanAndInvalid and PipeBarrier(PIPE_ALL)",
    "Mmad": CUBE, "LoadData": CUBE, "LoadDataWithTranspose": CUBE, "Nd2NzParams": CUBE, "Matmul": CUBE, "Brcb": CUBE,
    "PIPE_M": CUBE, "PIPE_MTE1": CUBE, "PIPE_FIX": "310P has no FIXPIPE",
    "KERNEL_TASK_TYPE": "tiling keys are not modelled: say KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY)",
    **dict.fromkeys(
        ("KERNEL_TYPE_AICORE", "KERNEL_TYPE_AIC_ONLY", "KERNEL_TYPE_MIX_AIC_1_0", "KERNEL_TYPE_MIX_AIV_1_0",
         "KERNEL_TYPE_MIX_AIC_1_1", "KERNEL_TYPE_MIX_AIC_1_2"), "the Cube is not modelled: say KERNEL_TYPE_AIV_ONLY",
    ),
    "KERNEL_TYPE_MIX_VECTOR_CORE": "the vector cores beside the AI cores are not modelled: say KERNEL_TYPE_AIV_ONLY",
    "GetCmpMask": "the register of compared bits is not modelled: give Compare a dst of uint8_t",
    "SetCmpMask": "the register of compared bits is not modelled: give Select the bits as selMask",
    "SetMaskCount": "counter mode by hand is not modelled: use the count forms",
    "SetMaskNorm": "mask registers by hand are not modelled: give each call its mask",
    "SetVectorMask": "mask registers by hand are not modelled: give each call its mask",
    "SetAtomicAdd": "atomic stores are not modelled: give each block its own bytes",
}  # fmt: skip


WHY_NOT = (
    (frozenset(("M", "MTE1", "FIX", "A1", "A2", "B1", "B2", "C1", "C2", "CO1", "CO2", "TSCM", "C2PIPE2GM")), CUBE),
    (frozenset(("GM",)), "EnQue and DeQue between two positions are not modelled: a VECIN and a VECOUT queue do it"),
)


class Words:
    """An enumeration of the vendor's, by attribute or by `[name]`; what 310P lacks is refused at the kernel's line."""

    def __init__(self, asc: Asc, kind: str, words: dict[str, Any]) -> None:
        self._asc = asc
        self._kind = kind
        self._words = words
        self.__dict__.update(words)  # an attribute that is there costs no call

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._refuse(f"{self._kind}.{name}", name, sys._getframe(1))

    def __getitem__(self, name: str) -> Any:
        if isinstance(name, str) and name in self._words:
            return self._words[name]
        return self._refuse(f"{self._kind}[{name!r}]", str(name), sys._getframe(1))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._words.values())

    def _refuse(self, said: str, name: str, frame: FrameType) -> NoReturn:
        words = {name, *name.split("_")}
        why = "".join(f"{reason}; " for known, reason in WHY_NOT if not words.isdisjoint(known))
        near = difflib.get_close_matches(name, self._words, 4) or self._words
        self._asc.refuse(frame, "unsupported", said, f"310P has no {name}", f"{why}use {', '.join(near)}")


class Asc(ScalarCalls, CopyCalls, SyncCalls):
    """Everything a kernel can say to one AI core; see docs/ascend310p.md for the language."""

    half = float16 = vocabulary.half
    float32 = vocabulary.float32
    double = vocabulary.double
    int8_t, uint8_t, int16_t, uint16_t = vocabulary.int8, vocabulary.uint8, vocabulary.int16, vocabulary.uint16
    int32_t, uint32_t, int64_t, uint64_t = vocabulary.int32, vocabulary.uint32, vocabulary.int64, vocabulary.uint64
    PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL = Pipe.S, Pipe.V, Pipe.MTE2, Pipe.MTE3, Pipe.ALL
    KERNEL_TYPE_AIV_ONLY = vocabulary.KernelType.KERNEL_TYPE_AIV_ONLY
    HardEvent: Words
    TPosition: Words
    QuePosition: Words
    RoundMode: Words
    CMPMODE: Words
    SELMODE: Words
    ReduceOrder: Words
    DataCopyParams = vocabulary.DataCopyParams
    UnaryRepeatParams = vocabulary.UnaryRepeatParams
    BinaryRepeatParams = vocabulary.BinaryRepeatParams
    LACKS: ClassVar[dict[str, str]] = LACKS

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._give_words()
        self.cache = ScalarCache(self.spec)
        self.ids = {}
        self._said = {}
        self._by_key = {}
        self._prepared = {}
        self._noted = {}
        self.queue_keys = set()
        self.high_water = 0
        self._owners = {}
        self.prepare_scalar()
        self.prepare_syncs()
        self._pipe: language_queue.TPipe | None = None
        self._live: Counter[vocabulary.TPosition] = Counter()

    def _give_words(self) -> None:
        """The vendor's enumerations, which refuse by name what 310P lacks."""
        self.HardEvent = Words(self, "HardEvent", {event.name: event for event in HardEvent})
        self.TPosition = self.QuePosition = Words(self, "TPosition", dict(vocabulary.TPosition.__members__))
        for modes in (vocabulary.RoundMode, vocabulary.CMPMODE, vocabulary.SELMODE, vocabulary.ReduceOrder):
            setattr(self, modes.__name__, Words(self, modes.__name__, dict(modes.__members__)))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        frame = sys._getframe(1)
        if name in LACKS:
            self.refuse(frame, "unsupported", name, "310P does not have it, or it is not modelled", LACKS[name])
        near = ", ".join(difflib.get_close_matches(name, WORDS, 3))
        self.refuse(frame, "unsupported", f"asc.{name}", "there is no such call", f"nearest: {near or 'none'}")

    # The block

    def KERNEL_TASK_TYPE_DEFAULT(self, type: vocabulary.KernelType) -> None:
        """The kernel's type: KERNEL_TYPE_AIV_ONLY, which every kernel here is."""
        frame = sys._getframe(1)
        self.counted(frame)
        if type is not vocabulary.KernelType.KERNEL_TYPE_AIV_ONLY:
            remedy = "say asc.KERNEL_TYPE_AIV_ONLY"
            self.refuse(frame, "unsupported", "KERNEL_TASK_TYPE_DEFAULT", f"type {type!r} is not modelled", remedy)

    def GetBlockIdx(self) -> int:
        """This block's number in the grid."""
        self.counted(sys._getframe(1))
        return self._block

    def GetBlockNum(self) -> int:
        """Blocks of the grid."""
        self.counted(sys._getframe(1))
        return self._blocks

    # Objects of the language

    def GlobalTensor(self, type: ElementType) -> tensors.GlobalTensor:
        """A view of GM, before its SetGlobalBuffer."""
        return tensors.GlobalTensor(self, self.element_type(type, "GlobalTensor", sys._getframe(1)))

    def TPipe(self) -> language_queue.TPipe:
        """The kernel's one TPipe."""
        if self._pipe is not None:
            self.refuse(
                sys._getframe(1), "queue-misuse", "TPipe", "the kernel has one already", "use one TPipe a kernel"
            )
        self._pipe = language_queue.TPipe(self)
        return self._pipe

    def GetTPipePtr(self) -> Any:
        """The TPipe that was made."""
        if self._pipe is None:
            self.refuse(
                sys._getframe(1), "queue-misuse", "GetTPipePtr", "there is no TPipe yet", "make asc.TPipe() first"
            )
        return self._pipe

    def TQue(self, position: vocabulary.TPosition, depth: int) -> language_queue.TQue:
        """A queue of VECIN, VECOUT or VECCALC."""
        frame = sys._getframe(1)
        return language_queue.TQue(
            self, self._position(position, "TQue", frame), self.whole(depth, 0, 2**15, "depth", "TQue", frame)
        )

    def TQueBind(self, src: vocabulary.TPosition, dst: vocabulary.TPosition, depth: int) -> language_queue.TQueBind:
        """A queue from VECIN to VECOUT: buffers that MTE2 fills and MTE3 takes away, with nothing in between."""
        frame, ends = sys._getframe(1), (vocabulary.TPosition.VECIN, vocabulary.TPosition.VECOUT)
        if src is not ends[0] or dst is not ends[1]:
            fact = f"from {getattr(src, 'value', src)!r} to {getattr(dst, 'value', dst)!r}"
            remedy = "bind VECIN to VECOUT for a pure copy; where V computes, use a queue of each"
            self.refuse(frame, "unsupported", "TQueBind", fact, remedy)
        return language_queue.TQueBind(self, self.whole(depth, 0, 2**15, "depth", "TQueBind", frame))

    def TBuf(self, position: vocabulary.TPosition = vocabulary.TPosition.VECCALC) -> language_queue.TBuf:
        """A buffer to carve by hand."""
        return language_queue.TBuf(self, self._position(position, "TBuf", sys._getframe(1)))

    def _position(self, given: Any, call: str, frame: FrameType) -> vocabulary.TPosition:
        if not isinstance(given, vocabulary.TPosition):
            have = ", ".join(vocabulary.TPosition.__members__)
            self.refuse(frame, "unsupported", call, f"position {given!r} is not in UB", f"use asc.TPosition: {have}")
        return given

    def DataCacheCleanAndInvalid(self, tensor: tensors.GlobalTensor, *, whole: bool = True) -> None:
        """Write the scalar cache back and forget it: all of it, or the line that `tensor` starts in."""
        frame = sys._getframe(1)
        self.counted(frame)
        if not isinstance(tensor, tensors.GlobalTensor) or tensor.tensor is None:
            fact, remedy = f"tensor is {tensor!r}", "give a GlobalTensor after its SetGlobalBuffer"
            self.refuse(frame, "bad-parameter", "DataCacheCleanAndInvalid", fact, remedy)
        if not isinstance(whole, bool):
            self.refuse(frame, "bad-parameter", "DataCacheCleanAndInvalid", f"whole is {whole!r}", "give True or False")
        self.cache.clean(tensor, whole)

    def planned(self, buffer: language_queue.TBuf, size: int) -> None:
        """The host planned `size` bytes for what is carved of `buffer`: another sum at the end is `tiling-mismatch`."""
        frame = sys._getframe(1)
        if not isinstance(buffer, language_queue.TBuf):
            self.refuse(frame, "bad-parameter", "planned", f"buffer is {buffer!r}", "give a TBuf, then bytes")
        buffer.planned = (self.whole(size, 0, 2**31, "size", "planned", frame), self._place(frame))

    # What queues need

    def place_of(self, frame: FrameType) -> int:
        """The id of a line."""
        return self._place(frame)

    def site_of_place(self, place: int) -> Site:
        """The line of an id."""
        return self.log.site(place)

    def live(self, position: vocabulary.TPosition, change: int, frame: FrameType) -> None:
        """Tensors that queues of a position hold, which the device limits."""
        self._live[position] += change
        if self._live[position] > self.spec.live_tensors:
            fact = f"{self._live[position]} tensors of {position.value} are allocated, at most {self.spec.live_tensors}"
            self.refuse(frame, "capacity", "AllocTensor", fact, "FreeTensor some first")

    def hand_over(self, key: Key, frame: FrameType) -> None:
        """The taking pipe waits for a queue's flag, whose id is free again."""
        self.lower_flag(self.said_flag(key), frame)
        self.queue_keys.discard(key)
        event = f"{PIPES[key[0]]}_{PIPES[key[1]]}"
        self.ids[HardEvent[event]][key[2]] = False

    def fresh(self, lo: int, hi: int) -> None:
        """Bytes of UB have a new owner."""
        if self._judges is not None:
            self._judges.shadow.forget(self._judges.ub, lo, hi)

    def given_back(self, lo: int, hi: int) -> None:
        """Bytes of UB have no owner."""
        if self._judges is not None:
            self._judges.transfers.overwritten(lo, hi)

    def taken(self, top: int) -> None:
        """UB is in use up to `top`."""
        if top > self.spec.ub_noted >= self.high_water:
            self.note(
                "capacity",
                f"{self.name} uses {top} bytes of UB; above {self.spec.ub_noted} some library calls keep scratch",
            )
        self.high_water = max(self.high_water, top)

    # The end of a kernel

    def finish(self) -> None:
        """PIPE_ALL and TPipe::Destroy: queues' own flags are consumed; what was left by hand is a finding."""
        try:
            self.core.fail_if_parked()
        except Stuck as reason:
            self.stuck(reason)
        self.core.effects.drain()
        self.cache.clean()
        if self._judges is not None:
            self._left_flags()
            self._left_tensors()
            self._left_plans()

    def _left_flags(self) -> None:
        for key, flag in self.core.flags.items():
            count = flag.outstanding
            if count > 0 and key not in self.queue_keys:
                where = self.log.site(self.log.descriptors[flag.last_set].site)
                times = f"{count} time{'s' * (count > 1)}"
                fact = f"{self.name} ended with {flag.name} set {times} and not waited for, last at {where}"
                message = f"{fact}; it releases a Wait of the next kernel: say WaitFlag, or do not set it"
                self.findings.append(Hazard("unpaired-flag", message, count=count, replay=self._replay))

    def _left_tensors(self) -> None:
        left: Counter[str] = Counter()  # a line that allocated several is one finding
        for queue in self._pipe.queues if self._pipe is not None else ():
            for buffer in queue.buffers:
                if buffer.state != FREE:
                    where = self.log.site(buffer.place)
                    message = (
                        f"{self.name} ended while a tensor of {queue.name}, AllocTensor at {where}, is "
                        f"{buffer.state}; FreeTensor it"
                    )
                    left[message] += 1
        for message, count in left.items():
            self.findings.append(Hazard("leak", message, count=count, replay=self._replay))

    def _left_plans(self) -> None:
        for buf in self._pipe.bufs if self._pipe is not None else ():
            if buf.planned is not None and buf.planned[0] != buf.carved:
                size, place = buf.planned
                message = (
                    f"planned of {self.name} at {self.log.site(place)}: the host planned {size} bytes, the kernel "
                    f"carved {buf.carved}; let both count every slice, rounded up alike"
                )
                self.findings.append(Hazard("tiling-mismatch", message, replay=self._replay))


# What a kernel may say: the vendor's names have capitals or are types, the others are the simulator's own.
OWN_WORDS = ("own", "borrow", "planned", "region", "at")
WORDS = sorted(
    name
    for name in {*dir(Asc), *Asc.__annotations__}
    if name in OWN_WORDS or name[0].isupper() or isinstance(getattr(Asc, name, None), ElementType)
)

__all__ = ["LACKS", "Asc"]
