"""A sample of the hostile inputs: each is refused in words or accepted, at once, and never ends in an error of ours.

`python -m tests.hostile` tries them all.
"""

import pytest

from pytest_kernbench.simulator import AhbmChip, AhbmSpec, Ascend310pCore, LaunchError, Timing, retime
from pytest_kernbench.simulator.ahbm.topology import ring_ports
from pytest_kernbench.simulator.errors import KernelError

from .calls import Call
from .sweep import all_calls, attempt, inputs

ONE_OF = 25


def test_no_sampled_input_ends_badly() -> None:
    ended = [attempt(*each) for each in inputs(ONE_OF)]

    assert len(ended) > 2000
    assert [each for each in ended if each.how == "raw"] == []


@pytest.mark.parametrize(
    "call", [each for each in all_calls() if each.name.startswith(("tl.", "asc."))], ids=lambda it: it.name
)
def test_every_call_is_right_without_a_hostile_value(call: Call) -> None:
    ended = attempt(call, "", "None")

    assert ended.how == "accepted" or "has one already" in ended.fact  # a second TPipe


def of_310p(say):  # type: ignore[no-untyped-def]
    def kernel(*, asc):  # type: ignore[no-untyped-def]
        pipe, buf = asc.TPipe(), asc.TBuf()
        pipe.InitBuffer(buf, 512)
        say(asc, buf.Get(asc.float32))

    return lambda: Ascend310pCore().run(kernel)


def of_ahbm(say):  # type: ignore[no-untyped-def]
    def kernel(x, *, tl):  # type: ignore[no-untyped-def]
        say(tl, x)

    chip = AhbmChip()
    return lambda: chip.run(kernel, chip.tensor("x", (4, 4)))


@pytest.mark.parametrize(
    ("say", "error", "words"),
    [
        (lambda: Timing("x"), LaunchError, r"Timing\('x'\): wants an AhbmSpec"),  # type: ignore[arg-type]
        (lambda: retime([], Timing(AhbmSpec())), LaunchError, r"the log is \[\]; give run.log"),  # type: ignore[arg-type]
        (lambda: ring_ports((0, 1), closed=2), LaunchError, "closed 2 is none of True, False"),  # type: ignore[arg-type]
        (lambda: Ascend310pCore().run(lambda *, asc: None, grid=0), LaunchError, "grid = 0: wants a whole number"),
        (
            of_310p(lambda asc, t: asc.Relu(t, t, 2**31)),
            KernelError,
            "count is 2147483648; give a whole number 1..262144",
        ),
        (of_ahbm(lambda tl, p: p - 1), KernelError, r"pointer - n of PE0 at test_hostile.py:\d+ .* less by 1; add"),
        (of_ahbm(lambda tl, p: p[0]), KernelError, r"pointer\[...\] of PE0 at .* asked for its 0; load it"),
    ],
)
def test_what_the_sweep_found_is_refused_in_words(say, error, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=words):
        say()
