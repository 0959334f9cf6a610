"""Every name of a device's language has a time or a reason to take none, a line in the documents and a clause."""

import re
from pathlib import Path

import pytest

from pytest_kernbench import parsing
from pytest_kernbench.simulator.ahbm.language import Language
from pytest_kernbench.simulator.ahbm.spec import AhbmSpec
from pytest_kernbench.simulator.ahbm.timing import Timing
from pytest_kernbench.simulator.ascend310p.language import Asc
from pytest_kernbench.simulator.ascend310p.language_queue import TBuf, TPipe, TQue
from pytest_kernbench.simulator.ascend310p.language_vector import VectorCalls
from pytest_kernbench.simulator.ascend310p.spec import COSTS, Ascend310pSpec
from pytest_kernbench.simulator.ascend310p.tensors import GlobalTensor, LocalTensor
from pytest_kernbench.simulator.ascend310p.timing import Ascend310pTiming
from pytest_kernbench.simulator.ascend310p.vocabulary import ElementType

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ascend310p.md").read_text(encoding="utf-8").split("## What a name costs, and its clause")[1]
ROWS = re.findall(r"^\| (`[^|]*) \| ([^|]*) \| ([\d., ]*) \|$", PAGE, re.MULTILINE)
OWN_WORDS = {"own", "borrow", "planned", "region", "at"}
WORDS = re.compile("`([^`]+)`")


def words_of(kind: type) -> set[str]:
    """The vendor's words begin with a capital; element types are objects. Enumerations are made with each block."""
    return {
        name for name in {*dir(kind), *vars(kind).get("__annotations__", ())}
        if (name[0].isupper() and name != "LACKS") or isinstance(getattr(kind, name, None), ElementType)
    }  # fmt: skip


INSTRUCTIONS = words_of(VectorCalls) - {"SetDeqScale", "Compares"}  # a register; a second name


def test_every_name_of_asc_has_one_row() -> None:
    names = OWN_WORDS.union(*map(words_of, (Asc, TPipe, TQue, TBuf, LocalTensor, GlobalTensor)))
    said = [name for row in ROWS for name in WORDS.findall(row[0])]

    assert sorted(said) == sorted(names)


def test_every_row_has_fields_of_the_spec_or_a_reason_and_clauses_that_exist() -> None:
    (adr,) = (each for each in parsing.package_documents() if each.id == "0310")
    clauses = {clause.number for clause in adr.clauses}

    for _, time, named in ROWS:
        fields = WORDS.findall(time)
        assert fields or time.startswith("none: ")
        assert set(fields) <= set(Ascend310pSpec.__dataclass_fields__)
        assert named
        assert set(named.split(", ")) <= clauses


@pytest.mark.adr("0310", "6.2")
@pytest.mark.parametrize("name", sorted(INSTRUCTIONS))
def test_every_instruction_takes_time(name: str) -> None:
    timing = Ascend310pTiming(Ascend310pSpec())
    cost = timing.reduction if name == "ReduceSum" else lambda *given: timing.vector(name, *given)

    assert all(sum(cost(size, 2)) > sum(cost(size, 1)) > 0 for size in (2, 4))
    assert [time for names, time, _ in ROWS if f"`{name}`" in names] == ["`costs`"]


def test_every_cost_is_that_of_an_instruction_or_said_to_be_none() -> None:
    assert {name.split(".")[0] for name in COSTS} - INSTRUCTIONS == {"UbCopy", "WholeReduce"}


TL = {name for name in dir(Language) if not name.startswith("_")}
TYPES = {"bfloat16", "float16", "float32"}
# Names without a cost of issue, each with the reason.
FREE = {
    "program_id": "a constant", "num_programs": "a constant", "ref": "no op: says where something lies",
    "trans": "a view", "reshape": "a view", "rows": "a view", "scratch_scope": "no op", "region": "a label",
    "empty": "no op: bytes are handed out", "wait": "takes as long as what it waits for",
}  # fmt: skip


def test_every_name_of_tl_has_a_line_in_the_language_a_clause_and_a_cost_or_a_reason() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    contract = next((ROOT / "specs").glob("adr-0046-*.md")).read_text(encoding="utf-8")
    prose = re.sub("```.*?```", "", page, flags=re.DOTALL)
    words = set(re.findall(r"\w+", " ".join(WORDS.findall(prose))))
    costs = {name: Timing(AhbmSpec()).issue_cycles(name) for name in TL - TYPES - set(FREE)}

    assert TL - words == set()
    assert TL - TYPES - set(re.findall(r"\w+", contract)) == set()
    assert [name for name, cycles in costs.items() if cycles <= 0] == []
