"""How something public goes away: a warning for at least one minor release, then an error (docs/api.md).

tests/audit fails when a release has come in which a name was to go and the name is still there. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import warnings

__all__ = ["KernbenchDeprecationWarning", "deprecated"]


class KernbenchDeprecationWarning(DeprecationWarning):
    """Something public is used that goes away in the release that the message names."""


def deprecated(old: str, use: str, *, until: str) -> None:
    """Warn the caller's caller that `old` goes away in release `until`, and what to `use` in its place.

    Called by what is deprecated: a function, or a module's `__getattr__` for a name that moved.
    """
    warnings.warn(f"{old} goes away in {until}: use {use}", KernbenchDeprecationWarning, stacklevel=3)
