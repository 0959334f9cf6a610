"""A log as a Parquet file: its columns for those who read it with other tools, and back to the cells of a log.

What no row has (names of idle units, the spec, totals) is JSON in the file's metadata, under `kernbench`. pyarrow is
imported here alone, when it is asked for. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pytest_kernbench.simulator.errors import LaunchError, LogFileError
from pytest_kernbench.simulator.ops import log as columns
from pytest_kernbench.simulator.ops.log import NONE, WIDTH, Ints, OpLog

FORMAT = 1
KEY = b"kernbench"
SUFFIX = ".parquet"
PART = ".part"  # behind the name of a file that is not finished, and of the process that writes it

ORDER = (
    "row", "kernel", "unit", "name", "region", "issue", "start", "free", "end", "bytes", "charged", "work", "shape",
    "reads", "writes", "file", "line", "function", "after", "peer", "message", "parent", "route", "runs", "program",
    "site", "first_operand",
)  # fmt: skip
WORDS = {"unit": columns.UNIT, "name": columns.NAME, "region": columns.REGION}
NUMBERS = {
    "issue": columns.ISSUE, "bytes": columns.BYTES, "charged": columns.CHARGED, "work": columns.WORK,
    "runs": columns.RUNS, "program": columns.PROGRAM, "site": columns.SITE, "first_operand": columns.OPERANDS,
}  # fmt: skip
OPTIONAL = {  # NONE is null
    "start": columns.START, "free": columns.FREE, "end": columns.END, "after": columns.AFTER, "peer": columns.PEER,
    "message": columns.MESSAGE, "parent": columns.PARENT, "route": columns.ROUTE,
}  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Rows of a log, by number: `table` is rows by `COLUMNS`, `operands` (label, offset, size) row after row."""

    numbers: Ints
    table: Ints
    operands: Ints

    @cached_property
    def counts(self) -> Ints:
        """How many operands each row has."""
        found: Ints = self.table[:, columns.READS] + self.table[:, columns.WRITES]
        return found

    @cached_property
    def begins(self) -> Ints:
        """Where in `operands` those of each row begin."""
        found: Ints = np.cumsum(self.counts) - self.counts
        return found


def ranges(firsts: Ints, counts: Ints) -> Ints:
    """The numbers `firsts[i]` .. `firsts[i] + counts[i] - 1` of each i, one after the other."""
    before: Ints = np.repeat(firsts - (np.cumsum(counts) - counts), counts)
    return before + np.arange(len(before))


