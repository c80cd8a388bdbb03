"""An experiment file: kinds of self-edits side by side, SEAL's rounds, a teacher and a student."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from convbench import catalog
from convbench.errors import PreflightError
from convbench.experiments.cells import iter_cells, plan_steps
from convbench.experiments.experiment import ExperimentResult
from convbench.judges.adaptation.runner import LearnerRef
from convbench.reports.write import render_text
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run
from tests.helpers import seal_runs, stages
from tests.support.later import later

torch = later("torch")

SPEC = """title: small
tasks: [pocket-notes]
modes: [standard]
protocols: [self-edit, self-edit-self-qa]
model: local:pocket
judges: [{judge}]
learners: [base, seal]
seeds: [1]
count: 5
samples: 2
temperatures: [1.0]
max_tokens: 24
recipe_sets:
  seal:
    rounds: 1
    fit.max_steps: 1
    fit.batch_size: 4
    fit.accumulation: 1
    fit.precision: fp32
    fit.gradient_checkpointing: false
    fit.save: end
    lora.r: 4
"""
JUDGE = """title: quick
extends: adaptation
args:
  learner: {learner}
  inner: {{r: 8, alpha: 16, epochs: 8, batch_size: 4, seeds: 1, max_tokens: 16,
    learning_rate: 0.005}}
"""
KINDS = ("self-edit", "self-edit-self-qa")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExperimentResult, str]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("experiment")
    student = folder / "student"
    shutil.copytree(seal_runs.pocket(), student)
    (student / "mark.json").write_text("{}")  # the same weights under another fingerprint
    (folder / "student.yaml").write_text(JUDGE.format(learner=f"local:{student}"))
    (folder / "small.yaml").write_text(SPEC.format(judge=folder / "student.yaml"))
    found = stages.experiment(str(folder / "small.yaml"), run=folder / "out")
    return found, f"local:{student}"


def test_kinds_and_rounds_stand_in_one_report(done: tuple[ExperimentResult, str]) -> None:
    result, _ = done
    assert [path.name for path in result.runs] == [
        f"pocket-notes-{kind}-standard-seed1" for kind in KINDS
    ]
    assert result.report is not None
    said = render_text(result.report.document, "markdown")
    for kind in KINDS:
        assert kind in said
    assert said.count("round 1") >= 2
    _, beside = said.split("### Policies by settings")
    assert all(kind in beside for kind in KINDS)
    assert "| untrained self-edits |" in beside
    for path in result.runs:
        evals = {child.path.name for child in Run.open(path).child_runs()}
        assert evals == {"seal-round-1"}
        assert (path / "reports" / "seal.md").exists()


def test_a_student_learns_what_the_teacher_writes(done: tuple[ExperimentResult, str]) -> None:
    """The edits are the teacher's, who is trained; who learns them stays the same."""
    result, student = done
    run = Run.open(result.runs[0])
    mark = LearnerRef.of_run(run, student).fingerprint
    assert mark != LearnerRef.of_run(run, None).fingerprint
    writers = set()
    for one in (run, *run.child_runs()):
        assert {v.details["learner"] for v in one.verdicts()} == {mark}
        writers.add(one.manifest.cast["assistant"].fingerprint)
    assert len(writers) == 2, "the pocket policy, and what came out of the round"
    assert "self-edits of" not in (run.reports_folder / "seal.md").read_text()


def test_rows_and_rounds_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(JUDGE.format(learner="null"))
    file = tmp_path / "rows.yaml"
    file.write_text(SPEC.format(judge=tmp_path / "quick.yaml") + "rows: [10]\n")
    with pytest.raises(PreflightError, match="rows: found 10 for seal, which trains in rounds"):
        stages.experiment(str(file), run=tmp_path / "out")
    assert not (tmp_path / "out").exists(), "said before anything is built"


FILTERS = """extends: seal-filters
title: small
tasks: [pocket-notes]
model: local:pocket
judges: [{judge}]
seeds: [1]
count: 8
samples: 3
max_tokens: 24
sets: {{task.sample.train: 0.5, task.sample.each.test: 1}}
recipe_sets:
  all:
    rounds: 1
    fit.max_steps: 1
    fit.batch_size: 4
    fit.accumulation: 1
    fit.precision: fp32
    fit.gradient_checkpointing: false
    fit.save: end
    lora.r: 4
"""


