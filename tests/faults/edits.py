"""Mistakes in the attention kernels of this project, and changes that are none: what to edit, by the report's number.

`FAULTS` are the smallest edits that make a public fault (facts of attention, 4), `VARIANTS` change the same place and
break no promise. Every text to be replaced occurs once in the kernels' package.
"""

ADD_PART = "tl.add(o, tl.wait(product.part), out=o)"
STORED = "stored = tl.cast(p, tile.v.dtype, out=next(self._stored[tile.width]))"
PART = 'part = tl.composite("gemm", stored, tile.v, trans_b=False, out=next(self._parts))'
ASKED = "k, v = self.tl.wait(*asked.popleft())"
TREE = "            reduce_to_root(state, rank, shape"
PIECE_BY_PIECE = "for number, step in itertools.product(range(max(map(len, pieces))), range(n)):"
RECEIVED = "m_other, l_other = tl.recv(side, m.shape), tl.recv(side, l.shape)"
SENT = "tl.wait(*[tl.send(side, part) for part in (m, l,"
NEWER = "m_new = tl.maximum(m, m_other)"
GUARD = "finite = tl.maximum(m_new, LOWEST)\n    return"
GUARD_OF_TILE = "finite = tl.maximum(m_new, LOWEST) if some else m_new"
SOME = "some = tile.seen is not Sight.ALL"
TILES = "for first, positions in keys.tiles(tile) if keys else ():\n"
MASK = 'mask = tl.where(column <= row, 0.0, float("-inf"))'
SUM = "tl.wait(tl.add(l * correction, tl.sum(p), out=l))"
SCALE = 'epilogue=(("scale", scale),)'
ALL = "if least >= 0 and (window is None"
FIRST = "return self.kv_len - self.t_q if self.q_start is None"
OFFSET = "ptr + (head * of_head + token * of_token)"
STORE_AT = "ptr, shape, strides = _view(o, head, token, block)"
K_TILE = "Tile(tl.ref(k + first * d, (width, d))"
LEAVE = "self.tl.wait(*arrival.sent)"
DONE = "        product.tile.done()\n"
STATE = "self.state = m_new, l, o\n"
SCOPE = 'with tl.scratch_scope():\n            with tl.region("softmax"):\n                s ='
HEAD = "load_rows(q, cube * group,"

FAULTS: dict[str, dict[str, str]] = {
    "B-01": {ADD_PART: "tl.add(o, product.part, out=o)"},
    "B-02": {"depth.ahead + 1, n)": "depth.ahead, n)"},
    "B-07": {DONE: "", STATE: f"{STATE}        tile.done()\n"},
    "B-09": {
        STORED: "stored = next(self._stored[tile.width])",
        PART: f"{PART}\n                tl.cast(p, tile.v.dtype, out=stored)",
    },
    "B-12": {ASKED: "k, v = asked.popleft()\n                self.tl.wait(k)"},
    "B-14": {TREE: f"            if tiles:\n    {TREE}"},
    "B-15": {PIECE_BY_PIECE: "for step, number in itertools.product(range(n), range(max(map(len, pieces)))):"},
    "B-18": {RECEIVED: RECEIVED.replace("m.shape", "m.shape[::-1]")},
    "B-18b": {SENT: SENT.replace("m, l,", "l, m,")},
    "B-21": {NEWER: "m_new = tl.maximum(m, m_other, out=m)"},
    "B-23": {GUARD: "finite = m_new\n    return"},
    "B-26": {GUARD_OF_TILE: "finite = m_new"},
    "B-28": {TILES: f"{TILES}        positions = Span(positions.first, tile, positions.step)\n"},
    "B-32": {MASK: "mask = tl.where(column <= row, 0.0, -1e4)"},
    "B-38": {ADD_PART: f'{ADD_PART}\n            tl.wait(tl.add(tl.cast(o, "bfloat16"), 0.0, out=o))'},
    "B-41": {SUM: f'{SUM}\n                tl.wait(tl.add(tl.cast(l, "float16"), 0.0, out=l))'},
    "B-43": {SCALE: 'epilogue=(("scale", scale * scale),)'},
    "B-43b": {SCALE: 'epilogue=(("scale", 1 / scale),)'},
    "B-43c": {SCALE: 'epilogue=(("scale", scale * self.block.group**-0.5),)'},
    "B-44": {ALL: "if keys.first <= queries.first and (window is None"},
    "B-46": {f"{FIRST} else self.q_start": "return 0"},
    "B-50": {"tl.add(l * correction, tl.sum(p), out=l)": "tl.add(l, tl.sum(p), out=l)"},
    "B-51": {STORE_AT: "ptr, shape, strides = _view(o, 0, 0, block)"},
    "B-55": {
        HEAD: "load_rows(q, cube,",
        "tl.load(ptr, shape, strides)": "tl.load(ptr, shape, (strides[0] * tl.num_programs(1), *strides[1:]))",
    },
    "B-57": {"tile.k, trans_b=True, out=out": "tile.k, trans_b=False, out=out"},
    "B-58": {SOME: f"{SOME} and tile.width % 16 != 0"},
    "B-62": {SCOPE: SCOPE.replace("with tl.scratch_scope()", "if True")},
}

