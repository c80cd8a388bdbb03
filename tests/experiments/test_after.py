"""A learner of an experiment that starts from another one's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.errors import SpecError
from convbench.experiments.experiment import ExperimentResult
from convbench.experiments.scheduler import tasks_of
from convbench.experiments.step import step_fingerprint
from convbench.hub.checkpoint_card import model_card
from convbench.models.weights_path import content_hash
from convbench.options.experiment import ExperimentOptions
from convbench.store import Run
from convbench.store.checkpoint import Checkpoint
from tests.experiments.ran import ran

WARM: dict[str, Any] = {
    "title": "a warm start", "tasks": ["pocket"], "modes": ["standard"],
    "model": "local:pocket", "judges": ["rules"],
    "learners": ["base", "refit", "swift:warm", "swift:again"],
    "after": {"swift:warm": "refit", "swift:again": "swift:warm"},
    "count": 6, "samples": 2, "temperatures": [0.7], "max_tokens": 24,
    "recipe_sets": {
        "all": {"fit.max_steps": 1, "fit.save": "end", "launch": "none"},
        "refit": {"fit.learning_rate": 0.001},
    },
}  # fmt: skip
CELL = "pocket-standard-seed0"


def warm(folder: Path, *sets: str, **more: Any) -> ExperimentResult:
    return ran(folder, WARM, *sets, **more)


@pytest.mark.exhaustive
def test_it_learns_on_from_the_other_s_weights_and_its_card_says_so(tmp_path: Path) -> None:
    part = warm(tmp_path, only=("*/build", "*/judge", "*/train/swift-warm"))
    assert [(one.state, one.said) for one in part.outcomes][-1] == (
        "waits", (f"waits for {CELL}/train/refit",)
    )  # fmt: skip
    names = ("*/train/*", "*/eval/swift-again")
    warm(tmp_path, only=("*/train/refit",))
    done = warm(tmp_path, only=names)
    assert {one.state for one in done.outcomes} == {"done"}
    run = Run.open(done.root / CELL)
    refit, first, last = (
        Checkpoint(run.checkpoints_folder / name) for name in ("refit", "swift-warm", "swift-again")
    )
    assert refit.training["base"] == "local:pocket"
    for before, after in ((refit, first), (first, last)):
        assert after.recipe["model"] == str(before.folder.resolve())
        assert after.training["base_fingerprint"] == content_hash(str(before.folder))
        assert content_hash(str(after.folder)) != content_hash(str(before.folder))
    (child,) = run.child_runs()
    assert child.manifest.checkpoint == str(last.folder)
    card = model_card(
        "me/warm", run.manifest, run.judge_specs(), last.recipe, last.training,
        results=None, datasets=(), adapter=False,
    )  # fmt: skip
    words = " ".join(card.split())
    assert f"`{first.folder.resolve()}` (local) after " in words


def test_its_plan_has_the_other_s_training_before_it(tmp_path: Path) -> None:
    parts = warm(tmp_path, "rows=[4,null]", dry_run=True).plan.steps
    needs = {one.step.address: one.step.required_steps() for one in parts}
    assert needs[f"{CELL}/train/swift-warm-4"][-1] == f"{CELL}/train/refit-4"
    assert needs[f"{CELL}/train/swift-again"][-1] == f"{CELL}/train/swift-warm"
    tasks = tasks_of(parts, ExperimentOptions("x"))[0]
    assert [task.after for task in tasks] == [(), *((task.name,) for task in tasks[:-1])]
    marks = [
        {one.step.address: step_fingerprint(one.step, one.spec) for one in some}
        for some in (
            parts,
            warm(tmp_path, "rows=[4,null]", "recipe_sets.refit.fit.learning_rate=0.002",
                 dry_run=True).plan.steps,
        )
    ]  # fmt: skip
    other = {name.split("/", 1)[1] for name in marks[0] if marks[0][name] != marks[1][name]}
    assert other >= {"train/refit", "train/swift-warm", "eval/swift-again"}, (
        "the start is another, so what was trained from it is, too"
    )
    assert not other & {"build", "judge"}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("after={swift: refit}", r"after: found swift; expected one of learners: base, refit"),
        ("after={refit: 'swift:warm'}", r"after.refit: found swift:warm; .*: there is none"),
        ("after={'swift:warm': base}", r"after.swift:warm: found base; .*: refit$"),
        ("after={'swift:warm': 'swift:warm'}", r"found swift:warm; .*before it in learners: refit"),
    ],
)
def test_a_start_that_cannot_be_is_refused(tmp_path: Path, sets: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        warm(tmp_path, sets, dry_run=True)


def test_a_file_that_extends_another_takes_its_starts_back(tmp_path: Path) -> None:
    parts = warm(tmp_path, "learners=[base,'swift:warm']", "after.swift:warm=null",
                 "after={'swift:again': null}", dry_run=True).plan.steps  # fmt: skip
    assert [one.step.start_checkpoint for one in parts] == [None] * 4


def test_what_goes_in_rounds_starts_no_other(tmp_path: Path) -> None:
    sets = ("learners=[seal,refit]", "after={refit: seal}")
    told = warm(tmp_path, *sets, dry_run=True).plan.missing
    assert any("seal, which trains in rounds and generates its own logs" in line for line in told)
