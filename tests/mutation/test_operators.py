"""Each operator makes exactly its mistakes, and none in code that has no place for them."""

from collections.abc import Callable

import pytest

from pytest_kernbench.mutation.operators import OPERATORS

SWAPPED = "{'N': 'S', 'S': 'N', 'E': 'W', 'W': 'E'}"
PROD = "__import__('math').prod"

CASES = [
    ("drop-wait", "tl.wait(h)", ["h"]),
    ("drop-wait", "s = tl.wait(scored)", ["s = scored"]),
    ("drop-wait", "k, v = self.tl.wait(*asked)", ["k, v = (*asked,)"]),
    ("drop-wait", "tl.wait(a, b)", ["(a, b)"]),
    ("drop-wait", "tl.wait(tl.add(l, p, out=l))", ["tl.add(l, p, out=l)"]),
    ("drop-barrier", "asc.PipeBarrier(asc.PIPE_V)", ["pass"]),
    ("drop-flag", "asc.SetFlag(e, 0)\nasc.WaitFlag(e, 0)",
     ["pass\nasc.WaitFlag(e, 0)", "pass\npass", "asc.SetFlag(e, 0)\npass"]),
    ("drop-flag", "s.WaitFlag(0)\ns.SetFlag(0)", ["pass\ns.SetFlag(0)", "s.WaitFlag(0)\npass"]),
    ("drop-release", "tl.release(k)\nqueue.FreeTensor(t)", ["pass\nqueue.FreeTensor(t)", "tl.release(k)\npass"]),
    ("lose-message", "tl.send(side, m)", ["pass"]),
    ("lose-message", "queue.EnQue(t)", ["pass"]),
    ("lose-message", "sent = [tl.send('E', k), tl.send('E', v)]",
     ["sent = [tl.send('E', v)]", "sent = [tl.send('E', k)]"]),
    ("lose-message", "sent = [tl.send('E', p) for p in parts]", ["sent = [tl.send('E', p) for p in list(parts)[1:]]"]),
    ("lose-message", "m = tl.recv(side, shape, d)", ["m = tl.zeros(shape, d)"]),
    ("swap-direction", "tl.send('E', k)", ["tl.send('W', k)"]),
    ("swap-direction", "tl.recv('N', s)", ["tl.recv('S', s)"]),
    ("swap-direction", "tl.recv_async(side, s)", [f"tl.recv_async({SWAPPED}.get(side, side), s)"]),
    ("off-by-one", "for i in range(n):\n    f(i)",
     ["for i in range(n - 1):\n    f(i)", "for i in range(n + 1):\n    f(i)"]),
    ("off-by-one", "r = range(0, n, t)",
     ["r = range(0, n - t, t)", "r = range(0, n + t, t)", "r = range(0 + t, n, t)"]),
    ("off-by-one", "a = b < c", ["a = b <= c"]),
    ("off-by-one", "a = b >= c", ["a = b > c"]),
    ("off-by-one", "a = b < c <= d", ["a = b <= c <= d", "a = b < c < d"]),
    ("off-by-one", "a = -(-b // c)", ["a = b // c"]),
    ("off-by-one", "a = -(-b * 4 // 32)", ["a = b * 4 // 32"]),
    ("off-by-one", "asc.Add(z, x, y, tile)", ["asc.Add(z, x, y, tile - 1)"]),
    ("off-by-one", "asc.DataCopy(z, x, tile)", ["asc.DataCopy(z, x, tile - 16)"]),
    ("off-by-one", "asc.WholeReduceMax(p, r, 64, n, 1, 1, 8)",
     ["asc.WholeReduceMax(p, r, 64 - 1, n, 1, 1, 8)", "asc.WholeReduceMax(p, r, 64, n - 1, 1, 1, 8)"]),
    ("drop-bound", "a = min(rows, left)", ["a = rows", "a = left"]),
    ("drop-bound", "a = max(rows, 1)", ["a = rows", "a = 1"]),
    ("drop-mask", "s = masked(s, keys, tl)", ["s = s"]),
    ("drop-mask", "m = tl.where(c <= r, 0.0, low)", ["m = tl.where(c <= r, 0.0, 0.0)"]),
    ("shift-address", "a = tl.load(x + i, (r, 64))", [f"a = tl.load(x + i + {PROD}((r, 64)), (r, 64))"]),
    ("shift-address", "tl.store(y + i, h, s)", [f"tl.store(y + i + {PROD}((tile_ := h).shape), tile_, s)"]),
    ("shift-address", "a = tl.rows(h, f, c)", ["a = tl.rows(h, f + c, c)"]),
    ("off-by-one", "asc.DataCopy(z, x, asc.DataCopyParams(rows, blocks, 0, gap))",
     ["asc.DataCopy(z, x, asc.DataCopyParams(rows - 1, blocks, 0, gap))",
      "asc.DataCopy(z, x, asc.DataCopyParams(rows, blocks - 1, 0, gap))"]),
    ("shift-address", "asc.DataCopy(l, x_gm[at], t)", ["asc.DataCopy(l, x_gm[at + t], t)"]),
    ("shift-address", "b = buf.GetWithOffset(asc.half, n, 64)", ["b = buf.GetWithOffset(asc.half, n, 64 + 32)"]),
    ("shift-address", "v.SetGlobalBuffer(p, part)", ["v.SetGlobalBuffer(p + part, part)"]),
    ("shift-address", "size = asc.DataCopyParams(r, b, 0, gap)\nasc.DataCopy(l, x_gm[at], size)",
     ["size = asc.DataCopyParams(r, b, 0 + 1, gap)\nasc.DataCopy(l, x_gm[at], size)",
      "size = asc.DataCopyParams(r, b, 0, gap + 1)\nasc.DataCopy(l, x_gm[at], size)",
      "size = asc.DataCopyParams(r, b, 0, gap)\nasc.DataCopy(l, x_gm[at + 16], size)"]),
    ("shift-address", "out.SetValue(at, one)", ["out.SetValue(at + 1, one)"]),
    ("shift-address", "a = total.GetValue(0)", ["a = total.GetValue(0 + 1)"]),
    ("freeze-address", "a = tl.load(x + i * 64, s)", ["a = tl.load(x, s)"]),
    ("freeze-address", "asc.DataCopy(l, x_gm[at], t)", ["asc.DataCopy(l, x_gm[0], t)"]),
    ("skip-scope", "with tl.scratch_scope():\n    f()", ["if True:\n    f()"]),
    ("skip-scope", "with tl.scratch_scope(), tl.region('a'):\n    f()", ["with tl.region('a'):\n    f()"]),
    ("swap-operands", "a = b - c", ["a = c - b"]),
    ("swap-operands", "tl.sub(s, m, out=s)", ["tl.sub(m, s, out=s)"]),
    ("swap-operands", "asc.Sub(z, x, y, n)", ["asc.Sub(z, y, x, n)"]),
    ("swap-operands", "c = tl.composite('gemm', a, b)", ["c = tl.composite('gemm', b, a)"]),
    ("accumulator-dtype", "l = tl.zeros((r, 1))", ["l = tl.zeros((r, 1), 'bfloat16')"]),
    ("accumulator-dtype", "l = tl.full(s, 0.0)", ["l = tl.full(s, 0.0, 'bfloat16')"]),
    ("accumulator-dtype", "l = tl.empty(s, 'float32')", ["l = tl.empty(s, 'bfloat16')"]),
    ("accumulator-dtype", "t = q.AllocTensor(asc.float32)", ["t = q.AllocTensor(asc.half)"]),
    ("single-buffer", "pipe.InitBuffer(q, 2, 64)", ["pipe.InitBuffer(q, 1, 64)"]),
    ("single-buffer", "pipe.InitBuffer(q, buffer_num, 64)", ["pipe.InitBuffer(q, max(buffer_num - 1, 1), 64)"]),
    ("single-buffer", "q = asc.TQue(asc.VECIN, 2)", ["q = asc.TQue(asc.VECIN, 1)"]),
    ("single-buffer", "a = ring[i % 2]", ["a = ring[i % 1]"]),
    ("single-buffer", "a = depth.in_flight + 1", ["a = max(depth.in_flight - 1, 1) + 1"]),
    ("single-buffer", "a = depth.ahead + 1", ["a = max(depth.ahead - 1, 0) + 1"]),
    ("reorder-merge", "for c in children:\n    merge(s, c)", ["for c in reversed(list(children)):\n    merge(s, c)"]),
    ("reorder-merge", "tl.mul(o, c, out=o)\ntl.add(o, p, out=o)", ["tl.add(o, p, out=o)\ntl.mul(o, c, out=o)"]),
    ("reorder-merge", "asc.Exp(r, r, n)\nasc.PipeBarrier(v)\nasc.Muls(r, r, a, n)",
     ["asc.Muls(r, r, a, n)\nasc.PipeBarrier(v)\nasc.Exp(r, r, n)"]),
]  # fmt: skip

