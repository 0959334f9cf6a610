"""The device-level mistakes that are tried: each operator looks at one node and says what may stand there instead.

Pure functions of the syntax tree, without a device or a test: names of `tl` and `asc` are all they know.
PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType

from pytest_kernbench.mutation import syntax
from pytest_kernbench.mutation.syntax import (
    called,
    calls_within,
    expression,
    method,
    names,
    plain_arguments,
    said,
    same,
    text,
    with_argument,
)

Edit = Mapping[ast.AST, ast.AST | None]
"""What stands in place of some nodes; None for a statement that goes."""

COMMUTES_NOT = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod)
OPERANDS = {
    "sub": (0, 1), "div": (0, 1), "dot": (0, 1), "where": (1, 2), "composite": (1, 2),
    "Sub": (1, 2), "Div": (1, 2), "Select": (2, 3),
}  # fmt: skip
"""Which two arguments of a call are not the same both ways round."""
LOOSER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
OPPOSITE = {"N": "S", "S": "N", "E": "W", "W": "E"}
MESSAGES = {"send", "recv", "recv_async"}
MERGES = {*MESSAGES, "merge", "merge_received", "fold"}
SYNCS = {"SetFlag", "WaitFlag"}

BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "MulAddDst", "Adds", "Muls", "Maxs", "Mins", "Axpy", "Cast")
UNARY = ("Duplicate", "Exp", "Ln", "Sqrt", "Rsqrt", "Reciprocal", "Abs", "Relu")
REDUCING = {"WholeReduceSum": (2, 3), "WholeReduceMax": (2, 3), "WholeReduceMin": (2, 3), "BlockReduceSum": (2, 3)}
COUNTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(BINARY, (3,)), **dict.fromkeys(UNARY, (2,)), **REDUCING, "ReduceSum": (3,), "Compare": (4,),
}  # fmt: skip
"""Which arguments of a vector call say how many elements, lanes or repeats it takes."""
WRITES_FIRST = {*COUNTS, "DataCopy", "assign"}
ROWS = "DataCopyParams"
"""What says how many rows of how many blocks a copy takes, and the gaps between them on either side."""

DEPTHS = {"buffer_num", "num_buffers", "in_flight", "in_use", "stages", "num_stages"}
LEADS = {"ahead", "recv_ahead"}  # depths that count from 0
BLOCK_ELEMENTS = 16  # 32 bytes of halves, two blocks of floats: what a copy may leave out and still be aligned
BLOCK_BYTES = 32


@dataclass(frozen=True)
class Around:
    """What stands around the nodes of a tree."""

    after: Mapping[ast.AST, ast.stmt]  # the statement that follows one in its block
    above: Mapping[ast.AST, ast.AST]

    def next_said(self, statement: ast.AST) -> ast.stmt | None:
        """The statement after this one, barriers not counted."""
        found = self.after.get(statement)
        while found is not None and said(found) == "PipeBarrier":
            found = self.after.get(found)
        return found

    def given(self, value: ast.expr) -> Iterator[ast.expr]:
        """What a variable is set to in its function, or a function of the same file returns; `value` itself first."""
        yield value
        for each in ast.walk(self._above(value, ast.Module if isinstance(value, ast.Call) else syntax.Function)):
            if isinstance(each, ast.Assign) and isinstance(value, ast.Name) and value.id in map(text, each.targets):
                yield each.value
            elif isinstance(each, syntax.Function) and each.name == called(value):
                yield from (it.value for it in ast.walk(each) if isinstance(it, ast.Return) and it.value is not None)

    def _above(self, node: ast.AST, kind: type[ast.AST] | UnionType) -> ast.AST:
        while not isinstance(node, kind) and node in self.above:
            node = self.above[node]
        return node


Operator = Callable[[ast.AST, Around], Iterator[Edit]]


def _each(node: ast.AST, instead: Iterable[ast.AST]) -> Iterator[Edit]:
    return ({node: made} for made in instead)


def drop_wait(node: ast.AST, around: Around) -> Iterator[Edit]:
    """`tl.wait(h)` is `h`: what comes after goes on at once."""
    if method(node) == "wait":
        assert isinstance(node, ast.Call)
        alone = len(node.args) == 1 and not isinstance(node.args[0], ast.Starred)
        handles = [same(each) for each in node.args]
        yield {node: handles[0] if alone else ast.Tuple(handles, ast.Load())}


def drop_barrier(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A pipe does not wait for itself, or the core not for its pipes."""
    if said(node) == "PipeBarrier":
        yield {node: None}


