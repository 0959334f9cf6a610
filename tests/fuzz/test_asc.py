"""Random programs of the 310P: findings, deadlocks and results are what the definition of order says."""

import pytest
from hypothesis import HealthCheck, given, settings

from .asc_check import check
from .asc_programs import Program, programs


@pytest.mark.adr("0310", "3.5", "3.9", "3.11", "3.12")
@settings(max_examples=180, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_a_program_is_found_to_be_what_its_order_says(program: Program) -> None:
    check(program, orders=4)
