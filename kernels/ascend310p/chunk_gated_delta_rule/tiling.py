"""Host tiling of `chunk_gated_delta_rule`: how wide a tile of V is, how many blocks, how the core's UB is shared out.

Every number is a closed formula of the shape; the device counts its slices by itself (`carving`), and a test holds the
two against each other. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from dataclasses import dataclass

CHUNK = 64  # tokens; a constant of the host's, no attribute
FP16_BYTES, FP32_BYTES = 2, 4
FP16_NUM_PER_BLOCK, FP32_NUM_PER_BLOCK = 16, 8  # elements of a block of 32 bytes
UB_BYTES = 262_144
AIV_CORES = 8
WORKSPACE_BYTES = 32 * 1024 * 1024  # what the runtime wants at least
BUFFER_NUM = 1


def ceil_to(number: int, multiple: int) -> int:
    """`number` rounded up to a multiple."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Shape:
    """Sizes of one call: sequences of `lengths` tokens, `hk` query and key heads of `dk`, `hv` value heads of `dv`.

    Raises ValueError for a size below 1, or no sequence at all. What a launch asks beyond that is `host.checked`'s.
    """

    lengths: tuple[int, ...]
    hk: int
    hv: int
    dk: int
    dv: int

    def __post_init__(self) -> None:
        for name in ("hk", "hv", "dk", "dv"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it counts from 1")
        if not self.lengths:
            raise ValueError("lengths is empty: give the tokens of each of at least 1 sequence")

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(self.lengths)


@dataclass(frozen=True)
class Tiling:
    """What the host tells the kernel, bytes and elements; `shape` is what it was made for.

    `overlap`: scores and state lie in the same bytes of UB, since a core does one tile of V of an item.
    """

    shape: Shape
    chunk: int
    v_step: int
    overlap: bool
    buffer_num: int
    out_queue_bytes: int  # of one buffer
    tmp_bytes: int  # of the slices, which lie in ub_rest_bytes
    ub_rest_bytes: int
    block_dim: int
    state_bytes: int  # of the float32 state between chunks, in the workspace
    workspace_bytes: int

    @property
    def tiles(self) -> int:
        """Tiles of V that a head has."""
        return -(-self.shape.dv // self.v_step)

    @property
    def used_bytes(self) -> int:
        """UB that slices and queue take."""
        return self.tmp_bytes + self.buffer_num * self.out_queue_bytes


def tiling(
    shape: Shape, *, ub: int = UB_BYTES, cores: int = AIV_CORES, buffer_num: int = BUFFER_NUM, chunk: int = CHUNK,
    apart: bool = False,
) -> Tiling:  # fmt: skip
    """The tiling with the widest tile of V that fits into `ub` bytes (facts 1 and 8).

    Candidates go from ceil16(dv) down by 16. The slices get all of UB that the queue leaves. The public host's `chunk`
    is 64 always. `apart`: scores and state never share bytes, for a state that stays. Raises ValueError if not even 16
    columns fit, with the bytes they take and those there are; for cores or buffers below 1, and a chunk that is not a
    multiple of 8 up to 64.
    """
    if cores < 1 or buffer_num < 1:
        raise ValueError(f"cores is {cores}, buffer_num is {buffer_num}: both count from 1")
    if chunk % FP32_NUM_PER_BLOCK or not 0 < chunk <= CHUNK:
        raise ValueError(
            f"chunk is {chunk}: rows of the matrices are whole blocks, so give a multiple of 8 up to {CHUNK}"
        )
    for v_step in range(ceil_to(shape.dv, FP16_NUM_PER_BLOCK), 0, -FP16_NUM_PER_BLOCK):
        plan = tiling_of_step(shape, v_step, ub=ub, cores=cores, buffer_num=buffer_num, chunk=chunk, apart=apart)
        if plan.used_bytes <= ub:
            return plan
    raise ValueError(
        f"dk {shape.dk}, dv {shape.dv}, hv {shape.hv}: a tile of {FP16_NUM_PER_BLOCK} columns takes {plan.used_bytes} "
        f"bytes of UB, which has {ub}; only a smaller dk takes less"
    )


def tiling_of_step(
    shape: Shape, v_step: int, *, ub: int = UB_BYTES, cores: int = AIV_CORES, buffer_num: int = BUFFER_NUM,
    chunk: int = CHUNK, apart: bool = False,
) -> Tiling:  # fmt: skip
    """The tiling with tiles of `v_step` columns, a multiple of 16, whether it fits or not."""
    queue = out_queue_bytes(shape, v_step, chunk)
    tiles = -(-shape.dv // v_step)
    items = shape.hv * tiles if shape.hv < cores and tiles > 1 else shape.hv
    overlap = overlap_allowed(shape, v_step, cores) and not apart
    state = shape.batch * shape.hv * shape.dk * ceil_to(shape.dv, FP32_NUM_PER_BLOCK) * FP32_BYTES
    return Tiling(
        shape, chunk, v_step, overlap, buffer_num, queue, tmp_bytes(shape, v_step, overlap, chunk),
        ub - buffer_num * queue, min(items, cores), state, max(WORKSPACE_BYTES, state),
    )  # fmt: skip


def overlap_allowed(shape: Shape, v_step: int, cores: int) -> bool:
    """Whether scores are dead when the state is loaded: one tile covers V, or tiles are dealt to the cores."""
    return v_step >= shape.dv or shape.hv < cores


def out_queue_bytes(shape: Shape, v_step: int, chunk: int = CHUNK) -> int:
    """One buffer of the queue out, in half: a tile of the final state, or of a chunk's outputs."""
    rows = max(ceil_to(shape.dk, FP32_NUM_PER_BLOCK), chunk)
    return rows * ceil_to(v_step, FP32_NUM_PER_BLOCK) * FP16_BYTES


def tmp_bytes(shape: Shape, v_step: int, overlap: bool, chunk: int = CHUNK) -> int:
    """All slices of the hand-carved buffer, float32."""
    align_k, stride_k = ceil_to(shape.dk, FP16_NUM_PER_BLOCK), ceil_to(shape.dk, FP32_NUM_PER_BLOCK)
    columns = ceil_to(v_step, FP32_NUM_PER_BLOCK)
    scores, state = chunk * chunk, stride_k * columns
    shared = max(scores, state) if overlap else scores + state
    keys, mask, values = 2 * chunk * align_k, chunk * chunk, 2 * chunk * columns
    rows = 2 * chunk + max(stride_k, chunk, columns) + max(stride_k, chunk)
    return (keys + mask + values + shared + rows) * FP32_BYTES
