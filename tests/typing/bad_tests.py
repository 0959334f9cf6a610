"""Mistakes in tests, each with what mypy has to say of it."""

import pytest_kernbench
from pytest_kernbench import (
    AhbmChip,
    AhbmSpec,
    Ascend310pCore,
    OpLogSnapshot,
    Run,
    RunKernel,
    Tl,
    simulator,
    strategies,
)
from pytest_kernbench import assertions as ka


def misspelt() -> None:
    pytest_kernbench.AhbmChop()  # E: Module has no attribute "AhbmChop"
    simulator.OpLogs()  # E: Module has no attribute "OpLogs"


def kernel(*, tl: Tl) -> None:
    tl.wait(tl.send("E", tl.zeros((4,))))


def gives_back(*, tl: Tl) -> int:
    return tl.program_id()


def test_running(run_kernel: RunKernel, ahbm_chip: AhbmChip, ascend310p_core: Ascend310pCore) -> None:
    run_kernel(kernel)  # E: Missing named argument "on"
    run_kernel(kernel, on="ahbm")  # E: Argument "on" to "__call__" of "RunKernel" has incompatible type "str"
    run_kernel(gives_back, on=ahbm_chip)  # E: Argument 1 to "__call__" of "RunKernel" has incompatible type
    run_kernel(kernel, on=ahbm_chip, grid="4")  # E: Argument "grid" to "__call__" of "RunKernel" has incompatible type
    run_kernel(kernel, on=ahbm_chip, seed="1")  # E: Argument "seed" to "__call__" of "RunKernel" has incompatible type
    ahbm_chip.tensor("x")  # E: Missing positional argument "shape"
    ahbm_chip.tensor("x", (8, "64"))  # E: Argument 2 to "tensor" of "AhbmChip" has incompatible type
    ahbm_chip.tensor("x", 8, 32)  # E: Argument 3 to "tensor" of "AhbmChip" has incompatible type "int"
    ascend310p_core.tensor("x", 8, place=0)  # E: Unexpected keyword argument "place"
    ascend310p_core.run(kernel, grid=(1, 2))  # E: Argument "grid" to "run" of "Ascend310pCore" has incompatible type
    AhbmSpec(mesh_row=1)  # E: Unexpected keyword argument "mesh_row"
    AhbmSpec(mesh_rows=1.5)  # E: Argument "mesh_rows" to "AhbmSpec" has incompatible type "float"; expected "int"


def test_runs(run: Run, oplog_snapshot: OpLogSnapshot) -> None:
    print(run.cycle)  # E: "Run" has no attribute "cycle"
    run.cycles = 3  # E: Property "cycles" defined in "Run" is read-only
    run.array(0)  # E: Argument 1 to "array" of "Run" has incompatible type "int"
    ka.assert_matches_reference(run, "y", [1.0])  # E: Missing positional argument "bound"
    ka.assert_matches_reference(run, "y", [1.0], "1e-6")  # E: Argument 4 to "assert_matches_reference"
    ka.assert_latency_between(run.log, 1, 2)  # E: Argument 1 to "assert_latency_between" has incompatible type "OpLog"
    ka.assert_bytes_read(run, "x", 1.5)  # E: Argument 3 to "assert_bytes_read" has incompatible type "float"
    ka.assert_no_race(run)  # E: Module has no attribute "assert_no_race"
    oplog_snapshot.assert_matches("golden")  # E: Argument 1 to "assert_matches" of "OpLogSnapshot" has incompatible
    strategies.meshes(8)  # E: Too many positional arguments for "meshes"
