"""Loops and shared parts found in sequences of lines, so that a long log reads like the kernel that made it.

What saves most lines is taken first, then the rest is looked at again: the result depends on the sequence alone.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Numbers = tuple[int, ...]

LONGEST_BODY = 128  # items, of which a loop is one
LEAST_SAVING = 2  # lines: a loop over two ops hides more than it saves
LEAST_SHARED = 6  # lines saved by a part that several sequences refer to
LONGEST_PART = 256  # items
LONGEST_SEARCH = 4000  # items; longer sequences are not searched for shared parts
_MIX: list[int] = [0x9E3779B97F4A7C15 ** (place + 1) & 0xFFFFFFFFFFFFFFFF for place in range(64)]


@dataclass(frozen=True, slots=True)
class Item:
    """One line: what it says apart from numbers (`key`), its numbers, and how many lines it prints.

    `steps` says how the numbers grow with each loop around the item, outermost first.
    """

    key: object
    numbers: Numbers
    lines: int = 1
    steps: tuple[Numbers, ...] = ()

    @property
    def identity(self) -> object:
        """What has to be the same in every iteration of a loop."""
        return self.key, self.steps

    @property
    def whole(self) -> object:
        """All that it prints."""
        return self.key, self.steps, self.numbers


@dataclass(frozen=True, slots=True)
class Loop:
    """`count` iterations of `body`; an item's numbers are those of the first."""

    count: int
    body: tuple[Item | Loop, ...]

    @property
    def lines(self) -> int:
        inner = sum(part.lines for part in self.body)
        return inner if inner == 1 else inner + 1

    @property
    def whole(self) -> object:
        return self.count, tuple(part.whole for part in self.body)


class _Found(NamedTuple):
    """Loops of the same length and saving that do not overlap."""

    saving: int
    length: int
    places: tuple[tuple[int, int], ...]  # (first item, iterations)


def fold(items: Sequence[Item], depth: int = 0) -> tuple[Item | Loop, ...]:
    """`items`, which have the steps of the `depth` loops around them, with their loops."""
    parts = _folded(items, depth)
    while len(parts) > 1 and any(isinstance(part, Loop) for part in parts):
        again = _folded([_packed(part, depth) for part in parts], depth)
        if len(again) == len(parts):
            break
        parts = tuple(_mapped(part, _unpacked) for part in again)
    return parts


def _folded(items: Sequence[Item], depth: int) -> tuple[Item | Loop, ...]:
    """The same with loops over items alone."""
    found = _best(items)
    if found is None:
        return _repeated(items)
    length = found.length
    parts: list[Item | Loop] = []
    done = 0
    for first, count in found.places:
        body = tuple(map(_stepping, items[first : first + length], items[first + length : first + 2 * length]))
        parts += [*_folded(items[done:first], depth), Loop(count, fold(body, depth + 1))]
        done = first + length * count
    return (*parts, *_folded(items[done:], depth))


@dataclass(frozen=True, slots=True)
class _Packed:
    """The key of an item that stands for a loop, whose numbers are the item's, with their outer steps."""

    loop: Loop


def _packed(part: Item | Loop, depth: int) -> Item:
    if isinstance(part, Item):
        return part
    inside = list(leaves([part]))
    outer = (tuple(n for leaf in inside for n in leaf.steps[level]) for level in range(depth))
    blank = _mapped(part, lambda leaf: Item(leaf.key, (0,) * len(leaf.numbers), leaf.lines, leaf.steps[depth:]))
    assert isinstance(blank, Loop)
    return Item(_Packed(blank), tuple(n for leaf in inside for n in leaf.numbers), part.lines, tuple(outer))


def _unpacked(item: Item) -> Item | Loop:
    if not isinstance(item.key, _Packed):
        return item
    rows = Rows(item.numbers, *item.steps)

    def filled(leaf: Item) -> Item:
        numbers, *outer = rows.take(len(leaf.numbers))
        return Item(leaf.key, numbers, leaf.lines, (*outer, *leaf.steps))

    return _mapped(_mapped(item.key.loop, filled), _unpacked)


