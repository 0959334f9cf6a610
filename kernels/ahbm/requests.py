"""What a launch is asked to attend: one request of a batch, with its place in the tensors. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_kernbench.kernels.ahbm.flash_sweep import Layout
from pytest_kernbench.kernels.ahbm.placement import check_whole
from pytest_kernbench.simulator.ahbm.tl import Pointer


@dataclass(frozen=True)
class Request:
    """`t_q` queries against `kv_len` cached tokens, the queries' own included (R14).

    Its queries are tokens `q_row`, `q_row + 1`, ... of Q and O; its keys begin at row `kv_row` of every PE's caches.
    `q_start` is the position of its first query; without it the queries are the last tokens (bottom-right, B-46).
    """

    kv_len: int
    t_q: int = 1
    start_pe: int = 0
    q_row: int = 0
    kv_row: int = 0
    q_start: int | None = None

    def __post_init__(self) -> None:
        for name in ("kv_len", "t_q", "start_pe", "q_row", "kv_row", "q_start"):
            value = getattr(self, name)
            if value is not None or name != "q_start":
                check_whole(name, value)
        if self.t_q < 1 or min(self.kv_len, self.q_row, self.kv_row) < 0:
            raise ValueError(f"t_q counts from 1; kv_len, q_row and kv_row from 0: {self}")

    @property
    def first(self) -> int:
        """The position of the first query; negative if there are more queries than tokens: those see nothing."""
        return self.kv_len - self.t_q if self.q_start is None else self.q_start


def check_heads(q: Pointer, heads: int, layout: Layout) -> None:
    """Raise ValueError unless the heads that a launch attends for, on all its cubes, divide those that Q has."""
    axis = 0 if layout == "head" or len(q.shape) == 2 else 1
    if len(q.shape) not in (2, 3) or q.shape[axis] % heads:
        raise ValueError(
            f"Q is {q.shape} with layout {layout!r}, the launch attends for {heads} query heads, which do not divide "
            "them: give every cube the heads of its KV head, group of them"
        )


def tokens_of(q: Pointer, layout: Layout) -> int:
    """How many tokens Q has beside its heads: a tensor of two axes has one."""
    if len(q.shape) == 2:
        return 1
    return q.shape[1 if layout == "head" else 0]
