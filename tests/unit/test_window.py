"""A window on a log's newest rows: numbered as if none had left, and nothing leaves before it is complete."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernbench.simulator.ops.log import NONE
from pytest_kernbench.simulator.ops.window import Window

WIDTH, TIME, PARENT = 3, 1, 2  # the first column is what the row says


def cells(says: int, time: int = NONE, parent: int = NONE) -> bytes:
    return np.array([says, time, parent], np.int32).tobytes()


def window(most: int = 1000, leave: Any = None) -> Window:
    return Window(WIDTH, [TIME], PARENT, most, leave or (lambda: None))


def filled(*rows: bytes) -> Window:
    made = window()
    for row in rows:
        made.frombytes(row)
    return made


def leaving(made: Window, count: int) -> list[int]:
    """What the rows that leave say, those that come late first."""
    _, late = made.take_left(complete=True)
    rows = made.oldest(count)
    done = made.complete(rows)
    made.drop(done)
    return [int(row[0]) for row in (*late, *rows[done])]


def test_rows_keep_their_numbers_when_others_leave() -> None:
    made = filled(cells(10, 1), cells(11, 2), cells(12, 3))

    assert leaving(made, 2) == [10, 11]
    assert (len(made), made.first, made[2 * WIDTH]) == (9, 2, 12)
    made[2 * WIDTH + TIME] = 7
    assert made[2 * WIDTH + TIME] == 7


def test_a_row_without_its_time_stays_and_leaves_when_it_has_it() -> None:
    made = filled(cells(10), cells(11, 2), cells(12, 3))

    assert leaving(made, 2) == [11]
    assert (made.first, made[0]) == (2, 10)
    made[TIME] = 5
    assert leaving(made, 1) == [10, 12]


def test_a_part_stays_until_its_whole_is_complete_whatever_its_own_time_says() -> None:
    made = filled(cells(10), cells(11, 2, parent=0), cells(12, 2), cells(13, 2, parent=0))

    assert leaving(made, 3) == [12]
    assert leaving(made, 1) == []
    made[TIME] = 5
    assert leaving(made, 1) == [10, 11, 13]


def test_a_row_that_has_left_cannot_be_changed_or_read() -> None:
    made = filled(cells(10, 1), cells(11, 2))
    leaving(made, 1)

    with pytest.raises(KeyError):
        made[TIME] = 3
    with pytest.raises(KeyError):
        _ = made[0]


def test_rows_are_asked_to_leave_before_there_are_too_many() -> None:
    sizes = []

    def leave() -> None:
        sizes.append(len(made.cells) // WIDTH)
        leaving(made, 2)

    made = window(3, leave)
    for number in range(8):
        made.frombytes(cells(number, number))

    assert sizes == [3, 3, 3]
    assert len(made.cells) <= 3 * WIDTH


def test_at_the_end_everything_that_was_left_behind_goes() -> None:
    made = filled(cells(10), cells(11), cells(12, 1))
    leaving(made, 3)

    numbers, rows = made.take_left(complete=False)
    assert (numbers.tolist(), rows[:, 0].tolist()) == ([0, 1], [10, 11])
    assert len(made.take_left(complete=False)[0]) == 0


@given(st.data())
def test_every_row_leaves_once_with_its_last_time(data: st.DataObject) -> None:
    """Rows end in any order while groups leave: what comes out is what an array would hold."""
    made, whole, out = window(), [], {}

    def write_group(count: int) -> None:
        numbers, late = made.take_left(complete=True)
        rows, first = made.oldest(count), made.first
        done = made.complete(rows)
        for number, row in [
            *zip(numbers, late, strict=True),
            *zip(first + np.flatnonzero(done), rows[done], strict=True),
        ]:
            assert int(number) not in out
            out[int(number)] = row.tolist()
        made.drop(done)

    for step in data.draw(st.lists(st.sampled_from("aaaeel"), max_size=40)):
        waiting = [number for number, row in enumerate(whole) if row[TIME] == NONE]
        if step == "a":
            parents = [NONE, *[number for number in waiting if whole[number][PARENT] == NONE]]
            whole.append([len(whole), NONE, data.draw(st.sampled_from(parents))])
            made.frombytes(cells(*whole[-1]))
        elif step == "e" and waiting:
            number = data.draw(st.sampled_from(waiting))
            whole[number][TIME] = made[number * WIDTH] + 100
            made[number * WIDTH + TIME] = whole[number][TIME]
        elif step == "l":
            write_group(data.draw(st.integers(1, 5)))
    for number, row in zip(*made.take_left(complete=False), strict=True):
        out[int(number)] = row.tolist()
    out |= {made.first + at: row.tolist() for at, row in enumerate(made.oldest(len(whole)))}

    assert [out[number] for number in range(len(whole))] == whole