def test_both_filters_of_edits_in_one_experiment(tmp_path: Path) -> None:
    """The best edit of each passage; every one that raises the accuracy: from the same edits."""
    torch.set_num_threads(1)
    (tmp_path / "quick.yaml").write_text(JUDGE.format(learner="null"))
    file = tmp_path / "filters.yaml"
    file.write_text(FILTERS.format(judge=tmp_path / "quick.yaml"))
    result = stages.experiment(str(file), run=tmp_path / "out")
    assert result.failure_lines == []
    (run,) = (Run.open(path) for path in result.runs)
    train = {
        conversation.conversation_id: conversation.example_id
        for conversation in run.conversations()
        if run.examples[conversation.example_id].split == "train"
    }
    gains = [v.scores["gain"] for v in run.verdicts() if v.conversation_id in train]
    raised = sum(gain > 0 for gain in gains)
    rows = {
        name: json.loads((run.checkpoints_folder / name / "training.json").read_text())
        for name in ("seal", "seal-improves")
    }
    assert 0 < raised < len(gains)
    assert rows["seal-improves"]["counts"]["rows"] == raised
    assert rows["seal"]["counts"]["rows"] == len(set(train.values()))
    evals = {child.path.name for child in run.child_runs()}
    assert evals == {"seal-round-1", "seal-improves-round-1"}
    assert (run.reports_folder / "seal.md").exists()
    assert (run.reports_folder / "seal-improves.md").exists()
    assert result.report is not None
    said = render_text(result.report.document, "markdown")
    assert "SEAL round 1 (seal-round-1)" in said
    assert "SEAL round 1 (seal-improves-round-1)" in said
    left = stages.experiment(str(file), run=tmp_path / "out", dry_run=True)
    assert not left.plan.steps


def test_the_shipped_file_compares_the_five_kinds() -> None:
    spec = catalog.load_spec(ExperimentSpec, "experiments", "self-edits")
    seal = catalog.load_spec(ExperimentSpec, "experiments", "seal")
    assert (spec.model, spec.count, spec.sets) == (seal.model, seal.count, seal.sets)
    assert [cell.protocol for cell in iter_cells(spec)] == [
        "self-edit", "self-edit-implications-long", "self-edit-implications-very-long",
        "self-edit-rewrite", "self-edit-self-qa",
    ]  # fmt: skip
    assert [part.step.kind for part in plan_steps(spec)] == ["build", "judge"] * 5


def test_the_shipped_files_at_the_papers_scale() -> None:
    spec = catalog.load_spec(ExperimentSpec, "experiments", "seal")
    assert (spec.count, spec.samples, spec.sets["task.sample.each.test"]) == (250, 5, 1)
    assert spec.sets_of("seal") == {"fresh": True, "args.sequences": 64}
    prompts = catalog.load_spec(ExperimentSpec, "experiments", "seal-prompts")
    assert len(prompts.protocols) == 5
    assert (prompts.model, prompts.count, prompts.samples) == (spec.model, 250, 5)
    assert (prompts.sets, prompts.learners, prompts.policies) == (spec.sets, ("base", "seal"), ())
    assert prompts.sets_of("seal") == {"fresh": True, "args.sequences": 0}
    whole = catalog.load_spec(ExperimentSpec, "experiments", "seal-pretraining")
    assert spec.policies == whole.policies == ("gpt-4.1",)
    assert whole.sets["task.sample.each.test"] == whole.sets_of("seal")["args.pretraining"] == 5
    for name, task in (("sweet-backend", "colbench-backend"), ("sweet-frontend", "websight")):
        table = catalog.load_spec(ExperimentSpec, "experiments", name)
        assert table.tasks == (task,)
        assert table.devices.policy is not None
        assert table.devices.teacher is not None
        assert not set(table.devices.policy) & set(table.devices.teacher), "served side by side"
        assert {"policy", "teacher"} <= table.devices.vllm.keys()
