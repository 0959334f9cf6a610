"""Named tensors in the chip's HBM, and the parts of them that programs see. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_kernbench.simulator import arguments
from pytest_kernbench.simulator.ahbm.handles import Axes
from pytest_kernbench.simulator.errors import LaunchError
from pytest_kernbench.simulator.memory.dtypes import POISON, Array, DType, uint8
from pytest_kernbench.simulator.memory.layout import ROW_MAJOR, RowMajor

if TYPE_CHECKING:
    from pytest_kernbench.simulator.ahbm.chip import AhbmChip

Program = tuple[int, int]  # (cube, rank in the cube)


class Tensor:
    """A tensor in HBM; `shape` is one part's.

    `place`: "local" (a part of its own for each program, in its slice), "replicate" (the same in each slice), or a rank
    (one part a cube, in that program's slice). Rows behind `valid` mean nothing: they are poisoned and tracked.
    """

    def __init__(
        self, chip: AhbmChip, name: str, shape: tuple[int, ...], dtype: DType, place: str | int, axes: Axes,
        offset: int, layout: RowMajor = ROW_MAJOR,
    ) -> None:  # fmt: skip
        self.chip = chip
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.place = place
        self.layout = layout
        self.stored = layout.stored(shape)  # the shape in memory, and its axes
        self.axes = layout.axes(axes)
        self.offset = offset  # byte of every slice it is in
        self.valid: Array | None = None  # of no axis, of ranks, or of cubes and ranks
        self.data: Array | None = None
        self.homes: set[Program] = set()  # where its data has been put
        self.written: dict[
            Program, tuple[bool, Any]
        ] = {}  # by home, after a run: whether all of it is valid, or what is

    @property
    def nbytes(self) -> int:
        """Bytes of one part."""
        return math.prod(self.stored) * self.dtype.itemsize

    @property
    def has_tail(self) -> bool:
        """Whether bytes of it may lie behind its logical length."""
        return self.valid is not None or math.prod(self.stored) > math.prod(self.shape)

    def limit(self, valid: object) -> None:
        """Only so many rows mean something. Raises LaunchError unless they are rows the tensor has."""
        rows = arguments.array(f"tensor {self.name!r}: valid", valid)
        fits = rows.dtype.kind in "iu" and rows.ndim <= 2 and rows.size > 0
        if not fits or rows.min() < 0 or rows.max() > self.shape[0]:
            raise LaunchError(
                f"tensor {self.name!r}: valid {valid!r} wants rows 0..{self.shape[0]}, a whole number or one a rank or "
                "(cube, rank)"
            )
        self.valid = rows

    def give(self, given: object) -> None:
        """Take the host's data. Raises LaunchError if its shape does not fit the place, or a value not the dtype."""
        data = arguments.array(f"tensor {self.name!r}: data", given)
        lead = data.shape[: max(data.ndim - len(self.shape), 0)]
        local = self.place == "local"
        if data.shape[len(lead) :] != self.shape or (len(lead) not in (1, 2) if local else len(lead) != 0):
            part = ", ".join(map(str, self.shape))
            wanted = f"(ranks, {part}) or (cubes, ranks, {part})" if local else f"({part})"
            raise LaunchError(f"tensor {self.name!r}: data is {data.shape}, place {self.place!r} wants {wanted}")
        if not np.can_cast(data.dtype, self.dtype):
            self._check_held(data)
        self.data = data[None] if local and len(lead) == 1 else data

    def _check_held(self, data: Array) -> None:
        """No value becomes another when it is stored: rounding is right, wrapping and overflow are not."""
        with np.errstate(all="ignore"):
            held = data.astype(self.dtype)
            lost = held != data if self.dtype == uint8 else np.isinf(held) & np.isfinite(data)
        if lost.any():
            index = tuple(map(int, np.argwhere(lost)[0]))
            raise LaunchError(
                f"tensor {self.name!r}: data{list(index)} is {data[index]}, which {self.dtype} makes {held[index]}; "
                "give values it holds, or another dtype"
            )

    def home(self, program: Program) -> Program:
        """Where the part is that `program` sees."""
        return program if isinstance(self.place, str) else (program[0], self.place)

    def part(self, home: Program) -> Array | None:
        """The host's data for `home`, or None. Raises LaunchError if the data has no such part."""
        if self.data is None or self.place != "local":
            return self.data
        cube, rank = home
        if cube >= self.data.shape[0] or rank >= self.data.shape[1]:
            raise LaunchError(
                f"tensor {self.name!r} has data for {self.data.shape[0]} cubes x {self.data.shape[1]} ranks, "
                f"the launch has rank {rank} of cube {cube}: launch a smaller grid or give more parts"
            )
        found: Array = self.data[cube, rank]
        return found

    def valid_rows(self, home: Program) -> int:
        """Rows of the part at `home` that mean something."""
        if self.valid is None:
            return self.shape[0]
        index = home[2 - self.valid.ndim :]
        if any(at >= size for at, size in zip(index, self.valid.shape, strict=True)):
            raise LaunchError(
                f"tensor {self.name!r}: valid has shape {self.valid.shape}, the launch has rank {home[1]} of cube "
                f"{home[0]}: launch a smaller grid or give more numbers"
            )
        return int(self.valid[index])

    def put(self, home: Program, view: Array) -> None:
        """Write the host's data to `view` of the part's memory, poison behind the valid rows."""
        part = self.part(home)
        if part is not None and home not in self.homes:
            self.homes.add(home)
            values = part.astype(self.dtype, order="C")
            values[self.valid_rows(home) :].view(np.uint8)[...] = POISON
            view[...] = self.layout.arrange(values)

    def __repr__(self) -> str:
        return f"<tensor {self.name} {self.shape} {self.dtype} at {self.place}>"