VARIANTS: dict[str, dict[str, str]] = {
    "B-01": {ADD_PART: "part = tl.wait(product.part)\n            tl.add(o, part, out=o)"},
    "B-02": {"depth.ahead + 1, n)": "depth.ahead + 2, n)"},
    "B-07": {LEAVE: f"{LEAVE}\n            self.tl.wait(arrival.k, arrival.v)"},
    "B-09": {PART: f"tl.wait(stored)\n                {PART}"},
    "B-12": {ASKED: "k, v = asked.popleft()\n                self.tl.wait(k)\n                self.tl.wait(v)"},
    "B-14": {TREE: f"            if True:\n    {TREE}"},
    "B-15": {},
    "B-18": {RECEIVED: RECEIVED.replace("m.shape", "(m.shape[0], 1)")},
    "B-18b": {SENT: SENT.replace("m, l,", "l, m,"), RECEIVED: RECEIVED.replace("m_other, l_other", "l_other, m_other")},
    "B-21": {NEWER: "m_new = tl.maximum(m_other, m)"},
    "B-23": {GUARD: "finite = tl.maximum(m_new, -1e30)\n    return"},
    "B-26": {GUARD_OF_TILE: "finite = tl.maximum(m_new, LOWEST)"},
    "B-28": {SOME: "some = True"},
    "B-32": {MASK: "mask = tl.where(column <= row, 0.0, -3e38)"},
    "B-38": {ADD_PART: f"{ADD_PART}\n            tl.wait(tl.add(o, 0.0, out=o))"},
    "B-41": {SUM: f"{SUM}\n                tl.wait(tl.add(l, 0.0, out=l))"},
    "B-43": {SCALE: 'epilogue=(("scale", scale * 2 * 0.5),)'},
    "B-43b": {SCALE: 'epilogue=(("scale", 1 / (1 / scale)),)'},
    "B-43c": {SCALE: 'epilogue=(("scale", scale * self.block.group**0),)'},
    "B-44": {ALL: "if least > 0 and (window is None"},
    "B-46": {FIRST: "return -self.t_q + self.kv_len if self.q_start is None"},
    "B-50": {"tl.add(l * correction, tl.sum(p), out=l)": "tl.add(tl.sum(p), l * correction, out=l)"},
    "B-51": {OFFSET: "ptr + (token * of_token + head * of_head)"},
    "B-55": {HEAD: "load_rows(q, group * cube,"},
    "B-57": {K_TILE: "Tile(tl.ref(k + first * d, (width, d), (d, 1))"},
    "B-58": {SOME: f"{SOME} or tile.width % 16 != 0"},
    "B-62": {SCOPE: SCOPE.replace("scope():", "scope(), tl.scratch_scope():")},
}
