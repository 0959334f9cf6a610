"""Verify accelerator kernels on a reference simulator, from pytest. PYTEST_DONT_REWRITE"""

import pytest

__version__ = "0.1.0"

# Before anything imports it: failing asserts inside the helpers then show their values.
pytest.register_assert_rewrite("pytest_kernbench.assertions")
