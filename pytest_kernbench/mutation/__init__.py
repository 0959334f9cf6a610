"""Kernel mutation testing: one device-level mistake at a time, and which tests notice. PYTEST_DONT_REWRITE

Nothing here is imported unless `--kernbench-mutate` is given.
"""
