"""What every `tl` call shares: the kernel's source line, refusals, rows of the log, posting, waiting, scratch.

A row's issue cost is paid right before its issue, and every effect is posted to the loop at that cycle.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_kernbench.simulator import arguments
from pytest_kernbench.simulator.ahbm import handles
from pytest_kernbench.simulator.ahbm.handles import Block, Handle, Pointer
from pytest_kernbench.simulator.engine.loop import Kernel, Token
from pytest_kernbench.simulator.errors import Hazard, KernelError, LaunchError
from pytest_kernbench.simulator.memory.dtypes import DType, dtype_named
from pytest_kernbench.simulator.memory.scratch import Scratch
from pytest_kernbench.simulator.memory.space import Region
from pytest_kernbench.simulator.ops.log import AFTER, END, NONE, WIDTH, pack_operand
from pytest_kernbench.simulator.ops.op import Op, involved

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.launch import Launch, Pe

# Each module of the language adds itself; frames outside are the author's.
OWN_FILES: set[str] = {__file__, handles.__file__}
Shape = tuple[int, ...]


class Speech:
    """One running kernel's side of the device."""

    def __init__(self, launch: Launch, pe: Pe, kernel: Kernel) -> None:
        self._launch = launch
        self._pe = pe
        self._kernel = kernel
        self._log = launch.log
        self._place = launch.log.places.id
        self._sim = launch.sim
        self._probes = launch.sim.probes
        self._observers = launch.sim.probes.issue
        self._timing = launch.timing
        self._data = launch.data
        self._cpu = launch.log.units.id("CPU")
        self._wait_name = launch.log.names.id("wait")
        self._region = 0
        self._count = 0
        self._scratch: Scratch = pe.scratch
        self._costs: dict[str, int] = {}

    # Where, and refusals

    def _site(self) -> int:
        """The author's line that is being carried out."""
        sim = self._sim
        sim.calls_left -= 1
        frame = sys._getframe(2)
        while (code := frame.f_code).co_filename in OWN_FILES:
            frame = frame.f_back  # type: ignore[assignment]  # the launch's own frame ends the search at the latest
        site = self._place((code, frame.f_lasti))
        if sim.calls_left < 0 or self._kernel.now > sim.max_cycles:
            sim.stop_endless(self._kernel, self._log.site(site))
        return site

    def _refuse(self, site: int, kind: str, call: str, fact: str, remedy: str, ops: tuple[Op, ...] = ()) -> NoReturn:
        """End the run with what was said, where, the fact with both numbers, and what to do."""
        where = self._log.site(site)
        said = f"tl.{call}" if call.isidentifier() else call
        message = f"{said} of {self._kernel.name} at {where}: {fact}; {remedy}"
        about = tuple(involved(op, next(iter(op.writes), None), self._log.site(op.site)) for op in ops)
        raise KernelError(Hazard(kind, message, about, replay=self._launch.replay))

    def _refuse_operator(self, said: str, fact: str, remedy: str) -> NoReturn:
        """Refuse what Python does with a handle or a pointer without a `tl` call."""
        self._refuse(self._site(), "bad-parameter", said, fact, remedy)

    def _found(self, kind: str, message: str) -> None:
        """Note a finding and go on."""
        self._launch.findings.append(Hazard(kind, message, replay=self._launch.replay))

    def _shape(self, site: int, call: str, given: Any) -> Shape:
        shape = arguments.shape(given)
        if shape is None:
            remedy = f"give a tuple of 1 to {arguments.MOST_AXES} whole numbers > 0"
            self._refuse(site, "bad-parameter", call, f"shape {given!r} is not one", remedy)
        return shape

    def _strides(self, site: int, call: str, given: Any, shape: Shape) -> Shape:
        strides = arguments.wholes(given)
        if strides is None or len(strides) != len(shape) or min(strides) < 0:
            fact = f"strides {given!r} do not fit shape {shape}"
            self._refuse(site, "bad-parameter", call, fact, "give one whole number of elements >= 0 an axis")
        return strides

    def _dtype(self, site: int, call: str, dtype: object) -> DType:
        try:
            return dtype_named(dtype)
        except LaunchError as error:
            self._refuse(site, "bad-parameter", call, str(error), "name one of these")

    def _block(self, site: int, call: str, pointer: Any, shape: Any, strides: Any) -> Block:
        """The block of HBM that a call names, inside its tensor."""
        if not isinstance(pointer, Pointer):
            self._refuse(
                site, "bad-parameter", call, f"got a {type(pointer).__name__}", "pass a pointer: a tensor + elements"
            )
        if pointer.tl._launch is not self._launch:
            self._refuse(site, "bad-parameter", call, f"{pointer!r} is of an earlier run", "use this run's arguments")
        shape = self._shape(site, call, shape)
        block = Block(pointer, shape, None if strides is None else self._strides(site, call, strides, shape))
        if pointer.offset < 0 or block.last >= pointer.size:
            fact = f"elements {pointer.offset}..{block.last} of {pointer.allocation.name}, which has {pointer.size}"
            self._refuse(
                site, "out-of-bounds", call, fact, "check the offset (it counts elements) and the tile's width"
            )
        if strides is not None:  # without them a block is dense, and has no rows of its tensor's to overrun
            self._within_rows(site, call, block)
        align = self._timing.spec.dma_align_bytes
        if pointer.byte % align:
            fact = (
                f"byte {pointer.byte - pointer.allocation.lo} of {pointer.allocation.name} is not a multiple of {align}"
            )
            self._refuse(site, "misaligned", call, fact, "start at an aligned element or pad the rows")
        return block

    def _within_rows(self, site: int, call: str, block: Block) -> None:
        """A part of each row, row by row, does not run over the end of one row into the next."""
        pointer, item = block.pointer, block.pointer.dtype.itemsize
        row = pointer.row
        if len(block.shape) != 2 or row <= 1 or block.strides[1] != item or block.strides[0] % (row * item):
            return
        first = pointer.offset % row
        if block.shape[0] > 1 and block.strides[0] and block.shape[1] <= row < first + block.shape[1]:
            fact = f"columns {first}..{first + block.shape[1] - 1} of {pointer.allocation.name}, whose rows have {row}"
            self._refuse(site, "out-of-bounds", call, fact, "give the last tile of a row its exact width")

    # Rows and posting

    def _pay(self, name: str) -> None:
        cost = self._costs.get(name)
        if cost is None:
            cost = self._costs[name] = self._timing.issue_cycles(name)
        self._kernel.now += cost

    def _open(
        self, name: str, unit: int, site: int, reads: tuple[Region, ...] = (), writes: tuple[Region, ...] = (), *,
        size: int = 0, charged: int = 0, work: int = 0, shape: int = NONE, after: int = NONE, peer: int = NONE,
        message: int = NONE, runs: int = 0, start: int = NONE, end: int = NONE,
    ) -> int:  # fmt: skip
        """A row of the log, issued now; whoever knows its end later writes it there."""
        log, operands = self._log, self._log.operand_cells
        first = len(operands) // 3
        for allocation, lo, hi in reads + writes:
            operands.frombytes(pack_operand(allocation.label, lo - allocation.base, hi - lo))
        return log.open((
            log.names.id(name), unit, self._kernel.program, self._kernel.now, start, start, end, size, charged, work,
            shape, first, len(reads), len(writes), after, peer, message, NONE, self._region, site, NONE, runs,
        ))  # fmt: skip

    def _key(self) -> int:
        self._count += 1
        return self._kernel.key | self._count

    def _op(
        self, name: str, unit: Any, site: int, reads: tuple[Region, ...], writes: tuple[Region, ...], **cells: int
    ) -> Op:
        """Say `name` to `unit`: pay, open its row, make the op. The caller fills it in and posts it."""
        self._pay(name)
        row = self._open(name, unit.kind, site, reads, writes, **cells)
        op = Op(name, self._kernel, unit, self._key(), row, site, self._kernel.now)
        op.reads, op.writes = reads, writes
        return op

    def _post(self, op: Op) -> None:
        """Tell the observers, and the unit at the cycle of the issue."""
        self._announce(op)
        self._sim.at(self._kernel.now, op.key, op.unit.submit, op)

    def _announce(self, op: Op) -> None:
        """Tell the observers that an op was said."""
        for observe in self._observers:
            observe(op)

    # Waiting

    def _wait_op(self, op: Op, site: int, why: str) -> None:
        """Go on when `op` has ended, knowing it; a row of the log."""
        self._pay("wait")
        row = self._open("wait", self._cpu, site, after=op.row, start=self._kernel.now)
        self._kernel.wait(op, why)
        self._log.cells[row * WIDTH + END] = self._kernel.now
        self._learn(op)

    def _wait_arrival(self, token: Token, row: int, why: str) -> Op | None:
        """Go on when a message or a credit has arrived; fill in the row that says so."""
        self._kernel.wait(token, why)
        op: Op | None = token.op  # type: ignore[attr-defined]
        self._log.cells[row * WIDTH + END] = self._kernel.now
        if op is not None:
            self._log.cells[row * WIDTH + AFTER] = op.row
            self._learn(op)
        return op

    def _learn(self, op: Op) -> None:
        op.awaited = True
        for observe in self._probes.wake:
            observe(self._kernel, op)

    # Operands and scratch

    def _use(self, handle: Any, unit: Any, call: str, site: int) -> None:
        """`unit` is about to read `handle`: it must be alive, and is waited for if another unit still makes it."""
        if not isinstance(handle, Handle):
            self._refuse(
                site, "bad-parameter", call, f"got a {type(handle).__name__}", "pass a handle of data on chip (tl.load)"
            )
        self._here(handle, call, site)
        op = handle.op
        if op is not None and op.unit is not unit and not op.awaited and not handle.completion:
            self._wait_op(op, site, f"its operand, {op.name} of row {op.row}")

    def _here(self, handle: Handle, call: str, site: int) -> None:
        """`handle` is this kernel's, has arrived, and is alive."""
        if handle.tl is not self:
            fact = f"{handle!r} is another kernel's or another run's"
            self._refuse(site, "bad-parameter", call, fact, "send it: a PE reaches only its own scratch and slots")
        if handle.message is not None:
            fact = "the message of a recv_async is used before it was waited for"
            self._refuse(site, "race-raw", call, fact, "tl.wait(handle) first")
        if not handle.allocation.alive:
            self._refuse_dead(handle, call, site)

    def _refuse_dead(self, handle: Handle, call: str, site: int) -> NoReturn:
        made = "" if handle.op is None else f", made by {handle.op.name} at {self._log.site(handle.op.site)},"
        what = "its scratch_scope was left" if handle.channel is None else "its message slot was released"
        if handle.allocation.ended is not None:
            what += f" at {self._log.site(handle.allocation.ended)}"
        fact = f"a handle {handle.shape} {handle.dtype}{made} is used after {what}"
        remedy = "keep state that outlives a scope outside it: allocate it before and write it with tl.assign or out="
        if handle.channel is not None:
            remedy = "release a slot after its last use, or copy what is needed later"
        self._refuse(site, "use-after-recycle", call, fact, remedy, (handle.op,) if handle.op else ())

    def _allocate(self, shape: Shape, dtype: DType, call: str, site: int) -> Handle:
        """Scratch for a result, or the refusal that says how full it is."""
        handle = Handle(self, shape, dtype)  # type: ignore[arg-type]
        size = handle.size * dtype.itemsize
        allocation = self._scratch.allocate(size)
        if allocation is None:
            fact = (
                f"scratch of {self._kernel.name} holds {self._scratch.space.capacity} bytes, "
                f"{self._scratch.top} are taken, {size} more were asked for ({shape} {dtype})"
            )
            self._refuse(
                site, "capacity", call, fact, "use a smaller tile or put per-tile data in a tl.scratch_scope()"
            )
        handle.place(allocation)
        return handle

    def _result(self, out: Handle | None, shape: Shape, dtype: DType, call: str, site: int) -> Handle:
        """`out` if it fits the result, else new scratch."""
        if out is None:
            return self._allocate(shape, dtype, call, site)
        if not isinstance(out, Handle):
            self._refuse(site, "bad-parameter", call, f"out= is a {type(out).__name__}", "pass a handle")
        self._here(out, call, site)
        if out.shape != shape:
            fact = f"the result is {shape}, out= is {out.shape}"
            self._refuse(site, "bad-parameter", call, fact, "give an out= of the result's shape")
        return out
