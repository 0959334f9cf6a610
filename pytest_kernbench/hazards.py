"""The kinds of finding that there are, and what a test may do about them: one list, one place. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_kernbench.documents import nearest

if TYPE_CHECKING:
    from pytest_kernbench.simulator.errors import Hazard

__all__ = ["ALLOCATION", "KINDS", "MEANING", "NOTES", "RACES", "Allowance", "AllowanceError", "allowances", "refused"]

MEANING: Mapping[str, str] = MappingProxyType(
    {
        "race-raw": "bytes are read while nothing says that their write is over",
        "race-war": "bytes are overwritten while nothing says that their reader is done",
        "race-waw": "bytes are written twice and nothing says which write is last",
        "use-after-recycle": "a handle is used after its scope was left or its slot released",
        "recycle-in-flight": "bytes get another owner while an op on them is in flight",
        "uninitialised-read": "bytes are read that nothing has written",
        "out-of-bounds": "an access leaves its tensor or buffer",
        "past-logical-length": "a result depends on rows behind a tensor's valid length",
        "misaligned": "an address is not a multiple of what the device wants",
        "truncated-copy": "a copy moves less than was asked for",
        "capacity": "something does not fit where it should go",
        "live-alias": "an owner reads bytes that a borrower of its buffer wrote last",
        "leak": "what was taken is never given back",
        "deadlock": "kernels sleep and nothing is left that could wake them",
        "livelock": "a run passed its limit of cycles or ops",
        "unpaired-flag": "a flag is set and not waited for, or the other way round",
        "double-flag": "a flag is set again before it was waited for",
        "reserved-flag": "a flag id belongs to the system",
        "event-id": "a flag id is outside its range or was not allocated",
        "redundant-flag": "a flag orders nothing that was not in order already (a note)",
        "ignored-mask": "a mask leaves lanes out where the device takes none (a note)",
        "vector-exception": "arithmetic on numbers that sets a bit of the device's error word (a note)",
        "queue-misuse": "a queue's calls come in an order that it does not allow",
        "message-mismatch": "a message is not of the shape and dtype that its receiver expects",
        "message-left": "a message was sent and never received",
        "credit-lost": "a message slot never came home to its sender",
        "op-in-flight-at-exit": "a kernel ended and nobody had waited for an op of its",
        "redundant-transfer": "bytes are fetched again while a copy of them stands (a note)",
        "dead-transfer": "bytes are fetched and never read (a note)",
        "first-nan": "the first op that makes a NaN out of numbers",
        "overflow": "the first op that makes an infinity out of numbers",
        "precision-loss": "a sum or difference keeps next to nothing of an operand",
        "tiling-mismatch": "host and kernel disagree about the tiling",
        "unsupported": "the device does not have this",
        "bad-parameter": "an argument that the device's language does not take",
        "illegal-overlap": "source and target overlap where they must not",
        "stale-cache": "the scalar unit reads what its cache had, not what is in memory",
    }
)
"""What each kind of finding means, in a line."""

KINDS = tuple(MEANING)
"""The stable names of findings, as messages, allowances, documents and exports use them."""

RACES = ("race-raw", "race-war", "race-waw")
"""Two accesses to the same bytes that nothing puts in order."""

ALLOCATION = ("use-after-recycle", "recycle-in-flight", "live-alias")
"""Bytes that are used by somebody who does not own them any more."""

NOTES = ("redundant-flag", "redundant-transfer", "dead-transfer")
"""Kinds that are notes: they fail nothing, so there is nothing to allow."""


class AllowanceError(ValueError):
    """An `allow_hazard` mark that does not say which kind it allows, or why."""


@dataclass
class Allowance:
    """One kind of finding that a test is known to have; `matched` counts those that it let pass."""

    kind: str
    reason: str
    matched: int = 0

    def stale(self) -> str:
        """The complaint about an allowance that let nothing pass."""
        return (
            f'allow_hazard("{self.kind}", reason="{self.reason}") is stale: no run of this test had a {self.kind}; '
            "remove the mark"
        )


def allowances(marks: Iterable[Any], more: Iterable[str] = ()) -> list[Allowance]:
    """The allowances that `allow_hazard` marks make; `more` are kinds beside ours, those of the test's checkers.

    Raises AllowanceError for a mark that says it wrong.
    """
    kinds = (*KINDS, *more)
    return [_allowance(mark, kinds) for mark in marks]


def _allowance(mark: Any, kinds: Sequence[str]) -> Allowance:
    said = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
    reason = mark.kwargs.get("reason")
    if len(mark.args) != 1 or set(mark.kwargs) - {"reason"}:
        raise AllowanceError(f'allow_hazard({said}) is not allow_hazard("kind", reason="..."), one kind a mark')
    if not isinstance(reason, str) or not reason.strip():
        raise AllowanceError(f"allow_hazard({said}) gives no reason: say why the finding is known, reason='...'")
    (kind,) = mark.args
    if kind not in kinds:
        near = nearest(str(kind), kinds)
        guess = f"; nearest: {', '.join(near)}" if near else ""
        raise AllowanceError(f"allow_hazard({said}): there is no such kind{guess}\nkinds: {', '.join(kinds)}")
    if kind in NOTES:
        raise AllowanceError(f"allow_hazard({said}): {kind} is a note, in run.notes; it fails nothing: remove the mark")
    return Allowance(kind, reason)


def refused(hazards: Iterable[Hazard], allowed: Iterable[Allowance]) -> list[Hazard]:
    """The findings that no allowance lets pass; those that one does are counted there."""
    by_kind: dict[str, list[Allowance]] = {}
    for allowance in allowed:
        by_kind.setdefault(allowance.kind, []).append(allowance)
    left = []
    for hazard in hazards:
        for allowance in by_kind.get(hazard.kind, ()):
            allowance.matched += 1
        if hazard.kind not in by_kind:
            left.append(hazard)
    return left
