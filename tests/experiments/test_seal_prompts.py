"""SEAL with two prompts and a stand-in for GPT-4.1, from the file to the document."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pytest

from convbench import catalog
from convbench.experiments.experiment import ExperimentResult
from convbench.judges.adaptation.accuracies import edit_accuracies
from convbench.judges.adaptation.runner import LearnerRef
from convbench.judges.run import judges_of
from convbench.pocket import notes
from convbench.pocket.world import make_world
from convbench.reports.published import printed_rounds
from convbench.reports.writers import render_text
from convbench.schema.experiment import ExperimentSpec
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


def table_rows(result: ExperimentResult, label: str) -> list[list[str]]:
    """Return the texts of the document's only table with this label."""
    assert result.report is not None
    tables = [table for part in result.report.document.parts for table in part.tables]
    (table,) = (table for table in tables if table.label == label)
    return [[cell.text for cell in row] for row in table.rows]


def test_every_prompt_has_its_rounds_beside_the_printed_ones(done: ExperimentResult) -> None:
    rows = table_rows(done, "prompts")
    assert [row[0] for row in rows] == ["self-edit", "  printed", "self-edit-self-qa", "  printed"]
    assert rows[1][1:6] == ["0.397", "0.427", "0.470", "+0.073", "-"]
    assert rows[3][1:6] == ["0.373", "0.428", "0.487", "+0.114", "-"]
    for row, path in zip(rows[::2], done.runs, strict=True):
        run = Run.open(path)
        (judge,) = judges_of(run)
        means = [
            fmean(value for _, value in edit_accuracies(each, judge))
            for each in (run, *(Run.open(run.evals_folder / f"seal-round-{n}") for n in (1, 2)))
        ]
        assert row[1:4] == [f"{mean:.3f}" for mean in means]
        assert float(row[4]) == pytest.approx(means[2] - means[0], abs=1e-3)
        assert row[5].startswith("[")


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


def test_it_stands_in_the_printed_tables_line_and_in_the_curve(done: ExperimentResult) -> None:
    report = stages.report(done.runs[0], paper=True, plots=True)
    (table,) = (t for part in report.document.parts for t in part.tables if t.label == "published")
    names = [row[0].text for row in table.rows]
    assert names[names.index("self-edits of gpt-4.1") + 1] == "  Passage + GPT-4.1 data"
    assert done.report is not None
    captions = [p.caption for part in done.report.document.parts for p in part.pictures]
    curves = [text for text in captions if "by round" in text]
    assert len(curves) == 2
    assert all("not trained: gpt-4.1." in text for text in curves)
    written = render_text(done.report.document, "markdown")
    assert "Differences to gpt-4.1" in written


def test_printed_gains_are_those_of_the_appendix() -> None:
    spec = catalog.load_spec(ExperimentSpec, "experiments", "seal-prompts")
    gains = {}
    for protocol in spec.protocols:
        untrained, first, last = printed_rounds(str(protocol))
        assert untrained < first < last
        gains[protocol] = round(last - untrained, 3)
    assert list(gains.values()) == [0.073, 0.051, 0.071, 0.062, 0.114]
    assert printed_rounds("self-edit-of-mine") == ()
