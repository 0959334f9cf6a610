"""Whatever a host asks for that no chip can do is a LaunchError that says what was given and what is wanted.

Never a traceback from inside the simulator, never a run of something else than was asked for. Each row is one input.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.errors import LaunchError

X = np.ones((4, 4), np.float32)
SHAPE = "wants 1 to 32 whole numbers > 0"
NAME = "wants a printable string; 'scratch' and 'slot' name other bytes"
PLACE = "is none of 'local', 'replicate', a rank 0..7"
AXES = "wants 2 different names, one an axis of (4, 4)"
ROWS = "wants rows 0..4, a whole number or one a rank or (cube, rank)"
GRID = "wants 1..8 programs a cube and 1..16 cubes"
PES = "different PEs of 0..7"
SCHEDULES = "is none of 'model', 'jitter', 'late'"
CHECKS = "is none of True, 'collect', False"
NO_KERNEL = "is not a kernel: it takes no argument `tl`; write def kernel(..., *, tl)"
ARGUMENTS = "give every argument but tl, by position where run has one of its name"
AMONG = "among the kernel's arguments, which are: x"
PORT = "wants (PE, direction), a whole number and a string"

Asked = Callable[[Any, Any], object]  # what is asked of a chip and its tensor x (4, 4)


def kernel(x: Any, *, tl: Any) -> None:
    tl.wait(tl.load(x, (4, 4)))


def scaled(x: Any, n: int, *, tl: Any) -> None:
    tl.wait(tl.load(x, (4, n)))


def generator(x: Any, *, tl: Any) -> Any:
    yield tl.load(x, (4, 4))


async def coroutine(x: Any, *, tl: Any) -> None:
    tl.load(x, (4, 4))


class Loader:
    """A kernel that is an object."""

    def __call__(self, x: Any, *, tl: Any) -> None:
        tl.wait(tl.load(x, (4, 4)))

    def method(self, x: Any, *, tl: Any) -> None:
        self(x, tl=tl)


def given(chip: AhbmChip, data: Any, dtype: str = "float32", **how: Any) -> Any:
    return chip.tensor("t", (4, 4), dtype, data, 0, **how)


# What is asked, what was given, what is wanted.
TENSORS: list[tuple[Asked, str, str]] = [
    (lambda chip, x: chip.tensor("t", (1,) * 33), "shape (1, 1", SHAPE),
    (lambda chip, x: chip.tensor("", (4, 4)), "tensor name ''", NAME),
    (lambda chip, x: chip.tensor("a\nb", (4, 4)), r"tensor name 'a\nb'", NAME),
    (lambda chip, x: chip.tensor("t", (4, 4), place=True), "place True", PLACE),
    (lambda chip, x: chip.tensor("t", (4, 4), axes=("a", 5)), "axes ('a', 5)", AXES),
    (lambda chip, x: given(chip, 300 * X, "uint8"), "data[0, 0] is 300.0, which uint8 makes", "or another dtype"),
    (lambda chip, x: given(chip, X / 2, "uint8"), "data[0, 0] is 0.5, which uint8 makes 0", "give values it holds"),
    (
        lambda chip, x: given(chip, 7e4 * X, "float16"),
        "data[0, 0] is 70000.0, which float16 makes inf",
        "another dtype",
    ),
    (lambda chip, x: given(chip, X, valid=True), "valid True", ROWS),
    (lambda chip, x: given(chip, X, valid=[[[1]]]), "valid [[[1]]]", ROWS),
    (
        lambda chip, x: chip.run(kernel, given(chip, X, valid=[[1]]), grid=(1, 2)),
        "valid has shape (1, 1)",
        "smaller grid",
    ),
]
RUNS: list[tuple[Asked, str, str]] = [
    (lambda chip, x: chip.run(kernel, x, grid=(1, 1, 1)), "grid (1, 1, 1)", GRID),
    (lambda chip, x: chip.run(kernel, x, placement=(-1,)), "placement (-1,)", PES),
    (lambda chip, x: chip.run(kernel, x, schedule=[]), "schedule '[]'", SCHEDULES),
    (lambda chip, x: chip.run(kernel, x, seed=[]), "seed []", "wants a whole number"),
    (lambda chip, x: chip.run(kernel, x, check=np.array([1, 2])), "check array([1, 2])", CHECKS),
    (lambda chip, x: chip.run(kernel, x, data=1), "data 1", "is none of True, False, None"),
    (lambda chip, x: chip.run(kernel, x, data=X), "data array(", "is none of True, False, None"),
    (lambda chip, x: chip.run(kernel, x, max_cycles=None), "max_cycles = None", "wants a whole number >= 1"),
    (lambda chip, x: chip.run(kernel, x, max_ops=True), "max_ops = True", "wants a whole number >= 1"),
    (lambda chip, x: chip.run(Loader, x), "Loader'>", NO_KERNEL),
    (lambda chip, x: chip.run(generator, x), "kernel generator is a generator or async", "write a plain function"),
    (lambda chip, x: chip.run(coroutine, x), "kernel coroutine is a generator or async", "write a plain function"),
    (lambda chip, x: chip.run(scaled, x), "missing a required argument: 'n'", ARGUMENTS),
    (lambda chip, x: chip.run(kernel, x, x=x), "multiple values for argument 'x'", ARGUMENTS),
    (lambda chip, x: chip.run(functools.partial(scaled, x)), "missing a required argument: 'n'", ARGUMENTS),
    (
        lambda chip, x: chip.run(kernel, x, tl=5),
        "kernel kernel was given tl = 5",
        "each program gets its own; leave it",
    ),
    (lambda chip, x: chip.run(kernel, x).array("y"), "no tensor 'y'", AMONG),
    (lambda chip, x: chip.run(kernel, x).array(X), "no tensor array(", AMONG),
]
CHIPS: list[tuple[Asked, str, str]] = [
    (lambda chip, x: AhbmChip(ports={(0, 1): (1, "W"), (1, "W"): (0, 1)}), "port (0, 1)", PORT),
    (lambda chip, x: ring_ports(5), "ring of 5", "wants a sequence of PE numbers"),
    (lambda chip, x: ring_ports((0, "a")), "ring of (0, 'a')", "wants a sequence of PE numbers"),
    (lambda chip, x: AhbmSpec(mesh_rows=10**5), "16 cubes of 400000 PEs are 6400000 PEs", "a chip has 16384 at most"),
    (lambda chip, x: AhbmSpec(hop_cycles=2**31), "spec field hop_cycles = 2147483648", "from 0 to 1000000"),
    (lambda chip, x: AhbmSpec(hbm_efficiency_percent=150), "hbm_efficiency_percent = 150", "from 1 to 100"),
    (lambda chip, x: AhbmSpec(ipcq_slots=2**20), "1048576 ipcq_slots take 17179869184 bytes", "a direction has"),
]


@pytest.fixture
def chip() -> AhbmChip:
    return AhbmChip()


@pytest.fixture
def x(chip: AhbmChip) -> Any:
    return chip.tensor("x", (4, 4), "float32", X, 0)


def title(value: object) -> str:
    return f"line {value.__code__.co_firstlineno}" if isinstance(value, type(title)) else ""


@pytest.mark.parametrize(("asked", "fact", "wanted"), [*TENSORS, *RUNS, *CHIPS], ids=title)
def test_a_bad_input_is_a_launch_error(chip: AhbmChip, x: Any, asked: Asked, fact: str, wanted: str) -> None:
    with pytest.raises(LaunchError) as caught:
        asked(chip, x)

    assert re.search(f"(?s){re.escape(fact)}.*{re.escape(wanted)}", str(caught.value))


def test_every_row_is_an_input_of_its_own() -> None:
    rows = [row[0].__code__ for row in (*TENSORS, *RUNS, *CHIPS)]

    assert len({(code.co_code, repr(code.co_consts), code.co_names) for code in rows}) == len(rows) == 36


def test_a_refused_tensor_takes_no_memory(chip: AhbmChip, x: Any) -> None:
    with pytest.raises(LaunchError):
        given(chip, X, valid=99)

    assert chip.tensor("y", (4, 4)).offset == x.offset + 256


@pytest.mark.parametrize(
    "asked",
    [
        lambda chip, x: chip.run(kernel, x, grid=np.int64(2)),
        lambda chip, x: chip.run(kernel, x, grid=[np.int64(2), 1], placement=np.array([3, 1])),
        lambda chip, x: chip.run(kernel, x, grid=2, placement=range(2), seed=np.int64(3), schedule="jitter"),
        lambda chip, x: chip.run(kernel, x, max_cycles=np.int64(1000), max_ops=10**12),
        lambda chip, x: chip.run(scaled, x, np.int64(4)),
        lambda chip, x: chip.run(functools.partial(scaled, n=4), x),
        lambda chip, x: chip.run(functools.partial(functools.partial(scaled, x), 4)),
        lambda chip, x: chip.run(Loader(), x),
        lambda chip, x: chip.run(Loader().method, x),
        lambda chip, x: chip.run(functools.wraps(kernel)(lambda *args, **how: kernel(*args, **how)), x),
        lambda chip, x: chip.run(lambda x, y, *, tl: kernel(y, tl=tl), x, x),
        lambda chip, x: chip.run(kernel, chip.tensor("t", [np.int64(4), 4], np.float32, X, np.int64(0))),
        lambda chip, x: chip.run(kernel, given(chip, X, axes=["a", "b"])),
        lambda chip, x: chip.run(kernel, given(chip, X.astype(int).tolist(), valid=np.int64(4))),
        lambda chip, x: chip.run(kernel, given(chip, X > 0, "uint8", valid=[4])),
        lambda chip, x: chip.run(kernel, given(chip, np.full((4, 4), np.inf), "float16", valid=[[4]])),
        lambda chip, x: AhbmChip(ports={(np.int64(0), "E"): [1, "W"], (1, "W"): (0, "E")}),
        lambda chip, x: ring_ports([np.int64(0), 1]),
        lambda chip, x: AhbmSpec(issue_costs=np.int64(0)),
    ],
    ids=title,
)  # fmt: skip
def test_numpy_numbers_lists_partials_and_objects_are_as_good(chip: AhbmChip, x: Any, asked: Asked) -> None:
    asked(chip, x)


def test_a_partial_is_told_pointers_for_its_own_tensors_and_is_named_as_its_function(chip: AhbmChip, x: Any) -> None:
    run = chip.run(functools.partial(scaled, x), 4)

    (row,) = run.log.where(name="load")
    assert row.site.function == "scaled"
    assert run.tensors == {"x": x}


def test_the_number_of_a_spec_is_an_int_whatever_it_was_given_as() -> None:
    assert type(AhbmSpec(mesh_rows=np.int64(2)).mesh_rows) is int
    assert AhbmSpec(mesh_rows=np.int64(2)) == AhbmSpec(mesh_rows=2)


def test_a_cost_that_ends_the_log_stops_the_run_before_a_column_overflows(chip: AhbmChip) -> None:
    """max_cycles is kept below what 32 bits hold, so that what is said last still fits."""
    from pytest_kernbench.simulator.errors import LivelockError

    def endless(*, tl: Any) -> None:
        while True:
            with tl.scratch_scope():
                tl.zeros((4,))

    with pytest.raises(LivelockError, match=r"passed max_cycles = 2080374784 at test_bad_input_host.py"):
        AhbmChip(AhbmSpec(issue_costs=10**6)).run(endless, data=False)
