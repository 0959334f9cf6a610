"""What stands between this checkout and a user's: wheel and sdist, an environment of its own, and a copied repository.

Nothing here imports the package: what is under test is what pip installs. pip and an index are needed, as for README's
commands.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXTRAS = "[hypothesis]"
_LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


class CommandError(RuntimeError):
    """A command failed; the message has what it said."""


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@dataclass(frozen=True)
class Outcome:
    """What one pytest run came to."""

    counts: dict[str, int]  # "passed", "failed", "errors", "deselected", "warnings", ...
    text: str
    status: int


@dataclass(frozen=True)
class Repository:
    """A copy of one of the repositories here, and the Python that runs it."""

    path: Path
    python: Path

    def run(self, *args: str) -> Outcome:
        """`pytest *args` in it, as a user would call it."""
        command = [str(self.python), "-m", "pytest", "-p", "no:cacheprovider", *args]
        done = subprocess.run(
            command, cwd=self.path, env=clean(), text=True, capture_output=True, stdin=subprocess.DEVNULL
        )
        text = done.stdout + done.stderr
        try:
            counts = pytest.RunResult.parse_summary_nouns(done.stdout.splitlines())
        except ValueError:  # no summary line
            counts = {}
        return Outcome(counts, text, done.returncode)

    def replace(self, file: str, old: str, new: str) -> int:
        """Make one edit; return the line of it."""
        text = (self.path / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {file}"
        (self.path / file).write_text(text.replace(old, new), encoding="utf-8", newline="\n")
        return text[: text.index(old)].count("\n") + 1


def clean() -> dict[str, str]:
    """The environment without what steers this Python and this pytest."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_", "COV"))}


def call(*command: str | Path, cwd: Path | None = None) -> str:
    """What the command prints. Raises CommandError with the end of it if it fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise CommandError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{last}")
    return done.stdout


def new_environment(python: Path | str, folder: Path, *requirements: str) -> Path:
    """An empty environment with these requirements and what they need; return its Python."""
    call(python, "-m", "venv", folder)
    inside = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    call(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:", *requirements)
    return inside


def pyproject() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def builder(folder: Path) -> Path:
    """An environment with what pyproject.toml builds with; return its Python."""
    needs = pyproject()["build-system"]
    assert isinstance(needs, dict)
    return new_environment(sys.executable, folder, *needs["requires"])


def build(python: Path, folder: Path) -> Built:
    """Wheel and sdist of a copy of this checkout, and the wheel that the sdist builds."""
    checkout, unpacked = folder / "checkout", folder / "unpacked"
    shutil.copytree(ROOT, checkout, ignore=_LEFT_OUT)
    for kind, into in (("build_sdist", "sdist"), ("build_wheel", "wheel")):
        call(python, "-c", _BUILD, kind, folder / into, cwd=checkout)
    (sdist,) = (folder / "sdist").iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (inner,) = unpacked.iterdir()
    call(python, "-c", _BUILD, "build_wheel", folder / "again", cwd=inner)
    (wheel,), (again,) = ((folder / each).iterdir() for each in ("wheel", "again"))
    return Built(wheel, sdist, again)


def files_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def requirements(wheel: Path, extras: str = EXTRAS) -> list[str]:
    """The wheel, and what the runs here want beside it."""
    beside = [each for each in _named("test") if each.startswith(("pytest-xdist", "pytest-html"))]
    assert len(beside) == 2, "the extra `test` names pytest-xdist and pytest-html"
    return [f"{wheel}{extras}", *beside]


def lowest(extras: Sequence[str] = ("hypothesis", "test")) -> list[str]:
    """The lower bounds of pyproject.toml as pins."""
    bounds = dict.fromkeys(each for group in ("", *extras) for each in _named(group))
    return [bound.replace(">=", "==") for bound in bounds]


def _named(extra: str) -> list[str]:
    """The requirements of an extra, or of the package."""
    project = pyproject()["project"]
    assert isinstance(project, dict)
    found = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [str(each) for each in found]


def copy_of(name: str, into: Path, python: Path) -> Repository:
    """The repository `name` of this folder, elsewhere."""
    shutil.copytree(HERE / name, into / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return Repository(into / name, python)


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """One process at a time; xdist's workers share what the first has made."""
    try:
        import fcntl
    except ImportError:  # Windows: every worker waits for none and must have a folder of its own
        yield
        return
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
