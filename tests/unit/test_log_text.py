"""The text of a log: what a reviewer reads, what changes no line of it, and what a mismatch says."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ops.critical import critical_path
from pytest_kernbench.simulator.ops.difference import first_difference
from pytest_kernbench.simulator.ops.entries import Reading
from pytest_kernbench.simulator.ops.log import OpLog
from pytest_kernbench.simulator.ops.text import FormatError, parse, structure, timing

Launch = Callable[..., Any]
TILE = (4, 64)
SHAPES: dict[str, Any] = {"X": ((12, 64), "bfloat16"), "O": ((12, 64), "bfloat16")}


def tiles(x: Any, o: Any, *, tl: Any) -> None:
    """Three tiles from the front of X to the back of O."""
    for n in range(3):
        with tl.scratch_scope(), tl.region("tile"):
            tl.wait(tl.store(o + (2 - n) * 256, tl.load(x + n * 256, TILE) * 2.0))


@pytest.fixture
def launch(launch: Launch) -> Launch:
    """Runs whose logs have no header, so that the texts here are of ops alone."""

    def run(*args: Any, **options: Any) -> Any:
        outcome = launch(*args, **options)
        outcome.log.header = {}
        return outcome

    return run


TILES = """\
# oplog 1 structure
# 18 ops: CPU 9, DMA_R 3, DMA_W 3, MATH 3

PE0:
  loop 3 i:
    DMA_R   load       4x64       X+0x0(+0x200i) -> scratch+0x0  512B  @tile
    CPU     wait       for load@tile  @tile
    MATH    mul        4x64       scratch+0x0:512 -> scratch+0x200:1024  @tile
    CPU     wait       for mul@tile  @tile
    DMA_W   store      4x64       scratch+0x200:1024 -> O+0x400(-0x200i)  512B  @tile
    CPU     wait       for store@tile  @tile
