"""Rows 4, 6, 9 and 13: whatever needs a process of its own, ours or a peer's. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client import OURS, ROOT, Worker
from benchmarks.clock import Sample, Session, beside
from benchmarks.speed import ratios
from benchmarks.table import Result, Target, against, figure, not_run

PEER = ROOT / "benchmarks" / "peers" / "pallas_decode.py"


# --- row 4: Pallas ----------------------------------------------------------------------------------------------------

NEW_SHAPE = ("decode S=4096 N=1 TILE=128, data, checkers on: Pallas interpreter with races / ours, new shape", 50)
REPEATED = {
    4096: ("the same, repeated", 6),
    131_072: ("the same at S=131072, repeated", 30),
}


def pallas(session: Session) -> Iterator[Result]:
    if session.pallas is None:
        for work, limit in (NEW_SHAPE, *REPEATED.values()):
            yield not_run(4, work, Target(limit, at_most=False), "give --pallas PYTHON")
        return
    session.tell("a new shape beside Pallas")
    yield beside_pallas(*NEW_SHAPE, [first_calls(session.pallas) for _ in range(session.repetitions)])
    for size, (work, limit) in REPEATED.items():
        session.tell(f"S={size} beside Pallas")
        yield beside_pallas(work, limit, later_calls(session.pallas, size, session.repetitions))


def beside_pallas(work: str, limit: float, samples: Sequence[Sample]) -> Result:
    theirs, ours = (figure(1e3 * median(values)) for values in zip(*((s.work, s.unit) for s in samples), strict=True))
    return against(4, work, ratios(samples), Target(limit, at_most=False), f"{theirs} ms / {ours} ms")


def peer(python: Path) -> Worker:
    return Worker((str(python), str(PEER)), {"JAX_PLATFORMS": "cpu"})


def first_calls(python: Path) -> Sample:
    """The first call of a new process each; imports and inputs do not count."""
    with peer(python) as theirs, Worker(OURS) as ours:
        return Sample(theirs.ask(s=4096, tile=128)["seconds"], ours.ask(s=4096, tile=128, data=True)["seconds"])


def later_calls(python: Path, size: int, repetitions: int) -> list[Sample]:
    with peer(python) as theirs, Worker(OURS) as ours:
        return beside(
            lambda: theirs.ask(s=size, tile=128)["seconds"],
            lambda: ours.ask(s=size, tile=128, data=True)["seconds"],
            repetitions,
        )


# --- row 6: a whole layer's decode ------------------------------------------------------------------------------------


def llama(session: Session) -> Iterator[Result]:
    for tile, limit in ((64, 8), (1024, 3)):
        session.tell(f"Llama3-70B decode, TILE={tile}")
        answers: list[dict[str, float]] = []
        launch = partial(fresh, answers, s=131_072, tile=tile, n=8, cubes=8)
        taken = beside(launch, session.unit, session.repetitions, warm_up=False)
        absolute = f"{figure(median(sample.work for sample in taken))} s here; {answers[0]['rows']} rows"
        work = f"Llama3-70B decode S=128K, 8 KV heads x 8 PEs, structure only, checkers on, TILE={tile}"
        yield against(6, work, [sample.usual_seconds for sample in taken], Target(limit, "s"), absolute)
        peaks = [answer["peak_mib"] for answer in answers]
        yield against(6, f"the same, TILE={tile}: peak resident set", peaks, Target(256, "MiB"))


def fresh(answers: list[dict[str, float]], **request: Any) -> float:
    """Processor time of a run in a new process; adds all that it answers to `answers`."""
    with Worker(OURS) as worker:
        answers.append(worker.ask(**request))
    return answers[-1]["processor"]


# --- row 13: prefill --------------------------------------------------------------------------------------------------

PREFILLS = {
    "prefill S=2048 on one PE, data, checkers on": {"s": 2048, "t_q": 2048, "data": True},
    "prefill S=8192 on one PE, structure only, checkers on": {"s": 8192, "t_q": 8192},
    "ring prefill S=131072 N=8, the last 128 queries, structure only, checkers on": {"s": 131_072, "t_q": 128, "n": 8},
}


def prefills(session: Session) -> Iterator[Result]:
    """Time and memory of one KV head's prefill, each run in a new process."""
    for work, request in PREFILLS.items():
        session.tell(work)
        answers: list[dict[str, float]] = []
        launch = partial(fresh, answers, **request)
        taken = beside(launch, session.unit, min(session.repetitions, 3), warm_up=False)
        here, peak = median(sample.work for sample in taken), max(answer["peak_mib"] for answer in answers)
        absolute = f"{figure(here)} s here; {answers[0]['rows']} rows, peak {figure(peak)} MiB"
        yield against(13, work, [sample.usual_seconds for sample in taken], Target(60, "s"), absolute)


