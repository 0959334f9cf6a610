"""The six tuning items of ADR-0060 9 as sweeps: `python -m benchmarks.tuning`. PYTEST_DONT_REWRITE"""
