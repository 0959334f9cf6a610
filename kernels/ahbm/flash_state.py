"""The running state of flash attention: m, l, O of the keys seen so far, always float32 (ADR-0060 R22).

Merging is exact for states that have seen nothing (R18, R19). PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from pytest_kernbench.simulator.ahbm.tl import Handle, Tl

State = tuple[Handle, Handle, Handle]

LOWEST = -3.4028234663852886e38  # the lowest float32: keeps -inf - -inf, which is NaN, from being computed


def empty_state(rows: int, d_v: int, tl: Tl) -> State:
    """m [rows, 1], l [rows, 1], O [rows, d_v] of no keys."""
    return tl.full((rows, 1), float("-inf")), tl.zeros((rows, 1)), tl.zeros((rows, d_v))


def merge(state: State, other: State, tl: Tl) -> None:
    """Take `other` into `state` (ADR-0060 4): log-sum-exp of two sets of keys."""
    m, l, o = state
    m_other, l_other, o_other = other
    m_new, mine, theirs = merge_weights(m, m_other, tl)
    tl.add(l * mine, l_other * theirs, out=l)
    tl.add(o * mine, o_other * theirs, out=o)
    tl.assign(m, m_new)


def merge_weights(m: Handle, m_other: Handle, tl: Tl) -> tuple[Handle, Handle, Handle]:
    """The maximum of both, and what l and O of either side are to be multiplied with: 0 for a side that is empty."""
    m_new = tl.maximum(m, m_other)
    finite = tl.maximum(m_new, LOWEST)
    return m_new, tl.exp(m - finite), tl.exp(m_other - finite)


def add_sink(state: State, sink: Handle, tl: Tl) -> None:
    """Take in one more logit a row, [rows, 1], that has no value: an attention sink. Once a row, or it counts twice."""
    m, l, o = state
    m_new, mine, of_sink = merge_weights(m, sink, tl)
    tl.add(l * mine, of_sink, out=l)
    tl.mul(o, mine, out=o)
    tl.assign(m, m_new)


def normalised(state: State, tl: Tl) -> Handle:
    """O / l; 0 where no key was seen, for there O is 0 too (R19)."""
    _, l, o = state
    return o / tl.maximum(l, 1e-30)


def log_sum_exp(state: State, tl: Tl) -> Handle:
    """The natural logarithm of the softmax's denominator, [rows, 1]; -inf where no key was seen (R19)."""
    m, l, _ = state
    return m + tl.log(l)
