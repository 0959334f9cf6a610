"""A run that writes its log to a file says what the same run in memory says: rows, texts, findings; on both devices.

Groups are of 32 rows here, so that rows are left behind, come late, and end in another group than they began.
"""

import contextlib
import importlib
import itertools
import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.kernels.ascend310p.vector_add import vector_add
from pytest_kernbench.simulator import AhbmChip, Ascend310pCore, LaunchError, LogFileError, Run, SimError, read_log
from pytest_kernbench.simulator.ops import parquet, spill
from pytest_kernbench.simulator.ops.log import OpLog
from pytest_kernbench.simulator.ops.text import structure, timing

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

X = np.arange(32 * 64, dtype=np.float32).reshape(32, 64) % 7
SCHEDULES = ["model", "jitter", "late"]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "GROUP", 32)
    monkeypatch.setattr(spill, "KEPT", 4)


# Kernels


def products(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
    """Composites over a streamed operand, said one ahead, and what becomes of them."""
    with tl.region("setup"):
        a = tl.load(x, (8, 64))
    ahead = tl.composite("gemm", a, tl.ref(x, (32, 64)), trans_b=True)
    for _ in range(rounds):
        with tl.region("round"):
            product, ahead = ahead, tl.composite("gemm", a, tl.ref(x, (32, 64)), trans_b=True)
            tl.wait(product)
            y = tl.exp(product * 0.01)
        tl.wait(y)
    tl.wait(ahead)
    tl.wait(tl.store(o, y))


def messages(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
    """One PE waits for the other all the time: its rows stay open."""
    if tl.program_id() == 0:
        y = tl.load(x, (8, 64))
        for _ in range(rounds):
            y = y * 1.0
            tl.wait(y)
        tl.wait(tl.send("E", y))
    else:
        tl.wait(tl.store(o, tl.recv("W", (8, 64))))


def race(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
    h = tl.load(x, (8, 64))
    for _ in range(rounds):
        y = tl.exp(h)
        tl.load(x, (8, 64), out=h)
    tl.wait(y, h)
    tl.wait(tl.store(o, y))


def stuck(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
    for _ in range(rounds):
        tl.wait(tl.load(x, (8, 64)))
    tl.recv("E" if tl.program_id() == 0 else "W", (8, 64))


def flags(x: Any, y: Any, rounds: int, *, asc: Any) -> None:
    """A pipe is parked each round: the Wait is said before its Set."""
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    t, source = buf.Get(asc.float32), asc.GlobalTensor(asc.float32)
    source.SetGlobalBuffer(x)
    for _ in range(rounds):
        asc.WaitFlag(asc.HardEvent.MTE2_V, 0)
        asc.Adds(t[64], t, 1.0, 64)
        asc.DataCopy(t, source, 64)
        asc.SetFlag(asc.HardEvent.MTE2_V, 0)
        asc.PipeBarrier(asc.PIPE_ALL)
        t.SetValue(128, t.GetValue(64))


def no_barrier(x: Any, y: Any, rounds: int, *, asc: Any) -> None:
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    t = buf.Get(asc.float32)
    asc.Duplicate(t, 1.0, 64)
    for _ in range(rounds):
        asc.Adds(t[64], t, 1.0, 64)


def long_ago(x: Any, y: Any, rounds: int, *, asc: Any) -> None:
    """What races was said many rows before, and those between are not like it."""
    pipe, buf = asc.TPipe(), asc.TBuf()
    pipe.InitBuffer(buf, 4096)
    t, target = buf.Get(asc.float32), asc.GlobalTensor(asc.float32)
    target.SetGlobalBuffer(y)
    for _ in range(3):
        t.SetValue(512, 1.0)
    asc.Duplicate(t, 1.0, 64)
    for _ in range(rounds):
        t.SetValue(256, 1.0)
    asc.DataCopy(target, t, 64)


def wait_for_nothing(x: Any, y: Any, rounds: int, *, asc: Any) -> None:
    no_barrier(x, y, rounds, asc=asc)
    asc.WaitFlag(asc.HardEvent.V_S, 0)


def on_ahbm(kernel: Any, rounds: int = 20, **how: Any) -> Run:
    chip = AhbmChip()
    x = chip.tensor("x", X.shape, "float32", X, place="replicate")
    o = chip.tensor("o", (8, 32 if kernel is products else 64), "float32")
    return chip.run(kernel, x, o, rounds, **{"check": "collect", "grid": 2, **how})


def on_ascend(kernel: Any, rounds: int = 20, **how: Any) -> Run:
    core = Ascend310pCore()
    tensors = [core.tensor("x", 1024, "float32", X.reshape(-1)[:1024]), core.tensor("y", 1024, "float32")]
    return core.run(kernel, *tensors, rounds, **{"check": "collect", "grid": 2, **how})


def added(**how: Any) -> Run:
    core = Ascend310pCore()
    half = core.tensor("x", 4096, "float16", np.ones(4096)), core.tensor("z", 4096, "float16", np.ones(4096))
    return core.run(vector_add, *half, core.tensor("y", 4096, "float16"), 4096, tile=256, **{"grid": 2, **how})


Make = Callable[..., Run]
CASES: dict[str, Make] = {
    **{each.__name__: lambda each=each, **how: on_ahbm(each, **how) for each in (products, messages, race)},
    **{each.__name__: lambda each=each, **how: on_ascend(each, **how) for each in (flags, no_barrier, long_ago)},
    "vector_add": added,
    "flags without syncs": lambda **how: on_ascend(flags, log="data", **how),
    "nothing": lambda **how: on_ahbm(lambda x, o, rounds, *, tl: None, **how),
}
every_case = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.parquet"


# What is the same


def assert_same(log: OpLog, other: OpLog) -> None:
    assert len(log) == len(other)
    assert (log.table() == other.table()).all()
    assert (log.operand_table() == other.operand_table()).all()
    assert (structure(log), timing(log)) == (structure(other), timing(other))


@every_case
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_run_is_the_same_with_its_log_in_a_file(make: Make, schedule: str, path: Path) -> None:
    usual, spilled = make(schedule=schedule), make(schedule=schedule, spill=path)

    assert_same(usual.log, spilled.log)
    assert (usual.hazards, usual.notes, usual.cycles) == (spilled.hazards, spilled.notes, spilled.cycles)


@every_case
def test_rows_and_questions_have_the_same_answers(make: Make, path: Path) -> None:
    usual, spilled = make().log, make(spill=str(path)).log

    assert list(usual) == list(spilled)
    assert str(usual) == str(spilled)
    for question in (
        {"unit": usual.units.values[0]},
        {"program": 1},
        {"region": ""},
        {"tensor": usual.labels.values[-1]},
    ):
        one, other = usual.where(**question), spilled.where(**question)
        assert (one.index.tolist(), str(one)) == (other.index.tolist(), str(other)), question
        assert one.bytes.sum() == other.bytes.sum()
        assert one.where(reads="x").index.tolist() == other.where(reads="x").index.tolist()


def test_a_mistaken_question_is_refused_alike(path: Path) -> None:
    log = on_ahbm(products, spill=path).log

    with pytest.raises(ValueError, match="no unit is named DMX; the units are CPU, SCHED"):
        log.where(unit="DMX")
    with pytest.raises(ValueError, match="the run has no tensor k; it has scratch, slot, x"):
        log.where(tensor="k")
    with pytest.raises(IndexError):
        log[len(log)]


def test_rows_that_end_late_are_in_a_later_group_and_found_all_the_same(path: Path) -> None:
    log = on_ahbm(messages, 60, spill=path).log
    numbers = pq.read_table(path)["row"].to_pylist()

    assert numbers != sorted(numbers) == list(range(len(log)))
    (recv,) = log.where(name="recv")
    assert recv.end > 0 and log[recv.index] == recv


def test_the_findings_are_there_though_their_rows_have_left_memory(path: Path) -> None:
    for make, kernel in ((on_ahbm, race), (on_ascend, no_barrier), (on_ascend, long_ago)):
        run = make(kernel, 60, spill=path)
        assert {hazard.kind for hazard in run.hazards} & {"race-war", "race-raw", "race-waw"}
        for hazard in run.hazards:
            for op in hazard.ops:
                assert (run.log[op.row].name, run.log[op.row].site) == (op.name, op.site)


# The file


def test_the_file_is_one_table_that_other_tools_read(path: Path) -> None:
    log = on_ahbm(products, spill=path).log
    table = pq.read_table(path).sort_by("row")
    row = table.to_pylist()[log.where(name="load", program=1).index[0]]
    wanted = next(iter(log.where(name="load", program=1)))

    assert table.column_names == list(parquet.ORDER)
    assert pa.types.is_dictionary(table.schema.field("unit").type)
    assert (row["kernel"], row["unit"], row["name"], row["region"], row["shape"]) == (
        "PE1", "DMA_R", "load", "setup", "8x64",
    )  # fmt: skip
    assert (row["issue"], row["start"], row["end"], row["bytes"]) == (
        wanted.issue, wanted.start, wanted.end, wanted.bytes,
    )  # fmt: skip
    assert row["reads"] == [{"tensor": "x", "offset": 0, "size": 2048}]
    assert row["writes"] == [{"tensor": "scratch", "offset": 0, "size": 2048}]
    assert (row["file"], row["line"], row["function"]) == (__file__, wanted.site.line, "products")
    assert (row["after"], row["parent"], row["peer"]) == (None, None, None)


def test_the_file_says_what_the_run_was(path: Path) -> None:
    run = on_ahbm(race, spill=path)
    about = json.loads(pq.read_metadata(path).metadata[b"kernbench"])

    assert about["spec"]["math_lanes"] == run.spec.math_lanes
    assert about["header"]["kernel"] == "race"
    assert (about["cycles"], about["rows"], about["error"]) == (run.cycles, len(run.log), None)
    assert [each["kind"] for each in about["findings"]] == [hazard.kind for hazard in run.hazards]
    loads = run.log.where(unit="DMA_R")
    assert about["totals"]["DMA_R"] == {
        "ops": len(loads), "busy": (loads.free - loads.start).sum(), "bytes": loads.bytes.sum(), "work": 0,
    }  # fmt: skip


def test_the_same_run_writes_the_same_bytes(tmp_path: Path) -> None:
    for make in (CASES["products"], CASES["flags"]):
        one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
        make(spill=one), make(spill=other)
        assert one.read_bytes() == other.read_bytes()


def test_a_log_is_read_in_another_process_and_another_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    log = on_ahbm(products, spill="run.parquet").log
    monkeypatch.chdir("/")

    assert_same(log, read_log(path))
    assert list(path.parent.iterdir()) == [path]


def test_a_log_outlives_the_next_run_of_that_name(path: Path) -> None:
    first = on_ahbm(messages, spill=path).log
    on_ahbm(products, spill=path)

    assert first.where(name="recv").index.tolist() == on_ahbm(messages).log.where(name="recv").index.tolist()


# Refusals


@pytest.mark.parametrize("wrong", ["run.csv", "run", "", 5, True, b"run.parquet"])
def test_a_file_of_another_kind_is_refused(wrong: Any) -> None:
    for make, kernel in ((on_ahbm, products), (on_ascend, flags)):
        with pytest.raises(LaunchError, match=r"spill .*: wants the name of a file that ends in \.parquet"):
            make(kernel, spill=wrong)


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"there is no directory .*/nowhere; name a file in a directory that exists"):
        on_ahbm(products, spill=tmp_path / "nowhere" / "run.parquet")
    (tmp_path / "a.parquet").mkdir()
    with pytest.raises(LaunchError, match="is a directory"):
        on_ascend(flags, spill=tmp_path / "a.parquet")


def test_without_pyarrow_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    for make, kernel in ((on_ahbm, products), (on_ascend, flags)):
        with pytest.raises(ImportError, match=r"pip install 'pytest-kernbench\[parquet\]'"):
            make(kernel, spill=path)
        make(kernel)  # nobody else needs it
    with pytest.raises(ImportError, match=r"pytest-kernbench\[parquet\]"):
        read_log(path)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    text, table = tmp_path / "text.parquet", tmp_path / "table.parquet"
    text.write_text("row,unit\n")
    pq.write_table(pa.table({"row": [1]}), table)

    for path in (text, table, tmp_path / "none.parquet"):
        with pytest.raises(LogFileError, match=f"{path} is no log that a run with spill= has written and finished"):
            read_log(path)


def test_a_log_of_another_format_names_the_version_that_wrote_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_ahbm(products, spill=path)
    monkeypatch.setattr(parquet, "FORMAT", 2)

    with pytest.raises(LogFileError, match=r"has format 1 of version .*, this version reads 2"):
        read_log(path)


# Runs that fail


@pytest.mark.parametrize(
    ("make", "kernel"), [(on_ahbm, stuck), (on_ascend, wait_for_nothing)], ids=["ahbm", "ascend310p"]
)
def test_a_deadlock_leaves_what_was_said_and_the_error(make: Make, kernel: Any, path: Path) -> None:
    with pytest.raises(SimError) as failed:
        make(kernel, 40, spill=path)

    log = read_log(path)
    assert len(log) > 40
    assert log.about["error"].startswith(f"{failed.type.__name__}: ")  # type: ignore[attr-defined]
    assert sum(row.end < 0 for row in log) == (2 if make is on_ahbm else 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_exception_in_the_kernel_leaves_what_was_said(error: type[BaseException], path: Path) -> None:
    def ahbm(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
        for _ in range(rounds):
            tl.wait(tl.load(x, (8, 64)))
        raise error("enough")

    def ascend(x: Any, y: Any, rounds: int, *, asc: Any) -> None:
        no_barrier(x, y, rounds, asc=asc)
        raise error("enough")

    for make, kernel in ((on_ahbm, ahbm), (on_ascend, ascend)):
        with pytest.raises(error, match="enough"):
            make(kernel, 50, spill=path)
        log = read_log(path)
        assert len(log) >= 51
        assert log.about["error"] == f"{error.__name__}: enough"  # type: ignore[attr-defined]


def test_findings_that_fail_the_run_leave_the_file(path: Path) -> None:
    with pytest.raises(SimError, match="race-war"):
        on_ahbm(race, check=True, spill=path)

    assert_same(on_ahbm(race).log, read_log(path))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A full disk, as far as a process can have one for itself."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@pytest.mark.parametrize(("make", "kernel"), [(on_ahbm, products), (on_ascend, flags)], ids=["ahbm", "ascend310p"])
def test_a_full_disk_is_one_error_and_leaves_no_file(make: Make, kernel: Any, path: Path) -> None:
    with (
        files_of_at_most(8 << 10),
        pytest.raises(LogFileError, match=rf"could not be written to {path} after \d+ rows: OSError.*another place"),
    ):
        make(kernel, 40, spill=path)

    assert list(path.parent.iterdir()) == []
    assert make(kernel).log is not None


def test_a_full_disk_beside_an_error_of_the_kernel_is_a_note_of_it(path: Path) -> None:
    def kernel(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
        tl.wait(tl.load(x, (8, 64)))
        raise RuntimeError("enough")

    with files_of_at_most(100), pytest.raises(RuntimeError, match="enough") as failed:
        on_ahbm(kernel, spill=path)

    assert "could not be written" in failed.value.__notes__[0]
    assert list(path.parent.iterdir()) == []


def test_an_interrupt_while_a_group_is_written_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = parquet.LogFile.write

    def interrupted(self: Any, log: Any, piece: Any) -> None:
        written(self, log, piece)
        raise KeyboardInterrupt

    monkeypatch.setattr(parquet.LogFile, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on_ahbm(products, spill=path)

    assert list(path.parent.iterdir()) == []


def test_a_kernel_that_catches_the_error_does_not_hide_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, attempts = parquet.LogFile.write, itertools.count()

    def full_at_first(self: Any, log: Any, piece: Any) -> None:
        if next(attempts) == 0:
            raise OSError(28, "No space left on device")
        written(self, log, piece)

    def kernel(x: Any, o: Any, rounds: int, *, tl: Any) -> None:
        for _ in range(rounds):
            with contextlib.suppress(LogFileError):
                tl.wait(tl.load(x, (8, 64)))

    monkeypatch.setattr(parquet.LogFile, "write", full_at_first)
    with pytest.raises(LogFileError, match=r"after 0 rows: OSError.*No space left on device"):
        on_ahbm(kernel, 100, spill=path)

    assert list(path.parent.iterdir()) == []


def test_pyarrow_is_not_imported_before_it_is_asked_for() -> None:
    loaded = importlib.import_module("subprocess").run(
        [sys.executable, "-c", "import sys; from pytest_kernbench.simulator import AhbmChip, Ascend310pCore, read_log;"
         "print('pyarrow' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert loaded.stdout.strip() == "False"
