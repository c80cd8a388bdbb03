"""What the program makes of the same input is what it made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.excerpts import EXCERPTS, written
from tests.golden.judges import (
    ASKING,
    asked_run,
    grader_prompts,
    requests,
    simulated_run,
    verdicts,
)
from tests.golden.record import Recorder
from tests.golden.run import make_run
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


@pytest.fixture(scope="session")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that judges are asked about."""
    return asked_run(tmp_path_factory.mktemp("golden-asked"))


@pytest.mark.parametrize("judge", ASKING)
def test_what_a_judge_sends(golden: Recorder, asked: Path, judge: str) -> None:
    golden.compare(f"judges/{judge}.jsonl", requests(judge, asked))


def test_what_a_reviewer_of_simulated_humans_sends(golden: Recorder, tmp_path: Path) -> None:
    golden.compare("judges/simulator.jsonl", requests("simulator", simulated_run(tmp_path)))


def test_what_a_grader_of_answers_is_sent(golden: Recorder) -> None:
    golden.compare("judges/adaptation-grader.jsonl", grader_prompts())


@pytest.mark.parametrize("judge", ["rules", "answer"])
def test_what_a_judge_without_a_model_finds(golden: Recorder, tmp_path: Path, judge: str) -> None:
    golden.compare(f"judges/{judge}.jsonl", verdicts(judge, make_run(tmp_path / "run")))
