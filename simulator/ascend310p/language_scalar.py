"""`asc`'s scalar unit: GetValue, SetValue, and the views a kernel takes of its tensors.

GetValue blocks and reads what is there now; SetValue is posted. A value is a scalar of the element's own type, so that
arithmetic on it is the device's. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from pytest_kernbench.simulator.ascend310p.cache import ScalarCache
from pytest_kernbench.simulator.ascend310p.core import Stuck, TooLate
from pytest_kernbench.simulator.ascend310p.speech import Judges, Rows, Speech
from pytest_kernbench.simulator.ascend310p.tensors import GlobalTensor, LocalTensor, Pointer, Tensor
from pytest_kernbench.simulator.ascend310p.vocabulary import ElementType, Pipe
from pytest_kernbench.simulator.checks.shadow import VALID, Memory, run_of
from pytest_kernbench.simulator.memory.dtypes import Array

MOST = 2**31
ONES = {size: run_of(VALID, size) for size in (1, 2, 4, 8)}
MOST_OWNERS = 255  # a byte of shadow says whose a byte is


class ScalarCalls(Speech):
    """What the scalar unit does to memory."""

    cache: ScalarCache
    _ub_cycles: int
    _get_rows: dict[int, Rows]  # by size of the element
    _set_rows: dict[int, Rows]
    _gm_said: dict[tuple[str, int, int, bool], tuple[Rows, int]]

    def prepare_scalar(self) -> None:
        """Rows and cost of what is said most often."""
        self._ub_cycles = self.spec.scalar_ub_cycles
        self._gm_said = {}
        self._get_rows = {size: self._scalar_rows("GetValue", "UB", size) for size in (1, 2, 4, 8)}
        self._set_rows = {size: self._scalar_rows("SetValue", "UB", size) for size in (1, 2, 4, 8)}

    # UB

    def load_local(self, tensor: LocalTensor, index: int, frame: FrameType) -> Any:
        """GetValue of a LocalTensor."""
        if type(index) is not int or not 0 <= index < tensor.size:
            index = self._index(tensor, index, "GetValue", frame)
        if tensor.buffer.freed is not None:
            self.stale(tensor.buffer, "the tensor", "GetValue", frame)
        kind = tensor.type
        lo = tensor.lo + index * kind.size
        descriptor = self._descriptor(self._get_rows[kind.size], frame)
        try:
            value = self.core.load(descriptor, self._ub_cycles, lo, tensor.cells, index, lo, lo + kind.size)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is not None:
            if judges.transfers.unread:
                judges.transfers.read(lo, lo + kind.size)
            if tensor.owner or not judges.ub.valid.startswith(ONES[kind.size], lo):
                self._judge_load(judges, judges.ub, lo, kind.size, tensor.owner)
        return kind.numpy.type(0) if value is None else value

    def store_local(self, tensor: LocalTensor, index: int, value: Any, frame: FrameType) -> None:
        """SetValue of a LocalTensor."""
        if type(index) is not int or not 0 <= index < tensor.size:
            index = self._index(tensor, index, "SetValue", frame)
        if tensor.buffer.freed is not None:
            self.stale(tensor.buffer, "the tensor", "SetValue", frame)
        kind = tensor.type
        lo = tensor.lo + index * kind.size
        if type(value) is not kind.numpy.type:
            value = self._element(kind, value, frame)
        descriptor = self._descriptor(self._set_rows[kind.size], frame)
        try:
            row = self.core.store(descriptor, self._ub_cycles, lo, tensor.cells, index, value, lo, lo + kind.size)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is not None:
            judges.shadow.write(judges.ub, lo, lo + kind.size, tensor.owner)
            if judges.transfers.any_held:
                judges.transfers.overwritten(lo, lo + kind.size)
            if judges.numerics is not None and judges.numerics.pending:
                judges.numerics.scalar(value, row, lo, lo + kind.size)

    def _judge_load(self, judges: Judges, memory: Memory, lo: int, size: int, owner: int) -> None:
        """Whether what S has loaded is there, and is its owner's."""
        at = lo - memory.base
        its_own = not owner or (memory.writers is not None and memory.writers.startswith(run_of(owner, size), at))
        if its_own and memory.valid.startswith(ONES[size], at):
            return
        row = len(self.log) - 1
        judges.shadow.read(memory, row, lo, lo + size, owner, row in judges.races.racy_rows)

    def _scalar_rows(self, name: str, label: str, size: int, hit: bool | None = None) -> Rows:
        """Rows of one element; those of GM are told apart by tensor and by whether the cache had the line."""
        span = ((self.log.labels.id(label), size),)
        sides: dict[str, Any] = (
            {"reads": span} if name == "GetValue" else {"writes": span, "occupancy": self.spec.sync_cycles}
        )
        key = (name, size) if hit is None else (name, label, size, hit)
        return self.shared(key, lambda: Rows(Pipe.S, name, bytes=size, **sides))

    def _element(self, kind: ElementType, value: Any, frame: FrameType) -> Any:
        return self.number(kind, value, "the value", "SetValue", frame)

    def _index(self, tensor: LocalTensor | GlobalTensor, index: Any, call: str, frame: FrameType) -> int:
        whole = self.whole(index, -MOST, MOST, "index", call, frame)
        if not 0 <= whole < tensor.size:
            fact = f"element {whole} of {tensor!r}"
            self.refuse(frame, "out-of-bounds", call, fact, f"elements are 0..{tensor.size - 1}")
        return whole

    # GM

    def load_global(self, tensor: GlobalTensor, index: int, frame: FrameType) -> Any:
        """GetValue of a GlobalTensor: through the scalar unit's own cache."""
        host, index, lo = self._there(tensor, index, "GetValue", frame)
        kind = tensor.type
        hit = self.cache.touch(lo)
        rows, cycles = self._gm_rows("GetValue", host, kind.size, hit)
        cells = self.cache.cells_to_load(self, tensor, lo, hit, frame)
        descriptor = self._descriptor(rows, frame)
        try:
            value = self.core.load(descriptor, cycles, lo - host.base, cells, index, lo, lo + kind.size)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is not None:
            row = len(self.log) - 1
            judges.footprint.add(False, descriptor, row, lo, lo + kind.size)
            judges.transfers.scalar(row, host.base, host.nbytes, lo, lo + kind.size)
            self._judge_load(judges, judges.memories[host.number], lo, kind.size, 0)
        return kind.numpy.type(0) if value is None else value

    def store_global(self, tensor: GlobalTensor, index: int, value: Any, frame: FrameType) -> None:
        """SetValue of a GlobalTensor."""
        host, index, lo = self._there(tensor, index, "SetValue", frame)
        kind = tensor.type
        hit = self.cache.touch(lo)
        rows, cycles = self._gm_rows("SetValue", host, kind.size, hit)
        descriptor = self._descriptor(rows, frame)
        cells = self.cache.cells_to_store(self, tensor, lo)
        if type(value) is not kind.numpy.type:
            value = self._element(kind, value, frame)
        try:
            row = self.core.store(descriptor, cycles, lo - host.base, cells, index, value, lo, lo + kind.size)
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is not None:
            judges.footprint.add(True, descriptor, row, lo, lo + kind.size)
            judges.shadow.write(judges.memories[host.number], lo, lo + kind.size)
            judges.transfers.gm_written(host.base, lo, lo + kind.size)
            if judges.numerics is not None and judges.numerics.pending:
                judges.numerics.scalar(value, row, lo, lo + kind.size)

    def _gm_rows(self, name: str, host: Tensor, size: int, hit: bool) -> tuple[Rows, int]:
        """Rows and cycles of one element of GM."""
        found = self._gm_said.get((name, host.number, size, hit))
        if found is None:
            cycles = self.spec.scalar_gm_hit_cycles if hit else self.spec.scalar_gm_miss_cycles
            found = self._gm_said[name, host.number, size, hit] = (
                self._scalar_rows(name, host.name, size, hit), cycles
            )  # fmt: skip
        return found

    def _there(self, tensor: GlobalTensor, index: Any, call: str, frame: FrameType) -> tuple[Tensor, int, int]:
        """The host's tensor, the element, its address."""
        if tensor.tensor is None:
            self.refuse(frame, "bad-parameter", call, f"{tensor!r}", "SetGlobalBuffer first")
        if type(index) is not int or not 0 <= index < tensor.size:
            index = self._index(tensor, index, call, frame)
        return tensor.tensor, index, tensor.lo + index * tensor.type.size

    # Views

    def set_global_buffer(self, view: GlobalTensor, buffer: Any, size: Any, frame: FrameType) -> None:
        """SetGlobalBuffer: `size` elements of the view's type from the pointer on."""
        self.counted(frame)
        call, kind = "SetGlobalBuffer", view.type
        if not isinstance(buffer, Pointer):
            fact = f"buffer is a {type(buffer).__name__}"
            self.refuse(
                frame, "bad-parameter", call, fact, "pass a tensor among the kernel's arguments, or one + elements"
            )
        host = buffer.tensor
        start = buffer.element * host.type.size
        left = (host.nbytes - start) // kind.size
        count = left if size is None else self.whole(size, 0, MOST, "bufferSize", call, frame)
        if start < 0 or count > left or left < 0:
            fact = f"{count} elements of {kind} from byte {start} of {host.name}, which has {host.nbytes} bytes"
            self.refuse(frame, "out-of-bounds", call, fact, "check offset and size: they count elements")
        if start % kind.size:
            fact = f"byte {start} of {host.name} is not a multiple of {kind.size}"
            self.refuse(frame, "misaligned", call, fact, "start at a whole element")
        view.tensor, view.lo, view.size = host, host.base + start, count
        view.cells = self.gm_cells(host, start, count, kind)

    def gm_cells(self, host: Tensor, start: int, count: int, kind: ElementType) -> Array | None:
        """Elements of GM, if the run has data."""
        return None if self.ub is None else host.bytes[start : start + count * kind.size].view(kind.numpy)

    def global_from(self, view: GlobalTensor, offset: Any, frame: FrameType) -> GlobalTensor:
        """`tensor[offset]`, in elements, to the end of the buffer."""
        self.counted(frame)
        at = self.whole(offset, -MOST, MOST, "offset", "GlobalTensor[]", frame)
        if view.tensor is None:
            self.refuse(frame, "bad-parameter", "GlobalTensor[]", f"{view!r}", "SetGlobalBuffer first")
        if not 0 <= at <= view.size:
            self.refuse(
                frame, "out-of-bounds", "GlobalTensor[]", f"element {at} of {view!r}", f"offsets are 0..{view.size}"
            )
        part = GlobalTensor(view.asc, view.type)
        part.tensor, part.lo, part.size = view.tensor, view.lo + at * view.type.size, view.size - at
        part.cells = None if view.cells is None else view.cells[at:]
        return part

    def local_from(self, tensor: LocalTensor, offset: Any, frame: FrameType) -> LocalTensor:
        """`tensor[offset]`, in elements, to the end of the tensor."""
        self.counted(frame)
        at = self.whole(offset, -MOST, MOST, "offset", "LocalTensor[]", frame)
        if not 0 <= at <= tensor.size:
            self.refuse(
                frame, "out-of-bounds", "LocalTensor[]", f"element {at} of {tensor!r}", f"offsets are 0..{tensor.size}"
            )
        return self._view(tensor, tensor.type, tensor.lo + at * tensor.type.size, tensor.size - at)

    def reinterpret(self, tensor: LocalTensor, type: Any, frame: FrameType) -> LocalTensor:
        """The same bytes, counted in other elements."""
        self.counted(frame)
        kind = self.element_type(type, "ReinterpretCast", frame)
        return self._view(tensor, kind, tensor.lo, tensor.size * tensor.type.size // kind.size)

    def _view(self, tensor: LocalTensor, kind: ElementType, lo: int, size: int) -> LocalTensor:
        return LocalTensor(tensor.asc, kind, lo, size, tensor.position, tensor.buffer, tensor.owner)

    # Owners

    def own(self, tensor: LocalTensor, name: str) -> LocalTensor:
        """The tensor as its owner sees it: `live-alias` if it reads what a borrower wrote last."""
        return self._owned(tensor, name, 0, "own", sys._getframe(1))

    def borrow(self, tensor: LocalTensor, owner: str, as_: str) -> LocalTensor:
        """The bytes of the owner's `tensor`, in the hands of a borrower."""
        frame = sys._getframe(1)
        lender = self._owners.get(owner, 0) if isinstance(owner, str) else 0
        if not lender:
            self.refuse(frame, "bad-parameter", "borrow", f"nobody owns as {owner!r}", "asc.own(tensor, name) first")
        return self._owned(tensor, as_, lender, "borrow", frame)

    _owners: dict[str, int]

    def _owned(self, tensor: Any, name: Any, lender: int, call: str, frame: FrameType) -> LocalTensor:
        self.counted(frame)
        if not isinstance(tensor, LocalTensor) or not isinstance(name, str):
            fact = f"tensor is {tensor!r}, name {name!r}"
            self.refuse(frame, "bad-parameter", call, fact, "give a LocalTensor and a string")
        if name not in self._owners and len(self._owners) >= MOST_OWNERS:
            fact = f"{name!r} is owner {MOST_OWNERS + 1}, a block has {MOST_OWNERS} at most"
            self.refuse(frame, "capacity", call, fact, "name what a buffer is for, not each use of it")
        judges = self._judges
        if judges is None:
            self._owners[name] = 1
            return tensor
        number = self._owners.get(name)
        if number is None:
            number = self._owners[name] = judges.shadow.own(judges.ub, name, lender)
        view = self._view(tensor, tensor.type, tensor.lo, tensor.size)
        view.owner = number
        return view
