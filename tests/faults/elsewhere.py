"""What other folders below tests/ define and the corpus uses, each in one place: fixtures, seeded kernels, cases."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TESTS = Path(__file__).parents[1]


def module_of(path: str) -> ModuleType:
    """The module of another folder's file below tests/, which no package holds."""
    name = "faults_use_" + path.removesuffix(".py").replace("/", "_")
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / path)
        assert spec and spec.loader
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
