"""The checked-in list of mutants that may survive, each with its reason; it may not go stale.

An entry whose mutant is no longer there, reads otherwise, or is noticed by a test, is a fault. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_kernbench.mutation.mutants import Mutant
from pytest_kernbench.mutation.results import EQUIVALENT, KILLED, Verdict


@dataclass(frozen=True)
class Survivor:
    """An entry: a mutant's id, the line it stands in, what stands there instead, and why no test can notice."""

    id: str
    line: str
    after: str
    reason: str


def read(path: Path) -> dict[str, Survivor]:
    """The entries of a list, `[[survivor]]` each, by id. Raises UsageError for a file that is none."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
        found = [Survivor(**entry) for entry in entries]
    except (OSError, tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise pytest.UsageError(
            f"{path}: no list of survivors: {error}; an entry is [[survivor]] with id, line, after and reason"
        ) from None
    for each in found:
        if not all(isinstance(value, str) and value.strip() for value in vars(each).values()):
            raise pytest.UsageError(f"{path}: {each.id}: id, line, after and reason are texts, none of them empty")
    return {each.id: each for each in found}


def stale(
    entries: Mapping[str, Survivor], mutants: Mapping[str, Mutant], verdicts: Mapping[str, Verdict],
    modules: Collection[str],
) -> Iterator[str]:  # fmt: skip
    """What is wrong with entries about `modules`, those that were mutated."""
    for each in entries.values():
        mutant, verdict = mutants.get(each.id), verdicts.get(each.id)
        if each.id.partition(":")[0] not in modules:
            continue
        if mutant is None:
            yield f"{each.id}: there is no such mutant any more; take the entry out"
        elif (mutant.source_line, mutant.after) != (each.line, each.after):
            yield (
                f"{each.id}: the entry says {each.line!r} becomes {each.after!r}, "
                f"it is {mutant.source_line!r} that becomes {mutant.after!r}; read it again"
            )
        elif verdict is not None and verdict.state == KILLED:
            yield f"{each.id}: killed by {verdict.by}; take the entry out"
        elif verdict is not None and verdict.state == EQUIVALENT:
            yield f"{each.id}: found to be equivalent, which needs no entry; take it out"
