"""Questions to a log: `where` narrows down by attribute, columns come as arrays, a wrong question is an error.

The kernel loads two tiles of X and one of Y, multiplies, and stores; each PE has its own O.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ops.log import END, NONE, WIDTH, Operand, OpLog
from pytest_kernbench.simulator.ops.text import structure

TILE = (4, 64)
BYTES = 4 * 64 * 2


def kernel(x: Any, y: Any, o: Any, *, tl: Any) -> None:
    first, second = tl.load(x, TILE), tl.load(x + 256, TILE)
    with tl.region("body"):
        scaled = tl.load(y, TILE) * 2.0
        with tl.region("sum"):
            total = tl.add(first, scaled)
            total = tl.add(total, second)
    tl.wait(tl.store(o, total))


@pytest.fixture
def log(launch: Callable[..., Any]) -> OpLog:
    """Two PEs; X and Y are in the first one's HBM."""
    run = launch(kernel, X=((8, 64), "bfloat16", 0), Y=(TILE, "bfloat16", 0), O=(TILE, "bfloat16", "local"), grid=2)
    found: OpLog = run.log
    return found


def test_conditions_are_met_together_whatever_their_order(log: OpLog) -> None:
    together = log.where(unit="MATH", region="body", program=1)
    stepwise = log.where(program=1).where(region="body").where(unit="MATH")

    assert [row.name for row in together] == ["mul"]
    assert together.index.tolist() == stepwise.index.tolist()


def test_several_values_are_alternatives(log: OpLog) -> None:
    assert {row.name for row in log.where(name=("add", "mul"))} == {"add", "mul"}
    assert len(log.where(name=("add", "mul"))) == len(log.where(name="add")) + len(log.where(name="mul")) == 6
    assert len(log.where(program=[0, 1])) == len(log)


def test_a_unit_is_named_whole_or_by_its_first_part(log: OpLog) -> None:
    assert {row.name for row in log.where(unit="DMA")} == {"load", "store"}
    assert {row.name for row in log.where(unit="DMA_W")} == {"store"}


@pytest.mark.parametrize("wrong", ["D", "R", "dma", 5, None])
def test_a_unit_that_does_not_exist_is_a_mistake_and_not_an_empty_selection(log: OpLog, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"no unit is named {wrong}; the units are CPU, SCHED, DMA_R"):
        log.where(unit=wrong)


def test_a_unit_that_was_idle_is_an_empty_selection(log: OpLog) -> None:
    assert len(log.where(unit="IPCQ")) == 0


def test_a_tensor_that_does_not_exist_is_a_mistake_and_not_an_empty_selection(log: OpLog) -> None:
    with pytest.raises(ValueError, match=r"the run has no tensor x; it has .*X"):
        log.where(tensor="x")


def test_a_name_that_is_no_string_selects_nothing(log: OpLog) -> None:
    assert len(log.where(name=5)) == len(log.where(region=None)) == 0


def test_tensor_means_any_operand_and_reads_and_writes_tell_which(log: OpLog) -> None:
    assert {row.name for row in log.where(tensor="X")} == {"load"}
    assert {row.name for row in log.where(writes="O")} == {"store"}
    assert len(log.where(reads="O")) == len(log.where(writes="X")) == 0
    assert len(log.where(tensor=("X", "Y"))) == 6
    assert {row.name for row in log.where(reads="scratch")} == {"mul", "add", "store"}
    assert {row.name for row in log.where(writes="scratch")} == {"load", "mul", "add"}


def test_ops_without_operands_touch_nothing(log: OpLog) -> None:
    touched = log.where(tensor=("X", "Y", "O", "scratch"))

    assert {row.unit for row in log} - {row.unit for row in touched} == {"CPU"}


def test_a_region_is_named_with_those_around_it(log: OpLog) -> None:
    assert [row.name for row in log.where(region="body/sum", unit="MATH", program=0)] == ["add", "add"]
    assert len(log.where(region="sum")) == 0


def test_columns_are_arrays_of_the_selected_rows_in_order(log: OpLog) -> None:
    loads = log.where(name="load", program=0)

    assert loads.bytes.sum() == 3 * BYTES
    assert (np.diff(loads.issue) > 0).all()
    assert (loads.issue <= loads.start).all() and (loads.start < loads.free).all() and (loads.free < loads.end).all()
    assert loads.bytes.tolist() == [row.bytes for row in loads]


def test_nothing_selected_has_empty_columns(log: OpLog) -> None:
    nothing = log.where(name="load").where(name="store")

    assert (len(nothing), nothing.bytes.sum(), list(nothing)) == (0, 0, [])


