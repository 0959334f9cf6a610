"""A kernel of the AHBM chip that says every kind of `tl` call, and the test that runs it."""

from typing import assert_type

import numpy as np

from pytest_kernbench.simulator.ahbm.tl import Block, Handle, Op, Pointer, Tl


def kernel(x: Pointer, weights: Pointer, out: Pointer, width: int, *, tl: Tl) -> None:
    rank, programs = tl.program_id(0), tl.num_programs()
    assert_type(rank, int)
    first = x + rank * width
    with tl.scratch_scope(), tl.region("tile"):
        a = tl.load(first, (16, width), strides=(width, 1))
        assert_type(a, Handle)
        b = tl.ref(weights, (width, 64))
        assert_type(b, Block)
        product = tl.composite("gemm", a, b, trans_b=False, epilogue=(("scale", 0.5), ("relu",)))
        done = tl.wait(product)
        assert_type(done, Handle)
        largest = tl.max(done, axis=-1)
        p = tl.exp(done - largest, out=tl.empty(done.shape))
        share = 1.0 / tl.sum(p) * p
        chosen = tl.where(share > np.float32(0.5), share, 0)
        half = tl.cast(chosen, tl.bfloat16)
        narrow = tl.cast(chosen, "float16")
        sent = tl.send("E", narrow)
        assert_type(sent, Op)
        if rank:
            received = tl.recv("W", narrow.shape, narrow.dtype)
            tl.assign(narrow, received)
            tl.release(received)
        later = tl.recv_async("N", (4,), "float32")
        assert_type(tl.wait(later), Handle)
        stored = tl.store(out, tl.reshape(half, (programs, half.size // programs)))
        assert_type(tl.wait(stored), Op)
        tl.wait(sent, stored)
        tl.wait(*[tl.store(out + n, tl.rows(half, n, 1)) for n in range(16)])


def masks(*, tl: Tl) -> Handle:
    row, column = tl.iota((4, 1), 0), tl.iota((1, 4), 1, start=1, step=2)
    bits = tl.where(column <= row, tl.full((4, 4), 1.0), tl.zeros((4, 4), np.float32))
    return tl.broadcast(tl.trans(bits), (4, 4)) + tl.softmax(bits, 0) * tl.dot(bits, bits, trans_b=True)
