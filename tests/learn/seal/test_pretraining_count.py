"""Continued pre-training at the paper's numbers: 250 adaptations for rewards, and one for each
training on all test passages; by a learner that counts and trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from convbench import catalog
from convbench.engine.session import Session
from convbench.experiments.rounds import RoundResult, RoundsResult
from convbench.experiments.seal import (
    SealResult,
    baseline_accuracies,
    many_passages,
    taught_accuracies,
)
from convbench.judges.adaptation.learner import AdaptationReplies, Learner, Question
from convbench.judges.adaptation.passages import pretraining_accuracies
from convbench.judges.adaptation.settings import InnerSettings
from convbench.judges.adaptation.verdict import with_runner
from convbench.judges.resolve import Judge, resolve_judge
from convbench.judges.run import judge_with
from convbench.options.shared import SpecOptions
from convbench.options.train import RoundsOptions
from convbench.rollout.manifest import follow_up_manifest
from convbench.schema import Example, ModelConfig, TaskSpec
from convbench.schema.experiment import ExperimentSpec
from convbench.store import Run
from convbench.tasks.draw import count_splits
from convbench.tasks.load import load_examples
from tests.helpers import seal_runs, stages
from tests.helpers.runs import write

TRAIN, TEST, EDITS = 50, 200, 5
RULES = {"args.inner.grade": "exact"}


class Counting(Learner):
    """Answers nothing, trains nothing, and counts what it is asked to learn."""

    trained: list[int]

    def make_twin(self) -> Learner:
        return self

    def teach_texts(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        inner: InnerSettings,
        guard: Sequence[Question] = (),
    ) -> AdaptationReplies:
        if texts:
            self.trained.append(len(texts))
        replies = (tuple("no" for _ in questions),) * (inner.seeds if texts else 1)
        return AdaptationReplies(replies, texts=len(texts))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of texts of each training."""
    learner = Counting(None, None)
    learner.trained = []
    monkeypatch.setattr(Learner, "load", lambda *_: learner)
    return learner.trained


@pytest.fixture(scope="module")
def passages() -> list[Example]:
    (example, *_) = seal_runs.some_examples(1)
    return [
        example.model_copy(
            update={
                "example_id": f"note-{number}",
                "group_id": f"note-{number}",
                "inputs": {**example.inputs, "title": f"Note {number}"},
                "split": "train" if number < TRAIN else "test",
            }
        )
        for number in range(TRAIN + TEST)
    ]


def edited(folder: Path, examples: Sequence[Example]) -> Run:
    edits = {e.example_id: [f"- {e.example_id} {i} is so." for i in range(EDITS)] for e in examples}
    return seal_runs.edits_run(folder, examples, edits)


def test_rewards_need_250_adaptations(
    passages: list[Example], counted: list[int], tmp_path: Path
) -> None:
    spec = catalog.load_spec(ExperimentSpec, "experiments", "seal-pretraining")
    (name,) = spec.judges
    judge = resolve_judge(name, sets=RULES)
    run = edited(tmp_path / "run", passages)
    (summary,) = judge_with(run, [judge], seal_runs.QUIET, Session()).summaries
    assert summary.jobs.done == len(counted) == TRAIN * EDITS == 250
    child = edited(tmp_path / "round", [e for e in passages if e.split == "test"])
    judge_with(child, [judge], seal_runs.QUIET, Session())
    assert len(counted) == 250, "an evaluated round's edits are learnt all at once"
    assert list(with_runner(run, judge, seal_runs.QUIET, Session(), baseline_accuracies)) == [
        "nothing"
    ]
    assert len(counted) == 250
    values = pretraining_accuracies(run, judge, seal_runs.QUIET, Session(), edits=EDITS)
    assert len(values) == TEST
    assert counted[250:] == [2 * EDITS * TEST], "each edit, with its passage"
    assert not judge_with(run, [judge], seal_runs.QUIET, Session()).summaries[0].jobs.done


