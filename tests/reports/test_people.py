"""People's labels: one more judge, and what corrects the others."""

import json
import random

import pytest

from convbench.reports.document import mean_of
from convbench.reports.report import make_report
from convbench.schema.gold import GoldLabel
from tests.helpers.runs import make, questions


def table_of(result, name):
    return next((t for t in result.document.parts[0].tables if t.name == name), None)


@pytest.fixture
def gamed(tmp_path):
    """The judge finds swift 2 points better; people, who label 30 of 80 questions, find nothing."""
    rng = random.Random(0)
    truth = {f"q{i}": rng.gauss(5, 1) for i in range(81)}
    judge = lambda more: lambda q, k: min(10, max(0, truth[q] + more + rng.gauss(0, 0.3)))  # noqa: E731
    kept = {"samples": 1, "temperatures": (1.0,)}
    base = make(tmp_path / "run", questions(80), lambda q, k: "A", overall=judge(0.5), **kept)
    swift = make(
        base.evals_folder / "swift",
        questions(80),
        lambda q, k: "A",
        overall=judge(2.5),
        parent=base.manifest.id,
        split="test",
        extra={"recipe": {"name": "swift", "label": "SWiFt"}},
        **kept,
    )
    folder = base.path / "gold"
    folder.mkdir()
    with (folder / "labels.jsonl").open("w") as file:
        for run in (base, swift):
            for talk in run.conversations():
                if talk.example_id in {f"q{i}" for i in range(30)}:
                    for rater in ("Ann", "Bob"):
                        score = truth[talk.example_id] + rng.gauss(0, 0.3)
                        label = GoldLabel(
                            conversation_id=talk.conversation_id,
                            rater=rater,
                            scores={"overall": min(10, max(0, score))},
                        )
                        file.write(label.model_dump_json() + "\n")
    return base


def test_labels_stand_beside_the_judge(gamed):
    result = make_report([gamed])
    row = dict(zip(*_first(table_of(result, "differences")), strict=True))
    assert mean_of(row["rules/overall"]) == pytest.approx(2, abs=0.15)
    assert mean_of(row["people/overall"]) == pytest.approx(0, abs=0.15)
    assert row["people/overall"].estimate.n == 30
    agreed = table_of(result, "agreement").rows[0].cells
    assert (agreed[0], agreed[1]) == ("rules / people", 60)


def _first(table):
    return [column.key for column in table.columns], table.rows[0].cells


def test_corrected_means_take_the_judges_bias_off(gamed):
    table = table_of(make_report([gamed]), "people")
    found = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert list(found) == ["SWiFt", "Base", "SWiFt − Base"]
    judge, judged, people, corrected, groups = found["SWiFt − Base"]
    assert (judge, groups) == ("rules", 30)
    assert judged == pytest.approx(2, abs=0.15)
    low, high = corrected.estimate.interval
    assert low < 0 < high
    assert abs(people) < 0.15
    assert abs(found["Base"][1] - mean_of(found["Base"][3])) > 0.3  # the judge adds half a point


def test_a_skipped_label_is_none(gamed):
    file = gamed.path / "gold" / "labels.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line |= {"scores": {}, "skipped": "unclear"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = make_report([gamed])
    assert table_of(result, "people") is None
    assert table_of(result, "agreement") is None
