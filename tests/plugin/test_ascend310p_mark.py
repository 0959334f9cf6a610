"""The mark of the 310P refuses fields that the spec does not have, and values out of bounds."""

import pytest


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("queue_dept=1", "Ascend310pSpec has no such field; nearest: queue_depth"),
        ("queue_depth=0", "ascend310p mark: spec field queue_depth = 0"),
        ("4", "name the fields, as in ascend310p(clock_mhz=1060)"),
    ],
)
def test_a_wrong_mark_fails_the_test_with_the_nearest(mark: str, words: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.ascend310p({mark})\ndef test_it(ascend310p_core): pass\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*"])
