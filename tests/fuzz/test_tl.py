"""Random programs of the AHBM: findings, results and times are what the definition of order says."""

import pytest
from hypothesis import HealthCheck, given, settings

from .tl_check import check
from .tl_programs import Program, programs


@pytest.mark.adr("0020", "6", "8")
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs())
def test_a_program_is_found_to_be_what_its_order_says(program: Program) -> None:
    check(program)
