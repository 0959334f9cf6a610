"""The downstream tests on every Python there is, and with the oldest versions that pyproject.toml allows.

    python -m tests.downstream.matrix [--each] [--only TEXT] [--suite PATH ...]

A leg is an environment with the wheel of this checkout; `tests/downstream` runs in it. The first leg is the oldest
Python with every dependency at its lower bound, the others are newer Pythons with the newest of everything; the oldest
Python with the newest is what the test suite itself covers. `--each` adds a leg for each dependency alone at its lower
bound. `--suite` runs tests of ours in each leg as well, outside the checkout. A Python that is not here is said so by
name and fails nothing; every other leg has to pass.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.downstream import environments

PYTHONS = ("3.11", "3.12", "3.13")
LEG = "KERNBENCH_DOWNSTREAM_PYTHON"


@dataclass(frozen=True)
class Leg:
    """A Python, by its version, and the pins of what is installed."""

    name: str
    version: str
    pins: tuple[str, ...] = ()


def legs(each: bool) -> Iterator[Leg]:
    oldest, *newer = PYTHONS
    bounds = tuple(environments.lowest())
    yield Leg(f"{oldest} oldest", oldest, bounds)
    yield from (Leg(f"{version} newest", version) for version in newer)
    if each:
        yield from (Leg(f"{oldest} {bound}", oldest, (bound,)) for bound in bounds)


def interpreter(version: str) -> str | None:
    """A Python of that version on this machine that can make environments, or None."""
    candidates = [sys.executable, *(path for name in (f"python{version}", "python3") if (path := shutil.which(name)))]
    homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
    for path in [*candidates, *map(str, homes)]:
        ask = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"
        said = subprocess.run([path, "-c", ask], capture_output=True, text=True, env=environments.clean())
        if said.stdout.strip() == version:
            return path
    return None


@dataclass(frozen=True)
class Session:
    """What all legs share: the wheel, a folder for environments, and the tests to run beside tests/downstream."""

    wheel: Path
    folder: Path
    suite: Sequence[str]

    def run(self, leg: Leg, python: str) -> bool:
        """Whether everything passed in that leg; says what did not."""
        started = time.monotonic()
        place = self.folder / re.sub(r"[^\w.]+", "-", leg.name)
        extras = "[hypothesis,test]" if self.suite else environments.EXTRAS
        wanted = [*environments.requirements(self.wheel, extras), *self._pins(leg)]
        try:
            inside = environments.new_environment(python, place, *wanted)
        except environments.CommandError as error:
            print(f"{leg.name}: FAILED to install\n{error}")
            return False
        outcomes = [self._downstream(inside), *(self._own(inside, place, path) for path in self.suite)]
        versions = self._versions(inside)
        for what, status, last, text in outcomes:
            print(f"{leg.name}: {what}: {last if not status else f'FAILED{chr(10)}{text}'}", flush=True)
        print(f"{leg.name}: {time.monotonic() - started:.0f} s, with {versions}", flush=True)
        return not any(status for _, status, _, _ in outcomes)

    def _pins(self, leg: Leg) -> tuple[str, ...]:
        """Without --suite, nothing but what a user of the wheel installs is pinned."""
        if self.suite:
            return leg.pins
        return tuple(pin for pin in leg.pins if pin.partition("=")[0] not in ("matplotlib", "distributed"))

    def _downstream(self, python: Path) -> tuple[str, int, str, str]:
        """`tests/downstream` of this checkout, run by this Python, with the repositories run by that one.

        -P: in the checkout's folder, its `pytest_kernbench` would be imported, which has no simulator inside.
        """
        options = ("-q", "-p", "no:cacheprovider", "-k", "not wheel")
        command = [sys.executable, "-P", "-m", "pytest", *options, "tests/downstream/test_downstream.py"]
        env = {**environments.clean(), LEG: str(python)}
        done = subprocess.run(command, cwd=environments.ROOT, env=env, text=True, capture_output=True)
        return "tests/downstream", done.returncode, _last(done.stdout), done.stdout + done.stderr

    def _own(self, python: Path, place: Path, path: str) -> tuple[str, int, str, str]:
        """Tests of ours, copied beside the environment, where no folder of the checkout can be imported instead."""
        outside = place / "outside"
        outside.mkdir(exist_ok=True)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(environments.ROOT / name, outside / name)
        shutil.copytree(environments.ROOT / "tests", outside / "tests", dirs_exist_ok=True)
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", path]
        done = subprocess.run(command, cwd=outside, env=environments.clean(), text=True, capture_output=True)
        return path, done.returncode, _last(done.stdout), done.stdout + done.stderr

    @staticmethod
    def _versions(python: Path) -> str:
        listed = environments.call(python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze")
        named = {line.partition("==")[0].lower().replace("-", "_"): line for line in listed.splitlines()}
        wanted = (re.split(r"[\[>=]", each)[0].lower().replace("-", "_") for each in environments.lowest())
        return ", ".join(named[name] for name in wanted if name in named)


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was printed"])[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.downstream.matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--each", action="store_true", help="also a leg for each dependency alone at its lower bound")
    parser.add_argument("--only", default="", metavar="TEXT", help="only legs whose name has this text")
    parser.add_argument(
        "--suite", nargs="+", default=[], metavar="PATH", help="tests of ours to run in each leg as well"
    )
    asked = parser.parse_args(arguments)
    chosen = [leg for leg in legs(asked.each) if asked.only in leg.name]
    with tempfile.TemporaryDirectory(prefix="downstream-") as name:
        folder = Path(name)
        built = environments.build(environments.builder(folder / "builder"), folder / "built")
        session = Session(built.wheel, folder, asked.suite)
        passed = [session.run(leg, python) for leg in chosen if (python := _here(leg))]
    print(f"{sum(passed)} of {len(passed)} legs passed, {len(chosen) - len(passed)} skipped")
    return 0 if passed and all(passed) else 1


def _here(leg: Leg) -> str | None:
    python = interpreter(leg.version)
    if python is None:
        print(f"{leg.name}: SKIPPED, there is no python{leg.version} here", flush=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
