"""The history of a memory is what a note beside every byte would be."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.simulator.checks.history import History

SIZE = 24

Access = tuple[bool, int, int, int]  # write?, pipe, [lo, hi)


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    lo = draw(st.integers(0, SIZE - 1))
    return draw(st.booleans()), draw(st.integers(0, 2)), lo, draw(st.integers(lo + 1, SIZE))


class Notes:
    """A note beside every byte: its last write, and the last read of each pipe since."""

    def __init__(self) -> None:
        self.writes: list[Any] = [None] * SIZE
        self.reads: list[dict[int, int]] = [{} for _ in range(SIZE)]

    def note(self, number: int, write: bool, pipe: int, lo: int, hi: int) -> None:
        for byte in range(lo, hi):
            if write:
                self.writes[byte], self.reads[byte] = number, {}
            else:
                self.reads[byte][pipe] = number


def story(history: History) -> tuple[list[Any], list[dict[int, int]]]:
    """What the history says of each byte."""
    pieces = history.touch(0, SIZE)
    writes = [piece.write for piece in pieces for _ in range(piece.lo, piece.hi)]
    return writes, [piece.reads for piece in pieces for _ in range(piece.lo, piece.hi)]


@settings(max_examples=40)
@given(st.lists(accesses(), max_size=15))
def test_random_accesses_leave_the_notes_of_every_byte(said: list[Access]) -> None:
    history, notes = History(), Notes()
    for number, (write, pipe, lo, hi) in enumerate(said):
        pieces = history.touch(lo, hi)
        assert [pieces[0].lo, *(piece.hi for piece in pieces)] == [*(piece.lo for piece in pieces), hi]
        if write:
            history.replace(lo, hi, pieces, number)
        else:
            for piece in pieces:
                piece.reads[pipe] = number
        notes.note(number, write, pipe, lo, hi)
    assert story(history) == (notes.writes, notes.reads)


@settings(max_examples=40)
@given(st.lists(accesses(), max_size=15))
def test_touch_returns_what_is_noted_inside_and_nothing_outside(said: list[Access]) -> None:
    history, notes = History(), Notes()
    for number, (_, pipe, lo, hi) in enumerate(said):
        pieces = history.touch(lo, hi)
        seen = [(piece.write, piece.reads) for piece in pieces for _ in range(piece.lo, piece.hi)]
        assert seen == list(zip(notes.writes[lo:hi], notes.reads[lo:hi], strict=True))
        history.replace(lo, hi, pieces, number)
        notes.note(number, True, pipe, lo, hi)


def test_two_ranges_cut_from_one_do_not_share_their_readers() -> None:
    history = History()
    history.touch(0, 8)[0].reads[1] = "both"
    history.touch(0, 4)[0].reads[2] = "left only"
    assert history.touch(4, 8)[0].reads == {1: "both"}


def test_a_tile_touched_again_and_again_stays_one_range() -> None:
    history = History()
    for number in range(100):
        for lo in (0, 8):
            history.replace(lo, lo + 8, history.touch(lo, lo + 8), number)
    assert len(history) == 2


def test_a_write_over_many_ranges_leaves_one() -> None:
    history = History()
    for lo in range(0, SIZE, 4):
        history.replace(lo, lo + 2, history.touch(lo, lo + 2), lo)
    history.replace(0, SIZE, history.touch(0, SIZE), "all")
    assert len(history) == 1
