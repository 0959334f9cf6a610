"""What is known from this run and earlier ones, in a file of JSON lines: a run that is stopped goes on from there.

An entry holds as long as what it was found with is unchanged; others are as if they were not there. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

import pytest_kernbench
from pytest_kernbench import simulator
from pytest_kernbench.mutation.mutants import Mutant

FORMAT = 2
KILLED, SURVIVED, EQUIVALENT, UNREACHED = "killed", "survived", "equivalent", "unreached"


@dataclass(frozen=True)
class Learnt:
    """A test with kernels as they are: the lines it reached while a device ran, and those it touched at any time.

    `seen` names all that was to be seen of it, `key` its own files, `sources` what the modules it touched were.
    """

    test: str
    key: str
    result: str
    seconds: float
    seen: str
    reached: Mapping[str, list[int]]
    touched: Mapping[str, list[int]]
    files: Mapping[str, str]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `state`, the test that killed it and how, how many tests there were to do it.

    `key` names the mutant and its source, `against` the tests that were to notice it.
    """

    mutant: str
    key: str
    state: str
    against: str
    tests: int
    by: str = ""
    how: str = ""


@dataclass(frozen=True)
class Begun:
    """The tests that a mutant has passed, each with its key: those it had time for, or all there were.

    `key` names the mutant and its source; `differs` is the first test whose runs were not those of the kernel as it is.
    """

    begun: str
    key: str
    passed: Mapping[str, str]
    differs: str


def name_of(*parts: object) -> str:
    """Names some values: the same for equal ones."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def mutant_key(mutant: Mutant, source: str) -> str:
    """Names a mutant of a source with that digest."""
    return name_of(source, mutant.id, mutant.before, mutant.after)


def key_of_test(item: pytest.Item) -> str:
    """Names the files that a test is made of: its own, and the `conftest.py` above it."""
    root = item.config.rootpath
    folders = [each for each in item.path.parents if root in (each, *each.parents)]
    files = [item.path, *(folder / "conftest.py" for folder in folders)]
    return name_of(*(_content(file) for file in files))


_CONTENTS: dict[Path, str] = {}


def _content(file: Path) -> str:
    if file not in _CONTENTS:
        _CONTENTS[file] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    return _CONTENTS[file]


def world() -> str:
    """Names the simulator, the fixtures and the operators that everything was found with.

    Operators say which lines are watched: of a line that was not, it is not known whether a test reaches it.
    """
    plugin, mutation, devices = (
        Path(each).parent for each in (pytest_kernbench.__file__, __file__, simulator.__file__)
    )
    files = [*sorted(plugin.glob("*.py")), *sorted(mutation.glob("*.py")), *sorted(devices.rglob("*.py"))]
    return name_of(FORMAT, *(_content(file) for file in files))


class Results:
    """The file, and what of it holds. Written to as soon as something is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.learnt: dict[str, Learnt] = {}
        self.verdicts: dict[str, Verdict] = {}
        self.begun: dict[str, Begun] = {}
        self._world = world()
        known = list(self._read())
        self._file: TextIO | None = None
        if not known:
            self._begin()

    def _read(self) -> Iterator[Mapping[str, Any]]:
        """Entries made with the simulator there is now."""
        if not self.path.is_file():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines()
        entries = list(_whole(lines))
        if not entries or entries[0].get("world") != self._world:
            return
        for entry in entries:
            if "mutant" in entry:
                self._take(Verdict(**entry))
            elif "test" in entry:
                self._take(Learnt(**entry))
            elif "begun" in entry:
                self._take(Begun(**entry))
            yield entry

    def _take(self, entry: Learnt | Verdict | Begun) -> None:
        if isinstance(entry, Learnt):
            self.learnt[entry.test] = entry
        elif isinstance(entry, Verdict):
            self.verdicts[entry.mutant] = entry
        else:
            self.begun[entry.begun] = entry

    def _begin(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"kernbench-mutate": FORMAT, "world": self._world}) + "\n", encoding="utf-8")

    def add(self, entry: Learnt | Verdict | Begun) -> None:
        """Keep what was found, at once."""
        self._take(entry)
        if self._file is None:
            self._file = self.path.open("a", encoding="utf-8")
            self._file.write("\n")  # ends a line that a killed run left half written
        self._file.write(json.dumps(asdict(entry)) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _whole(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The entries; a line that was being written when the run was killed is none."""
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue
