"""What the tests say of one mutant, test by test: whether one has noticed, how many are left, what was different.

What it has passed it need not pass again: a trial that was given up goes on from there. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pytest_kernbench.mutation.children import Message
from pytest_kernbench.mutation.mutants import Mutant
from pytest_kernbench.mutation.results import EQUIVALENT, KILLED, SURVIVED, Begun, Learnt

FIRST_LIMIT = 120.0  # seconds for a child to be ready
PATIENT, SLOWER = 10.0, 10.0  # a test of a mutant may take 10 s and 10 times what it takes of the kernel


class Judgement:
    """What the tests say of one mutant, as it arrives; `known` is what it has passed in earlier runs."""

    def __init__(self, mutant: Mutant, tests: Mapping[str, Learnt], known: Begun | None) -> None:
        self.mutant, self.tests = mutant, tests
        self.state, self.by, self.how, self.broke = "", "", "", ""
        self.began = time.monotonic()
        held = {} if known is None else known.passed
        self.passed = [each for each, learnt in tests.items() if held.get(each) == learnt.key]
        self._differs = known.differs if known is not None and known.differs in self.passed else ""
        self._now = ""

    @property
    def left(self) -> list[str]:
        """Tests that have not passed, in their order."""
        return [each for each in self.tests if each not in self.passed]

    def hear(self, message: Message) -> None:
        if "start" in message:
            self._now = message["start"]
        elif "broke" in message:
            self.broke = message["broke"]
        else:
            self._heard(message["test"], message)

    def _heard(self, test: str, message: Message) -> None:
        if message["result"] != "passed" or message["seen"] != self.tests[test].seen:
            self._differs = self._differs or test
        if message["result"] == "failed":
            self.state, self.by, self.how = KILLED, test, message["how"]
        else:
            self.passed.append(test)

    def limit(self) -> float:
        """Seconds that the next message may take."""
        return PATIENT + SLOWER * self.tests[self._now].seconds if self._now else FIRST_LIMIT

    def end(self, late: bool) -> None:
        """The child is gone."""
        if self.state or self.broke:
            return
        if late or self.left:
            how = f"no end within {self.limit():.0f} s" if late else "its process died"
            self.state, self.by, self.how = KILLED, self._now or next(iter(self.tests)), how
        else:
            self.state = SURVIVED if self._differs else EQUIVALENT
            self.how = f"runs differ in {self._differs}" if self._differs else ""

    def so_far(self, key: str) -> Begun:
        """What another run may go on from; `key` names the mutant."""
        return Begun(self.mutant.id, key, {each: self.tests[each].key for each in self.passed}, self._differs)
