"""Golden op logs of decode, on one PE and on eight: what moves, in which order, and how long it takes on this model.

A reader of `__snapshots__` sees the double buffer of 5.2 as an inner loop of two, and the tree of 5.3 as parts A and B.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_kernbench.simulator.ops.text import structure

PROBE = """
import hashlib
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.kernels.ahbm.placement import placement
from pytest_kernbench.simulator.ahbm.chip import AhbmChip
from pytest_kernbench.simulator.ops.text import structure, timing

chip = AhbmChip()
q = chip.tensor("Q", (8, 128), place="replicate")
k, v = chip.tensor("K", (128, 128)), chip.tensor("V", (128, 128))
o = chip.tensor("O", (8, 128), place=7)
run = chip.run(
    gqa_decode, q, k, v, o, 1024, 0, 8, group=8, tile=64, scale=0.088, grid=8, placement=placement(8, (2, 4))
)
texts = structure(run.log), timing(run.log)
digests = [hashlib.sha256(each).hexdigest() for each in (*map(str.encode, texts), run.log.cells.tobytes())]
print(len(run.log), *digests)
"""


@pytest.mark.adr("0060", "5.2")
def test_one_pe(decode, problem, oplog_snapshot):
    oplog_snapshot.assert_matches(decode(problem(s=640, n=1, tile=128, data=False)))


@pytest.mark.adr("0060", "5.3", "4")
def test_eight_pes(decode, problem, oplog_snapshot):
    oplog_snapshot.assert_matches(decode(problem(s=1024, n=8, tile=64, data=False)))


@pytest.mark.adr("0060", "5.3")
@pytest.mark.parametrize("schedule", ["jitter", "late"])
def test_eight_pes_say_the_same_under_other_schedules(decode, problem, schedule):
    case = problem(s=1024, n=8, tile=64, data=False)

    assert structure(decode(case, schedule=schedule, seed=7).log) == structure(decode(case).log)


def in_new_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", PROBE]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.adr("0060", "11.8")
def test_processes_with_different_hash_seeds_write_the_same_bytes():
    one, other = in_new_process("1"), in_new_process("2")

    assert one.startswith("738 ")
    assert one == other