def evaluated(run: Run, name: str, policy: str, **more: object) -> Run:
    """An evaluation of the run whose policy wrote the same edits of the test passages."""
    cast = {**run.manifest.cast, "assistant": ModelConfig(model=policy)}
    manifest = follow_up_manifest(run.manifest, cast, split="test", checkpoint=policy, **more)
    asked = run.examples
    talks = [talk for talk in run.conversations() if asked[talk.example_id].split == "test"]
    return write(run.evals_folder / name, manifest, asked.values(), talks)


def test_another_models_edits_are_learnt_all_at_once_too(
    passages: list[Example], counted: list[int], tmp_path: Path
) -> None:
    """It has no verdict: who would learn its edits is known without."""
    judge = resolve_judge("adaptation-pretraining", sets=RULES)
    run = edited(tmp_path / "run", [*passages[:2], *passages[-3:]])
    child = evaluated(run, "rival", "openai/rival")
    for each in (run, child):
        judge_with(each, [judge], seal_runs.QUIET, Session())
    assert child.verdicts_file.read_text() == "", "judged, and without a verdict"
    assert len(counted) == 2 * EDITS
    result = SealResult(RoundsResult(run, judge.name, [RoundResult(1, run, tmp_path)]))
    sets = SpecOptions(sets=(f"args.pretraining={EDITS}",))
    asked = RoundsOptions("seal", run=run.path, specs=sets, calls=seal_runs.QUIET)
    many_passages(result, asked, Session())
    assert list(result.pretrained) == [
        "passage only", "untrained self-edits", "self-edits of rival",
    ]  # fmt: skip
    assert counted[2 * EDITS :] == [3, 2 * 3 * EDITS, 2 * 3 * EDITS]


def test_rounds_of_another_learner_are_no_other_models_edits(
    passages: list[Example], counted: list[int], tmp_path: Path
) -> None:
    judge = resolve_judge("adaptation", sets=RULES)
    run = edited(tmp_path / "run", [*passages[:2], *passages[-3:]])
    recipe = {"recipe": {"name": "seal"}}
    own, _, _ = children = (
        evaluated(run, "seal-a-round-1", "local:pocket", extra=recipe),
        evaluated(run, "seal-b-round-1", "local:pocket", extra=recipe),
        evaluated(run, "rival", "openai/rival"),
    )
    for each in (run, *children):
        judge_with(each, [judge], seal_runs.QUIET, Session())
    rounds = RoundsResult(run, judge.name, [RoundResult(1, run, tmp_path, own)])
    options = RoundsOptions("seal", run=run.path, calls=seal_runs.QUIET, label="a")
    assert list(taught_accuracies(rounds, judge, options, Session())) == [
        "nothing", "passage only", "untrained self-edits", "self-edits of rival", "round 1",
    ]  # fmt: skip


def test_every_edit_is_learnt_alone_where_that_is_measured(
    passages: list[Example], counted: list[int], tmp_path: Path
) -> None:
    judge: Judge = resolve_judge("adaptation", sets=RULES)
    few = [*passages[:2], *passages[-3:]]
    judge_with(edited(tmp_path / "run", few), [judge], seal_runs.QUIET, Session())
    assert len(counted) == len(few) * EDITS


PLAN = """title: small
tasks: [pocket-notes]
modes: [standard]
protocols: [self-edit]
model: local:pocket
judges: [{judge}]
learners: [base, seal]
count: 10
samples: 2
temperatures: [1.0]
"""


def test_the_plan_counts_them(tmp_path: Path) -> None:
    counts = {}
    for judge in ("adaptation", "adaptation-pretraining"):
        file = tmp_path / "plan.yaml"
        file.write_text(PLAN.format(judge=judge))
        planned = stages.experiment(str(file), run=tmp_path / "out", dry_run=True)
        counts[judge] = planned.plan.total_estimate.verdicts
    task = catalog.load_spec(TaskSpec, "tasks", "pocket-notes", sets={"sample.count": 10})
    splits = count_splits(e.split for e in load_examples(task, 0).examples)
    train, test = splits["train"], splits["test"]
    assert counts["adaptation"] == 2 * (10 + train + 2 * test), "two rounds are logged and tested"
    assert counts["adaptation-pretraining"] == 2 * 2 * train > 0
