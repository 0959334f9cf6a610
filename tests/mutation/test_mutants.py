"""Every mutant compiles and differs, has a name that stays, and is of kernel code alone."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_kernbench.kernels.ahbm import flash_sweep, gqa_ring, placement
from pytest_kernbench.kernels.ascend310p import rms_norm, softmax
from pytest_kernbench.mutation.mutants import PROBE, Mutant, mutants_of, mutated, mutated_code, probe_lines, probed_code

REAL = {Path(each.__file__).stem: Path(each.__file__) for each in (flash_sweep, gqa_ring, placement, softmax, rms_norm)}

LINES = st.sampled_from(
    [
        "tl.wait(tl.load(x + i, (n, 64)))", "tl.store(y + i, h)", "tl.add(a, b, out=a)", "a = min(n, i) - 1", "pass",
        "for i in range(0, n, 2): tl.send('E', a)", "with tl.scratch_scope(): b = tl.zeros((n, 1))", "c = ring[i % 2]",
        "if a < b: asc.PipeBarrier(asc.PIPE_V)", "asc.DataCopy(a, x[i], n)", "a = tl.where(a <= b, 0.0, c)",
        "s = asc.DataCopyParams(n, i, 0, 1)", "asc.DataCopy(a, x[i], s)", "out.SetValue(i, a)",
        "f = lambda: range(n)", "asc.SetFlag(e, 0)", "asc.WaitFlag(e, 0)", "q = [tl.send(d, p) for p in parts]",
    ]
)  # fmt: skip


def named(source: str, start: str) -> Mutant:
    found = [each for each in mutants_of(source, "m") if each.id.startswith(start)]
    assert len(found) == 1, found
    return found[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=6))
def test_every_mutant_compiles_and_differs_from_the_original_and_all_others(body: list[str]) -> None:
    source = "def kernel(x, y, n, *, tl, asc):\n" + "".join(f"    {line}\n" for line in body)
    trees = [mutated(source, each.number) for each in mutants_of(source, "m")]

    for tree in trees:
        compile(tree, "m.py", "exec")
    texts = [ast.dump(ast.parse(source)), *map(ast.dump, trees)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("path", REAL.values(), ids=REAL)
def test_mutants_of_real_kernels_are_named_once_and_say_where_they_are(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    lines, mutants = source.splitlines(), mutants_of(source, "m")

    assert len({each.id for each in mutants}) == len(mutants) > 20
    assert [each.number for each in mutants] == list(range(len(mutants)))
    assert all(lines[each.line - 1].strip() == each.source_line and each.source_line for each in mutants)
    assert all(each.statement <= each.line and each.before != each.after for each in mutants)


def test_the_name_of_a_mutant_stays_when_other_functions_change() -> None:
    before = "def one():\n    tl.wait(a)\n\n\ndef two():\n    tl.wait(b)\n"
    after = before.replace("tl.wait(a)", "x = 1\n    tl.wait(a)\n    tl.wait(a)")

    assert named(before, "m:two:drop-wait").id == named(after, "m:two:drop-wait").id == "m:two:drop-wait:1"


def test_methods_and_nested_functions_are_named_as_python_does() -> None:
    source = "class A:\n    def f(self):\n        def g():\n            self.tl.wait(h)\n        return g\n"

    assert [each.id for each in mutants_of(source, "m")] == ["m:A.f.<locals>.g:drop-wait:1"]


def test_what_stands_outside_of_functions_or_only_refuses_is_not_mutated() -> None:
    source = (
        "N = min(1, 2) - 3\n\n\n@cache(a - b)\ndef f(n: 'a - b' = 4 - 5) -> 'c - d':\n"
        "    x: 'float32' = n\n    if x < 1:\n        raise ValueError(a - b)\n    assert x < 3, a - b\n"
    )
    assert mutants_of(source, "m") == []


def test_a_closure_keeps_its_free_variables_when_their_only_use_is_dropped() -> None:
    source = "def make(step):\n    def kernel(x, *, tl):\n        tl.load(x + step, (1,))\n    return kernel\n"
    mutant = named(source, "m:make.<locals>.kernel:freeze-address")

    def inner(code: object) -> object:
        (make,) = (each for each in code.co_consts if hasattr(each, "co_code"))  # type: ignore[attr-defined]
        (kernel,) = (each for each in make.co_consts if hasattr(each, "co_code"))
        return kernel.co_freevars

    assert inner(mutated_code(source, "m.py", mutant.number)) == inner(compile(source, "m.py", "exec")) == ("step",)


def test_probes_tell_which_statements_and_functions_are_reached() -> None:
    branches = "    if n < 2:\n        a = n - 1\n    elif n > 5:\n        a = n - 2\n"
    source = f"def f(n):\n    a = 0\n{branches}    return a\n"
    reached: list[int] = []
    scope = {PROBE: reached.append}
    exec(probed_code(source, "m.py", probe_lines(source)), scope)

    assert scope["f"](1) == 0  # type: ignore[operator]
    assert reached == [1, 3, 4]
    reached.clear()
    assert scope["f"](6) == 4  # type: ignore[operator]
    assert reached == [1, 3, 5, 6]
