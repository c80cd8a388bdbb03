"""Grading whole conversations, our own and those that the paper prints."""

import re

import pytest

from convbench.answers.grade import grade_conversation
from convbench.schema import Choice, Conversation, Example, Failure, Turn
from tests.helpers.judged_talk import PROTOCOL


def example(answer="C", letters="ABCD"):
    return Example(
        example_id="e", task="t", split="test", group_id="g", question="?", answer=answer,
        choices=tuple(Choice(label=x, text=x * 3) for x in letters),
    )  # fmt: skip


def conversation(*said, failure=None):
    turns = []
    for text in said:
        turns += [Turn(speaker="teacher", step="q", content="The answer is D?")]
        turns += [Turn(speaker="assistant", step="a", content=text)]
    return Conversation(
        key="k", conversation_id="c", example_id="e", turns=tuple(turns), failure=failure,
        stop=None if failure else "complete",
    )  # fmt: skip


def test_only_the_final_policy_turn_answers():
    got = grade_conversation(
        PROTOCOL, conversation("<thinking>a</thinking>", "The answer is C."), example()
    )
    assert (got.answer, got.correct, got.n_turns, got.words) == ("C", True, 2, 5)
    assert (got.thinking, got.thinking_any, got.thinking_closed) == (False, True, False)
    got = grade_conversation(PROTOCOL, conversation("The answer is C.", "Well."), example())
    assert (got.answer, got.correct) == (None, False)


def test_a_trailing_turn_of_another_speaker_does_not_answer():
    talk = conversation("The answer is C.")
    after = Turn(speaker="teacher", step="q", content="The answer is D.")
    talk = talk.model_copy(update={"turns": (*talk.turns, after)})
    assert grade_conversation(PROTOCOL, talk, example()).answer == "C"


def test_wrong_and_carried():
    assert (
        grade_conversation(PROTOCOL, conversation("The answer is B."), example()).correct is False
    )
    talk = conversation("<thinking> hm", "the answer is C. </thinking> Done.")
    assert grade_conversation(PROTOCOL, talk, example()).answer is None


def test_a_failed_conversation_says_nothing():
    failed = conversation("The answer is C.", failure=Failure(kind="X", message="m"))
    got = grade_conversation(PROTOCOL, failed, example())
    assert (got.answer, got.correct, got.thinking, got.n_turns) == (None, None, None, 1)


def test_without_options_or_gold_nothing_is_correct_or_wrong():
    talk = conversation("The answer is C.")
    assert grade_conversation(PROTOCOL, talk, example(answer=None)).correct is None
    assert grade_conversation(PROTOCOL, talk, example(letters="")).correct is None
    assert grade_conversation(PROTOCOL, talk, example(answer=None)).answer == "C"


def test_answer_after_a_marker():
    protocol = PROTOCOL.model_copy(update={"answer_after": "READY:"})
    assert grade_conversation(protocol, conversation("Hm, D. READY: C"), example()).correct is True
    free = grade_conversation(protocol, conversation("Hm. READY: SELECT 1\n"), example(letters=""))
    assert (free.answer, free.correct) == ("SELECT 1", None)
    assert grade_conversation(protocol, conversation("Hm."), example(letters="")).answer is None


def printed(paper, section):
    """The assistant messages printed in a section of the paper, or in our excerpt's."""
    text = paper.read_text(encoding="utf-8")
    start = re.search(rf"^#+ {re.escape(section)} ", text, re.M).end()
    body = re.split(r"^#+ [A-G]\.\d |^#+ Evaluation Scores", text[start:], flags=re.M)[0]
    parts = re.split(r"^#+ (Assistant|Teacher) Message \d$", body, flags=re.M)
    return [b.strip() for a, b in zip(parts[1::2], parts[2::2], strict=True) if a == "Assistant"]


@pytest.mark.parametrize(
    ("section", "answer", "opens", "opens_any", "closed"),
    [
        ("E.4", None, False, True, False),
        ("E.5", None, False, True, False),  # "choice C is the best explanation"
        ("E.6", "C", False, False, False),
        ("E.7", "C", False, True, False),
        ("E.8", "B", True, True, False),
        ("E.9", None, True, True, False),
        ("F.3", "A", True, True, True),
        ("F.4", "B", True, True, True),
    ],
)
def test_printed_transcripts(paper, section, answer, opens, opens_any, closed):
    said = printed(paper, section)
    assert len(said) == 3
    got = grade_conversation(PROTOCOL, conversation(*said), example())
    assert got.answer == answer
    assert (got.thinking, got.thinking_any, got.thinking_closed) == (opens, opens_any, closed)
