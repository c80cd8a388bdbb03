"""Self-edits: their baselines beside the learner, and the forgetting matrix."""

import json

import pytest

from convbench.reports.report import make_report
from tests.helpers.reported import column, learner, names, tables_of
from tests.helpers.runs import make, questions

MORE = {
    "protocol": "self-edit",
    "mode": "standard",
    "samples": 2,
    "temperatures": (1.0,),
    "judge": "adaptation",
}
ACCURACY = "adaptation/accuracy"


@pytest.fixture
def seal(tmp_path):
    """Passages q0, q1: unadapted .1 and .3; untrained edits .2 and .4, two each; rounds .5, .6."""

    def taught(first, second):
        after, before = {"q0": first, "q1": second, "q2": 0.0}, {"q0": 0.1, "q1": 0.3, "q2": 0.0}
        return lambda q, k: {
            "accuracy": after[q], "gain": after[q] - before[q], "improves": 1.0,
            "overall": after[q],
        }  # fmt: skip

    run = make(tmp_path / "run", questions(2, "pocket-notes"), lambda q, k: "B",
               scores=taught(0.2, 0.4), task="pocket-notes", **MORE)  # fmt: skip
    for number, score in ((1, 0.5), (2, 0.6)):
        name = f"seal-round-{number}"
        learner(run, name, lambda q, k: "B", "SEAL", scores=taught(score, score), **MORE)
    run.reports_folder.mkdir()
    write(run, {"passage only": [["g0", 0.15], ["g1", 0.35]]})
    return run


def write(run, stored):
    (run.reports_folder / "self-edits.json").write_text(json.dumps(stored))


def test_baselines_of_self_edits_are_rows(seal):
    tables = tables_of(seal)
    means = column(tables["results"], ACCURACY)
    assert {name: round(value.mean, 9) for name, value in means.items()} == {
        "nothing": 0.2,
        "passage only": 0.25,
        "SEAL round 1": 0.5,
        "SEAL round 2": 0.6,
        "untrained self-edits": 0.3,
    }
    gains = column(tables["differences"], ACCURACY)
    assert "untrained self-edits" not in gains
    # Round 1 less untrained, by passage: .3 and .1: mean .2, error .1, t with 1: 12.706.
    first = gains["SEAL round 1"].estimate
    assert (first.mean, first.error, first.n) == (pytest.approx(0.2), pytest.approx(0.1), 2)
    assert first.interval == (pytest.approx(-1.0706, abs=1e-3), pytest.approx(1.4706, abs=1e-3))
    rounds = [row.cells[:2] for row in tables["rounds"].rows]
    assert rounds == [("SEAL", 0), ("SEAL", 1), ("SEAL", 2)]


def test_all_passages_at_once_are_a_setting_of_their_own(seal):
    stored = {
        "untrained self-edits": [["g0", 0.3], ["g1", 0.5]],
        "round 2": [["g0", 0.4], ["g1", 0.8]],
    }
    write(seal, {"pretraining": stored})
    result = make_report([seal])
    assert result.document.parts[1].title.endswith(", continued pre-training")
    tables = tables_of(seal, part=1)
    assert {name: value.mean for name, value in column(tables["results"], ACCURACY).items()} == {
        "SEAL round 2": pytest.approx(0.6),
        "untrained self-edits": pytest.approx(0.4),
    }
    gain = column(tables["differences"], ACCURACY)["SEAL round 2"]
    assert gain.estimate.mean == pytest.approx(0.2)


def test_forgetting_stands_as_a_matrix(seal):
    two = [
        {"names": ["a", "b"], "before": [0, 0], "after": [[0.8], [0.4, 0.6]], "base": [0.2, 0.4]},
        {"names": ["c", "d"], "before": [0, 0], "after": [[0.6], [0.2, 1.0]], "base": [0.0, 0.2]},
    ]
    write(seal, {"sequences": {"round 2": two}})
    table = tables_of(seal)["forgetting"]
    assert table.caption == "One passage after the other: SEAL round 2"
    assert [row.cells for row in table.rows] == [
        ("none", pytest.approx(0.1), pytest.approx(0.3), pytest.approx(0.2)),
        ("1", pytest.approx(0.7), None, pytest.approx(0.7)),
        ("2", pytest.approx(0.3), pytest.approx(0.8), pytest.approx(0.55)),
    ]
    assert "after the last edit: 0.300" in table.notes[0]


def test_seals_printed_numbers_stand_under_ours(seal):
    table = tables_of(seal, paper=True)["results"]
    place = [each.key for each in table.columns].index(ACCURACY)
    above = dict(zip(names(table)[:-1], table.rows[1:], strict=True))
    for name, printed in (("nothing", 0.327), ("untrained self-edits", 0.397),
                          ("SEAL round 2", 0.47)):  # fmt: skip
        assert (above[name].printed, above[name].cells[place].mean) == (True, printed)
    assert "Passage + GPT-4.1 data, printed" in names(table)
