"""Several adaptations at once, and a judge model beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from convbench.engine import Stopped
from convbench.engine.session import Session
from convbench.experiments.seal import baseline_accuracies
from convbench.judges.adaptation.learner import AdaptationOutcome, Learner
from convbench.judges.adaptation.runner import AdaptationRunner
from convbench.judges.adaptation.verdict import with_runner
from convbench.judges.run import score_pending
from convbench.models.weights_path import check_weights
from convbench.options.shared import CallOptions
from convbench.schema import Message
from convbench.store import Run
from convbench.store.jsonl import read_records
from tests.helpers import seal_runs
from tests.helpers.self_edits import good
from tests.support.later import later

torch = later("torch")


def verdicts(run: Run, many: int | None) -> dict[str, Any]:
    with run.lock():
        calls = CallOptions(concurrency=many, quiet=True)
        done = asyncio.run(
            score_pending(run, seal_runs.quick_judge(**{"args.inner.seeds": 2}), calls, Session())
        )
    assert (done.jobs.done, done.failed_count) == (6, 0)
    found = {v.conversation_id.partition("-note")[2]: v for v in run.verdicts()}
    return {k: (v.scores, v.details["replies"], v.details["steps"]) for k, v in found.items()}


@pytest.mark.exhaustive
def test_three_at_once_score_as_one_after_the_other(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    examples = seal_runs.some_examples(3)
    edits = {e.example_id: [good(e), f"- {e.inputs['title']}"] for e in examples}
    alone = verdicts(seal_runs.edits_run(tmp_path / "alone", examples, edits), None)
    together = verdicts(seal_runs.edits_run(tmp_path / "together", examples, edits), 3)
    assert len(together) == 6
    assert together == alone


def test_a_twin_shares_the_weights_and_no_adapter() -> None:
    torch.set_num_threads(1)
    learner = Learner.load(check_weights("pocket"), "cpu")
    twin = learner.make_twin()
    pairs = zip(learner.model.parameters(), twin.model.parameters(), strict=True)
    assert all(one.data_ptr() == two.data_ptr() for one, two in pairs)
    modules = {id(m) for m in learner.model.modules()}
    assert not modules & {id(m) for m in twin.model.modules()}


def always(messages: list[Message], example: Mapping[str, Any]) -> str:
    """A judge model that accepts every answer."""
    return "Yes."


def test_baselines_are_graded_by_the_judge_model_too(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    run = seal_runs.edits_run(tmp_path / "run", seal_runs.some_examples(2), {})
    grader = f"rule:{__name__}:always"
    sets = {"args.inner.grade": "model", "args.grader": grader}
    judge = seal_runs.quick_judge(**sets)
    found = with_runner(run, judge, seal_runs.QUIET, Session(), baseline_accuracies)
    assert {name: {value for _, value in values} for name, values in found.items()} == {
        "nothing": {1.0}, "passage only": {1.0},
    }  # fmt: skip


class Halted(Learner):
    """A learner during whose first adaptation the command is interrupted."""

    begun = 0
    runner: AdaptationRunner | None = None

    def adapt_to(self, *args: Any, **more: Any) -> AdaptationOutcome:
        self.begun += 1
        assert self.runner is not None
        self.runner.learner_pool.halted.set()
        return AdaptationOutcome(1.0, 0.0)

    def unadapted_accuracy(self, *args: Any) -> float:
        return 0.0

    def make_twin(self) -> Learner:
        return self


def test_an_interrupt_begins_nothing_more(tmp_path: Path) -> None:
    """The adaptation in flight ends and is kept; the next one is not begun."""
    run = seal_runs.edits_run(tmp_path / "run", seal_runs.some_examples(4), {})
    learner = Halted(None, None)

    def work(runner: AdaptationRunner) -> None:
        runner.learner_pool.learner, learner.runner = learner, runner
        baseline_accuracies(runner)

    with pytest.raises(Stopped):
        with_runner(run, seal_runs.quick_judge(), seal_runs.QUIET, Session(), work)
    assert learner.begun == 1
    kept = [record["accuracy"] for record in read_records(run.path / "adaptations.jsonl")]
    assert kept == [0.0, 0.0, 1.0], "two passages asked before, one adaptation"
