"""What was found holds only with the simulator, the plugin and the operators it was found with."""

from pathlib import Path

import pytest

from pytest_kernbench.mutation import results
from pytest_kernbench.mutation.results import Results, Verdict

VERDICT = Verdict("m:kernel:drop-wait:1", "key", "killed", "against", 1, "test", "how")


@pytest.mark.parametrize("edited", ["plugin.py", "running.py", "operators.py", "watching.py", "vector_plans.py"])
def test_an_edit_of_any_of_them_starts_the_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    content, file = results._content, tmp_path / "results.jsonl"
    first = Results(file)
    first.add(VERDICT)
    first.close()
    assert Results(file).verdicts == {VERDICT.mutant: VERDICT}

    monkeypatch.setattr(results, "_content", lambda each: "edited" if each.name == edited else content(each))

    assert Results(file).verdicts == {}
