"""The baseline of edits by another model: it writes them over HTTP, the run's policy learns."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from convbench.engine.session import Session
from convbench.experiments.rounds import RoundsResult
from convbench.experiments.seal import evaluate_edits_of, taught_accuracies
from convbench.judges.adaptation.accuracies import edit_accuracies
from convbench.judges.adaptation.runner import LearnerRef
from convbench.judges.run import judge_with
from convbench.options.shared import SpecOptions
from convbench.options.train import RoundsOptions
from convbench.pocket import notes
from convbench.pocket.world import make_world
from convbench.store import Run
from tests.helpers import seal_runs, stages
from tests.lab.pocket import edits
from tests.support.later import later
from tests.support.provider import Call, Provider

torch = later("torch")

FAST = {"args.inner.epochs": 20, "args.inner.learning_rate": 0.01}
WORLD = make_world()


def faithful(call: Call) -> str:
    """A model that states every fact of the passage that it is shown, and sees nothing else."""
    (note,) = (n for n in notes.make_notes(WORLD, 0) if n.passage in call.text)
    assert "Write implications." in call.text
    return edits.good_edit(note, "implications")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Poor edits by the pocket policy: titles alone."""
    torch.set_num_threads(1)
    examples = seal_runs.some_examples(4)
    edits = {e.example_id: [f"- {e.inputs['title']}", "- nothing"] for e in examples}
    run = seal_runs.edits_run(tmp_path_factory.mktemp("others") / "run", examples, edits)
    judge_with(run, [seal_runs.quick_judge(**FAST)], seal_runs.QUIET, Session())
    return run


@pytest.mark.exhaustive
def test_another_models_edits_are_learnt_by_the_runs_own_policy(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    judge = seal_runs.quick_judge(**FAST)
    with Provider(reply=faithful) as provider:
        done = stages.evaluate("openai/rival", run.path, name="rival", api_base=provider.api_base)
        assert provider.stats.calls == 4, "two samples of two test passages"
        sent = str(provider.requests)
    for example in run.examples.values():
        for item in example.hidden["questions"]:
            assert item["question"] not in sent, "the questions stay with us"
    (own,) = {v.details["learner"] for v in run.verdicts()}
    (learner,) = {v.details["learner"] for v in done.verdicts()}
    assert learner == own == LearnerRef.of_run(run, None).fingerprint
    assert {v.fingerprint for v in done.verdicts()} == {judge.fingerprint}
    found = taught_accuracies(
        RoundsResult(run, judge.name), judge, RoundsOptions("seal"), Session()
    )
    rows = {name: fmean(value for _, value in values) for name, values in found.items()}
    assert list(rows) == ["nothing", "passage only", "untrained self-edits", "self-edits of rival"]
    assert rows["self-edits of rival"] > rows["untrained self-edits"]
    assert b"sk-secret" not in (done.path / "run.json").read_bytes()


@pytest.mark.exhaustive
def test_the_recipe_names_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`args.others`: an alias of the user's own, at an address from the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (tmp_path / "models.yaml").write_text("models: {mentor: {ref: openai/mentor-1}}\n")
    with Provider(reply=faithful) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.api_base)
        options = RoundsOptions(
            "seal", run=run.path, specs=SpecOptions((tmp_path,)), calls=seal_runs.QUIET
        )
        evaluate_edits_of("mentor", run, options, Session())
        evaluate_edits_of("mentor", run, options, Session())
        assert provider.stats.calls == 4, "what is there is not asked again"
    child = Run.open(run.evals_folder / "mentor")
    assert child.manifest.cast["assistant"].model == "openai/mentor-1"
    assert len(edit_accuracies(child, seal_runs.quick_judge(**FAST))) == 4
