"""Children say what they have to say, are killed when they are late, and leave nothing behind."""

import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_kernbench.mutation.children import Message, Pool, Say, Task

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


class Heard:
    """Tasks of some work, and what came of each."""

    def __init__(self, *works: Callable[[Say], None], limit: float = 30.0) -> None:
        self.messages: list[Message] = []
        self.late: list[bool] = []
        self.given_up = 0
        self._tasks = [
            Task(work, self.messages.append, lambda: limit, self.late.append, self._give_up) for work in works
        ]

    def _give_up(self) -> None:
        self.given_up += 1

    def run(self, size: int = 1, stop_at: float = math.inf) -> bool:
        return Pool(size, stop_at).run(lambda: self._tasks.pop(0) if self._tasks else None, lambda: None)


def counting(say: Say) -> None:
    for number in range(3):
        say({"number": number})


def sleeping(say: Say) -> None:
    say({"pid": os.getpid(), "folder": tempfile.gettempdir()})
    time.sleep(60)


def failing(say: Say) -> None:
    raise RuntimeError("not today")


def dying(say: Say) -> None:
    os._exit(3)


@pytest.mark.parametrize("size", [1, 2])
def test_every_message_of_every_task_arrives(size: int) -> None:
    heard = Heard(counting, counting)

    assert heard.run(size)
    assert sorted(each["number"] for each in heard.messages) == [0, 0, 1, 1, 2, 2]
    assert heard.late == [False, False]


def test_a_long_message_arrives_whole() -> None:
    heard = Heard(lambda say: say({"text": "x" * 1_000_000}))

    heard.run()

    assert len(heard.messages[0]["text"]) == 1_000_000


def test_one_that_is_late_is_killed_with_all_it_left_and_the_next_runs() -> None:
    heard = Heard(sleeping, counting, limit=0.3)

    assert heard.run()
    assert (heard.late, heard.given_up) == ([True, False], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(heard.messages[0]["pid"], 0)
    assert not Path(heard.messages[0]["folder"]).exists()


def test_what_goes_wrong_in_a_child_is_said_or_at_least_ends_it() -> None:
    heard = Heard(failing, dying)

    assert heard.run()
    assert heard.messages == [{"broke": "RuntimeError: not today"}]
    assert heard.late == [False, False]


def test_when_the_time_is_up_nothing_more_is_begun_and_nothing_judged() -> None:
    heard = Heard(sleeping, counting)

    assert not heard.run(stop_at=time.monotonic() + 0.2)
    assert (heard.late, heard.given_up) == ([], 1)
    assert all("number" not in each for each in heard.messages)
