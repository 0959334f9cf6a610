"""Imports go left only, as docs/architecture.md says: each layer of the table may import those it lists, and itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

OWN = "pytest_kernbench"
BASE = {"simulator.errors", "simulator.probes"}
UNITS = BASE | {"simulator.engine", "simulator.memory"}
DEVICES = {"simulator.ahbm", "simulator.ascend310p"}
HOST = {"simulator.arguments"}
LANGUAGES = {"simulator.ahbm.tl", "simulator.ascend310p.asc"}  # types of what a kernel can say, and nothing of a device

# A module belongs to the longest name that begins its own. Imports for the type checker alone count as well.
LAYERS: dict[str, set[str]] = {
    "simulator.errors": set(),
    "simulator.probes": set(),
    "simulator.engine": BASE,
    "simulator.memory": BASE | {"simulator.engine"},
    "simulator.ops": UNITS,
    "simulator.checks": BASE,
    "simulator.device": UNITS | {"simulator.ops"},
    "simulator.arguments": {"simulator.errors"},
    "simulator.ahbm.tl": set(),
    "simulator.ascend310p.vocabulary": {"simulator.memory"},
    "simulator.ascend310p.asc": {"simulator.errors", "simulator.ascend310p.vocabulary"},
    "simulator.ahbm": UNITS | HOST | {"simulator.ops", "simulator.device", "simulator.checks"},
    "simulator.ascend310p": UNITS
    | HOST
    | {"simulator.ops", "simulator.device", "simulator.checks", "simulator.ascend310p.vocabulary"},
    "simulator": UNITS | {"simulator.ops", "simulator.device", "simulator.checks"} | DEVICES,
    "kernels": LANGUAGES,
    "specs": {OWN},
    OWN: UNITS | LANGUAGES | {"simulator", "simulator.ops", "simulator.device", "simulator.checks", "specs"} | DEVICES,
}


def layer_of(module: str) -> str:
    """The layer of a module, from its name inside the distribution."""
    name = module.removeprefix(f"{OWN}.")
    return max((layer for layer in LAYERS if f"{name}.".startswith(f"{layer}.")), key=len, default=OWN)


def imports(module: str, path: Path) -> Iterator[tuple[str, int]]:
    """What a module of ours imports from the distribution, each with its line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            targets = (name for name in _names(node, package) if name.partition(".")[0] == OWN)
            yield from ((name, node.lineno) for name in targets)


def _names(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parents, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(module: str, path: Path) -> Iterator[str]:
    layer = layer_of(module)
    for target, line in imports(module, path):
        other = layer_of(target)
        if other != layer and other not in LAYERS[layer]:
            yield f"{path.name}:{line}: {module} ({layer}) may not import {target} ({other})"


def test_no_module_imports_what_stands_to_its_right(modules: dict[str, Path]) -> None:
    assert [line for name, path in modules.items() for line in violations(name, path)] == []


def test_every_layer_of_the_table_exists_and_imports_were_found(modules: dict[str, Path]) -> None:
    assert {layer_of(name) for name in modules} == set(LAYERS)

    importing = {layer_of(name) for name, path in modules.items() if [*imports(name, path)]}
    assert importing >= {OWN, "specs", "simulator.engine", "simulator.ops", "simulator.ahbm"}


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("pytest_kernbench.simulator.errors", "from . import probes"),
        ("pytest_kernbench.simulator.engine.loop", "from ..memory.space import Region"),
        ("pytest_kernbench.simulator.memory.space", "import pytest_kernbench.simulator.ops.unit"),
        ("pytest_kernbench.simulator.checks.races", "from pytest_kernbench.simulator.engine import loop"),
        ("pytest_kernbench.simulator.ops.unit", "from pytest_kernbench.simulator import ahbm"),
        ("pytest_kernbench.kernels.ahbm.decode", "from pytest_kernbench.simulator.memory import dtypes"),
        ("pytest_kernbench.kernels.ahbm.decode", "from pytest_kernbench.simulator.ahbm.language import Language"),
        ("pytest_kernbench.simulator.ahbm.tl", "from pytest_kernbench.simulator.ahbm.handles import Handle"),
        ("pytest_kernbench.fixtures", "def late():\n    from pytest_kernbench.kernels import ahbm"),
        ("pytest_kernbench.simulator.ahbm.chip", "from pytest_kernbench.documents import parse"),
        ("pytest_kernbench.simulator.ahbm.chip", "from pytest_kernbench.simulator.ascend310p import spec"),
        ("pytest_kernbench.simulator.ascend310p.device", "from pytest_kernbench.simulator.ahbm.spec import AhbmSpec"),
    ],
)
def test_the_audit_finds_a_wrong_import(tmp_path: Path, module: str, statement: str) -> None:
    path = tmp_path / f"{module.rpartition('.')[2]}.py"
    path.write_text(statement)

    assert len([*violations(module, path)]) == 1


def test_the_audit_lets_a_right_import_pass(tmp_path: Path) -> None:
    path = tmp_path / "unit.py"
    path.write_text(
        "from .op import Op\nfrom ..engine import loop\nfrom pytest_kernbench.simulator.errors import Hazard\n"
    )

    assert [*violations("pytest_kernbench.simulator.ops.unit", path)] == []
    assert len([*imports("pytest_kernbench.simulator.ops.unit", path)]) == 3
