"""What experiments plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.plans import NAMES, planned_steps, write_questions
from tests.golden.record import GOLDEN, Recorder


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Settings that name a question set for every task."""
    return write_questions(tmp_path_factory.mktemp("questions"))


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_an_experiment(
    golden: Recorder, questions: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    golden.compare(f"plans/{name}.jsonl", planned_steps(name, questions, tmp_path / name))


def test_no_plan_is_left_over() -> None:
    assert {file.stem for file in (GOLDEN / "plans").iterdir()} == set(NAMES)
