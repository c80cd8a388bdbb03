"""What the program makes of the same input is what it made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.excerpts import EXCERPTS, written
from tests.golden.record import Recorder
from tests.golden.tasks import TASKS, draws, prompts


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Excerpts of public sets as parquet."""
    return written(EXCERPTS / "hub", tmp_path_factory.mktemp("golden-hub"))


@pytest.mark.parametrize("task", TASKS)
def test_prompts_of_every_call(golden: Recorder, hub: Path, task: str) -> None:
    golden.compare(f"prompts/{task}.jsonl", prompts(task, hub))


def test_draws(golden: Recorder, hub: Path) -> None:
    golden.compare("draws.jsonl", [line for task in TASKS for line in draws(task, hub)])