def test_a_row_tells_its_operands_its_line_and_what_it_waited_for(log: OpLog) -> None:
    store = next(iter(log.where(name="store", program=1)))
    *_, wait, _ = log.where(name="wait", program=1)

    assert store.operands == (
        Operand("scratch", store.operands[0].offset, 4 * 256, False),
        Operand("O", 0, BYTES, True),
    )
    assert (store.shape, store.bytes, store.unit) == (TILE, BYTES, "DMA_W")
    assert (store.site.file, store.site.function) == (__file__, "kernel")
    assert (wait.name, log[wait.after].name, log[wait.after].region) == ("wait", "add", "body/sum")


def test_rows_count_from_the_end_too_and_stop_at_both_ends(log: OpLog) -> None:
    assert log[-1] == log[len(log) - 1] == list(log)[-1]
    with pytest.raises(IndexError, match=f"row {len(log)} of a log of {len(log)} rows"):
        log[len(log)]
    with pytest.raises(IndexError):
        log[-len(log) - 1]


def test_the_log_of_nothing_can_be_asked_too() -> None:
    log = OpLog()

    assert (len(log), list(log), len(log.where(unit="DMA", tensor="K", program=0))) == (0, [], 0)
    assert log.all.bytes.sum() == 0


def test_the_text_of_a_log_is_its_structure(log: OpLog) -> None:
    assert str(log) == structure(log)
    assert str(OpLog()) == "# oplog 1 structure\n# 0 ops\n"


def test_the_text_of_a_selection_has_a_line_a_row_in_columns(log: OpLog) -> None:
    loads, adds = log.where(name="load", program=1), log.where(name="add", program=1)
    text = str(loads).splitlines()

    assert len(text) == len(loads) == 3
    assert text[1].split() == [
        "PE1", "DMA_R", "load", f"{loads.issue[1]}..{loads.end[1]}", f"{BYTES}B", f"X[{BYTES}:{2 * BYTES}]", "->",
        f"scratch[{BYTES}:{2 * BYTES}]", str(log[int(loads.index[1])].site).split()[0], "in", "kernel",
    ]  # fmt: skip
    assert len({line.index(".py:") for line in text}) == 1
    reads = next(iter(adds)).operands[:2]
    assert f"{', '.join(f'{r.tensor}[{r.offset}:{r.offset + r.size}]' for r in reads)} -> scratch[" in str(adds)


def test_an_op_that_has_not_ended_has_no_end_in_the_text(log: OpLog) -> None:
    first = int(log.where(name="load").index[0])
    log.cells[first * WIDTH + END] = NONE

    assert f"  load  {log[first].issue}..  " in str(log.where(name="load"))


def test_many_operands_are_counted(launch: Callable[..., Any]) -> None:
    def strided(x: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (8, 32), (128, 1)))

    log = launch(strided, X=((8, 128), "bfloat16")).log

    assert "  X[0:64], X[256:320], X[512:576], 5 more -> scratch[0:512]  " in str(log.where(name="load"))


def test_the_text_of_many_rows_ends_with_how_many_more(launch: Callable[..., Any]) -> None:
    def many(count: int, *, tl: Any) -> None:
        for _ in range(count):
            tl.zeros((4,))

    def text(count: int) -> list[str]:
        log = AhbmChip().run(many, count).log
        return str(log.where(name="zeros")).splitlines()

    assert text(40)[-1].startswith("PE0  MATH  zeros  ")
    assert (len(text(43)), text(43)[-1]) == (41, "... and 3 more")


def test_nothing_selected_has_a_text_too(log: OpLog) -> None:
    nothing = log.where(name="load").where(name="store")

    assert (str(nothing), repr(nothing)) == ("no rows", f"<0 of {len(log)} rows>")


def test_an_unknown_column_names_those_there_are(log: OpLog) -> None:
    with pytest.raises(AttributeError, match=r"no column 'cycles'; it has name, unit, program, .*runs"):
        _ = log.all.cycles
    with pytest.raises(AttributeError, match="no column 'kernel'"):
        log.where(kernel="PE0")


def test_a_shape_is_asked_for_as_it_is_written_or_as_it_is_said(log: OpLog) -> None:
    assert {row.shape for row in log.where(shape=TILE)} == {TILE}
    assert len(log.where(shape="4x64")) == len(log.where(shape=TILE)) == len(log.where(shape=[TILE, (9, 9)])) > 0
    assert len(log.where(shape=(64, 4))) == len(log.where(shape=4)) == 0


@pytest.mark.parametrize(("column", "value"), [("bytes", "x"), ("issue", None), ("site", (3, "x"))])
def test_a_number_is_asked_for_by_a_number(log: OpLog, column: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{column} is a number in every row, and (None|'x') is none"):
        log.where(**{column: value})
