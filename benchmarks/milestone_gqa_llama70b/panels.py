"""What the four panels run: requests of Llama3-70B, and the kernels that attend them, laid out by the driver.

Every kernel of a panel is given the same requests on the same chip; only ports differ, a ring's from a mesh's, and the
references' slots, which their names tell.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_kernbench.kernels.ahbm import budget, driver
from pytest_kernbench.kernels.ahbm.budget import Budget
from pytest_kernbench.kernels.ahbm.driver import Launch, Problem
from pytest_kernbench.kernels.ahbm.flash_sweep import Depth, Rules
from pytest_kernbench.kernels.ahbm.gqa_ring import PIECE_BY_PIECE
from pytest_kernbench.kernels.ahbm.positions import Placement
from pytest_kernbench.kernels.ahbm.requests import Request
from pytest_kernbench.messages import chain_steps, reduction_rounds
from pytest_kernbench.simulator import AhbmChip, AhbmSpec
from pytest_kernbench.simulator.ops.log import OpLog

N = 8  # PEs of a cube
ITEMSIZE = 2  # bytes, of bfloat16
DECODE_TILE = 512  # of 256, 512 and 1024, the fastest at 8K over 8 PEs
BASELINE_DECODE_TILE = 1024  # likewise; more keys of K, V and scores do not fit the scratch
SLOT_TILE = 64  # a slot of 16 KiB holds 64 rows of K
MORE_SLOTS, AHEAD = 8, Depth(ahead=1)  # of the references: one product ahead, pieces of both zigzag spans together
PREFILL_TILE, PREFILL_BLOCK = 128, 32  # the fastest at 2K of those that fit
BASELINE_ROWS = 256  # of the queries' block in the prefill baseline; 512 do not fit

Launches = Iterator[tuple[AhbmChip, Launch]]


@dataclass(frozen=True)
class Sizes:
    """Llama3-70B: 8 query heads of 128 for each KV head, and of its 8 KV heads the first `cubes`, one a cube.

    `context` and `prompt` are the tokens of one user's decode and prefill; `users` share the chip in the other panels.
    Raises ValueError for sizes below 1, more cubes than KV heads, and requests shorter than `users`.
    """

    context: int = 8192
    prompt: int = 2048
    users: int = 4
    cubes: int = 1

    def __post_init__(self) -> None:
        if not (1 <= self.users <= min(self.context, self.prompt) and 1 <= self.cubes <= 8):
            raise ValueError(f"users is 1 up to the shorter of context and prompt, cubes is 1 to 8: {self}")

    def shares(self, longest: int) -> list[int]:
        """The lengths of the users' requests, from `longest` down in equal steps."""
        return [longest * left // self.users for left in range(self.users, 0, -1)]

    def requests(self, panel: str) -> list[Problem]:
        """What a panel attends, structure only."""
        longest = self.context if "decode" in panel else self.prompt
        lengths = self.shares(longest) if "multi" in panel else [longest]
        return [Problem(kv_len=length, t_q=1 if "decode" in panel else length, heads=self.cubes) for length in lengths]


@dataclass(frozen=True)
class Entry:
    """A kernel in a panel. `role` is new, baseline, or reference: shown beside them, and promised nothing.

    `launches` gives each launch with its chip; `rounds` counts those of one reduction in a launch's log, None where
    nothing is reduced. `note` says how it is launched.
    """

    kernel: str
    role: str
    launches: Callable[[Sequence[Problem]], Launches]
    note: str
    rounds: Callable[[OpLog], int] | None = None


def decode(problems: Sequence[Problem]) -> Launches:
    """All requests in one launch; request i begins at PE i mod N."""
    chip = AhbmChip()
    yield chip, driver.decode(chip, problems, N, tile=DECODE_TILE)


def baseline_decode(problems: Sequence[Problem], *, folded: bool) -> Launches:
    """A launch a request, with the same start_pe."""
    for number, problem in enumerate(problems):
        chip, together = AhbmChip(), problem.group if folded else 1
        launch = driver.baseline_decode(
            chip, problem, N, tile=BASELINE_DECODE_TILE, heads_together=together, start_pe=number % N
        )
        yield chip, launch


def trip(problems: Sequence[Problem], sharding: Placement, depth: Depth) -> int:
    """Query positions that go round the ring together: the most that fit the scratch, in eights.

    A striped block that lies across two pieces of keys sees part of both, which costs more than a smaller block: there,
    the most that divide a piece.
    """
    requests = [Request(each.kv_len, each.t_q, q_start=each.q_start) for each in problems]
    first, scratch = problems[0], AhbmSpec().scratch_bytes
    sizes = budget.Sizes(first.group, first.d, first.d_v, ITEMSIZE, SLOT_TILE, Rules(1.0), depth)
    blocks = [size for size in range(8, 2 * SLOT_TILE + 1, 8) if sharding != "striped" or SLOT_TILE % size == 0]
    return max(size for size in blocks if Budget.of_ring(requests, N, sharding, size, sizes).total <= scratch)


def ring(problems: Sequence[Problem], *, sharding: Placement) -> Launches:
    """All requests in one launch, each over the whole ring."""
    yield _ring(problems, AhbmSpec(), sharding, PIECE_BY_PIECE, interleave=False)


def ring_ahead(problems: Sequence[Problem], *, sharding: Placement) -> Launches:
    """The same on a chip with more slots."""
    spec = AhbmSpec(ipcq_slots=MORE_SLOTS)
    yield _ring(problems, spec, sharding, AHEAD, interleave=sharding == "zigzag")


def _ring(
    problems: Sequence[Problem], spec: AhbmSpec, sharding: Placement, depth: Depth, *, interleave: bool
) -> tuple[AhbmChip, Launch]:
    chip = AhbmChip(spec, ports=driver.ring_ports(N, problems[0].heads))
    launch = driver.ring_batch(
        chip, problems, N, tile=SLOT_TILE, q_block=trip(problems, sharding, depth), sharding=sharding, depth=depth,
        interleave=interleave, announce=_unsaid,
    )  # fmt: skip
    return chip, launch


def one_pe(problems: Sequence[Problem]) -> Launches:
    """All requests in one launch, on one PE of each cube."""
    chip = AhbmChip()
    yield chip, driver.prefill(chip, problems, tile=PREFILL_TILE, q_block=PREFILL_BLOCK, announce=_unsaid)


def _unsaid(budget: object) -> None:
    """The table has the scratch that is used."""


def baseline_prefill(problems: Sequence[Problem], *, folded: bool) -> Launches:
    """A launch a request."""
    for problem in problems:
        chip, together = AhbmChip(), problem.group if folded else 1
        launch = driver.baseline_prefill(
            chip, problem, N, tile=SLOT_TILE, q_block=BASELINE_ROWS // together, heads_together=together
        )
        yield chip, launch


SHARDINGS: tuple[Placement, ...] = ("striped", "zigzag")
ORIGINAL, FOLDED = "heads one by one", "heads together"
DECODE = (
    Entry("gqa_decode", "new", decode, f"tile {DECODE_TILE}, all requests in one launch", reduction_rounds),
    *(
        Entry(
            f"mesh_mlo, {name}", "baseline", partial(baseline_decode, folded=name == FOLDED),
            f"tile {BASELINE_DECODE_TILE}, a launch a request", chain_steps,
        )
        for name in (ORIGINAL, FOLDED)
    ),
)  # fmt: skip
PREFILL = (
    *(
        Entry(
            f"gqa_ring, {sharding}", "new", partial(ring, sharding=sharding),
            f"tile {SLOT_TILE}, all requests in one launch",
        )
        for sharding in SHARDINGS
    ),
    *(
        Entry(
            f"mesh_kv, {name}", "baseline", partial(baseline_prefill, folded=name == FOLDED),
            f"tile {SLOT_TILE}, blocks of {BASELINE_ROWS} rows, a launch a request",
        )
        for name in (ORIGINAL, FOLDED)
    ),
    *(
        Entry(
            f"gqa_ring, {sharding}, {MORE_SLOTS} slots", "reference", partial(ring_ahead, sharding=sharding),
            f"another chip: {MORE_SLOTS} slots a direction in place of {AhbmSpec().ipcq_slots}, for one piece ahead"
            + (" and pieces of both spans together" if sharding == "zigzag" else ""),
        )
        for sharding in SHARDINGS
    ),
)  # fmt: skip
ONE_PE = Entry(
    "gqa_prefill, 1 PE", "reference", one_pe, f"tile {PREFILL_TILE}, blocks of {PREFILL_BLOCK} positions, one PE of 8"
)

PANELS: dict[str, tuple[Entry, ...]] = {
    "single-user decode": DECODE,
    "multi-user decode": DECODE,
    "single-user prefill": (*PREFILL, ONE_PE),
    "multi-user prefill": PREFILL,
}


def entry(panel: str, kernel: str) -> Entry:
    """The entry of that name."""
    return next(each for each in PANELS[panel] if each.kernel == kernel)
