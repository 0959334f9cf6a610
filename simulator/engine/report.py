"""What a deadlock report says: who sleeps, at which line, on what, who could end it. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from pathlib import Path
from typing import Any

OWN_FOLDER = str(Path(__file__).resolve().parents[1])


def describe_sleepers(sleeping: dict[Any, tuple[Any, str]], kernels: list[Any]) -> str:
    """One line a sleeping kernel, then the wait-for cycle if there is one."""
    lines = [f"  {kernel.name} waits at {where(kernel)} for {why}; {token.who()}"
             for kernel, (token, why) in sleeping.items()]  # fmt: skip
    running = [kernel.name for kernel in kernels if kernel not in sleeping and not kernel.finished]
    if running:
        lines.append(f"  running: {', '.join(running)}")
    cycle = wait_for_cycle(sleeping)
    if cycle:
        lines.append("  they wait for each other: " + " -> ".join(kernel.name for kernel in cycle))
    return "\n".join(lines or ["  no kernel sleeps: units are still at work"])


def where(kernel: Any) -> str:
    """File, line and function of the innermost frame that is not the simulator's."""
    frame = kernel.frame()
    while frame is not None and frame.f_code.co_filename.startswith(OWN_FOLDER):
        frame = frame.f_back
    if frame is None:
        return "its start"
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} in {frame.f_code.co_name}"


def wait_for_cycle(sleeping: dict[Any, tuple[Any, str]]) -> list[Any]:
    """Kernels k0 -> k1 -> ... -> k0, each asleep on a token that only the next can set; empty if there is none."""
    waits_for = {kernel: getattr(token, "setter", None) for kernel, (token, _) in sleeping.items()}
    for first in waits_for:
        path = [first]
        while (after := waits_for.get(path[-1])) is not None:
            if after in path:
                return [*path[path.index(after) :], after]
            path.append(after)
    return []
