"""The unit of a row: one gradient over an epoch; the steps told are the steps taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.learn.rows import training_rows
from convbench.learn.select import select
from convbench.learn.steps import StepCount
from convbench.schema.recipe import Data, Recipe
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import apart
from tests.support.later import later

recording = later("tests.helpers.workers.gradients")


@pytest.mark.parametrize("recipe", ["swift", "refit"])
def test_an_epoch_in_one_step_has_one_gradient_in_either_unit(
    tmp_path: Path, run: Run, model: Path, recipe: str
) -> None:
    """Equation (7) sums over turns: it does not matter in how many forward passes."""
    found = {}
    for unit, size, times in (("conversation", 9, 1), ("turn", 6, 3)):
        sets = {"data.unit": unit, "fit.batch_size": size, "fit.accumulation": times,
                "fit.max_steps": 1, "fit.precision": "fp64"}  # fmt: skip
        job = Job.from_file(tiny.resolved(tmp_path / unit, recipe, run, model, **sets))
        weighted = launch.load_trainer(launch.locate_trainer(recipe)).data(job)
        rows = training_rows(weighted, job.chat, unit=job.recipe.data.unit).rows
        assert len(rows) == (9 if unit == "conversation" else 18)
        found[unit] = recording.record(job, weighted)["steps"][0]
    assert apart(found["turn"], found["conversation"]) < 1e-5


@pytest.mark.parametrize(
    ("recipe", "sets"),
    [
        ("swift", {"fit.epochs": 2, "fit.batch_size": 4, "fit.accumulation": 2}),
        ("star-gate", {"data.unit": "turn", "fit.epochs": 1.5, "fit.batch_size": 2}),
        ("dpo", {"fit.epochs": 3, "fit.batch_size": 1, "fit.accumulation": 2}),
    ],
)
def test_the_steps_told_are_the_steps_taken(
    tmp_path: Path, run: Run, model: Path, recipe: str, sets: dict[str, object],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tiny.resolved(tmp_path / "job", recipe, run, model, **{"fit.max_steps": None, **sets})
    job = Job.from_file(file)
    module = launch.load_trainer(launch.locate_trainer(str(job.recipe.trainer)))
    module.fit(job, module.data(job))
    told = capsys.readouterr().err.splitlines()[0]
    summary = json.loads((file.parent / "training.json").read_text())
    taken = max(entry["step"] for entry in summary["log"] if "loss" in entry)
    assert told.startswith(f"{taken} optimiser steps: ")
    assert summary["steps"] == taken
    assert summary["unit"] == ("pair" if recipe == "dpo" else job.recipe.data.unit)


def test_the_papers_steps_by_its_rows_and_by_conversations() -> None:
    """Table 26: batch 8 x 4 on 2 processes, 4 epochs; 400 questions, 3 runs of 3 turns."""
    recipe = catalog.load_spec(Recipe, "recipes", "swift")
    assert recipe.data.unit == "turn"
    assert StepCount(400 * 3 * 3, "turn", recipe.fit, 2).total_steps == 228
    assert StepCount(400 * 3, "conversation", recipe.fit, 2).total_steps == 76
    told = StepCount(3600, "turn", recipe.fit, 2).describe()
    assert (
        "228 optimiser steps: 3600 rows (one per turn), 64 per step (8 x 4 x 2 processes)" in told
    )


@pytest.mark.parametrize("name", ["refit", "swift", "star-gate", "star-gate-d"])
def test_the_papers_recipes_count_turns(name: str) -> None:
    assert catalog.load_spec(Recipe, "recipes", name).data.unit == "turn"


def test_a_size_counts_the_unit(run: Run) -> None:
    """Two turns a conversation: six rows are one question of three, or two questions."""
    turns = select(run, Data(rows=6, unit="turn"))
    talks = select(run, Data(rows=6))
    assert (len(turns.logged), len(talks.logged)) == (3, 6)
    kept = {item.task for item in turns.logged}
    assert kept < {item.task for item in talks.logged}, "nested"
    with pytest.raises(TrainError, match=r"found 9 rows \(one per conversation\).*at least 10"):
        select(run, Data(rows=10))
