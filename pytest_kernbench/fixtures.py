"""The fixtures a test may ask for; every name in `__all__` becomes one of the plugin's.

Nothing heavy is imported before a fixture is asked for. PYTEST_DONT_REWRITE
"""

import pytest

from pytest_kernbench import marks
from pytest_kernbench.documents import Document

__all__ = ["kernbench_specs"]


@pytest.fixture(scope="session")
def kernbench_specs(pytestconfig: pytest.Config) -> dict[str, Document]:
    """Spec documents with the text of their clauses, by id ("0060"): the package's and those of the ini setting."""
    return marks.full_documents(pytestconfig)