NOT = [
    ("drop-wait", "wait(h)"),  # no call of a language
    ("drop-flag", "flags = asc.SetFlag"),
    ("lose-message", "a = [1, 2]"),
    ("swap-direction", "tl.send('north', h)"),
    ("off-by-one", "a = b == c"),
    ("off-by-one", "if n < 1:\n    raise ValueError(n)"),  # a guard is the host's
    ("off-by-one", "assert a < b"),
    ("off-by-one", "size = asc.DataCopyParams(*rows)\nasc.DataCopy(z, x, size)"),  # a size less 16 is no size
    ("off-by-one", "def rows():\n    return asc.DataCopyParams(*all)\nasc.DataCopy(z, x, rows())"),
    ("drop-bound", "a = tl.max(s, 1)"),
    ("drop-bound", "a = max(found)"),
    ("drop-mask", "s = self.masked"),
    ("shift-address", "asc.DataCopy(a, b, n)"),
    ("freeze-address", "a = tl.load(x, s)"),
    ("skip-scope", "with tl.scratch_scope() as s:\n    pass"),
    ("swap-operands", "a = b + c"),
    ("swap-operands", "a = b - b"),
    ("accumulator-dtype", "l = tl.zeros(s, d)"),
    ("single-buffer", "pipe.InitBuffer(q, 1, 64)"),
    ("single-buffer", "pipe.InitBuffer(buf, 64)"),
    ("reorder-merge", "for t in tiles:\n    f(t)"),
    ("reorder-merge", "tl.add(a, b, out=a)\ntl.add(c, d, out=c)"),  # in either order the same
    ("reorder-merge", "m = tl.max(s)\ntl.add(a, m, out=a)"),
]


@pytest.mark.parametrize(("kind", "body", "expected"), CASES, ids=[f"{each[0]} {at}" for at, each in enumerate(CASES)])
def test_an_operator_makes_its_mistakes(
    changed: Callable[..., list[str]], kind: str, body: str, expected: list[str]
) -> None:
    assert changed(kind, body) == expected


@pytest.mark.parametrize(("kind", "body"), NOT, ids=[f"{each[0]} {at}" for at, each in enumerate(NOT)])
def test_it_leaves_other_code_alone(changed: Callable[..., list[str]], kind: str, body: str) -> None:
    assert changed(kind, body) == []


def test_every_operator_is_tried_here() -> None:
    assert {kind for kind, _, _ in CASES} == set(OPERATORS)
