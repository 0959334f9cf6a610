"""Counts of the delta rule's kernel against the published tables and against a walk through its flow."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_kernbench.kernels.reference.delta_rule_work import Chunk, Work, operator_work, sequence_chunks

SIZES = st.integers(1, 9).map(lambda blocks: 16 * blocks)  # all that dk, dv and v_step may be, up to 144
CHUNKS = st.builds(
    Chunk,
    length=st.integers(1, 8),
    dk=SIZES,
    dv=SIZES,
    v_step=SIZES,
    first=st.booleans(),
    last=st.booleans(),
)
REAL = Chunk(length=64, dk=128, dv=128, v_step=128)


class Walk:
    """The kernel's flow, phase by phase, one count at each instruction, flag and access."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk, self.n = chunk, Counter[str]()
        self.keys()
        self.scores()
        for at in range(0, chunk.dv, chunk.v_step):
            self.values(min(chunk.v_step, chunk.dv - at))

    def keys(self) -> None:
        length, dk = self.chunk.length, self.chunk.dk
        self.dma("bytes_in", 2 * length * dk)
        self.vector(length * dk)  # K to float32
        self.n["scalar_gm"] += length  # g, summed
        self.flag()
        for _ in range(length):
            self.n["scalar_gm"] += 1
            self.coefficient(dk)  # beta K
        self.flag()
        self.vector(64, 2)  # G, e^G
        self.flag()
        self.vector(64, 3 * length)  # rows of the decay
        if self.chunk.caches_query:
            self.dma("bytes_in", 2 * length * dk)
            self.vector(length * dk, 2)

    def scores(self) -> None:
        length, dk = self.chunk.length, self.chunk.dk
        self.pairs(self.dot, below=True)  # K K^T
        for i in range(1, length):  # the substitution
            self.flag()
            for k in range(1, i):
                self.vector(k, useful=k)
        self.flag()
        for _ in range(0 if self.chunk.caches_query else length):
            self.n["scalar_gm"] += dk
            self.flag()
        self.pairs(self.dot)  # Q K^T
        for _ in range(length):
            self.coefficient(dk)  # e^G beta K
        self.flag()
        self.vector(dk, length)
        self.pairs(lambda: self.coefficient(dk, useful=dk))  # W
        self.flag()

    def values(self, columns: int) -> None:
        chunk, length, dk, step = self.chunk, self.chunk.length, self.chunk.dk, self.chunk.v_step
        self.vector(length * step)
        self.dma("bytes_in", 2 * length * columns)
        for _ in range(length):
            self.n["scalar_gm"] += 1
            self.coefficient(columns)  # V to float32
            self.vector(columns)  # beta V
        self.flag()
        self.vector(length * step)
        self.pairs(lambda: self.coefficient(step, useful=columns))  # T V
        self.vector(dk * step)
        self.state("bytes_in", columns, by_number=chunk.first)
        for _ in range(length):
            self.vector(step, 3)
            self.against_state(columns, scalar_gm=0)  # W S
        for _ in range(length):
            self.vector(step)
            self.against_state(columns, scalar_gm=1)  # Q S
        self.pairs(lambda: self.coefficient(step, useful=columns))
        self.vector(length * step, 2)
        self.dma("bytes_out", 2 * length * columns)
        self.flag()
        self.vector(step, dk)  # the state's decay
        for _ in range(length):
            self.against_state(columns, scalar_gm=1)
        self.vector(dk * step, 2 * chunk.last)
        self.state("bytes_out", columns, by_number=chunk.last)

    def against_state(self, columns: int, scalar_gm: int) -> None:
        for _ in range(self.chunk.dk):
            self.n["scalar_gm"] += scalar_gm
            self.coefficient(self.chunk.v_step, useful=columns)

    def state(self, way: str, columns: int, by_number: bool) -> None:
        if by_number:
            self.n["scalar_gm"] += self.chunk.dk * columns
            self.flag()
        for _ in range(0 if by_number else self.chunk.dk):
            self.dma(way, 4 * columns)

    def pairs(self, do: Callable[[], None], below: bool = False) -> None:
        for i in range(self.chunk.length):
            for _ in range(i if below else i + 1):
                do()

    def dot(self) -> None:
        self.vector(self.chunk.dk, useful=self.chunk.dk)
        if self.chunk.dk >= 64:
            self.vector(self.chunk.dk // 64 * 64)
        self.flag()  # V_S: the scalar unit sums what is left

    def coefficient(self, elements: int, useful: int = 0) -> None:
        self.flag()  # S_V
        self.vector(elements, useful=useful)

    def vector(self, elements: int, times: int = 1, useful: int = 0) -> None:
        self.n["vector_instructions"] += times
        self.n["repeats"] += times * ((elements + 63) // 64)
        self.n["macs"] += useful

    def flag(self) -> None:
        self.n["flag_pairs"] += 1

    def dma(self, way: str, size: int) -> None:
        self.n["dma_instructions"] += 1
        self.n[way] += size


@settings(max_examples=20, deadline=None)
@given(CHUNKS)
@example(Chunk(length=64, dk=64, dv=32, v_step=32))
@example(replace(REAL, length=12, v_step=48, first=True))
@example(replace(REAL, length=1, last=True))
def test_the_closed_forms_are_what_a_walk_counts(chunk: Chunk) -> None:
    assert chunk.work == Work(**Walk(chunk).n)


# --- published tables (facts, section 9) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dk", "dv", "v_step", "counts"),
    [
        (128, 128, 128, (41_867, 82_723, 35_175, 16_576, 114_688, 81_920, 260, 4_510_400)),
        (128, 128, 64, (71_118, 82_467, 64_041, 41_216, 98_304, 81_920, 517, 4_510_400)),
        (128, 128, 16, (246_636, 257_955, 236_853, 139_904, 98_304, 81_920, 2_065, 4_510_400)),
        (64, 64, 64, (29_515, 30_019, 22_887, 8_384, 40_960, 24_576, 132, 1_489_600)),
        (80, 80, 80, (32_603, 59_607, 25_959, 10_432, 56_320, 35_840, 164, 2_097_344)),
    ],
)
def test_a_middle_chunk_of_64_tokens(dk: int, dv: int, v_step: int, counts: tuple[int, ...]) -> None:
    assert tuple(vars(Chunk(length=64, dk=dk, dv=dv, v_step=v_step).work).values()) == counts


@pytest.mark.parametrize(
    ("length", "instructions", "repeats"), [(1, 539, 1_327), (17, 8_027, 16_359), (63, 40_963, 80_966)]
)
def test_a_short_chunk(length: int, instructions: int, repeats: int) -> None:
    work = replace(REAL, length=length).work
    assert (work.vector_instructions, work.repeats) == (instructions, repeats)


def test_a_tile_of_values_takes_29_253_instructions() -> None:
    two, four = (replace(REAL, v_step=step).work for step in (64, 32))
    assert four.vector_instructions - two.vector_instructions == 2 * 29_253


@pytest.mark.parametrize(
    ("tokens", "printed"),
    [
        (1024, "42.4 M 18.0 M 9.54 M 56.6 MB 39.8 MB"),
        (194, "8.03 M 3.40 M 2.66 M 11.1 MB 7.9 MB"),
        (64, "2.66 M 1.13 M 1.58 M 1.6 MB 0.5 MB"),
    ],
)
def test_the_whole_operator_with_32_heads(tokens: int, printed: str) -> None:
    w = operator_work([tokens], 32, (128, 128), 128)
    counts = " ".join(f"{each / 1e6:#.3g} M" for each in (w.repeats, w.flag_pairs, w.scalar_gm))
    assert f"{counts} {w.bytes_in / 1e6:.1f} MB {w.bytes_out / 1e6:.1f} MB" == printed


def test_1024_tokens_with_32_heads_are_2_31_g_macs_and_5_30_m_repeats_a_core() -> None:
    work = operator_work([1024], 32, (128, 128), 128)
    assert f"{work.macs / 1e9:.2f}" == "2.31"
    assert f"{work.repeats / 8 / 1e6:.2f}" == "5.30"


def test_lanes_are_used_well_in_wide_tiles_and_badly_in_narrow_ones() -> None:
    shares = [w.macs / 64 / w.repeats for w in (replace(REAL, v_step=step).work for step in (128, 16))]
    assert [round(share, 2) for share in shares] == [0.85, 0.27]


def test_two_thirds_of_the_bytes_are_the_state() -> None:
    work, state = REAL.work, 2 * 4 * 128 * 128
    assert round(state / (work.bytes_in + work.bytes_out), 2) == 0.67


# --- the whole operator -----------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(0, 300), SIZES, SIZES, SIZES)
def test_a_sequence_is_full_chunks_and_a_rest(tokens: int, dk: int, dv: int, v_step: int) -> None:
    chunks = sequence_chunks(tokens, (dk, dv), v_step)
    assert sum(chunk.length for chunk in chunks) == tokens
    assert all(chunk.length == 64 for chunk in chunks[:-1])
    assert [chunk.first for chunk in chunks] == [i == 0 for i in range(len(chunks))]
    assert [chunk.last for chunk in chunks] == [i == len(chunks) - 1 for i in range(len(chunks))]


def test_sequences_and_heads_add_up_and_an_empty_sequence_costs_nothing() -> None:
    one, other = (operator_work([tokens], 1, (32, 48), 48) for tokens in (70, 5))
    assert operator_work([70, 0, 5], 3, (32, 48), 48) == (one + other) * 3
    assert operator_work([], 3, (32, 48), 48) == operator_work([0], 3, (32, 48), 48) == Work()


def test_tiles_as_items_of_their_own_do_the_key_side_again() -> None:
    """K and Q are read again for each; what leaves is the same."""
    together = operator_work([100], 4, (64, 128), 64)
    split = operator_work([100], 4, (64, 128), 64, split_tiles=True)
    assert split == operator_work([100], 8, (64, 64), 64)
    assert split.bytes_in - together.bytes_in == 4 * 2 * 2 * 100 * 64
    assert split.bytes_out == together.bytes_out
    assert operator_work([9], 1, (64, 80), 64, split_tiles=True) == sum(
        (operator_work([9], 1, (64, dv), 64) for dv in (64, 16)), Work()
    )


def test_a_query_that_does_not_fit_is_read_again_by_number() -> None:
    fits, not_any_more = (Chunk(length=n, dk=128, dv=64, v_step=64) for n in (32, 33))
    assert fits.caches_query
    assert not not_any_more.caches_query
    assert not_any_more.work.dma_instructions == fits.work.dma_instructions - 1


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 65, -1])
def test_a_chunk_has_1_to_64_tokens(length: int) -> None:
    with pytest.raises(ValueError, match=rf"^a chunk has 1 to 64 tokens, got {length}: Chunk\("):
        replace(REAL, length=length)


@pytest.mark.parametrize(("name", "value"), [("dk", 100), ("dv", 12), ("v_step", 0), ("dk", -16)])
def test_rows_are_whole_blocks(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is {value}, counted are multiples of 16"):
        Chunk(**(vars(REAL) | {name: value}))


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a sequence has -2 tokens, the least is 0"):
        operator_work([3, -2], 1, (16, 16), 16)