def drop_flag(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A Set or a Wait goes, and where one follows the other, both."""
    if said(node) in SYNCS:
        yield {node: None}
        other = around.after.get(node)
        if other is not None and said(node) == "SetFlag" and said(other) == "WaitFlag":
            yield {node: None, other: None}


def drop_release(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A slot or a queue's buffer is not given back."""
    if said(node) in ("release", "FreeTensor"):
        yield {node: None}


def lose_message(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A message is not sent, one of several is not, or a receiver takes zeros for it."""
    if said(node) in ("send", "EnQue"):
        yield {node: None}
    elif isinstance(node, ast.List):
        for at, each in enumerate(node.elts):
            if method(each) == "send":
                yield {node: ast.List([same(other) for other in node.elts if other is not node.elts[at]], ast.Load())}
    elif isinstance(node, ast.ListComp) and method(node.elt) == "send":
        made = same(node)
        made.generators[-1].iter = expression("list(all_of)[1:]", all_of=node.generators[-1].iter)
        yield {node: made}
    elif method(node) == "recv" and isinstance(node, ast.Call) and plain_arguments(node, 2):
        made_of = same(node)
        assert isinstance(made_of.func, ast.Attribute)
        made_of.func.attr, made_of.args = "zeros", made_of.args[1:]
        yield {node: made_of}


def swap_direction(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A message leaves, or is awaited, at the opposite port."""
    if method(node) in MESSAGES and isinstance(node, ast.Call) and plain_arguments(node, 1):
        side = node.args[0]
        if isinstance(side, ast.Constant):
            if side.value in OPPOSITE:
                yield {side: ast.Constant(OPPOSITE[side.value])}
        else:
            yield {side: expression(f"{OPPOSITE!r}.get(side, side)", side=side)}


def off_by_one(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A loop misses its first or last step or takes one more; a bound is met a step early or late; counts are short."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        yield from _each(node, _ranges(node))
    elif isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            if type(operator) in LOOSER:
                made = same(node)
                made.ops[at] = LOOSER[type(operator)]()
                yield {node: made}
    elif isinstance(node, ast.UnaryOp) and (down := _rounded_up(node)) is not None:
        yield {node: same(down)}
    elif isinstance(node, ast.Call):
        yield from _each(node, _short_counts(node, around))


def _ranges(call: ast.Call) -> Iterator[ast.Call]:
    if not plain_arguments(call, len(call.args)):
        return
    step = call.args[2] if len(call.args) == 3 else ast.Constant(1)
    end = 0 if len(call.args) == 1 else 1
    for form in ("bound - step", "bound + step"):
        yield with_argument(call, end, expression(form, bound=call.args[end], step=step))
    if end:
        yield with_argument(call, 0, expression("bound + step", bound=call.args[0], step=step))


def _rounded_up(node: ast.UnaryOp) -> ast.expr | None:
    """a // b of -(-a // b)."""
    inner = node.operand
    if not (isinstance(node.op, ast.USub) and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.FloorDiv)):
        return None
    left = inner.left
    if isinstance(left, ast.UnaryOp) and isinstance(left.op, ast.USub):
        return ast.BinOp(left.operand, ast.FloorDiv(), inner.right)
    if isinstance(left, ast.BinOp) and isinstance(left.left, ast.UnaryOp) and isinstance(left.left.op, ast.USub):
        return ast.BinOp(ast.BinOp(left.left.operand, left.op, left.right), ast.FloorDiv(), inner.right)
    return None


def _short_counts(call: ast.Call, around: Around) -> Iterator[ast.Call]:
    less, counts = 1, COUNTS.get(method(call), ())
    if method(call) == ROWS:
        counts = (0, 1)
    elif method(call) == "DataCopy" and plain_arguments(call, 3) and not _by_rows(call, around):
        less, counts = BLOCK_ELEMENTS, (2,)
    for index in counts:
        if plain_arguments(call, index + 1):
            yield with_argument(call, index, expression(f"count - {less}", count=call.args[index]))


def _by_rows(copy: ast.Call, around: Around) -> bool:
    """Whether the size of a copy is no count of elements."""
    return any(method(each) == ROWS for each in around.given(copy.args[2]))


def drop_bound(node: ast.AST, around: Around) -> Iterator[Edit]:
    """One side of a `min` or `max` of two is forgotten: the last tile is as wide as the others."""
    is_bound = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
    if is_bound and isinstance(node, ast.Call) and len(node.args) == 2 and plain_arguments(node, 2):
        yield from _each(node, map(same, node.args))


def drop_mask(node: ast.AST, around: Around) -> Iterator[Edit]:
    """Nothing is masked: both branches of a `where` are the first, and a function named for a mask does nothing."""
    if not isinstance(node, ast.Call):
        return
    if method(node) == "where" and plain_arguments(node, 3):
        yield {node: with_argument(node, 2, same(node.args[1]))}
    elif "mask" in called(node) and isinstance(node.func, ast.Name) and plain_arguments(node, 1):
        yield {node: same(node.args[0])}


def shift_address(node: ast.AST, around: Around) -> Iterator[Edit]:
    """What is read or written lies one tile further on."""
    if not isinstance(node, ast.Call):
        return
    name = method(node)
    if name in ("load", "ref") and plain_arguments(node, 2):
        parts = {"pointer": node.args[0], "shape": node.args[1]}
        yield {node: with_argument(node, 0, expression("pointer + __import__('math').prod(shape)", **parts))}
    elif name == "store" and plain_arguments(node, 2):
        moved = with_argument(node, 1, ast.Name("tile_", ast.Load()))
        parts = {"pointer": node.args[0], "values": node.args[1]}
        moved.args[0] = expression("pointer + __import__('math').prod((tile_ := values).shape)", **parts)
        yield {node: moved}
    elif name == "rows" and plain_arguments(node, 3):
        yield {node: with_argument(node, 1, expression("first + count", first=node.args[1], count=node.args[2]))}
    elif name == "DataCopy" and plain_arguments(node, 3):
        count = ast.Constant(BLOCK_ELEMENTS) if _by_rows(node, around) else node.args[2]
        for each in node.args[:2]:
            if isinstance(each, ast.Subscript):
                further = expression("at + count", at=each.slice, count=count)
                yield {each: ast.Subscript(same(each.value), further, ast.Load())}
    elif name == "GetWithOffset" and plain_arguments(node, 3):
        yield {node: with_argument(node, 2, expression(f"offset + {BLOCK_BYTES}", offset=node.args[2]))}
    elif name == "SetGlobalBuffer" and plain_arguments(node, 2):
        yield {node: with_argument(node, 0, expression("base + size", base=node.args[0], size=node.args[1]))}
    elif name in ("GetValue", "SetValue") and plain_arguments(node, 1):
        yield {node: with_argument(node, 0, expression("at + 1", at=node.args[0]))}
    elif name == ROWS:
        for index in (2, 3):  # the gap of the source, and of the target, in blocks
            if plain_arguments(node, index + 1):
                yield {node: with_argument(node, index, expression("gap + 1", gap=node.args[index]))}


def freeze_address(node: ast.AST, around: Around) -> Iterator[Edit]:
    """What is read or written is where it was the first time: an offset is forgotten."""
    if not isinstance(node, ast.Call) or not node.args:
        return
    first = node.args[0]
    moves = method(node) in ("load", "ref", "store", "SetGlobalBuffer")
    if moves and isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add):
        yield {first: same(first.left)}
    if method(node) == "DataCopy":
        for each in node.args[:2]:
            if isinstance(each, ast.Subscript) and not isinstance(each.slice, ast.Constant):
                yield {each: ast.Subscript(same(each.value), ast.Constant(0), ast.Load())}


def skip_scope(node: ast.AST, around: Around) -> Iterator[Edit]:
    """A scratch scope is not opened: what is allocated in it lives on."""
    if isinstance(node, ast.With):
        for item in node.items:
            if method(item.context_expr) == "scratch_scope" and item.optional_vars is None:
                kept = [same(other) for other in node.items if other is not item]
                body = [same(each) for each in node.body]
                yield {node: ast.With(kept, body) if kept else ast.If(ast.Constant(True), body, [])}


def swap_operands(node: ast.AST, around: Around) -> Iterator[Edit]:
    """a - b is b - a, and so for every operation that is not the same both ways round."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, COMMUTES_NOT) and not _is_rounding(node, around):
        yield {node: ast.BinOp(same(node.right), same(node.op), same(node.left))}
    elif isinstance(node, ast.Call) and method(node) in OPERANDS:
        one, other = OPERANDS[method(node)]
        if plain_arguments(node, other + 1):
            made = with_argument(node, one, same(node.args[other]))
            made.args[other] = same(node.args[one])
            yield {node: made}


def _is_rounding(node: ast.BinOp, around: Around) -> bool:
    above = around.above.get(node)
    return isinstance(above, ast.UnaryOp) and _rounded_up(above) is not None


def accumulator_dtype(node: ast.AST, around: Around) -> Iterator[Edit]:
    """State or a sum is kept in the storage's precision instead of float32."""
    if isinstance(node, ast.Constant) and node.value == "float32":
        yield {node: ast.Constant("bfloat16")}
    elif isinstance(node, ast.Attribute) and node.attr == "float32":
        yield {node: ast.Attribute(same(node.value), "half", ast.Load())}
    elif isinstance(node, ast.Call) and method(node) in ("zeros", "empty", "full"):
        given = 2 if method(node) == "full" else 1
        if len(node.args) == given and plain_arguments(node, given) and not node.keywords:
            made = same(node)
            made.args.append(ast.Constant("bfloat16"))
            yield {node: made}


def single_buffer(node: ast.AST, around: Around) -> Iterator[Edit]:
    """One buffer less: a ping-pong is played with one, a ring has a slot less, a kernel runs less far ahead."""
    arguments = {"InitBuffer": 3, "TQue": 2}.get(method(node), 0)
    if isinstance(node, ast.Call) and arguments and plain_arguments(node, arguments):
        yield from _fewer(node.args[1], 1)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.BinOp) and isinstance(node.slice.op, ast.Mod):
        yield from _fewer(node.slice.right, 1)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and not _is_passed(node, around):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in DEPTHS or name.lstrip("_") in LEADS:
            yield from _fewer(node, 0 if name.lstrip("_") in LEADS else 1)


