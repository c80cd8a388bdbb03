"""A learner of all tasks' logs in an experiment: trained once, measured on each task."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import SpecError
from convbench.experiments.cells import train_options
from convbench.experiments.experiment import ExperimentResult
from convbench.experiments.scheduler import tasks_of
from convbench.experiments.step import step_fingerprint
from convbench.options.experiment import ExperimentOptions
from convbench.store import Run
from tests.experiments.ran import ran

BOTH: dict[str, Any] = {
    "title": "two tasks", "tasks": ["pocket", "pocket-collaboration"], "modes": ["standard"],
    "model": "local:pocket", "judges": ["rules"], "learners": ["base"], "pooled": ["refit"],
    "count": 6, "samples": 2, "temperatures": [0.7], "max_tokens": 24,
    "recipe_sets": {
        "all": {"fit.max_steps": 1, "fit.save": "end", "launch": "none"},
        "refit": {"fit.learning_rate": 0.1, "fit.packing": True},
        "pooled-refit": {"fit.learning_rate": 0.0001},
    },
}  # fmt: skip
TRAIN = "pocket-standard-seed0/train/pooled-refit"
EVALS = [f"{cell}-standard-seed0/eval/pooled-refit" for cell in ("pocket", "pocket-collaboration")]


def both(folder: Path, *sets: str, **more: Any) -> ExperimentResult:
    return ran(folder, BOTH, *sets, **more)


@pytest.mark.exhaustive
def test_one_learner_of_both_logs_is_measured_on_both_tasks(tmp_path: Path) -> None:
    part = both(tmp_path, only=("*/build", "*/eval/*"))
    waits = {one.address: one.said for one in part.outcomes if one.state == "waits"}
    assert waits == {one: (f"waits for {one.split('/')[0]}/judge",) for one in EVALS}, (
        "its log and its training are missed"
    )
    done = both(tmp_path)
    assert {one.address: one.state for one in done.outcomes} == dict.fromkeys(
        [f"{c}-standard-seed0/{k}" for c in BOTH["tasks"] for k in ("build", "judge")]
        + [TRAIN, *EVALS], "done",
    )  # fmt: skip
    folder = done.root / "pocket-standard-seed0" / "checkpoints" / "pooled-refit"
    runs = [Run.open(done.root / f"{task}-standard-seed0") for task in BOTH["tasks"]]
    told = json.loads((folder / "training.json").read_text())
    assert [one["run"] for one in told["runs"]] == [run.manifest.id for run in runs]
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert (recipe["fit"]["learning_rate"], recipe["fit"]["packing"]) == (0.0001, True)
    for run in runs:
        (child,) = run.child_runs()
        assert child.manifest.checkpoint == str(folder)
    text = (done.root / "report" / "report.md").read_text()
    row = next(
        line for line in text.split("Policies by settings")[1].splitlines() if "(all" in line
    )
    assert row.startswith("| ReFit (all tasks) |")
    assert len(re.findall(r"\d\.\d{4}", row)) >= 3, "a value a task, and their mean"


def test_a_recipe_stands_once_more_under_a_label(tmp_path: Path) -> None:
    sets = ("learners=[base,refit,'refit:hot']", "pooled=['refit:hot']",
            "recipe_sets={all: {launch: none}, refit: {fit.epochs: 2, fit.learning_rate: 0.1}, "
            "'refit:hot': {fit.learning_rate: 0.2}, 'pooled-refit:hot': {fit.epochs: 3}}",
            )  # fmt: skip
    parts = both(tmp_path, *sets, dry_run=True).plan.steps
    trains = {one.step.address: one for one in parts if one.step.kind == "train"}
    assert [name.removeprefix("pocket-standard-seed0/train/") for name in trains][:2] == [
        "refit", "refit-hot"
    ]  # fmt: skip
    said = {}
    for name, one in trains.items():
        asked = train_options(one.step, one.spec, tmp_path / "r" / "x", ExperimentOptions("x"))
        assert asked.recipe == "refit"
        said[name] = {pair for pair in asked.specs.sets if "fit.seed" not in pair}
    cell = "pocket-standard-seed0/train/"
    assert said[f"{cell}refit"] == {'launch="none"', "fit.epochs=2", "fit.learning_rate=0.1"}
    assert said[f"{cell}refit-hot"] == {
        "launch=\"none\"", "fit.epochs=2", "fit.learning_rate=0.2"
    }  # fmt: skip
    assert "fit.epochs=3" in said[f"{cell}pooled-refit-hot"]


def test_it_comes_after_all_of_its_logs_and_alone_is_refused(tmp_path: Path) -> None:
    planned = both(tmp_path, "seeds=[0,1]", "learners=[base,refit]", dry_run=True).plan
    names = [one.step.address for one in planned.steps]
    options = ExperimentOptions("x")
    after = {task.name.split(" ")[1]: task.after for task in tasks_of(planned.steps, options)[0]}
    assert [one.split(" ")[1] for one in after[TRAIN]] == [
        "pocket-standard-seed0/eval/refit", "pocket-collaboration-standard-seed0/eval/refit"
    ]  # fmt: skip
    assert [one.split(" ")[1] for one in after[EVALS[1]]] == [TRAIN]
    assert names.index(TRAIN) > names.index("pocket-collaboration-standard-seed0/judge")
    assert TRAIN.replace("seed0", "seed1") in names
    marks = {
        step_fingerprint(one.step, one.spec) for one in planned.steps if one.step.kind == "train"
    }
    assert len(marks) == 3, "of one log, and of each seed's two"
    with pytest.raises(SpecError, match=r"pooled: .*expected at least 2 tasks; found 1"):
        both(tmp_path, "tasks=[pocket]", dry_run=True)
    told = both(tmp_path, "pooled=[seal]", dry_run=True).plan.missing
    assert any("seal, which trains in rounds and generates its own logs" in line for line in told)
