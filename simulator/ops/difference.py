"""Where two texts of op logs differ first, said so that the first line is enough. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from itertools import zip_longest

from pytest_kernbench.simulator.ops.entries import Entry, Ranges, line
from pytest_kernbench.simulator.ops.text import FormatError, Placed, parse_placed

CONTEXT = 2
MOST_LINES = 3  # of each side, in the hunk
MOST_MISSING = 200  # ops; a longer gap is told as a change
AGAIN = 3  # ops that have to agree behind a gap
WINDOW = 400  # lines
MOST_CHANGED = 20  # lines of a timing golden


@dataclass(frozen=True, slots=True)
class Difference:
    """The text for people; `program` and `op` (its number in the received program, from 0) if one is to blame."""

    text: str
    program: str = ""
    op: int | None = None


def first_difference(golden: str, received: str) -> str:
    """The first op that differs with its fields old -> new, its loop iteration, the totals, and one hunk of lines."""
    return difference(golden, received).text


def difference(golden: str, received: str) -> Difference:
    """The same with the op."""
    if golden == received:
        return Difference("no difference")
    old, new = golden.split("\n"), received.split("\n")
    if old[0] != new[0]:
        return Difference(f"the golden is {old[0][:60]!r}, this is {new[0]!r}: regenerate the golden")
    if new[0].endswith("structure"):
        try:
            return _structure(golden, received)
        except FormatError as error:
            return Difference(f"the golden cannot be read: {error}; regenerate it")
    return _lines(old, new)


# Structure


def _structure(golden: str, received: str) -> Difference:
    old, new = parse_placed(golden), parse_placed(received)
    tail = [*_totals(old, new), *_hunk(golden.split("\n"), received.split("\n"))]
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    if gone or come:
        said = [f"{word} {', '.join(names[:8])}" for word, names in (("without", gone), ("with new", come)) if names]
        return Difference("\n".join([f"programs differ: {' and '.join(said)}", *tail]))
    for name in new:
        if [each.entry for each in old[name]] != [each.entry for each in new[name]]:
            op, text = _first(old[name], new[name])
            return Difference("\n".join([f"first difference: {name} {text}", *tail]), name, op)
    lines = _signed(_pairs(golden.split("\n"), received.split("\n")))
    return Difference("\n".join(["the ops are the same, their text differs", *lines]))


def _first(old: list[Placed], new: list[Placed]) -> tuple[int | None, str]:
    """The first op that differs: changed, missing or added."""
    at = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a.entry != b.entry), min(len(old), len(new))
    )
    if len(old) == len(new) and (old[at].entry.unit, old[at].entry.name) == (new[at].entry.unit, new[at].entry.name):
        return at, f"op {at}: {_where(new[at])}{_changes(old[at].entry, new[at].entry)}"
    missing, added = _gap(old, new, at), _gap(new, old, at)
    if missing and (not added or missing <= added):
        return (
            at if at < len(new) else None
        ), f"op {at}: {_where(old[at])}{_count(missing)} missing: {_brief(old[at].entry)}"
    if added:
        return at, f"op {at}: {_where(new[at])}{_count(added)} added: {_brief(new[at].entry)}"
    return at, f"op {at}: {_where(new[at])}{_changes(old[at].entry, new[at].entry)}"


def _gap(longer: list[Placed], shorter: list[Placed], at: int) -> int:
    """How many ops of `longer` from `at` on are left out of `shorter`, or 0; for another op, by names if need be."""
    another = at < len(longer) and at < len(shorter) and _named(longer[at]) != _named(shorter[at])
    for same in (_whole, _named) if another else (_whole,):
        rest = list(map(same, shorter[at : at + AGAIN]))
        for size in range(1, min(len(longer) - at, MOST_MISSING) + 1):
            if list(map(same, longer[at + size : at + size + AGAIN])) == rest:
                return size
    return 0


def _whole(op: Placed) -> object:
    return op.entry


def _named(op: Placed) -> object:
    return op.entry.depth, op.entry.unit, op.entry.name


def _count(ops: int) -> str:
    return "1 op is" if ops == 1 else f"{ops} ops are"


def _where(op: Placed) -> str:
    path = ", ".join(f"{letter}={index}" for letter, index in op.path)
    return f"(line {op.line}{', ' + path if path else ''}) "


def _brief(entry: Entry) -> str:
    return " ".join(line(entry, [""] * len(entry.operands)).split())


def _changes(old: Entry, new: Entry) -> str:
    """Fields old -> new, after what names the op."""
    if old.unit != new.unit:
        return f"{_brief(old)} -> {_brief(new)}"
    changed = [each.name for each in fields(Entry) if getattr(old, each.name) != getattr(new, each.name)]
    if (old.work, new.work) == (old.usual_work, new.usual_work) and "work" in changed:
        changed.remove("work")  # follows from the shape
    return f"{old.unit} {old.name}: " + ", ".join(_change(name, old, new) for name in changed)


def _change(name: str, old: Entry, new: Entry) -> str:
    if name != "operands":
        return f"{name} {_shown(getattr(old, name))} -> {_shown(getattr(new, name))}"
    if len(old.operands) == len(new.operands):
        pairs = [(a, b) for a, b in zip(old.operands, new.operands, strict=True) if a != b]
        a, b = pairs[0]
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        word = "write" if b.written else "read"
        return f"{word} {_range(a)} -> {_range(b)}{more}"
    return f"operands {', '.join(map(_range, old.operands))} -> {', '.join(map(_range, new.operands))}"


def _range(operand: Ranges) -> str:
    group = f"(x{operand.count} {operand.step:+#x})" if operand.count > 1 else ""
    return f"{operand.tensor}+{operand.offset:#x}:{operand.size}{group}"


def _shown(value: object) -> str:
    return ("x".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "none"


def _totals(old: dict[str, list[Placed]], new: dict[str, list[Placed]]) -> list[str]:
    counts = [Counter(each.entry.unit for ops in side.values() for each in ops) for side in (old, new)]
    before, after = counts
    changed = [
        f"{unit} {before[unit]} -> {after[unit]}" for unit in sorted({*before, *after}) if before[unit] != after[unit]
    ]
    if not changed:
        return [f"ops: {before.total()}, the same on every unit"]
    return [f"ops: {before.total()} -> {after.total()} ({', '.join(changed)})"]


# Lines


def _hunk(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The first lines that differ, between two at most that are the same on both sides; comments are left out."""
    old = [each for each in old if not each.startswith("#")]
    new = [each for each in new if not each.startswith("#")]
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    changes = _changes_of_lines(old[start : start + WINDOW], new[start : start + WINDOW])
    if not changes:
        return []
    gone, come, same = changes[0]
    before = old[max(start - CONTEXT, 0) : start]
    return [*_context(before), *_side("-", gone), *_side("+", come), *_context(same[:CONTEXT])]


