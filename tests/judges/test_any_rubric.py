"""Rubrics of any kind: scales, weights and words are fields, and replies are held to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import DataError, SpecError
from convbench.judges.ask import schema_of
from convbench.judges.human import read_labels
from convbench.judges.replies import Complaint, Scores, read_reply
from convbench.judges.resolve import resolve_judge
from convbench.judges.scoring_form import form_fields, label_judge
from convbench.schema import JudgeSpec

HAGGLE = Path(__file__).parent / "haggle.yaml"
SPEC = catalog.load_spec(JudgeSpec, "judges", str(HAGGLE))
TEXT = "Profit kept: {}\nThe price held.\n\nFairness: {}\n{}\n\nFirmness: {}\nStood firm."


def as_json(profit: Any, fairness: Any, words: str, firm: Any) -> str:
    """The same reply by the schema."""
    given = {"profit": (profit, "The price held."), "fairness": (fairness, words),
             "confidence": (firm, "Stood firm.")}  # fmt: skip
    return json.dumps({k: {"score": s, "justification": w} for k, (s, w) in given.items()})


def both(*values: Any) -> tuple[Scores | Complaint, Scores | Complaint]:
    """A reply as it is read in text and in JSON."""
    return read_reply(TEXT.format(values[0], values[1], values[2], values[3]), SPEC), read_reply(
        as_json(*values), SPEC
    )


def test_every_metric_is_read_on_its_own_scale() -> None:
    for got in both(80, 2, "Hard on the buyer.", 0.5):
        assert isinstance(got, Scores), got
        assert got.scores == {"profit": 80.0, "fairness": 2.0, "confidence": 0.5}


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ((101, 2, "Hard.", 1), "Profit kept: found"),
        ((80, 0, "Hard.", 1), "Fairness: found"),
        ((80, 2, "Hard.", 7), "Firmness: found"),
        ((80, 2, "", 1), "Fairness: found no justification"),
    ],
)
def test_what_leaves_its_scale_or_has_no_words_is_asked_again(
    values: tuple[Any, ...], fault: str
) -> None:
    for got in both(*values):
        assert isinstance(got, Complaint), got
        assert fault in got.text
        assert "Fairness (1 to 5)" in got.text
        assert "and a justification" in got.text


def test_schema_names_each_range() -> None:
    found = schema_of(SPEC)["properties"]
    ranges = {n: (f["properties"]["score"]["minimum"], f["properties"]["score"]["maximum"])
              for n, f in found.items()}  # fmt: skip
    assert ranges == {"profit": (0, 100), "fairness": (1, 5), "confidence": (0, 1)}


def test_weights_make_the_overall_score() -> None:
    # 3/4 of 80 of 0 to 100, 1/4 of 2 of 1 to 5, on the judge's scale 0 to 1.
    got = SPEC.with_overall({"profit": 80, "fairness": 2, "confidence": 1})
    assert got["overall"] == pytest.approx(0.75 * 0.8 + 0.25 * 0.25)
    assert SPEC.score_names == ("profit", "fairness", "confidence", "overall")
    plain = catalog.load_spec(JudgeSpec, "judges", "rubric")
    assert plain.with_overall({"overall": 3.0}) == {"overall": 3.0}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({"metrics": [{"name": "a", "label": "A"}, {"name": "a", "label": "B"}]}, "'a' twice"),
        ({"metrics": [{"name": "overall", "label": "O"},
                      {"name": "a", "label": "A", "weight": 1}]}, "found overall and metrics"),
        ({"metrics": [{"name": "overall", "label": "O", "lowest": 5, "highest": 5}]}, "5 to 5"),
        ({"metrics": [{"name": "a", "label": "A"}]}, "'overall' is not among"),
        ({"metrics": [{"name": "a'b", "label": "A", "weight": 1}]}, "name"),
        ({"kind": "rules", "function": "x:y"}, "justification: required needs kind"),
    ],
)  # fmt: skip
def test_wrong_rubrics_are_refused(sets: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        catalog.load_spec(JudgeSpec, "judges", str(HAGGLE), sets=sets)


def test_fingerprints_of_rubrics_without_the_new_fields_stay() -> None:
    assert resolve_judge("rules").fingerprint == "37dca3e98d7f773a"
    assert "weight" not in SPEC.model_copy(update={"metrics": ()}).model_dump_json()
    old = catalog.load_spec(JudgeSpec, "judges", "rubric").model_dump_json()
    assert not any(f'"{name}"' in old for name in ("weight", "justification"))


def test_labels_of_people_are_read_by_the_rubric(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    head = "conversation_id,rater,profit,fairness,note\n"
    file.write_text(head + "a,ada,100,5,Sold well\na,bob,50,3,Meek\n")
    judge = resolve_judge(f"{HAGGLE}@human:{file}")
    assert judge.name == "human:labels"
    assert judge.labels is not None
    assert judge.labels.conversation_scores("a")[0] == {"profit": 75.0, "fairness": 4.0}
    spec = label_judge(SPEC)
    for row, said in [
        ("a,ada,100,,Sold", "no fairness"), ("a,ada,100,6,Sold", "from 1 to 5"),
        ("a,ada,100,5,", "no note"),
    ]:  # fmt: skip
        file.write_text(head + row + "\n")
        with pytest.raises(DataError, match=said):
            read_labels(file, spec)


def test_a_form_says_ranges_what_is_needed_and_that_words_are() -> None:
    form = form_fields(label_judge(SPEC))
    assert [(m["label"], m["lowest"], m["highest"], m["needed"]) for m in form["metrics"]] == [
        ("Profit kept", 0, 100, True), ("Fairness", 1, 5, True), ("Firmness", 0, 1, False),
    ]  # fmt: skip
    assert form["note"]
    assert form["headline"] == "Overall"
