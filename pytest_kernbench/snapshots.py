"""Golden op logs on top of syrupy: what the fixture `oplog_snapshot` gives. Imported when a test first asks for it.

A golden is dropped as unused only if a test that passes does not ask for it: one that fails first keeps what it has.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_kernbench.simulator.device import Run
    from pytest_kernbench.simulator.ops.difference import Difference
    from pytest_kernbench.simulator.ops.log import OpLog

__all__ = ["OpLogSnapshot"]

MOST_LINES = 400
MOST_BYTES = 64 * 1024
SUFFIX = "oplog"
_COMPARED = pytest.StashKey[set[str]]()  # goldens of a test that syrupy knows to be used


class OpLogSnapshot:
    """Compares op logs with the goldens of one test: files `<test>[structure].oplog` and `<test>[timing].oplog`."""

    def __init__(self, item: pytest.Item, new_files: Callable[[], Path]) -> None:
        self._item = item
        self._new_files = new_files
        self._snapshot = _assertion(item)
        self._texts: dict[str, str] = {}

    def assert_matches(self, run: Run | OpLog, name: str = "", *, columns: Sequence[str] = ()) -> None:
        """Fail with the first op that differs, unless the log of `run` is as the goldens say.

        `name` tells several logs of one test apart. Times are compared for the "model" schedule alone: the others draw
        them. `columns`: added columns of the log that the timing has to add up for each unit. `--snapshot-update`
        accepts the log as it is.
        """
        __tracebackhide__ = True
        from pytest_kernbench.simulator.ops.log import OpLog
        from pytest_kernbench.simulator.ops.text import structure, timing

        log = run if isinstance(run, OpLog) else getattr(run, "log", None)
        if not isinstance(log, OpLog):
            raise ValueError(f"assert_matches: run is {run!r}: wants what run_kernel returned, or its log")
        texts = {"structure": structure(log)}
        if getattr(run, "schedule", "model") == "model":
            texts["timing"] = timing(log, columns)
        found = [self._compare(log, f"{name}.{kind}" if name else kind, text) for kind, text in texts.items()]
        complaints = [each for each in found if each]
        if complaints:
            raise AssertionError("\n\n".join(complaints))

    def __repr__(self) -> str:
        return f"<goldens of {self._item.name}>"

    def _compare(self, log: OpLog, index: str, text: str) -> str:
        """What is wrong, or nothing."""
        __tracebackhide__ = True
        _refuse_long(index, text)
        path = Path(_location(self._snapshot, index))
        _refuse_altered_name(path.name, f"{self._snapshot.test_location.snapshot_name}[{index}].{SUFFIX}")
        self._refuse_second_use(index, text)
        golden = path.read_text(encoding="utf-8") if path.exists() else None
        if self._snapshot(name=index) == text:
            return ""
        self._raise_error_of_syrupy()
        if golden is None:
            return "\n".join([f"{index}: no golden yet, {path.name} is missing", *self._what_to_do(index, text)])
        from pytest_kernbench.simulator.ops.difference import difference

        first = difference(golden, text)
        return "\n".join([f"{index}: {first.text}", *_said_at(log, first), *self._what_to_do(index, text)])

    def _raise_error_of_syrupy(self) -> None:
        """syrupy takes an error of its own, such as a golden it cannot write, for a mismatch."""
        error = self._snapshot.executions[self._snapshot.num_executions - 1].exception
        if error is not None:
            raise error

    def _refuse_second_use(self, index: str, text: str) -> None:
        """A golden that two logs write holds whichever came last."""
        if self._texts.setdefault(index, text) != text:
            pytest.fail(f"this test compares two different logs with its golden {index}; tell them apart by name=")
        self._item.stash.setdefault(_COMPARED, set()).add(index)

    def _what_to_do(self, index: str, text: str) -> Iterator[str]:
        new = self._new_files() / (re.sub(r"[^\w.-]", "_", index) + f".{SUFFIX}.new")
        new.write_text(text, encoding="utf-8", newline="\n")
        yield f"received: {new}"
        yield f"accept:   pytest {shlex.quote(self._item.nodeid)} --snapshot-update"
        yield from (f"verifies: {value}" for key, value in self._item.user_properties if key == "verifies")


def goldens_of(request: pytest.FixtureRequest) -> OpLogSnapshot:
    """What the fixture `oplog_snapshot` gives the test."""
    if _session(request.config) is None:
        pytest.fail(
            "oplog_snapshot keeps its goldens with the plugin syrupy, which is switched off: take -p no:syrupy away, "
            "or add -p syrupy where plugins are not loaded by themselves",
            pytrace=False,
        )
    return OpLogSnapshot(request.node, lambda: request.getfixturevalue("tmp_path"))


def keep_goldens(item: pytest.Item) -> None:
    """Keep the goldens that a test was to compare when it failed, in whichever phase."""
    if _session(item.config) is not None:
        _keep_goldens(item)


def _keep_goldens(item: pytest.Item) -> None:
    """A golden that was not reached is compared with itself, so that it counts as used."""
    snapshot = _assertion(item)
    first = Path(_location(snapshot, 0))
    start = first.name.removesuffix(f".{SUFFIX}") + "["
    compared = item.stash.setdefault(_COMPARED, set())
    for path in sorted(first.parent.glob(f"*].{SUFFIX}")):
        index = path.name.removeprefix(start).removesuffix(f"].{SUFFIX}")
        if path.name.startswith(start) and index not in compared:
            compared.add(index)
            snapshot(name=index).assert_match(path.read_text(encoding="utf-8"))


def _refuse_long(index: str, text: str) -> None:
    __tracebackhide__ = True
    lines, size = text.count("\n"), len(text.encode())
    if lines > MOST_LINES or size > MOST_BYTES:
        pytest.fail(
            f"{index}: {lines} lines and {size} bytes are more than a reviewer reads ({MOST_LINES} lines, {MOST_BYTES} "
            "bytes): use a smaller shape, or assert what the test is about"
        )


def _refuse_altered_name(name: str, wanted: str) -> None:
    """Two ids could become one file name, and syrupy does not find the test of a golden with an altered one."""
    __tracebackhide__ = True
    if name != wanted:
        pytest.fail(
            f"the golden {wanted!r} would be called {name!r}: a file name cannot hold all of it; give the parameters "
            "short ids=, or a plain name=",
            pytrace=False,
        )


def _said_at(log: OpLog, first: Difference) -> Iterator[str]:
    """The kernel's line of the first op that differs."""
    if first.op is not None:
        row = log.where(program=log.programs.index(first.program)).index[first.op]
        yield f"said at:  {log[int(row)].site}"


