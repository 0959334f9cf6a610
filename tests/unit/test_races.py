"""The matrix of missing waits: each is found where it is, under every schedule, and shows by value under at least one.

Every kernel below is right with its wait. `# first` and `# second` mark the two lines that race without it.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 64)).astype(np.float32)
W = RNG.standard_normal((128, 64)).astype(np.float32)
TOP, BOTTOM = W[:64], 64 * 64  # half of W is an operand, half is free
SCHEDULES = [("model", 0), ("jitter", 0), ("jitter", 1), ("late", 0)]


def load_then_overwrite(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    h = tl.load(x, (4, 64))  # first
    loading = tl.trans(h)
    if waits:
        tl.wait(h)
    y = tl.add(tl.full((4, 64), 1.0), 1.0, out=h)  # second
    tl.wait(y)
    tl.wait(loading)
    tl.wait(tl.store(o, y))


def composite_then_math(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    c = tl.composite("gemm", tl.load(x, (4, 64)), tl.ref(w, (64, 64)), trans_b=False)  # first
    if waits:
        tl.wait(c)
    y = c * 2.0  # second
    tl.wait(c)
    tl.wait(tl.store(o, y))


def math_then_composite_by_another_handle(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    a = tl.zeros((4, 64))
    another = tl.trans(tl.trans(a))
    written = tl.add(tl.load(x, (4, 64)), 1.0, out=a)  # first
    if waits:
        tl.wait(written)
    c = tl.composite("gemm", another, tl.ref(w, (64, 64)), trans_b=False)  # second
    tl.wait(c)
    tl.wait(tl.store(o, c))


def math_then_load_over_its_operand(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    a = tl.load(x, (4, 64))
    y = tl.exp(a)  # first
    if waits:
        tl.wait(y)
    tl.wait(tl.load(w, (4, 64), out=a))  # second
    tl.wait(tl.store(o, y))


def composite_then_overwrite_its_operand(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    a = tl.add(tl.load(x, (4, 64)), 1.0)
    c = tl.composite("gemm", a, tl.ref(w, (64, 64)), trans_b=False)  # first
    if waits:
        tl.wait(c)
    tl.mul(a, 0.0, out=a)  # second
    tl.wait(c)
    tl.wait(tl.store(o, c))


def store_then_overwrite(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    h = tl.add(tl.load(x, (4, 64)), 1.0)
    stored = tl.store(o, h)  # first
    if waits:
        tl.wait(stored)
    tl.wait(tl.mul(h, 0.0, out=h))  # second
    tl.wait(stored)


def send_then_overwrite(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    if tl.program_id(0) == 1:
        tl.recv("W", (64, 64))
        tl.wait(tl.store(o, tl.recv("W", (4, 64))))
        return
    h = tl.add(tl.load(x, (4, 64)), 1.0)
    tl.send("E", tl.zeros((64, 64)))  # keeps the unit busy
    sent = tl.send("E", h)  # first
    if waits:
        tl.wait(sent)
    tl.mul(h, 0.0, out=h)  # second


def read_a_slot_then_release_it(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    if tl.program_id(0) == 0:
        h = tl.load(x, (4, 64))
        tl.send("E", h), tl.send("E", h), tl.send("E", h + 100.0)  # the third takes the first one's slot
        return
    y = tl.zeros((4, 64))
    slot = tl.recv("W", (4, 64))
    tl.add(slot, 1.0, out=y)  # first
    if waits:
        tl.wait(y)
    tl.release(slot)  # second
    tl.release(tl.recv("W", (4, 64)))
    tl.release(tl.recv("W", (4, 64)))
    tl.wait(tl.store(o, y))


def read_scores_then_reuse_their_buffer(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    scores, a, b = tl.empty((4, 64)), tl.load(x, (4, 64)), tl.zeros((4, 64))
    first = tl.wait(tl.composite("gemm", a, tl.ref(w, (64, 64)), trans_b=False, out=scores))
    p = tl.mul(first, 2.0)  # first
    if waits:
        tl.wait(p)
    c = tl.composite("gemm", b, tl.load(w, (64, 64)), trans_b=False, out=scores)  # second
    tl.wait(c)
    tl.wait(tl.store(o, p))


def store_then_load_by_another_pe(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    if tl.program_id(0) == 0:
        stored = tl.store(w, tl.load(x, (4, 64)))  # first
        if waits:
            tl.wait(stored)
        tl.wait(tl.send("E", tl.zeros((1, 1))))
        tl.wait(stored)
        return
    tl.recv("W", (1, 1))
    tl.wait(tl.store(o, tl.load(w, (4, 64))))  # second


def writeback_then_stream_it(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    h, small, bottom = tl.load(x, (4, 64)), tl.load(x, (4, 4)), w + BOTTOM
    written = tl.composite("gemm", h, tl.ref(w, (64, 64)), trans_b=False, out=bottom)  # first
    if waits:
        tl.wait(written)
    c = tl.composite("gemm", small, tl.ref(bottom, (4, 64)), trans_b=False)  # second
    tl.wait(c)
    tl.wait(written)
    tl.wait(tl.store(o, c))


def store_then_load(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    stored = tl.store(w, tl.load(x, (4, 64)))  # first
    if waits:
        tl.wait(stored)
    y = tl.load(w, (4, 64))  # second
    tl.wait(stored)
    tl.wait(tl.store(o, y))


def load_then_store_over_its_source(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    zeros = tl.wait(tl.zeros((4, 64)))
    y = tl.load(w, (4, 64))  # first
    if waits:
        tl.wait(y)
    tl.wait(tl.store(w, zeros))  # second
    tl.wait(tl.store(o, y))


def stream_then_store_over_its_source(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    h, zeros = tl.load(x, (4, 64)), tl.wait(tl.zeros((64, 64)))
    c = tl.composite("gemm", h, tl.ref(w, (64, 64)), trans_b=False)  # first
    if waits:
        tl.wait(c)
    tl.wait(tl.store(w, zeros))  # second
    tl.wait(c)
    tl.wait(tl.store(o, c))


def writeback_then_store_over_it(x: Any, w: Any, o: Any, tl: Any, waits: bool) -> None:
    h = tl.load(x, (4, 64))
    written = tl.composite("gemm", h, tl.ref(w, (64, 64)), trans_b=False, out=o)  # first
    if waits:
        tl.wait(written)
    tl.wait(tl.store(o, tl.add(h, 1.0)))  # second
    tl.wait(written)


# kernel -> kind without its wait, programs, the value with it
MATRIX: dict[Callable[..., None], tuple[str, int, Any]] = {
    load_then_overwrite: ("race-waw", 1, np.full((4, 64), 2.0)),
    composite_then_math: ("race-raw", 1, 2 * (X @ TOP)),
    math_then_composite_by_another_handle: ("race-raw", 1, (X + 1) @ TOP),
    math_then_load_over_its_operand: ("race-war", 1, np.exp(X)),
    composite_then_overwrite_its_operand: ("race-war", 1, (X + 1) @ TOP),
    store_then_overwrite: ("race-war", 1, X + 1),
    send_then_overwrite: ("race-war", 2, X + 1),
    read_a_slot_then_release_it: ("race-war", 2, X + 1),
    read_scores_then_reuse_their_buffer: ("race-war", 1, 2 * (X @ TOP)),
    store_then_load_by_another_pe: ("race-raw", 2, X),
    writeback_then_stream_it: ("race-raw", 1, X.flat[:16].reshape(4, 4) @ (X @ TOP)),
    store_then_load: ("race-raw", 1, X),
    load_then_store_over_its_source: ("race-war", 1, W[:4]),
    stream_then_store_over_its_source: ("race-war", 1, X @ TOP),
    writeback_then_store_over_it: ("race-waw", 1, X + 1),
}
IDS = [kernel.__name__ for kernel in MATRIX]


def run(launch: Callable[..., Any], kernel: Callable[..., None], waits: bool, schedule: str, seed: int) -> Any:
    def with_or_without(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        kernel(x, w, o, tl, waits)

    grid = MATRIX[kernel][1]
    given = {"x": X, "w": (W, 0), "o": ((4, 64), "float32")}
    return launch(with_or_without, **given, grid=grid, spec={"ipcq_slots": 2}, schedule=schedule, seed=seed)


def marked(kernel: Callable[..., None], mark: str) -> int:
    """The line of the kernel that is marked so; one without a mark is the composite's."""
    source, first = inspect.getsourcelines(kernel)
    return first + next(at for at, line in enumerate(source) if line.rstrip().endswith(mark))