def pyarrow(name: str = "pyarrow") -> ModuleType:
    """The module. Raises ImportError with how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        how = "python -m pip install 'pytest-kernbench[parquet]'"
        raise ImportError(f"a log in a file needs pyarrow: {how}") from error


def checked_path(given: object) -> Path:
    """Where a log is to be written. Raises LaunchError if there cannot be such a file."""
    if not isinstance(given, str | os.PathLike) or not str(given).endswith(SUFFIX):
        raise LaunchError(f"spill {given!r}: wants the name of a file that ends in {SUFFIX}")
    path = Path(given).absolute()
    if path.is_dir() or not path.parent.is_dir():
        fact = "is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise LaunchError(f"spill {str(given)!r}: {fact}; name a file in a directory that exists")
    return path


@dataclass
class Totals:
    """What each unit did, added up while rows are written."""

    ops: dict[str, int] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    work: dict[str, int] = field(default_factory=dict)

    def add(self, table: Ints, units: Sequence[str]) -> None:
        unit = table[:, columns.UNIT]
        busy = np.where(table[:, columns.FREE] == NONE, 0, table[:, columns.FREE] - table[:, columns.START])
        for sums, amounts in (
            (self.ops, np.ones_like(unit)), (self.busy, busy), (self.bytes, table[:, columns.BYTES]),
            (self.work, table[:, columns.WORK]),
        ):  # fmt: skip
            for number in np.unique(unit).tolist():
                sums[units[number]] = sums.get(units[number], 0) + int(amounts[unit == number].sum())

    def by_unit(self) -> dict[str, dict[str, int]]:
        return {
            unit: {name: getattr(self, name)[unit] for name in ("ops", "busy", "bytes", "work")}
            for unit in sorted(self.ops)
        }


# Writing


class LogFile:
    """Writes pieces of `log` to a file beside `path`, which gets its name when it is closed.

    A file that cannot be written is given up: nothing is left of it, and every later attempt raises the same
    LogFileError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.totals = Totals()
        self._part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
        self._rows = 0
        self._pa, self._pq = pyarrow(), pyarrow("pyarrow.parquet")
        self._writer: Any = None
        self._failed: LogFileError | None = None
        self.ended = False  # finished, or given up

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around every `write` and `close`. Raises LogFileError if the system refuses one of them."""
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            self._failed = self._give_up(error)
            raise self._failed from error
        except BaseException as error:  # in the middle of a piece: what is in the file is no longer known
            self._failed = self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> LogFileError:
        self.ended = True
        writer, self._writer = self._writer, None
        with suppress(OSError):  # it goes anyway
            if writer is not None:
                writer.close()
        self._part.unlink(missing_ok=True)
        fact = f"the log could not be written to {self.path} after {self._rows} rows: {error!r}"
        return LogFileError(f"{fact}; make room there, or name another place with spill=")

    def write(self, log: OpLog, piece: Piece) -> None:
        """One row group."""
        made = self._table(log, piece)
        if self._writer is None:
            self._writer = self._pq.ParquetWriter(
                self._part, made.schema, compression="zstd", use_dictionary=self._dictionaries(made.schema),
                column_encoding={
                    each.name: "DELTA_BINARY_PACKED" for each in made.schema if self._pa.types.is_integer(each.type)
                },
            )  # fmt: skip
        if len(piece.numbers):
            self._writer.write_table(made, row_group_size=len(piece.numbers))
        self._rows += len(piece.numbers)
        self.totals.add(piece.table, log.units.values)

    def _dictionaries(self, schema: Any) -> list[str]:
        """Columns whose values repeat, as Parquet names them."""
        words = [each.name for each in schema if self._pa.types.is_dictionary(each.type)]
        return [*words, "reads.list.element.tensor", "writes.list.element.tensor"]

    def close(self, log: OpLog, about: Mapping[str, object]) -> None:
        """The metadata, and the file's name."""
        if self._writer is None:
            self.write(log, Piece(*(np.zeros(shape, np.int64) for shape in ((0,), (0, WIDTH), (0, 3)))))
        known = {**described(log), **about, "rows": self._rows, "totals": self.totals.by_unit()}
        self._writer.add_key_value_metadata({KEY: json.dumps(known, default=_plain).encode()})
        writer, self._writer = self._writer, None
        writer.close()
        os.replace(self._part, self.path)
        self.ended = True

    def _table(self, log: OpLog, piece: Piece) -> Any:
        """The piece in the file's columns."""
        pa, table = self._pa, piece.table
        made = {name: pa.array(table[:, column], pa.int32()) for name, column in NUMBERS.items()}
        for name, column in OPTIONAL.items():
            made[name] = pa.array(table[:, column], pa.int32(), mask=table[:, column] == NONE)
        for name, column in WORDS.items():
            made[name] = self._words(table[:, column], getattr(log, name + "s").values)
        made |= {"row": pa.array(piece.numbers), "kernel": self._words(table[:, columns.PROGRAM], log.programs)}
        made["shape"] = self._words(table[:, columns.SHAPE], [_shape(each) for each in log.shapes.values])
        made |= self._sites(log, table[:, columns.SITE]) | self._operands(log, piece)
        return pa.table({name: made[name] for name in ORDER})

    def _sites(self, log: OpLog, ids: Ints) -> dict[str, Any]:
        """Columns `file`, `line` and `function`."""
        sites = [log.site(id) for id in range(len(log.places.values))]
        lines = np.array([each.line for each in sites], np.int64)
        made = {"line": self._pa.array(lines[ids], self._pa.int32())}
        for name in ("file", "function"):
            words = [getattr(each, name) for each in sites]
            known = list(dict.fromkeys(words))
            made[name] = self._words(np.array([known.index(word) for word in words], np.int64)[ids], known)
        return made

    def _words(self, ids: Ints, values: Sequence[str]) -> Any:
        """Strings by number; NONE is null."""
        indices = self._pa.array(ids, self._pa.int32(), mask=ids == NONE)
        return self._pa.DictionaryArray.from_arrays(indices, self._pa.array(values, self._pa.string()))

    def _operands(self, log: OpLog, piece: Piece) -> dict[str, Any]:
        """Columns `reads` and `writes`: lists of (tensor, offset, size)."""
        place = np.arange(len(piece.operands)) - np.repeat(piece.begins, piece.counts)
        read = place < np.repeat(piece.table[:, columns.READS], piece.counts)
        sides = {"reads": (columns.READS, read), "writes": (columns.WRITES, ~read)}
        return {
            name: self._ranges(log, piece.operands[chosen], piece.table[:, count])
            for name, (count, chosen) in sides.items()
        }

    def _ranges(self, log: OpLog, operands: Ints, counts: Ints) -> Any:
        pa = self._pa
        tensors = self._words(operands[:, 0], log.labels.values).cast(pa.string())
        names = ["tensor", "offset", "size"]
        each = pa.StructArray.from_arrays([tensors, pa.array(operands[:, 1]), pa.array(operands[:, 2])], names)
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), each)


