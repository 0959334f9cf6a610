"""What the host asks for and cannot have: tensors, launches, readings, ports. Refused before anything runs."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.errors import HazardError, KernelError, LaunchError

X = np.ones((4, 4), np.float32)
NAN = float("nan")
Ask = Callable[[AhbmChip], Any]


def load(x: Any, *, tl: Any) -> None:
    tl.wait(tl.load(x, (4, 4)))


class Callable_:
    """A kernel that is an object."""

    def __call__(self, x: Any, *, tl: Any) -> None:
        load(x, tl=tl)

    def method(self, x: Any, *, tl: Any) -> None:
        load(x, tl=tl)


def given(chip: AhbmChip) -> Any:
    return chip.tensor("x", (4, 4), "float32", X, 0)


# what is wrong -> (the asking, words of the message)
TENSORS: dict[str, tuple[Ask, str]] = {
    "a shape of letters": (lambda c: c.tensor("K", "ab"), "'K' shape 'ab' whole numbers > 0"),
    "no shape": (lambda c: c.tensor("K", None), "'K' shape None whole numbers > 0"),
    "no axis": (lambda c: c.tensor("K", ()), "'K' shape () whole numbers > 0"),
    "a size of zero": (lambda c: c.tensor("K", (0, 4)), "'K' shape (0, 4) whole numbers > 0"),
    "a negative size": (lambda c: c.tensor("K", (4, -4)), "'K' shape (4, -4) whole numbers > 0"),
    "half a row": (lambda c: c.tensor("K", (0.5, 4)), "'K' shape (0.5, 4) whole numbers > 0"),
    "no number": (lambda c: c.tensor("K", (NAN, 4)), "'K' shape (nan, 4) whole numbers > 0"),
    "a truth": (lambda c: c.tensor("K", (True, 4)), "'K' shape (True, 4) whole numbers > 0"),
    "more than a slice": (lambda c: c.tensor("K", (1 << 62, 4)), f"'K' slice 4294967296 0 {1 << 65} asked"),
    "a dtype there is not": (lambda c: c.tensor("K", (4, 4), "int4"), "'int4' bfloat16, float16, float32, uint8"),
    "a dtype that is none": (lambda c: c.tensor("K", (4, 4), (np.void, -1)), "dtype bfloat16, float16, float32, uint8"),
    "no dtype": (lambda c: c.tensor("K", (4, 4), None), "dtype None bfloat16"),
    "ragged data": (lambda c: c.tensor("K", (2, 2), "float32", [[1, 2], [3]], 0), "'K' data one length"),
    "data of letters": (lambda c: c.tensor("K", (1,), "float32", ["a"], 0), "'K' data <U1 numbers"),
    "data of objects": (lambda c: c.tensor("K", (1,), "float32", [None], 0), "'K' data object numbers"),
    "complex data": (lambda c: c.tensor("K", (1,), "float32", [1j], 0), "'K' data complex128 numbers"),
    "data of another shape": (lambda c: c.tensor("K", (4, 4), "float32", X[:3], 0), "'K' (3, 4) (4, 4)"),
    "data without ranks": (lambda c: c.tensor("K", (4, 4), "float32", X), "'K' (4, 4) 'local' (ranks, 4, 4)"),
    "data with ranks": (lambda c: c.tensor("K", (4, 4), "float32", [X], 0), "'K' (1, 4, 4) (4, 4)"),
    "a place beyond the cube": (lambda c: c.tensor("K", (4,), place=8), "'K' place 8 'local', 'replicate', 0..7"),
    "a place before it": (lambda c: c.tensor("K", (4,), place=-1), "'K' place -1 0..7"),
    "a place by name": (lambda c: c.tensor("K", (4,), place="remote"), "'K' place 'remote' 'local', 'replicate', 0..7"),
    "half a place": (lambda c: c.tensor("K", (4,), place=0.5), "'K' place 0.5 0..7"),
    "several places": (lambda c: c.tensor("K", (4,), place=[1]), "'K' place [1] 0..7"),
    "an array of places": (lambda c: c.tensor("K", (4,), place=np.array([1, 2])), "'K' place 0..7"),
    "axes are a number": (lambda c: c.tensor("K", (4, 4), axes=5), "'K' axes 5 (4, 4)"),
    "too few axes": (lambda c: c.tensor("K", (4, 4), axes=("d",)), "'K' axes ('d',) 2 (4, 4)"),
    "axes of one name": (lambda c: c.tensor("K", (4, 4), axes=("d", "d")), "'K' axes ('d', 'd') different"),
    "axes in one word": (lambda c: c.tensor("K", (4, 4), axes="td"), "'K' axes 'td'"),
    "fewer than no rows": (lambda c: c.tensor("K", (4, 4), valid=-1), "'K' valid -1 0..4"),
    "more rows than there are": (lambda c: c.tensor("K", (4, 4), valid=5), "'K' valid 5 0..4"),
    "half a row that counts": (lambda c: c.tensor("K", (4, 4), valid=2.5), "'K' valid 2.5 0..4"),
    "rows by name": (lambda c: c.tensor("K", (4, 4), valid="all"), "'K' valid numbers"),
    "rows for nobody": (lambda c: c.tensor("K", (4, 4), valid=[]), "'K' valid [] 0..4"),
    "too many rows of one rank": (lambda c: c.tensor("K", (4, 4), valid=[4, 5]), "'K' valid [4 0..4"),
    "a name that is a number": (lambda c: c.tensor(5, (4, 4)), "name 5 string"),
    "a name that is a list": (lambda c: c.tensor([], (4, 4)), "name [] string"),
    "the name of scratch": (lambda c: c.tensor("scratch", (4, 4)), "'scratch' 'slot'"),
    "the name of a slot": (lambda c: c.tensor("slot", (4, 4)), "'scratch' 'slot'"),
}  # fmt: skip

LAUNCHES: dict[str, tuple[Ask, str]] = {
    "no programs": (lambda c: c.run(load, given(c), grid=0), "grid 0 1..8 1..16"),
    "fewer": (lambda c: c.run(load, given(c), grid=-1), "grid -1 1..8"),
    "more programs than PEs": (lambda c: c.run(load, given(c), grid=9), "grid 9 1..8"),
    "more cubes than there are": (lambda c: c.run(load, given(c), grid=(2, 17)), "grid (2, 17) 1..8 1..16"),
    "three axes": (lambda c: c.run(load, given(c), grid=(2, 2, 2)), "grid (2, 2, 2)"),
    "an empty grid": (lambda c: c.run(load, given(c), grid=()), "grid ()"),
    "one program and a half": (lambda c: c.run(load, given(c), grid=1.5), "grid 1.5"),
    "a grid of letters": (lambda c: c.run(load, given(c), grid="ab"), "grid 'ab'"),
    "a grid that is true": (lambda c: c.run(load, given(c), grid=True), "grid True"),
    "a number for a placement": (lambda c: c.run(load, given(c), placement=5), "placement 5 1 0..7"),
    "too many places": (lambda c: c.run(load, given(c), placement=(1, 2)), "placement (1, 2) 1 0..7"),
    "too few places": (lambda c: c.run(load, given(c), grid=3, placement=(1, 2)), "placement (1, 2) 3 0..7"),
    "one place twice": (lambda c: c.run(load, given(c), grid=2, placement=(1, 1)), "placement (1, 1) 2 different"),
    "a place beyond the cube": (lambda c: c.run(load, given(c), placement=(8,)), "placement (8,) 0..7"),
    "half a place": (lambda c: c.run(load, given(c), placement=(0.5,)), "placement (0.5,) 0..7"),
    "places by name": (lambda c: c.run(load, given(c), placement=["a"]), "placement ['a'] 0..7"),
    "a schedule there is not": (lambda c: c.run(load, given(c), schedule="lazy"), "'lazy' 'model', 'jitter', 'late'"),
    "no schedule": (lambda c: c.run(load, given(c), schedule=None), "None 'model', 'jitter', 'late'"),
    "a seed of letters": (lambda c: c.run(load, given(c), schedule="jitter", seed="a"), "seed 'a' whole number"),
    "no seed": (lambda c: c.run(load, given(c), schedule="jitter", seed=None), "seed None whole number"),
    "a check there is not": (lambda c: c.run(load, given(c), check="yes"), "check 'yes' True, 'collect', False"),
    "a check of 1": (lambda c: c.run(load, given(c), check=1), "check 1 True, 'collect', False"),
    "no check": (lambda c: c.run(load, given(c), check=None), "check None True, 'collect', False"),
    "no time": (lambda c: c.run(load, given(c), max_cycles=0), "max_cycles = 0 >= 1"),
    "less": (lambda c: c.run(load, given(c), max_cycles=-1), "max_cycles = -1 >= 1"),
    "time in words": (lambda c: c.run(load, given(c), max_cycles="5"), "max_cycles = '5' >= 1"),
    "no limit": (lambda c: c.run(load, given(c), max_ops=None), "max_ops = None >= 1"),
    "half an op": (lambda c: c.run(load, given(c), max_ops=0.5), "max_ops = 0.5 >= 1"),
    "no argument": (lambda c: c.run(load), "load(x missing 'x'"),
    "one too many": (lambda c: c.run(load, given(c), 1), "load(x too many"),
    "one it does not know": (lambda c: c.run(load, given(c), tile=1), "load(x 'tile'"),
    "a kernel that is a number": (lambda c: c.run(5, given(c)), "5 kernel `tl`"),
    "no kernel": (lambda c: c.run(None, given(c)), "None kernel `tl`"),
    "a builtin": (lambda c: c.run(max, given(c)), "max kernel `tl`"),
    "a class": (lambda c: c.run(dict, given(c)), "dict kernel `tl`"),
    "a function without tl": (lambda c: c.run(lambda x: None, given(c)), "kernel `tl`"),
    "a tensor of another chip": (lambda c: c.run(load, given(AhbmChip())), "'x' another chip"),
    "a tensor where no program runs": (lambda c: c.run(load, c.tensor("o", (4, 4), place=3)), "'o' rank 3 1 ranks"),
    "data for fewer ranks": (lambda c: c.run(load, c.tensor("K", (4, 4), "float32", [X]), grid=2), "'K' 1 rank 1"),
    "lengths for fewer ranks": (
        lambda c: c.run(load, c.tensor("K", (4, 4), "float32", [X, X], valid=[4]), grid=2), "'K' valid rank 1"),
    "two tensors of one name": (
        lambda c: c.run(lambda a, b, *, tl: None, given(c), given(c)), "'x'"),
    "a reading of what it was not given": (
        lambda c: c.run(load, given(c)).array(c.tensor("z", (4,))), "z arguments x"),
    "a reading of a number": (lambda c: c.run(load, given(c)).array(5), "5 arguments x"),
    "a reading of another chip's": (lambda c: c.run(load, given(c)).array(given(AhbmChip())), "arguments x"),
}  # fmt: skip

CHIPS: dict[str, tuple[Ask, str]] = {
    "a number for a spec": (lambda c: AhbmChip(5), "5 AhbmSpec"),
    "a dict for a spec": (lambda c: AhbmChip({"mesh_rows": 2}), "mesh_rows AhbmSpec"),
    "ports are a number": (lambda c: AhbmChip(ports=5), "ports 5 (PE, direction)"),
    "a port leads to a number": (lambda c: AhbmChip(ports={(0, "E"): 1}), "port 1 (PE, direction)"),
    "a port is a number": (lambda c: AhbmChip(ports={0: (1, "W")}), "port 0 (PE, direction)"),
    "a PE by name": (lambda c: AhbmChip(ports={("a", "E"): (1, "W"), (1, "W"): ("a", "E")}), "('a', 'E')"),
    "half a PE": (lambda c: AhbmChip(ports={(0.5, "E"): (1, "W"), (1, "W"): (0.5, "E")}), "(0.5, 'E')"),
    "a port nobody names back": (lambda c: AhbmChip(ports={(0, "E"): (1, "W")}), "(0, 'E') (1, 'W') each other"),
    "named back by another": (
        lambda c: AhbmChip(ports={(0, "E"): (1, "W"), (1, "W"): (2, "E"), (2, "E"): (1, "W")}), "(0, 'E') (1, 'W')"),
    "a port to itself": (lambda c: AhbmChip(ports={(0, "E"): (0, "W"), (0, "W"): (0, "E")}), "(0, 'E') PE 0 itself"),
    "a PE there is not": (
        lambda c: AhbmChip(ports={(0, "E"): (128, "W"), (128, "W"): (0, "E")}), "PE 128 0..127"),
    "a ring through one PE twice": (lambda c: AhbmChip(ports=ring_ports((0, 1, 0, 2))), "each other"),
}  # fmt: skip


@pytest.mark.parametrize(("ask", "said"), TENSORS.values(), ids=TENSORS)
def test_a_wrong_tensor(ask: Ask, said: str) -> None:
    refused(ask, said)


@pytest.mark.parametrize(("ask", "said"), LAUNCHES.values(), ids=LAUNCHES)
def test_a_wrong_launch(ask: Ask, said: str) -> None:
    refused(ask, said)


@pytest.mark.parametrize(("ask", "said"), CHIPS.values(), ids=CHIPS)
def test_a_wrong_chip(ask: Ask, said: str) -> None:
    refused(ask, said)


def refused(ask: Ask, said: str) -> None:
    with pytest.raises(LaunchError) as caught:
        ask(AhbmChip())
    assert [word for word in said.split() if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda c: c.run(load, c.tensor("x", [np.int64(4), 4], "float32", X.tolist(), np.int64(0))),
        lambda c: c.run(load, given(c), grid=np.int64(1), placement=[np.int64(3)]),
        lambda c: c.run(load, given(c), grid=[1, 1]),
        lambda c: c.run(load, x=given(c)),
        lambda c: c.run(lambda x, tl: load(x, tl=tl), given(c)),
        lambda c: c.run(functools.partial(load), given(c)),
        lambda c: c.run(Callable_(), given(c)),
        lambda c: c.run(Callable_().method, given(c)),
        lambda c: c.run(load, c.tensor("x", (16,), "float32", X.reshape(16), 0, valid=np.int64(16))),
        lambda c: c.run(load, c.tensor("x", (4, 4), "float32", X.astype(int), 0)),
    ],
)
def test_what_is_close_to_wrong_but_right(ask: Ask) -> None:
    assert ask(AhbmChip()).hazards == ()


def test_a_refused_tensor_takes_no_room() -> None:
    chip = AhbmChip(AhbmSpec(hbm_slice_bytes=1024))
    with pytest.raises(LaunchError, match="a slice holds 1024 bytes, 0 are taken, 2048 more were asked for"):
        chip.tensor("K", (1024,))
    chip.tensor("V", (512,))
    with pytest.raises(LaunchError, match="1024 are taken, 2 more were asked for"):
        chip.tensor("O", (1,))


def test_check_raises_lists_or_looks_for_nothing() -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (4, 4))
        tl.exp(tl.empty((4, 4)))

    chip = AhbmChip()
    x = given(chip)
    with pytest.raises(HazardError) as caught:
        chip.run(kernel, x)
    assert {hazard.kind for hazard in caught.value.hazards} == {"op-in-flight-at-exit", "uninitialised-read"}
    assert str(caught.value).startswith("uninitialised-read, op-in-flight-at-exit (2 in all)\n")
    assert chip.run(kernel, x, check="collect").hazards == caught.value.hazards
    assert chip.run(kernel, x, check=False).hazards == ()


def test_a_refused_call_is_raised_even_without_checks() -> None:
    def kernel(x: Any, *, tl: Any) -> None:
        tl.load(x, (0,))

    chip = AhbmChip()
    with pytest.raises(KernelError, match=r"^bad-parameter: tl\.load of PE0 at test_launch_refusals\.py:\d+ in kernel"):
        chip.run(kernel, given(chip), check=False)


def only_outputs(o: Any, *, tl: Any) -> None:
    tl.wait(tl.store(o, tl.full((4, 4), 7.0)))


def test_a_run_without_data_says_so_when_it_is_read() -> None:
    chip = AhbmChip()
    o = chip.tensor("o", (4, 4), "float32", place=0)
    with pytest.raises(LaunchError, match=r"^tensor 'o': the run was structure only; .* data=True$"):
        chip.run(only_outputs, o).array(o)
    with pytest.raises(LaunchError, match="structure only"):
        chip.run(only_outputs, o, data=False).array(o)
    assert (chip.run(only_outputs, o, data=True).array(o) == 7).all()


def test_data_is_wanted_or_not() -> None:
    chip = AhbmChip()
    with pytest.raises(LaunchError, match=r"^data 'yes' is none of True, False, None$"):
        chip.run(load, given(chip), data="yes")
