"""Verify accelerator kernels on a reference simulator, from pytest. PYTEST_DONT_REWRITE"""

import pytest

__version__ = "0.1.0"

# Before anything imports them: failing asserts inside the helpers and the contract then show their values.
pytest.register_assert_rewrite("pytest_kernbench.assertions", "pytest_kernbench.contract")