"""


def body(log: OpLog) -> list[str]:
    """The lines of the first section."""
    lines = structure(log).split("\n\n")[1].splitlines()
    return [line.removeprefix("  ") for line in lines[1:]]


# What it says


def test_a_loop_is_written_once_with_offsets_that_move(launch: Launch) -> None:
    assert structure(launch(tiles, **SHAPES).log) == TILES


def test_a_composite_is_written_with_what_it_is_made_of(launch: Launch) -> None:
    def product(a: Any, b: Any, o: Any, *, tl: Any) -> None:
        scaled = (("scale", 2.0),)
        tl.wait(tl.composite("gemm", tl.load(a, (8, 64)), tl.ref(b, (96, 64)), trans_b=True, out=o, epilogue=scaled))

    log = launch(product, A=((8, 64), "bfloat16"), B=((96, 64), "bfloat16"), O=((8, 96), "bfloat16")).log

    assert body(log)[2:8] == [
        "SCHED   composite  8x96x64    scratch+0x0:1024 -> scratch+0x400:3072",
        "  loop 3 i:",
        "    DMA_R   panel      B+0x0(+0x1000i)  4096B",
        "    GEMM    gemm       8x32x64",
        "  GEMM    epilogue   8x96",
        "  DMA_W   writeback  8x96       scratch+0x400:3072 -> O+0x0  1536B",
    ]


def test_a_wait_counts_what_has_been_said_since(launch: Launch) -> None:
    """Two loads are in flight all the time: each wait is for the newest but one, whatever its row."""

    def ahead(x: Any, *, tl: Any) -> None:
        with tl.region("in"):
            handles = [tl.load(x, TILE)]
        for n in (1, 2):
            with tl.region("in"):
                handles.append(tl.load(x + n * 256, TILE))
            tl.wait(handles[-2])
        tl.wait(handles[-1])

    log = launch(ahead, X=((12, 64), "bfloat16")).log

    assert [line.strip() for line in body(log) if "wait" in line] == [
        "CPU     wait       for load@in~1",
        "CPU     wait       for load@in~1",
        "CPU     wait       for load@in",
    ]


def test_a_strided_block_is_one_operand(launch: Launch) -> None:
    def strided(x: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (8, 32), (128, 1)))

    log = launch(strided, X=((8, 128), "bfloat16")).log

    assert body(log)[0] == "DMA_R   load       8x32       X+0x0:64(x8 +0x100) -> scratch+0x0  512B  8 runs"
    assert parse(structure(log)) == Reading(log).entries()


def test_messages_name_their_peer_from_where_one_stands(launch: Launch) -> None:
    """Every PE but the ends receives from the one below and sends to the one above: they share a section."""

    def chain(*, tl: Any) -> None:
        held = tl.full((4,), 1.0)
        if tl.program_id(0):
            held = held + tl.recv("W", (4,))
        if tl.program_id(0) < 3:
            tl.wait(tl.send("E", held))

    text = structure(launch(chain, grid=4).log)

    assert [line for line in text.splitlines() if line.endswith(":")] == ["PE0:", "PE1, PE2:", "PE3:"]
    assert "  CPU     recv       4          16B  peer-1\n" in text
    assert "  IPCQ.E  send       4          scratch+0x40 -> slot+0x0  16B  peer+1\n" in text


def test_waits_for_a_message_and_for_a_slot_say_so(launch: Launch) -> None:
    def pair(*, tl: Any) -> None:
        if tl.program_id(0) == 0:
            for _ in range(2):
                tl.wait(tl.send("E", tl.zeros((4,))))
        else:
            first, second = tl.recv_async("W", (4,)), tl.recv_async("W", (4,))
            tl.wait(first)
            tl.release(first)
            tl.wait(second)

    text = structure(launch(pair, grid=2, spec={"ipcq_slots": 1}).log)

    assert "  CPU     wait       for credit  peer+1\n" in text
    assert [line.split("for ")[1] for line in text.splitlines() if "for message" in line] == [
        "message~1  peer-1",
        "message  peer-1",
    ]


def test_what_several_programs_have_in_common_is_written_once(launch: Launch) -> None:
    def kernel(*, tl: Any) -> None:
        x = tl.full((4, 4), 1.0)
        for steps in range(1, 12):
            x = tl.exp(x) if steps % 2 else tl.full((steps, 4), 1.0)
        if tl.program_id(0) == 1:
            tl.sum(x)

    lines = structure(launch(kernel, grid=3).log).splitlines()

    assert lines[3:6] == ["PE0, PE2:", "  part A:", "    MATH    full       4x4        -> scratch+0x0:64"]
    assert lines[-3:-1] == ["PE1:", "  part A"]
    assert lines[-1].startswith("  MATH    sum ")


def test_programs_that_count_up_are_a_span(launch: Launch) -> None:
    tensors = {name: (*shape, "local") for name, shape in SHAPES.items()}
    two, three = (structure(launch(tiles, grid=grid, **tensors).log) for grid in (2, 3))

    assert "\nPE0, PE1:\n" in two
    assert "\nPE0..PE2:\n" in three
    assert list(parse(three)) == ["PE0", "PE1", "PE2"]


def test_names_that_could_be_mistaken_are_quoted_and_read_back(launch: Launch) -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        with tl.region("a  b, c"):
            tl.wait(tl.load(x, TILE))

    log = launch(kernel, **{"K+0x0 -> V": (TILE, "bfloat16")}).log  # a tensor whose name looks like operands

    assert parse(structure(log)) == Reading(log).entries()
    assert '"K+0x0\\u0020->\\u0020V"+0x0 -> scratch+0x0  512B  @"a\\u0020\\u0020b,\\u0020c"' in body(log)[0]


def test_the_header_of_the_log_comes_second_and_in_order(launch: Launch) -> None:
    log = launch(tiles, **SHAPES).log
    log.header = {"tile": "4x64", "kernel": "tiles"}

    assert structure(log) == TILES.replace("structure\n", "structure\n# kernel tiles  tile 4x64\n")
    assert timing(log).startswith("# oplog 1 timing\n# kernel tiles  tile 4x64\n")


# What changes it


@pytest.mark.parametrize("spec", [{"issue_costs": 0}, {"hbm_first_byte_cycles": 400}, {"math_lanes": 1}], ids=str)
def test_other_costs_change_the_timing_and_no_line_of_the_structure(launch: Launch, spec: dict[str, int]) -> None:
    log, other = launch(tiles, **SHAPES).log, launch(tiles, spec=spec, **SHAPES).log

    assert structure(other) == structure(log)
    assert timing(other) != timing(log)


@pytest.mark.parametrize("schedule", ["jitter", "late"])
def test_other_schedules_change_no_line_of_the_structure(launch: Launch, schedule: str) -> None:
    assert structure(launch(tiles, schedule=schedule, seed=5, **SHAPES).log) == TILES


def test_one_more_op_is_one_more_line_and_the_totals(launch: Launch) -> None:
    def more(x: Any, o: Any, *, tl: Any) -> None:
        tl.zeros((1,))
        tiles(x, o, tl=tl)

    old, new = TILES.splitlines(), structure(launch(more, **SHAPES).log).replace("scratch+0x40", "scratch+0x0")
    changed = [line for line in difflib.ndiff(old, new.splitlines()) if line[0] in "+-"]

    assert [line for line in changed if "zeros" in line] == ["+   MATH    zeros      1          -> scratch+0x0:4"]
    assert len([line for line in changed if "#" in line]) == 2


# Timing


def test_timing_has_what_each_unit_did_and_when_each_region_ran(launch: Launch) -> None:
    run = launch(tiles, **SHAPES)
    dma, log = run.log.where(unit="DMA_R"), run.log

    lines = timing(log).splitlines()

    assert f"cycles {run.cycles}" in lines
    assert f"DMA_R   3 ops  busy {(dma.free - dma.start).sum()}  bytes 1536  charged 1536" in lines
    assert f"@ {log.where(region='tile').issue.min()}..{log.where(region='tile').end.max()}  tile  PE0" in lines


def test_programs_that_agree_share_a_checkpoint(launch: Launch) -> None:
    lines = timing(launch(tiles, grid=2, X=((12, 64), "bfloat16", "local"), O=((12, 64), "bfloat16", "local")).log)

    assert [line.split("  ")[1:] for line in lines.splitlines() if line.startswith("@")] == [["tile", "PE0, PE1"]]


def test_the_critical_path_covers_every_cycle_once(launch: Launch) -> None:
    run = launch(tiles, **SHAPES)
    path = critical_path(run.log)

    assert [segment.start for segment in path] == [0, *(segment.end for segment in path[:-1])]
    assert path[-1].end == run.cycles


def test_the_critical_path_of_a_chain_is_the_chain(launch: Launch) -> None:
    """Load, multiply and store wait for one another, so each counts with its whole length."""
    log = launch(tiles, **SHAPES).log
    path = critical_path(log)

    for unit in ("DMA_R", "MATH", "DMA_W"):
        rows = log.where(unit=unit)
        assert sum(each.end - each.start for each in path if each.unit == unit) == (rows.end - rows.start).sum() > 0


def test_work_off_the_critical_path_does_not_count(launch: Launch) -> None:
    def kernel(x: Any, o: Any, *, tl: Any) -> None:
        long = [tl.load(x, (12, 64)) for _ in range(8)]
        tl.zeros((8,))
        tl.wait(tl.store(o, long[-1]))
        tl.wait(*long)

    units = {segment.unit for segment in critical_path(launch(kernel, **SHAPES).log)}

    assert units == {"CPU", "DMA_R", "DMA_W"}


# First difference


def test_equal_texts_have_none() -> None:
    assert first_difference(TILES, TILES) == "no difference"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mul        4x64 ", "mul        4x32 ", "PE0 op 2: (line 8, i=0) MATH mul: shape 4x64 -> 4x32"),
        ("O+0x400(-0x200i)", "O+0x400", "PE0 op 10: (line 10, i=1) DMA_W store: write O+0x200:512 -> O+0x400:512"),
        ("for mul@tile", "for mul@tile~1", "PE0 op 3: (line 9, i=0) CPU wait: awaits mul@tile -> mul@tile~1"),
        (" 512B  @tile", " 512B  2 runs  @tile", "PE0 op 0: (line 6, i=0) DMA_R load: runs 1 -> 2"),
        ("MATH    mul ", "MATH    exp ", "PE0 op 2: (line 8, i=0) MATH mul: name mul -> exp"),
    ],
    ids=["shape", "offset", "awaits", "runs", "name"],
)  # fmt: skip
def test_a_changed_op_is_told_by_field_and_iteration(old: str, new: str, said: str) -> None:
    assert old in TILES
    message = first_difference(TILES, TILES.replace(old, new)).splitlines()

    assert message[0] == f"first difference: {said}"
    assert message[1] == "ops: 18, the same on every unit"
    assert any(line.startswith("+ ") and new.strip() in line for line in message)


def test_an_op_more_or_less_is_told_as_that() -> None:
    without = "".join(line for line in TILES.splitlines(keepends=True) if " mul  " not in line)

    missing, added = first_difference(TILES, without), first_difference(without, TILES)

    start = "first difference: PE0 op 2: (line 8, i=0) 1 op is"
    assert missing.startswith(f"{start} missing: MATH mul 4x64 scratch+0x0:512 -> scratch+0x200:1024 @tile\n")
    assert added.startswith(f"{start} added: MATH mul 4x64 ")
    assert missing.splitlines()[1] == "ops: 18 -> 15 (MATH 3 -> 0)"


def test_another_number_of_iterations_is_told_by_the_first_op_too_many() -> None:
    message = first_difference(TILES, TILES.replace("loop 3", "loop 2"))

    assert message.startswith("first difference: PE0 op 12: (line 6, i=2) 6 ops are missing: DMA_R load 4x64 X+0x400 ")


def test_a_program_that_came_or_went_is_named() -> None:
    assert first_difference(TILES, TILES.replace("PE0", "PE0..PE2")).startswith("programs differ: with new PE1, PE2\n")
    assert first_difference(TILES.replace("PE0", "PE0, PE1"), TILES).startswith("programs differ: without PE1\n")


def test_the_message_fits_into_what_pytest_shows_of_an_assertion() -> None:
    """Eight lines (facts of pytest's truncation); what was first is among them."""
    for old, new in (("mul ", "exp "), ("loop 3", "loop 2"), ("512B", "256B")):
        message = first_difference(TILES, TILES.replace(old, new)).splitlines()[:8]
        assert any(line.startswith("-") for line in message) and any(line.startswith("+") for line in message)


def test_a_golden_of_another_version_or_that_was_cut_is_to_be_regenerated() -> None:
    old = first_difference(TILES.replace("oplog 1", "oplog 0"), TILES)
    assert old.startswith("the golden is '# oplog 0 structure', this is '# oplog 1 structure': regenerate")
    cut = first_difference(TILES.replace("scratch+0x0:512 ->", "scratch+ ->"), TILES)
    assert cut.startswith("the golden cannot be read: line 8: no operand: 'scratch+'") and cut.endswith(
        "; regenerate it"
    )


def test_a_timing_difference_gives_both_numbers_and_both_totals(launch: Launch) -> None:
    old, new = timing(launch(tiles, **SHAPES).log), timing(launch(tiles, spec={"math_start_cycles": 33}, **SHAPES).log)

    message = first_difference(old, new).splitlines()

    assert message[0] == "first difference (line 3): cycles 510 -> 513"
    assert message[1].endswith("lines differ; 510 -> 513 cycles")


def softmax(x: Any, o: Any, *, tl: Any, tile: int) -> None:
    """Blocks of 8 rows and `tile` columns: with another tile nearly every line of its log says something else."""
    for n in range(3):
        with tl.scratch_scope(), tl.region("tile"):
            h = tl.load(x + n * 8 * tile, (8, tile))
            e = tl.exp(h - tl.max(h, 1))
            tl.wait(tl.store(o + n * 8 * tile, e / tl.sum(e, 1)))


def softmax_texts(write: Callable[[OpLog], str]) -> tuple[str, str]:
    """Of tiles with 32 and 48 columns."""
    logs = []
    for tile in (32, 48):
        chip = AhbmChip()
        x, o = (chip.tensor(name, (24, 48), place=0) for name in "XO")
        logs.append(chip.run(softmax, x, o, tile=tile).log)
    return write(logs[0]), write(logs[1])


def unmarked(message: str) -> list[str]:
    """The lines that a difference shows as the same on both sides."""
    return [line[2:] for line in message.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("write", [structure, timing])
def test_a_line_without_a_sign_is_in_both_texts(write: Callable[[OpLog], str]) -> None:
    """The line behind the first that differs has changed too: it is no context, though its place is the same."""
    old, new = softmax_texts(write)
    message = first_difference(old, new)

    assert message.count("\n- ") == message.count("\n+ ") >= 1
    assert all(line in old.splitlines() and line in new.splitlines() for line in unmarked(message))
    assert ("work 256" in old) == (write is structure) and "work 256" not in message


def test_context_ends_where_the_next_change_begins() -> None:
    changed = TILES.replace("mul        4x64 ", "mul        4x32 ").replace("store      4x64", "store      4x32")

    lines = first_difference(TILES, changed).splitlines()

    assert [line[:12] for line in lines[2:]] == [
        "      DMA_R ", "      CPU   ", "-     MATH  ", "+     MATH  ", "      CPU   ",
    ]  # fmt: skip


def test_every_line_of_a_timing_that_changed_is_shown_old_above_new() -> None:
    old, new = softmax_texts(timing)
    changed = [pair for pair in zip(old.splitlines(), new.splitlines(), strict=True) if pair[0] != pair[1]]

    message = first_difference(old, new).splitlines()

    assert message[1].startswith(f"{len(changed)} of {len(old.splitlines())} lines differ; ")
    assert message[2:] == [f"{sign} {line}" for pair in changed for sign, line in zip("-+", pair, strict=True)]
    assert {line.split()[1] for line in message[2:]} >= {"cycles", "CPU", "MATH", "@"}


def test_a_timing_of_which_much_changed_is_shown_in_part() -> None:
    old, new = ("# oplog 1 timing\n" + "".join(f"@ {n}..{n + length}\n" for n in range(23)) for length in (1, 2))

    message = first_difference(old, new).splitlines()

    assert message[1] == "23 of 24 lines differ; ? -> ? cycles"
    assert (message[-2], message[-1]) == ("+ @ 19..21", "... 3 more lines differ")


def test_lines_that_came_have_no_old_ones_above(launch: Launch) -> None:
    old = timing(launch(tiles, **SHAPES).log)

    assert first_difference(old, old + "@ 1..2  late  PE0\n").splitlines()[2:] == ["+ @ 1..2  late  PE0"]


def test_a_header_that_changed_alone_is_shown() -> None:
    old, new = (TILES.replace("structure\n", f"structure\n# tile {tile}\n") for tile in (1, 2))

    assert first_difference(old, new).splitlines() == [
        "the ops are the same, their text differs", "- # tile 1", "+ # tile 2",
    ]  # fmt: skip


# Reading it


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# oplog 1 structure", "# oplog 2 structure", "line 1: wants '# oplog 1 structure', is '# oplog 2 structure'"),
        ("# oplog 1 structure", "<<<<<<< HEAD", "line 1: wants '# oplog 1 structure', is '<<<<<<< HEAD'"),
        ("  loop 3 i:", "  part B", "line 5: part B has not been written out before"),
        ("X+0x0(+0x200i)", "X+0x0(+0x200)", "line 6: no operand: "),
        ("  512B  @tile", "  512B  half  @tile", "line 6: no column: "),
    ],
)
def test_what_cannot_be_read_names_its_line(old: str, new: str, said: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(TILES.replace(old, new, 1))

    assert str(caught.value).startswith(said)


def test_an_empty_log_has_a_text_too() -> None:
    log = OpLog()

    assert parse(structure(log)) == {}
    assert timing(log).splitlines()[2] == "cycles 0"


def test_four_thousand_ops_that_a_loop_said_are_a_few_lines(launch: Launch) -> None:
    def many(*, tl: Any) -> None:
        state = tl.zeros((4,))
        for _ in range(20):
            for _ in range(200):
                tl.exp(state, out=state)
            tl.zeros((4,))

    log = launch(many, check=False, data=False).log

    assert len(log) == 4021
    assert body(log) == [
        "loop 20 i:",
        "  MATH    zeros      4          -> scratch+0x0(+0x40i):16",
        "  loop 200: MATH    exp        4          scratch+0x0:16 -> scratch+0x0:16",
        "MATH    zeros      4          -> scratch+0x500:16",
    ]
