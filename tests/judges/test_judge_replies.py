"""A judge's reply: scores by the schema or by lines, or a complaint."""

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from convbench.catalog import load_spec
from convbench.judges.replies import Complaint, Scores, read_reply
from convbench.schema import JudgeSpec

RUBRIC = load_spec(JudgeSpec, "judges", "rubric")
NAMES = [metric.name for metric in RUBRIC.metrics]
LABELS = [metric.label for metric in RUBRIC.metrics]
WORDS = yaml.safe_load((Path(__file__).parent / "justifications.yaml").read_text(encoding="utf-8"))
SCORES = [8, 7, 6, 7.5, 0, 10]
SMALL = JudgeSpec.model_validate(
    {
        "name": "small",
        "title": "Small",
        "kind": "rubric",
        "system": "s",
        "prompt": "p",
        "metrics": [{"name": "tone", "label": "Tone of voice", "aliases": ["Ton"], "highest": 5},
                    {"name": "score", "label": "Score"}],
        "reward": {"metric": "tone"},
    }
)  # fmt: skip


def scores_of(reply, spec=RUBRIC):
    got = read_reply(reply, spec)
    return list(got.scores.values()) if isinstance(got, Scores) else None


def by_schema(words="Fine.", scores=SCORES, **more):
    pairs = zip(NAMES, scores, strict=True)
    return {name: {"score": score, "justification": words} for name, score in pairs} | more


@pytest.mark.parametrize("words", WORDS)
def test_a_complete_reply_by_the_schema_is_read_whatever_its_justifications_say(words):
    got = read_reply(json.dumps(by_schema(words)), RUBRIC)
    assert list(got.scores.values()) == SCORES
    assert set(got.justifications.values()) == {words}


FORMS = {
    "schema": json.dumps(by_schema()),
    "schema in a fence": f"```json\n{json.dumps(by_schema(), indent=1)}\n```",
    "thought before": f"<think>Accuracy: 3?</think>{json.dumps(by_schema())}",
    "words around": f"Here it is:\n{json.dumps(by_schema())}\nThat is all.",
    "names and numbers": json.dumps(dict(zip(NAMES, SCORES, strict=True))),
    "labels and texts": json.dumps({x: f"{s}/10" for x, s in zip(LABELS, SCORES, strict=True)}),
    "below scores": json.dumps({"scores": by_schema(), "summary": "Fine."}),
    "list": json.dumps(
        [{"metric": x, "score": s, "reason": "r"} for x, s in zip(LABELS, SCORES, strict=True)]
    ),
    "twice alike": json.dumps(by_schema()) * 2,
    **{
        form: "\n".join(form.format(label=x, score=s) for x, s in zip(LABELS, SCORES, strict=True))
        for form in (
            "{label}: {score}",
            "{label}: {score}/10\nIt holds.",
            "**{label}:** {score} out of 10",
            "**{label}** (0-10): {score}",
            "- {label} - {score}",
            "### {label}\n{score}\nIt holds.",
            "1. {label} score: {score}. It holds.",
            "{label}:\n\nScore: {score}\n",
            "| {label} | {score} | It holds. |",
            "| {label} | It holds. | {score}/10 |",
        )
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_reply_in_a_usual_form_is_read(form):
    assert scores_of(FORMS[form]) == SCORES


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("", "missing: Accuracy"),
        ("I would say it is quite good.", "missing: Accuracy"),
        (
            json.dumps(by_schema(scores=[8, 7, 6, 7, 0, 11])),
            "Overall: found '11.0'",
        ),
        (json.dumps(by_schema(scores=[8, 7, 6, 7, 0, True])), "Overall: found 'True'"),
        (json.dumps(by_schema(scores=[8, 7, 6, 7, 0, None])), "Overall: found 'None'"),
        (json.dumps(by_schema(scores=[8, 7, 6, 7, 0, float("nan")])), "Overall: found 'nan'"),
        (json.dumps(by_schema())[:-1] + ', "accuracy": 3}', "found twice: Accuracy"),
        (json.dumps(dict.fromkeys(NAMES, "4/5")), "Accuracy: found '4.0 of 5'"),
        (FORMS["{label}: {score}"] + "\nOverall: 3", "found twice: Overall"),
        (FORMS["{label}: {score}"].replace(": 8", ": 8 to 9"), "Accuracy: found 'several'"),
        (FORMS["{label}: {score}"].replace(": 8", ": 8,5"), "missing: Accuracy"),
        (FORMS["{label}: {score}"].replace(": 8", " (1-5): 4"), "Accuracy: found '4.0 of 5'"),
        (FORMS["{label}: {score}"].replace(": 8", ": -1"), "Accuracy: found '-1.0'"),
        ("\n".join(f"> {x}: 10" for x in LABELS), "missing: Accuracy"),
        (f"<think>{FORMS['{label}: {score}']}</think>", "missing: Accuracy"),
        ("| Accuracy | 8 | 10 |", "Accuracy: found 'several'"),
    ],
)
def test_a_reply_that_is_not_complete_and_in_range_is_asked_for_again(reply, fault):
    got = read_reply(reply, RUBRIC)
    assert isinstance(got, Complaint)
    assert fault in got.text
    assert "Confidence calibration (0 to 10)" in got.text


def test_a_quoted_line_beside_own_scores_does_not_count():
    echo = "\n".join(f"> {label}: 1" for label in LABELS)
    assert scores_of(f"{echo}\n\n{FORMS['{label}: {score}']}") == SCORES


def test_metrics_have_ranges_and_names_of_their_own():
    assert scores_of("Ton: 5/5\nScore: 9", SMALL) == [5, 9]
    assert scores_of('{"tone": {"score": 4}, "score": 3}', SMALL) == [4, 3]
    assert "Tone of voice (0 to 5)" in read_reply("Tone of voice: 6\nScore: 9", SMALL).text


def test_a_justification_that_is_required_is_asked_for():
    spec = SMALL.model_copy(update={"justification": "required"})
    got = read_reply("Tone of voice: 5\nWarm.\nScore: 9\n", spec)
    assert "Score: found no justification" in got.text
    assert "Tone of voice: found" not in got.text
    read = read_reply("Tone of voice: 5\nWarm\nall along.\nScore: 9 - good", spec)
    assert read.justifications == {"tone": "Warm all along.", "score": "- good"}


@given(st.text(alphabet='{}[]"score:8 Overall|>\n#*</think>', max_size=200))
def test_any_text_gives_scores_or_a_complaint(reply):
    assert isinstance(read_reply(reply, RUBRIC), Scores | Complaint)


@pytest.mark.parametrize(
    "filler",
    ["score ", "score" + " " * 60_000, "> ", "{", '{"a":', "|", "| a ", "[", "```\n", "\n", " ",
     "Overall: 8 ", "Overall\n", "Overall (", "- ", "1. ", "<b", "*", "\n|a|", '{"a":[1,'],
    ids=lambda filler: ascii(filler[:12]),
)  # fmt: skip
def test_a_long_reply_is_read_in_linear_time(filler):
    """A quadratic reader takes minutes."""
    started = time.perf_counter()
    read_reply(f"{filler * max(1, 100_000 // len(filler))}\nAccuracy: x", RUBRIC)
    assert time.perf_counter() - started < 20


def test_a_deep_object_is_no_error():
    deep = '{"a":' * 400 + "8" + "}" * 400
    assert isinstance(read_reply(deep, RUBRIC), Complaint)
