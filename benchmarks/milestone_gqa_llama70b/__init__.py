"""The milestone bench of ADR-0054: the attention kernels of ADR-0060 against the two that they replace, in four panels.

PYTEST_DONT_REWRITE
"""