# syrupy


if not TYPE_CHECKING:  # a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """The extension by name: workers of xdist tell the controller which one a golden belongs to."""
        if name == "OpLogExtension":
            return _extension()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _extension() -> type[Any]:
    from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

    class OpLogExtension(SingleFileSnapshotExtension):
        """One file a golden, as text. Only what to write and how to tell a difference is ours."""

        _write_mode = WriteMode.TEXT
        file_extension = SUFFIX

        def serialize(self, data: Any, **_: Any) -> str:
            if not isinstance(data, str):
                raise TypeError(f"an op log's text was expected, not {type(data).__name__}: use structure(log)")
            return data

        def diff_lines(self, serialized_data: Any, snapshot_data: Any) -> Iterator[str]:
            from pytest_kernbench.simulator.ops.difference import first_difference

            yield from first_difference(snapshot_data, serialized_data).split("\n")

    OpLogExtension.__qualname__ = "OpLogExtension"
    return OpLogExtension


def _session(config: pytest.Config) -> Any:
    return getattr(config, "_syrupy", None)


def _assertion(item: pytest.Item) -> Any:
    """What syrupy's own fixture makes, with our extension."""
    from syrupy.assertion import SnapshotAssertion
    from syrupy.location import PyTestLocation

    options = item.config.option
    return SnapshotAssertion(
        session=_session(item.config), extension_class=_extension(), test_location=PyTestLocation(item),
        update_snapshots=options.update_snapshots, update_new_snapshots_only=options.update_new_snapshots_only,
    )  # fmt: skip


def _location(snapshot: Any, index: str | int) -> str:
    return str(snapshot.extension.get_location(test_location=snapshot.test_location, index=index))
