"""People's labels: one more judge, and what corrects the others."""

import json
import random

import pytest

from convbench.reports.document import mean_of
from convbench.schema.gold import GoldLabel
from tests.helpers.reported import column, learner, right_on, tables_of
from tests.helpers.runs import make, questions

LABELLED = {f"q{i}" for i in range(30)}


@pytest.fixture
def gamed(tmp_path):
    """The judge finds swift 2 points better; people, who label 30 of 80 questions, find nothing."""
    rng = random.Random(0)
    truth = {f"q{i}": rng.gauss(5, 1) for i in range(81)}

    def said(question, more=0.0):
        return min(10, max(0, truth[question] + more + rng.gauss(0, 0.3)))

    one = {"samples": 1, "temperatures": (1.0,)}
    run = make(
        tmp_path / "run", questions(80), right_on(), overall=lambda q, k: said(q, 0.5), **one
    )
    swift = learner(run, "swift", right_on(), "SWiFt", overall=lambda q, k: said(q, 2.5), **one)
    folder = run.path / "gold"
    folder.mkdir()
    with (folder / "labels.jsonl").open("w") as file:
        for talk in (talk for each in (run, swift) for talk in each.conversations()):
            for rater in ("Ann", "Bob") if talk.example_id in LABELLED else ():
                scores = {"overall": said(talk.example_id)}
                label = GoldLabel(conversation_id=talk.conversation_id, rater=rater, scores=scores)
                file.write(label.model_dump_json() + "\n")
    return run


def test_labels_stand_beside_the_judge(gamed):
    tables = tables_of(gamed)
    judged, people = (
        column(tables["differences"], f"{name}/overall")["SWiFt"] for name in ("rules", "people")
    )
    assert mean_of(judged) == pytest.approx(2, abs=0.15)
    assert mean_of(people) == pytest.approx(0, abs=0.15)
    assert people.estimate.n == 30
    assert column(tables["agreement"], "common") == {"rules / people": 60}


def test_corrected_means_take_the_judges_bias_off(gamed):
    found = {row.cells[0]: row.cells[1:] for row in tables_of(gamed)["people"].rows}
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
    skipped = (line | {"scores": {}, "skipped": "unclear"} for line in lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in skipped))
    assert not {"people", "agreement"} & tables_of(gamed).keys()
