"""Issues vector calls: checks of operands, their bytes and views, prepared once for the views of a call.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import index
from types import FrameType
from typing import Any, NamedTuple

from pytest_kernbench.simulator.ascend310p.core import Stuck, TooLate
from pytest_kernbench.simulator.ascend310p.effects import Deed
from pytest_kernbench.simulator.ascend310p.geometry import lanes, overlapping, same_elements
from pytest_kernbench.simulator.ascend310p.speech import Spans
from pytest_kernbench.simulator.ascend310p.tensors import LocalTensor
from pytest_kernbench.simulator.ascend310p.vector_bits import BitPlans
from pytest_kernbench.simulator.ascend310p.vector_plans import How, VectorPlan
from pytest_kernbench.simulator.checks.shadow import VALID, run_of

MOST_PREPARED = 65_536


class Prepared(NamedTuple):
    """A call on certain views. `dubious`: its operands have a finding, which is made each time.

    `buffers`: of queues, which a FreeTensor may have given back, each with the operand's name. `looks` and `leaves`:
    the shadow of a call in order, of what it reads and of what it writes.
    """

    plan: VectorPlan
    offsets: tuple[int, int, int, int]
    args: tuple[Any, ...] | None  # sources, then the target
    sources: tuple[Any, ...]
    deed: Deed
    reads: Spans
    writes: Spans
    dubious: bool
    buffers: tuple[tuple[Any, str], ...]
    params: Any  # of the call that was prepared
    looks: tuple[tuple[int, bytes, bytes | None], ...]  # lo, validity, owner
    leaves: tuple[tuple[int, int, bytes, bytes], ...]  # lo, hi, validity, owner

    def plain(self, how: How) -> bool:
        """Whether the numbers are ints: 256.0 and True find what 256 and 1 left."""
        mask, repeats, params = how[:3]
        if repeats is None:
            return type(mask) is int
        if type(repeats) is not int or not (params is self.params or all(type(each) is int for each in params)):
            return False
        return type(mask) is int or (type(mask) is tuple and all(type(word) is int for word in mask))


class VectorIssue(BitPlans):
    """From a call to the core and the checkers."""

    _prepared: dict[Any, Prepared]
    _noted: dict[int, int]  # by line, which note it has

    def _vector(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> None:
        try:
            said = self._prepared.get((name, dst, sources, how))
        except TypeError:  # a mask as a list
            said = None
        if said is None or ((how[1] is not None or type(how[0]) is not int) and not said.plain(how)):
            said = self._prepare(name, dst, sources, scalar, how, frame)
        plan, args, reads, writes = said.plan, said.args, said.reads, said.writes
        if plan.scalar is not None:
            if type(scalar) is not plan.scalar_type:
                scalar = self.number(plan.scalar, scalar, "the scalar", name, frame)
            if args is not None:
                args = (*said.sources, scalar, args[-1])
        if said.dubious:
            self._check_operands(plan, dst, sources, frame)
            self._check_overlap(plan, dst, sources, frame)
        for buffer, who in said.buffers:
            if buffer.freed is not None:
                self.stale(buffer, who, name, frame)
        core = self.core
        descriptor = self._descriptor(plan.rows, frame)
        try:
            row = core.op(
                core.vector, descriptor, plan.occupancy, plan.latency, said.offsets, args, said.deed, reads, writes
            )
        except (Stuck, TooLate) as reason:
            self.stuck(reason, frame)
        judges = self._judges
        if judges is None:
            return
        if plan.scalar is not None and judges.numerics is not None and judges.numerics.pending:
            judges.numerics.scalar(scalar, row, writes[0][0], writes[-1][1])
        transfers = judges.transfers
        if transfers.unread:
            for lo, hi in reads:
                transfers.read(lo, hi)
        if transfers.any_held:
            for lo, hi in writes:
                if transfers.held.find(1, lo, hi) >= 0:
                    transfers.overwritten(lo, hi)
        valid, writers = judges.ub.valid, judges.ub.writers
        for lo, ones, own in said.looks:
            if not valid.startswith(ones, lo) or (own is not None and not (writers or b"").startswith(own, lo)):
                self._judge(row, plan, dst, sources, writes)
                return
        if plan.workspace:
            self._judge(row, plan, dst, sources, writes)
            return
        for lo, hi, ones, own in said.leaves:
            valid[lo:hi] = ones
            if writers is not None:
                writers[lo:hi] = own

    def _prepare(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> Prepared:
        """What does not change when the same call comes again with the same views."""
        how = in_ints(how)
        plan = self._known_plan(name, dst, sources, scalar, how, frame)
        dubious = self._looks_dubious(plan, dst, sources) and (
            self._check_operands(plan, dst, sources, None) or self._check_overlap(plan, dst, sources, None)
        )
        if plan.folded:
            self._check_folded(plan, dst, sources[-1], frame)
        said = self._prepared_call(plan, dst, sources, dubious, how[2])
        if len(self._prepared) >= MOST_PREPARED:
            self._prepared.clear()
        self._prepared[name, dst, sources, how] = said
        return said

    def _known_plan(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> VectorPlan:
        try:
            types = (dst.type, *[each.type for each in sources])
            found = self._rows.get((name, how, types))
        except (AttributeError, TypeError):
            found = None
        return found or self._new_plan(name, dst, sources, scalar, how, frame)

    def _new_plan(
        self, name: str, dst: LocalTensor, sources: tuple[LocalTensor, ...], scalar: Any, how: How, frame: FrameType
    ) -> VectorPlan:
        for each in (dst, *sources):
            if not isinstance(each, LocalTensor):
                fact = f"an operand is a {type(each).__name__}"
                self.refuse(frame, "bad-parameter", name, fact, "vector instructions take LocalTensors, in UB")
        types = (dst.type, *[each.type for each in sources])
        try:
            return self.shared((name, how, types), lambda: self._plan(name, how, types, scalar, frame))
        except TypeError:
            remedy = "give numbers and the vendor's parameter structs"
            return self.refuse(frame, "bad-parameter", name, f"arguments {how!r}", remedy)

    @staticmethod
    def _looks_dubious(plan: VectorPlan, dst: LocalTensor, sources: tuple[LocalTensor, ...]) -> bool:
        """Whether operands are worth a close look: most calls are in order, and new views come often."""
        at = dst.lo
        if dst.size < plan.need[0] or at % plan.alignment or plan.workspace:
            return True
        end = at + plan.spans[0]
        for number, each in enumerate(sources, 1):
            lo = each.lo
            if each.size < plan.need[number] or lo & 31 or (lo < end and at < lo + plan.spans[number]):
                return True
        return False

    def _prepared_call(
        self, plan: VectorPlan, dst: LocalTensor, sources: tuple[LocalTensor, ...], dubious: bool, params: Any
    ) -> Prepared:
        at, spans = dst.lo, plan.spans
        if plan.dense:
            reads = tuple([(each.lo, each.lo + size) for each, size in zip(sources, spans[1:], strict=True)])
            writes: Spans = ((at, at + spans[0]),)
        else:
            pairs = zip(sources, plan.sources, strict=True)
            reads = tuple([(each.lo + lo, each.lo + hi) for each, access in pairs for lo, hi in access.ranges])
            writes = tuple([(at + lo, at + hi) for lo, hi in plan.dst.ranges])
        offsets = [each.lo for each in sources]
        if plan.in_place:
            reads += writes
            offsets.append(at)
        if plan.workspace:
            reads, writes = reads[:-1], tuple(sorted((reads[-1], *writes)))
        args = None
        if self.ub is not None:
            needs = zip((*sources, dst), (*plan.need[1:], plan.need[0]), strict=True)
            args = tuple([tensor.cells[:need] for tensor, need in needs])
        a, b, c, d = (*offsets, at, 0, 0, 0)[:4]
        operands = zip((dst, *sources), _names(len(sources)), strict=True)
        buffers = tuple([(each.buffer, who) for each, who in operands if each.buffer.tensors])
        compute = plan.compute
        if self._judges is not None and self._judges.numerics is not None:
            low, high = writes[0][0], writes[-1][1]
            in_place = plan.in_place or any(lo < high and low < hi for lo, hi in reads)
            compute = self._judges.numerics.watched(compute, in_place)
        deed = Deed(writes[0][0], writes[-1][1], compute, plan.index, plan.folded)
        looks, leaves = ((), ()) if self._judges is None else _shadows(plan, dst, sources)
        return Prepared(
            plan, (a, b, c, d), args, (args or ())[:-1], deed, reads, writes, dubious, buffers, params, looks, leaves
        )

    def _judge(self, row: int, plan: VectorPlan, dst: LocalTensor, sources: Any, writes: Any) -> None:
        """Validity of what is read and by whom, and who writes."""
        judges = self._judges
        assert judges is not None
        ub, shadow = judges.ub, judges.shadow
        racy = row in judges.races.racy_rows
        read = sources[:-1] if plan.workspace else (*sources, dst) if plan.in_place else sources
        operands = []
        for tensor, access in zip(read, (*plan.sources, plan.dst), strict=False):
            spans = tuple([(tensor.lo + lo, tensor.lo + hi) for lo, hi in access.ranges])
            operands.append((spans, tensor.type.size))
            for lo, hi in spans:
                shadow.use(ub, row, lo, hi, tensor.owner, racy)
        marks = shadow.marks(ub, operands, writes, dst.type.size, plan.name == "Select")
        for lo, hi in writes:
            shadow.write(ub, lo, hi, dst.owner)
        if marks is not None:
            shadow.mark(ub, writes, marks)
        if plan.workspace:
            room = sources[-1]
            shadow.forget(ub, room.lo, room.lo + plan.need[-1] * room.type.size)
            shadow.write(ub, dst.lo, dst.lo + plan.spans[0], dst.owner)  # it may be the room's first element

    def _note_mask(self, name: str, mask: Any, source: LocalTensor, frame: FrameType) -> None:
        """A mask that leaves lanes out where 310P takes none; the same line is counted."""
        width = 256 // source.type.size
        (given, *_) = in_ints((mask, None, None))
        if self._judges is None or len(lanes(given, width)) == width:
            return
        place = self._place(frame)
        at = self._noted.setdefault(place, len(self.notes))
        if at < len(self.notes):
            self.notes[at] = replace(self.notes[at], count=self.notes[at].count + 1)
            return
        fact = f"310P ignores its mask, all {width} lanes of each repeat were compared"
        self.note("ignored-mask", f"{name} at {self.log.site(place)}: {fact}; say all lanes, and mask the Select")

    # Checks of operands

    def _check_operands(
        self, plan: VectorPlan, dst: LocalTensor, sources: Sequence[LocalTensor], frame: FrameType | None
    ) -> bool:
        """Whether an operand is too short or not aligned; with a frame, say so there."""
        dubious = False
        names = _names(len(sources))
        for number, tensor in enumerate((dst, *sources)):
            wanted = plan.alignment if number == 0 else 32
            if tensor.size < plan.need[number] or tensor.lo % wanted:
                dubious = True
                if frame is not None:
                    self._complain(plan, tensor, plan.need[number], wanted, names[number], frame)
        return dubious

    def _complain(
        self, plan: VectorPlan, tensor: LocalTensor, need: int, wanted: int, who: str, frame: FrameType
    ) -> None:
        if tensor.size < need:
            fact = f"{who} has {tensor.size} elements, the call takes {need}"
            remedy = "lower the count or the repeats, or take more of the buffer"
            self.refuse(frame, "out-of-bounds", plan.name, fact, remedy)
        if tensor.lo % wanted == 0:
            return
        fact = f"{who} starts at byte {tensor.lo} of UB, which is {tensor.lo % wanted} past a multiple of {wanted}"
        remedy = "offsets of [] count elements, those of GetWithOffset bytes: pad rows to 32 bytes"
        if self.spec.alignment == "strict" or tensor.lo % tensor.type.size:
            self.refuse(frame, "misaligned", plan.name, fact, remedy)
        self.found(frame, "misaligned", plan.name, fact, remedy)

    def _check_folded(self, plan: VectorPlan, dst: LocalTensor, total: LocalTensor, frame: FrameType) -> None:
        """Repeats pile up in dst only if each takes what the one before left, which is src1."""
        if total.lo != dst.lo or not same_elements(plan.sources[-1], plan.dst):
            fact = f"dstRepStride is 0, dst starts at UB[{dst.lo}], src1 at UB[{total.lo}]"
            remedy = "let src1 be dst, with the same strides, or give dstRepStride 1 or more"
            self.refuse(frame, "bad-parameter", plan.name, fact, remedy)

    def _check_overlap(
        self, plan: VectorPlan, dst: LocalTensor, sources: Sequence[LocalTensor], frame: FrameType | None
    ) -> bool:
        """Whether operands overlap neither exactly nor not at all; with a frame, say so there."""
        at, dubious = dst.lo, False
        for number, tensor in enumerate(sources):
            access = plan.sources[number]
            same = tensor.lo == at and tensor.type.size == dst.type.size and same_elements(access, plan.dst)
            if (same and (not plan.folded or number == 1)) or (plan.workspace and number == len(sources) - 1):
                continue
            if overlapping(plan.dst.ranges, access.ranges, tensor.lo - at):
                dubious = True
                if frame is not None:
                    fact = f"dst from UB[{at}] and src{number} from UB[{tensor.lo}] on overlap in part"
                    remedy = "give the result bytes of its own, or exactly the source's"
                    self.found(frame, "illegal-overlap", plan.name, fact, remedy)
        return (plan.workspace and self._check_room(plan, sources, frame)) or dubious

    def _check_room(self, plan: VectorPlan, sources: Sequence[LocalTensor], frame: FrameType | None) -> bool:
        """Whether the work buffer lies over the source, which is read while the buffer is written."""
        source, room = sources
        shared = overlapping(plan.sources[0].ranges, plan.sources[1].ranges, room.lo - source.lo)
        if shared and frame is not None:
            fact = f"the work buffer from UB[{room.lo}] and src0 from UB[{source.lo}] on overlap"
            self.found(frame, "illegal-overlap", plan.name, fact, "give the work buffer bytes of its own")
        return shared


def _shadows(plan: VectorPlan, dst: LocalTensor, sources: Sequence[LocalTensor]) -> Any:
    """What a call finds in the shadow if all is in order, and what it leaves there."""
    read = [*zip(sources, plan.sources, strict=True), *([(dst, plan.dst)] if plan.in_place else ())]
    looks = [
        (each.lo + lo, run_of(VALID, hi - lo), run_of(each.owner, hi - lo) if each.owner else None)
        for each, access in read
        for lo, hi in access.ranges
    ]
    leaves = [
        (dst.lo + lo, dst.lo + hi, run_of(VALID, hi - lo), run_of(dst.owner, hi - lo)) for lo, hi in plan.dst.ranges
    ]
    return tuple(looks), tuple(leaves)


class NoNumber:
    """What was said for a number and is none: it is equal to no number, so that no cache takes it for one."""

    def __init__(self, said: Any) -> None:
        self._said = said

    def __repr__(self) -> str:
        return repr(self._said)


def in_ints(how: How) -> How:
    """The numbers of a call as ints, numpy's too; those that are none as `NoNumber`, which its plan refuses."""
    mask, repeats, params, *rest = how
    mask = tuple(map(_int, mask)) if isinstance(mask, list | tuple) else _int(mask)
    if isinstance(params, tuple):
        numbers = map(_int, params)
        params = type(params)(*numbers) if hasattr(params, "_fields") else tuple(numbers)
    return (mask, None if repeats is None else _int(repeats), params, *rest)


def _int(given: Any) -> Any:
    try:
        return NoNumber(given) if isinstance(given, bool) else index(given)
    except TypeError:
        return NoNumber(given)


def _names(sources: int) -> tuple[str, ...]:
    """How operands are called: the target, then the sources."""
    return ("dst", "src") if sources == 1 else ("dst", *(f"src{number}" for number in range(sources)))
