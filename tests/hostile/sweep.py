"""One hostile input and how it ended: accepted, refused in words, the value's own exception, or wrong."""

from __future__ import annotations

import signal
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pytest_kernbench.simulator.errors import SimError

from .asc_calls import asc_calls
from .calls import Call, assertion_calls, host_calls, tl_calls, tl_operators
from .values import VALUES, Own

SLOW = 1.0  # seconds


class Ended(NamedTuple):
    """How an input ended; `how` is "accepted", "refused", "own" or "raw"."""

    call: str
    parameter: str
    value: str
    how: str
    fact: str


class Hung(BaseException):
    """The input took too long; no simulated code catches it."""


def all_calls() -> list[Call]:
    return [*host_calls(), *assertion_calls(), *tl_calls(), *tl_operators(), *asc_calls()]


def inputs(one_of: int = 1) -> Iterator[tuple[Call, str, str]]:
    """Every input, or one of so many, the same each time."""
    for call in all_calls():
        for parameter in call.parameters:
            for value in VALUES:
                if zlib.crc32(f"{call.name} {parameter} {value}".encode("utf-8", "replace")) % one_of == 0:
                    yield call, parameter, value


def attempt(call: Call, parameter: str, value: str) -> Ended:
    """Make the call with the value, in at most two seconds."""
    start = time.perf_counter()
    how, fact = outcome(call, parameter, VALUES[value]() if parameter else None)
    seconds = time.perf_counter() - start
    if seconds > SLOW:
        how, fact = "raw", f"took {seconds:.1f} s, {SLOW} at most; {fact}"
    return Ended(call.name, parameter, value, how, fact)


def outcome(call: Call, parameter: str, value: Any) -> tuple[str, str]:
    timed = threading.current_thread() is threading.main_thread()
    if timed:
        signal.signal(signal.SIGALRM, hung)
        signal.setitimer(signal.ITIMER_REAL, 2 * SLOW)
    try:
        call.say(parameter, value)
    except Own:
        return "own", ""
    except BaseException as error:
        return judged(call, error)
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return "accepted", ""


def hung(*_: object) -> None:
    raise Hung("it went on and on")


def judged(call: Call, error: BaseException) -> tuple[str, str]:
    """Refused if by a class that is documented, in words; else raw, with where it came from."""
    documented: tuple[type[BaseException], ...] = (SimError,)
    if call.name.startswith("ka."):
        documented = (SimError, ValueError, AssertionError)
    elif call.name == "TileBlocked":
        documented = (ValueError,)
    ours = type(error).__module__.startswith("pytest_kernbench")
    if (ours or isinstance(error, documented)) and not isinstance(error, UnicodeError) and str(error):
        return "refused", str(error)
    return "raw", f"{type(error).__name__}: {str(error)[:90]} at {innermost(error)}"


def innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace else None
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno} {code.co_name}" if code and trace else "nowhere"