def _context(lines: Sequence[str]) -> list[str]:
    return [f"  {each}" for each in lines if each]


Change = tuple[Sequence[str], Sequence[str], Sequence[str]]  # lines of old, lines of new, those of both that follow


def _changes_of_lines(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Where the two differ, each place once."""
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    ends = (*(end for _, _, end, _, _ in codes[1:]), len(old))  # what follows a change is the same
    return [
        (old[a:b], new[c:d], old[b:end]) for (tag, a, b, c, d), end in zip(codes, ends, strict=False) if tag != "equal"
    ]


def _side(sign: str, lines: Sequence[str]) -> list[str]:
    more = [f"{sign} ... {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return [*(f"{sign} {each}" for each in lines[:MOST_LINES]), *more]


def _lines(old: list[str], new: list[str]) -> Difference:
    """The same for lines of words: what differs in the first that does."""
    at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    here, there = (side[at] if at < len(side) else "" for side in (old, new))
    a, b = re.split("  +", here.strip()), re.split("  +", there.strip())
    if len(a) == len(b) and a[0].split()[:-1] == b[0].split()[:-1] and (here and there):
        words = ", ".join(_words(one, two) for one, two in zip(a, b, strict=True) if one != two)
        text = f"{a[0]}: {words}" if a[0] == b[0] and not a[0].startswith("#") else words
    else:
        text = f"{here.strip() or 'nothing'} -> {there.strip() or 'nothing'}"
    pairs = _pairs(old, new)
    counts = f"{len(pairs)} of {max(len(old), len(new)) - 1} lines differ; {_cycles(old)} -> {_cycles(new)} cycles"
    return Difference("\n".join([f"first difference (line {at + 1}): {text}", counts, *_signed(pairs)]))


Pair = tuple[str | None, str | None]


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Every line that differs, old beside new."""
    return [pair for gone, come, _ in _changes_of_lines(old, new) for pair in zip_longest(gone, come)]


def _signed(pairs: list[Pair]) -> list[str]:
    shown = [(sign, each) for pair in pairs[:MOST_CHANGED] for sign, each in zip("-+", pair, strict=True)]
    more = [f"... {len(pairs) - MOST_CHANGED} more lines differ"] if len(pairs) > MOST_CHANGED else []
    return [*(f"{sign} {each}" for sign, each in shown if each is not None), *more]


def _words(old: str, new: str) -> str:
    """`busy 5 -> 7`."""
    before, after = old.split(" "), new.split(" ")
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    return " ".join([*before[:same], " ".join(before[same:]), "->", " ".join(after[same:])])


def _cycles(lines: list[str]) -> str:
    return next((each.removeprefix("cycles ") for each in lines if each.startswith("cycles ")), "?")
