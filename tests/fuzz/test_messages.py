"""Random senders and receivers: who hangs, what arrives in which order, and what is left are those of the counters."""

import pytest
from hypothesis import HealthCheck, given, settings

from .messages import Program, check, programs


@pytest.mark.adr("0023", "5", "6", "8", "11")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_a_network_ends_as_its_counters_do(program: Program) -> None:
    check(program)
