"""Sizes, arrays and batches that mean nothing are refused before the launch, with the numbers on both sides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pytest_kernbench.kernels.ahbm import driver
from pytest_kernbench.kernels.ahbm.gqa_decode import gqa_decode
from pytest_kernbench.simulator import AhbmChip

SMALL = {"kv_len": 40, "t_q": 4, "group": 4, "d": 16, "d_v": 16}


def arrays(**shapes):
    sizes = {"q": (4, 4, 16), "k": (1, 40, 16), "v": (1, 40, 16), **shapes}
    return {name: np.zeros(shape, np.float32) for name, shape in sizes.items() if shape is not None}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"group": 0}, "group is 0: it counts from 1"),
        ({"heads": 0}, "heads is 0: it counts from 1"),
        ({"kv_len": -1}, "kv_len is -1: it counts from 0"),
        (arrays(q=(4, 5, 16)), r"q has shape \(4, 5, 16\), these sizes want \(4, 4, 16\)"),  # a ring took the first 4
        (arrays(q=(4, 16)), r"q has shape \(4, 16\), these"),
        (arrays(k=(1, 30, 16)), r"k has shape \(1, 30, 16\), these sizes want \(1, 40, 16\)"),
        (arrays(v=(1, 40, 24)), r"v has shape \(1, 40, 24\), these"),
        (arrays(k=None), "there is only q, v: give all three, or none"),
        ({"sinks": np.zeros(5)}, r"sinks has shape \(5,\), these sizes want \(4,\)"),  # the fifth was dropped
        ({"sinks": np.full(4, np.nan)}, "a sink is a finite logit, or minus infinity"),
        ({"sinks": np.full(4, np.inf)}, "a sink is a finite logit, or minus infinity"),
    ],
    ids=str,
)
def test_a_problem_whose_parts_do_not_fit_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        driver.Problem(**{**SMALL, **wrong})


LAUNCHES = {
    "decode": lambda chip, problems, **sizes: driver.decode(chip, problems, 2, tile=8, **sizes),
    "prefill": lambda chip, problems, **sizes: driver.prefill(chip, problems, tile=8, q_block=4, **sizes),
    "ring": lambda chip, problems, **sizes: driver.ring_batch(chip, problems, 2, tile=8, q_block=4, **sizes),
}


@pytest.fixture(params=LAUNCHES)
def launch(request):
    return lambda problems, **sizes: LAUNCHES[request.param](
        AhbmChip(ports=driver.ring_ports(2, 1) if request.param == "ring" else None), problems, **sizes
    )


def test_a_batch_of_nothing_is_refused(launch):
    with pytest.raises(ValueError, match="without requests"):
        launch([])


@pytest.mark.adr("0060", "4")
@pytest.mark.parametrize("sinks", [(None, np.ones(4)), (np.ones(4), None), (np.zeros(4), np.ones(4))], ids=str)
def test_sinks_of_a_later_request_are_not_dropped(launch, sinks):
    with pytest.raises(ValueError, match="sinks of request 1 are not those of request 0"):
        launch([driver.Problem(**SMALL, sinks=each) for each in sinks])
    launch([driver.Problem(**SMALL, sinks=np.ones(4))] * 2)


def test_data_in_some_requests_of_a_batch_is_refused(launch):
    with pytest.raises(ValueError, match="has_data of request 1 is False, of request 0 True"):
        launch([driver.Problem(**SMALL, **arrays()), driver.Problem(**SMALL)])


ONE = driver.Problem(**SMALL)
BY_PES = {
    "decode": lambda n: driver.decode(AhbmChip(), [ONE], n, tile=8),
    "fixed split": lambda n: driver.decode_fixed_split(AhbmChip(), ONE, n, tile=8, split=8),
    "ring": lambda n: driver.ring(AhbmChip(), ONE, n, tile=8, q_block=4),
    "baseline decode": lambda n: driver.baseline_decode(AhbmChip(), ONE, n, tile=8),
    "baseline prefill": lambda n: driver.baseline_prefill(AhbmChip(), ONE, n, tile=8, q_block=4),
}


@pytest.mark.parametrize(("n", "message"), [(0, "at least 1 rank, n is 0"), (-1, "n is -1"), (9, "9 ranks do not fit")])
@pytest.mark.parametrize("kernel", BY_PES)
def test_no_pes_and_more_than_there_are_are_refused(kernel, n, message):
    with pytest.raises(ValueError, match=message):
        BY_PES[kernel](n)


def test_a_start_pe_for_each_request_and_no_more():
    with pytest.raises(ValueError, match="2 start_pes for 1 requests"):
        driver.decode(AhbmChip(), [ONE], 2, tile=8, start_pes=[0, 1])


@pytest.mark.parametrize("split", [0, -1])
def test_a_split_of_nothing_is_refused(split):
    """-1 left every key out, and gave zeros."""
    with pytest.raises(ValueError, match=f"split is {split}: it counts tokens from 1"):
        driver.decode_fixed_split(AhbmChip(), ONE, 2, tile=8, split=split)


@pytest.mark.adr("0060", "4")
@pytest.mark.parametrize("size", [-1, 0, 63])
def test_a_message_that_holds_no_row_of_o_is_refused(size):
    """-1 sent no O at all, and the root stored its own part."""
    chip = AhbmChip()
    launches = [
        driver.decode(chip, [ONE], 2, tile=8, message_bytes=size),
        driver.decode_fixed_split(chip, ONE, 2, tile=8, split=8, message_bytes=size),
        driver.baseline_decode(chip, ONE, 2, tile=8, message_bytes=size),
    ]
    for each in launches:
        with pytest.raises(ValueError, match=f"message_bytes is {size}, a row of O, 16 float32, takes 64"):
            each.run(chip)


def test_a_layout_that_there_is_not_is_refused():
    chip = AhbmChip()
    with pytest.raises(ValueError, match='layout \'Head\': layouts are "head" and "token"'):
        driver.decode(chip, [ONE], 2, tile=8, layout="Head").run(chip)


@pytest.mark.adr("0060", "5.5")
@pytest.mark.parametrize("ports", [None, driver.ring_ports(2, 1), driver.ring_ports(8, 1)], ids=["mesh", "2", "8"])
def test_a_chip_without_the_ports_of_the_ring_is_refused_with_what_to_say(ports):
    with pytest.raises(
        ValueError, match=r"in a ring of 4: make the chip with AhbmChip\(spec, ports=ring_ports\(4, 1, "
    ):
        driver.ring(AhbmChip(ports=ports), ONE, 4, tile=8, q_block=4)


WRONG_TYPES = [
    ("split", {"tile": 2.5}, "tile is 2.5: give a whole number"),
    ("split", {"n": 2.0}, "n is 2.0: give a whole number"),
    ("prefill", {"tile": None}, "tile is None: give a whole number"),
    ("prefill", {"q_block": 1.5}, "q_block is 1.5: give a whole number"),
    ("ring", {"recv_ahead": -1}, "recv_ahead is -1: it counts pieces from 0"),
    ("ring", {"q_block": True}, "q_block is True: give a whole number"),
    ("ring", {"window": 1.5}, "window 1.5: give a whole number of positions, or None"),
    ("split", {"scale": float("nan")}, "scale nan: give a finite number"),
    ("prefill", {"q_start": 1.5}, "q_start is 1.5: give a whole number"),
]


@pytest.mark.adr("0060", "2.2")
@pytest.mark.parametrize(("kernel", "wrong", "message"), WRONG_TYPES, ids=[f"{k} {w}" for k, w, _ in WRONG_TYPES])
def test_what_does_not_count_is_refused(request, case, kernel, wrong, message):
    sizes = {name: wrong[name] for name in wrong if name in ("window", "scale", "q_start")}
    options = {name: wrong[name] for name in wrong if name not in sizes and name != "n"}
    attend = request.getfixturevalue(kernel)
    with pytest.raises(ValueError, match=re.escape(message)):
        each = case(kv_len=9, t_q=2, structure=True, **sizes)
        if kernel == "prefill":
            attend([each], **options)
        else:
            attend(each if kernel == "ring" else [each], wrong.get("n", 2), **options)


@pytest.mark.adr("0060", "0.5.3", "10")
def test_a_q_with_heads_that_nobody_attends_for_is_refused(run_kernel, ahbm_chip):
    """A group of 3 of 4 heads would leave the last row of O unwritten, without a word."""
    q, k, v, o = (ahbm_chip.tensor(name, (rows, 16)) for name, rows in zip("QKVO", (4, 8, 8, 4), strict=True))
    with pytest.raises(ValueError, match=r"Q is \(4, 16\) with layout 'head', the launch attends for 3 query heads"):
        run_kernel(gqa_decode, q, k, v, o, 8, 0, 1, group=3, tile=8, scale=0.25, on=ahbm_chip)
