"""Every mutant of a source file, and the code of one.

The same source always has the same mutants, in the order of its text. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType

from pytest_kernbench.mutation import syntax
from pytest_kernbench.mutation.operators import OPERATORS, Around, Edit

PROBE = "__kernbench_reached__"


@dataclass(frozen=True)
class Mutant:
    """One mistake in one place. `id` stays the same when other functions of the file change.

    `number` counts the mutants of a source; `line` and `statement` are where the mistake is and where the statement
    that holds it begins; `before` and `after` are source in one line; `source_line` is the whole line.
    """

    id: str
    number: int
    kind: str
    module: str
    function: str
    line: int
    statement: int
    before: str
    after: str
    source_line: str


@dataclass(frozen=True)
class Place:
    """A node inside a function: the function's qualified name, the line of its statement, its innermost function."""

    node: ast.AST
    function: str
    statement: int
    inner: syntax.Function


def mutants_of(source: str, module: str) -> list[Mutant]:
    """The mutants of a module's functions. Raises SyntaxError for what is no Python."""
    lines, seen, found = source.splitlines(), Counter[str](), []
    for number, (place, kind, edit) in enumerate(_edits(ast.parse(source))):
        first, instead = next(iter(edit.items()))
        name = f"{module}:{place.function}:{kind}"
        seen[name] += 1
        line = getattr(first, "lineno", place.statement)
        after = "; ".join("pass" if each is None else syntax.text(_placed(each, first)) for each in edit.values())
        before = "; ".join(map(syntax.text, edit)) if instead is None or len(edit) > 1 else syntax.text(first)
        where = (module, place.function, line, place.statement)
        found.append(Mutant(f"{name}:{seen[name]}", number, kind, *where, before, after, lines[line - 1].strip()))
    return found


def mutated_code(source: str, file: str, number: int) -> CodeType:
    """The module's code with mutant `number` in it."""
    return compile(mutated(source, number), file, "exec")


def mutated(source: str, number: int) -> ast.Module:
    """The module with mutant `number` in it, every line where it was."""
    tree = ast.parse(source)
    place, _, edit = next(each for at, each in enumerate(_edits(tree)) if at == number)
    mentioned = sorted(syntax.names(ast.Module(place.inner.body, [])) - syntax.names(place.inner.args))
    _Replace(edit).visit(tree)
    if "<locals>" in place.function:
        place.inner.body.append(_mention(mentioned))
    return ast.fix_missing_locations(tree)


def _mention(names: list[str]) -> ast.stmt:
    """Never run; keeps the free variables of a function what they were, as its cells are those of the original."""
    loads: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    return ast.If(ast.Constant(False), [ast.Expr(ast.Tuple(loads, ast.Load()))], [])


class _Replace(ast.NodeTransformer):
    def __init__(self, edit: Edit) -> None:
        self.edit = edit

    def visit(self, node: ast.AST) -> ast.AST:
        if node not in self.edit:
            return self.generic_visit(node)
        return _placed(self.edit[node] or ast.Pass(), node)


def _placed(made: ast.AST, old: ast.AST) -> ast.AST:
    """`made`, at the line of what it stands for."""
    return ast.fix_missing_locations(ast.copy_location(made, old))


def _edits(tree: ast.Module) -> Iterator[tuple[Place, str, Edit]]:
    """What may be changed, in the order of the text; never the same change twice."""
    around = Around(_following(tree), _above(tree))
    for place in _places(tree, "", None, 0):
        made = set()
        for kind, operator in OPERATORS.items():
            for edit in operator(place.node, around):
                change = tuple((id(node), ast.dump(each) if each else "") for node, each in edit.items())
                if change not in made and not _is_the_same(edit):
                    made.add(change)
                    yield place, kind, edit


def _is_the_same(edit: Edit) -> bool:
    return all(each is not None and ast.dump(node) == ast.dump(each) for node, each in edit.items())


def _following(tree: ast.AST) -> Mapping[ast.AST, ast.stmt]:
    return {one: other for block in syntax.blocks(tree) for one, other in itertools.pairwise(block)}


def _above(tree: ast.AST) -> Mapping[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _places(node: ast.AST, name: str, inner: syntax.Function | None, statement: int) -> Iterator[Place]:
    """The nodes that may be changed: those of function bodies that are no annotation, message or guard."""
    for child in _children(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{name}.<locals>." if inner else f"{name}." if name else ""
            yield from _places(child, inside + child.name, child, child.lineno)
        elif isinstance(child, ast.ClassDef):
            yield from _places(child, f"{name}.{child.name}" if name else child.name, None, 0)
        else:
            at = child.lineno if isinstance(child, ast.stmt) else statement
            if inner is not None:
                yield Place(child, name, at, inner)
            yield from _places(child, name, inner, at)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from node.body
        return
    if isinstance(node, ast.Raise | ast.Assert):
        return
    for field, value in ast.iter_fields(node):
        if field == "annotation" or (field == "test" and _is_guard(node)):
            continue
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST))


def _is_guard(node: ast.AST) -> bool:
    """An `if` that only refuses: what it lets pass is a matter of the host."""
    return isinstance(node, ast.If) and all(isinstance(each, ast.Raise) for each in node.body)


def probe_lines(source: str) -> set[int]:
    """Lines of statements that hold a mutant, and of the functions around them."""
    tree = ast.parse(source)
    places = [place for place, _, _ in _edits(tree)]
    return {place.statement for place in places} | {place.inner.lineno for place in places}


def probed_code(source: str, file: str, lines: Collection[int]) -> CodeType:
    """The module's code, which calls the global `PROBE` with the number of each of `lines` before it goes there."""
    tree = ast.parse(source)
    _Probe(lines).visit(tree)
    return compile(ast.fix_missing_locations(tree), file, "exec")


class _Probe(ast.NodeTransformer):
    def __init__(self, lines: Collection[int]) -> None:
        self.lines = lines

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.ClassDef | ast.Module):
            return node
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, [each for statement in block for each in self._probed(statement)])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno in self.lines:
            node.body.insert(0, self._call(node.lineno, node))
        return node

    def _probed(self, statement: ast.stmt) -> list[ast.stmt]:
        compound = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if statement.lineno not in self.lines or compound:
            return [statement]
        return [self._call(statement.lineno, statement), statement]

    def _call(self, line: int, where: ast.stmt) -> ast.stmt:
        call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(line)], [])
        return ast.copy_location(ast.Expr(call), where)
