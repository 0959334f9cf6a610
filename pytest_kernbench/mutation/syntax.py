"""Questions about a syntax tree that several mutation operators ask, and the small nodes they make.

Nothing here changes a tree: what is made is new. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def same(node: Node) -> Node:
    """A copy: a node may stand in one place of a tree only."""
    return copy.deepcopy(node)


def called(node: ast.AST) -> str:
    """The last name of what a call calls: "wait" of `self.tl.wait(h)`; empty for anything that is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def method(node: ast.AST) -> str:
    """As `called`, for a call of an attribute alone: "max" of `tl.max(s)`, nothing of the built-in `max(a, b)`."""
    return called(node) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


def said(statement: ast.AST | None) -> str:
    """The method that a statement calls and does nothing else; empty for other statements."""
    return method(statement.value) if isinstance(statement, ast.Expr) else ""


def calls_within(node: ast.AST) -> set[str]:
    """The names of everything called in `node`."""
    return {called(each) for each in ast.walk(node)} - {""}


def expression(text: str, **parts: ast.expr) -> ast.expr:
    """The expression that `text` says, with copies of `parts` in place of the names that stand for them."""
    return _Fill(parts).visit(ast.parse(text, mode="eval").body)  # type: ignore[no-any-return]


class _Fill(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self.parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return same(self.parts[node.id]) if node.id in self.parts else node


def with_argument(call: ast.Call, index: int, value: ast.expr) -> ast.Call:
    """A copy of the call with another positional argument at `index`."""
    made = same(call)
    made.args[index] = value
    return made


def plain_arguments(call: ast.Call, count: int) -> bool:
    """Whether the first `count` arguments are given by position, none of them by a star."""
    return len(call.args) >= count and not any(isinstance(each, ast.Starred) for each in call.args[:count])


def names(node: ast.AST) -> set[str]:
    """Every variable that `node` mentions."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def text(node: ast.AST) -> str:
    """The node as source in one line; of a compound statement, its head."""
    lines = ast.unparse(node).splitlines() or [""]
    return " ".join(line.strip() for line in lines[:1]) if hasattr(node, "body") else " ".join(map(str.strip, lines))


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements below `tree`."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            found = getattr(node, name, None)
            if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
                yield found
