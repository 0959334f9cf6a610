"""`asc`'s TPipe, TQue and TBuf: buffers of UB, who holds them, and the flags that hand them over (facts 2.4).

EnQue and FreeTensor set a flag, DeQue and AllocTensor wait for it on the pipe that takes over: S never blocks. A queue
orders pipes with each other, never a pipe with itself. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING, Any

from pytest_kernbench.simulator.ascend310p.effects import Key
from pytest_kernbench.simulator.ascend310p.tensors import LocalTensor, Spoken
from pytest_kernbench.simulator.ascend310p.vocabulary import ElementType, HardEvent, TPosition

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ascend310p.language import Asc

BLOCK = 32
FREE, OCCUPIED, ENQUE, DEQUE = "FREE", "OCCUPIED", "ENQUE", "DEQUE"
# Position: the event that hands a full buffer over, the event that gives it back.
EVENTS: dict[TPosition, tuple[str, str] | None] = {
    TPosition.VECIN: ("MTE2_V", "V_MTE2"),
    TPosition.VECOUT: ("V_MTE3", "MTE3_V"),
    TPosition.VECCALC: None,
}
BOUND = ("MTE2_MTE3", "MTE3_MTE2")  # of a VECIN that is its own VECOUT


class Buffer:
    """Bytes [lo, hi) of UB that a queue hands round; `returned` is the last FreeTensor's flag, `freed` its line."""

    __slots__ = ("freed", "hi", "lo", "place", "returned", "state", "tensors")

    def __init__(self, lo: int, hi: int) -> None:
        self.lo = lo
        self.hi = hi
        self.state = FREE
        self.returned: Key | None = None
        self.freed: int | None = None  # where FreeTensor was said, an id of the log's, until the next AllocTensor
        self.place = 0  # where it was allocated, an id of the log's
        self.tensors: dict[ElementType, LocalTensor] = {}  # the same view each time it comes round


