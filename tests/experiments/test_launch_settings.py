"""`--set launch.KEY` of train is taken by experiments too, for every training with a launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.experiments.cells import plan_steps, train_options
from convbench.experiments.experiment import load_specs
from convbench.experiments.step import step_fingerprint
from convbench.learn.train import check_trainable, choose_launch, split_sets
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import SpecOptions
from convbench.options.train import TrainOptions
from tests.helpers.typed import type_here

RECIPES = "recipe_sets.all.launch=none"
SETS = ("launch.num_processes=4", "learners=[base, swift, sweet]", "recipe_sets.sweet.launch=none")


def launches(name: str, *sets: str) -> dict[str, tuple[int, list[str]]]:
    """Processes and notes of each learner's training, as an experiment starts it."""
    options = ExperimentOptions(name, specs=SpecOptions(sets=sets))
    found = {}
    for planned in (part for spec in load_specs(options)[:1] for part in plan_steps(spec)):
        if planned.step.kind == "train":
            training = train_options(planned.step, planned.spec, Path("nowhere"), options)
            recipe, own = check_trainable(training), split_sets(training.specs.sets)[1]
            launch, notes = choose_launch(training, recipe, own, 8)
            found[planned.step.learner] = launch.process_count, notes
    return found


def test_an_experiment_starts_its_trainings_on_so_many_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", "8x80")
    found = launches("length", *SETS)
    assert found["swift"] == (4, [])
    count, notes = found["sweet"]
    assert count == 1
    assert notes == [
        "launch.num_processes: not used, launch 'none' starts one process without a launcher"
    ]
    assert launches("length", *SETS[1:])["swift"] == (2, [])


def test_sweet_is_sharded_where_there_are_accelerators() -> None:
    for name in ("sweet", "mt-dpo", "rft"):
        training = TrainOptions(name)
        recipe = check_trainable(training)
        names = [choose_launch(training, recipe, {}, cards)[0].name for cards in (0, 1, 2, 8)]
        assert names == ["none", "none", "zero3", "zero3"]


def test_a_recipe_setting_of_the_launch_stands_beside_it() -> None:
    (spec, *_) = load_specs(ExperimentOptions("pocket", specs=SpecOptions(sets=(SETS[0], RECIPES))))
    assert spec.launch == {"num_processes": 4}
    assert spec.recipe_sets["all"]["launch"] == "none"
    (plain, *_) = load_specs(ExperimentOptions("pocket"))
    trainings = [part.step for part in plan_steps(spec) if part.step.kind == "train"]
    assert trainings
    for step in trainings:  # a finished training is not done again on other processes
        assert step_fingerprint(step, spec) == step_fingerprint(step, plain)


def test_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = type_here("experiment", "pocket", "--dry-run", "--set", SETS[0])
    assert done.code == 0, done.err
