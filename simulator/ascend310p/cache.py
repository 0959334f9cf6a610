"""The scalar unit's data cache in front of GM: which lines it has, and, if it is private, what is in them.

`coherent` is a matter of time only. `private` (facts 2.7): a store stays in its line until the line is cleaned, a load
may find what the line had; both are `stale-cache` where somebody relies on the other. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

from pytest_kernbench.simulator.ascend310p.spec import Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.tensors import GlobalTensor, Tensor
from pytest_kernbench.simulator.memory.dtypes import Array

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ascend310p.speech import Speech


class ScalarCache:
    """Lines by number, the oldest leaves first. `private`: with contents of their own."""

    def __init__(self, spec: Ascend310pSpec) -> None:
        self._line = spec.cache_line_bytes
        self._most = spec.cache_lines
        self._lines: dict[int, None] = {}
        self.private = spec.scalar_cache == "private"
        self._contents: dict[int, tuple[Tensor, Array]] = {}  # by base of the host's tensor: what the cache sees
        self._dirty: dict[int, Tensor] = {}  # lines with stores in them
        self._outdated: set[int] = set()  # lines whose bytes in GM a DMA has changed since
        self.stored: dict[int, int] = {}  # lines that were stored to, each with a row of it

    def touch(self, address: int) -> bool:
        """Have the line of `address`; whether it was there already."""
        line = address // self._line
        if line in self._lines:
            return True
        if len(self._lines) >= self._most:
            oldest = next(iter(self._lines))
            del self._lines[oldest]
            self._clean(oldest)
        self._lines[line] = None
        return False

    # Contents of a private cache

    def cells_to_load(self, asc: Speech, tensor: GlobalTensor, lo: int, hit: bool, frame: FrameType) -> Any:
        """The elements that a load of address `lo` looks at."""
        if not self.private:
            return tensor.cells
        line = lo // self._line
        if hit and line in self._outdated:
            fact = (
                f"the line of byte {lo - _host(tensor).base} of {_host(tensor).name} was cached before a DMA wrote it"
            )
            asc.found(frame, "stale-cache", "GetValue", fact, "DataCacheCleanAndInvalid the tensor after MTE3_S")
        if tensor.cells is None:
            return None
        self._bring(asc, _host(tensor), line, fill=not hit)
        return self._view(tensor)

    def cells_to_store(self, asc: Speech, tensor: GlobalTensor, lo: int) -> Any:
        """The elements that a store to address `lo` writes."""
        if not self.private:
            return tensor.cells
        line = lo // self._line
        if tensor.cells is not None:
            self._bring(asc, _host(tensor), line, fill=line not in self._dirty)
        self._dirty[line] = _host(tensor)
        self.stored.setdefault(line, len(asc.log))
        return None if tensor.cells is None else self._view(tensor)

    def _view(self, tensor: GlobalTensor) -> Array:
        host = _host(tensor)
        start = tensor.lo - host.base
        _, contents = self._contents[host.base]
        return contents[start : start + tensor.size * tensor.type.size].view(tensor.type.numpy)

    def _bring(self, asc: Speech, host: Tensor, line: int, fill: bool) -> None:
        _, contents = self._contents.setdefault(host.base, (host, host.bytes.copy()))
        if fill:
            asc.core.effects.load(asc.core.now, host.bytes, 0, 0, 0)  # let GM come to where S is
            lo, hi = self._span(host, line)
            contents[lo:hi] = host.bytes[lo:hi]
            self._outdated.discard(line)

    def _span(self, host: Tensor, line: int) -> tuple[int, int]:
        lo = line * self._line - host.base
        return max(lo, 0), min(lo + self._line, host.nbytes)

    def _clean(self, line: int) -> None:
        """Write a line with stores back to GM."""
        host = self._dirty.pop(line, None)
        if host is not None and host.base in self._contents:
            lo, hi = self._span(host, line)
            host.bytes[lo:hi] = self._contents[host.base][1][lo:hi]
        self._outdated.discard(line)

    def clean(self, tensor: GlobalTensor | None = None, whole: bool = True) -> None:
        """DataCacheCleanAndInvalid: of the line a tensor starts in, or of all."""
        lines = list(self._lines) if whole or tensor is None else [tensor.lo // self._line]
        for line in lines:
            self._clean(line)
            self._lines.pop(line, None)

    # What a DMA meets

    def dma_reads(self, asc: Speech, host: Tensor, spans: Any, frame: FrameType) -> None:
        """A DMA reads GM, where this core's stores may not have arrived."""
        for line in self._among(self._dirty, spans):
            fact = f"bytes {line * self._line - host.base} on of {host.name} have a SetValue that is still in the cache"
            asc.found(frame, "stale-cache", "DataCopy", fact, "DataCacheCleanAndInvalid the tensor before S_MTE2")
            return

    def dma_writes(self, spans: Any) -> None:
        self._outdated.update(self._among(self._lines, spans))

    def _among(self, lines: Any, spans: Any) -> list[int]:
        size = self._line
        return [line for line in lines if any(lo < (line + 1) * size and line * size < hi for lo, hi in spans)]


def _host(tensor: GlobalTensor) -> Tensor:
    assert tensor.tensor is not None
    return tensor.tensor