def _mapped(part: Item | Loop, change: Callable[[Item], Item | Loop]) -> Item | Loop:
    if isinstance(part, Loop):
        return Loop(part.count, tuple(_mapped(each, change) for each in part.body))
    return change(part)


def without_numbers(part: Item | Loop) -> Item | Loop:
    """What is left of `part` if its numbers are told apart."""
    return _mapped(part, lambda leaf: Item(leaf.key, (0,) * len(leaf.numbers), leaf.lines, leaf.steps))


def leaves(parts: Sequence[Item | Loop]) -> Iterator[Item]:
    """Every item, in order."""
    for part in parts:
        if isinstance(part, Loop):
            yield from leaves(part.body)
        else:
            yield part


class Rows:
    """Rows of numbers that are taken from the front together: those of some items, and how they grow."""

    def __init__(self, *rows: Numbers) -> None:
        self._rows = rows
        self._taken = 0

    def take(self, count: int) -> tuple[Numbers, ...]:
        """The next `count` of each row."""
        first = self._taken
        self._taken += count
        return tuple(row[first : self._taken] for row in self._rows)


def _repeated(items: Sequence[Item]) -> tuple[Item | Loop, ...]:
    """Equal lines one after the other as a loop: it saves little, but nothing has to be worked out to read it."""
    groups = [list(group) for _, group in itertools.groupby(items, lambda item: item.whole)]
    return tuple(Loop(len(group), (_stepping(group[0], group[1]),)) if len(group) > 1 else group[0] for group in groups)


def _stepping(here: Item, there: Item) -> Item:
    step = tuple(later - now for now, later in zip(here.numbers, there.numbers, strict=True))
    return Item(here.key, here.numbers, here.lines, (*here.steps, step))