def _fewer(count: ast.expr, least: int) -> Iterator[Edit]:
    if isinstance(count, ast.Constant):
        if isinstance(count.value, int) and count.value > least:
            yield {count: ast.Constant(count.value - 1)}
    else:
        yield {count: expression(f"max(count - 1, {least})", count=count)}


def _is_passed(node: ast.AST, around: Around) -> bool:
    """Whether a count is only handed on, or is mutated where it sizes a queue."""
    above = around.above.get(node)
    return isinstance(above, ast.keyword) or method(above or node) in ("InitBuffer", "TQue")


def reorder_merge(node: ast.AST, around: Around) -> Iterator[Edit]:
    """Partial results are merged in the opposite order; of two steps on the same state the second comes first."""
    if isinstance(node, ast.For) and calls_within(ast.Module(node.body, [])) & MERGES:
        yield {node.iter: expression("reversed(list(all_of))", all_of=node.iter)}
    other = around.next_said(node)
    if isinstance(node, ast.Expr) and isinstance(other, ast.Expr) and _depends(node, other):
        yield {node: same(other), other: same(node)}


def _depends(one: ast.Expr, other: ast.Expr) -> bool:
    """Whether the order of two statements matters to what either writes."""
    return bool(_written(one) & names(other) or _written(other) & names(one))


def _written(statement: ast.Expr) -> set[str]:
    """Variables whose bytes a call of a language writes: those of `out=`, or of its first argument."""
    call = statement.value
    if not isinstance(call, ast.Call):
        return set()
    out = [names(keyword.value) for keyword in call.keywords if keyword.arg == "out"]
    if method(call) in WRITES_FIRST and call.args:
        out.append(names(call.args[0]))
    return set().union(*out)


OPERATORS: Mapping[str, Operator] = {
    "drop-wait": drop_wait,
    "drop-barrier": drop_barrier,
    "drop-flag": drop_flag,
    "drop-release": drop_release,
    "lose-message": lose_message,
    "swap-direction": swap_direction,
    "off-by-one": off_by_one,
    "drop-bound": drop_bound,
    "drop-mask": drop_mask,
    "shift-address": shift_address,
    "freeze-address": freeze_address,
    "skip-scope": skip_scope,
    "swap-operands": swap_operands,
    "accumulator-dtype": accumulator_dtype,
    "single-buffer": single_buffer,
    "reorder-merge": reorder_merge,
}
"""Every kind of mutation, by the name that reports and lists of survivors use."""
