"""Whatever a kernel says that the device cannot do is refused where it is said, by name, with a remedy.

Never a traceback from inside the simulator, never a result for an input that has no meaning. Each row of a table is one
input; its line is the line the message has to name.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_kernbench.simulator.errors import DeadlockError, KernelError

X = np.arange(256, dtype=np.float32).reshape(16, 16)
WHOLE = "give a tuple of 1 to 32 whole numbers > 0"
STRIDES = "give one whole number of elements >= 0 an axis"
ELEMENTS = "n counts elements: give a whole number"
NUMBER = "pass a handle or a number"
NAME_ONE = "name one of these"
AXIS = "name an axis it has, -2..1"
GRID = "axis 0 is the PE in its cube, axis 1 the cube"
DIRECTION = "name a direction, such as 'E'"
SHAPES = "write a 1 where one is to be repeated"

Said = Callable[[Any, Any, Any], object]  # what is said, of tl, a pointer p and a handle h (4, 4) of it

# What is said, the call the message names, the fact, the remedy.
BAD: list[tuple[Said, str, str, str]] = [
    # where a program is
    (lambda tl, p, h: tl.program_id(True), "tl.program_id", "axis True", GRID),
    (lambda tl, p, h: tl.program_id(None), "tl.program_id", "axis None", GRID),
    (lambda tl, p, h: tl.num_programs(-1), "tl.num_programs", "axis -1", GRID),
    # pointers
    (lambda tl, p, h: p + 2.0, "pointer + n", "n is 2.0", ELEMENTS),
    (lambda tl, p, h: p + p, "pointer + n", "n is <p + 0 of 256 float32>", ELEMENTS),
    (lambda tl, p, h: p + np.arange(2), "pointer + n", "n is array([0, 1])", ELEMENTS),
    (lambda tl, p, h: np.arange(2) + p, "pointer + n", "n is array([0, 1])", ELEMENTS),
    (lambda tl, p, h: 0.5 + p, "pointer + n", "n is 0.5", ELEMENTS),
    # shapes and strides
    (lambda tl, p, h: tl.load(p, True), "tl.load", "shape True is not one", WHOLE),
    (lambda tl, p, h: tl.load(p, {4}), "tl.load", "shape {4} is not one", WHOLE),
    (lambda tl, p, h: tl.load(p, (1,) * 33), "tl.load", "is not one", WHOLE),
    (lambda tl, p, h: tl.recv("E", "x"), "tl.recv", "shape 'x' is not one", WHOLE),
    (lambda tl, p, h: tl.recv_async("E", None), "tl.recv_async", "shape None is not one", WHOLE),
    (lambda tl, p, h: tl.load(p, (4, 4), (4.0, 1)), "tl.load", "strides (4.0, 1) do not fit", STRIDES),
    (lambda tl, p, h: tl.load(p, (4, 4), (True, 1)), "tl.load", "strides (True, 1) do not fit", STRIDES),
    (lambda tl, p, h: tl.ref(p, (4, 4), 5), "tl.ref", "strides 5 do not fit", STRIDES),
    # a thing of another kind
    (lambda tl, p, h: tl.max(h, out=5), "tl.max", "out= is a int", "pass a handle"),
    (lambda tl, p, h: tl.release(None), "tl.release", "not a received message", "release what recv returned"),
    (lambda tl, p, h: tl.region(""), "tl.region", "the label is ''", "give a printable string"),
    (lambda tl, p, h: tl.region("a\nb"), "tl.region", r"the label is 'a\nb'", "give a printable string"),
    (lambda tl, p, h: tl.send([], h), "tl.send", "direction []", DIRECTION),
    (lambda tl, p, h: tl.send(h, "E"), "tl.send", "direction <handle (4, 4) float32>", DIRECTION),
    (lambda tl, p, h: tl.recv([], (4, 4)), "tl.recv", "direction []", DIRECTION),
    (lambda tl, p, h: tl.recv_async((4, 4), "E"), "tl.recv_async", "direction (4, 4)", DIRECTION),
    (
        lambda tl, p, h: tl.send("N", h),
        "tl.send",
        "no neighbour 'N'; it has E, S",
        "between launched programs",
    ),
    # dtypes and axes
    (lambda tl, p, h: tl.cast(h, h), "tl.cast", "dtype <handle (4, 4) float32> is not one", NAME_ONE),
    (lambda tl, p, h: tl.zeros((4,), float), "tl.zeros", "dtype <class 'float'> is not one", NAME_ONE),
    (lambda tl, p, h: tl.recv("E", (4, 4), "x"), "tl.recv", "dtype 'x' is not one", NAME_ONE),
    (lambda tl, p, h: tl.max(h, True), "tl.max", "axis True of", AXIS),
    # numbers
    (lambda tl, p, h: np.ones((4, 4)) < h, "tl.greater", "got a ndarray", NUMBER),
    (lambda tl, p, h: tl.add(h, 1e39), "tl.add", "1e+39 is beyond float32, +-3.403e+38", "pass a number it holds"),
    (lambda tl, p, h: tl.full((4,), 1e39), "tl.full", "1e+39 is beyond float32", "pass a number it holds"),
    (lambda tl, p, h: tl.full((4,), 7e4, "float16"), "tl.full", "70000.0 is no float16, which holds +-6.55e+04", "or"),
    (lambda tl, p, h: tl.full((4,), 3.4e38, "bfloat16"), "tl.full", "holds +-3.39e+38", "or another dtype"),
    (lambda tl, p, h: tl.full((4,), 1.5, "uint8"), "tl.full", "1.5 is no uint8", "give a value it holds"),
    # shapes that do not meet
    (lambda tl, p, h: h + tl.zeros((3, 4)), "tl.add", "(4, 4) and (3, 4) do not broadcast", SHAPES),
    # products
    (lambda tl, p, h: gemm(tl, h, h, trans_b=1), "tl.composite", "trans_b=1", "pass True or False"),
    (lambda tl, p, h: tl.dot(h, h < 2, False), "tl.dot", "a is float32, b is uint8", "GEMM takes no masks"),
    (lambda tl, p, h: gemm(tl, tl.cast(h, "float16"), h), "tl.composite", "a is float16", "tl.cast b to float16"),
    (lambda tl, p, h: gemm(tl, h, tl.cast(h, "float16")), "tl.composite", "b is float16", "tl.cast a to float16"),
    (lambda tl, p, h: gemm(tl, h, h, epilogue=(("scale", h),)), "tl.composite", "got a Handle", "scale takes a number"),
    (lambda tl, p, h: gemm(tl, h, h, epilogue=(("bias", h),)), "tl.composite", "bias is (4, 4)", "shape (1, 4)"),
    # what Python does with a value
    (lambda tl, p, h: not h, "if, and, not", "has no value", "choose with tl.where"),
    (lambda tl, p, h: max(h, tl.exp(h)), "if, and, not", "has no value", "choose with tl.where"),
    (lambda tl, p, h: h != tl.exp(h), "== or !=", "is compared with <handle", "handles with `is`"),
    (lambda tl, p, h: np.float32(2) == h, "== or !=", "is compared with", "handles with `is`"),
    (lambda tl, p, h: h in [tl.exp(h)], "== or !=", "is compared with <handle", "handles with `is`"),
    (lambda tl, p, h: h[0], "handle[...]", "is asked for its 0", "load that block alone: tl.load(pointer + n, shape)"),
    (lambda tl, p, h: list(h), "handle[...]", "is asked for its 0", "load that block alone"),
    (lambda tl, p, h: h @ h, "@", "is to be multiplied with <handle", 'say tl.composite("gemm", a, b) or tl.dot(a, b)'),
    (lambda tl, p, h: float(h), "float(handle)", "is to be a number", "use tl's ops"),
    (lambda tl, p, h: int(h), "int(handle)", "is to be a number", "use tl's ops"),
    (lambda tl, p, h: h**2, "handle ** n", "is to be raised to 2", "multiply"),
    (lambda tl, p, h: abs(h), "abs(handle)", "is asked for its absolute value", "tl.maximum(handle, 0 - handle)"),
    (lambda tl, p, h: -h, "-handle", "is to be negated", "say 0 - handle"),
    (lambda tl, p, h: np.asarray(h), "np.asarray", "is taken for an array", "the host reads run.array(tensor)"),
]

# The same with another kind.
WORSE: list[tuple[Said, str, str, str, str]] = [
    (lambda tl, p, h: tl.recv("E", (128, 128)), "capacity", "tl.recv", "65536 bytes, a slot holds 16384", "in pieces"),
    (lambda tl, p, h: gemm(tl, h, h, kind=h), "unsupported", "tl.composite", "kind <handle", 'takes "gemm"'),
]


def gemm(tl: Any, a: Any, b: Any, **how: Any) -> Any:
    """A product of which one thing is wrong; its line is this one, its caller's is the row's."""
    return tl.composite(how.pop("kind", "gemm"), a, b, **{"trans_b": False, **how})


def refused(launch: Callable[..., Any], said: Said) -> KernelError:
    """The error of a kernel that says it."""

    def kernel(p: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            said(tl, p, tl.wait(tl.load(p, (4, 4))))

    with pytest.raises(KernelError) as caught:
        launch(kernel, p=X, grid=2)
    return caught.value


def line(said: Said) -> str:
    """The row's place in messages; products are said by `gemm`."""
    code = gemm.__code__ if "gemm" in said.__code__.co_names else said.__code__
    return f"test_bad_input_kernel.py:{code.co_firstlineno + (2 if code is gemm.__code__ else 0)} in {code.co_name}"


