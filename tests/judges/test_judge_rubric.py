"""The rubrics' text and the reading of replies."""

import re

from hypothesis import given
from hypothesis import strategies as st

from convbench.catalog import load_spec
from convbench.judges.replies import Complaint, Scores, read_reply
from convbench.schema import JudgeSpec

RUBRIC = load_spec(JudgeSpec, "judges", "rubric")
NAMES = ["accuracy", "reasoning", "comprehensiveness", "pedagogical", "confidence", "overall"]


def test_another_scale():
    spec = RUBRIC.model_copy(update={"lowest": 1.0, "highest": 5.0})
    lines = "\n".join(f"{metric.label}: 4/5" for metric in spec.metrics)
    got = read_reply(lines, spec)
    assert isinstance(got, Scores)
    assert set(got.scores.values()) == {4.0}
    assert isinstance(read_reply(lines.replace("4/5", "0"), spec), Complaint)


@given(st.text(alphabet="Accuracy: Overall10/.-\n*#|[]", max_size=120))
def test_any_reply_is_read_or_complained_about(reply):
    got = read_reply(reply, RUBRIC)
    assert isinstance(got, Complaint) or set(got.scores) == set(NAMES)


@given(st.lists(st.integers(0, 100), min_size=6, max_size=6))
def test_what_is_written_is_read(tenths):
    scores = [value / 10 for value in tenths]
    reply = "\n\n".join(
        f"{metric.label}: {score}\nWords."
        for metric, score in zip(RUBRIC.metrics, scores, strict=True)
    )
    got = read_reply(reply, RUBRIC)
    assert isinstance(got, Scores)
    assert list(got.scores.values()) == scores


def words(text):
    """The words of a text without the marks of markdown and the paper's printed line breaks."""
    return re.sub(r"\\n|[*`#]|\\_", " ", text).split()


def test_the_rubric_is_the_paper_s_word_for_word(paper):
    text = paper.read_text(encoding="utf-8")
    system = text.split("### System Prompt - GPT-4o Evaluator")[1]
    system, rest = system.split("### Prompt - GPT-4o Evaluator")
    assert words(RUBRIC.system) == words(system)
    prompt = rest.split("We consider the following 6")[0]
    ours = re.sub(
        r"\{% for.*?%\}.*?\{% endfor \+%\}",
        "A. [choice A], B. [choice B], C. [choice C], D. [choice D]",
        RUBRIC.prompt,
    )
    ours = ours.replace("{{ question }}", "[question text]").replace(
        "{{ answer }}", "[correct answer index]"
    )
    ours = ours.replace("{{ transcript }}", "[Complete conversation history with all turns]")
    assert words(ours) == words(prompt)


def test_the_other_rubric_asks_section_4_s_questions(paper):
    text = paper.read_text(encoding="utf-8")
    spec = load_spec(JudgeSpec, "judges", "rubric-section4")
    for metric in spec.metrics[:-1]:
        printed = re.search(rf"\*\*\d\. {metric.label}\*\*: ([^?]*\?)", text)[1]
        assert printed.replace("’", "'") == metric.about
        assert f"{metric.label} - {metric.about}" in spec.system
