"""Ours and the peers' decode stand side by side as ratios within a round; a peer that is not there has no figure."""

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def peers() -> Iterable[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield importlib.import_module("benchmarks.peers.__main__")


def test_ratios_are_taken_within_a_round_and_to_ours_with_checkers(peers: Any) -> None:
    ours, *_, triton = everyone = peers.sides(None, Path("python"))
    # A machine that is ten times as slow in the second round is so for both.
    rounds = [
        {
            ours.name: peers.Round(0.1 * slow, 0.05 * slow, 50, 4),
            triton.name: peers.Round(0.3 * slow, 0.1 * slow, 100, 2),
        }
        for slow in (1, 10, 1)
    ]

    first, *_, last = peers.table(everyone, rounds).split("\n")[2:]
    assert words(first)[1:5] == ["1.00x"] * 4
    assert words(last) == [
        "Triton interpreter",
        "3.00x",
        "2.00x",
        "2.00x",
        "0.500x",
        "300 ms, 100 ms; 100 MiB, 2.00 MiB",
    ]


def test_a_peer_that_is_not_there_is_said_to_be_not_measured(peers: Any) -> None:
    ours, *_ = everyone = peers.sides(None, None)
    lines = peers.table(everyone, [{ours.name: peers.Round(1, 1, 1, 1)}]).split("\n")

    missing = [words(line) for line in lines if "not measured" in line]
    assert [line[1:5] for line in missing] == [["-"] * 4] * 3
    assert {line[5].rpartition(": ")[2] for line in missing} == {"give --pallas PYTHON", "give --triton PYTHON"}


def words(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_memory_is_that_of_the_first_call_and_time_the_median_of_the_later_ones(peers: Any) -> None:
    calls = [
        {"seconds": seconds, "before_mib": before, "peak_mib": 90.0}
        for seconds, before in ((9.0, 40.0), (3.0, 80.0), (1.0, 80.0), (2.0, 80.0))
    ]

    assert peers.of_calls(calls) == peers.Round(first=9.0, later=2.0, peak=90.0, added=50.0)


def test_every_script_of_a_peer_is_there(peers: Any) -> None:
    commands = {side.command for side in peers.sides(Path("a"), Path("b")) if side.command != peers.OURS}

    assert {Path(script).name for _, script in commands} == {"pallas_decode.py", "triton_decode.py"}
    assert all(Path(script).exists() for _, script in commands)


WORKER = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"error": json.loads(line)["off"], "seconds": 1}), flush=True)
"""


def test_a_result_that_is_off_is_no_figure(peers: Any) -> None:
    with peers.Worker((sys.executable, "-c", WORKER)) as worker:
        assert worker.ask(off=0.001)["seconds"] == 1
        with pytest.raises(ArithmeticError, match=r"off by 0\.5"):
            worker.ask(off=0.5)


def test_a_peer_that_ends_is_an_error_and_not_a_peer_that_is_missing(peers: Any) -> None:
    with (
        peers.Worker((sys.executable, "-c", "import sys; sys.exit(3)")) as worker,
        pytest.raises((RuntimeError, BrokenPipeError)),
    ):
        worker.ask(off=0)


def test_error_is_the_distance_from_attention_in_float64(peers: Any) -> None:
    asked = importlib.import_module("benchmarks.peers.asked")
    q, k, v = np.zeros((2, 4)), np.zeros((3, 4)), np.arange(12.0).reshape(3, 4)  # no scores: the mean of v

    assert asked.attention_error(np.tile(v.mean(axis=0), (2, 1)), q, k, v, 1.0) == 0
    assert asked.attention_error(np.tile(v.mean(axis=0) + np.array([0, 0, 0.25, 0]), (2, 1)), q, k, v, 1.0) == 0.25


def test_a_worker_answers_with_time_and_memory(peers: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = importlib.import_module("benchmarks.peers.asked")
    monkeypatch.setattr(sys, "stdin", iter(['{"s": 8}\n', '{"s": 16}\n']))

    asked.serve(lambda s: {**asked.measured(lambda: bytearray(s))[1], "s": s})
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["s"] for answer in answers] == [8, 16]
    assert all(answer["processor"] >= 0 and 0 < answer["before_mib"] <= answer["peak_mib"] for answer in answers)
