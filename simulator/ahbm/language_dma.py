"""`tl`'s moves between HBM and scratch: lazy load, ref, asynchronous store (ADR-0062). PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_kernbench.simulator.ahbm.handles import Block, Handle, Pointer
from pytest_kernbench.simulator.ahbm.speech import OWN_FILES, Speech
from pytest_kernbench.simulator.memory.space import covers
from pytest_kernbench.simulator.ops.log import NONE
from pytest_kernbench.simulator.ops.op import Op

OWN_FILES.add(__file__)


class DmaOps(Speech):
    """What the DMA units do on the kernel's behalf."""

    def load(
        self, ptr: Pointer, shape: tuple[int, ...], strides: tuple[int, ...] | None = None, *,
        out: Handle | None = None,
    ) -> Handle:  # fmt: skip
        """Bring `shape` elements at `ptr` to scratch. Returns at once; the first use waits (ADR-0062).

        `strides` count elements; without them the block is dense and row-major. `out` is what to overwrite, a handle of
        that shape and of the tensor's dtype; nobody may read it any more.
        """
        site = self._site()
        block = self._block(site, "load", ptr, shape, strides)
        handle = self._result(out, block.shape, ptr.dtype, "load", site)
        if handle.dtype != ptr.dtype or handle.transposed:
            seen = "transposed" if handle.transposed else str(handle.dtype)
            fact = f"{ptr.allocation.name} is {ptr.dtype}, out= is {seen}"
            self._refuse(
                site, "bad-parameter", "load", fact, "DMA moves bytes as they are: give an out= like the block"
            )
        handle.axes = block.axes
        op = self._transfer("load", "read", self._pe.dma_read, block, block.regions(), handle.regions, site)
        if self._data:
            op.compute, op.sources, op.target = np.array, (block.array(),), handle.array()
        self._post(op)
        handle.op, handle.completion = op, False
        self._note_scoped(handle)
        return handle

    def ref(self, ptr: Pointer, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Block:
        """Name `shape` elements at `ptr` for a composite to stream; nothing moves now."""
        return self._block(self._site(), "ref", ptr, shape, strides)

    def store(self, ptr: Pointer, h: Handle, strides: tuple[int, ...] | None = None) -> Op:
        """Write `h` to HBM at `ptr`, cast to the tensor's dtype. Asynchronous: wait for what it returns."""
        site = self._site()
        self._use(h, self._pe.dma_write, "store", site)
        block = self._block(site, "store", ptr, h.shape, strides)
        op = self._transfer("store", "write", self._pe.dma_write, block, h.regions, block.regions(), site)
        if self._data:
            dtype = ptr.dtype
            op.compute, op.sources, op.target = (lambda values: values.astype(dtype)), (h.array(),), block.array()
        self._post(op)
        if h.readers is not None:
            h.readers.append(op)
        return op

    def _transfer(self, name: str, kind: str, unit: Any, block: Block, reads: Any, writes: Any, site: int) -> Op:
        pointer = block.pointer
        burst, byte = self._timing.spec.burst_bytes, pointer.byte
        ranges = covers(block.shape, block.strides, pointer.dtype.itemsize)
        charged = sum(-(-(byte + hi) // burst) * burst - (byte + lo) // burst * burst for lo, hi in ranges)
        peer = pointer.program if pointer.pe != self._pe.number else NONE
        op = self._op(
            name, unit, site, reads, writes, size=sum(hi - lo for lo, hi in ranges), charged=charged,
            shape=self._log.shapes.id(block.shape), peer=peer, runs=len(ranges),
        )  # fmt: skip
        op.occupancy, op.route = self._timing.dma(kind, self._pe.number, pointer.pe, len(ranges), charged)
        return op

    def _note_scoped(self, handle: Handle) -> None:
        """Remember what is in flight into the innermost scope."""
        if self._pe.scoped:
            self._pe.scoped[-1].append(handle)