# --- row 9: what the plugin costs those who do not use it -------------------------------------------------------------

OTHERS = ("hypothesispytest", "xdist", "xdist.looponfail")  # on neither side: their noise is larger than our cost
PYTEST = ("-m", "pytest", "-q", "one_empty_test.py", *(f"-pno:{name}" for name in OTHERS))
WITHOUT = ("-p", "no:kernbench")
PROBE = """
import sys
def pytest_unconfigure():
    with open("modules.txt", "w", encoding="utf-8") as file:
        file.write(" ".join(sys.modules))
"""


@dataclass(frozen=True)
class Took:
    """Seconds of one process: on the clock, and of processor time, which other people's work does not lengthen."""

    wall: float
    processor: float


def plugin_alone(session: Session) -> Iterator[Result]:
    session.tell("an unrelated pytest run with and without the plugin")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one_empty_test.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
        pairs = [pair(folder, swapped=bool(number % 2)) for number in range(session.pairs + 1)][1:]  # one warms up
        numpy_modules = imported(folder, "numpy")
    work = "what the plugin alone costs a pytest run that does not use it, processor time"
    extra = [1e3 * (ours.processor - bare.processor) for ours, bare in pairs]
    yield against(9, work, extra, Target(10, "ms"), beside_the_whole(pairs))
    yield against(9, "the same: modules of numpy imported", [numpy_modules], Target(0, ""))


def beside_the_whole(pairs: Sequence[tuple[Took, Took]]) -> str:
    """The same difference on the clock, and between the fastest runs, which noise can only lengthen."""
    wall = 1e3 * median(ours.wall - bare.wall for ours, bare in pairs)
    whole = 1e3 * median(bare.processor for _, bare in pairs)
    fastest = 1e3 * (min(ours.processor for ours, _ in pairs) - min(bare.processor for _, bare in pairs))
    return f"of {figure(whole)} ms; fastest runs {figure(fastest)} ms; on the clock {figure(wall)} ms"


def pair(folder: str, *, swapped: bool) -> tuple[Took, Took]:
    """With the plugin and without; the one that goes first takes turns."""
    if swapped:
        bare = pytest_run(folder, *WITHOUT)
        return pytest_run(folder), bare
    return pytest_run(folder), pytest_run(folder, *WITHOUT)


def pytest_run(folder: str, *options: str) -> Took:
    """A run as it is the second time: compiled modules are kept, those that pytest compiles among them."""
    cached = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *PYTEST, *options], cwd=folder, env=cached, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def imported(folder: str, package: str) -> int:
    """How many modules of `package` are there when that run ends."""
    (Path(folder) / "probe.py").write_text(PROBE, encoding="utf-8")
    pytest_run(folder, "-p", "probe")
    names = (Path(folder) / "modules.txt").read_text(encoding="utf-8").split()
    if "pytest_kernbench.plugin" not in names:
        raise LookupError("the run did not load the plugin: nothing was measured")
    return sum(name.split(".")[0] == package for name in names)