def _best(items: Sequence[Item]) -> _Found | None:
    """The loops that save most lines; of equals those with the shortest body."""
    if len(items) < 2:
        return None
    ids: dict[object, int] = {}
    keys = np.array([ids.setdefault(item.identity, len(ids)) for item in items])
    numbers = np.array([_mixed(item.numbers) for item in items], np.uint64)
    lines = np.cumsum([0, *(item.lines for item in items)])
    best: _Found | None = None
    for length in range(1, min(len(items) // 2, LONGEST_BODY) + 1):
        if best is not None and best.saving >= lines[-1] - length:
            break  # no longer body can save more
        found = _longest(keys, numbers, lines, length)
        if found and found.saving >= LEAST_SAVING and (best is None or found.saving > best.saving):
            best = found
    return _checked(items, best) if best else None


def _mixed(numbers: Numbers) -> int:
    """A linear mix: equal differences of numbers give equal differences of mixes."""
    mixed: int = sum(number * _MIX[place % len(_MIX)] for place, number in enumerate(numbers))
    return mixed & 0xFFFFFFFFFFFFFFFF


def _longest(keys: Ints, numbers: Any, lines: Ints, length: int) -> _Found | None:
    """The best loops whose body has `length` items."""
    same = keys[:-length] == keys[length:]
    twice = _run(same) >= length
    if not twice.any():
        return None
    step = numbers[length:] - numbers[:-length]
    steady = same[:-length] & same[length:] & (step[:-length] == step[length:])
    more = np.zeros(len(same), np.int64)
    more[: len(steady)] = _run(steady) // length
    first = np.flatnonzero(twice)
    first = first[first + length * (more[first] + 2) <= len(keys)]
    if not len(first):
        return None
    body = lines[first + length] - lines[first]
    saving = body * (more[first] + 1) - (body > 1)
    places, end = [], 0
    for at in first[saving == saving.max()].tolist():
        if at >= end:
            places.append((at, int(more[at]) + 2))
            end = at + length * places[-1][1]
    return _Found(int(saving.max()), length, tuple(places))


def _run(holds: Any) -> Ints:
    """How many in a row hold from each place on."""
    places = np.arange(len(holds))
    stops = np.where(holds, len(holds), places)
    found: Ints = np.minimum.accumulate(stops[::-1])[::-1] - places
    return found


def _checked(items: Sequence[Item], found: _Found) -> _Found | None:
    """Those of `found` whose numbers agree themselves, not only their mixes."""
    places = tuple(place for place in found.places if _steady(items, *place, found.length))
    return found._replace(places=places) if places else None


def _steady(items: Sequence[Item], first: int, count: int, length: int) -> bool:
    """Whether every number grows by a constant of its own."""
    for place in range(first, first + length):
        numbers = [items[place + number * length].numbers for number in range(count)]
        steps = {tuple(b - a for a, b in zip(*two, strict=True)) for two in itertools.pairwise(numbers)}
        if len(steps) != 1:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Part:
    """Lines that are the same in several places: in full where they come first, by `number` afterwards."""

    number: int
    first: bool
    body: tuple[Item | Loop, ...]


Line = Item | Loop | Part


def share(sequences: Sequence[Sequence[Item | Loop]]) -> list[list[Line]]:
    """The sequences with what they have in common as parts, numbered in the order of reading."""
    ids: dict[object, int] = {}
    things: list[Item | Loop] = []
    coded = [[_id(thing, ids, things) for thing in sequence] for sequence in sequences]
    bodies: list[list[int]] = []
    while sum(map(len, coded)) <= LONGEST_SEARCH:
        body = _most_shared(coded, [thing.lines for thing in things])
        if body is None:
            break
        bodies.append(body)
        coded = [_replaced(sequence, body, -len(bodies)) for sequence in coded]
    numbers: dict[int, int] = {}
    return [[_line(code, things, bodies, numbers) for code in sequence] for sequence in coded]


def _id(thing: Item | Loop, ids: dict[object, int], things: list[Item | Loop]) -> int:
    found = ids.setdefault(thing.whole, len(ids))
    if found == len(things):
        things.append(thing)
    return found


def _line(code: int, things: list[Item | Loop], bodies: list[list[int]], numbers: dict[int, int]) -> Line:
    if code >= 0:
        return things[code]
    first = code not in numbers
    number = numbers.setdefault(code, len(numbers))
    return Part(number, first, tuple(things[each] for each in bodies[-code - 1]))


def _replaced(sequence: list[int], body: list[int], code: int) -> list[int]:
    found, place = [], 0
    while place < len(sequence):
        if sequence[place : place + len(body)] == body:
            found.append(code)
            place += len(body)
        else:
            found.append(sequence[place])
            place += 1
    return found


def _most_shared(sequences: list[list[int]], lines: list[int]) -> list[int] | None:
    """The body that saves most lines as a part; parts made before are not looked into."""
    suffixes = sorted(
        (sequence[place : place + LONGEST_PART], number, place)
        for number, sequence in enumerate(sequences)
        for place in range(len(sequence))
    )
    best, body = LEAST_SHARED - 1, None
    open_: list[tuple[int, int]] = []  # (length in common, first suffix that has it), growing
    for index in range(1, len(suffixes) + 1):
        common = _common(suffixes[index - 1][0], suffixes[index][0]) if index < len(suffixes) else 0
        first = index - 1
        while open_ and open_[-1][0] > common:
            length, first = open_.pop()
            candidate = suffixes[first][0][:length]
            saving = _saving(candidate, sum(lines[code] for code in candidate), suffixes[first:index])
            if saving > best:
                best, body = saving, candidate
        if common and (not open_ or open_[-1][0] < common):
            open_.append((common, first))
    return body


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common beginning, up to the first part."""
    length = 0
    for one, two in zip(a, b, strict=False):
        if one != two or one < 0:
            break
        length += 1
    return length


def _saving(body: list[int], lines: int, uses: list[tuple[list[int], int, int]]) -> int:
    count, end = 0, (-1, 0)
    for _, number, place in sorted(uses, key=lambda use: use[1:]):
        if number != end[0] or place >= end[1]:
            count, end = count + 1, (number, place + len(body))
    return (count - 1) * lines - count - 1