def title(value: object) -> str | None:
    return f"line {value.__code__.co_firstlineno}" if callable(value) else ""


@pytest.mark.parametrize(("said", "call", "fact", "remedy"), BAD, ids=title)
def test_a_bad_input_is_refused_where_it_is_said(
    launch: Callable[..., Any], said: Said, call: str, fact: str, remedy: str
) -> None:
    error = refused(launch, said)

    assert error.kind == "bad-parameter"
    assert str(error).startswith(f"bad-parameter: {call} of PE0 at {line(said)}: ")
    assert re.search(f"{re.escape(fact)}.*; .*{re.escape(remedy)}", str(error))


@pytest.mark.parametrize(("said", "kind", "call", "fact", "remedy"), WORSE, ids=title)
def test_what_does_not_fit_or_is_not_there_has_a_kind_of_its_own(
    launch: Callable[..., Any], said: Said, kind: str, call: str, fact: str, remedy: str
) -> None:
    error = refused(launch, said)

    assert error.kind == kind
    assert str(error).startswith(f"{kind}: {call} of PE0 at {line(said)}: ")
    assert re.search(f"{re.escape(fact)}.*{re.escape(remedy)}", str(error))


def test_every_row_is_an_input_of_its_own() -> None:
    rows = [row[0].__code__ for row in (*BAD, *WORSE)]

    assert len({(code.co_code, repr(code.co_consts), code.co_names) for code in rows}) == len(rows) == 58


