"""`python -m benchmarks.peers [--pallas PYTHON] [--triton PYTHON]`: one decode, ours and on the peers' interpreters.

Every side answers from a process of its own, in turns, and every result is held against float64. A peer that is not
there is a line that says so, never a figure. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.__main__ import ONE_THREAD, about, described
from benchmarks.client import OURS, Worker
from benchmarks.table import aligned, figure, spread

FOLDER = Path(__file__).parent
TILE = 128
CALLS = 3  # after the first one, in each round
MEASURES = ("first", "later", "peak", "added")
HEADINGS = ("side", "new shape", "repeated", "peak memory", "added by the call", "absolute")


@dataclass(frozen=True)
class Side:
    """Who computes, and how to ask; `command` is empty if it is not there."""

    name: str
    command: tuple[str, ...]
    request: Mapping[str, bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: str = ""


@dataclass(frozen=True)
class Round:
    """What one side took in one round: seconds of the first call and of the later ones, MiB at most and added by it."""

    first: float
    later: float
    peak: float
    added: float


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    everyone = sides(options.pallas, options.triton)
    print(described(about()))
    print(", ".join(versions(options)), end="\n\n")
    for size in options.sizes:
        rounds = [one_round(everyone, size) for _ in range(options.rounds)]
        print(f"decode S={size} N=1 TILE={TILE}, 8 query heads of 128, with data: times ours with checkers")
        print(f"\n{table(everyone, rounds)}\n", flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Wall time and memory beside peers.")
    made.add_argument("--pallas", type=Path, metavar="PYTHON", help="a Python that has jax")
    made.add_argument("--triton", type=Path, metavar="PYTHON", help="a Python that has triton and numpy")
    made.add_argument("--sizes", type=int, nargs="+", default=[4096, 32_768], metavar="S", help="multiples of 128")
    made.add_argument("--rounds", type=int, default=5, help="new processes of every side; medians are printed")
    return made


def sides(pallas: Path | None, triton: Path | None) -> tuple[Side, ...]:
    """Ours with checkers first, which all are compared with."""
    jax, without_jax = script(pallas, "pallas_decode.py"), "not measured: give --pallas PYTHON"
    interpreter, without_triton = script(triton, "triton_decode.py"), "not measured: give --triton PYTHON"
    cpu = {"JAX_PLATFORMS": "cpu"}
    return (
        Side("ours, checkers on", OURS, {"data": True}),
        Side("ours, checkers off", OURS, {"data": True, "check": False}),
        Side("Pallas TPU interpreter, races on", jax, {"races": True}, cpu, without_jax),
        Side("Pallas TPU interpreter, races off", jax, {"races": False}, cpu, without_jax),
        Side("Triton interpreter", interpreter, {}, {"TRITON_INTERPRET": "1"}, without_triton),
    )


def script(python: Path | None, name: str) -> tuple[str, ...]:
    return (str(python), str(FOLDER / name)) if python else ()


def versions(options: argparse.Namespace) -> Iterator[str]:
    for python, package in ((options.pallas, "jax"), (options.triton, "triton")):
        if python:
            code = f"from importlib.metadata import version; print('{package}', version('{package}'))"
            yield subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        else:
            yield f"{package} not measured"


def one_round(everyone: Iterable[Side], size: int) -> dict[str, Round]:
    """Of every side that is there: the first call of a new process, then calls in turns."""
    print(f"S={size}: a round", file=sys.stderr, flush=True)
    here = [side for side in everyone if side.command]
    with ExitStack() as stack:
        workers = {side.name: stack.enter_context(Worker(side.command, side.environment)) for side in here}
        answers: dict[str, list[dict[str, float]]] = {side.name: [] for side in here}
        for _ in range(1 + CALLS):
            for side in here:
                answers[side.name].append(workers[side.name].ask(s=size, tile=TILE, **side.request))
    return {name: of_calls(calls) for name, calls in answers.items()}


def of_calls(calls: Sequence[Mapping[str, float]]) -> Round:
    """Memory is that of the first call: what holds the result against float64 afterwards takes memory of its own."""
    first, *later = calls
    added = max(0.0, first["peak_mib"] - first["before_mib"])
    return Round(first["seconds"], median(call["seconds"] for call in later), first["peak_mib"], added)


def table(everyone: Sequence[Side], rounds: Sequence[Mapping[str, Round]]) -> str:
    """A line a side; ratios are taken within a round."""
    ours = [each[everyone[0].name] for each in rounds]
    return aligned([HEADINGS, *(cells(side, [each.get(side.name) for each in rounds], ours) for side in everyone)])


def cells(side: Side, theirs: Sequence[Round | None], ours: Sequence[Round]) -> tuple[str, ...]:
    there = [each for each in theirs if each is not None]
    if not there:
        return (side.name, *("-" for _ in MEASURES), side.missing)
    pairs = list(zip(there, ours, strict=True))
    ratios = (spread([getattr(one, of) / getattr(our, of) for one, our in pairs], "x") for of in MEASURES)
    return (side.name, *ratios, absolute(there))


def absolute(rounds: Sequence[Round]) -> str:
    first, later, peak, added = (median(getattr(each, of) for each in rounds) for of in MEASURES)
    return f"{figure(1e3 * first)} ms, {figure(1e3 * later)} ms; {figure(peak)} MiB, {figure(added)} MiB"


if __name__ == "__main__":
    main()
