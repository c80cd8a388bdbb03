"""SEAL with two prompts and a stand-in for GPT-4.1, from the file to the document."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from convbench.experiments.experiment import ExperimentResult
from convbench.judges.adaptation.accuracies import edit_accuracies
from convbench.judges.adaptation.runner import LearnerRef
from convbench.judges.run import judges_of
from convbench.pocket import notes
from convbench.pocket.world import make_world
from convbench.store import Run
from tests.experiments.ran import ran
from tests.helpers import stages
from tests.lab.pocket import edits
from tests.support.provider import Call, Provider

pytestmark = pytest.mark.exhaustive
PROMPTS = ("self-edit", "self-edit-self-qa")
SPEC: dict[str, Any] = {
    "extends": "pocket-seal", "title": "two prompts", "protocols": PROMPTS, "seeds": [1],
    "policies": ["gpt-4.1"], "count": 8, "samples": 2, "max_tokens": 32,
    "recipe_sets": {"seal": {
        "args.sequences": 0, "args.pretraining": 2, "fit.max_steps": 1, "fit.epochs": 1,
    }},
}  # fmt: skip
CELL = "pocket-notes-self-edit-standard-seed1"
NOTES = notes.make_notes(make_world(), 0)


def faithful(call: Call) -> str:
    """A model that states every fact of the passage that it is shown, as it is asked to."""
    assert call.model == "gpt-4.1"
    (note,) = (note for note in NOTES if note.passage in call.text)
    kind = "self-qa" if "Write questions and answers." in call.text else "implications"
    return edits.good_edit(note, kind)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> ExperimentResult:
    pytest.importorskip("torch").set_num_threads(1)
    with Provider(reply=faithful) as provider, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-secret")
        patch.setenv("OPENAI_BASE_URL", provider.api_base)
        folder = tmp_path_factory.mktemp("prompts")
        alone = ran(folder, SPEC, only=[f"{CELL}/{step}" for step in ("build", "judge", "train")])
        assert alone.outcomes[-1].said == (
            "the table lacks the self-edits of gpt-4.1, which was not evaluated",
        )
        result = ran(folder, SPEC)
        assert provider.stats.calls == 2 * sum(
            example.split == "test"
            for run in result.runs
            for example in Run.open(run).examples.values()
        )
    assert [outcome.said for outcome in result.outcomes] == [()] * 10, result.failure_lines
    return result


def means_of(result: ExperimentResult, name: str) -> list[dict[str, float]]:
    """Return the means of the accuracy after adaptation by policy, from each table of this name."""
    assert result.report is not None
    found = []
    for part in result.report.document.parts:
        for table in part.tables:
            keys = [column.key for column in table.columns]
            column = next((key for key in keys if key.endswith("/accuracy")), None)
            if table.name == name and column is not None:
                rows = [row for row in table.records() if not row.get("printed")]
                found.append({row["policy"]: row[column] for row in rows})
    return found


def test_every_prompt_has_its_rounds_in_its_part(done: ExperimentResult) -> None:
    tables = means_of(done, "results")
    for means, path in zip(tables[:: len(tables) // 2], done.runs, strict=True):
        run = Run.open(path)
        (judge,) = judges_of(run)
        for name, each in (
            ("untrained self-edits", run),
            ("SEAL round 1", Run.open(run.evals_folder / "seal-round-1")),
            ("SEAL round 2", Run.open(run.evals_folder / "seal-round-2")),
        ):
            wanted = fmean(value for _, value in edit_accuracies(each, judge))
            assert means[name] == pytest.approx(wanted)


def test_the_other_models_edits_are_learnt_by_the_policy_one_by_one_and_all_at_once(
    done: ExperimentResult,
) -> None:
    for path in done.runs:
        run = Run.open(path)
        child = Run.open(run.evals_folder / "gpt-4.1")
        learners = {verdict.details["learner"] for verdict in child.verdicts()}
        assert learners == {LearnerRef.of_run(run, None).fingerprint}
        single, together = (run.reports_folder / "seal.md").read_text().split("All passages")
        for text in (single, together):
            names = [line.split("|")[1].strip() for line in text.splitlines() if "|" in line]
            assert names.index("self-edits of gpt-4.1") == names.index("untrained self-edits") + 1


def test_it_stands_over_the_printed_line_and_in_the_curve(done: ExperimentResult) -> None:
    report = stages.report(done.runs[0], paper=True, plots=True).document
    table = next(table for table in report.parts[0].tables if table.name == "results")
    names = [row.cells[0] for row in table.rows]
    assert names[names.index("gpt-4.1") + 1] == "  printed"
    captions = [picture.caption for part in report.parts for picture in part.pictures]
    assert any("by round" in caption for caption in captions)
