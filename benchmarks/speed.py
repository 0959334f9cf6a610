"""Rows 1, 2, 3 and 5: time a log row, time an op, overhead over bare numpy, growth with S. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from benchmarks.cases import CHAIN, LINKS, PES, Decode, run_math_chains, tiled_decode
from benchmarks.client import CLOSE
from benchmarks.clock import Sample, Session, beside, seconds, typical
from benchmarks.table import Result, Target, against, exponent, figure
from pytest_kernbench.simulator.device import Run

CHECKERS = ((False, "checkers off"), (True, "checkers on"))
SIZES = tuple(1024 << doubling for doubling in range(2, 8))  # 4K..128K


def decode_rows(session: Session) -> Iterator[Result]:
    case = Decode(131_072, 1024, n=8)
    for (check, words), limit in zip(CHECKERS, (5, 8), strict=True):
        session.tell(f"decode rows, {words}")
        run = partial(case.run, check=check)
        samples = each(session, run, len(run().log))
        work = f"decode S=128K N=8 TILE=1024, structure only, {words}, a log row"
        yield against(1, work, ratios(samples), Target(limit, "T"), microseconds(samples, "a row"))


def math_ops(session: Session) -> Iterator[Result]:
    for (check, words), limit in zip(CHECKERS, (8, 16), strict=True):
        session.tell(f"chains of MATH ops, {words}")
        samples = each(session, partial(run_math_chains, check=check), CHAIN * LINKS * PES)
        work = f"chain of MATH ops, default issue costs, {words}, an op"
        yield against(2, work, ratios(samples), Target(limit, "T"), microseconds(samples, "an op"))


def each(session: Session, run: Callable[[], Run], count: int) -> list[Sample]:
    """Seconds of one of `count` things that `run` does, beside T."""
    return session.beside_unit(lambda: seconds(run) / count)


def ratios(samples: Sequence[Sample]) -> list[float]:
    return [sample.ratio for sample in samples]


def microseconds(samples: Sequence[Sample], what: str) -> str:
    return f"{figure(1e6 * median(sample.work for sample in samples))} us {what}"


def numpy_overhead(session: Session) -> Iterator[Result]:
    session.tell("decode with data beside bare numpy")
    case = Decode(32_768, 1024, data=True)
    check_results(case)
    bare_numpy = partial(tiled_decode, case)
    samples = beside(lambda: typical(case.run, 3), lambda: typical(bare_numpy, 9), session.repetitions)
    ours, bare = (1e3 * median(values) for values in zip(*((s.work, s.unit) for s in samples), strict=True))
    work = "decode with data S=32K N=1 TILE=1024, checkers on / bare numpy, same tiles"
    yield against(3, work, ratios(samples), Target(8), f"{figure(ours)} ms / {figure(bare)} ms")


def check_results(case: Decode) -> None:
    """Both sides have to compute attention, or their times mean nothing."""
    for name, o in (("simulated", case.run().array("O")), ("bare numpy", tiled_decode(case))):
        error = case.error(o)
        if not error < CLOSE:
            raise ArithmeticError(f"{name} decode of {case} is off by {error:g}, {CLOSE} is allowed")


def growth(session: Session) -> Iterator[Result]:
    session.tell("growth with S")
    cases = [Decode(size, 128) for size in SIZES]
    by_size = [grown(session, cases) for _ in range(session.repetitions + 1)][1:]  # the first one warms up
    slopes = [exponent(SIZES, [sample.ratio for sample in samples]) for samples in by_size]
    first, last = (figure(median(samples[at].work for samples in by_size)) for at in (0, -1))
    work = "growth of time with S=4K..128K, N=1 TILE=128, structure only, checkers on: exponent"
    yield against(5, work, slopes, Target(1.05, ""), f"{first} s at 4K, {last} s at 128K")
    yield log_bytes(cases[-1])


def grown(session: Session, cases: Sequence[Decode]) -> list[Sample]:
    samples, before = [], session.unit()
    for case in cases:
        worked, after = seconds(case.run), session.unit()
        samples.append(Sample(worked, (before + after) / 2))
        before = after
    return samples


def log_bytes(case: Decode) -> Result:
    log = case.run().log
    held = sum(column.itemsize * len(column) for column in (log.cells, log.operand_cells))
    target = Target(128, "bytes")
    return against(5, "the same at 128K: bytes a log row", [held / len(log)], target, f"{len(log)} rows")