class TPipe(Spoken):
    """Hands out UB. One a kernel."""

    def __init__(self, asc: Asc) -> None:
        self._asc = asc
        self.top = 0
        self.count = 0
        self.queues: list[TQue] = []
        self.bufs: list[TBuf] = []

    def InitBuffer(self, what: TQue | TBuf, *sizes: int) -> None:
        """`InitBuffer(queue, num, len)` or `InitBuffer(buf, len)`; lengths in bytes, rounded up to 32."""
        frame, asc = sys._getframe(1), self._asc
        queue = isinstance(what, TQue)
        if not isinstance(what, TQue | TBuf) or len(sizes) != 1 + queue:
            said = ", ".join(map(repr, (what, *sizes)))
            asc.refuse(frame, "bad-parameter", "InitBuffer", f"got {said}", "say (queue, num, len) or (buf, len)")
        if what.buffers:
            asc.refuse(
                frame, "queue-misuse", "InitBuffer", "it has its buffers already", "InitBuffer each queue and TBuf once"
            )
        number = asc.whole(sizes[0], 1, asc.spec.live_tensors, "num", "InitBuffer", frame) if queue else 1
        length = asc.whole(sizes[-1], 1, 2**31, "len", "InitBuffer", frame)
        self._take(what, number, -(-length // BLOCK) * BLOCK, frame)

    def _take(self, what: TQue | TBuf, number: int, length: int, frame: FrameType) -> None:
        asc, limit = self._asc, self._asc.spec.ub_usable
        if self.top + number * length > limit:
            fact = f"UB has {limit} bytes, {self.top} are taken, {number * length} more were asked for"
            asc.refuse(
                frame, "capacity", "InitBuffer", fact, "use smaller tiles or fewer buffers; a device overruns silently"
            )
        self.count += number
        if self.count > asc.spec.pipe_buffers:
            fact = f"{self.count} buffers, a TPipe has {asc.spec.pipe_buffers} at most"
            asc.refuse(frame, "capacity", "InitBuffer", fact, "carve one TBuf with GetWithOffset")
        for _ in range(number):
            what.buffers.append(Buffer(self.top, self.top + length))
            self.top += length
        if what.pipe is None:
            what.pipe = self
            (self.queues if isinstance(what, TQue) else self.bufs).append(what)  # type: ignore[arg-type]
        asc.taken(self.top)


class TQue(Spoken):
    """A queue of buffers between two pipes, or of nobody's (VECCALC); `depth` EnQues may wait for their DeQue."""

    def __init__(self, asc: Asc, position: TPosition, depth: int) -> None:
        self._asc = asc
        self.position = position
        self.name = position.value
        self.depth = depth
        self._events = EVENTS[position]
        self.buffers: list[Buffer] = []
        self.pipe: TPipe | None = None
        self._next = 0
        self._full: deque[tuple[Buffer, Key | None, ElementType]] = deque()

    def AllocTensor(self, type: ElementType) -> LocalTensor:
        """The next free buffer; what is in it is anything."""
        frame, asc = sys._getframe(1), self._asc
        self._asc.counted(frame)
        kind = asc.element_type(type, "AllocTensor", frame)
        buffer = self._free_buffer(frame)
        asc.live(self.position, 1, frame)
        if buffer.returned is not None:
            asc.hand_over(buffer.returned, frame)
            buffer.returned = None
        buffer.state = OCCUPIED
        buffer.freed = None
        buffer.place = asc.place_of(frame)
        asc.fresh(buffer.lo, buffer.hi)
        return self._tensor(buffer, kind)

    def _free_buffer(self, frame: FrameType) -> Buffer:
        for step in range(len(self.buffers)):
            buffer = self.buffers[(self._next + step) % len(self.buffers)]
            if buffer.state == FREE:
                self._next = (self._next + step + 1) % len(self.buffers)
                return buffer
        fact = f"none of the {len(self.buffers)} buffers of this {self.name} queue is FREE: a device hangs here"
        remedy = "FreeTensor what DeQue gave, or InitBuffer with more" if self.buffers else "InitBuffer the queue"
        return self._asc.refuse(frame, "queue-misuse", "AllocTensor", fact, remedy)

    def _tensor(self, buffer: Buffer, kind: ElementType) -> LocalTensor:
        found = buffer.tensors.get(kind)
        if found is None:
            size = (buffer.hi - buffer.lo) // kind.size
            found = buffer.tensors[kind] = LocalTensor(self._asc, kind, buffer.lo, size, self.position, buffer)
        return found

    def EnQue(self, tensor: LocalTensor) -> None:
        """The buffer is full: hand it over when the pipe that filled it is done."""
        frame = sys._getframe(1)
        self._asc.counted(frame)
        buffer = self._own(tensor, "EnQue", frame)
        if buffer.state not in (OCCUPIED, DEQUE):
            self._wrong(buffer, "EnQue", f"{OCCUPIED} or {DEQUE}", frame)
        if len(self._full) >= self.depth:
            fact = f"{len(self._full)} tensors wait for their DeQue, the depth is {self.depth}"
            self._asc.refuse(frame, "queue-misuse", "EnQue", fact, "DeQue first, or give the queue a greater depth")
        buffer.state = ENQUE
        self._full.append((buffer, self._raise(0, frame), tensor.type))

    def DeQue(self, type: ElementType | None = None) -> LocalTensor:
        """The oldest full buffer; the pipe that uses it waits until it is full."""
        frame = sys._getframe(1)
        if not self._full:
            fact = f"this {self.name} queue is empty"
            self._asc.refuse(frame, "queue-misuse", "DeQue", fact, "EnQue a tensor before: a device waits for ever")
        buffer, key, kind = self._full.popleft()
        if key is not None:
            self._asc.hand_over(key, frame)
        buffer.state = DEQUE
        return self._tensor(buffer, kind if type is None else self._asc.element_type(type, "DeQue", frame))

    def FreeTensor(self, tensor: LocalTensor) -> None:
        """The buffer is used up: give it back when the pipe that used it is done."""
        frame, asc = sys._getframe(1), self._asc
        asc.counted(frame)
        buffer = self._own(tensor, "FreeTensor", frame)
        if buffer.state in (FREE, ENQUE):
            self._wrong(buffer, "FreeTensor", f"{OCCUPIED} or {DEQUE}", frame)
        buffer.state = FREE
        buffer.freed = asc.place_of(frame)
        asc.given_back(buffer.lo, buffer.hi)
        buffer.returned = self._raise(1, frame)
        asc.live(self.position, -1, frame)

    def _raise(self, which: int, frame: FrameType) -> Key | None:
        """Set a flag of the queue's own, with an id from the common store."""
        if self._events is None:
            return None
        event = HardEvent[self._events[which]]
        number = self._asc.take_id(event, "EnQue" if which == 0 else "FreeTensor", frame)
        key = (*event.value, number)
        self._asc.queue_keys.add(key)
        self._asc.raise_flag(self._asc.said_flag(key), frame)
        return key

    def _own(self, tensor: Any, call: str, frame: FrameType) -> Buffer:
        buffer = getattr(tensor, "buffer", None)
        if not any(buffer is each for each in self.buffers):
            fact = f"{tensor!r} is not of this {self.name} queue"
            self._asc.refuse(frame, "queue-misuse", call, fact, "give a tensor that this queue's AllocTensor made")
        return buffer  # type: ignore[return-value]

    def _wrong(self, buffer: Buffer, call: str, wanted: str, frame: FrameType) -> None:
        asc = self._asc
        freed = "" if buffer.freed is None else f" since FreeTensor at {asc.site_of_place(buffer.freed)}"
        fact = f"the tensor is {buffer.state}{freed}, {call} takes one that is {wanted}"
        asc.refuse(frame, "queue-misuse", call, fact, "Alloc, EnQue, DeQue, Free, each once, in this order")

    def HasTensorInQue(self) -> bool:
        """Whether a DeQue would find a tensor."""
        self._asc.counted(sys._getframe(1))
        return bool(self._full)

    def GetTensorCountInQue(self) -> int:
        """Tensors that wait for their DeQue."""
        self._asc.counted(sys._getframe(1))
        return len(self._full)

    def VacantInQue(self) -> bool:
        """Whether an EnQue would find room."""
        self._asc.counted(sys._getframe(1))
        return len(self._full) < self.depth

    def HasIdleBuffer(self) -> bool:
        """Whether an AllocTensor would find a buffer."""
        self._asc.counted(sys._getframe(1))
        return any(buffer.state == FREE for buffer in self.buffers)


class TQueBind(TQue):
    """A VECIN queue that is its own VECOUT: what MTE2 fills MTE3 takes away, V has no part in it. Counts as VECIN."""

    def __init__(self, asc: Asc, depth: int) -> None:
        super().__init__(asc, TPosition.VECIN, depth)
        self.name = "VECIN to VECOUT"
        self._events = BOUND


class TBuf(Spoken):
    """Bytes of UB to carve by hand: no hand-over, no flags."""

    def __init__(self, asc: Asc, position: TPosition) -> None:
        self._asc = asc
        self.position = position
        self.buffers: list[Buffer] = []
        self.pipe: TPipe | None = None
        self.carved = 0  # the highest byte that a view has reached
        self.planned: tuple[int, int] | None = None  # bytes, and where the plan was said

    def Get(self, type: ElementType, len: int | None = None) -> LocalTensor:
        """The buffer from its start, `len` elements or all of it: always the same address."""
        frame = sys._getframe(1)
        kind = self._asc.element_type(type, "Get", frame)
        whole = self._length(frame) // kind.size
        return self._view(kind, whole if len is None else len, 0, "Get", frame)

    def GetWithOffset(self, type: ElementType, size: int, bufOffset: int) -> LocalTensor:
        """`size` elements from byte `bufOffset` on."""
        frame = sys._getframe(1)
        return self._view(self._asc.element_type(type, "GetWithOffset", frame), size, bufOffset, "GetWithOffset", frame)

    def _length(self, frame: FrameType) -> int:
        if not self.buffers:
            self._asc.refuse(frame, "queue-misuse", "Get", "the TBuf has no buffer", "InitBuffer it first")
        return self.buffers[0].hi - self.buffers[0].lo

    def _view(self, kind: ElementType, size: int, offset: int, call: str, frame: FrameType) -> LocalTensor:
        asc, length = self._asc, self._length(frame)
        asc.counted(frame)
        size = asc.whole(size, 1, 2**31, "size", call, frame)
        offset = asc.whole(offset, 0, 2**31, "bufOffset", call, frame)
        if offset % BLOCK and (asc.spec.alignment == "strict" or offset % kind.size):
            fact = f"bufOffset {offset} is {offset % BLOCK} past a multiple of {BLOCK}"
            asc.refuse(frame, "misaligned", call, fact, "it counts bytes; round each slice up to 32")
        if offset + size * kind.size > length:
            end = offset + size * kind.size
            fact = f"{size} elements of {kind} from byte {offset} end at {end}, the buffer has {length}"
            asc.refuse(frame, "out-of-bounds", call, fact, "InitBuffer with the sum of all slices")
        self.carved = max(self.carved, offset + size * kind.size)
        buffer = self.buffers[0]
        return LocalTensor(asc, kind, buffer.lo + offset, size, self.position, buffer)