@pytest.mark.parametrize("kernel", MATRIX, ids=IDS)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_with_the_wait_there_is_no_finding_and_the_value_is_right(
    launch: Any, kernel: Any, schedule: str, seed: int
) -> None:
    outcome = run(launch, kernel, True, schedule, seed)
    assert outcome.kinds == []
    np.testing.assert_allclose(outcome["o"], MATRIX[kernel][2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", MATRIX, ids=IDS)
@pytest.mark.parametrize(("schedule", "seed"), SCHEDULES)
def test_without_it_one_finding_names_the_kind_and_both_lines(
    launch: Any, kernel: Any, schedule: str, seed: int
) -> None:
    outcome = run(launch, kernel, False, schedule, seed)
    assert outcome.kinds == [MATRIX[kernel][0]]
    (hazard,) = outcome.run.hazards
    assert [op.site.line for op in hazard.ops] == [marked(kernel, "# first"), marked(kernel, "# second")]
    assert all(op.site.file == __file__ and op.site.function == kernel.__name__ for op in hazard.ops)
    assert f"schedule={schedule!r}, seed={seed}" in hazard.replay


@pytest.mark.parametrize("kernel", MATRIX, ids=IDS)
def test_without_it_the_value_is_wrong_under_at_least_one_schedule(launch: Any, kernel: Any) -> None:
    def wrong(schedule: str, seed: int) -> bool:
        found = run(launch, kernel, False, schedule, seed)["o"]
        return not np.allclose(found, MATRIX[kernel][2], rtol=1e-4, atol=1e-4)

    assert any(wrong(*schedule) for schedule in [*SCHEDULES, ("jitter", 2), ("jitter", 3), ("jitter", 4)])


@pytest.mark.parametrize("kernel", MATRIX, ids=IDS)
def test_a_run_without_data_has_the_same_findings(launch: Any, kernel: Any) -> None:
    def structure(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        kernel(x, w, o, tl, False)

    kind, grid, _ = MATRIX[kernel]
    given = {"x": X, "w": (W, 0), "o": ((4, 64), "float32")}
    assert launch(structure, **given, grid=grid, spec={"ipcq_slots": 2}, data=False).kinds == [kind]


@pytest.mark.parametrize("schedule", ["model", "late"])
def test_a_credit_that_is_still_to_come_teaches_nobody(launch: Any, schedule: str) -> None:
    """A slot goes home when its reader has ended; a send said after the scope, and over before, knows nothing of it."""

    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            tl.wait(tl.send("E", tl.load(w, (64, 64))))
            tl.recv("E", (1, 1))
            return
        z, y = tl.wait(tl.zeros((1, 1))), tl.empty((64, 64))
        another = tl.trans(tl.trans(y))
        with tl.scratch_scope():
            tl.exp(tl.recv("W", (64, 64)), out=y)
        tl.wait(tl.send("W", z))
        tl.wait(tl.store(o, another))

    outcome = launch(kernel, x=X, w=(TOP, 0), o=((64, 64), "float32"), grid=2, schedule=schedule)
    assert outcome.kinds == ["race-raw"]


@pytest.mark.parametrize("schedule", ["model", "late"])
def test_a_credit_says_nothing_of_another_that_is_still_to_come(launch: Any, schedule: str) -> None:
    """Two slots go home at one exit, the first when its store has ended: the second's credit comes before it."""

    def kernel(x: Any, w: Any, o: Any, *, tl: Any) -> None:
        if tl.program_id(0) == 0:
            h, z = tl.load(w, (64, 64)), tl.wait(tl.zeros((1, 1)))
            tl.send("E", h), tl.send("E", z)
            tl.wait(tl.send("E", z))
            tl.wait(tl.load(o, (64, 64)))
        elif tl.program_id(0) == 1:
            with tl.scratch_scope():
                large, _ = tl.recv("W", (64, 64)), tl.recv("W", (1, 1))
                stored = tl.store(o, large)
            tl.recv("W", (1, 1))
            tl.wait(stored)

    given = {"x": X, "w": (TOP, 0), "o": ((64, 64), "float32", 7), "spec": {"ipcq_slots": 2}}
    outcome = launch(kernel, **given, grid=8, schedule=schedule)
    assert "race-raw" in outcome.kinds