def described(log: OpLog) -> dict[str, object]:
    """What a log has beside its rows."""
    sites = [log.site(id) for id in range(len(log.places.values))]
    return {
        "format": FORMAT, "version": version("pytest-kernbench"), "header": log.header, "programs": log.programs,
        "pes": log.pes, "layout": log.layout, "has_syncs": log.has_syncs, "names": log.names.values,
        "units": log.units.values, "labels": log.labels.values, "shapes": log.shapes.values,
        "regions": log.regions.values, "routes": log.routes.values,
        "sites": [[each.file, each.line, each.function] for each in sites],
    }  # fmt: skip


def _plain(value: object) -> object:
    """What JSON does not know: mappings that are no dict, numbers of numpy's, and the rest by its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.item() if isinstance(value, np.generic) else str(value)


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


# Reading


class LogReader:
    """The pieces of a file that `LogFile` wrote, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        pq, self._pa = pyarrow("pyarrow.parquet"), pyarrow()
        try:
            self._file = pq.ParquetFile(path)
            self.about: dict[str, Any] = json.loads(self._file.metadata.metadata[KEY])
        except (OSError, self._pa.ArrowInvalid, KeyError, TypeError) as error:
            raise LogFileError(f"{path} is no log that a run with spill= has written and finished: {error!r}") from None
        if self.about["format"] != FORMAT:
            fact = f"{path} has format {self.about['format']} of version {self.about['version']}"
            raise LogFileError(f"{fact}, this version reads {FORMAT}; read it with the version that wrote it")
        self._ids = {name: {value: id for id, value in enumerate(self.about[name + "s"])} for name in (*WORDS, "label")}
        self._ids["shape"] = {_shape(each): id for id, each in enumerate(self.about["shapes"])}
        self.spans = [self._span(number) for number in range(self._file.num_row_groups)]

    def _span(self, number: int) -> tuple[int, int]:
        """The first and the last row of a group."""
        statistics = self._file.metadata.row_group(number).column(0).statistics
        return int(statistics.min), int(statistics.max)

    def __iter__(self) -> Iterator[Piece]:
        return (self.piece(number) for number in range(len(self.spans)))

    def piece(self, number: int) -> Piece:
        """Row group `number`."""
        read = self._file.read_row_group(number)
        numbers = read["row"].to_numpy()
        table = np.full((len(numbers), WIDTH), NONE, np.int64)
        for name, column in (NUMBERS | OPTIONAL).items():
            table[:, column] = read[name].fill_null(NONE).to_numpy()
        for name, column in {**WORDS, "shape": columns.SHAPE}.items():
            table[:, column] = self._numbers(read[name].combine_chunks(), self._ids[name])
        lists = [read[name].combine_chunks() for name in ("reads", "writes")]
        table[:, columns.READS], table[:, columns.WRITES] = (each.value_lengths().to_numpy() for each in lists)
        return Piece(numbers, table, self._operands(table, *map(self._ranges, lists)))

    def _numbers(self, words: Any, ids: Mapping[str, int]) -> Ints:
        """The ids of words that are written by number; null is NONE."""
        words = words.chunk(0) if isinstance(words, self._pa.ChunkedArray) else words
        known = np.array([ids[value] for value in words.dictionary.to_pylist()] or [NONE], np.int64)
        found: Ints = known[words.indices.fill_null(0).to_numpy()]
        found[words.is_null().to_numpy(zero_copy_only=False)] = NONE
        return found

    def _ranges(self, lists: Any) -> Ints:
        each = lists.flatten()
        tensor, offset, size = each.flatten()
        labels = self._numbers(tensor.dictionary_encode(), self._ids["label"])
        return np.stack([labels, offset.to_numpy(), size.to_numpy()], axis=1)

    def _operands(self, table: Ints, reads: Ints, writes: Ints) -> Ints:
        """Each row's reads and then its writes."""
        counts = table[:, [columns.READS, columns.WRITES]]
        begin = np.cumsum(counts.sum(axis=1)) - counts.sum(axis=1)
        found = np.zeros((len(reads) + len(writes), 3), np.int64)
        found[ranges(begin, counts[:, 0])] = reads
        found[ranges(begin + counts[:, 0], counts[:, 1])] = writes
        return found