@pytest.mark.parametrize(
    "said",
    [
        lambda tl, p, h: tl.load(p, [np.int64(2), np.int32(4)], np.array([16, 1])),
        lambda tl, p, h: tl.load(p, np.int64(4)),
        lambda tl, p, h: tl.load(p, h.shape),
        lambda tl, p, h: tl.load(np.int64(1) + (p + np.int64(16)), (4, 4)),
        lambda tl, p, h: tl.exp(np.float32(2) * h + np.int64(1) - np.float16(3)),
        lambda tl, p, h: tl.full((4,), -3.4028235e38),  # float32's least as people write it
        lambda tl, p, h: tl.full((4,), float("-inf"), "float16"),
        lambda tl, p, h: tl.full((4,), 255, "uint8"),
        lambda tl, p, h: tl.full((4,), 2**70),
        lambda tl, p, h: tl.max(h, np.int64(0)),
        lambda tl, p, h: tl.cast(h, np.float16),
        lambda tl, p, h: tl.wait(tl.dot(h, h, np.bool_(True))),
        lambda tl, p, h: tl.wait(gemm(tl, h, h, epilogue=[("scale", np.float32(2)), ("relu",)])),
        lambda tl, p, h: tl.program_id(np.int64(0)) + tl.num_programs(np.int8(1)),
        lambda tl, p, h: {h: 1}[h] and h in (h, 5) and h is not None,
    ],
    ids=title,
)
def test_numpy_numbers_lists_and_identity_are_as_good(launch: Callable[..., Any], said: Said) -> None:
    def kernel(p: Any, *, tl: Any) -> None:
        with tl.region("all of it"):
            said(tl, p, tl.wait(tl.load(p, (4, 4))))

    assert set(launch(kernel, p=X).kinds) <= {"op-in-flight-at-exit"}


@pytest.mark.parametrize(("wanted", "fact"), [("op", "send of PE0"), ("handle", "<handle (4, 4) float32>")])
def test_what_another_kernel_said_cannot_be_waited_for(launch: Callable[..., Any], wanted: str, fact: str) -> None:
    """It would put two PEs in order with no message between them."""
    box: dict[str, Any] = {}

    def kernel(p: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h = tl.wait(tl.load(p, (4, 4)))
            box.update(handle=h, op=tl.send("E", h))
        else:
            tl.recv("W", (4, 4))
            tl.wait(box[wanted])

    with pytest.raises(KernelError, match=rf"tl\.wait of PE1 at .*: {re.escape(fact)} is another kernel's.*; wait"):
        launch(kernel, p=X, grid=2)


def test_a_reference_of_an_earlier_run_cannot_be_streamed(launch: Callable[..., Any]) -> None:
    box: dict[str, Any] = {}

    def kernel(p: Any, *, tl: Any) -> None:
        box.setdefault("ref", tl.ref(p, (4, 4)))
        tl.wait(gemm(tl, tl.load(p, (4, 4)), box["ref"]))

    launch(kernel, p=X)
    with pytest.raises(KernelError, match=r"tl\.composite of PE0 .*<p \+ 0 of 256 float32> of an earlier run; tl\.ref"):
        launch(kernel, p=X)


def test_a_kernel_under_a_folder_named_simulator_is_still_the_authors(launch: Callable[..., Any]) -> None:
    source = 'def kernel(p, *, tl):\n    tl.recv("W" if tl.program_id(0) else "E", (4, 4))\n'
    names: dict[str, Any] = {}
    exec(compile(source, "/home/me/simulator/kernels/attention.py", "exec"), names)

    with pytest.raises(DeadlockError, match=r"PE0 waits at attention\.py:2 in kernel"):
        launch(names["kernel"], p=X, grid=2)


def test_a_handle_used_after_its_scope_names_the_line_where_the_scope_ended(launch: Callable[..., Any]) -> None:
    def kernel(p: Any, *, tl: Any) -> None:
        with tl.scratch_scope():
            h = tl.wait(tl.load(p, (4, 4)))
        tl.exp(h)

    with pytest.raises(KernelError) as caught:
        launch(kernel, p=X)
    first = kernel.__code__.co_firstlineno
    assert f"after its scratch_scope was left at test_bad_input_kernel.py:{first + 1} in kernel" in str(caught.value)
